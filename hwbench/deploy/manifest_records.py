"""The records that a manifest is made of: the input of a file, its weights, and what its checks found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hwbench.data import ClipSpec, Normalisation, PictureSpec, Resize
from hwbench.data.transforms import PICTURE
from hwbench.specs import BlockSpec, Network, Precision, TensorSpec
from hwbench.specs.tensor import CLIP_CHANNELS

if TYPE_CHECKING:
    from hwbench.deploy.external import ForeignNetwork

LAYOUT = "frames as batch (T,3,H,W) float32"
STREAM_LAYOUT = "one frame (1,3,H,W) float32, in memory H,W,3"
AXES = ("frame of the clip, first to last", "colour: R, G, B", "row, top to bottom", "column, left to right")
RESIZE = (
    "the largest centred box of the shape H:W in the frame, resized to HxW (bilinear, antialiased), before normalising"
)
# The same where frames are scaled first: for a square picture, and for one whose shape says which side counts.
SHORT_SIDE = "the frame scaled so that its shorter side has {side} pixels, the longer one rounded down, {filter}, and "
COVERING = (
    "the frame scaled, in its own shape, until it just covers {height} x {width} pixels (height x width), the side "
    "that is longer than that rounded down, {filter}, and "
)
CENTRE = "the centred HxW of it, before normalising"
FLOW_AXES = (AXES[0], "optical flow to the next frame: to the right, down", *AXES[2:])
VALUES = "(pixel / value_scale - mean) / std per colour, pixels 0 to value_scale"
# Before what nothing tells of the clips of a model from elsewhere.
ASSUMED_VALUES = "; assumed, as the model does not tell: "
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
        assumed: Sequence[str] = (),
    ) -> InputForm:
        """The input of a network; with ``STREAM_LAYOUT`` one frame. ``values`` ends with what is ``assumed`` of it."""
        mean, std, shape = normalisation.mean, normalisation.std, network.input.folded
        if layout == STREAM_LAYOUT:
            shape = (1, *shape[1:])
        axes, values = (AXES, VALUES)
        if len(mean) != CLIP_CHANNELS:
            axes, values = (FLOW_AXES, FLOW_VALUES)
            layout = layout.replace(f",{CLIP_CHANNELS},", f",{len(mean)},")
        if assumed:
            values += ASSUMED_VALUES + ", ".join(assumed)
        return cls(layout, shape, axes, clip, resize_text(picture, shape[2:]), values, 255.0, mean, std)


def resize_text(picture: PictureSpec, size: tuple[int, int]) -> str:
    """How a frame becomes a picture of the size (H, W), in words."""
    antialias = "bilinear, antialiased" if picture.resize.antialias else "bilinear, not antialiased"
    if picture.resize is not Resize.BOX:
        height, width = (round(side * picture.test_scale) for side in size)
        if size[0] == size[1]:
            return SHORT_SIDE.format(side=height, filter=antialias) + CENTRE
        return COVERING.format(height=height, width=width, filter=antialias) + CENTRE
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

    def precision_of(self, block: str) -> Precision:
        """Precision of a block in the file: fp32 where it, or a module that it is part of, stayed so."""
        kept = any(block == name or block.startswith(f"{name}.") for name in self.fp32_blocks)
        return Precision.FP32 if kept else Precision.INT8


@dataclass(frozen=True)
class ParityRecord:
    """How far the file's logits are from those of the original module in eager fp32, over ``inputs`` clips.

    After quantisation-aware training the original is the fp32 network that it started from.

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
        centred_sqnr_db: As ``sqnr_db`` of logits without their means over the clips: what both say of one clip and not
            of all. A file that answers every clip alike is at 0 or below. None, as the two below, for one clip, and in
            files of before.
        variation_db: ``10 log10`` of the power of the original's logits about these means over their whole power;
            -20: the clips change a tenth of the logits.
        file_variation_db: Power of the file's logits about their means, over the whole power of the original's.
        top1_classes: Number of classes that are the original's highest logit for any of the clips; with 1 neither
            ``same_top1`` nor a top-1 proves anything. None in files of before.
        reasons: Why the clips prove little, in words; none where they prove what they should.
        rounding_sqnr_db: As ``sqnr_db``, against the network with the rounding of int8 that quantisation-aware training
            made. None, and no key of the file, without such training and in files of before.
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
    centred_sqnr_db: float | None = None
    variation_db: float | None = None
    file_variation_db: float | None = None
    top1_classes: int | None = None
    reasons: tuple[str, ...] = ()
    rounding_sqnr_db: float | None = None


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
    it before the first frame; ``dtype`` the type of its numbers, ``float32``, ``float16`` or
    ``int8``.
    """

    name: str
    shape: tuple[int, int, int, int]
    memory: str
    initial: float
    dtype: str = "float32"


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

    @property
    def state_bytes(self) -> int:
        """Size of one set of states in memory."""
        return sum(_BYTES[state.dtype] * math.prod(state.shape) for state in self.states)


# Bytes of a number of a state.
_BYTES = {"float32": 4, "float16": 2, "int8": 1}
