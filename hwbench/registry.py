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
    """An open set of named things of one kind, filled by decorators where the things are defined."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

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
        if name not in self._items:
            raise UnknownName(f"unknown {self.kind} {name!r}; {suggest(name, self._items)}")
        return self._items[name]

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._items))

    def __contains__(self, name: str) -> bool:
        return name in self._items
