"""Stages as values: what a file offers for one, and what is chosen of it. The axes are the family's to say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hwbench.spaces.axes import write

# Of one stage; the largest space here has 810.
MAX_CHOICES = 100_000


@dataclass(frozen=True, order=True)
class StageChoice:
    """What is chosen for one stage: a value for each axis of the family, in the order of ``Stage.axes``.

    Values are read by name: ``choice["width"]``; so are the constants of the stage, such as its stride.
    """

    values: tuple[Any, ...]
    names: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self._by_name[name]

    def get(self, name: str, default: Any) -> Any:
        """The value of an axis, or a default where the stage has no such axis."""
        return self._by_name.get(name, default)

    def __hash__(self) -> int:
        return self._hash

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: hashes of text differ from process to process."""
        return {"values": self.values, "names": self.names, "constants": self.constants}

    @cached_property
    def _hash(self) -> int:
        return hash((self.values, self.constants))

    @cached_property
    def _by_name(self) -> dict[str, Any]:
        return {**dict(self.constants), **dict(zip(self.names, self.values, strict=True))}


@dataclass(frozen=True, repr=False)
class Stage:
    """What may be chosen for one stage.

    Attributes:
        axes: (name, values) of each axis of the family, in its order.
        offered: Names of the axes that the file names: those that a printed architecture tells.
        constants: (name, value) of what is fixed for the stage, such as its stride.
        by_block: Names of the axes that every block of the stage chooses for itself.
    """

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    offered: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...] = ()
    by_block: tuple[str, ...] = ()

    @classmethod
    def of(cls, axes: Mapping[str, tuple[Any, ...]], by_block: tuple[str, ...] = (), **constants: Any) -> Stage:
        """A stage that offers all of some axes."""
        return cls(tuple(axes.items()), tuple(axes), tuple(constants.items()), by_block)

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        """The values of an axis."""
        return self._by_name[name]

    def __repr__(self) -> str:
        shown = [(name, values) for name, values in self.axes if name in self.offered]
        own = [("by_block", self.by_block)] if self.by_block else []
        return f"Stage({', '.join(f'{name}={value!r}' for name, value in (*shown, *self.constants, *own))})"

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of one axis as text."""
        return self._texts[name]

    @cached_property
    def choices(self) -> tuple[StageChoice, ...]:
        """All that may be chosen for the stage and one of its blocks, in the order of the file: the last axis changes
        fastest.
        """
        names, lists = zip(*self.axes)
        return tuple(StageChoice(values, names, self.constants) for values in itertools.product(*lists))

    def choose(self, texts: Mapping[str, str]) -> StageChoice:
        """The choice with these texts; an axis without one has its only value.

        Raises:
            KeyError, ValueError: A value is not offered.
        """
        names = tuple(name for name, _ in self.axes)
        places = {name: self.texts(name).index(texts[name]) for name in self.offered}
        return StageChoice(tuple(self[name][places.get(name, 0)] for name in names), names, self.constants)

    def texts_of(self, choice: StageChoice) -> tuple[str, ...]:
        """What a printed architecture tells of a choice, in the order of ``offered``."""
        return tuple(write(choice[name]) for name in self.offered)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """The axes that are offered, with the number of their values."""
        return ((name, len(self[name])) for name in self.offered)

    def size(self) -> int:
        """Number of ways to choose everything of the stage."""
        if not self.by_block:
            return math.prod(len(values) for _, values in self.axes)
        alike = math.prod(len(values) for name, values in self.shared.axes if name != "depth")
        return alike * sum(self.block_ways())

    def block_ways(self) -> tuple[int, ...]:
        """By number of blocks: the ways in which they choose for themselves."""
        ways = math.prod(len(values) for _, values in self.own.axes)
        return tuple(ways**depth for depth in self["depth"])

    @cached_property
    def shared(self) -> Stage:
        """What all blocks have in common."""
        return self._part(lambda name: name not in self.by_block, self.constants)

    @cached_property
    def own(self) -> Stage:
        """What each block chooses for itself."""
        return self._part(lambda name: name in self.by_block, ())

    def joined(self, shared: StageChoice, own: StageChoice) -> StageChoice:
        """What holds for a block: what all have in common, and what it chose."""
        values = tuple((own if name in self.by_block else shared)[name] for name, _ in self.axes)
        return StageChoice(values, tuple(name for name, _ in self.axes), self.constants)

    def restricted(self, choice: StageChoice) -> StageChoice:
        """The values of a choice for the axes of this stage."""
        names = tuple(name for name, _ in self.axes)
        return StageChoice(tuple(choice[name] for name in names), names, self.constants)

    def _part(self, belongs: Callable[[str], bool], constants: tuple[tuple[str, Any], ...]) -> Stage:
        axes = tuple(axis for axis in self.axes if belongs(axis[0]))
        return Stage(axes, tuple(name for name in self.offered if belongs(name)), constants)

    @cached_property
    def _by_name(self) -> dict[str, tuple[Any, ...]]:
        return dict(self.axes)

    @cached_property
    def _texts(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(write(value) for value in values) for name, values in self.axes}
