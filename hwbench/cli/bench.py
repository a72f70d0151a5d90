"""``hwbench bench``: the latency of one file, or of one network, on a device, now."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, say
from hwbench.documents import read_json
from hwbench.errors import CheckFailed, HwbenchError, InvalidFile, InvalidValue
from hwbench.units import milliseconds

if TYPE_CHECKING:
    from hwbench.measure.drift import Undisturbed
    from hwbench.specs import Artifact, CacheState, LatencyStats, Measurement, Timing
    from hwbench.workspace import Workspace

# Several short sessions say more than a long one: most of the spread is between sessions.
ROUNDS, MAX_ROUNDS = 5, 10
# Where the files of a runtime have letters of their own, and which: the FlatBuffers identifier of an ExecuTorch program
# ("ETxx"), the start of an archive. ONNX has none.
_MAGIC = {
    "executorch": ("an ExecuTorch program", slice(4, 6), b"ET"),
    "torchscript": ("a TorchScript archive", slice(0, 2), b"PK"),
}
DEFAULT_RUNTIME = "executorch"


@app.command()
def bench(
    model: Annotated[
        str, typer.Argument(help="A .pte, .onnx or .ts file, zoo:NAME, STUDY:best, or a printed architecture.")
    ],
    device: Annotated[str, typer.Option(help="Device: a folder of profiles/.")] = "local",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the measured process.")] = 1,
    runtime: Annotated[
        str | None,
        typer.Option(help="executorch (default), onnx, torch or torchscript; of a file it is known."),
    ] = None,
    precision: Annotated[str | None, typer.Option(help="fp32 or int8; of a file it is known.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="At least so many samples.")] = 50,
    seconds: Annotated[float, typer.Option(min=0.0, help="At least so many seconds of samples.")] = 1.5,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of the head of an architecture.")] = None,
    cache: Annotated[
        str,
        typer.Option(
            help="Caches of the processor before each sample: warm as in a loop, rotate (copies take turns), flush."
        ),
    ] = "warm",
    as_json: Json = False,
) -> None:
    """Measure one model on a device: median, 90th percentile, and the 95 % interval of the median.

    A network that is given by name is built with random weights. Nothing is stored.
    """
    from hwbench.devices import load_device
    from hwbench.measure.on_device import measure_artifact
    from hwbench.workspace import Workspace

    timing = replace(session_timing(samples, seconds), cache=parse_cache(cache))
    workspace = Workspace.find()
    place = load_device(workspace, device)
    path = _file(model)
    with place.transport(say):
        pass  # a device that does not answer is better known before anything is built
    if path is not None:
        artifact, precision = artifact_of(path, runtime, precision)
    else:
        artifact, precision = _built(workspace, model, runtime or DEFAULT_RUNTIME, precision or "fp32", classes)
    measured = measure_artifact(
        artifact,
        place,
        cache_dir=workspace.cache,
        threads=threads,
        timing=timing,
        undisturbed=undisturbed_before(workspace),
        report=say,
    )
    values = {"model": model} | _values(measured, artifact, precision, from_user=path is not None)
    if not as_json:
        values["ci95_ms"] = " - ".join(f"{bound:.4g}" for bound in values["ci95_ms"])
    emit(values, as_json=as_json)


def parse_cache(text: str) -> CacheState:
    """Reads ``warm``, ``rotate`` or ``flush``.

    Raises:
        InvalidValue: Something else.
    """
    from hwbench.specs import CacheState

    if text not in tuple(CacheState):
        raise InvalidValue(f"--cache: expected {', '.join(CacheState)}, got {text!r}")
    return CacheState(text)


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


def _file(model: str) -> Path | None:
    """The file that is meant, or None where a name is; a folder means the model of the export in it."""
    from hwbench.runtimes import INTERNAL, of_file

    path = Path(model)
    if path.is_dir():
        models = [p for p in sorted(path.glob("model.*")) if of_file(p)]
        # What ``check_given`` refuses is taken only where there is nothing else, so that it says why.
        path = min(models, key=lambda p: of_file(p) in INTERNAL, default=path / "model.pte")
    if path.is_file():
        return path
    if of_file(path):
        raise InvalidFile(f"no file {model}; make one: hwbench export CHECKPOINT --out DIR")
    return None


def artifact_of(path: Path, runtime: str | None, precision: str | None) -> tuple[Artifact, str | None]:
    """A file as something to time, with its precision where the manifest beside it tells one."""
    from hwbench.measure.cache import engine_version, file_sha256
    from hwbench.runtimes import check_given, get, of_file
    from hwbench.specs import Artifact, BlockSpec, DelegationReport, Precision, TensorSpec, Workload

    if precision is not None:
        precision = Precision.parse(precision).value
    if runtime is not None:
        get(runtime)
    engine = of_file(path)
    if engine is None:
        raise InvalidFile(f"{path}: expected a file that ends in .pte, .onnx or .ts; make one: hwbench export")
    check_given(engine, path)
    if runtime not in (None, engine):
        raise InvalidValue(f"{path} is a file for {engine}; --runtime {runtime} takes a name such as zoo:x3d-xs")
    what, where, letters = _MAGIC.get(engine, ("", slice(0), b""))
    with path.open("rb") as file:
        magic = file.read(8)[where]
    if magic != letters:
        raise InvalidFile(f"{path}: expected {what}, found something else; export it again")
    sha256 = file_sha256(path)
    known = _manifest(path, sha256)
    if precision is not None and known is not None and precision != known:
        raise InvalidValue(f"{path} is in {known}, not in {precision}; leave --precision out")
    # The file says what is timed; nobody reads this workload.
    unknown = Workload((BlockSpec("file", 1, 1),), TensorSpec(1, 1, 1, 1, 1))
    return Artifact(path, sha256, unknown, engine, engine_version(engine), DelegationReport(0)), known or precision


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


def _built(workspace: Workspace, model: str, runtime: str, precision: str, classes: int | None) -> tuple[Artifact, str]:
    """A network by name, built with random weights through the cache."""
    from hwbench.cli.campaigns import building
    from hwbench.measure.builder import BuildFailure, build_all
    from hwbench.measure.cache import ArtifactCache
    from hwbench.spaces import resolve
    from hwbench.specs import Precision
    from hwbench.specs.network import DEFAULT_CLASSES

    wanted = Precision.parse(precision)
    has_classes = model.strip().startswith("zoo:")
    workload = resolve(workspace, model, classes if has_classes else classes or DEFAULT_CLASSES).workload(wanted)
    with building(model, cached=ArtifactCache(workspace.cache, runtime).load(workload) is not None):
        (result,) = build_all([workload], runtime, workspace.cache, processes=1)
    if isinstance(result, BuildFailure):
        raise CheckFailed(f"{model} in {wanted} does not build for {runtime}: {result.reason}")
    return result, wanted.value


def _values(measured: Measurement, artifact: Artifact, precision: str | None, *, from_user: bool) -> dict[str, Any]:
    """The result as ``--json`` prints it; raises what ``stats_of`` raises."""
    stats = stats_of(measured, artifact, from_user=from_user)
    return {
        "device": measured.target.device,
        "runtime": measured.target.runtime,
        "version": measured.target.version,
        "precision": precision,
        "threads": measured.target.threads,
        "cache": str(measured.timing.cache),
        "median_ms": milliseconds(stats.median_s),
        "p90_ms": milliseconds(stats.p90_s),
        "ci95_ms": [milliseconds(stats.ci_low_s), milliseconds(stats.ci_high_s)],
        "samples": stats.num_samples,
        "emulated": measured.emulated,
    }


def stats_of(measured: Measurement, artifact: Artifact, *, from_user: bool = False) -> LatencyStats:
    """The latency of a file, in seconds; a noisy machine is told.

    Raises:
        InvalidFile: The user's file does not load or run.
        CheckFailed: It took too long, or what was built here does not run.
    """
    from hwbench.specs import LatencyStats, Outcome

    if measured.outcome is Outcome.NOISY:
        say(f"a noisy machine: {measured.reason}")
    elif measured.outcome is not Outcome.OK:
        broken = from_user and measured.outcome in (Outcome.LOAD, Outcome.CRASH)
        text = f"{artifact.path}: {measured.outcome}: {measured.reason}"
        raise InvalidFile(f"{text}; export it again") if broken else CheckFailed(f"{text}; run the command again")
    return LatencyStats.of(measured.sessions)
