"""Numbers that add up over the blocks of a network, such as latency, laid out so that a whole space is swept at once.

What the rest of a network costs depends on what reaches it. So the state of every sweep is the activation that reaches
a stage, numbered in the order in which the choices before first give it. For each input size and stage there is a
matrix (activations that reach the stage x choices of the stage) of what the blocks of the stage add up to, and one of
the number of the activation that each hands on. The head is part of the last stage, behind which there is one state;
the stem and a constant are the base of an input size. A choice that needs a block without a number holds infinity and
is no part of anything below.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from hwbench.errors import NotMeasured
from hwbench.spaces.space import InputSize, StagedSpace
from hwbench.spaces.steps import OneBlock, SharedChoices, SpaceStep
from hwbench.spaces.walk import BlockNumber, Floats, Integers, StageSums, Walk
from hwbench.specs import Architecture, BlockSpec, TensorSpec

# Members summed at a time by ``totals``: what is written stays in the caches.
_CHUNK = 1 << 14


@dataclass(frozen=True)
class CellSums:
    """One input size: what is always there, and the sums of each step."""

    cell: InputSize
    base: float
    stages: tuple[StageSums, ...]


@dataclass(frozen=True)
class SpaceSums:
    """The numbers of all members of a space."""

    space: StagedSpace
    axes: tuple[SpaceStep, ...]
    cells: tuple[CellSums, ...]
    num_classes: int
    missing: tuple[tuple[BlockSpec, TensorSpec], ...] = ()
    reason: str = field(default="", repr=False)

    @classmethod
    def of(cls, space: StagedSpace, number: BlockNumber, *, num_classes: int, constant: float = 0.0) -> SpaceSums:
        """Asks for the number of every block of the space once.

        Args:
            space: The space.
            number: What a block on its input adds; it may raise NotMeasured.
            num_classes: Width of the heads.
            constant: Added to every network.
        """
        return cls._of(Walk(number), space, num_classes, constant)

    @classmethod
    def _of(cls, walk: Walk, space: StagedSpace, num_classes: int, constant: float) -> SpaceSums:
        cells = []
        with _without_collector():
            for cell in space.cells:
                base, stages = walk.steps(space.family, space.ends, space.steps, cell.clip, num_classes)
                cells.append(CellSums(cell, constant + base, stages))
        return cls(space, space.steps, tuple(cells), num_classes, tuple(walk.missing), walk.reason)

    @classmethod
    def of_peaks(cls, space: StagedSpace, number: BlockNumber, *, num_classes: int) -> SpaceSums:
        """As ``of``, but the largest number of the blocks of a stage in the place of their sum; numbers are 0 or more.

        What adds up over stages means nothing then; ``peak`` and limits do (``hwbench.spaces.budgets.PeakLimit``).
        """
        return cls._of(Walk(number, max), space, num_classes, 0.0)

    @property
    def members(self) -> tuple[SpaceSums, ...]:
        """Themselves: one space is a union of one (``hwbench.spaces.union``)."""
        return (self,)

    def of_space(self, name: str) -> SpaceSums:
        """Themselves; ``name`` is that of the space."""
        return self

    @cached_property
    def num_known(self) -> int:
        """Number of members all of whose blocks have a number."""
        return sum(ways for _, ways in self._known_by_cell())

    @property
    def coverage(self) -> float:
        """Share of the space all of whose blocks have a number."""
        return self.num_known / self.space.size()

    def require(self) -> None:
        """Makes sure that there is at least one member to speak about.

        Raises:
            NotMeasured: None has numbers for all its blocks.
        """
        if not self.num_known:
            raise NotMeasured(
                f"no network of space {self.space.name!r} has all its rows: {len(self.missing)} are missing; "
                f"the first: {self.reason}"
            )

    def total(self, architecture: Architecture) -> float:
        """The sum of one member; infinity where a block has no number."""
        total = 0.0
        for number in self._numbers(architecture):  # ``sum`` adds up more exactly than ``totals``
            total += number
        return total

    def peak(self, architecture: Architecture) -> float:
        """The largest number of one member, where these are those of ``of_peaks``."""
        return max(self._numbers(architecture))

    def _numbers(self, architecture: Architecture) -> Iterator[float]:
        """What a member always has, then those of its stages in order."""
        self.space.validate(architecture)
        sums, state = self.cells[self.space.cells.index(self.space.cell(architecture))], 0
        yield sums.base
        for axis, stage, choice in zip(self.axes, sums.stages, self.space.step_choices(architecture)):
            number = axis.numbers[choice]
            yield float(stage.seconds[state, number])
            state = int(stage.out[state, number])

    def totals(self, codes: Integers) -> Floats:
        """The sums of many members at once, the same numbers to the last bit as ``total`` of each.

        Args:
            codes: Members as ``StagedSpace.encode`` writes them, shape (N, number of choices).

        Raises:
            InvalidValue: A number is not the place of a value.
        """
        self.space.check_codes(codes)
        found = np.empty(len(codes))
        for first in range(0, len(codes), _CHUNK):
            found[first : first + _CHUNK] = self._totals(codes[first : first + _CHUNK])
        return found

    def _totals(self, codes: Integers) -> Floats:
        # One column after the other: a row of choices is short, and columns lie far apart.
        columns = iter(np.ascontiguousarray(codes.T))
        cell = next(columns) * len(self.space.resolution) + next(columns)
        bases, tables = self._tables
        total: Floats = bases[cell]
        state, depth = np.zeros_like(cell), np.zeros_like(cell)
        for axis, (seconds, out) in zip(self.axes, tables):
            number = np.zeros_like(cell)
            for name, size in axis.stage.sizes():
                number *= size
                number += (place := next(columns))
                if isinstance(axis, SharedChoices) and name == "depth":
                    depth = np.array(axis.stage["depth"])[place]
            if isinstance(axis, OneBlock):
                number = np.where(depth > axis.number, number, len(axis.choices) - 1)
            _, states, choices = seconds.shape
            at = (cell * states + state) * choices + number
            total += seconds.ravel()[at]
            state = out.ravel()[at]
        return total

    @cached_property
    def _tables(self) -> tuple[Floats, tuple[tuple[Floats, Integers], ...]]:
        """What each input size has for itself, and for each stage two arrays (input size, activation, choice): the sums
        and the numbers of what is handed on. Input sizes with fewer activations are filled up with infinity.
        """
        stages = []
        for index, axis in enumerate(self.axes):
            most = max(len(sums.stages[index].inputs) for sums in self.cells)
            seconds = np.full((len(self.cells), most, len(axis.choices)), np.inf)
            out = np.zeros(seconds.shape, dtype=np.int64)
            for at, sums in enumerate(self.cells):
                stage = sums.stages[index]
                seconds[at, : len(stage.inputs)], out[at, : len(stage.inputs)] = stage.seconds, stage.out
            stages.append((seconds, out))
        return np.array([sums.base for sums in self.cells]), tuple(stages)

    def smallest(self) -> tuple[float, Architecture]:
        """The smallest sum that any member has, and the first such member. Exact.

        Raises:
            NotMeasured: No member has numbers for all its blocks.
        """
        self.require()
        return min((self._smallest_of(sums) for sums in self.cells), key=lambda found: found[0])

    def largest(self) -> tuple[float, Architecture]:
        """The largest sum that any member with numbers for all its blocks has, and the first such member. Exact.

        Raises:
            NotMeasured: There is no such member.
        """
        self.require()
        cells = tuple(
            replace(sums, base=-sums.base, stages=tuple(_negated(stage) for stage in sums.stages))
            for sums in self.cells
            if np.isfinite(sums.base)
        )
        value, architecture = replace(self, cells=cells).smallest()
        return -value, architecture

    def ahead(self, sums: CellSums) -> list[Floats]:
        """For each stage and one past the last: the least that is still to come, by activation that reaches it."""
        least = [np.zeros(1)]
        for stage in reversed(sums.stages):
            least.append((stage.seconds + least[-1][stage.out]).min(axis=1))
        return least[::-1]

    def behind(self, sums: CellSums) -> list[Floats]:
        """For each stage and one past the last: the least that came before, by activation that reaches it."""
        least = [np.full(1, sums.base)]
        for stage, after in zip(sums.stages, (*(s.inputs for s in sums.stages[1:]), (None,))):
            reached = np.full(len(after), np.inf)
            np.minimum.at(reached, stage.out, least[-1][:, None] + stage.seconds)
            least.append(reached)
        return least

    def _smallest_of(self, sums: CellSums) -> tuple[float, Architecture]:
        ahead, state, picked = self.ahead(sums), 0, []
        for index, (axis, stage) in enumerate(zip(self.axes, sums.stages)):
            number = int(np.argmin(stage.seconds[state] + ahead[index + 1][stage.out[state]]))
            picked.append(axis.choices[number])
            state = int(stage.out[state, number])
        architecture = self.space.member(sums.cell, tuple(picked))
        return sums.base + float(ahead[0][0]), architecture

    def _known_by_cell(self) -> Iterator[tuple[InputSize, int]]:
        for sums in self.cells:
            ways = [1]
            for stage in reversed(sums.stages):
                known = np.isfinite(stage.seconds)
                ways = [sum(ways[out] for out in row[kept].tolist()) for row, kept in zip(stage.out, known)]
            yield sums.cell, ways[0] if np.isfinite(sums.base) else 0


def _negated(stage: StageSums) -> StageSums:
    return replace(stage, seconds=np.where(np.isinf(stage.seconds), np.inf, -stage.seconds))


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Inside, Python does not look for cycles.

    100,000 small values that all stay make it look a dozen times at all there is, a large table among it, which takes a
    third of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
