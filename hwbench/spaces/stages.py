"""Stages as values: what a file offers for one, and what is chosen of it. The axes are the family's to say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
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
    """

    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    offered: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, axes: Mapping[str, tuple[Any, ...]], **constants: Any) -> Stage:
        """A stage that offers all of some axes."""
        return cls(tuple(axes.items()), tuple(axes), tuple(constants.items()))

    def __getitem__(self, name: str) -> tuple[Any, ...]:
        """The values of an axis."""
        return self._by_name[name]

    def __repr__(self) -> str:
        shown = [(name, values) for name, values in self.axes if name in self.offered]
        return f"Stage({', '.join(f'{name}={value!r}' for name, value in (*shown, *self.constants))})"

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of one axis as text."""
        return self._texts[name]

    @cached_property
    def choices(self) -> tuple[StageChoice, ...]:
        """All that may be chosen, in the order of the file: the last axis changes fastest."""
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

    @cached_property
    def _by_name(self) -> dict[str, tuple[Any, ...]]:
        return dict(self.axes)

    @cached_property
    def _texts(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(write(value) for value in values) for name, values in self.axes}
