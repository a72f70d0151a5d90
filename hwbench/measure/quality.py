"""When a session is doubted, when a row has enough sessions, and when it is too noisy to be a latency.

A quiet machine never reaches the thresholds for doubt. A doubted session is kept and another one taken, up
to a limit; on a machine that is never quiet the row is judged by the width of its confidence interval alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from hwbench.measure.store import trusted
from hwbench.specs import LatencyStats, Outcome, Session, Timing

# A quiet core is taken away less than once in ten executions.
SWITCHES_PER_SAMPLE = 0.1
# One thread that computes all the time uses 97 % of the wall time; the rest is the clock and the interrupts.
CPU_SHARE = 0.97
# The reference workload does not move by more than this unless the clock or the neighbours change.
DRIFT = 0.03
# A second mode: a fifth of the samples at least a fifth slower than the median.
MODE_DISTANCE = 1.2
MODE_SHARE = 0.2

# Extra sessions that doubted ones may cost, beyond ``Timing.max_rounds``.
REPEATS = 2
# Half-width of the interval, relative to the median, above which a row is no latency.
NOISY_RATIO = 0.10


def doubt(session: Session, threads: int) -> str:
    """Why a session cannot be trusted, in words; empty where nothing speaks against it."""
    samples = len(session.samples_s)
    if session.involuntary_switches > max(1.0, SWITCHES_PER_SAMPLE * samples):
        return f"preempted {session.involuntary_switches} times in {samples} samples"
    if threads == 1 and session.wall_s > 0 and 0 < session.cpu_s < CPU_SHARE * session.wall_s:
        return f"on the processor for only {session.cpu_s / session.wall_s:.0%} of the time"
    if abs(session.drift - 1) > DRIFT:
        return f"the sentinel moved by {session.drift - 1:+.1%}"
    slow = sum(s > MODE_DISTANCE * statistics.median(session.samples_s) for s in session.samples_s)
    if slow >= MODE_SHARE * samples:
        return f"two modes: {slow} of {samples} samples are more than {MODE_DISTANCE - 1:.0%} above the median"
    return ""


def half_width(sessions: Sequence[Session]) -> float:
    """Half-width of the 95 % interval of a row, relative to its median."""
    stats = LatencyStats.of(sessions)
    return (stats.ci_high_s - stats.median_s) / stats.median_s


def sessions_needed(sessions: Sequence[tuple[Session, str]], timing: Timing) -> int:
    """How many more sessions a row needs before it can be judged again; 0 when it is done.

    Done is: at least ``min_rounds`` sessions and an interval within ``ci_ratio``, or ``max_rounds`` sessions (up to
    ``REPEATS`` more where some are doubted).
    """
    if len(sessions) < timing.min_rounds:
        return timing.min_rounds - len(sessions)
    if half_width(trusted(sessions, timing)) <= timing.ci_ratio:
        return 0
    doubted = sum(bool(suspect) for _, suspect in sessions)
    return int(len(sessions) < timing.max_rounds + min(doubted, REPEATS))


def verdict(sessions: Sequence[tuple[Session, str]], timing: Timing) -> tuple[Outcome, str]:
    """``ok``, or ``noisy`` with the reason, for a row that needs no more sessions."""
    counted = trusted(sessions, timing)
    width = half_width(counted)
    if width <= max(NOISY_RATIO, timing.ci_ratio):
        return Outcome.OK, ""
    doubts = [suspect for _, suspect in sessions if suspect]
    reason = f"95 % interval of ±{width:.0%} after {len(sessions)} sessions (allowed: ±{NOISY_RATIO:.0%})"
    return Outcome.NOISY, f"{reason}; last doubt: {doubts[-1]}" if doubts else reason
