"""The measured blocks of a table by family and shape: what heat maps show. Pure functions; seconds inside."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hwbench.errors import InvalidValue
from hwbench.latency import LatencyRow, LatencyTable, Role, macs
from hwbench.specs import AUTO, GLOBAL, LatencyStats, Workload, format_kernel

# More columns are too narrow to be told apart; channels are put together then.
MAX_COLUMNS = 64


@dataclass(frozen=True, order=True)
class BlockFamily:
    """What a block is, whatever its shape: kind, kernel (T x H x W), activation, squeeze-excite, stride, groups (0:
    one for each channel) and layout variant."""

    kind: str
    kernel: str
    activation: str
    se: bool
    stride: int
    groups: int
    variant: str

    @classmethod
    def of(cls, workload: Workload) -> BlockFamily:
        """The family of a single block."""
        (block,) = workload.blocks
        groups = 0 if block.groups == (block.mid_channels or block.in_channels) > 1 else block.groups
        kernel = "" if block.kernel == GLOBAL else format_kernel(block.kernel)
        return cls(block.kind, kernel, block.activation, block.se_channels > 0, block.stride, groups, workload.variant)

    @property
    def label(self) -> str:
        """For example ``x3d 3x3x3 swish se /2``."""
        groups = {0: "depthwise", 1: ""}.get(self.groups, f"groups {self.groups}")
        words = (self.kind, self.kernel, groups, self.activation, "se" if self.se else "")
        ends = (f"/{self.stride}" if self.stride > 1 else "", "" if self.variant == AUTO else self.variant)
        return " ".join(word for word in (*words, *ends) if word)


@dataclass(frozen=True)
class BlockRow:
    """A block with a latency. ``macs`` is None where the arithmetic of its kind is not known."""

    workload: Workload
    family: BlockFamily
    stats: LatencyStats
    macs: int | None

    @property
    def rate(self) -> float | None:
        """Multiply-adds a second."""
        return None if self.macs is None else self.macs / self.stats.median_s


class Quantity(enum.StrEnum):
    """What a heat map shows."""

    LATENCY = "latency"
    RATE = "rate"

    def of(self, row: BlockRow) -> float | None:
        """Seconds, or multiply-adds a second."""
        return row.stats.median_s if self is Quantity.LATENCY else row.rate


@dataclass(frozen=True, order=True)
class Column:
    """An input of a block, its frames left out; ``channels`` is 0 where all are put together."""

    height: int
    width: int
    channels: int


@dataclass(frozen=True)
class HeatMapCell:
    """The rows of one family on one input: the median of what they have, the ends, and how many they are."""

    value: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Grid:
    """A heat map: families from the top, inputs from the left, large ones first. Cells without a row are left out."""

    families: tuple[BlockFamily, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[BlockFamily, Column], HeatMapCell]


def block_rows(table: LatencyTable) -> list[BlockRow]:
    """The blocks of a table that have a latency."""
    return [_block_row(row) for row in table.rows(Role.BLOCK)]


def frames(rows: Iterable[BlockRow]) -> list[int]:
    """The numbers of frames there are, from the smallest."""
    return sorted({row.workload.input.t for row in rows})


def grid(rows: Sequence[BlockRow], quantity: Quantity, max_columns: int = MAX_COLUMNS) -> Grid:
    """Puts rows together by family and input.

    Args:
        rows: Of one precision and one number of frames.
        quantity: What cells show; rows without it are left out.
        max_columns: With more inputs than this, those of one size are put together whatever their channels.
    """
    exact = {_column(row) for row in rows}
    together = len(exact) > max_columns
    found: dict[tuple[BlockFamily, Column], list[float]] = {}
    for row in rows:
        value = quantity.of(row)
        if value is not None:
            column = _column(row)
            column = Column(column.height, column.width, 0) if together else column
            found.setdefault((row.family, column), []).append(value)
    cells = {at: HeatMapCell(median(v), min(v), max(v), len(v)) for at, v in found.items()}
    columns = sorted({column for _, column in cells}, key=lambda c: (-c.height * c.width, c.channels))
    return Grid(tuple(sorted({family for family, _ in cells})), tuple(columns), cells)


def _block_row(row: LatencyRow) -> BlockRow:
    assert row.stats is not None
    try:
        count = macs(row.workload) or None
    except InvalidValue:  # a kind of block that was added without its arithmetic
        count = None
    return BlockRow(row.workload, BlockFamily.of(row.workload), row.stats, count)


def _column(row: BlockRow) -> Column:
    x = row.workload.input
    return Column(x.h, x.w, x.c)
