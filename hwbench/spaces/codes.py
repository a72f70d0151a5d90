"""Members of a space as rows of numbers: the place of every choice among its values.

A block that the depth of its stage leaves out chooses nothing; its numbers are 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import InvalidValue
from hwbench.spaces.steps import OneBlock, SharedChoices, SpaceStep
from hwbench.spaces.walk import Floats, Integers


@dataclass(frozen=True)
class _Depth:
    """The choice that says how many blocks a stage has.

    Attributes:
        column: Its place among all choices.
        blocks: By value: the number of blocks.
        weights: By value: the share of the members of the stage that have it.
    """

    column: int
    blocks: Integers
    weights: Floats


@dataclass(frozen=True, eq=False)
class Codes:
    """How the members of a space are numbered.

    Args:
        space: Its name.
        choices: The values of every choice, in order.
        steps: The decisions of the space.
    """

    space: str
    choices: Mapping[str, tuple[str, ...]]
    steps: Sequence[SpaceStep]

    def check(self, codes: Integers) -> None:
        """Makes sure that an array has a member in every row, shape (N, number of choices).

        Raises:
            InvalidValue: Another shape, a number that is not the place of a value, or one of a block that is not there.
        """
        sizes = np.array([len(values) for values in self.choices.values()])
        if codes.ndim != 2 or codes.shape[1] != len(sizes):
            raise InvalidValue(f"space {self.space!r}: expected codes of shape (N, {len(sizes)}), got {codes.shape}")
        if codes.size and ((codes.max(axis=0) >= sizes).any() or codes.min() < 0):
            raise InvalidValue(f"space {self.space!r}: codes run from 0 to {(sizes - 1).tolist()}")
        if self._depths and codes[self.absent(codes)].any():
            raise InvalidValue(f"space {self.space!r}: codes of blocks that are not there are 0")

    def absent(self, codes: Integers) -> NDArray[np.bool_]:
        """Where rows have numbers of blocks that are not there, shape (N, number of choices)."""
        mask = np.zeros(codes.shape, np.bool_)
        for depth, number, columns in self._blocks:
            mask[:, columns] = (depth.blocks[codes[:, depth.column]] <= number)[:, None]
        return mask

    def encode(self, members: Iterable[Mapping[str, str]]) -> Integers:
        """Rows of members, each told as choice -> value; those of one member are in any order.

        Raises:
            KeyError: A value is not offered.
        """
        rows = [[known[texts[n]] if n in texts else 0 for n, known in self._places.items()] for texts in members]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self._places))

    def decode(self, codes: Integers) -> Iterator[tuple[tuple[str, str], ...]]:
        """The choices that rows stand for."""
        named = list(self.choices.items())
        absent = self.absent(codes).tolist() if self._depths else None
        for number, row in enumerate(codes.tolist()):
            pairs = ((name, values[at]) for (name, values), at in zip(named, row))
            if absent is None:
                yield tuple(pairs)
            else:
                yield tuple(pair for pair, left_out in zip(pairs, absent[number]) if not left_out)

    def random(self, rng: np.random.Generator, count: int) -> Integers:
        """Rows of members that are drawn uniformly, with replacement."""
        sizes = [len(values) for values in self.choices.values()]
        codes = rng.integers(sizes, size=(count, len(sizes)), dtype=np.int64)
        for depth in self._depths.values():
            codes[:, depth.column] = rng.choice(len(depth.weights), size=count, p=depth.weights)
        if self._depths:
            codes[self.absent(codes)] = 0
        return codes

    def random_place(self, name: str, rng: np.random.Generator) -> int:
        """The place of a value of one choice, as likely as members have it."""
        depth = self._depths.get(name)
        if depth is None:
            return int(rng.integers(len(self.choices[name])))
        return int(rng.choice(len(depth.weights), p=depth.weights))

    @cached_property
    def _places(self) -> dict[str, dict[str, int]]:
        """By choice and value: its place."""
        return {name: {text: at for at, text in enumerate(values)} for name, values in self.choices.items()}

    @cached_property
    def _depths(self) -> dict[str, _Depth]:
        """By name, of stages whose blocks choose for themselves."""
        columns, found = list(self.choices), {}
        stages = (step.whole for step in self.steps if isinstance(step, OneBlock) and not step.number)
        for step, stage in zip((s for s in self.steps if isinstance(s, SharedChoices)), stages, strict=True):
            name, ways = step.names["depth"], stage.block_ways()
            weights = np.array([count / sum(ways) for count in ways])
            found[name] = _Depth(columns.index(name), np.array(stage["depth"]), weights)
        return found

    @cached_property
    def _blocks(self) -> list[tuple[_Depth, int, list[int]]]:
        """For each block that chooses for itself: the depth of its stage, its place, and its columns."""
        columns = {name: column for column, name in enumerate(self.choices)}
        blocks = (step for step in self.steps if isinstance(step, OneBlock))
        return [(self._depths[b.depth], b.number, [columns[name] for name in b.names.values()]) for b in blocks]
