"""The choices of a union of spaces as columns: what all spaces share, and what each has for itself. No torch.

Shared are the space itself and the size of the input, which is the same clip for every network: what more frames are
worth is learned from all spaces at once. Each space has frames and resolution for itself, too, so it may differ. All
other choices are a space's own: the second stage of one family is no other's, and neither is its width.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hwbench.spaces.protocols import NetworkSums
from hwbench.spaces.union import UnionSums
from hwbench.spaces.walk import Integers
from hwbench.specs import Architecture
from hwbench.studies.posterior_layout import ABSENT_VALUE, PAIRS, EffectLayout, Effects, Layout, Pair

# The column of the space; those of the input size follow.
_SPACE = 0
_WITH_SIZE = PAIRS[2]


@dataclass(frozen=True)
class UnionLayout:
    """Columns: the space, the shared input size, then those of ``Layout`` for each space, in order.

    The effect of a space stands for all that is fixed in it, so its variance is that of as many choices as a space has.

    Attributes:
        sums: Any sums over the union; only the way through it is used.
    """

    sums: UnionSums

    @cached_property
    def scales(self) -> tuple[tuple[str, ...], ...]:
        """The values of each column; in those of a space the others have ``ABSENT_VALUE``."""
        spaces = tuple(member.name for member in self.sums.space.members)
        own = ((*scale, ABSENT_VALUE) for layout in self._layouts for scale in layout.scales)
        return (spaces, *self._sizes, *own)

    @cached_property
    def singles(self) -> tuple[int, ...]:
        """The columns that have an effect on their own."""
        return (_SPACE, *self._shared, *(first + c for first, one in self._placed() for c in one.singles))

    @cached_property
    def pairs(self) -> dict[str, tuple[Pair, ...]]:
        """The columns that meet, by sort of effect."""
        found = {sort: self._own_pairs(sort) for sort in PAIRS}
        found[_WITH_SIZE] = (*self._shared_pairs, *found[_WITH_SIZE])
        return found

    @cached_property
    def stages(self) -> dict[int, tuple[int, ...]]:
        """By number of a stage, counted through all spaces, the columns that have an effect as a whole."""
        found: dict[int, tuple[int, ...]] = {}
        for first, one, number in zip(self._first, self._layouts, self._first_stages, strict=True):
            found |= {number + n: tuple(first + c for c in columns) for n, columns in one.stages.items()}
        return found

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """By sort of effect: how many effects the score of a network has, at most."""
        return tuple(max(counts) for counts in zip(*(one.counts for one in self._layouts), strict=True))

    def weight(self, column: int) -> float:
        """By what the variance of the effects of a column is multiplied."""
        return float(max(self.counts[0], 1)) if column == _SPACE else 1.0

    def encode(self, architectures: Sequence[Architecture]) -> Integers:
        """Shape (N, columns): the place of every value on its scale."""
        codes = np.array([len(scale) - 1 for scale in self.scales], np.int64)
        rows = np.tile(codes, (len(architectures), 1))
        names = [one.space for one in architectures]
        for number, (first, layout) in enumerate(self._placed()):
            here = [at for at, name in enumerate(names) if name == layout.sums.space.name]
            if not here:
                continue
            own = layout.encode([architectures[at] for at in here])
            rows[here, _SPACE] = number
            rows[here, first : first + own.shape[1]] = own
            for side, places in enumerate(self._size_places(layout)):
                rows[here, 1 + side] = places[own[:, side]]
        return rows

    def sums_of(self, effects: Effects, constant: float) -> UnionSums:
        """The function with these effects, as sums over the union."""
        spaces = effects.single[_SPACE]
        parts = (
            one.sums_of(self._effects_of(number, effects), constant + float(spaces[number]))
            for number, one in enumerate(self._layouts)
        )
        return UnionSums(self.sums.space, tuple(parts))

    def _effects_of(self, number: int, effects: Effects) -> Effects:
        """What effects are in one space, in the columns of its own layout."""
        first, layout, stage = self._first[number], self._layouts[number], self._first_stages[number]
        found = Effects(
            {c: effects.single[first + c][:-1] for c in layout.singles},
            {(a, b): effects.pairs[first + a, first + b][:-1, :-1] for a, b in self._all_pairs(layout)},
            {n: effects.stages[stage + n][(slice(-1),) * len(layout.stages[n])] for n in layout.stages},
        )
        places = self._size_places(layout)
        for column in self._shared:
            shared = effects.single[column][places[column - 1]]
            found.single[column - 1] = shared + found.single.get(column - 1, 0.0)
        for one, other in self._shared_pairs:
            at = one - 1, other - 1
            table = effects.pairs[one, other][np.ix_(places[at[0]], places[at[1]])]
            found.pairs[at] = table + found.pairs.get(at, 0.0)
        return found

    @cached_property
    def _layouts(self) -> tuple[Layout, ...]:
        return tuple(Layout(one) for one in self.sums.members)

    @cached_property
    def _sizes(self) -> tuple[tuple[str, ...], ...]:
        """The values of the input size in any space, ascending: frames, resolution."""
        sides = min(layout.sides for layout in self._layouts)
        return tuple(
            tuple(sorted({value for one in self._layouts for value in one.scales[side]}, key=float))
            for side in range(sides)
        )

    @cached_property
    def _shared(self) -> tuple[int, ...]:
        """The columns of the shared input size that have an effect."""
        return tuple(1 + side for side, scale in enumerate(self._sizes) if len(scale) > 1)

    @cached_property
    def _shared_pairs(self) -> tuple[Pair, ...]:
        return tuple(itertools.combinations(self._shared, 2))

    @cached_property
    def _first(self) -> tuple[int, ...]:
        """By space: its first column."""
        return tuple(_starts(1 + len(self._sizes), (len(one.scales) for one in self._layouts)))

    @cached_property
    def _first_stages(self) -> tuple[int, ...]:
        """By space: the number of its first stage."""
        return tuple(_starts(0, (len(one.sums.axes) for one in self._layouts)))

    def _placed(self) -> Iterator[tuple[int, Layout]]:
        """The layouts of the spaces, each with its first column."""
        return zip(self._first, self._layouts, strict=True)

    def _own_pairs(self, sort: str) -> tuple[Pair, ...]:
        return tuple((first + a, first + b) for first, one in self._placed() for a, b in one.pairs[sort])

    def _all_pairs(self, layout: Layout) -> Iterator[Pair]:
        return (pair for sort in PAIRS for pair in layout.pairs[sort])

    def _size_places(self, layout: Layout) -> list[Integers]:
        """By side of the input: from the places of a space to those of all."""
        return [
            np.array([scale.index(value) for value in layout.scales[side]], np.int64)
            for side, scale in enumerate(self._sizes)
        ]


def layout_of(sums: NetworkSums) -> EffectLayout:
    """The columns of a space, or of a union of some."""
    return UnionLayout(sums) if isinstance(sums, UnionSums) else Layout(sums.members[0])


def _starts(first: int, sizes: Iterable[int]) -> Iterator[int]:
    for size in sizes:
        yield first
        first += size
