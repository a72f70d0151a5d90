"""How a latency is taken, and what comes back."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwbench.errors import InvalidValue
from hwbench.specs.target import Target
from hwbench.specs.workload import Workload


class CacheState(enum.StrEnum):
    """What is in the processor's caches when a sample begins.

    ``warm``: what the execution before left there, as in a loop over one file. ``rotate``: the same file is loaded so
    often that all copies together do not fit, and they take turns: weights and activations come from memory.
    ``flush``: twice the last cache is written over before each sample. In a network a block finds its input warm and
    its weights cold, so the truth lies between.
    """

    WARM = "warm"
    ROTATE = "rotate"
    FLUSH = "flush"


@dataclass(frozen=True)
class Timing:
    """The measurement protocol of one row.

    One *sample* is the wall time of one execution of the whole graph with its input already in place. One *session* is
    a visit to one artifact inside a runner process: warm-up, then samples back to back. Sessions of the artifacts of a
    campaign are interleaved: each round visits every artifact once, in fresh random order.

    The latency of a row is the median of its session medians; its confidence interval is the 95 % interval of that
    median. Rounds go on until the half-width of the interval is at most ``ci_ratio`` of the median for every artifact,
    at least ``min_rounds`` and at most ``max_rounds`` times. ``cache`` is the state of the caches before each sample.
    """

    warmup_s: float = 0.05
    min_samples: int = 10
    min_session_s: float = 0.1
    max_session_s: float = 2.0
    min_rounds: int = 5
    max_rounds: int = 8
    ci_ratio: float = 0.01
    sentinel_every: int = 10
    timeout_s: float = 60.0
    cache: CacheState = CacheState.WARM

    def __post_init__(self) -> None:
        if not (self.warmup_s >= 0 and self.min_samples >= 1 and 1 <= self.min_rounds <= self.max_rounds):
            raise InvalidValue(f"timing: out of range: {self}")
        try:
            object.__setattr__(self, "cache", CacheState(self.cache))
        except ValueError:
            known = ", ".join(CacheState)
            raise InvalidValue(f"timing: expected a state of the caches among {known}, got {self.cache!r}") from None


class Outcome(enum.StrEnum):
    """How a measurement ended. Everything but ``ok`` carries a reason in words and no latency."""

    OK = "ok"
    BUILD = "build"
    PUSH = "push"
    LOAD = "load"
    TIMEOUT = "timeout"
    CRASH = "crash"
    PARSE = "parse"
    MISMATCH = "mismatch"
    THROTTLED = "throttled"
    NOISY = "noisy"
    LOST = "lost"


# A preemption spoils one sample, and its neighbours through the caches; a quarter of them leaves the median in place.
SWITCHES_PER_SAMPLE = 0.25


@dataclass(frozen=True)
class Session:
    """One visit to one artifact: samples in seconds, and what the machine did meanwhile.

    ``probe_s`` is the time of a fixed chain of dependent operations, which tells the clock, and ``crowding`` that of
    independent ones over it, which rises where another program shares the core; ``memory`` that of a sweep over memory
    over it, which rises where others use last cache and memory; 0: unknown. ``disturbed`` samples were taken while the
    core was shared: they are thrown away, except where there are hardly others. ``drift`` tells how much slower than
    usual the machine was: by the clock where that is known, else by the sentinel. ``peak_memory_bytes`` is the most
    that the process of the runner has had in memory so far, engine and runner included; 0: unknown, as in sessions that
    come from a store. ``round`` is the number of the round in which files were visited in turn: sessions of one round
    are of the same minute; None: unknown, as in sessions that come from a store. ``by_processor_time`` says that
    ``on_the_processor`` has replaced the time on the wall.
    """

    samples_s: tuple[float, ...]
    cpu_s: float = 0.0
    wall_s: float = 0.0
    involuntary_switches: int = 0
    load_s: float = 0.0
    first_s: float = 0.0
    clock_hz: float = 0.0
    temperature_celsius: float = 0.0
    drift: float = 1.0
    probe_s: float = 0.0
    crowding: float = 0.0
    memory: float = 0.0
    disturbed: int = 0
    peak_memory_bytes: int = 0
    round: int | None = None
    by_processor_time: bool = False

    @property
    def median_s(self) -> float:
        """Median of the samples, corrected by the drift."""
        return statistics.median(self.samples_s) / self.drift

    @property
    def cores_used(self) -> float:
        """Processor time of all threads in the typical sample, over its time; 0 where no processor time is known."""
        return self.cpu_s / len(self.samples_s) / statistics.median(self.samples_s)

    @property
    def preempted(self) -> bool:
        """Whether other programs took the core so often that the typical sample may have waited for it."""
        return self.involuntary_switches > max(1.0, SWITCHES_PER_SAMPLE * len(self.samples_s))

    def on_the_processor(self) -> Session:
        """The session as it would be without waiting for the core: the mean processor time of a sample is its median.

        On a core that others share all the time every sample waits, as long as one of the others may run. Processor
        time leaves that out; caches that the others have emptied stay in it (3 to 5 % of networks of 3 to 8 ms,
        ``experiments/028-crowded-core``). A session that was not preempted stays as it is, and so does one whose
        processor time is unknown or no less than its typical sample takes, since processor time is that of all threads,
        and of what empties the caches before each sample. Of several threads, and with emptied caches, both clocks
        give a bound from above.
        """
        share = self.cores_used if self.samples_s and self.preempted else 1.0
        if not 0 < share < 1:
            return self
        return replace(self, samples_s=tuple(share * sample for sample in self.samples_s), by_processor_time=True)


@dataclass(frozen=True)
class LatencyStats:
    """Summary of the sessions of one row, in seconds."""

    median_s: float
    p10_s: float
    p90_s: float
    ci_low_s: float
    ci_high_s: float
    num_sessions: int
    num_samples: int

    @classmethod
    def of(cls, sessions: Sequence[Session]) -> LatencyStats:
        """Median of session medians with its 95 % interval; p10 and p90 over all samples.

        The interval is Student's t on the session medians, widened by the asymptotic ratio 1.253 between the standard
        errors of a median and a mean; with one session it is the p10-p90 range of that session.

        Raises:
            InvalidValue: No session, or a session without samples.
        """
        if not sessions or any(not s.samples_s for s in sessions):
            raise InvalidValue("latency: no samples")
        medians = [s.median_s for s in sessions]
        samples = sorted(x / s.drift for s in sessions for x in s.samples_s)
        centre = statistics.median(medians)
        p10, p90 = quantile(samples, 0.1), quantile(samples, 0.9)
        if len(medians) == 1:
            low, high = p10, p90
        else:
            half = 1.253 * student_t95(len(medians) - 1) * statistics.stdev(medians) / math.sqrt(len(medians))
            low, high = centre - half, centre + half
        return cls(centre, p10, p90, max(low, 0.0), high, len(medians), len(samples))


@dataclass(frozen=True)
class Measurement:
    """What came of measuring one workload on one target; a failure is a measurement too.

    ``sessions`` are those that count, ``preempted`` ones by processor time where they are ``by_processor_time``.
    """

    workload: Workload
    target: Target
    timing: Timing
    outcome: Outcome
    sessions: tuple[Session, ...] = ()
    reason: str = ""
    artifact_sha256: str = ""
    conditions: Mapping[str, str] = field(default_factory=dict)
    emulated: bool = False

    @property
    def stats(self) -> LatencyStats:
        """Summary of the sessions; only of a measurement that is ``ok``."""
        if self.outcome is not Outcome.OK:
            raise InvalidValue(f"no latency: {self.workload.key} ended as {self.outcome}: {self.reason}")
        return LatencyStats.of(self.sessions)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear-interpolation quantile of sorted values."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def student_t95(degrees: int) -> float:
    """Two-sided 95 % quantile of Student's t (tabulated for 1-10 degrees, then the Cornish-Fisher expansion)."""
    table = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
    if degrees <= len(table):
        return table[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
