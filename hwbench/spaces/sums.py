"""Numbers that add up over the blocks of a network, such as latency, laid out so that a whole space is swept at once.

For each input size and stage there is a matrix (widths that may reach the stage x choices of the stage) holding what
the blocks of the stage add up to; the head is part of the last stage, the stem and a constant are the base of an input
size. A choice that needs a block without a number holds infinity and is no part of anything below.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import NotMeasured
from hwbench.spaces.space import Cell, Integers, StagedSpace
from hwbench.spaces.stages import STAGE_FIELDS, Stage, StageChoice
from hwbench.specs import Architecture, BlockSpec, TensorSpec

Floats = NDArray[np.float64]

# Members summed at a time by ``totals``: what is written stays in the caches.
_CHUNK = 1 << 14

# What one block on its input adds; NotMeasured where that is not known.
BlockNumber = Callable[[BlockSpec, TensorSpec], float]


@dataclass(frozen=True)
class StageAxis:
    """The choices of one stage, numbered, and the number of the width that each passes on."""

    stage: Stage
    choices: tuple[StageChoice, ...]
    out: Integers

    @classmethod
    def of(cls, stage: Stage) -> StageAxis:
        """Numbers the choices in the order of the file."""
        choices = tuple(stage.choices())
        return cls(stage, choices, np.array([stage.width.index(choice.width) for choice in choices], dtype=np.int64))

    @cached_property
    def numbers(self) -> dict[StageChoice, int]:
        """From a choice to its number."""
        return {choice: number for number, choice in enumerate(self.choices)}

    @cached_property
    def deepest(self) -> tuple[tuple[StageChoice, ...], Integers, Integers]:
        """The choices at their largest depth, once each; and for every choice which of them it is, and its depth."""
        most = max(self.stage.depth)
        alike = [replace(choice, depth=most) for choice in self.choices]
        found = {choice: number for number, choice in enumerate(dict.fromkeys(alike))}
        return tuple(found), np.array([found[c] for c in alike]), np.array([c.depth for c in self.choices])


@dataclass(frozen=True)
class CellSums:
    """One input size: what is always there, and a matrix (width in, choice) for each stage."""

    cell: Cell
    base: float
    stages: tuple[Floats, ...]


@dataclass(frozen=True)
class SpaceSums:
    """The numbers of all members of a space."""

    space: StagedSpace
    axes: tuple[StageAxis, ...]
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
        lookup = _Lookup(number)
        axes = tuple(StageAxis.of(stage) for stage in space.stages)
        cells = tuple(
            CellSums(
                cell,
                constant + lookup(space.stem.block(), cell.clip),
                tuple(_stage_matrix(space, axes, cell, index, lookup, num_classes) for index in range(len(axes))),
            )
            for cell in space.cells
        )
        return cls(space, axes, cells, num_classes, tuple(lookup.missing), lookup.reason)

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
        self.space.validate(architecture)
        sums = self.cells[self.space.cells.index(self.space.cell(architecture))]
        total, width = sums.base, 0
        for axis, matrix, choice in zip(self.axes, sums.stages, self.space.stage_choices(architecture)):
            number = axis.numbers[choice]
            total += float(matrix[width, number])
            width = int(axis.out[number])
        return total

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
        columns = np.ascontiguousarray(codes.T)
        cell = columns[0] * len(self.space.resolution) + columns[1]
        bases, tables = self._tables
        total: Floats = bases[cell]
        width = np.zeros_like(cell)
        for index, (axis, table) in enumerate(zip(self.axes, tables)):
            number = np.zeros_like(cell)
            for name, column in zip(STAGE_FIELDS, columns[2 + index * len(STAGE_FIELDS) :]):
                number *= len(getattr(axis.stage, name))
                number += column
            _, widths, choices = table.shape
            total += table.ravel()[(cell * widths + width) * choices + number]
            width = columns[2 + index * len(STAGE_FIELDS) + STAGE_FIELDS.index("width")]
        return total

    @cached_property
    def _tables(self) -> tuple[Floats, tuple[Floats, ...]]:
        """What each input size has for itself, and for each stage an array (input size, width in, choice)."""
        stages = tuple(np.stack([sums.stages[at] for sums in self.cells]) for at in range(len(self.axes)))
        return np.array([sums.base for sums in self.cells]), stages

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
            replace(sums, base=-sums.base, stages=tuple(np.where(np.isinf(m), np.inf, -m) for m in sums.stages))
            for sums in self.cells
            if np.isfinite(sums.base)
        )
        value, architecture = replace(self, cells=cells).smallest()
        return -value, architecture

    def ahead(self, sums: CellSums) -> list[Floats]:
        """For each stage and one past the last: the least that is still to come, by width that reaches it."""
        least = [np.zeros(len(self.axes[-1].stage.width))]
        for axis, matrix in zip(reversed(self.axes), reversed(sums.stages)):
            least.append((matrix + least[-1][axis.out]).min(axis=1))
        return least[::-1]

    def behind(self, sums: CellSums) -> list[Floats]:
        """For each stage and one past the last: the least that came before, by width that reaches it."""
        least = [np.full(1, sums.base)]
        for axis, matrix in zip(self.axes, sums.stages):
            by_choice = (least[-1][:, None] + matrix).min(axis=0)
            reached = np.full(len(axis.stage.width), np.inf)
            np.minimum.at(reached, axis.out, by_choice)
            least.append(reached)
        return least

    def _smallest_of(self, sums: CellSums) -> tuple[float, Architecture]:
        ahead, width, picked = self.ahead(sums), 0, []
        for index, (axis, matrix) in enumerate(zip(self.axes, sums.stages)):
            number = int(np.argmin(matrix[width] + ahead[index + 1][axis.out]))
            picked.append(axis.choices[number])
            width = int(axis.out[number])
        architecture = self.space.member(sums.cell, tuple(picked))
        return sums.base + float(ahead[0][0]), architecture

    def _known_by_cell(self) -> Iterator[tuple[Cell, int]]:
        for sums in self.cells:
            ways = [1] * len(self.axes[-1].stage.width)
            for axis, matrix in zip(reversed(self.axes), reversed(sums.stages)):
                ways = [sum(ways[out] for out in axis.out[np.isfinite(row)].tolist()) for row in matrix]
            yield sums.cell, ways[0] if np.isfinite(sums.base) else 0


class _Lookup:
    """Asks for each block once and remembers which have no number."""

    def __init__(self, number: BlockNumber) -> None:
        self._number = number
        self._known: dict[tuple[BlockSpec, TensorSpec], float] = {}
        self.missing: list[tuple[BlockSpec, TensorSpec]] = []
        self.reason = ""

    def __call__(self, block: BlockSpec, x: TensorSpec) -> float:
        if (block, x) not in self._known:
            try:
                self._known[block, x] = self._number(block, x)
            except NotMeasured as error:
                self._known[block, x] = float("inf")
                self.missing.append((block, x))
                self.reason = self.reason or str(error)
        return self._known[block, x]


def _stage_matrix(
    space: StagedSpace, axes: tuple[StageAxis, ...], cell: Cell, index: int, lookup: _Lookup, num_classes: int
) -> Floats:
    axis = axes[index]
    widths = space.widths(index)
    matrix = np.empty((len(widths), len(axis.choices)))
    for row, width in enumerate(widths):
        x = space.stage_input(cell, index, width)
        deepest, which, depths = axis.deepest
        by_depth = np.stack([_by_depth(choice, x, axis.stage.stride, lookup) for choice in deepest])
        matrix[row] = by_depth[which, depths - 1]
    if index == len(axes) - 1:
        heads = {c: space.head.block(c, num_classes) for c in axis.choices}
        shape = space.stage_input(cell, index + 1, 1)
        matrix += np.array([lookup(heads[c], shape.with_(c=c.width)) for c in axis.choices])
    return matrix


def _by_depth(deepest: StageChoice, x: TensorSpec, stride: int, lookup: _Lookup) -> Floats:
    """Sums over the first 1, 2, ... blocks of a stage; from the second block on, every other block is alike."""
    values = []
    for block in itertools.islice(deepest.blocks(x.c, stride), 3):
        values.append(lookup(block, x))
        x = block.output(x)
    repeated = [values[1 + (index - 1) % 2] if index else values[0] for index in range(deepest.depth)]
    return np.cumsum(repeated)
