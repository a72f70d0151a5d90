"""From a network with weights to a checked file and its manifest."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from hwbench import __version__
from hwbench.deploy.clips import Clips, calibration_inputs
from hwbench.deploy.manifest import (
    MANIFEST,
    OUTPUT,
    SCHEMA,
    Accuracy,
    Calibration,
    DeployedModel,
    InputForm,
    Manifest,
    NetworkRecord,
    Parity,
    model_name,
)
from hwbench.deploy.original import Original
from hwbench.deploy.parity import Comparison, check_deploy_form, check_parity, compare
from hwbench.deploy.served import served
from hwbench.deploy.staging import place, staging
from hwbench.errors import InvalidValue, NotCalibrated
from hwbench.measure.cache import PACKAGES as ENGINE_PACKAGES
from hwbench.measure.cache import file_sha256
from hwbench.runtimes import Form, Runtime, get
from hwbench.specs import AUTO, Artifact, Precision

RUNTIME = "executorch"
BASELINE = "torch"
UNTRAINED = "random weights: nothing was learned that an accuracy could measure"
ASSUMED = "the weights have no class names; in the order of the logits they were taken to be those of"
NOISE = "noise"
UNVALIDATED = "no validation videos were given"

# Packages whose versions stand in the manifest.
PACKAGES = ("torch", "torchao", "executorch")
# Clips of noise that a file with random weights and no data is compared on.
_NOISE_CLIPS = 8


@dataclass(frozen=True)
class Progress:
    """Where an export is: ``stage`` is calibrate, build or check; ``total`` is None where it is not known."""

    stage: str
    done: int
    total: int | None


Watch = Callable[[Progress], None]


def export(
    original: Original,
    out: Path,
    *,
    precision: Precision,
    calibration: Clips | None = None,
    validation: Clips | None = None,
    variant: str = AUTO,
    threads: int = 1,
    progress: Watch | None = None,
    runtime: Runtime | None = None,
) -> DeployedModel:
    """Writes the model and ``manifest.json`` into a folder, over an export of before; other files there stay.

    The file is loaded and run in a process of its own before it counts; if anything fails ``out`` stays as it was.

    Args:
        original: The network with its weights.
        out: The folder; made if it is not there.
        precision: Of the arithmetic in the file.
        calibration: Clips that int8 takes the ranges of activations from; not looked at for fp32.
        validation: Clips that original and file are compared on, and top-1 is measured on where the weights are
            trained. Without them eight clips of seeded noise are compared.
        variant: Layout of convolutions over time.
        threads: Threads of the engine while the file is checked.
        progress: Told where the export is.
        runtime: Engine of the file; default: ExecuTorch.

    Raises:
        NotCalibrated: int8 without calibration clips.
        ParityFailed: The file does not compute what the original computes (``hwbench.deploy.parity``).
        DelegationFailed: An operation is left outside the delegate.
        CheckFailed: The file does not load or run.
        WorkspaceError: The folder cannot be written.
        VideoError: A video cannot be read.
    """
    watch, runtime = progress or (lambda _: None), runtime or get(RUNTIME)
    _check(original, precision, calibration, runtime)
    name = model_name(runtime.name)
    with staging(out) as folder:
        report = _Report(original, precision, variant, calibration if precision is Precision.INT8 else None)
        built = _build(report, folder / name, watch, runtime)
        comparison = _compare(original, built.artifact.path, validation, threads, watch)
        source = NOISE if validation is None else validation.source
        parity = comparison.parity(source, built.deploy_form_error)
        check_parity(parity, precision, trained=original.weights.trained)
        manifest = report.manifest(built, parity, _accuracy(original, comparison, validation))
        manifest.write(folder / MANIFEST)
        place(folder, out, name)
    return DeployedModel(out / name, manifest)


@dataclass(frozen=True)
class _Built:
    artifact: Artifact
    deploy_form_error: float
    calibration_clips: int


@dataclass(frozen=True)
class _Report:
    """What is asked for, and the manifest that tells what came of it."""

    original: Original
    precision: Precision
    variant: str
    calibration: Clips | None

    def manifest(self, built: _Built, parity: Parity, accuracy: Accuracy) -> Manifest:
        original, artifact, used = self.original, built.artifact, self.calibration
        return Manifest(
            schema=SCHEMA,
            sha256=file_sha256(artifact.path),
            bytes=artifact.path.stat().st_size,
            precision=self.precision,
            runtime=artifact.runtime,
            runtime_version=artifact.version,
            variant=self.variant,
            architecture=NetworkRecord.of(original.network),
            weights=original.weights,
            input=InputForm.of(original.network, original.clip, original.normalisation),
            output=OUTPUT,
            labels=original.classes,
            versions=_versions(artifact.runtime),
            delegation=artifact.delegation,
            parity=parity,
            accuracy=accuracy,
            calibration=None
            if used is None
            else Calibration(used.source, used.split, built.calibration_clips, used.seed),
        )


def _check(original: Original, precision: Precision, calibration: Clips | None, runtime: Runtime) -> None:
    network = original.network
    if runtime.name == BASELINE:
        raise InvalidValue(
            f"--runtime {BASELINE} is the baseline of eager PyTorch, whose file holds no weights; "
            "export for executorch, onnx or torchscript"
        )
    runtime.version()  # that it is not installed is better known before anything is calibrated
    if precision is Precision.INT8 and calibration is None:
        raise NotCalibrated(
            "int8 needs clips to take the ranges of activations from, none were given; add --calibrate DATA with "
            "videos like those the model will see (or --calibrate synthetic), or export --precision fp32"
        )
    if network.input.n != 1:
        raise InvalidValue(f"{network.name}: a deployed file takes one clip, the input is {network.input.key}")
    if original.classes and len(original.classes) != network.num_classes:
        raise InvalidValue(f"{network.name} has {network.num_classes} classes, {len(original.classes)} are named")


def _build(report: _Report, path: Path, watch: Watch, runtime: Runtime) -> _Built:
    from hwbench import models

    original = report.original
    workload = original.network.workload(report.precision, report.variant)
    deployed: nn.Module = (
        models.Unfolded(original.module, original.network.input)
        if runtime.form(workload) is Form.ORIGINAL
        else original.deployed(report.variant)
    )
    example = _noise(original, 1)[0]
    error = check_deploy_form(original.module, deployed, example)
    inputs: Sequence[torch.Tensor] = ()
    if report.calibration is not None:
        inputs = calibration_inputs(report.calibration, lambda done, all: watch(Progress("calibrate", done, all)))
    watch(Progress("build", 0, None))
    artifact = runtime.build(deployed, models.fold(example).contiguous(), workload, path, inputs)
    watch(Progress("build", 1, 1))
    return _Built(artifact, error, len(inputs))


def _compare(original: Original, path: Path, validation: Clips | None, threads: int, watch: Watch) -> Comparison:
    clips = _Noise(original) if validation is None else validation
    with served(path, threads=threads) as file:
        return compare(original.module, file, clips, lambda done, all: watch(Progress("check", done, all)))


def _accuracy(original: Original, comparison: Comparison, validation: Clips | None) -> Accuracy:
    if not original.weights.trained or validation is None:
        reason = UNVALIDATED if original.weights.trained else UNTRAINED
        return Accuracy(None, None, 0, 0, None, reason)
    dataset, classes = validation.dataset, original.network.num_classes
    found = len(dataset.videos.classes)
    if not original.classes and found != classes:
        reason = f"the weights have {classes} classes without names, {validation.source} has {found}"
        return Accuracy(None, None, 0, 0, None, reason)
    views = dataset.clips * dataset.transform.crops
    accuracy = comparison.accuracy(dataset.videos.labels, views, validation.source)
    return accuracy if original.classes else replace(accuracy, reason=f"{ASSUMED} {validation.source}")


def _noise(original: Original, count: int) -> list[torch.Tensor]:
    chance = torch.Generator().manual_seed(0)
    return [torch.randn(original.network.input.shape, generator=chance) for _ in range(count)]


class _Noise:
    """Seeded normal noise in the place of clips."""

    def __init__(self, original: Original) -> None:
        self._clips = _noise(original, _NOISE_CLIPS)

    def __len__(self) -> int:
        return len(self._clips)

    def views(self) -> Iterator[tuple[int, torch.Tensor]]:
        """As of ``Clips``; each is a video of its own."""
        yield from enumerate(self._clips)


def _versions(runtime: str) -> dict[str, str]:
    """Versions of what made the file."""
    found = {"hwbench": __version__, "python": platform.python_version()}
    for name in dict.fromkeys((*PACKAGES, *ENGINE_PACKAGES.get(runtime, ()))):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
