"""A/A test: one file measured as if it were two. What then differs is the error of the way of measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hwbench.devices import Conditions, Device
from hwbench.errors import CheckFailed
from hwbench.measure.bench import Bench, open_bench
from hwbench.measure.builder import Builder
from hwbench.measure.drift import Drift, by_clock, clock_sensitivity
from hwbench.measure.runner import measure_sessions
from hwbench.measure.sentinel import build_sentinel
from hwbench.specs import Artifact, Repeatability, Session, Timing

# Pairs of sessions; with 8 the interval is 2.4 standard errors wide on either side, which 3 more would make 2.2.
PAIRS = 8


def compare_with_itself(
    artifact: Artifact,
    *,
    bench: Bench,
    pairs: int = PAIRS,
    timing: Timing | None = None,
    seed: int = 0,
    drift: Drift | None = None,
) -> Repeatability:
    """Measures a file as if it were two, in interleaved rounds of random order.

    Args:
        artifact: The file.
        bench: Where and with what.
        pairs: Number of rounds, each with a session of either.
        timing: Protocol of a session; its stop rule does not count.
        seed: Of the orders.
        drift: What is known of the clock, and of a core that nothing else uses; default: nothing.

    Raises:
        CheckFailed: The file gave no sessions; says why.
        DeviceError: The device went away.
    """
    known = drift or Drift()
    twins = [replace(artifact), replace(artifact)]  # told apart by being two objects
    found: list[list[Session]] = [[], []]

    def keep(visited: Artifact, session: Session) -> None:
        found[0 if visited is twins[0] else 1].append(session)

    failures = measure_sessions(
        twins, rounds=pairs, seed=seed, on_session=keep, bench=bench, timing=timing or Timing(), drift=known
    )
    if failures:
        raise CheckFailed(f"A/A test: {failures[0].outcome}: {failures[0].reason}")
    follow = drift.clock_sensitivity if drift else clock_sensitivity(found)
    return Repeatability.of(*(_corrected(sessions, known.clock_s, follow) for sessions in found))


def _corrected(sessions: Sequence[Session], clock_s: float, follow: float) -> list[Session]:
    return [replace(s, drift=by_clock(s.probe_s, clock_s, follow)) if s.probe_s else s for s in sessions]


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
        built = build_sentinel(builder)
    with open_bench(
        device, runtime, cache_dir=cache_dir, threads=threads, conditions=conditions, report=report
    ) as bench:
        return compare_with_itself(built, bench=bench, pairs=pairs, timing=timing)
