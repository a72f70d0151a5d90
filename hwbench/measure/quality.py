"""When a session is doubted, when a row has enough sessions, and when it is too noisy to be a latency.

What counts is the median of a session, which a few disturbed samples do not move: on a shared machine, sessions that
had the processor for half of the time have the same median within 1 %, as long as a preemption is rarer than a sample.
Such sessions are not doubted; those whose median may have moved are kept, and others are taken, up to a limit. Where
the core is shared all the time, so that too few others come, the processor time of those that were preempted counts,
where it is less than their time on the wall.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np

from hwbench.measure.drift import CROWDED, DRIFT, MEMORY_USED, Undisturbed
from hwbench.measure.store_types import trusted
from hwbench.specs import LatencyStats, Outcome, Session, Timing
from hwbench.specs.timing import student_t95

# In the typical sample, this share of the time was spent waiting for the processor.
WAITING = 0.03
# Of several threads; how many wait for each other differs by some hundredths from session to session.
THREADS_WAITING = 0.10
# One step of the clock of a phone is a tenth or more; a laptop's wanders by less.
CLOCK = 0.08
# Where a session tells its own clock it is corrected by that, which holds for what computes; so far that what waits for
# memory is off by less than the rest of its noise. Shared servers change theirs by an eighth from second to second.
OWN_CLOCK = 0.25
# A second mode: a fifth of the samples at least a fifth slower than the median.
MODE_DISTANCE = 1.2
MODE_SHARE = 0.2

# An interval as narrow as this is narrow enough however short the row is: timer and scheduler know no better.
FLOOR_S = 3e-6
# Resamples of a hierarchical bootstrap; the ends of its 95 % interval are then off by a twentieth of its width.
RESAMPLES = 1000

# Extra sessions that doubted ones may cost, beyond ``Timing.max_rounds``.
REPEATS = 4
# Half-width of the robust interval, relative to the median, above which a row is no latency.
NOISY_RATIO = 0.10


def usual_cores(sessions: Sequence[Session]) -> float:
    """How many cores a file keeps busy, by its sessions: their median, and at least the one that starts the others."""
    used = [cores for session in sessions if (cores := session.cores_used)]
    return max(1.0, statistics.median(used)) if used else 1.0


def doubt(
    session: Session,
    usual_clock_hz: float = 0.0,
    undisturbed: Undisturbed | None = None,
    busy_cores: float = 1.0,
) -> str:
    """Why the median of a session cannot be trusted, in words; empty where nothing speaks against it.

    Args:
        session: One visit.
        usual_clock_hz: Clock at which the other sessions were taken; 0: unknown.
        undisturbed: What other sessions told of core and memory while nothing else used them; None: unknown.
        busy_cores: ``usual_cores`` of the file: of several threads, those that wait take no processor time while the
            others go on, so that one session alone does not tell.
    """
    samples, centre = len(session.samples_s), statistics.median(session.samples_s)
    if session.preempted:
        share = f", on the processor for {session.cpu_s / session.wall_s:.0%} of the time" if session.wall_s else ""
        return f"preempted {session.involuntary_switches} times in {samples} samples{share}"
    # CPU time is that of all samples and threads: less of it than the typical sample takes says that this one waited.
    waiting = WAITING if busy_cores == 1.0 else THREADS_WAITING
    if session.cpu_s and session.cores_used < (1 - waiting) * busy_cores:
        waited = 1 - session.cores_used / busy_cores
        of = "" if busy_cores == 1.0 else f", by the {busy_cores:.1f} cores that this file keeps busy otherwise"
        return f"waited for the processor for {waited:.0%} of a typical sample{of}"
    lowest = undisturbed or Undisturbed()
    if (usual := lowest.crowding.usual) and session.crowding > CROWDED * usual:
        return f"another program shared the core: independent work took {session.crowding / usual - 1:.0%} longer"
    if (usual := lowest.memory.usual) and session.memory > MEMORY_USED * usual:
        return f"others used the memory: a sweep over it took {session.memory / usual - 1:.0%} longer"
    # What the clock itself says holds for the session; the sentinel stands for other work, at another time.
    if abs(session.drift - 1) > (OWN_CLOCK if session.probe_s else DRIFT):
        return f"the {'clock' if session.probe_s else 'sentinel'} moved by {session.drift - 1:+.1%}"
    if session.clock_hz and usual_clock_hz and abs(session.clock_hz / usual_clock_hz - 1) > CLOCK:
        return f"the clock was at {session.clock_hz / 1e9:.2f} GHz instead of {usual_clock_hz / 1e9:.2f}"
    slow = sum(s > MODE_DISTANCE * centre for s in session.samples_s)
    if slow >= MODE_SHARE * samples:
        return f"two modes: {slow} of {samples} samples are more than {MODE_DISTANCE - 1:.0%} above the median"
    return ""


def bootstrap_interval(sessions: Sequence[Session], resamples: int = RESAMPLES) -> tuple[float, float]:
    """95 % interval in seconds of the median of session medians, by hierarchical bootstrap; the same at every call.

    Sessions are drawn with replacement, then samples within each, because both vary (Kalibera and Jones 2013). The
    median of ``n`` samples drawn from ``n`` is the sample whose rank has the distribution of the median of ``n``
    uniform numbers, Beta((n+1)/2, (n+1)/2), so that one number is drawn in place of ``n``.

    With few sessions it is too narrow where they differ more than their samples do: of 95 intervals in a hundred, 90
    hold the truth with 3 sessions and 95 from 5 on (a normal spread of 0.5 % between sessions and 1 % within them).
    """
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(sessions), size=(resamples, len(sessions)))
    medians = np.empty(drawn.shape)
    for number, session in enumerate(sessions):
        ordered, count = np.sort(session.samples_s) / session.drift, len(session.samples_s)
        rank = rng.beta((count + 1) / 2, (count + 1) / 2, size=drawn.shape) * count
        medians = np.where(drawn == number, ordered[np.minimum(rank.astype(int), count - 1)], medians)
    low, high = np.quantile(np.median(medians, axis=1), (0.025, 0.975))
    return float(low), float(high)


def narrow_enough(sessions: Sequence[Session], timing: Timing) -> bool:
    """The stop rule: the bootstrap interval reaches no further than ``ci_ratio`` of the median, or ``FLOOR_S``."""
    centre = statistics.median(session.median_s for session in sessions)
    low, high = bootstrap_interval(sessions)
    return max(high - centre, centre - low) <= max(timing.ci_ratio * centre, FLOOR_S)


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

    Done is: at least ``min_rounds`` sessions that nothing speaks against and a ``narrow_enough`` interval, or
    ``max_rounds`` sessions (up to ``REPEATS`` more where some are doubted).
    """
    doubted = sum(bool(suspect) for _, suspect in sessions)
    left = timing.max_rounds + min(doubted, REPEATS) - len(sessions)
    lacking = timing.min_rounds - (len(sessions) - doubted)
    if lacking > 0:
        return max(min(lacking, left), 0)
    return int(left > 0 and not narrow_enough(trusted(sessions, timing), timing))


def verdict(sessions: Sequence[tuple[Session, str]], timing: Timing) -> tuple[Outcome, str]:
    """``ok``, or ``noisy`` with the reason, for a row that needs no more sessions."""
    counted = trusted(sessions, timing)
    width = min(half_width(counted), robust_half_width(counted))
    if width <= max(NOISY_RATIO, timing.ci_ratio):
        return Outcome.OK, ""
    doubts = [suspect for _, suspect in sessions if suspect]
    reason = f"95 % interval of ±{width:.0%} after {len(sessions)} sessions (allowed: ±{NOISY_RATIO:.0%})"
    return Outcome.NOISY, f"{reason}; last doubt: {doubts[-1]}" if doubts else reason
