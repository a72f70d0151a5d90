"""What happened while a device was measured: residuals in the order taken, drift, interruptions, doubted sessions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from hwbench.measure.drift import DRIFT, PAUSE_S
from hwbench.measure.store_types import TakenSession
from hwbench.specs import LatencyStats, Precision, Timing

# Edges of the classes in which spreads are counted, as shares of the median.
EDGES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class TimelineVisit:
    """One session in the order taken.

    Attributes:
        taken: The session itself.
        drift: The sentinel then, relative to the first: 0.02 says 2 % slower.
        residual: Its median, corrected for drift, relative to that of its row.
        uncorrected: The same without the correction.
    """

    taken: TakenSession
    drift: float
    residual: float
    uncorrected: float


@dataclass(frozen=True)
class Interruption:
    """Nothing was measured for ``seconds`` ahead of session ``before`` (an index into the visits)."""

    before: int
    seconds: float
    since: str
    until: str
    why: str


@dataclass(frozen=True)
class Doubt:
    """Sessions that were doubted for one reason: how many, their share of all, and the reason of one of them."""

    kind: str
    count: int
    share: float
    example: str


def visits(sessions: Sequence[TakenSession]) -> list[TimelineVisit]:
    """Sessions with their residuals; those of a row with fewer than two say nothing about themselves and have 0."""
    rows: dict[tuple[int, bool], list[float]] = {}
    for taken in sessions:
        rows.setdefault((taken.row, taken.current), []).append(taken.session.median_s)
    centres = {row: median(medians) for row, medians in rows.items()}
    found = []
    for taken in sessions:
        centre, corrected = centres[taken.row, taken.current], taken.session.median_s
        drift = taken.session.drift
        found.append(TimelineVisit(taken, drift - 1, corrected / centre - 1, corrected * drift / centre - 1))
    return found


def interruptions(sessions: Sequence[TakenSession], least_s: float = PAUSE_S) -> list[Interruption]:
    """The times of at least ``least_s`` in which no session was under way.

    Within a run they are waits for a device that had become slow (the sentinel says so right before), or for one that
    went away, or a file that gave no session; between two runs files were built, or nobody measured.
    """
    found = []
    for index, (last, this) in enumerate(pairwise(sessions), start=1):
        warmup_s = Timing().warmup_s
        busy_s = max(this.session.wall_s, sum(this.session.samples_s)) + this.session.load_s + warmup_s
        gap_s = (_time(this) - _time(last)).total_seconds() - busy_s
        if gap_s >= least_s:
            found.append(Interruption(index, gap_s, last.taken_at, this.taken_at, _why(last, this)))
    return found


def doubts(sessions: Sequence[TakenSession]) -> list[Doubt]:
    """Why sessions were doubted, the commonest reason first; numbers in a reason do not make it another one."""
    kinds = [_kind(taken.suspect) for taken in sessions if taken.suspect]
    examples = {_kind(taken.suspect): taken.suspect for taken in sessions if taken.suspect}
    return [Doubt(kind, count, count / len(sessions), examples[kind]) for kind, count in Counter(kinds).most_common()]


def session_spreads(sessions: Sequence[TakenSession], precision: Precision) -> list[float]:
    """Of each row with at least two sessions that nothing speaks against: (slowest - fastest) / median of medians."""
    rows: dict[int, list[float]] = {}
    for taken in sessions:
        if taken.current and not taken.suspect and taken.workload.precision is precision:
            rows.setdefault(taken.row, []).append(taken.session.median_s)
    return [(max(m) - min(m)) / median(m) for m in rows.values() if len(m) > 1]


def half_width(stats: LatencyStats) -> float:
    """The longer side of the 95 % interval of a row, relative to its median."""
    return max(stats.ci_high_s - stats.median_s, stats.median_s - stats.ci_low_s) / stats.median_s


def classes(values: Sequence[float]) -> list[int]:
    """How many values lie below the first of ``EDGES``, between each and the next, and from the last on."""
    counts = [0] * (len(EDGES) + 1)
    for value in values:
        counts[sum(value >= edge for edge in EDGES)] += 1
    return counts


def _why(last: TakenSession, this: TakenSession) -> str:
    if last.run is None or last.run != this.run:
        return "between runs: files were built, or nobody measured"
    if last.session.drift > 1 + DRIFT:
        return "within a run: the device had become slow, and was waited for"
    return "within a run: the device was waited for, or a file gave no session"


def _kind(reason: str) -> str:
    head = reason.partition(",")[0]
    return re.sub(r"[-+]?\d+(?:\.\d+)?( ?%)?", "…", head)


def _time(taken: TakenSession) -> datetime:
    return datetime.fromisoformat(taken.taken_at)
