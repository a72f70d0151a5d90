"""Names to things. A name binds once; an unknown name is answered with the nearest known ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from hwbench.errors import UnknownName

T = TypeVar("T")

MAX_NAME = 200


def suggest(name: str, known: Iterable[str]) -> str:
    """The tail of an error message about an unknown name: the nearest known names, then all of them."""
    known = sorted(known)
    # What is as long as a page is no misspelt name, and comparing takes the square of its length.
    near = difflib.get_close_matches(name[:MAX_NAME], known, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return f"{meant}known: {', '.join(known) if known else 'none'}"


class Registry(Generic[T]):
    """An open set of named things of one kind, filled where the things are defined, and by other packages.

    Args:
        kind: What the things are, in words.
        entry_points: The group of entry points in which an installed package names things of its own
            (``name = "package.module:thing"``). They are loaded when a name is asked for that is not known yet, or all
            names are; a thing of hwbench's own keeps its name.
    """

    def __init__(self, kind: str, entry_points: str = "") -> None:
        self.kind = kind
        self.entry_points = entry_points
        self._items: dict[str, T] = {}
        self._loaded = not entry_points

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator which binds ``name``; a second binding of the same name is a programming error."""

        def bind(item: T) -> T:
            if name in self._items:
                raise ValueError(f"{self.kind} {name!r} is already registered as {self._items[name]!r}")
            self._items[name] = item
            return item

        return bind

    def get(self, name: str) -> T:
        """The thing called ``name``.

        Raises:
            UnknownName: Nothing has that name.
        """
        if name not in self:
            raise UnknownName(f"unknown {self.kind} {name!r}; {suggest(name, self._items)}")
        return self._items[name]

    def find(self, name: str) -> T | None:
        """The thing called ``name``, or None where nothing has that name."""
        return self._items[name] if name in self else None

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        self._load_entry_points()
        return tuple(sorted(self._items))

    def __contains__(self, name: str) -> bool:
        if name not in self._items:
            self._load_entry_points()
        return name in self._items

    def _load_entry_points(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        from importlib.metadata import entry_points

        for point in entry_points(group=self.entry_points):
            if point.name not in self._items:
                self._items[point.name] = point.load()
