"""The latency of a file that runs for minutes: its course, and the latency after heat has settled.

A file is executed back to back in windows of some seconds. No sample is corrected for the clock and none is waited for:
what heat does to the clock is what is looked for. A device with one thermal time constant approaches its end like
``exp(-t/tau)``, whatever tau is, so two neighbouring stretches of time that are both a fifth of all of it are compared.
Without a thermometer the latency alone has to tell a slow rise from a speed that wanders: the stretches are longer.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hwbench.errors import CheckFailed
from hwbench.measure.bench import Bench
from hwbench.measure.energy import EnergyReading, read_energy
from hwbench.measure.runner import measure_sessions
from hwbench.specs import Artifact, Session, Timing
from hwbench.specs.timing import student_t95

# Shorter says nothing about heat: the body of a phone takes minutes.
LEAST_S = 180.0
# The stretches that are compared: a share of the time so far, and at least so long.
STRETCH_SHARE, STRETCH_S = 0.2, 60.0
# The share where no temperature is told. Of simulated devices that end 20 % slower with a time constant of 300 s, 21 of
# 60 settled within ten minutes with a share of 0.25 (windows of 5 s, a wander of 1 %), and none of 100 with 0.3.
LONG_STRETCH_SHARE = 0.3
# Settled: the two differ by at most so much, or by no more than their noise, which is itself small; and in degrees.
CHANGE, NOISE, DEGREES = 0.01, 0.025, 1.0
# How far the speed of a device wanders within minutes, for whatever reason: part of the interval.
WANDER = 0.02
# Means of so many parts give the interval: windows one after the other are not independent.
BATCHES = 6
WINDOW_S, WINDOWS = 2.0, 120
# A pause of more than this between two windows is an interruption: the device went away, and cools.
PAUSE_S = 10.0
# A device that goes away more often than this within a course is given up (``visits.MAX_STRIKES``).
PARTS = 4


@dataclass(frozen=True)
class CoursePoint:
    """One window of a course.

    Attributes:
        at_s: Its middle, in seconds since the first window began; a pause after an interruption counts.
        seconds: How long its executions took.
        latency_s: Median of them, as it was.
        executions: How many they were.
        temperature_celsius: Of the chip; 0: the device does not tell.
        clock_hz: Of the processor; 0: the device does not tell.
        part: Rises where the course went on after an interruption, of the command or of the device.
        cpu_s: Time of the processor that the executions took, over all threads; 0: not told.
        energy: What the supply told at the end of the window; None: it was not asked.
    """

    at_s: float
    seconds: float
    latency_s: float
    executions: int
    temperature_celsius: float = 0.0
    clock_hz: float = 0.0
    part: int = 0
    cpu_s: float = 0.0
    energy: EnergyReading | None = None


@dataclass(frozen=True)
class SettledLatency:
    """The latency at the end of a course, over ``seconds`` of it: mean of window medians, with an interval.

    The interval joins the 95 % interval of the mean with what minutes cannot average out: the speed of a phone wanders
    by a percent or two within minutes. Where no temperature is told, the largest change from stretch to stretch is
    added: so much may be left of a rise. ``settled`` says that the latency no longer changes; else it is the latest
    there is.
    """

    latency_s: float
    low_s: float
    high_s: float
    seconds: float
    settled: bool


def window_s(limit_s: float) -> float:
    """How long one window is, of a course of at most so many seconds."""
    return max(WINDOW_S, limit_s / WINDOWS)


def measure_course(
    artifact: Artifact,
    bench: Bench,
    *,
    limit_s: float,
    on_point: Callable[[CoursePoint], None],
    before: Sequence[CoursePoint] = (),
    pause_s: float = 0.0,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[CoursePoint, ...]:
    """Executes a file until its latency has settled, or for so long.

    A device that goes away in the middle and comes back cools meanwhile: a new part begins, which settles anew and has
    the whole time again.

    Args:
        artifact: The file.
        bench: Where and with what.
        limit_s: Time of a part at the most, in seconds, up to the end of the window under way.
        on_point: Told of each window when it is over; what it raises passes through.
        before: The course up to an interruption, after which this one goes on.
        pause_s: How long the interruption was.
        clock: Tells seconds, from any moment on.

    Returns:
        The whole course.

    Raises:
        CheckFailed: The file does not run.
        DeviceError: The device went away.
    """
    course = _Windows(bench, [*before], pause_s, limit_s, on_point, clock)
    each = window_s(limit_s)
    timing = Timing(
        warmup_s=0.0,
        min_samples=1,
        min_session_s=each,
        max_session_s=each,
        min_rounds=1,
        max_rounds=1,
        timeout_s=60.0 + 4 * each,
    )
    try:
        failures = measure_sessions(
            [artifact],
            rounds=PARTS * max(1, math.ceil(limit_s / each)),
            seed=0,
            on_session=course.take,
            bench=replace(bench, probe=False),  # a runner that waits for a quiet core lets the device cool down
            timing=timing,
        )
    except _Over:
        failures = []
    if failures:
        raise CheckFailed(f"{artifact.path}: {failures[0].outcome}: {failures[0].reason}; run the command again")
    return tuple(course.points)


class _Over(Exception):
    """Nothing more is to be learned, or the time is over."""


class _Windows:
    """Makes points of sessions, and ends when they say that heat has settled, or when the time is over."""

    def __init__(
        self,
        bench: Bench,
        points: list[CoursePoint],
        pause_s: float,
        limit_s: float,
        on_point: Callable[[CoursePoint], None],
        clock: Callable[[], float],
    ) -> None:
        self.points = points
        self._bench = bench
        self._limit_s = limit_s
        self._on_point = on_point
        self._clock = clock
        self._part = points[-1].part + 1 if points else 0
        # End of the last window, in the time of the course.
        self._end_s = points[-1].at_s + points[-1].seconds / 2 + pause_s if points else 0.0
        # What the clock tells when the course begins, and how long the last window took to be written down.
        self._origin_s: float | None = None
        self._writing_s = 0.0

    def take(self, artifact: Artifact, session: Session) -> None:
        taken_s = self._clock()
        self._pass(session, taken_s)
        point = CoursePoint(
            at_s=self._end_s - session.wall_s / 2,
            seconds=session.wall_s,
            latency_s=statistics.median(session.samples_s),
            executions=len(session.samples_s),
            temperature_celsius=session.temperature_celsius,
            clock_hz=session.clock_hz,
            part=self._part,
            cpu_s=session.cpu_s,
            energy=read_energy(self._bench.transport),
        )
        self.points.append(point)
        self._on_point(point)
        self._writing_s = self._clock() - taken_s
        if settled_latency(self.points).settled or _stretches(self.points)[2] >= self._limit_s:
            raise _Over

    def _pass(self, session: Session, taken_s: float) -> None:
        """Moves the end of the course to that of a session that was taken now."""
        self._end_s += session.load_s + session.first_s + session.wall_s
        if self._origin_s is None:
            self._origin_s = taken_s - self._end_s
        unseen_s = taken_s - self._origin_s - self._end_s
        # A session that came while the last one was written down waited here, and the device went on.
        if unseen_s - self._writing_s > PAUSE_S:
            self._part += 1
        self._end_s += max(0.0, unseen_s)


def settled_latency(points: Sequence[CoursePoint]) -> SettledLatency:
    """The latency at the end of a course, and whether it has settled: by the points since the last interruption.

    Raises:
        CheckFailed: There is no point.
    """
    if not points:
        raise CheckFailed("no window of the course was measured; run the command again")
    before, last, elapsed = _stretches(points)
    if _tells_heat(before, last):
        steady, change = _steady(before, last), 0.0
    else:
        steady, change = _steady_by_latency(points)
    used = settled_points(points)
    latency, half = _mean([point.latency_s for point in used])
    half = math.hypot(half, WANDER * latency) + change * latency
    seconds = sum(point.seconds for point in used)
    return SettledLatency(latency, max(latency - half, 0.0), latency + half, seconds, steady and elapsed >= LEAST_S)


def settled_points(points: Sequence[CoursePoint]) -> tuple[CoursePoint, ...]:
    """The points that ``settled_latency`` looks at: both stretches, or the last one where no temperature is told."""
    before, last, _ = _stretches(points)
    if _tells_heat(before, last):
        return (*before, *last)
    return tuple(_stretches(points, LONG_STRETCH_SHARE)[1])


def _stretches(
    points: Sequence[CoursePoint], share: float = STRETCH_SHARE
) -> tuple[list[CoursePoint], list[CoursePoint], float]:
    """The two stretches at the end of the last part, and how long this part is."""
    current = [point for point in points if point.part == points[-1].part]
    start = current[0].at_s - current[0].seconds / 2
    elapsed = current[-1].at_s + current[-1].seconds / 2 - start
    stretch = max(STRETCH_S, share * elapsed, current[-1].seconds)
    last = [point for point in current if point.at_s > start + elapsed - stretch] or current[-1:]
    before = [point for point in current if start + elapsed - 2 * stretch < point.at_s <= start + elapsed - stretch]
    return before, last, elapsed


def _tells_heat(before: Sequence[CoursePoint], last: Sequence[CoursePoint]) -> bool:
    return bool(_temperatures(before) and _temperatures(last))


def _temperatures(points: Sequence[CoursePoint]) -> list[float]:
    return [point.temperature_celsius for point in points if point.temperature_celsius]


def _steady(before: Sequence[CoursePoint], last: Sequence[CoursePoint]) -> bool:
    """Whether two stretches are alike by latency and by temperature."""
    if not _enough(before, last):
        return False
    change, noise = _change(before, last), _noise(before, last)
    heat = statistics.fmean(_temperatures(last)) - statistics.fmean(_temperatures(before))
    return abs(change) <= max(CHANGE, noise) and noise <= NOISE and abs(heat) <= DEGREES


def _steady_by_latency(points: Sequence[CoursePoint]) -> tuple[bool, float]:
    """Whether the latency no longer changes, and the largest change from stretch to stretch.

    The change is looked at after each window of the last stretch: the latest one and their mean have to be small, since
    one small change may be luck. Noise excuses nothing: a rise within a stretch looks like noise.
    """
    last = _stretches(points, LONG_STRETCH_SHARE)[1]
    ends = range(len(points) - len(last) + 1, len(points) + 1)
    pairs = [_stretches(points[:end], LONG_STRETCH_SHARE)[:2] for end in ends]
    if not _enough(*pairs[-1]):
        return False, 0.0
    changes = [_change(*pair) for pair in pairs if _enough(*pair)]
    largest = max(map(abs, changes))
    if len(changes) < len(pairs) or max(abs(changes[-1]), abs(statistics.fmean(changes))) > CHANGE:
        return False, largest
    return _noise(*pairs[-1]) <= NOISE, largest


def _enough(before: Sequence[CoursePoint], last: Sequence[CoursePoint]) -> bool:
    return min(len(before), len(last)) >= BATCHES // 2


def _change(before: Sequence[CoursePoint], last: Sequence[CoursePoint]) -> float:
    """Of the mean latency from one stretch to the next, relative."""
    old, new = (statistics.fmean(point.latency_s for point in some) for some in (before, last))
    return new / old - 1


def _noise(before: Sequence[CoursePoint], last: Sequence[CoursePoint]) -> float:
    """Twice the standard error of the change, were windows independent."""
    latencies = [[point.latency_s for point in some] for some in (before, last)]
    errors = [statistics.stdev(times) / math.sqrt(len(times)) for times in latencies]
    return 2 * math.hypot(*errors) / statistics.fmean(latencies[0])


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width of its 95 % interval, from the means of consecutive parts."""
    count = min(BATCHES, len(values))
    edges = [round(number * len(values) / count) for number in range(count + 1)]
    means = [statistics.fmean(values[a:b]) for a, b in pairwise(edges)]
    if count < 2:
        return means[0], means[0]  # nothing is known of its spread
    return statistics.fmean(values), student_t95(count - 1) * statistics.stdev(means) / math.sqrt(count)
