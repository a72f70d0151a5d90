"""From a network with weights to a checked file and its manifest."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from hwbench import __version__
from hwbench.deploy.atomic_export import check_place, place, staging
from hwbench.deploy.blocks import Int8, require_blocks
from hwbench.deploy.clips import Clips, calibration_inputs
from hwbench.deploy.cost import Meter, unmeasured
from hwbench.deploy.file_names import MANIFEST, RUN, model_name
from hwbench.deploy.int8 import JUDGED_CLIPS, DeployForm, Int8Plan
from hwbench.deploy.manifest import SCHEMA, DeployedModel, Manifest
from hwbench.deploy.manifest_records import (
    LAYOUT,
    OUTPUT,
    STREAM_LAYOUT,
    Accuracy,
    CalibrationRecord,
    InputForm,
    NetworkRecord,
    ParityRecord,
    QuantizationRecord,
)
from hwbench.deploy.model_process import served
from hwbench.deploy.noise import NOISE_CLIPS, NoiseViews, noise_clips
from hwbench.deploy.parity import (
    NOISE,
    DeployFormError,
    OutputComparison,
    check_deploy_form,
    check_parity,
    compare,
    doubts,
)
from hwbench.deploy.progress import ExportProgress, Watch
from hwbench.deploy.run_page import check_page, write_run_page
from hwbench.deploy.source import ExportSource, with_statistics_of
from hwbench.deploy.streams import Replayed, Streaming, StreamInputs
from hwbench.errors import DelegationFailed, InvalidValue, NotCalibrated, ParityFailed
from hwbench.measure.cache import file_sha256
from hwbench.runtimes import DEFAULT, ModuleForm, Quantiser, Runtime, exporting, get, in_words, names
from hwbench.runtimes.base import version_of
from hwbench.specs import AUTO, STREAM, Artifact, Precision, Workload

UNTRAINED = "random weights: nothing was learned that an accuracy could measure"
ASSUMED = "the weights have no class names; in the order of the logits they were taken to be those of"
UNVALIDATED = "no validation videos were given"

# Packages whose versions stand in the manifest.
PACKAGES = ("torch", "torchao", "executorch")
# Calibration clips that random weights take the statistics of their batch norms from.
_STATISTICS_CLIPS = 8
# How torch says that a batch norm has nothing to take a variance of.
_ONE_VALUE = "Expected more than 1 value per channel"


def export(
    original: ExportSource,
    out: Path,
    *,
    precision: Precision,
    calibration: Clips | None = None,
    validation: Clips | None = None,
    variant: str = AUTO,
    threads: int = 1,
    progress: Watch | None = None,
    runtime: Runtime | None = None,
    int8: Int8 | None = None,
    meter: Meter | None = None,
    streaming: Streaming | None = None,
) -> DeployedModel:
    """Writes the model, ``manifest.json`` and ``RUN.md`` into a folder, over an export of before; other files stay, and
    none of somebody else is replaced.

    The file is loaded and run in a process of its own before it counts; if anything fails ``out`` stays as it was.

    Args:
        original: The network with its weights.
        out: The folder; made if it is not there.
        precision: Of the arithmetic in the file.
        calibration: Clips that int8 takes the ranges of activations from; not looked at for fp32.
        validation: Clips that original and file are compared on, and top-1 is measured on where the weights are
            trained. Without them eight clips of seeded noise in the place of pixels are compared, in int8 with random
            weights the calibration clips.
        variant: Layout of convolutions over time; after quantisation-aware training that of the training.
        threads: Threads of the engine while the file is checked.
        progress: Told where the export is.
        runtime: Engine of the file, which quantises in its own way; default: ExecuTorch.
        int8: How it becomes int8; not looked at for fp32.
        meter: Measures what blocks in fp32 cost; without one that is not known.
        streaming: The file takes one new frame with the states of the frames before it; default: a clip.

    Raises:
        NotCalibrated: int8 without calibration clips.
        InvalidValue: What is asked for does not go together, or the folder holds files of these names of somebody else.
        UnsupportedModule: The network has no stream form, or no blocks, where one is asked for.
        ParityFailed: The file does not compute what the original computes (``hwbench.deploy.parity``).
        DelegationFailed: An operation is left outside the delegate.
        CheckFailed: The file does not load or run.
        WorkspaceError: The folder cannot be written.
        VideoError: A video cannot be read.
    """
    watch, runtime = progress or (lambda _: None), runtime or get(DEFAULT)
    how = int8 or Int8()
    _check(original, precision, calibration, runtime)
    _check_int8(original, precision, validation, runtime, variant, how)
    variant = variant if original.fine_tuned is None else original.fine_tuned.variant
    if streaming is not None:
        streaming.check(original, runtime, variant, how)
    name = model_name(runtime.name)
    check_place(out, name)
    if precision is Precision.INT8 and not original.weights.trained:
        original = _met_clips(original, calibration)
        # What these weights were normalised for is no noise: in int8 it is beyond the ranges.
        validation = calibration if validation is None else validation
    with staging(out) as folder:
        calibrated = precision is Precision.INT8 and original.fine_tuned is None
        report = _Report(original, precision, variant, calibration if calibrated else None, streaming)
        form, error = _form(report, watch, runtime)
        judges = _judges(original, validation)
        plan = None
        if precision is Precision.INT8:
            plan = Int8Plan(original, form, how, validation, watch, runtime, judges)
        attempts: Iterable[QuantizationRecord | None] = [None] if plan is None else plan.attempts()
        source = NOISE if validation is None else validation.source
        with nullcontext() if plan is None else plan.naming_blocks():
            refusal: ParityFailed | None = None
            for quantization in attempts:
                engine = runtime if plan is None or quantization is None else plan.engine(quantization)
                clips = form.inputs.clips if isinstance(form.inputs, StreamInputs) else len(form.inputs)
                built = _Built(_build(report, form, folder / name, watch, engine), clips, quantization)
                comparison = _compare(report, built.artifact.path, validation, threads, watch)
                accuracy, lowering = _accuracy(original, comparison, validation), comparison.lowering(source, error)
                refusal = _refusal(lowering, precision, trained=original.weights.trained)
                if refusal is None and _kept(accuracy, how):
                    break
            if refusal is not None:
                raise refusal
        parity = comparison.parity(source, error)
        parity = replace(parity, reasons=doubts(parity, trained=original.weights.trained))
        if plan is not None and calibrated and built.quantization and built.quantization.fp32_blocks:
            built = _costed(report, form, built, plan, folder / "int8.pte", meter, watch)
        manifest = report.manifest(built, parity, accuracy)
        manifest.write(folder / MANIFEST)
        write_run_page(manifest, original.network.num_classes, folder / RUN)
        place(folder, out, name)
    return DeployedModel(out / name, manifest)


def _met_clips(original: ExportSource, calibration: Clips | None) -> ExportSource:
    """Random weights whose batch norms have the statistics of calibration clips; others stay as they are.

    Raises:
        InvalidValue: There is one clip, and a batch norm sees one value of a channel in it.
    """
    clips = [] if calibration is None else list(calibration.some(_STATISTICS_CLIPS))
    if not clips:
        return original
    try:
        return with_statistics_of(original, torch.cat(clips))
    except ValueError as error:
        if len(clips) > 1 or _ONE_VALUE not in str(error):
            raise
        raise InvalidValue(
            f"{original.network.name} has random weights, whose batch norms take their statistics from the calibration "
            "clips; one clip gives a batch norm one value per channel: add --calibration-clips 2, or more"
        ) from error


@dataclass(frozen=True)
class _Built:
    artifact: Artifact
    calibration_clips: int
    quantization: QuantizationRecord | None


@dataclass(frozen=True)
class _Report:
    """What is asked for, and the manifest that tells what came of it."""

    original: ExportSource
    precision: Precision
    variant: str
    calibration: Clips | None
    streaming: Streaming | None = None

    @property
    def workload(self) -> Workload:
        """What the file computes."""
        if self.streaming is not None:
            return self.streaming.workload(self.original, self.precision)
        return self.original.network.workload(self.precision, self.variant)

    def manifest(self, built: _Built, parity: ParityRecord, accuracy: Accuracy) -> Manifest:
        original, artifact, used = self.original, built.artifact, self.calibration
        return Manifest(
            schema=SCHEMA,
            sha256=file_sha256(artifact.path),
            bytes=artifact.path.stat().st_size,
            precision=self.precision,
            runtime=artifact.runtime,
            runtime_version=artifact.version,
            variant=self.variant if self.streaming is None else STREAM,
            architecture=NetworkRecord.of(original.network),
            weights=original.weights,
            input=InputForm.of(
                original.network,
                original.clip,
                original.normalisation,
                original.picture,
                layout=LAYOUT if self.streaming is None else STREAM_LAYOUT,
                assumed=original.assumed,
            ),
            output=OUTPUT,
            labels=original.classes,
            versions=_versions(artifact.runtime),
            delegation=artifact.delegation,
            parity=parity,
            accuracy=accuracy,
            calibration=None
            if used is None
            else CalibrationRecord(used.source, used.split, built.calibration_clips, used.seed),
            quantization=built.quantization,
            stream=None if self.streaming is None else self.streaming.record(original, artifact.states),
        )


def _check_int8(
    original: ExportSource,
    precision: Precision,
    validation: Clips | None,
    runtime: Runtime,
    variant: str,
    int8: Int8,
) -> None:
    name, tuned = original.network.name, original.fine_tuned
    if runtime.capabilities.quantiser is not Quantiser.GRAPH and (tuned is not None or int8 != Int8()):
        raise InvalidValue(
            f"--runtime {runtime.name} quantises in its own way: --observer, --keep-accuracy, --fp32-block, --blocks "
            f"and checkpoints of train --qat are for {in_words(_graph_quantised())}"
        )
    if tuned is not None and precision is not Precision.INT8:
        raise InvalidValue(
            f"{name} was trained with the rounding of int8 in it and is nothing in {precision}; export the "
            "checkpoint it started from"
        )
    if tuned is not None and (variant not in (AUTO, tuned.variant) or int8 != Int8()):
        raise InvalidValue(
            f"{name} was trained with the rounding of int8 in it: layout ({tuned.variant}), ranges and blocks in fp32 "
            "are settled; leave out --variant, --observer, --fp32-block, --keep-accuracy and --blocks, or export what "
            "it started from"
        )
    if int8.by_block and precision is Precision.INT8:
        require_blocks(original)
    if int8.max_loss is not None and (not original.weights.trained or validation is None):
        raise InvalidValue("--keep-accuracy needs trained weights and labelled validation videos to measure top-1 on")
    if int8.max_loss is not None and validation is not None and not original.classes:
        found = len(validation.dataset.videos.classes)
        if found != original.network.num_classes:
            raise InvalidValue(
                f"--keep-accuracy: the weights have {original.network.num_classes} classes without names, "
                f"{validation.source} has {found}, so top-1 says nothing there; measure on data of their classes"
            )


def _check(original: ExportSource, precision: Precision, calibration: Clips | None, runtime: Runtime) -> None:
    network = original.network
    if not runtime.capabilities.holds_weights:
        raise InvalidValue(
            f"--runtime {runtime.name} is a baseline, whose file holds no weights; export for {in_words(exporting())}"
        )
    if precision not in runtime.capabilities.precisions:
        able = [precision.value for precision in runtime.capabilities.precisions]
        raise InvalidValue(f"--runtime {runtime.name} builds {in_words(able)}, not {precision}; name another precision")
    version_of(runtime)  # that it is not installed is better known before anything is calibrated
    check_page(runtime.name)
    if precision is Precision.INT8 and calibration is None and original.fine_tuned is None:
        raise NotCalibrated(
            "int8 needs clips to take the ranges of activations from, none were given; add --calibrate DATA with "
            "videos like those the model will see (or --calibrate synthetic), or export --precision fp32"
        )
    if network.input.n != 1:
        raise InvalidValue(f"{network.name}: a deployed file takes one clip, the input is {network.input.key}")
    if original.classes and len(original.classes) != network.num_classes:
        raise InvalidValue(f"{network.name} has {network.num_classes} classes, {len(original.classes)} are named")


def _graph_quantised() -> list[str]:
    return [name for name in names() if get(name).capabilities.quantiser is Quantiser.GRAPH]


def _form(report: _Report, watch: Watch, runtime: Runtime) -> tuple[DeployForm, DeployFormError]:
    """The deploy form, checked; after quantisation-aware training that of the network it started from."""
    from hwbench import models

    original, tuned, variant = report.original, report.original.fine_tuned, report.variant
    folded = runtime.capabilities.form(original.network.workload(report.precision, variant)) is not ModuleForm.ORIGINAL
    example = noise_clips(original, 1)[0]

    streaming = report.streaming

    def deploy(module: nn.Module) -> nn.Module:
        if streaming is not None:
            return Replayed(streaming.form(original, module))
        if not folded:
            return models.Unfolded(module, original.network.input)
        return replace(original, module=module).deployed(variant)

    deployed, error = check_deploy_form(
        original.module if tuned is None else tuned.start,
        deploy,
        example,
    )
    inputs: Sequence[torch.Tensor] = ()
    if report.calibration is not None:
        inputs = calibration_inputs(report.calibration, lambda done, all: watch(ExportProgress("calibrate", done, all)))
    if isinstance(deployed, Replayed):
        stream = deployed.form
        return DeployForm(stream, stream.example(), StreamInputs(stream, inputs)), error
    return DeployForm(deployed, models.frames_to_batch(example).contiguous(), inputs), error


def _build(report: _Report, form: DeployForm, path: Path, watch: Watch, runtime: Runtime) -> Artifact:
    watch(ExportProgress("build", 0, None))
    workload = report.workload
    try:
        artifact = runtime.build(form.deployed, form.example, workload, path, form.inputs)
    except DelegationFailed as error:  # which knows the workload alone, by its key
        said = str(error).removeprefix(f"{workload.key}: ")
        raise DelegationFailed(f"{report.original.network.name}: {said}") from error
    watch(ExportProgress("build", 1, 1))
    return artifact


def _refusal(parity: ParityRecord, precision: Precision, *, trained: bool) -> ParityFailed | None:
    """Why a file does not count; None where it does."""
    try:
        check_parity(parity, precision, trained=trained)
    except ParityFailed as error:
        return error
    return None


def _kept(accuracy: Accuracy, int8: Int8) -> bool:
    """Whether no more top-1 is lost than allowed."""
    before, after = accuracy.top1_before, accuracy.top1_after
    return int8.max_loss is None or before is None or after is None or after >= before - int8.max_loss


def _costed(
    report: _Report, form: DeployForm, built: _Built, plan: Int8Plan, path: Path, meter: Meter | None, watch: Watch
) -> _Built:
    """With what the blocks in fp32 cost, against a file without any."""
    assert built.quantization is not None
    cost = unmeasured("no device was given to measure on")
    if meter is not None:
        plain = _build(report, form, path, watch, plan.engine(replace(built.quantization, fp32_blocks=())))
        cost = meter(plain, built.artifact)
    return replace(built, quantization=replace(built.quantization, cost=cost))


def _compare(report: _Report, path: Path, validation: Clips | None, threads: int, watch: Watch) -> OutputComparison:
    original, streams = report.original, report.streaming is not None
    clips = NoiseViews(original) if validation is None else validation
    start = None if original.fine_tuned is None else original.fine_tuned.start
    with served(path, threads=threads, window=original.network.input.t if streams else 0) as file:
        run = file.replay if streams else file
        return compare(original.module, run, clips, lambda done, all: watch(ExportProgress("check", done, all)), start)


def _judges(original: ExportSource, validation: Clips | None) -> Iterable[torch.Tensor]:
    """Clips that observers of int8 are compared on; read when they are looked at."""
    return noise_clips(original, NOISE_CLIPS) if validation is None else validation.some(JUDGED_CLIPS)


def _accuracy(original: ExportSource, comparison: OutputComparison, validation: Clips | None) -> Accuracy:
    if not original.weights.trained or validation is None:
        reason = UNVALIDATED if original.weights.trained else UNTRAINED
        return Accuracy(None, None, 0, 0, None, reason)
    dataset, classes = validation.dataset, original.network.num_classes
    found = len(dataset.videos.classes)
    if not original.classes and found != classes:
        reason = f"the weights have {classes} classes without names, {validation.source} has {found}"
        return Accuracy(None, None, 0, 0, None, reason)
    views = dataset.clips * dataset.transform.crops
    accuracy = comparison.accuracy(dataset.videos, views, validation.source)
    return accuracy if original.classes else replace(accuracy, reason=f"{ASSUMED} {validation.source}")


def _versions(runtime: str) -> dict[str, str]:
    """Versions of what made the file."""
    found = {"hwbench": __version__, "python": platform.python_version()}
    for name in dict.fromkeys((*PACKAGES, *get(runtime).capabilities.packages)):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
