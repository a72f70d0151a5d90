"""One member of a search space."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hwbench.errors import InvalidValue

_SPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CHOICE = re.compile(r"[A-Za-z0-9._-]+=[A-Za-z0-9.+_-]+")


@dataclass(frozen=True, order=True)
class Architecture:
    """A space's name and the ordered choices made in it, all as text; the same key in every process.

    Key: ``x3d-tiny:frames=8,resolution=64,s1.depth=2,...``
    """

    space: str
    choices: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        return f"{self.space}:{','.join(f'{name}={value}' for name, value in self.choices)}"

    @classmethod
    def parse(cls, key: str) -> Architecture:
        """Reads what ``key`` prints; whether the space has such a member is the space's to say."""
        space, colon, rest = key.partition(":")
        tokens = rest.split(",")
        if not colon or not cls.can_be_of(space) or any(_CHOICE.fullmatch(t) is None for t in tokens):
            raise InvalidValue(f"architecture: expected SPACE:name=value,name=value, got {key!r}")
        pairs = tuple((t.partition("=")[0], t.partition("=")[2]) for t in tokens)
        if len({name for name, _ in pairs}) != len(pairs):
            raise InvalidValue(f"architecture: a choice is made twice in {key!r}")
        return cls(space, pairs)

    @staticmethod
    def can_be_of(space: str) -> bool:
        """Whether a space may have that name: it begins the keys of its networks, which ``parse`` reads."""
        return _SPACE.fullmatch(space) is not None

    def __getitem__(self, name: str) -> str:
        for known, value in self.choices:
            if known == name:
                return value
        raise KeyError(name)

    def __str__(self) -> str:
        return self.key
