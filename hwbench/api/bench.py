"""``hwbench.bench``: the latency of one file, or of one network, on a device, now."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.requests import option, request
from hwbench.documents import read_json
from hwbench.errors import CheckFailed, HwbenchError, InvalidFile, InvalidValue
from hwbench.units import milliseconds

if TYPE_CHECKING:
    import pandas as pd

    from hwbench.measure.drift import Undisturbed
    from hwbench.specs import Artifact, LatencyStats, Measurement, Timing
    from hwbench.workspace import Workspace

# Several short sessions say more than a long one: most of the spread is between sessions.
ROUNDS, MAX_ROUNDS = 5, 10
DEFAULT_RUNTIME = "executorch"
ALL = "all"


@request
class BenchRequest:
    """Measure one model on a device: median, 90th percentile, and the 95 % interval of the median.

    A network that is given by name is built with random weights. Nothing is stored. With --runtime all it is measured
    in every engine that is installed, in turn; ~ says that chance explains the difference from the fastest.
    """

    model: str = option(
        argument=True, help="A .pte, .onnx, .ovz or .ts file, zoo:NAME, STUDY:best, or a printed architecture."
    )
    device: str = option(default="local", help="Device: a folder of profiles/.")
    threads: int = option(default=1, min=1, help="Threads of the measured process.")
    runtime: str | None = option(
        default=None, help="executorch (default), onnx, openvino, torch, torchscript, or all; of a file it is known."
    )
    precision: str | None = option(default=None, help="fp32 (default), fp16, bf16 or int8; of a file it is known.")
    streaming: bool = option(
        default=False, help="Of a network by name: one new frame of a stream, in causal form; of a file it is known."
    )
    samples: int = option(default=50, min=1, help="At least so many samples.")
    seconds: float = option(default=1.5, min=0.0, help="At least so many seconds of samples.")
    classes: int | None = option(default=None, min=1, help="Classes of the head of an architecture.")
    cache: str = option(
        default="warm",
        choices=("warm", "rotate", "flush"),
        help="Caches of the processor before each sample: warm as in a loop, rotate (copies take turns), flush.",
    )


@dataclass(frozen=True)
class BenchResult:
    """What came of measuring a model, in seconds; ``precision`` is None where a file does not tell it."""

    model: str
    precision: str | None
    stats: LatencyStats
    measurement: Measurement

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
        }

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


@dataclass(frozen=True)
class BenchModel:
    """What is measured: a file with its precision, and whether it is the user's own file."""

    artifact: Artifact
    precision: str | None
    from_user: bool


def bench(request: BenchRequest, listener: Listener = SILENT, *, workspace: Workspace | None = None) -> BenchResult:
    """Measures one file or one network on a device. Nothing is stored. ``bench_engines`` takes ``runtime="all"``.

    Args:
        request: The model, the device and the protocol.
        listener: Hears what takes long, and what is not as it should be.
        workspace: Holds devices, studies and the build cache; default: the one around the current folder.

    Raises:
        UnknownName: No such device, runtime or network.
        InvalidFile: The file is none that runs.
        InvalidValue: ``runtime`` is ``all``.
        DeviceError: The device does not answer.
        CheckFailed: A network does not build, or does not run in time.
    """
    from hwbench.devices import load_device
    from hwbench.measure.on_device import measure_artifact
    from hwbench.workspace import Workspace

    if request.runtime == ALL:
        raise InvalidValue(
            "runtime: all engines are measured by hwbench.bench_engines, which returns one result of each"
        )
    timing, workspace = timing_of(request), workspace or Workspace.find()
    device = load_device(workspace, request.device)
    path = model_file(request.model)
    if request.streaming and path is not None:
        raise InvalidValue(f"--streaming is for networks by name; {path} is timed as what it is, leave it out")
    with device.transport(listener.say):
        pass  # a device that does not answer is better known before anything is built
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
    return BenchResult(request.model, model.precision, stats, measured)


def bench_model(workspace: Workspace, request: BenchRequest, path: Path | None, listener: Listener) -> BenchModel:
    """What MODEL stands for: the file at ``path``, or, without one, a network by name, which is built."""
    if path is not None:
        return BenchModel(*artifact_of(path, request.runtime, request.precision), from_user=True)
    return BenchModel(*_built(workspace, request, listener), from_user=False)


def timing_of(request: BenchRequest) -> Timing:
    """The protocol that a request asks for.

    Raises:
        InvalidValue: Not a finite time.
    """
    from hwbench.specs import CacheState

    return replace(session_timing(request.samples, request.seconds), cache=CacheState(request.cache))


def session_timing(samples: int, seconds: float) -> Timing:
    """Spreads samples and seconds over sessions.

    Raises:
        InvalidValue: Not a finite time.
    """
    from hwbench.specs import Timing

    if not math.isfinite(seconds):
        raise InvalidValue(f"--seconds: expected a finite number, got {seconds}")
    each = seconds / ROUNDS
    return Timing(
        min_samples=math.ceil(samples / ROUNDS),
        min_session_s=each,
        max_session_s=max(Timing().max_session_s, 2 * each),
        min_rounds=ROUNDS,
        max_rounds=MAX_ROUNDS,
        timeout_s=max(Timing().timeout_s, 4 * each),
    )


def undisturbed_before(workspace: Workspace) -> Callable[[Mapping[str, str]], Undisturbed]:
    """What profiles of the workspace know of core and memory that nothing else uses, by the conditions asked for."""

    def known(conditions: Mapping[str, str]) -> Undisturbed:
        from hwbench.measure.drift import Undisturbed
        from hwbench.measure.store import MeasurementStore

        if not workspace.store.is_file():
            return Undisturbed()
        try:
            with MeasurementStore(workspace.store) as store:
                return store.undisturbed(conditions)
        except HwbenchError:  # one file can be timed without a store, and beside a damaged one
            return Undisturbed()

    return known


def model_file(model: str) -> Path | None:
    """The file that is meant, or None where a name is; a folder means the model of the export in it."""
    from hwbench.runtimes import exporting, of_file

    path = Path(model)
    if path.is_dir():
        models = [p for p in sorted(path.glob("model.*")) if of_file(p)]
        # What ``check_given`` refuses is taken only where there is nothing else, so that it says why.
        path = min(models, key=lambda p: of_file(p) not in exporting(), default=path / "model.pte")
    if path.is_file():
        return path
    if of_file(path):
        raise InvalidFile(f"no file {model}; make one: hwbench export CHECKPOINT --out DIR")
    return None


def artifact_of(path: Path, runtime: str | None, precision: str | None) -> tuple[Artifact, str | None]:
    """A file as something to time, with its precision where the manifest beside it tells one."""
    from hwbench.measure.cache import engine_version, file_sha256
    from hwbench.runtimes import check_format, check_given, get, of_file, suffixes
    from hwbench.specs import Artifact, BlockSpec, DelegationReport, Precision, TensorSpec, Workload

    if precision is not None:
        precision = Precision.parse(precision).value
    if runtime is not None:
        get(runtime)
    engine = of_file(path)
    if engine is None:
        raise InvalidFile(f"{path}: expected a file that ends in {suffixes()}; make one: hwbench export")
    check_given(engine, path)
    if runtime not in (None, engine):
        raise InvalidValue(f"{path} is a file for {engine}; --runtime {runtime} takes a name such as zoo:x3d-xs")
    check_format(engine, path)
    sha256 = file_sha256(path)
    known = _manifest(path, sha256)
    if precision is not None and known is not None and precision != known:
        raise InvalidValue(f"{path} is in {known}, not in {precision}; leave --precision out")
    precision = known or precision
    # The file says what is timed; of this workload only the precision is looked at.
    assumed = Precision.parse(precision) if precision else Precision.FP32
    unknown = Workload((BlockSpec("file", 1, 1),), TensorSpec(1, 1, 1, 1, 1), assumed)
    return Artifact(path, sha256, unknown, engine, engine_version(engine), DelegationReport(0)), precision


def _manifest(path: Path, sha256: str) -> str | None:
    """The precision that the manifest beside a file tells, where there is one and it is of this file."""
    manifest = path.with_name("manifest.json")
    if not manifest.is_file():
        return None
    try:
        values = read_json(manifest.read_text(encoding="utf-8"))
        described, precision = values["sha256"], values["precision"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(f"{manifest}: does not describe a model: {error!r}; export it again") from None
    if described != sha256:
        if path.stem == "model":
            raise InvalidFile(f"{path} is not the file that {manifest.name} describes (sha256); export it again")
        return None
    return str(precision)


def _built(workspace: Workspace, request: BenchRequest, listener: Listener) -> tuple[Artifact, str]:
    """A network by name, built with random weights through the cache."""
    from hwbench.measure.builder import BuildFailure, build_all
    from hwbench.measure.cache import ArtifactCache
    from hwbench.runtimes import get
    from hwbench.spaces import resolve
    from hwbench.specs import Precision
    from hwbench.specs.network import DEFAULT_CLASSES

    runtime, model, classes = request.runtime or DEFAULT_RUNTIME, request.model, request.classes
    precision = Precision.parse(request.precision or Precision.FP32.value)
    has_classes = model.strip().startswith("zoo:")
    network = resolve(workspace, model, classes if has_classes else classes or DEFAULT_CLASSES)
    workload = network.causal().frame(precision) if request.streaming else network.workload(precision)
    get(runtime).require_form(workload)
    steps = 0 if ArtifactCache(workspace.cache, runtime).load(workload) else 1
    listener.progress(StageProgress("build", 0, steps, note=model))
    (result,) = build_all([workload], runtime, workspace.cache, processes=1)
    listener.progress(StageProgress("build", steps, steps, note=model))
    if isinstance(result, BuildFailure):
        raise CheckFailed(f"{model} in {precision} does not build for {runtime}: {result.reason}")
    return result, precision.value


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
        raise InvalidFile(f"{text}; export it again") if broken else CheckFailed(f"{text}; run the command again")
    return LatencyStats.of(measured.sessions)
