"""On which occasions rows were measured: stretches of measuring without a long pause."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from hwbench.measure.database import StorePart
from hwbench.measure.store_types import SESSION_NUMBERS, fingerprint, read_session, trusted
from hwbench.measure.uptime import boot_id, since_boot_s
from hwbench.specs import LatencyStats, Session, Target, Timing, Workload


@dataclass(frozen=True)
class OccasionLog:
    """The occasions on which a target was measured under one set of conditions, by number in their order.

    Attributes:
        ended_at: When the last session of each occasion was stored (UTC).
        of_rows: By workload and build: the occasion of most sessions of the latest attempt.
        several: By workload and build of what was measured on several: its latency on each.
        began_at: When the first session of each occasion was stored (UTC).
        days: By workload, of every build: the dates (UTC) on which sessions were stored or its row ended.
        earlier: By workload and build of a row that is measured anew and has no latency of that: the occasion of most
            sessions of each attempt before, and its latency, in their order.
    """

    ended_at: tuple[datetime, ...]
    of_rows: Mapping[tuple[Workload, str], int]
    several: Mapping[tuple[Workload, str], Mapping[int, LatencyStats]]
    began_at: tuple[datetime, ...] = ()
    days: Mapping[Workload, Set[str]] = field(default_factory=dict)
    earlier: Mapping[tuple[Workload, str], Sequence[tuple[int, LatencyStats]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """One time that a row was measured: the dates (UTC) of it, and how many sessions and samples count."""

    days: Set[str]
    num_sessions: int
    num_samples: int

    @classmethod
    def of(cls, days: Set[str], sessions: Sequence[Session]) -> Attempt:
        """Of the sessions that count."""
        return cls(days, len(sessions), sum(len(session.samples_s) for session in sessions))


class Occasions(StorePart):
    """Groups the sessions of a row by when they were taken."""

    def occasions(
        self,
        target: Target,
        conditions: Mapping[str, str],
        corrected: Callable[[Session], Session] = lambda session: session,
        apart_s: float = 600.0,
    ) -> OccasionLog:
        """All occasions, and which rows were measured on which.

        An occasion ends where the next session, of whichever row, came more than ``apart_s`` later, or after another
        start of the host: nothing tells how long it was off. The latencies of rows leave doubted sessions out where
        others are there; ``corrected`` may give sessions another drift than the one that is stored. Sessions taken
        under emulation count for nothing.
        """
        rows = self.database.select(
            "SELECT s.id, m.workload, m.build, s.attempt, s.attempt = m.attempt, m.outcome IS 'ok', m.finished_at, "
            "s.taken_at, s.boot, s.boot_s, s.suspect "
            "FROM measurements AS m JOIN sessions AS s ON s.measurement = m.id "
            "WHERE m.target = ? AND m.conditions = ? AND NOT m.emulated ORDER BY s.id",
            (target.key, fingerprint(conditions)),
        )
        began: list[_When] = []
        ended: list[_When] = []
        current: dict[tuple[str, str], Counter[int]] = {}
        sessions: dict[tuple[str, str], dict[int, list[tuple[int, str]]]] = {}
        attempts: dict[tuple[str, str], dict[int, list[tuple[int, int, str]]]] = {}
        days: dict[str, set[str]] = {}
        for number, key, build, attempt, latest, ok, finished_at, taken_at, boot, boot_s, suspect in rows:
            when = _When(datetime.fromisoformat(taken_at).timestamp(), boot, boot_s)
            if not ended or when.after_s(ended[-1]) > apart_s:
                began.append(when)
                ended.append(when)
            ended[-1] = when
            at = len(ended) - 1
            sessions.setdefault((key, build), {}).setdefault(at, []).append((number, suspect))
            if latest:
                current.setdefault((key, build), Counter())[at] += 1
            elif not ok:
                attempts.setdefault((key, build), {}).setdefault(attempt, []).append((at, number, suspect))
            days.setdefault(key, set()).update(moment[:10] for moment in (taken_at, finished_at) if moment)
        return OccasionLog(
            ended_at=tuple(when.moment for when in ended),
            of_rows={(Workload.parse(key), build): _most(counts) for (key, build), counts in current.items()},
            several={
                (Workload.parse(key), build): {at: self._stats(taken, corrected) for at, taken in by_occasion.items()}
                for (key, build), by_occasion in sessions.items()
                if len(by_occasion) > 1
            },
            began_at=tuple(when.moment for when in began),
            days={Workload.parse(key): dates for key, dates in days.items()},
            earlier={
                (Workload.parse(key), build): [
                    (
                        _most(Counter(at for at, _, _ in taken)),
                        self._stats([(number, suspect) for _, number, suspect in taken], corrected),
                    )
                    for _, taken in sorted(by_attempt.items())
                ]
                for (key, build), by_attempt in attempts.items()
            },
        )

    def since_last_session_s(self, target: Target, conditions: Mapping[str, str]) -> float | None:
        """Seconds since the last session on a target under these conditions; None: there was none.

        Infinite where nothing tells them, as after another start of the host.
        """
        rows = self.database.select(
            "SELECT s.taken_at, s.boot, s.boot_s FROM sessions AS s JOIN measurements AS m ON m.id = s.measurement "
            "WHERE m.target = ? AND m.conditions = ? ORDER BY s.id DESC LIMIT 1",
            (target.key, fingerprint(conditions)),
        )
        for taken_at, boot, boot_s in rows:
            present = _When(datetime.now(UTC).timestamp(), boot_id(), since_boot_s())
            return present.after_s(_When(datetime.fromisoformat(taken_at).timestamp(), boot, boot_s))
        return None

    def attempts(self, workload: Workload, target: Target, conditions: Mapping[str, str]) -> Sequence[Attempt]:
        """Each time that a workload was measured under these conditions, of every build and protocol, the last one too.

        Those taken under emulation count for nothing.
        """
        rows = self.database.select(
            f"SELECT m.id, s.attempt, m.timing, s.attempt = m.attempt, m.finished_at, s.taken_at, s.suspect, "
            f"s.samples_ns, {', '.join(f's.{name}' for name in SESSION_NUMBERS)} "
            "FROM measurements AS m JOIN sessions AS s ON s.measurement = m.id "
            "WHERE m.workload = ? AND m.target = ? AND m.conditions = ? AND NOT m.emulated ORDER BY s.id",
            (workload.key, target.key, fingerprint(conditions)),
        )
        days: dict[tuple[int, int], set[str]] = {}
        sessions: dict[tuple[int, int], list[tuple[Session, str]]] = {}
        timings: dict[tuple[int, int], Timing] = {}
        for row, attempt, timing, latest, finished_at, taken_at, suspect, samples, *values in rows:
            moments = (taken_at, finished_at if latest else "")
            days.setdefault((row, attempt), set()).update(moment[:10] for moment in moments if moment)
            sessions.setdefault((row, attempt), []).append((read_session(samples, values), suspect))
            timings[row, attempt] = Timing(**json.loads(timing))
        return [Attempt.of(days[key], trusted(taken, timings[key])) for key, taken in sessions.items()]

    def _stats(self, taken: list[tuple[int, str]], corrected: Callable[[Session], Session]) -> LatencyStats:
        """The latency that sessions tell, doubted ones where there are no others; ``taken`` has number and doubt."""
        numbers = [number for number, suspect in taken if not suspect] or [number for number, _ in taken]
        rows = self.database.select(
            f"SELECT samples_ns, {', '.join(SESSION_NUMBERS)} FROM sessions "
            f"WHERE id IN ({', '.join('?' * len(numbers))}) ORDER BY id",
            tuple(numbers),
        )
        return LatencyStats.of([corrected(read_session(samples, values)) for samples, *values in rows])


class _When(NamedTuple):
    """When a session was taken: by the clock, and since a start of the host."""

    clock_s: float
    boot: str
    boot_s: float

    @property
    def moment(self) -> datetime:
        """By the clock (UTC)."""
        return datetime.fromtimestamp(self.clock_s, UTC)

    def after_s(self, before: _When) -> float:
        """Seconds from another session to this one; infinite where nothing tells them.

        A clock may have been set in between, a time since a start not. From one start of the host to another the clock
        tells nothing: it may have been ahead before, and without a battery it goes on from where it stopped, or begins
        each start at the same time. Sessions of before, whose start is not known, go by a clock that was not set back.
        """
        if self.boot and before.boot:
            return self.boot_s - before.boot_s if self.boot == before.boot else math.inf
        seconds = self.clock_s - before.clock_s
        return seconds if seconds >= 0 else math.inf


def _most(counts: Counter[int]) -> int:
    """The occasion with most sessions; of several the latest."""
    return max(counts, key=lambda at: (counts[at], at))
