"""``hwbench.bench_engines``: one network in every engine that is there, in turn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hwbench.api.bench import BenchResult, advice_for, stats_of, tell_missing_samples, undisturbed_before
from hwbench.api.bench_model import bench_model, model_file
from hwbench.api.bench_request import ALL, BenchRequest, timing_of
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.errors import CheckFailed, HwbenchError, InvalidValue
from hwbench.printable import counted
from hwbench.units import format_duration

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from hwbench.devices import Device
    from hwbench.specs import Precision, Session
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class EngineTime:
    """One engine.

    Attributes:
        result: As of this engine alone.
        ratio: Its median over that of the fastest engine.
        noise: Whether chance alone explains the difference from the fastest: the interval of the mean logarithm of the
            ratio has 0 in it. Its level is 95 % for two engines; for more, the 5 % are divided by the number of engines
            beside the fastest (Bonferroni), which is the fastest by the same sessions. Round by round, since sessions
            of one round are of the same minute, where at least two rounds count in both; rounds with a session that
            does not count in one of them are left out.
    """

    result: BenchResult
    ratio: float
    noise: bool

    def to_json(self) -> dict[str, Any]:
        """The keys of one engine in ``hwbench bench --runtime all --json``."""
        return {**self.result.to_json(), "ratio": round(self.ratio, 4), "noise": self.noise}


@dataclass(frozen=True)
class EngineFailure:
    """An engine that gave no time, and why."""

    runtime: str
    reason: str


@dataclass(frozen=True)
class BenchEnginesResult:
    """What came of measuring a network in every engine: the fastest first, and those that are left out."""

    model: str
    engines: tuple[EngineTime, ...]
    left_out: tuple[EngineFailure, ...]

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench bench --runtime all --json`` prints."""
        first = self.engines[0].result.to_json()
        return {
            "model": self.model,
            **{key: first[key] for key in ("device", "precision", "threads", "cache", "emulated")},
            "engines": [engine.to_json() for engine in self.engines],
            "left_out": [{"runtime": one.runtime, "reason": one.reason} for one in self.left_out],
        }

    def to_frame(self) -> pd.DataFrame:
        """A row an engine, the fastest first: the keys of ``engines``."""
        import pandas as pd

        return pd.DataFrame([engine.to_json() for engine in self.engines])


class _OfEngine(Listener):
    """Says of each line which engine it is about."""

    def __init__(self, listener: Listener, runtime: str) -> None:
        self._listener, self._runtime = listener, runtime

    def say(self, message: str) -> None:
        self._listener.say(f"{self._runtime}: {message}")


def bench_engines(
    request: BenchRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> BenchEnginesResult:
    """Builds a network for every engine that is there and measures the files in turn. Nothing is stored.

    Args:
        request: The network by name, the device and the protocol; its ``runtime`` is not looked at.
        listener: Hears what takes long, and what is not as it should be.
        workspace: Holds devices, studies and the build cache; default: the one around the current folder.

    Raises:
        InvalidValue: A file was given, which is of one engine, or the device does not compute in the precision or has
            fewer cores than ``threads``; said before anything is built.
        UnknownName: No such device or network.
        DeviceError: The device does not answer.
        CheckFailed: No engine builds and runs it; says why of each.
    """
    from hwbench.devices import load_device, probe_device
    from hwbench.measure.bench import processors_for
    from hwbench.measure.interleaved import measure_interleaved
    from hwbench.specs import Outcome, Precision
    from hwbench.workspace import Workspace

    precision = Precision.parse(request.precision or Precision.FP32.value)
    if model_file(request.model) is not None:
        raise InvalidValue(
            f"{request.model} is a file for one engine; --runtime {ALL} takes a name such as zoo:x3d-xs, and leave "
            "--runtime out to measure the file"
        )
    workspace = Workspace.at(workspace)
    device = load_device(workspace, request.device)
    with device.transport(listener.say) as transport:  # what is refused is better known before anything is built
        processors_for(device, probe_device(transport), request.threads, (precision,))
    able, left_out = engines_for(device, precision, streaming=request.streaming)
    artifacts = []
    for runtime in able:
        try:
            artifacts.append(bench_model(workspace, replace(request, runtime=runtime), None, listener).artifact)
        except CheckFailed as error:  # of this engine; a wrong name is the request's fault and passes through
            left_out.append(EngineFailure(runtime, str(error)))
    measured = measure_interleaved(
        artifacts,
        device,
        cache_dir=workspace.cache,
        threads=request.threads,
        timing=timing_of(request),
        undisturbed=undisturbed_before(workspace),
        on_session=lambda done, most: listener.progress(StageProgress("measure", done, most)),
        report=listener.say,
    )
    results = []
    for artifact, one in zip(artifacts, measured, strict=True):
        if one.outcome in (Outcome.OK, Outcome.NOISY):
            engine = _OfEngine(listener, artifact.runtime)
            stats = stats_of(one, artifact, listener=engine)
            tell_missing_samples(stats, one, request.samples, engine)
            results.append(BenchResult(request.model, precision.value, stats, one))
        else:
            advice = f"; {advice_for(one)}" if one.outcome is Outcome.TIMEOUT else ""
            reason = f"{one.outcome}: {one.reason}{_until_then(one.sessions)}{advice}"
            left_out.append(EngineFailure(artifact.runtime, reason))
    if not results:
        reasons = "; ".join(f"{one.runtime}: {one.reason}" for one in left_out)
        raise CheckFailed(f"no engine runs {request.model} in {precision}: {reasons}")
    return BenchEnginesResult(request.model, ranked(results), tuple(left_out))


def _until_then(sessions: Sequence[Session]) -> str:
    """What the sessions before a failure took, which are too few for a latency; empty where there are none."""
    if not sessions:
        return ""
    took = format_duration(statistics.median(session.median_s for session in sessions))
    return f", after {counted(len(sessions), 'session')} of {took} (median)"


def engines_for(
    device: Device, precision: Precision, *, streaming: bool = False
) -> tuple[list[str], list[EngineFailure]]:
    """The runtimes that are installed, build what is asked for and run on the device; and the others, with why.

    Args:
        device: Where to measure.
        precision: What they must build.
        streaming: Whether they must build streams.
    """
    from hwbench.measure.carried import check_runtime
    from hwbench.runtimes import get, names, without_choice
    from hwbench.runtimes.base import version_of

    able, left_out = [], []
    for name in names():
        try:
            runtime = get(name)
            runtime.require_precision(precision)
            if streaming:
                runtime.require_streams()
            check_runtime(device, name)
            version_of(runtime)
            able.append(name)
        except HwbenchError as error:
            left_out.append(EngineFailure(name, without_choice(error)))
    return able, left_out


def ranked(results: Sequence[BenchResult]) -> tuple[EngineTime, ...]:
    """The fastest first, each held against it."""
    ordered = sorted(results, key=lambda result: result.stats.median_s)
    first, *others = ordered
    return (
        EngineTime(first, 1.0, noise=False),
        *(
            EngineTime(
                one,
                one.stats.median_s / first.stats.median_s,
                not differ(one.measurement.sessions, first.measurement.sessions, len(others)),
            )
            for one in others
        ),
    )


def differ(these: Sequence[Session], those: Sequence[Session], comparisons: int = 1) -> bool:
    """Whether two engines differ by more than chance, by their session medians; see ``EngineTime.noise``.

    Args:
        these: Sessions of one engine.
        those: Sessions of the other one.
        comparisons: How many engines are held against the same one: it is known as the fastest by the same sessions.
    """
    from hwbench.latency.uncertainty import student_t

    probability = 1 - 0.05 / 2 / comparisons
    changes = _changes_by_round(these, those)
    if len(changes) >= 2:
        error = statistics.stdev(changes) / math.sqrt(len(changes))
        return abs(statistics.fmean(changes)) > student_t(probability, len(changes) - 1) * error
    left, right = ([math.log(session.median_s) for session in some] for some in (these, those))
    if min(len(left), len(right)) < 2:
        return False
    squares = [statistics.variance(some) / len(some) for some in (left, right)]
    quantile = student_t(probability, min(len(left), len(right)) - 1)
    return abs(statistics.fmean(left) - statistics.fmean(right)) > quantile * math.sqrt(sum(squares))


def _changes_by_round(these: Sequence[Session], those: Sequence[Session]) -> list[float]:
    """Logarithm of the ratio of the session medians in each round that both have."""
    by_round = {session.round: session.median_s for session in those if session.round is not None}
    return [math.log(session.median_s / by_round[session.round]) for session in these if session.round in by_round]
