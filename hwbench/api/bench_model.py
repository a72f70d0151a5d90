"""What MODEL of ``hwbench bench`` stands for: a file of the user, or a network by name, which is built."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.bench_request import DEFAULT_RUNTIME, BenchRequest
from hwbench.api.listener import Listener, StageProgress
from hwbench.documents import read_json
from hwbench.errors import CheckFailed, InvalidFile, InvalidValue

if TYPE_CHECKING:
    from hwbench.specs import Artifact
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class BenchModel:
    """What is measured.

    Attributes:
        artifact: The file.
        precision: What the file tells, else what the user says; None where neither does.
        told_precision: What the file, or the manifest beside it, tells; None where neither does.
        from_user: Whether it is the user's own file.
    """

    artifact: Artifact
    precision: str | None
    told_precision: str | None
    from_user: bool


def bench_model(workspace: Workspace, request: BenchRequest, path: Path | None, listener: Listener) -> BenchModel:
    """What MODEL stands for: the file at ``path``, or, without one, a network by name, which is built."""
    if path is not None:
        artifact, told = artifact_of(path, request.runtime, request.precision)
        said = None if request.precision is None else artifact.workload.precision.value
        return BenchModel(artifact, told or said, told, from_user=True)
    artifact, built = _built(workspace, request, listener)
    return BenchModel(artifact, built, built, from_user=False)


def model_file(model: str) -> Path | None:
    """The file that is meant, or None where a name is; a folder means the model of the export in it, of several models
    the one that its manifest names.

    Raises:
        InvalidFile: There is no such file, or the folder holds no model.
    """
    from hwbench.runtimes import exporting, of_file

    path = Path(model)
    # os.path, and not Path: a printed architecture is longer than the name of a file may be, at which Path raises.
    if os.path.isdir(path):
        models = [p for p in sorted(path.glob("model.*")) if of_file(p) and p.is_file()]
        if not models:
            raise InvalidFile(_no_model_in(path))
        named = _manifest_values(path / "manifest.json").get("runtime")
        # What ``check_given`` refuses is taken only where there is nothing else, so that it says why.
        path = min(models, key=lambda p: (of_file(p) != named, of_file(p) not in exporting()))
    if os.path.isfile(path):
        return path
    if of_file(path) or ("/" in model and ":" not in model):  # no name of a network has one
        kind = "file" if path.suffix else "file or folder"
        raise InvalidFile(f"no {kind} {model}; make one: hwbench export CHECKPOINT --out DIR")
    return None


def _no_model_in(folder: Path) -> str:
    """What is said of a folder without a model; that of a training run holds the checkpoint to make one from."""
    from hwbench.runtimes import exporting, get, in_words

    expected = in_words([f"model{get(name).capabilities.suffix}" for name in exporting()])
    checkpoint = folder / "checkpoint.pt"
    source = shlex.quote(str(checkpoint)) if checkpoint.is_file() else "CHECKPOINT"
    return f"{folder}: the folder holds no model file ({expected}); make one: hwbench export {source} --out DIR"


def runtime_of(request: BenchRequest, path: Path | None) -> str:
    """The runtime that is measured: of a file the one that its ending says, of a network by name the one asked for.

    Raises:
        InvalidFile: The file is none of a runtime.
        InvalidValue: The request names another runtime than that of the file.
    """
    return engine_of(path, request.runtime) if path is not None else request.runtime or DEFAULT_RUNTIME


def engine_of(path: Path, runtime: str | None) -> str:
    """The runtime of a file by its ending.

    Raises:
        UnknownName: ``runtime`` is none.
        InvalidFile: The file is none of a runtime.
        InvalidValue: ``runtime`` is another one.
    """
    from hwbench.runtimes import check_given, get, of_file, suffixes

    if runtime is not None:
        get(runtime)
    engine = of_file(path)
    if engine is None:
        raise InvalidFile(f"{path}: expected a file that ends in {suffixes()}; make one: hwbench export")
    if "\t" in str(path) or len(str(path).splitlines()) > 1:  # what separates files in the list of the runner
        raise InvalidFile(f"{str(path)!r}: expected a path without tabs and line breaks; rename it")
    check_given(engine, path)
    if runtime not in (None, engine):
        raise InvalidValue(f"{path} is a file for {engine}; --runtime {runtime} takes a name such as zoo:x3d-xs")
    return engine


def artifact_of(path: Path, runtime: str | None, precision: str | None) -> tuple[Artifact, str | None]:
    """A file as something to time, with its precision where the file or the manifest beside it tells one.

    Raises:
        InvalidFile: It is none of a runtime, or its manifest describes another one.
        InvalidValue: ``runtime`` or ``precision`` is not that of the file.
        MissingDependency: The engine is not installed.
    """
    from hwbench.measure.cache import engine_version, file_sha256
    from hwbench.runtimes import check_format
    from hwbench.specs import Artifact, BlockSpec, DelegationReport, Precision, TensorSpec, Workload

    if precision is not None:
        precision = Precision.parse(precision).value
    engine = engine_of(path, runtime)
    check_format(engine, path)
    sha256 = file_sha256(path)
    known = _precision_of(engine, path, sha256)
    if precision is not None and known is not None and precision != known:
        raise InvalidValue(f"{path} is in {known}, not in {precision}; leave --precision out")
    # The file says what is timed; of this workload only the precision is looked at.
    assumed = Precision.parse(known or precision or Precision.FP32.value)
    unknown = Workload((BlockSpec("file", 1, 1),), TensorSpec(1, 1, 1, 1, 1), assumed)
    return Artifact(path, sha256, unknown, engine, engine_version(engine), DelegationReport(0)), known


def _precision_of(engine: str, path: Path, sha256: str) -> str | None:
    """The precision that a file tells, or the manifest beside it; None where neither does.

    Raises:
        InvalidFile: They contradict one another.
    """
    from hwbench.runtimes import get

    inside, described = get(engine).precision_in(path), _manifest(path, sha256)
    if inside is not None and described not in (None, inside.value):
        raise InvalidFile(f"{path} is in {inside}, and manifest.json beside it says {described}; export it again")
    return described if inside is None else inside.value


def _manifest(path: Path, sha256: str) -> str | None:
    """The precision that the manifest beside a file tells, where there is one and it is of this file.

    Raises:
        InvalidFile: The manifest is damaged, or describes another file than the model that lies beside it.
    """
    manifest = path.with_name("manifest.json")
    if not manifest.exists():
        return None
    from hwbench.deploy import DeployedModel, Manifest

    # A model of an export is held to all that ``verify`` holds it to; a file of another name may be anybody's.
    if path.stem == "model":
        deployed = DeployedModel.open(path.parent)
        if not path.samefile(deployed.path):
            raise InvalidFile(f"{path} is not the model of {path.parent}, which is {deployed.path.name}; give that")
        return deployed.manifest.precision.value
    return Manifest.read(manifest).precision.value if _manifest_values(manifest).get("sha256") == sha256 else None


def _manifest_values(manifest: Path) -> dict[str, Any]:
    """The values of a ``manifest.json``, which may be anybody's; empty where there is none, or no JSON object in it."""
    try:
        values = read_json(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _built(workspace: Workspace, request: BenchRequest, listener: Listener) -> tuple[Artifact, str]:
    """A network by name, built with random weights through the cache."""
    from hwbench.measure.builder import BuildFailure, build_all
    from hwbench.measure.cache import ArtifactCache
    from hwbench.runtimes import get
    from hwbench.spaces import resolve
    from hwbench.specs import Precision
    from hwbench.specs.network import DEFAULT_CLASSES

    runtime, model, classes = runtime_of(request, None), request.model, request.classes
    precision = Precision.parse(request.precision or Precision.FP32.value)
    has_classes = model.strip().startswith("zoo:")
    network = resolve(workspace, model, classes if has_classes else classes or DEFAULT_CLASSES)
    workload = network.causal().frame(precision) if request.streaming else network.workload(precision)
    get(runtime).require_form(workload)
    steps = 0 if ArtifactCache(workspace.cache, runtime).load(workload) else 1
    listener.progress(StageProgress("build", 0, steps, note=runtime))
    (result,) = build_all([workload], runtime, workspace.cache, processes=1)
    listener.progress(StageProgress("build", steps, steps, note=runtime))
    if isinstance(result, BuildFailure):
        raise CheckFailed(f"{model} in {precision} does not build for {runtime}: {result.reason}")
    return result, precision.value
