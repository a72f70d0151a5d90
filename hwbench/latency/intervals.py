"""Intervals of rows that a handful of sessions make too narrow by luck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hwbench.latency.significance import Variances, moderated
from hwbench.latency.table import LatencyRow
from hwbench.specs import LatencyStats
from hwbench.specs.timing import student_t95

# The relative standard error of a row whose sessions are the same to the nanosecond.
_LEAST = 1e-6


def with_moderated_intervals(rows: Sequence[LatencyRow]) -> list[LatencyRow]:
    """The rows of one campaign, none with a narrower interval than its sessions and those of the others allow.

    A row ends as soon as its interval is narrow, so that those are chosen whose sessions agree by luck: of five
    sessions some agree to a twentieth of a percent, and an hour later to another one. The variances of all rows
    together say how unlikely that is (``moderated``: Smyth 2004). No interval becomes narrower: a row that is noisier
    than the others has its reasons. Rows of one session and failed ones are as they were.
    """
    several = [row for row in rows if row.stats is not None and row.stats.num_sessions > 1]
    wide = {row.workload: _widened(row, half) for row, half in zip(several, _halves([_stats(r) for r in several]))}
    return [wide.get(row.workload, row) for row in rows]


def _halves(found: Sequence[LatencyStats]) -> list[float]:
    """Half the width of each interval, relative, by what is usual among them."""
    degrees = np.array([stats.num_sessions - 1.0 for stats in found])
    errors = [_half(stats) / student_t95(stats.num_sessions - 1) for stats in found]
    variances = moderated(Variances(np.maximum(errors, _LEAST) ** 2, degrees))
    return [
        student_t95(max(round(n), 1)) * float(np.sqrt(value)) for value, n in zip(variances.values, variances.degrees)
    ]


def _widened(row: LatencyRow, half: float) -> LatencyRow:
    stats = _stats(row)
    if half <= _half(stats):
        return row
    low, high = max(stats.median_s * (1 - half), 0.0), stats.median_s * (1 + half)
    return replace(row, stats=replace(stats, ci_low_s=min(low, stats.ci_low_s), ci_high_s=max(high, stats.ci_high_s)))


def _half(stats: LatencyStats) -> float:
    return (stats.ci_high_s - stats.ci_low_s) / 2 / stats.median_s


def _stats(row: LatencyRow) -> LatencyStats:
    assert row.stats is not None
    return row.stats
