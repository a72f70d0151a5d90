"""``hwbench.export``: from a checkpoint, or a network by name, to a checked file and its manifest."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.export_sources import SourceArguments, open_source
from hwbench.api.layouts import chosen_by_device, fastest_on
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.reading import DECODER_HELP, reading_of
from hwbench.api.requests import option, request
from hwbench.api.resources import torch_threads
from hwbench.api.train_request import ON_ERROR
from hwbench.errors import InvalidValue, UsageError
from hwbench.specs import AUTO, Network, Precision, TensorSpec

if TYPE_CHECKING:
    from pandas import DataFrame

    from hwbench.data import FailurePolicy, Reading
    from hwbench.deploy import DeployedModel, ExportSource, Int8, QuantizationRecord, Streaming, Watch
    from hwbench.deploy.manifest import Accuracy, StreamRecord
    from hwbench.runtimes import Runtime
    from hwbench.workspace import Workspace

# Stages of an export as a person reads them.
STAGES = {
    "calibrate": "calibration clips",
    "blocks": "look at blocks",
    "observers": "compare observers",
    "build": "build",
    "check": "check against the original",
}
# Without labels that mean something a few clips show the parity as well.
_UNTRAINED_VIDEOS = 16


@request
class ExportRequest:
    """Convert, quantise and check a model; write the model (.pte, .onnx, ...), manifest.json, how to run it in RUN.md.

    The file is run in a process of its own beside the original in fp32: it is written only if both agree. With trained
    weights top-1 is measured before and after.

    --keep-accuracy 1 allows the int8 file to lose one point of top-1 on the validation videos: the most sensitive
    blocks stay in fp32 until it loses no more, and what they cost in milliseconds is measured on this machine.
    """

    model: str = option(
        argument=True,
        help="A checkpoint, zoo:NAME, STUDY:best, a printed architecture, torchvision:MODEL, or "
        "package.module:function of a function that makes a torch module.",
    )
    out: Path = option(help="Folder for the model and manifest.json; an export there is replaced.")
    precision: str = option(default="int8", help="int8, fp16, bf16 or fp32.")
    runtime: str = option(
        default="executorch",
        help="executorch (.pte), litert (.tflite), onnx (.onnx), openvino (.ovz) or torchscript (.ts).",
    )
    calibrate: str | None = option(
        default=None, help="Data to calibrate int8 with; of a checkpoint: its own training videos."
    )
    data: str | None = option(default=None, help="Data to validate on; default: what the checkpoint was trained on.")
    weights: str | None = option(
        default=None,
        help="published (of the zoo: fetched), a file of published weights or of a state dict, or random.",
    )
    variant: str = option(default=AUTO, help="Layout of convolutions over time.")
    device: str | None = option(
        default=None, help="Take the layout that is fastest on this device, by the rows of its table."
    )
    classes: int | None = option(default=None, min=1, help="Classes of the head of a network by name.")
    input: str | None = option(
        default=None, help="Clip of a torchvision or own model: NxCxTxHxW such as 1x3x8x112x112."
    )
    calibration_clips: int = option(default=32, min=1, help="Training videos to calibrate with, a clip each.")
    observer: str | None = option(
        default=None,
        help="How ranges are found after training: histogram, minmax or moving-average; default: histogram, or the "
        "best of the three where its parity does not do.",
    )
    keep_accuracy: float | None = option(
        default=None,
        min=0.0,
        max=100.0,
        metavar="POINTS",
        help="Leave blocks in fp32, as few as it takes to lose no more top-1.",
    )
    fp32_block: tuple[str, ...] = option(
        default=(), metavar="TEXT", help="Leave this block in fp32 (repeatable); --blocks prints the names."
    )
    blocks: bool = option(default=False, help="Look at each block: what int8 does to it, and it to the logits.")
    videos: int | None = option(default=None, min=1, help="Validate on so many videos; default: all.")
    streaming: bool = option(
        default=False, help="A file that takes one new frame and the states of those before it, of a causal network."
    )
    memory: int | None = option(
        default=None,
        min=1,
        metavar="FRAMES",
        help="Of a streaming file: frames that averages over time remember; default: all.",
    )
    seed: int = option(default=0, min=0, help="Of the calibration videos and of random weights.")
    on_error: str = option(default="raise", choices=ON_ERROR, help="Unreadable videos: raise, skip or replace.")
    decoder: str = option(default="pyav", help=DECODER_HELP)
    threads: int | None = option(default=None, min=1, help="Threads of torch; default: all cores.")
    made_by: str | None = option(
        default=None, help="Of a checkpoint of your own model: package.module:function, which makes the model."
    )

    def validate(self) -> None:
        """Raises UsageError, or what is more special, where a value is none or fields do not go together."""
        from hwbench.runtimes.executorch.scheme import Scheme

        int8 = self.observer is not None or self.keep_accuracy is not None or self.fp32_block or self.blocks
        if Precision.parse(self.precision) is not Precision.INT8 and int8:
            raise UsageError("--observer, --keep-accuracy, --fp32-block and --blocks go with --precision int8")
        if self.observer is not None:
            Scheme(self.observer)
        if self.keep_accuracy is not None and self.fp32_block:
            raise InvalidValue("either name the blocks in fp32 (--fp32-block) or let them be chosen (--keep-accuracy)")
        if self.input is not None:
            clip = TensorSpec.parse(self.input)
            if (clip.n, clip.c) != (1, 3):
                raise InvalidValue(f"--input: expected one clip of three colours, 1x3xTxHxW, got {clip.key}")
        if self.memory is not None and not self.streaming:
            raise UsageError("--memory goes with --streaming")
        chosen_by_device(self.device, self.variant)

    def int8(self) -> Int8 | None:
        """How the network becomes int8; None for another precision."""
        from hwbench.deploy import Int8

        if Precision.parse(self.precision) is not Precision.INT8:
            return None
        max_loss = None if self.keep_accuracy is None else self.keep_accuracy / 100
        return Int8(self.observer, self.fp32_block, max_loss, self.blocks)

    def source(self) -> SourceArguments:
        """What is said of the network beside its name."""
        clip = None if self.input is None else TensorSpec.parse(self.input)
        return SourceArguments(
            self.weights, self.classes, clip, self.calibrate or self.data, self.seed, causal=self.streaming
        )


@dataclass(frozen=True)
class ExportResult:
    """A checked file with its manifest, and the wall time it took."""

    model: DeployedModel
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench export --json`` prints."""
        return {**summary(self.model), "seconds": self.seconds}

    def to_frame(self) -> DataFrame:
        """The blocks that were looked at, one row each; no row for fp32 or where none was looked at.

        ``name``; ``sqnr_db`` of the output of the block; ``alone_db``: SQNR of the logits where it alone is int8;
        ``precision`` of the block in the file.
        """
        from dataclasses import fields

        from pandas import DataFrame

        from hwbench.deploy import BlockQuality

        columns = [*(one.name for one in fields(BlockQuality)), "precision"]
        how = self.model.manifest.quantization
        if how is None:
            return DataFrame(columns=columns)
        rows = [
            {**asdict(block), "precision": (Precision.FP32 if block.name in how.fp32_blocks else Precision.INT8).value}
            for block in how.blocks
        ]
        return DataFrame(rows, columns=columns)


def export(request: ExportRequest, listener: Listener = SILENT, *, workspace: Workspace | None = None) -> ExportResult:
    """Converts, quantises and checks a model; writes the file only where it computes what the original computes.

    Args:
        request: What, where to, and how.
        listener: Hears the stages, what is doubtful about weights, and what a choice rests on.
        workspace: Holds studies, cards, tables and the synthetic set; default: the one around the current folder.

    Raises:
        UsageError: What is asked for does not go together, or a name or a file is not there.
        NotCalibrated: int8 without calibration clips.
        ParityFailed: The file does not compute what the original computes.
        DelegationFailed: An operation is left outside the delegate.
        WorkspaceError: The folder cannot be written.
    """
    from hwbench.data import FailurePolicy
    from hwbench.deploy import Streaming
    from hwbench.runtimes import get
    from hwbench.spaces import load_named
    from hwbench.workspace import Workspace

    start = time.monotonic()
    workspace, engine = workspace or Workspace.find(), get(request.runtime)
    precision = Precision.parse(request.precision)
    load_named(request.made_by)
    with torch_threads(request.threads) as threads:
        source = open_source(workspace, request.model, request.source(), listener)
        deployed = export_source(
            workspace,
            source,
            request.out,
            precision,
            calibrate=request.calibrate,
            data=request.data,
            variant=_variant(workspace, source, request, listener),
            calibration_clips=request.calibration_clips,
            videos=request.videos,
            seed=request.seed,
            policy=FailurePolicy.parse(request.on_error),
            threads=threads,
            runtime=engine,
            int8=request.int8(),
            listener=listener,
            reading=reading_of(request.decoder),
            streaming=Streaming(request.memory) if request.streaming else None,
        )
    _say_observer(deployed, listener)
    return ExportResult(deployed, round(time.monotonic() - start, 1))


def export_source(
    workspace: Workspace,
    source: ExportSource,
    out: Path,
    precision: Precision,
    *,
    calibrate: str | None = None,
    data: str | None = None,
    variant: str = AUTO,
    calibration_clips: int = 32,
    videos: int | None = None,
    seed: int = 0,
    policy: FailurePolicy | None = None,
    threads: int = 1,
    runtime: Runtime | None = None,
    int8: Int8 | None = None,
    listener: Listener = SILENT,
    streaming: Streaming | None = None,
    reading: Reading | None = None,
) -> DeployedModel:
    """Exports with data by name: calibrates on ``calibrate``, validates on ``data``, each by default what the source
    was trained on; with random weights both are by default nothing.

    Raises:
        What ``hwbench.deploy.export``, ``open_calibration`` and ``open_validation`` raise.
    """
    from hwbench.data import FailurePolicy, Reading
    from hwbench.deploy import export as run
    from hwbench.deploy import meter, open_calibration, open_validation

    policy, reading = policy or FailurePolicy.RAISE, reading or Reading()
    calibrate, data = calibrate or data or source.data, data or source.data or calibrate
    calibration = validation = None
    if calibrate is not None and precision is Precision.INT8:
        calibration = open_calibration(
            workspace, calibrate, source, count=calibration_clips, seed=seed, policy=policy, reading=reading
        )
    if streaming is not None and source.flow is not None:
        raise InvalidValue(
            "--streaming: the network sees optical flow, which a stream of pictures has not; leave it out"
        )
    if data is not None:
        count = videos if source.weights.trained else videos or _UNTRAINED_VIDEOS
        validation = open_validation(workspace, data, source, count=count, policy=policy, reading=reading)
    return run(
        source,
        out,
        precision=precision,
        calibration=calibration,
        validation=validation,
        variant=variant,
        threads=threads,
        progress=_told(listener),
        runtime=runtime,
        int8=int8,
        meter=meter(workspace),
        streaming=streaming,
    )


def summary(deployed: DeployedModel) -> dict[str, Any]:
    """What ``--json`` prints of an export, but for the time it took."""
    from hwbench.deploy import MANIFEST

    manifest = deployed.manifest
    accuracy, parity = manifest.accuracy, manifest.parity
    return {
        "model": str(deployed.path),
        "manifest": str(deployed.path.with_name(MANIFEST)),
        "architecture": manifest.architecture.name,
        "precision": manifest.precision.value,
        "runtime": manifest.runtime,
        "version": manifest.runtime_version,
        "variant": manifest.variant,
        "weights": manifest.weights.kind,
        "delegates": manifest.delegation.delegates,
        "undelegated": dict(manifest.delegation.undelegated),
        "sqnr_db": round(parity.sqnr_db, 2),
        "max_abs_error": parity.max_abs_error,
        "same_top1": parity.same_top1,
        "inputs": parity.inputs,
        "top1_before": accuracy.top1_before,
        "top1_after": accuracy.top1_after,
        "top1_reason": accuracy.reason,
        **_precision_of(accuracy),
        "videos": accuracy.videos,
        "calibrated_on": manifest.calibration and f"{manifest.calibration.source} ({manifest.calibration.split})",
        "calibration_clips": manifest.calibration and manifest.calibration.clips,
        "bytes": manifest.bytes,
        "sha256": manifest.sha256,
        **_quantized(manifest.quantization),
        **_streamed(manifest.stream),
    }


def _precision_of(accuracy: Accuracy) -> dict[str, float]:
    """The mean average precisions, as ``--json`` prints them; nothing for videos of one class."""
    values = {"mean_ap_before": accuracy.mean_ap_before, "mean_ap_after": accuracy.mean_ap_after}
    return {name: value for name, value in values.items() if value is not None}


def _quantized(how: QuantizationRecord | None) -> dict[str, Any]:
    """How a file became int8, as ``--json`` prints it; nothing for fp32."""
    if how is None:
        return {}
    cost = how.cost
    return {
        "method": how.method,
        "observer": how.observer,
        "observers": {name: round(sqnr_db, 2) for name, sqnr_db in how.observers.items()},
        "fp32_blocks": list(how.fp32_blocks),
        "top1_int8": how.top1_int8,
        "int8_ms": cost and cost.int8_ms,
        "mixed_ms": cost and cost.mixed_ms,
        "cost_ms": cost and cost.difference_ms,
        "cost_reason": cost and cost.reason,
        "blocks": [asdict(block) for block in how.blocks],
    }


def _streamed(stream: StreamRecord | None) -> dict[str, Any]:
    """What a streaming file keeps, as ``--json`` prints it; nothing for others."""
    if stream is None:
        return {}
    values = sum(math.prod(state.shape) for state in stream.states)
    return {"states": len(stream.states), "state_bytes": 4 * values, "remembers": stream.remembers}


def _variant(workspace: Workspace, source: ExportSource, request: ExportRequest, listener: Listener) -> str:
    """The layout that is asked for, or the fastest on the device that is named."""
    if request.device is None:
        return request.variant
    if not isinstance(source.network, Network):
        raise InvalidValue(f"--device: {request.model} has no blocks that a table could have rows of; give --variant")
    precision = Precision.parse(request.precision)
    return fastest_on(workspace, request.device, source.network, precision, request.variant, listener)


def _say_observer(deployed: DeployedModel, listener: Listener) -> None:
    """Which observer was taken, and why not histograms, where there was a choice."""
    how = deployed.manifest.quantization
    if how is not None and how.observers:
        others = ", ".join(f"{name} {db:.1f} dB" for name, db in how.observers.items() if name != how.observer)
        best = how.observers[how.observer or ""]
        listener.say(f"ranges by {how.observer}: {best:.1f} dB where {others} (--observer says which)")


def _told(listener: Listener) -> Watch:
    return lambda at: listener.progress(StageProgress(STAGES[at.stage], at.done, at.total))
