"""The choices of a space as columns, which of them meet, and functions that are sums of their effects. No torch."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from hwbench.spaces.protocols import NetworkSums
from hwbench.spaces.space import InputSize
from hwbench.spaces.sums import CellSums, SpaceSums
from hwbench.spaces.walk import Floats, Integers, StageSums
from hwbench.specs import Architecture

# Sorts of effects of pairs.
PAIRS = ("within a stage", "with what reaches a stage", "with the input size")
# All sorts of effects.
SORTS = ("choice", *PAIRS, "whole stage")
# The last value of a column in which not every network has one.
ABSENT_VALUE = "\0"
# A pair of terms: the numbers of two columns.
Pair = tuple[int, int]


@dataclass
class Effects:
    """What values of choices add to a score.

    Attributes:
        single: By column, shape (values).
        pairs: By two columns, shape (values, values).
        stages: By number of a stage, shape (values, ...) over ``Layout.stages`` of it.
    """

    single: dict[int, Floats] = field(default_factory=dict)
    pairs: dict[Pair, Floats] = field(default_factory=dict)
    stages: dict[int, Floats] = field(default_factory=dict)

    def at(self, codes: Integers, layout: EffectLayout) -> Floats:
        """What they add up to for networks as ``Layout.encode`` writes them, shape (N)."""
        total = np.zeros(len(codes))
        for column, effect in self.single.items():
            total += effect[codes[:, column]]
        for (one, other), table in self.pairs.items():
            total += table[codes[:, one], codes[:, other]]
        for number, tensor in self.stages.items():
            total += tensor[tuple(codes[:, column] for column in layout.stages[number])]
        return total


class EffectLayout(Protocol):
    """The choices of a space, or of a union of some, as columns of numbers; which of them have effects, and together.

    A column in which not every network has a value has ``ABSENT_VALUE`` last on its scale, which has no effect.
    """

    @property
    def scales(self) -> tuple[tuple[str, ...], ...]:
        """The values of each column."""
        ...

    @property
    def singles(self) -> tuple[int, ...]:
        """The columns that have an effect on their own."""
        ...

    @property
    def pairs(self) -> Mapping[str, tuple[Pair, ...]]:
        """The columns that have effects together, by sort of effect."""
        ...

    @property
    def stages(self) -> Mapping[int, tuple[int, ...]]:
        """By number of a stage the columns that have an effect as a whole."""
        ...

    @property
    def counts(self) -> tuple[int, ...]:
        """By sort of effect: how many effects the score of a network has."""
        ...

    def weight(self, column: int, /) -> float:
        """By what the variance of the effects of a column is multiplied."""
        ...

    def encode(self, architectures: Sequence[Architecture], /) -> Integers:
        """Shape (N, columns): the place of every value on its scale."""
        ...

    def sums_of(self, effects: Effects, constant: float, /) -> NetworkSums:
        """The function with these effects, as sums over the space."""
        ...


@dataclass(frozen=True)
class Layout:
    """The choices of a space as columns of numbers, and which of them meet.

    Columns are the choices of the space in its order, then for every step behind the first the channels that reach it.
    A step is a stage, or one block where blocks choose for themselves. A block that is not there counts as one with the
    first values: what it lacks is told by the depth.

    Attributes:
        sums: Any sums over the space; only the way through it is used.
    """

    sums: SpaceSums

    @cached_property
    def scales(self) -> tuple[tuple[str, ...], ...]:
        """The values of each column."""
        channels = [tuple(str(value) for value in values) for values in self._channels]
        return (*self.sums.space.choices.values(), *channels)

    @cached_property
    def pairs(self) -> dict[str, tuple[Pair, ...]]:
        """The columns that meet, by sort of effect."""
        sides = range(self.sides)
        within, reaching, size = [], [], list(itertools.combinations(sides, 2))
        for number, columns in enumerate(self._of_stage):
            within += list(itertools.combinations(columns, 2))
            size += [(side, column) for side in sides for column in columns]
            if number:
                reaching += [(self._incoming + number - 1, column) for column in columns]
        told = [self._telling(pairs) for pairs in (within, reaching, size)]
        return dict(zip(PAIRS, told))

    @cached_property
    def singles(self) -> tuple[int, ...]:
        """The columns that have an effect on their own: choices of more than one value."""
        return tuple(c for c in range(self._incoming) if len(self.scales[c]) > 1)

    @cached_property
    def stages(self) -> dict[int, tuple[int, ...]]:
        """By number of a stage its columns and that of what reaches it, where more than two of them have a choice."""
        reaching = [(), *((self._incoming + number,) for number in range(len(self._channels)))]
        found = {number: (*reaching[number], *columns) for number, columns in enumerate(self._of_stage)}
        return {n: columns for n, columns in found.items() if sum(len(self.scales[c]) > 1 for c in columns) > 2}

    @property
    def counts(self) -> tuple[int, ...]:
        """By sort of effect: how many effects the score of a network has."""
        return (len(self.singles), *(len(self.pairs[sort]) for sort in PAIRS), len(self.stages))

    def weight(self, column: int) -> float:
        """Effects of all columns are alike."""
        return 1.0

    def encode(self, architectures: Sequence[Architecture]) -> Integers:
        """Shape (N, columns): the place of every value on its scale."""
        rows = [self._rows.get(a) or self._rows.setdefault(a, self._row(a)) for a in architectures]
        return np.array(rows, np.int64).reshape(-1, len(self.scales))

    def sums_of(self, effects: Effects, constant: float) -> SpaceSums:
        """The function with these effects, as sums over the space."""
        cells = tuple(self._cell(cell, effects, constant) for cell in self.sums.cells)
        return replace(self.sums, cells=cells, missing=(), reason="")

    @cached_property
    def _rows(self) -> dict[Architecture, list[int]]:
        """Rows of networks that were asked for before: a search asks for the same ones in every trial."""
        return {}

    @cached_property
    def _of_stage(self) -> tuple[tuple[int, ...], ...]:
        """The columns of each stage's choices."""
        first, found = self.sides, []
        for axis in self.sums.axes:
            count = len(axis.stage.offered)
            found.append(tuple(range(first, first + count)))
            first += count
        return tuple(found)

    @cached_property
    def _incoming(self) -> int:
        return len(self.sums.space.choices)

    @cached_property
    def sides(self) -> int:
        """The number of columns that are the input size."""
        return len(self.sums.space.size_texts(self.sums.cells[0].cell))

    @cached_property
    def _channels(self) -> list[list[int]]:
        """What may reach each stage behind the first, in channels."""
        stages = zip(*(cell.stages[1:] for cell in self.sums.cells))
        return [sorted({x.c for stage in alike for x in stage.inputs}) for alike in stages]

    @cached_property
    def _places(self) -> list[Integers]:
        """By stage: shape (choices, columns of the stage), the place of each value; 0 for that of no block."""
        return [np.maximum(axis.places, 0) for axis in self.sums.axes]

    def _telling(self, pairs: list[Pair]) -> tuple[Pair, ...]:
        return tuple(pair for pair in pairs if all(len(self.scales[column]) > 1 for column in pair))

    def _input_places(self, cell: InputSize) -> tuple[int, ...]:
        texts = self.sums.space.size_texts(cell).values()
        return tuple(scale.index(text) for scale, text in zip(self.scales, texts))

    def _row(self, architecture: Architecture) -> list[int]:
        space = self.sums.space
        row: list[int] = space.encode([architecture])[0].tolist()
        stages = self.sums.cells[space.cells.index(space.cell(architecture))].stages
        state = 0
        for number, (axis, choice) in enumerate(zip(self.sums.axes, space.step_choices(architecture))):
            if number:
                row.append(self._channels[number - 1].index(stages[number].inputs[state].c))
            state = int(stages[number].out[state, axis.numbers[choice]])
        return row

    def _cell(self, cell: CellSums, effects: Effects, constant: float) -> CellSums:
        places, single, pairs = self._input_places(cell.cell), effects.single, effects.pairs
        base = constant + sum(single[side][at] for side, at in enumerate(places) if side in single)
        for one, other in itertools.combinations(range(self.sides), 2):
            base += float(pairs[one, other][places[one], places[other]]) if (one, other) in pairs else 0.0
        stages = tuple(self._stage(number, stage, places, effects) for number, stage in enumerate(cell.stages))
        return CellSums(cell.cell, float(base), stages)

    def _stage(self, number: int, stage: StageSums, input_places: tuple[int, ...], effects: Effects) -> StageSums:
        places, columns, pairs = self._places[number], self._of_stage[number], effects.pairs
        at = {column: places[:, index] for index, column in enumerate(columns)}
        total = np.zeros(len(places))
        for column in columns:
            if column in effects.single:
                total += effects.single[column][at[column]]
            for side, place in enumerate(input_places):
                if (side, column) in pairs:
                    total += pairs[side, column][place, at[column]]
        for pair in itertools.combinations(columns, 2):
            if pair in pairs:
                total += pairs[pair][at[pair[0]], at[pair[1]]]
        seconds = np.tile(total, (len(stage.inputs), 1))
        reaching: tuple[Integers, ...] = ()
        if number:
            incoming = self._incoming + number - 1
            rows = np.array([self._channels[number - 1].index(x.c) for x in stage.inputs])
            reaching = (rows[:, None],)
            for column in columns:
                if (incoming, column) in pairs:
                    seconds += pairs[incoming, column][rows[:, None], at[column]]
        if number in effects.stages:
            seconds += effects.stages[number][(*reaching, *at.values())]
        return replace(stage, seconds=seconds)
