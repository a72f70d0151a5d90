"""When a session is doubted, when a row has enough sessions, and when it is too noisy to be a latency.

What counts is the median of a session, which a few disturbed samples do not move: on a shared machine, sessions that
had the processor for half of the time have the same median within 1 %, as long as a preemption is rarer than a sample.
Such sessions are not doubted; those whose median may have moved are kept, and others are taken, up to a limit.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from hwbench.measure.store import trusted
from hwbench.specs import LatencyStats, Outcome, Session, Timing
from hwbench.specs.timing import student_t95

# A preemption spoils one sample, and its neighbours through the caches; a quarter of them leaves the median in place.
SWITCHES_PER_SAMPLE = 0.25
# The reference workload does not move by more than this unless the clock or the neighbours change.
DRIFT = 0.03
# A second mode: a fifth of the samples at least a fifth slower than the median.
MODE_DISTANCE = 1.2
MODE_SHARE = 0.2

# Extra sessions that doubted ones may cost, beyond ``Timing.max_rounds``.
REPEATS = 4
# Half-width of the robust interval, relative to the median, above which a row is no latency.
NOISY_RATIO = 0.10


def doubt(session: Session) -> str:
    """Why the median of a session cannot be trusted, in words; empty where nothing speaks against it."""
    samples = len(session.samples_s)
    if session.involuntary_switches > max(1.0, SWITCHES_PER_SAMPLE * samples):
        share = f", on the processor for {session.cpu_s / session.wall_s:.0%} of the time" if session.wall_s else ""
        return f"preempted {session.involuntary_switches} times in {samples} samples{share}"
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


def robust_half_width(sessions: Sequence[Session]) -> float:
    """As ``half_width``, from the median absolute deviation: a few sessions in another clock state do not widen it.

    Too optimistic to stop by (two of three sessions may agree by chance), but fair for a row that has all its sessions.
    """
    medians = [session.median_s for session in sessions]
    centre = statistics.median(medians)
    # 1.4826: from a median absolute deviation to a standard deviation; 1.253: from a mean to a median.
    deviation = 1.4826 * statistics.median(abs(m - centre) for m in medians)
    if len(medians) < 2:
        return half_width(sessions)
    return 1.253 * student_t95(len(medians) - 1) * deviation / math.sqrt(len(medians)) / centre


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
    width = min(half_width(counted), robust_half_width(counted))
    if width <= max(NOISY_RATIO, timing.ci_ratio):
        return Outcome.OK, ""
    doubts = [suspect for _, suspect in sessions if suspect]
    reason = f"95 % interval of ±{width:.0%} after {len(sessions)} sessions (allowed: ±{NOISY_RATIO:.0%})"
    return Outcome.NOISY, f"{reason}; last doubt: {doubts[-1]}" if doubts else reason
