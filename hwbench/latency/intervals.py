"""Intervals of rows: what a handful of sessions tell, and what they cannot."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from hwbench.latency.changes import COMMON_FROM, variances_of
from hwbench.latency.significance import Variances, half_widths, moderated, unexplained
from hwbench.latency.table import LatencyRow
from hwbench.specs import LatencyStats
from hwbench.specs.timing import student_t95

# Standard deviation, relative, between a row and itself an hour later, beyond what its sessions explain: what pairs of
# tables an hour apart show (experiments/010-repeat-tables: 0 to 0.7 %).
BETWEEN_RUNS = 0.005
# The relative standard error of a row whose sessions are the same to the nanosecond.
_LEAST = 1e-6
# Fewer sessions of one occasion hardly tell how far they spread.
_SESSIONS = 3
# By number of normal values: how many times too small the middle half of them is around their own median, the values of
# many such groups taken together (simulated). From six values on it is n / (n - 1.25), to 1.5 %.
_AROUND_MEDIAN = {2: 1.414, 3: 2.154, 4: 1.388, 5: 1.377}


def between_runs(repeated: Iterable[Mapping[int, LatencyStats]]) -> float:
    """What rows of a device differ by from one occasion to the next, beyond what their sessions explain.

    A standard deviation, relative; that of intermediate precision in the sense of ISO 5725-3, of all rows together
    (``unexplained``). It is never below ``BETWEEN_RUNS``, for one quiet hour says little of the next, and equal to that
    where all changes have fewer than ten degrees of freedom. What all rows share from one occasion to the next is no
    part of it: that is the scale of a day (``hwbench.latency.occasions``). It is the median of the changes, which takes
    one degree of each pair of occasions, and makes the changes of a few anchors smaller than they are: they are
    stretched by as much.

    Args:
        repeated: Of rows that were measured on several occasions, the latency on each, by its number.
    """
    rows = [dict(one) for one in repeated]
    pairs = [
        (first, second, row[first], row[second])
        for row in rows
        for first, second in itertools.pairwise(sorted(row))
        if min(row[first].num_sessions, row[second].num_sessions) >= _SESSIONS
    ]
    steps = {step: count for step, count in Counter(pair[:2] for pair in pairs).items() if count > 1}
    pairs = [pair for pair in pairs if pair[:2] in steps]
    if sum(count - 1 for count in steps.values()) < COMMON_FROM:
        return BETWEEN_RUNS
    changes = np.array([math.log(after.median_s / before.median_s) for _, _, before, after in pairs])
    for step, count in steps.items():
        those = np.array([pair[:2] == step for pair in pairs])
        stretch = _AROUND_MEDIAN.get(count, count / (count - 1.25))
        changes[those] = stretch * (changes[those] - np.median(changes[those]))
    return max(BETWEEN_RUNS, unexplained(changes, variances_of([pair[2:] for pair in pairs])) / math.sqrt(2))


def with_honest_intervals(rows: Sequence[LatencyRow], between: float = BETWEEN_RUNS) -> list[LatencyRow]:
    """The rows of one campaign with the intervals in which they will be found again at another time.

    Two things are missing in what the sessions of a row say by themselves. A row ends as soon as its interval is
    narrow, so that those are chosen whose sessions agree by luck: the variances of all rows together say how unlikely
    that is (``moderated``: Smyth 2004). And its sessions lie within minutes, so that they do not tell what an hour
    changes: that is added as a variance of its own (``between``; see ``between_runs``). No interval becomes narrower.
    Rows of one session and failed ones are as they were.
    """
    several = [row for row in rows if row.stats is not None and row.stats.num_sessions > 1]
    halves = _halves([_stats(row) for row in several], between)
    wide = {row.workload: _widened(row, half) for row, half in zip(several, halves)}
    return [wide.get(row.workload, row) for row in rows]


def _halves(found: Sequence[LatencyStats], between: float) -> list[float]:
    """Half the width of each interval, relative: by its own sessions or by what is usual, whichever is wider."""
    degrees = np.array([stats.num_sessions - 1.0 for stats in found])
    errors = [_half(stats) / student_t95(stats.num_sessions - 1) for stats in found]
    own = Variances(np.maximum(errors, _LEAST) ** 2, degrees)
    both = [half_widths(one.plus(between**2)).tolist() for one in (own, moderated(own))]
    return [max(pair) for pair in zip(*both)]


def _widened(row: LatencyRow, half: float) -> LatencyRow:
    stats = _stats(row)
    low, high = max(stats.median_s * (1 - half), 0.0), stats.median_s * (1 + half)
    return replace(row, stats=replace(stats, ci_low_s=min(low, stats.ci_low_s), ci_high_s=max(high, stats.ci_high_s)))


def _half(stats: LatencyStats) -> float:
    return (stats.ci_high_s - stats.ci_low_s) / 2 / stats.median_s


def _stats(row: LatencyRow) -> LatencyStats:
    assert row.stats is not None
    return row.stats
