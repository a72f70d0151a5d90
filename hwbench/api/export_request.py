"""What to export: every decision of ``hwbench.export``, checked when it is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.api.export_sources import SourceArguments
from hwbench.api.layouts import check_variant, chosen_by_device
from hwbench.api.reading import DECODER_HELP, SPAN_HELP, STRIDE_HELP, check_clip
from hwbench.api.requests import changed, option, request
from hwbench.api.train_request import ON_ERROR
from hwbench.errors import InvalidValue, UsageError
from hwbench.printable import enumeration
from hwbench.specs import AUTO, Precision, TensorSpec
from hwbench.specs.network import MAX_SIZE
from hwbench.units import MOST_THREADS

if TYPE_CHECKING:
    from hwbench.deploy import Int8


@request
class ExportRequest:
    """Convert, quantise and check a model; write the model (.pte, .onnx, ...), manifest.json, how to run it in RUN.md.

    The file is run in a process of its own beside the original in fp32: it is written only if both agree. With trained
    weights top-1 is measured before and after.

    --keep-accuracy 1 allows the int8 file to lose one point of top-1 on the validation videos: the most sensitive
    blocks stay in fp32 until it loses no more and agrees with the original, and what they cost in milliseconds is
    measured on this machine. It and --blocks are for networks that are deployed block by block: X3D, E3D, SqueezeTime
    and MViT.
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
        default=None,
        help="Data whose training videos calibrate int8; default: --data, else what the checkpoint was trained on.",
    )
    data: str | None = option(
        default=None,
        help="Data to validate on; default: what the checkpoint was trained on, else --calibrate.",
    )
    weights: str | None = option(
        default=None,
        help="published (of the zoo: fetched), a file of published weights or of a state dict, or random.",
    )
    variant: str = option(default=AUTO, help="Layout of convolutions over time.")
    device: str | None = option(
        default=None, help="Take the layout that is fastest on this device, by the rows of its table with one thread."
    )
    classes: int | None = option(default=None, min=1, max=MAX_SIZE, help="Classes of the head of a network by name.")
    input: str | None = option(
        default=None, help="Clip of a torchvision or own model: NxCxTxHxW such as 1x3x8x112x112."
    )
    span: str | None = option(default=None, help=f"Of a torchvision or own model. {SPAN_HELP}")
    stride: int | None = option(default=None, min=1, help=f"Of a torchvision or own model. {STRIDE_HELP}")
    calibration_clips: int = option(default=32, min=1, help="Training videos to calibrate int8 with, a clip each.")
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
        default=(),
        metavar="TEXT",
        help="Leave this block in fp32 (repeatable); --blocks, without --streaming, prints the names.",
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
        help="Of a streaming file: frames that averages over time remember, those of a clip or more; default: all.",
    )
    seed: int = option(default=0, min=0, help="Of the calibration videos and of random weights.")
    on_error: str = option(default="raise", choices=ON_ERROR, help="Unreadable videos: raise, skip or replace.")
    decoder: str = option(default="pyav", help=DECODER_HELP)
    threads: int | None = option(default=None, min=1, max=MOST_THREADS, help="Threads of torch; default: all cores.")
    made_by: str | None = option(
        default=None, help="Of a checkpoint of your own model: package.module:function, which makes the model."
    )

    def validate(self) -> None:
        """Raises UsageError, or what is more special, where a value is none or fields do not go together."""
        from hwbench.runtimes.executorch.scheme import Scheme

        int8 = self.observer is not None or self.keep_accuracy is not None or self.fp32_block or self.blocks
        if Precision.parse(self.precision) is not Precision.INT8 and int8:
            raise UsageError("--observer, --keep-accuracy, --fp32-block and --blocks go with --precision int8")
        self.check_unread(self.data is not None)
        if self.observer is not None:
            Scheme(self.observer)
        if self.keep_accuracy is not None and self.fp32_block:
            raise InvalidValue("either name the blocks in fp32 (--fp32-block) or let them be chosen (--keep-accuracy)")
        if self.input is not None:
            try:
                clip = TensorSpec.parse(self.input)
            except InvalidValue as error:
                raise InvalidValue(f"--input: {error}") from None
            if (clip.n, clip.c) != (1, 3):
                raise InvalidValue(f"--input: expected one clip of three colours, 1x3xTxHxW, got {clip.key}")
        check_clip(self.span, self.stride)
        if self.memory is not None and not self.streaming:
            raise UsageError("--memory goes with --streaming")
        if self.streaming and self.device is not None:
            raise InvalidValue("--streaming: a stream has one layout, which no table chooses; leave --device out")
        if self.streaming and self.variant != AUTO:
            raise InvalidValue("--streaming: a stream has one layout; leave --variant out")
        check_variant(self.variant)
        chosen_by_device(self.device, self.variant)

    def check_unread(self, validated: bool) -> None:
        """Raises UsageError for what is said of calibration videos where there is no int8 that takes ranges from them.

        Args:
            validated: There are data to validate on beside those of --calibrate.
        """
        if Precision.parse(self.precision) is Precision.INT8:
            return
        unread = enumeration(changed(self, *(("calibrate",) if validated else ()), "calibration_clips"))
        if unread:
            raise UsageError(f"{unread}: only for --precision int8, got {self.precision}; leave {unread} out")

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
            self.weights,
            self.classes,
            clip,
            self.calibrate or self.data,
            self.seed,
            causal=self.streaming,
            span=self.span,
            stride=self.stride,
        )
