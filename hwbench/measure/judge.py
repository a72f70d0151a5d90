"""Whether sessions are doubted, by what the others that were taken with them tell."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from hwbench.measure.drift import Undisturbed
from hwbench.measure.quality import doubt, sessions_needed, usual_cores
from hwbench.specs import Session, Timing


@dataclass
class Judge:
    """Doubts sessions of one target.

    Args:
        threads: Of the target: how many cores a file keeps busy is looked at where there are several.
        emulated: Under emulation no session is a latency, and none is doubted.
        undisturbed: What sessions told of core and memory; grows outside of here.
        clocks: Of the sessions so far, in hertz; their median is the usual clock.
    """

    threads: int
    emulated: bool
    undisturbed: Undisturbed
    clocks: list[float] = field(default_factory=list)

    def first(self, session: Session, taken: Sequence[tuple[Session, str]]) -> str:
        """``doubt`` of a new session, whose clock is noted; ``taken`` are the others of the file."""
        self.clocks.append(session.clock_hz)
        return self.doubt(session, taken)

    def doubt(self, session: Session, taken: Sequence[tuple[Session, str]]) -> str:
        """Why a session cannot be trusted, by what is known by now; ``taken`` are the sessions of the file."""
        if self.emulated:
            return ""
        usual = usual_cores([one for one, _ in taken]) if self.threads > 1 else 1.0
        return doubt(session, statistics.median(self.clocks), self.undisturbed, usual)


class JudgedSessions:
    """The sessions of one file that is measured by itself, each with why it is doubted."""

    def __init__(self, judge: Judge, timing: Timing) -> None:
        self._judge, self._timing = judge, timing
        self._taken: list[tuple[Session, str]] = []

    def __len__(self) -> int:
        return len(self._taken)

    def add(self, session: Session) -> None:
        """One more session."""
        self._taken.append((session, self._judge.first(session, self._taken)))

    @property
    def needed(self) -> int:
        """``sessions_needed``, once there are ``min_rounds`` by sessions that are all judged once more."""
        return sessions_needed(
            self._taken if len(self._taken) < self._timing.min_rounds else self.judged(), self._timing
        )

    def judged(self) -> Sequence[tuple[Session, str]]:
        """The sessions, judged once more by all of them: the first few alone do not tell which clock is the usual."""
        self._taken = [(session, self._judge.doubt(session, self._taken)) for session, _ in self._taken]
        return self._taken
