"""What stands beside a deployed model: everything needed to feed it, read its answer and judge it.

``manifest.json`` is one JSON object, the fields of ``Manifest`` by name. It is read strictly, and only together with
the file that it describes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.data import ClipSpec, Normalisation, PictureSpec, Resize
from hwbench.data.transforms import PICTURE
from hwbench.deploy.atomic_export import settle
from hwbench.deploy.file_names import MANIFEST, model_name
from hwbench.deploy.records import from_plain, to_plain
from hwbench.documents import read_json
from hwbench.errors import InvalidFile, InvalidValue, UnknownName
from hwbench.measure.cache import file_sha256
from hwbench.runtimes import check_given
from hwbench.specs import BlockSpec, DelegationReport, Network, Precision, TensorSpec
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.workspace import write_text

if TYPE_CHECKING:
    from hwbench.deploy.external import ForeignNetwork

SCHEMA = 2

LAYOUT = "frames as batch (T,3,H,W) float32"
STREAM_LAYOUT = "one frame (1,3,H,W) float32, in memory H,W,3"
AXES = ("frame of the clip, first to last", "colour: R, G, B", "row, top to bottom", "column, left to right")
RESIZE = (
    "the largest centred box of the shape H:W in the frame, resized to HxW (bilinear, antialiased), before normalising"
)
# The same where frames are scaled first.
SHORT_SIDE = "the frame scaled so that its shorter side has {side} pixels, the longer one rounded down, {filter}, and "
CENTRE = "the centred HxW of it, before normalising"
FLOW_AXES = (AXES[0], "optical flow to the next frame: to the right, down", *AXES[2:])
VALUES = "(pixel / value_scale - mean) / std per colour, pixels 0 to value_scale"
FLOW_VALUES = (
    "(code / value_scale - mean) / std per direction, codes 0 to value_scale of -range to range pixels of the video as "
    "hwbench.data.flow has them (20 unless its files say another)"
)
OUTPUT = "logits (1, classes) float32 in the order of labels"


@dataclass(frozen=True)
class NetworkRecord:
    """A ``Network`` in texts: its name, the keys of its blocks and of its input (N, C, T, H, W).

    A model from elsewhere has no blocks.
    """

    name: str
    blocks: tuple[str, ...]
    input: str

    @classmethod
    def of(cls, network: Network | ForeignNetwork) -> NetworkRecord:
        """The record of a network."""
        return cls(network.name, tuple(block.key for block in network.blocks), network.input.key)

    def network(self) -> Network:
        """The network that was recorded."""
        blocks = tuple(BlockSpec.parse(key) for key in self.blocks)
        return Network(self.name, blocks, TensorSpec.parse(self.input))


@dataclass(frozen=True)
class InputForm:
    """How a video becomes the input of the file; ``clip`` says which frames are taken."""

    layout: str
    shape: tuple[int, int, int, int]
    axes: tuple[str, str, str, str]
    clip: ClipSpec
    resize: str
    values: str
    value_scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(
        cls,
        network: Network | ForeignNetwork,
        clip: ClipSpec,
        normalisation: Normalisation,
        picture: PictureSpec = PICTURE,
        *,
        layout: str = LAYOUT,
    ) -> InputForm:
        """The input of a network of this package; with ``STREAM_LAYOUT`` one frame."""
        mean, std, shape = normalisation.mean, normalisation.std, network.input.folded
        if layout == STREAM_LAYOUT:
            shape = (1, *shape[1:])
        axes, values = (AXES, VALUES) if len(mean) == CLIP_CHANNELS else (FLOW_AXES, FLOW_VALUES)
        return cls(layout, shape, axes, clip, resize_text(picture, shape[2:]), values, 255.0, mean, std)


def resize_text(picture: PictureSpec, size: tuple[int, int]) -> str:
    """How a frame becomes a picture of the size (H, W), in words."""
    antialias = "bilinear, antialiased" if picture.resize.antialias else "bilinear, not antialiased"
    if picture.resize is not Resize.BOX:
        side = round(min(size) * picture.test_scale)
        return SHORT_SIDE.format(side=side, filter=antialias) + CENTRE
    if picture.test_scale == 1:
        return RESIZE
    return (
        f"the largest centred box of the shape H:W in the frame, divided by {picture.test_scale:g}, resized to HxW "
        f"({antialias}), before normalising"
    )


@dataclass(frozen=True)
class WeightsOrigin:
    """Where weights come from.

    ``kind`` is ``checkpoint`` (digest of the file, and its recipe), ``random`` (the seed), ``published:FORM`` with
    a form of ``hwbench.models.weights`` (digest of the file; class names are not known), ``file`` (digest of a state
    dict), or ``made`` (a model came with them).
    """

    kind: str
    sha256: str | None = None
    recipe: Mapping[str, object] | None = None
    seed: int | None = None

    @property
    def trained(self) -> bool:
        """Whether an accuracy means anything."""
        return self.kind != "random"


@dataclass(frozen=True)
class CalibrationRecord:
    """Clips that the ranges of int8 activations were taken from."""

    source: str
    split: str
    clips: int
    seed: int


@dataclass(frozen=True)
class BlockQuality:
    """What int8 does to one block, on a few calibration clips in eager PyTorch; both at most 150.

    Attributes:
        name: The module in the deploy form.
        sqnr_db: Of the block's output with all blocks in int8, against fp32: noise of the blocks before it included.
        alone_db: Of the logits with this block alone in int8; the lowest is the most sensitive.
    """

    name: str
    sqnr_db: float
    alone_db: float


@dataclass(frozen=True)
class CostRecord:
    """Median latencies in milliseconds, on one thread of a device, of two files in turns in the same run.

    Attributes:
        device: Its name.
        int8_ms: Of the file with every block in int8.
        mixed_ms: Of this file.
        reason: Why there are none.
    """

    device: str | None
    int8_ms: float | None
    mixed_ms: float | None
    reason: str | None = None

    @property
    def difference_ms(self) -> float | None:
        """Milliseconds that the blocks in fp32 add."""
        return None if self.mixed_ms is None or self.int8_ms is None else self.mixed_ms - self.int8_ms


@dataclass(frozen=True)
class QuantizationRecord:
    """How the file became int8.

    Attributes:
        method: ``ptq`` (after training, from calibration clips) or ``qat`` (trained with the rounding in it).
        observer: How ranges were found after training; None for ``qat``, and where that is the runtime's matter.
        fp32_blocks: Blocks that stayed in fp32.
        blocks: What int8 does to each block; empty where that was not looked at.
        max_loss: Top-1 that was allowed to be lost (share); None where no limit was given.
        top1_int8: Top-1 with every block in int8, in eager PyTorch; None where no limit was given.
        cost: What the blocks in fp32 cost; None where there are none.
        observers: Observer -> SQNR in dB of the logits in eager PyTorch, of those that were compared to choose one.
            Empty, and no key of the file, where the one was asked for.
    """

    method: str
    observer: str | None
    fp32_blocks: tuple[str, ...] = ()
    blocks: tuple[BlockQuality, ...] = ()
    max_loss: float | None = None
    top1_int8: float | None = None
    cost: CostRecord | None = None
    observers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ParityRecord:
    """How far the file's logits are from those of the original module in eager fp32, over ``inputs`` clips.

    Attributes:
        source: Where the clips come from.
        inputs: Number of clips (views, where a video has several).
        deploy_form_error: Largest absolute difference of the deploy form in eager fp32, before any lowering, on the
            first clip, as a share of the largest logit.
        fp64_error: The same in double precision, where only a wrong rewrite shows; None in files of before.
        max_abs_error: Largest absolute difference of the file.
        mean_abs_error: Mean absolute difference of the file; None in files of before.
        max_relative_error: The same as a share of the largest absolute logit of all clips.
        sqnr_db: ``10 log10(sum of squared logits / sum of squared differences)`` over all clips; at most 150, which is
            where float32 ends.
        same_top1: Share of clips for which both have the same highest logit.
    """

    source: str
    inputs: int
    deploy_form_error: float
    fp64_error: float | None
    max_abs_error: float
    mean_abs_error: float | None
    max_relative_error: float
    sqnr_db: float
    same_top1: float


@dataclass(frozen=True)
class Accuracy:
    """Top-1 (shares) of the original module and of the file on the same videos; None with the ``reason``.

    After quantisation-aware training ``top1_before`` is that of the fp32 network it started from. With published
    weights ``reason`` says whose class names were taken for those of the logits. Where videos may show several classes
    a video counts whose highest score is one of them, and the mean average precision of both is there, too.
    """

    top1_before: float | None
    top1_after: float | None
    videos: int
    views: int
    source: str | None
    reason: str | None = None
    mean_ap_before: float | None = None
    mean_ap_after: float | None = None


@dataclass(frozen=True)
class StateRecord:
    """One state of a stream: an input, and the output of the same number, which is that input of the next frame.

    ``memory`` names the order of its axes in memory, outermost first: ``NHWC`` or ``NCHW``; ``initial``: every value of
    it before the first frame.
    """

    name: str
    shape: tuple[int, int, int, int]
    memory: str
    initial: float


@dataclass(frozen=True)
class StreamRecord:
    """What a file that takes one new frame keeps of the past.

    Attributes:
        states: Inputs 1, 2, ... behind the frame, and outputs 1, 2, ... behind the logits, in this order.
        remembers: Frames that averages over time remember; None: all since the states were zeros.
        checked_frames: Frames after which the states began anew while the file was compared with the original.
    """

    states: tuple[StateRecord, ...]
    remembers: int | None
    checked_frames: int


@dataclass(frozen=True)
class Manifest:
    """The contents of ``manifest.json``.

    Attributes:
        schema: Number of this form.
        sha256: Digest of the model file; ``bytes`` is its size.
        precision: Of the arithmetic inside; input and output are float32 always.
        runtime: What runs the file, in the version of ``versions``.
        variant: Layout of temporal convolutions.
        labels: Class names in the order of the logits; empty where weights are random, or published without names.
        versions: Package -> version that made the file, and Python's.
        calibration: Where ranges of activations come from; None in fp32 and after quantisation-aware training.
        quantization: How it became int8; None in fp32.
        stream: Of a file that takes one new frame at a time; else None, and no key of the file.
    """

    schema: int
    sha256: str
    bytes: int
    precision: Precision
    runtime: str
    runtime_version: str
    variant: str
    architecture: NetworkRecord
    weights: WeightsOrigin
    input: InputForm
    output: str
    labels: tuple[str, ...]
    versions: Mapping[str, str]
    delegation: DelegationReport
    parity: ParityRecord
    accuracy: Accuracy
    calibration: CalibrationRecord | None
    quantization: QuantizationRecord | None
    stream: StreamRecord | None = None

    def write(self, path: Path) -> None:
        """Writes the file, all of it or nothing."""
        values = to_plain(self)
        values["input"]["clip"] = self.input.clip.to_plain()  # without what was added later and says nothing
        if self.quantization is not None and not self.quantization.observers:
            del values["quantization"]["observers"]  # as in files of before, which anybody reads
        if self.stream is None:
            del values["stream"]
        for name in _PRECISIONS:
            if values["accuracy"][name] is None:
                del values["accuracy"][name]
        write_text(path, json.dumps(values, indent=2, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads what ``write`` wrote.

        Raises:
            InvalidFile: No such file, no JSON, another schema, unknown or missing keys, or a value that does not fit.
        """
        try:
            values = read_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InvalidFile(
                f"no {path}: expected a model that hwbench export wrote, with its {path.name} beside it"
            ) from None
        except (OSError, ValueError) as error:
            raise InvalidFile(f"{path}: cannot be read as JSON: {error}; export the model again") from None
        if isinstance(values, dict) and values.get("schema", SCHEMA) not in (1, SCHEMA):
            raise InvalidFile(
                f"{path}: expected schema {SCHEMA}, got {values['schema']!r}; update hwbench or export the model again"
            )
        try:
            return from_plain(cls, _updated(values))
        except InvalidValue as error:
            raise InvalidFile(f"{path}: {error}; export the model again") from None


# Keys of ``accuracy`` where videos may show several classes.
_PRECISIONS = ("mean_ap_before", "mean_ap_after")


def _updated(values: Any) -> Any:
    """The contents of a file of schema 1, or without the keys that may be left out, as of today."""
    if isinstance(values, dict):
        values = {"stream": None, **values}
    if isinstance(values, dict) and isinstance(values.get("quantization"), dict):
        values = {**values, "quantization": {"observers": {}, **values["quantization"]}}
    if isinstance(values, dict) and isinstance(values.get("accuracy"), dict):
        values = {**values, "accuracy": {**dict.fromkeys(_PRECISIONS), **values["accuracy"]}}
    if isinstance(values, dict) and isinstance(values.get("input"), dict):
        form = values["input"]
        if isinstance(form.get("clip"), dict):
            added = {"convention": "hwbench", "target_fps": None}
            values = {**values, "input": {**form, "clip": {**added, **form["clip"]}}}
    if not isinstance(values, dict) or values.get("schema") != 1 or not isinstance(values.get("parity"), dict):
        return values
    quantization = (
        to_plain(QuantizationRecord("ptq", "histogram")) if values.get("precision") == Precision.INT8 else None
    )
    parity = {"fp64_error": None, "mean_abs_error": None, **values["parity"]}
    return {"quantization": quantization, **values, "schema": SCHEMA, "parity": parity}


@dataclass(frozen=True)
class DeployedModel:
    """A file that was checked, and what is known of it."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, folder: Path) -> DeployedModel:
        """Reads an exported folder.

        Raises:
            InvalidFile: A file is missing or damaged, or the two do not belong together.
        """
        if not (folder / MANIFEST).exists():
            settle(folder)
        manifest = Manifest.read(folder / MANIFEST)
        try:
            path = folder / model_name(manifest.runtime)
        except UnknownName as error:
            raise InvalidFile(f"{folder / MANIFEST}: {error}; export the model again") from None
        check_given(manifest.runtime, path)
        if not path.is_file() or file_sha256(path) != manifest.sha256:
            raise InvalidFile(f"{path} is not the file that {MANIFEST} describes (sha256); export it again")
        return cls(path, manifest)
