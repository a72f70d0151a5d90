"""What happens when a video cannot be read, as a value."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from hwbench.errors import InvalidValue


class FailurePolicy(enum.StrEnum):
    """``raise`` ends the run at the first unreadable video; ``skip`` leaves it out; ``replace`` takes another instead.

    Which video replaces another follows from the seed. In a test nothing is replaced: another video's score would count
    twice, so ``replace`` leaves out as ``skip`` does.
    """

    RAISE = "raise"
    SKIP = "skip"
    REPLACE = "replace"

    @classmethod
    def parse(cls, text: str) -> FailurePolicy:
        """Reads ``raise``, ``skip`` or ``replace``; anything else is an InvalidValue."""
        try:
            return cls(text)
        except ValueError:
            raise InvalidValue(f"on-error: expected raise, skip or replace, got {text!r}") from None


@dataclass(frozen=True)
class DecodingFailure:
    """A video that could not be read, and why (one line that names the file)."""

    path: str
    cause: str


@dataclass
class Failures:
    """Unreadable videos met so far: path -> cause, and how often a sample was lost to one."""

    causes: dict[str, str] = field(default_factory=dict)
    samples: int = 0

    def add(self, failures: Iterable[DecodingFailure]) -> None:
        """Counts failures of a batch."""
        for failure in failures:
            self.causes[failure.path] = failure.cause
            self.samples += 1

    def merged(self, other: Failures) -> Failures:
        """Both together."""
        return Failures({**self.causes, **other.causes}, self.samples + other.samples)

    def __bool__(self) -> bool:
        return bool(self.causes)

    def __str__(self) -> str:
        """One line per file."""
        return "\n".join(self.causes[path] for path in sorted(self.causes))
