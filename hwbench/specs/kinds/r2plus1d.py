"""The blocks of R(2+1)D (Tran et al. 2018, arXiv 1711.11248) as PyTorchVideo lays them out: stem, bottleneck, head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import ACTIVATION, GLOBAL, IN, KERNEL, MID, OUT, STRIDE, TEMPORAL_STRIDE, Field, FieldType
from hwbench.specs.kind import BlockKind, BlockRole, expect
from hwbench.specs.operations import Convolution, Path
from hwbench.specs.tensor import TensorSpec

# Stride of a pooling behind a stem, the largest value of each 3 x 3 pixels; 1: there is none.
POOL = Field("pool", "p", FieldType.COUNT, 1)


class ResnetStemKind(BlockKind):
    """One convolution with normalisation and activation, and a maximum over 3 x 3 pixels where ``pool`` is more than 1.

    ``stride`` is that of the convolution, ``pool`` that of the maximum; both are spatial.
    """

    name = "resnet-stem"
    fields = (IN, OUT, KERNEL, STRIDE, POOL, ACTIVATION)
    role = BlockRole.STEM
    module: ClassVar[str] = "hwbench.blocks.resnet:stem"

    def check(self, spec: BlockSpec) -> None:
        expect(spec, len(spec.kernel) == 1, "one kernel, such as 1x7x7")

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        return x.strided(spec.out_channels, spec.stride).strided(spec.out_channels, spec.number(POOL.name))

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        yield Convolution(x, spec.out_channels, spec.kernel[0], spec.stride)


class R2plus1dKind(BlockKind):
    """Pointwise, a convolution over time and then one over space, pointwise, added to the input.

    The first kernel takes the step over frames (``temporal_stride``), the second the spatial stride.
    """

    name = "r2plus1d"
    fields = (IN, MID, OUT, KERNEL, STRIDE, TEMPORAL_STRIDE, ACTIVATION)
    shortcut_first = True
    module: ClassVar[str] = "hwbench.blocks.resnet:r2plus1d_bottleneck"

    def check(self, spec: BlockSpec) -> None:
        time_then_space = len(spec.kernel) == 2 and spec.kernel[0][1:] == (1, 1) and spec.kernel[1][0] == 1
        expect(spec, time_then_space, "a kernel over time and one over space, as 3x1x1+1x3x3")
        expect(spec, spec.mid_channels > 0, "the channels inside, as in r2plus1d_i64_m64_o256_k3x1x1+1x3x3_relu")

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        return x.strided(spec.out_channels, spec.stride, spec.number(TEMPORAL_STRIDE.name))

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        step, (over_time, over_space) = spec.number(TEMPORAL_STRIDE.name), spec.kernel
        reduce = Convolution(x, spec.mid_channels)
        temporal = Convolution(reduce.output, spec.mid_channels, over_time, temporal_stride=step)
        spatial = Convolution(temporal.output, spec.mid_channels, over_space, spec.stride)
        yield from (reduce, temporal, spatial, Convolution(spatial.output, spec.out_channels))
        if spec.stride != 1 or step != 1 or spec.in_channels != spec.out_channels:
            yield Convolution(x, spec.out_channels, stride=spec.stride, path=Path.SIDE, temporal_stride=step)


class PoolHeadKind(BlockKind):
    """The mean over the clip, then the classifier."""

    name = "pool-head"
    fields = (IN, OUT, KERNEL, ACTIVATION)
    role = BlockRole.HEAD
    module: ClassVar[str] = "hwbench.blocks.resnet:pool_head"

    def check(self, spec: BlockSpec) -> None:
        plain = spec.kernel == GLOBAL and spec.activation == "identity"
        expect(spec, plain, "a head such as pool-head_i2048_o400_kglobal_identity")

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        yield Convolution(x.with_(t=1, h=1, w=1), spec.out_channels)
