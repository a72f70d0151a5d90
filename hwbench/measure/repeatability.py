"""A/A test: one file measured as if it were two. What then differs is the error of the way of measuring."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hwbench.devices import Conditions, Device
from hwbench.errors import CheckFailed
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.measure.on_device import SENTINEL
from hwbench.measure.runner import Bench, measure_sessions, open_bench
from hwbench.specs import Artifact, Session, Timing
from hwbench.specs.timing import student_t95

# Pairs of sessions; with 8 the interval is 2.4 standard errors wide on either side, which 3 more would make 2.2.
PAIRS = 8
# A device on which the same file differs by more than this from itself does not tell two files apart by 1 %.
ALLOWED = 0.01


@dataclass(frozen=True)
class Repeatability:
    """What an A/A test found.

    ``difference`` is that of the second from the first, relative (0.01: the second is 1 % slower), with its 95 %
    interval ``low`` to ``high``; ``median_s`` is the median of all session medians.
    """

    difference: float
    low: float
    high: float
    pairs: int
    median_s: float

    @property
    def ok(self) -> bool:
        """The difference is within 1 %, and so is the interval: that is what is claimed of latencies."""
        return max(abs(self.difference), abs(self.low), abs(self.high)) <= ALLOWED

    @classmethod
    def of(cls, first: Sequence[Session], second: Sequence[Session]) -> Repeatability:
        """Compares sessions pair by pair: the two of a round were taken one after the other.

        The difference is the mean of the logarithms of the ratios of session medians, its interval Student's t.

        Raises:
            CheckFailed: There are less than two pairs.
        """
        ratios = [math.log(b.median_s / a.median_s) for a, b in zip(first, second, strict=False)]
        if len(ratios) < 2:
            raise CheckFailed(f"A/A test: expected at least 2 pairs of sessions, got {len(ratios)}")
        centre = statistics.fmean(ratios)
        half = student_t95(len(ratios) - 1) * statistics.stdev(ratios) / math.sqrt(len(ratios))
        median = statistics.median(session.median_s for session in (*first, *second))
        return cls(math.expm1(centre), math.expm1(centre - half), math.expm1(centre + half), len(ratios), median)

    def __str__(self) -> str:
        interval = f"{100 * self.low:+.2f} % to {100 * self.high:+.2f} %"
        times = f"{self.pairs} pairs of sessions, median {1e3 * self.median_s:.3g} ms"
        return f"the same file twice differs by {100 * self.difference:+.2f} % (95 %: {interval}; {times})"


def compare_with_itself(
    artifact: Artifact, *, bench: Bench, pairs: int = PAIRS, timing: Timing | None = None, seed: int = 0
) -> Repeatability:
    """Measures a file as if it were two, in interleaved rounds of random order.

    Args:
        artifact: The file.
        bench: Where and with what.
        pairs: Number of rounds, each with a session of either.
        timing: Protocol of a session; its stop rule does not count.
        seed: Of the orders.

    Raises:
        CheckFailed: The file gave no sessions; says why.
        DeviceError: The device went away.
    """
    twins = [replace(artifact), replace(artifact)]  # told apart by being two objects
    found: list[list[Session]] = [[], []]

    def keep(visited: Artifact, session: Session) -> None:
        found[0 if visited is twins[0] else 1].append(session)

    failures = measure_sessions(twins, rounds=pairs, seed=seed, on_session=keep, bench=bench, timing=timing or Timing())
    if failures:
        raise CheckFailed(f"A/A test: {failures[0].outcome}: {failures[0].reason}")
    return Repeatability.of(*found)


def check_repeatability(
    device: Device,
    *,
    cache_dir: Path,
    runtime: str = "executorch",
    pairs: int = PAIRS,
    threads: int | None = None,
    conditions: Conditions | None = None,
    timing: Timing | None = None,
    report: Callable[[str], None] | None = None,
) -> Repeatability:
    """The A/A test of a device, with the reference workload that also watches over campaigns; arguments as there.

    Raises:
        CheckFailed: The reference workload does not build or does not run there.
        DeviceError: The device does not answer.
    """
    with Builder(runtime, cache_dir, processes=1) as builder:
        (built,) = builder.build([SENTINEL])
    if isinstance(built, BuildFailure):
        raise CheckFailed(f"the reference workload {SENTINEL.key} does not build: {built.reason}; see: hwbench doctor")
    with open_bench(
        device, runtime, cache_dir=cache_dir, threads=threads, conditions=conditions, report=report
    ) as bench:
        return compare_with_itself(built, bench=bench, pairs=pairs, timing=timing)
