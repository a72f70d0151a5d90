"""The blocks of SqueezeTime (Zhai et al. 2024, arXiv 2405.08344): frames become channels, and the rest is 2-D.

Behind the stem every frame of an activation is a picture on its own, mostly the only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import ACTIVATION, IN, KERNEL, MID, OUT, STRIDE, Field, FieldType
from hwbench.specs.kind import BlockKind, BlockRole, expect
from hwbench.specs.kinds.r2plus1d import POOL
from hwbench.specs.operations import Convolution, Operation, Path
from hwbench.specs.tensor import TensorSpec

# So many frames become the channels of one picture.
SQUEEZED_FRAMES = Field("squeezed_frames", "sf", FieldType.COUNT, 1)
# Channels inside the branch between objects; published networks have 16.
INTERACTION = Field("interaction_channels", "ic", FieldType.SIZE, 16)
# Side of the learnt map of positions; published networks for 224 pixels have 56, 28, 14 and 7, by stage.
POSITION = Field("position_size", "ps", FieldType.COUNT, 7)


class SqueezeStemKind(BlockKind):
    """Frames as channels, one convolution with normalisation and activation, and a maximum over 3 x 3 pixels.

    Each ``squeezed_frames`` frames in a row make one picture. ``stride`` is that of the convolution, ``pool`` that of
    the maximum, which is left out where it is 1.
    """

    name = "squeeze-stem"
    fields = (IN, OUT, KERNEL, STRIDE, SQUEEZED_FRAMES, POOL, ACTIVATION)
    role = BlockRole.STEM
    module: ClassVar[str] = "hwbench.blocks.squeezetime:stem"

    def check(self, spec: BlockSpec) -> None:
        over_space = len(spec.kernel) == 1 and spec.kernel[0][0] == 1
        expect(spec, over_space, "one kernel over space, such as 1x5x5: frames are channels")
        expect(spec, spec.number(SQUEEZED_FRAMES.name) > 0, "at least one frame for each picture, as sf16")

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        return _squeezed(spec, x).strided(spec.out_channels, spec.stride).strided(
            spec.out_channels, spec.number(POOL.name)
        )  # fmt: skip

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        yield Convolution(_squeezed(spec, x), spec.out_channels, spec.kernel[0], spec.stride)


class ChannelTimeKind(BlockKind):
    """A bottleneck whose middle is a Channel-Time Learning block, added to its input or to a projection of that.

    Two branches work on what the first pointwise convolution gives. Temporal focus: channels, and so frames, are
    weighted by a gate on their means; then a pointwise convolution. Inter-temporal object interaction: a convolution,
    times a gate of three convolutions with a map of positions between them. The first kernel is that of the branch's
    convolutions, the second the large one inside the gate. With a stride a depthwise convolution of that size and
    stride comes before everything, the shortcut included: rows and columns that are no whole step are left out.

    Source: arXiv 2405.08344, section 3, and the authors' code, which has the depthwise convolution.
    """

    name = "channel-time"
    fields = (IN, MID, OUT, KERNEL, STRIDE, INTERACTION, POSITION, ACTIVATION)
    module: ClassVar[str] = "hwbench.blocks.squeezetime:channel_time"

    def check(self, spec: BlockSpec) -> None:
        over_space = len(spec.kernel) == 2 and {kernel[0] for kernel in spec.kernel} == {1}
        expect(spec, over_space, "two kernels over space, as 1x3x3+1x7x7")
        expect(spec, spec.mid_channels > 0, "the channels inside, as in channel-time_i64_m64_o256_k1x3x3+1x7x7_relu")
        inside = min(spec.number(INTERACTION.name), spec.number(POSITION.name))
        expect(spec, inside > 0, "at least one channel of interaction and one position, as ic16 and ps7")

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        return _whole_steps(spec, x).strided(spec.out_channels, spec.stride)

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Operation]:
        if spec.stride > 1:
            x = _whole_steps(spec, x)
            down = Convolution(x, x.c, (1, spec.stride, spec.stride), spec.stride, groups=x.c)
            yield down
            x = down.output
        mid, (near, far) = spec.mid_channels, spec.kernel
        reduce = Convolution(x, mid)
        yield reduce
        inner = reduce.output
        yield from 2 * (Convolution(inner.with_(h=1, w=1), mid, path=Path.GATE),)
        yield Convolution(inner, mid, path=Path.SIDE)
        yield Convolution(inner, mid, near)
        thin = inner.with_(c=spec.number(INTERACTION.name))
        yield Convolution(inner, thin.c, near, path=Path.GATE)
        yield PositionMap(thin, spec.number(POSITION.name))
        yield Convolution(thin, thin.c, far, path=Path.GATE)
        yield Convolution(thin, mid, near, path=Path.GATE)
        yield Convolution(inner, spec.out_channels)
        if spec.in_channels != spec.out_channels:
            yield Convolution(x, spec.out_channels, path=Path.SIDE)


@dataclass(frozen=True)
class PositionMap:
    """A learnt map that is added to every picture: weights, and no multiply-adds.

    ``size`` is its side; where pictures have another the map is interpolated, once for a file.
    """

    input: TensorSpec
    size: int
    path: Path = Path.GATE
    macs: int = 0
    is_depthwise: bool = False

    @property
    def output(self) -> TensorSpec:
        """Shape after it."""
        return self.input

    @property
    def num_weights(self) -> int:
        """Number of values of the map."""
        return self.input.c * self.size**2


def _squeezed(spec: BlockSpec, x: TensorSpec) -> TensorSpec:
    frames = spec.number(SQUEEZED_FRAMES.name)
    if x.t % frames:
        raise InvalidValue(f"{spec.key} takes clips of {frames} frames, or of a multiple of that, got {x.key}")
    return x.with_(c=frames * x.c, t=x.t // frames)


def _whole_steps(spec: BlockSpec, x: TensorSpec) -> TensorSpec:
    """The part of pictures that strides without padding see."""
    step = spec.stride
    if min(x.h, x.w) < step:
        raise InvalidValue(f"{spec.key} takes pictures of at least {step} x {step}, got {x.key}")
    return x.with_(h=x.h // step * step, w=x.w // step * step)
