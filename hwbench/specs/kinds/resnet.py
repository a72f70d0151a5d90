"""The blocks that C2D, I3D, Slow, CSN and both pathways of SlowFast are made of, beside a stem and a head.

Sources: He et al. 2016 (arXiv 1512.03385), table 1; Non-local networks (arXiv 1711.07971), section 4, for C2D and I3D;
SlowFast (arXiv 1812.03982), table 1; CSN (arXiv 1904.02811), section 3; all as PyTorchVideo lays them out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import ACTIVATION, GROUPS, IN, KERNEL, MID, OUT, STRIDE, TEMPORAL_STRIDE
from hwbench.specs.kind import BlockKind, expect
from hwbench.specs.operations import POINT, Convolution, Path
from hwbench.specs.tensor import TensorSpec


class BottleneckKind(BlockKind):
    """A convolution that narrows, over time or pointwise; one over space, or over both; a pointwise one that widens.

    The second convolution takes the spatial stride and has the groups. The step over frames (``temporal_stride``) is
    taken by it where its kernel spans frames, as in CSN, else by the first one.
    """

    name = "bottleneck"
    fields = (IN, MID, OUT, KERNEL, STRIDE, GROUPS, TEMPORAL_STRIDE, ACTIVATION)
    shortcut_first = True
    module: ClassVar[str] = "hwbench.blocks.resnet:bottleneck"

    def check(self, spec: BlockSpec) -> None:
        over_time_first = len(spec.kernel) == 2 and spec.kernel[0][1:] == (1, 1)
        expect(spec, over_time_first, "a pointwise kernel or one over time, then any, as 3x1x1+1x3x3 or 1x1x1+3x3x3")
        whole = spec.mid_channels > 0 and spec.mid_channels % spec.groups == 0
        expect(spec, whole, "channels inside that its groups divide, as in bottleneck_i64_m64_o256_k1x1x1+1x3x3_relu")

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        return x.strided(spec.out_channels, spec.stride, spec.number(TEMPORAL_STRIDE.name))

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        first, second = frame_steps(spec)
        reduce = Convolution(x, spec.mid_channels, spec.kernel[0], temporal_stride=first)
        inner = Convolution(
            reduce.output, spec.mid_channels, spec.kernel[1], spec.stride, spec.groups, temporal_stride=second
        )
        yield from (reduce, inner, Convolution(inner.output, spec.out_channels))
        if has_projection(spec):
            step = first * second
            yield Convolution(x, spec.out_channels, POINT, spec.stride, path=Path.SIDE, temporal_stride=step)


class FramePoolKind(BlockKind):
    """The largest value of each ``temporal_stride`` frames in a row, which makes one frame of them.

    Frames at the end that are no whole group are left out, as in PyTorchVideo; fewer frames than a group are one group.
    """

    name = "frame-pool"
    fields = (IN, OUT, KERNEL, TEMPORAL_STRIDE, ACTIVATION)
    module: ClassVar[str] = "hwbench.blocks.resnet:frame_pool"

    def check(self, spec: BlockSpec) -> None:
        plain = spec.in_channels == spec.out_channels and spec.kernel == (POINT,) and spec.activation == "identity"
        expect(spec, plain, "a pool such as frame-pool_i256_o256_k1x1x1_ts2_identity")

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        return x.with_(t=max(x.t // spec.number(TEMPORAL_STRIDE.name), 1))

    def operations(self, spec: BlockSpec, x: TensorSpec) -> tuple[Convolution, ...]:
        """None: values are compared."""
        return ()


def frame_steps(spec: BlockSpec) -> tuple[int, int]:
    """The step over frames of the first and of the second convolution of a bottleneck."""
    step = spec.number(TEMPORAL_STRIDE.name)
    return (1, step) if spec.kernel[1][0] > 1 else (step, 1)


def has_projection(spec: BlockSpec) -> bool:
    """Whether the shortcut of a bottleneck is a convolution: something of the shape changes."""
    return spec.in_channels != spec.out_channels or (spec.stride, spec.number(TEMPORAL_STRIDE.name)) != (1, 1)
