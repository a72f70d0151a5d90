"""``hwbench.bench``: the latency of one file, or of one network, on a device, now."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.bench_model import BenchModel, bench_model, model_file, runtime_of
from hwbench.api.bench_request import ALL, DEFAULT_RUNTIME, ROUNDS, BenchRequest, longer_visits, timing_of
from hwbench.api.bench_sustained import course_to_json, refuse_emulated, sustain
from hwbench.api.listener import SILENT, Listener
from hwbench.errors import CheckFailed, HwbenchError, InvalidFile, InvalidValue
from hwbench.units import format_duration, milliseconds

if TYPE_CHECKING:
    import pandas as pd

    from hwbench.devices import Device
    from hwbench.measure.drift import Undisturbed
    from hwbench.measure.file_profile import FileProfile
    from hwbench.measure.sustained_log import SustainedCourse
    from hwbench.specs import Artifact, LatencyStats, Measurement, Session
    from hwbench.workspace import Workspace

# Operations that account for less than this share of a latency are worth a word.
_ACCOUNTED = 0.9


@dataclass(frozen=True)
class BenchResult:
    """What came of measuring a model, in seconds; ``precision`` is None where a file does not tell it.

    ``profile`` is what is inside, and ``sustained`` how the latency went on for minutes, where that was asked for.
    """

    model: str
    precision: str | None
    stats: LatencyStats
    measurement: Measurement
    profile: FileProfile | None = None
    sustained: SustainedCourse | None = None

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench bench --json`` prints."""
        target, stats = self.measurement.target, self.stats
        return {
            "model": self.model,
            "device": target.device,
            "runtime": target.runtime,
            "version": target.version,
            "precision": self.precision,
            "threads": target.threads,
            "cache": str(self.measurement.timing.cache),
            "median_ms": milliseconds(stats.median_s),
            "p90_ms": milliseconds(stats.p90_s),
            "ci95_ms": [milliseconds(stats.ci_low_s), milliseconds(stats.ci_high_s)],
            "samples": stats.num_samples,
            "emulated": self.measurement.emulated,
            "load_ms": self._middle("load_s"),
            "first_ms": self._middle("first_s"),
            "peak_memory_bytes": max(one.peak_memory_bytes for one in self.measurement.sessions) or None,
            **self._looks(),
        }

    def _looks(self) -> dict[str, Any]:
        """What was asked for beside the latency."""
        found: dict[str, Any] = {}
        if self.profile is not None:
            from hwbench.measure.profile_groups import profile_to_json

            on_the_wall = not sessions_by_processor_time(self.measurement)
            found["profile"] = profile_to_json(self.profile, self.stats.median_s if on_the_wall else None)
        if self.sustained is not None:
            found["sustained"] = course_to_json(self.sustained)
        return found

    def _middle(self, name: str) -> float | None:
        """Median over the sessions that tell a time, in milliseconds."""
        known = [value for one in self.measurement.sessions if (value := getattr(one, name))]
        return milliseconds(statistics.median(known)) if known else None

    def to_frame(self) -> pd.DataFrame:
        """One row a sample: ``session``, ``sample``, ``latency_s`` as it was read, and the ``drift`` of the session.

        The latency over the drift is what ``stats`` sums up.
        """
        import pandas as pd

        rows = [
            (session, sample, latency_s, taken.drift)
            for session, taken in enumerate(self.measurement.sessions)
            for sample, latency_s in enumerate(taken.samples_s)
        ]
        return pd.DataFrame(rows, columns=["session", "sample", "latency_s", "drift"])


def bench(
    request: BenchRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> BenchResult:
    """Measures one file or one network on a device, and stores nothing but the course of ``sustained``.

    ``bench_engines`` takes ``runtime="all"``.

    Args:
        request: The model, the device and the protocol.
        listener: Hears what takes long, and what is not as it should be.
        workspace: Holds devices, studies and the build cache; default: the one around the current folder.

    Raises:
        UnknownName: No such device, runtime or network.
        InvalidFile: The file is none that runs.
        InvalidValue: ``runtime`` is ``all``, or the device runs no files of the runtime, does not compute in the
            precision or has fewer cores than ``threads``; of a network by name said before it is built.
        UnsupportedModule: ``profile`` with a runtime that tells no times of operations.
        DeviceError: The device does not answer.
        CheckFailed: A network does not build, or does not run in time.
        WorkspaceError: Nothing can be written in the folder of ``trace``; asked before anything is built.
    """
    from hwbench.devices import load_device, probe_device
    from hwbench.measure.bench import processors_for
    from hwbench.measure.carried import check_runtime
    from hwbench.measure.on_device import measure_artifact
    from hwbench.runtimes import get
    from hwbench.specs import Precision
    from hwbench.workspace import Workspace, check_writable

    if request.runtime == ALL:
        raise InvalidValue(
            "runtime: all engines are measured by hwbench.bench_engines, which returns one result of each"
        )
    timing, workspace = timing_of(request), Workspace.at(workspace)
    if request.trace is not None:
        from hwbench.reports.bench import PAGE

        check_writable(request.trace / PAGE)
    device = load_device(workspace, request.device)
    path = model_file(request.model)
    if request.streaming and path is not None:
        raise InvalidValue(f"--streaming is for networks by name; {path} is timed as what it is, leave it out")
    if request.classes is not None and path is not None:
        raise InvalidValue(f"--classes is for networks by name; the head of {path} is in the file, leave it out")
    if request.sustained is not None:
        refuse_emulated(device)
    runtime = runtime_of(request, path)
    if request.profile:
        get(runtime).require_profile(path)
    check_runtime(device, runtime, of_file=path is not None)
    precision = Precision.parse(request.precision or Precision.FP32.value)
    with device.transport(listener.say) as transport:  # what is refused is better known before anything is built
        if path is None:
            processors_for(device, probe_device(transport), request.threads, (precision,))
    model = bench_model(workspace, request, path, listener)
    measured = measure_artifact(
        model.artifact,
        device,
        cache_dir=workspace.cache,
        threads=request.threads,
        timing=timing,
        undisturbed=undisturbed_before(workspace),
        report=listener.say,
    )
    stats = stats_of(measured, model.artifact, from_user=model.from_user, listener=listener)
    tell_missing_samples(stats, measured, request.samples, listener)
    result = BenchResult(request.model, model.precision, stats, measured)
    if request.profile:
        result = replace(result, profile=_profiled(request, workspace, device, model, result, listener))
    if request.sustained_s is not None:
        result = replace(result, sustained=_sustained(request, workspace, device, model, result, listener))
    if request.trace is not None:
        _write_trace(request.trace, result, listener)
    return result


def _profiled(
    request: BenchRequest,
    workspace: Workspace,
    device: Device,
    model: BenchModel,
    untraced: BenchResult,
    listener: Listener,
) -> FileProfile:
    """The operations of a file, over as many executions and seconds as the latency without a tracer."""
    from hwbench.measure.file_profile import keeps_modules, profile_artifact

    each = timing_of(request)
    timing = replace(
        each,
        min_samples=request.samples,
        min_session_s=request.seconds,
        max_session_s=max(each.max_session_s, 2 * request.seconds),
        timeout_s=each.timeout_s + 4 * request.seconds,
    )
    artifact = model.artifact
    profile = profile_artifact(
        artifact,
        device,
        cache_dir=workspace.cache,
        threads=request.threads,
        timing=timing,
        report=listener.say,
    )
    if not model.from_user and not keeps_modules(artifact.path):
        reason = f"the {artifact.runtime} runtime does not tell which module an operation comes from"
        profile = replace(profile, unattributed=f"{reason}; --runtime {DEFAULT_RUNTIME} does")
    if profile.unattributed:
        listener.say(f"no times by block: {profile.unattributed}")
    if remainder := _remainder(profile, untraced):
        listener.say(remainder)
    return profile


def _remainder(profile: FileProfile, untraced: BenchResult) -> str:
    """What there is to say of the latency that is not in operations; an empty text where they are nearly all of it."""
    median_s = untraced.stats.median_s
    if sessions_by_processor_time(untraced.measurement):
        return (
            "the latency counts by processor time and the operations by the clock on the wall: what is not in "
            "operations is not known"
        )
    if profile.operations_s > median_s:
        return (
            f"the tracer slows the operations: together they take {format_duration(profile.operations_s)}, the network "
            f"without it {format_duration(median_s)}; what is not in operations is not known"
        )
    if profile.operations_s < _ACCOUNTED * median_s:
        return (
            f"the operations account for {profile.operations_s / median_s:.0%} of the latency: the rest is what other "
            "programs took of the processor, calls between operations, and parts of a microsecond in each"
        )
    return ""


def _sustained(
    request: BenchRequest,
    workspace: Workspace,
    device: Device,
    model: BenchModel,
    cool: BenchResult,
    listener: Listener,
) -> SustainedCourse:
    """The course of a file, beginning where its latency was measured."""
    from hwbench.measure.sustained_log import CourseFacts

    if model.told_precision is None:
        listener.say("search --sustained does not use this course, since the file does not tell its precision")
    facts = CourseFacts.of(
        device, cool.measurement, request.model, model.artifact.sha256, model.told_precision, cool.stats
    )
    assert request.sustained_s is not None
    return sustain(
        workspace,
        device,
        model.artifact,
        facts,
        limit_s=request.sustained_s,
        threads=request.threads,
        listener=listener,
    )


def _write_trace(folder: Path, result: BenchResult, listener: Listener) -> None:
    """What ``--trace`` asks for."""
    from hwbench.reports.bench import write_bench
    from hwbench.reports.traces import write_traces

    facts = without_lists(result.to_json())
    remainder = "" if result.profile is None else _remainder(result.profile, result)
    written = [write_bench(folder, facts, result.stats.median_s, result.profile, result.sustained, remainder)]
    if result.profile is not None:
        written += write_traces(result.profile, folder, Path(result.model).name, facts)
    listener.say(f"written: {', '.join(str(path) for path in written)}")


def without_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of an answer."""
    return {key: value for key, value in values.items() if not isinstance(value, Mapping | list)}


def undisturbed_before(workspace: Workspace) -> Callable[[Mapping[str, str], str], Undisturbed]:
    """What profiles of the workspace know of core and memory that nothing else uses, by conditions and runner build."""

    def known(conditions: Mapping[str, str], runner_build: str) -> Undisturbed:
        from hwbench.measure.drift import Undisturbed
        from hwbench.measure.store import MeasurementStore

        if not workspace.store.is_file():
            return Undisturbed()
        try:
            with MeasurementStore(workspace.store) as store:
                return store.undisturbed(conditions, runner_build)
        except HwbenchError:  # one file can be timed without a store, and beside a damaged one
            return Undisturbed()

    return known


def stats_of(
    measured: Measurement, artifact: Artifact, *, from_user: bool = False, listener: Listener = SILENT
) -> LatencyStats:
    """The latency of a file, in seconds; the listener is told of a noisy machine.

    Raises:
        InvalidFile: The user's file does not load or run.
        CheckFailed: It took too long, or what was built here does not run.
    """
    from hwbench.specs import LatencyStats, Outcome

    if measured.outcome is Outcome.NOISY:
        listener.say(f"a noisy machine: {measured.reason}")
    elif measured.outcome is not Outcome.OK:
        broken = from_user and measured.outcome in (Outcome.LOAD, Outcome.CRASH)
        text = f"{artifact.path}: {measured.outcome}: {measured.reason}"
        raise InvalidFile(f"{text}; export it again") if broken else CheckFailed(f"{text}; {advice_for(measured)}")
    tell_preempted_sessions(measured, listener)
    return LatencyStats.of(measured.sessions)


def advice_for(failed: Measurement) -> str:
    """What to do where a file gave no latency, in words."""
    from hwbench.specs import Outcome

    if failed.outcome is not Outcome.TIMEOUT:
        return "run the command again"
    return (
        "leave the device alone and run the command again, or give a session longer: --seconds "
        f"{longer_visits(failed.timing)}"
    )


def sessions_by_processor_time(measured: Measurement) -> int:
    """How many of the sessions count by processor time, which leaves out the waiting for the core."""
    return sum(session.by_processor_time for session in measured.sessions)


def tell_preempted_sessions(measured: Measurement, listener: Listener) -> None:
    """Says by which clock the sessions count that were preempted; under emulation no session is a latency."""
    if measured.emulated:
        return
    on_the_wall = sum(session.preempted and not session.by_processor_time for session in measured.sessions)
    parts = _parts_of_processor_time(measured)
    told = "other programs kept taking the core: {} of " + f"{len(measured.sessions)} sessions count by "
    if on_the_processor := sessions_by_processor_time(measured):
        more = (
            f"which is that of {parts}: an upper bound"
            if parts
            else "which is some per cent more than a free core takes"
        )
        listener.say(f"{told.format(on_the_processor)}processor time, {more}")
    if on_the_wall:
        why = f", since their processor time is that of {parts}" if parts else ""
        listener.say(
            f"{told.format(on_the_wall)}the clock on the wall, waiting included{why}: the latency is an upper bound"
        )


def _parts_of_processor_time(measured: Measurement) -> str:
    """What the processor time of a sample is made of where it is more than the sample on a free core; else empty."""
    from hwbench.specs import CacheState

    threads = "all threads together" if measured.target.threads > 1 else ""
    emptying = "sample and emptying the caches" if measured.timing.cache is CacheState.FLUSH else ""
    return " and of ".join(part for part in (threads, emptying) if part)


def tell_missing_samples(stats: LatencyStats, measured: Measurement, samples: int, listener: Listener) -> None:
    """Says where there are fewer samples than were asked for, and why; under emulation two are enough."""
    if stats.num_samples >= samples or measured.emulated:
        return
    timing = measured.timing
    short = [session for session in measured.sessions if ROUNDS * len(session.samples_s) < samples]
    crowded = [session for session in short if session.disturbed and _visit_s(session) < timing.max_session_s]
    ended = [session for session in short if not session.disturbed or _visit_s(session) >= timing.max_session_s]
    each_s = max((_visit_s(session) / len(session.samples_s) for session in ended), default=0.0)
    longer = math.ceil(samples * each_s)
    reasons = []
    if discarded := sum(session.disturbed for session in crowded):
        reasons.append(
            f"{discarded} more were thrown away, since other programs shared the core meanwhile; leave the device "
            "alone and run the command again"
        )
    if longer > ROUNDS * timing.min_session_s:
        reasons.append(
            f"a session ends after {format_duration(timing.max_session_s)}; --seconds {longer} is long enough"
        )
    for reason in reasons or ["run the command again"]:
        listener.say(f"{stats.num_samples} samples, {samples} were asked for: {reason}")


def _visit_s(session: Session) -> float:
    """How long samples were taken, in seconds on the wall; a device that tells no such time has that of its samples."""
    return max(session.wall_s, sum(session.samples_s))
