"""Which of the blocks that a space is made of have rows in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hwbench.latency import LatencyTable, Role
from hwbench.reports.families import BlockFamily
from hwbench.spaces import StagedSpace
from hwbench.specs import Outcome, Precision, Workload, part_workload


@dataclass(frozen=True)
class Share:
    """How many blocks there are, how many of them have a latency, and how many failed."""

    total: int
    measured: int
    failed: int

    @property
    def missing(self) -> int:
        """Blocks without a row."""
        return self.total - self.measured - self.failed


@dataclass(frozen=True)
class Coverage:
    """The blocks of a space in one table: as a whole, by family, and those without a row (of whatever precision)."""

    space: str
    precision: Precision
    classes: int
    whole: Share
    families: Mapping[BlockFamily, Share]
    missing: tuple[Workload, ...]


def belongs(space: StagedSpace, table: LatencyTable) -> bool:
    """Whether a table has rows of a space: one of its stems, which every network of the space begins with.

    Raises:
        UnsupportedModule: The table is one of streams, and the family of the space has no stream form.
    """
    first = (
        part_workload(space.ends.on(cell.clip).stem(), cell.clip, table.precision, table.variant)
        for cell in space.cells
    )
    stems = {(stem.blocks, stem.input) for stem in first}
    return any((row.workload.blocks, row.workload.input) in stems for row in table if row.role is Role.BLOCK)


def parts_of(space: StagedSpace, classes: int) -> list[Workload]:
    """All blocks of a space, in fp32; a large space has tens of thousands, which takes seconds."""
    return list(space.parts(Precision.FP32, num_classes=classes))


def coverage(space: str, parts: list[Workload], classes: int, table: LatencyTable) -> Coverage:
    """Compares the blocks of a space, as ``parts_of`` lists them, with a table."""
    outcomes = {
        (row.workload.blocks[0], row.workload.input): row.outcome
        for row in table
        if row.role is Role.BLOCK and row.workload.variant == table.variant
    }
    counts: dict[BlockFamily, Counter[str]] = {}
    absent = []
    for part in parts:
        outcome = outcomes.get((part.blocks[0], part.input))
        state = "missing" if outcome is None else "measured" if outcome is Outcome.OK else "failed"
        counts.setdefault(BlockFamily.of(part), Counter())[state] += 1
        if outcome is None:
            absent.append(part)
    families = {family: _share(counted) for family, counted in sorted(counts.items())}
    return Coverage(space, table.precision, classes, _share(sum(counts.values(), Counter())), families, tuple(absent))


def _share(counted: Counter[str]) -> Share:
    return Share(counted.total(), counted["measured"], counted["failed"])
