"""The blocks of X3D (arXiv 2004.04730, table 1) and of E3D, which is made of the same ones: stem, bottleneck, head.

E3D (Wang et al., ICLR 2023, arXiv 2303.02693) as its published code lays it out: a stem over space alone, bottlenecks
whose shortcuts have no weights, a hidden layer with a bias.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import (
    ACTIVATION,
    CAUSAL,
    GLOBAL,
    HIDDEN,
    IN,
    KERNEL,
    MID,
    OUT,
    SE,
    STRIDE,
    TEMPORAL_STRIDE,
    Field,
    FieldType,
    Kernel,
)
from hwbench.specs.kind import BlockKind, BlockRole, expect
from hwbench.specs.operations import Convolution, Path
from hwbench.specs.tensor import TensorSpec

STEM_KERNEL: Kernel = ((1, 3, 3), (5, 1, 1))
# That of E3D.
SPATIAL_STEM_KERNEL: Kernel = ((1, 3, 3),)
_DEPTHWISE_KERNELS: tuple[Kernel, ...] = (((3, 3, 3),), ((1, 3, 3),), ((1, 5, 5),), ((1, 3, 3), (3, 1, 1)))
# 1 where a shortcut has no weights: it is the input, or the mean of each 2 x 2 pixels of it where the stride is 2, and
# there is none where the channels change. 0: a convolution makes the shapes equal.
FREE_SHORTCUT = Field("free_shortcut", "fs", FieldType.COUNT, 0)
# 1 where the hidden layer of a head has a bias.
HIDDEN_BIAS = Field("hidden_bias", "hb", FieldType.COUNT, 0)


class X3dStemKind(BlockKind):
    """A convolution over space with stride 2, then a depthwise one over time; ``causal``: over the past alone.

    With the kernel 1x3x3 there is none over time.
    """

    name = "stem"
    fields = (IN, OUT, KERNEL, STRIDE, CAUSAL, ACTIVATION)
    role = BlockRole.STEM
    module: ClassVar[str] = "hwbench.blocks.kinds:x3d_stem"

    def check(self, spec: BlockSpec) -> None:
        kernel = spec.kernel in (STEM_KERNEL, SPATIAL_STEM_KERNEL)
        as_x3d = kernel and spec.stride == 2 and spec.activation == "relu"
        expect(spec, as_x3d, "a stem of kernel 1x3x3+5x1x1 or 1x3x3, stride 2 and activation relu")
        check_causal(spec)

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        spatial, *depthwise = spec.kernel
        first = Convolution(x, spec.out_channels, spatial, spec.stride)
        yield first
        yield from depthwise_chain(first.output, tuple(depthwise), 1)

    def keeps_input(self, spec: BlockSpec) -> bool:
        return False


class X3dKind(BlockKind):
    """Pointwise, depthwise, squeeze-excite, activation, pointwise, added to the input.

    Of what the depthwise convolution gives every ``temporal_stride``-th frame goes on. Where its kernel does not extend
    over time, the other frames are not computed at all.

    A ``causal`` one looks at no frame to come: its kernel reads the past, its squeeze-excite weights a frame by the
    mean of that frame and all before it.

    With ``free_shortcut`` the input is added as far as that takes no weights, as in E3D. A block that changes the
    number of channels then has no shortcut at all.
    """

    name = "x3d"
    fields = (IN, MID, OUT, KERNEL, STRIDE, SE, TEMPORAL_STRIDE, CAUSAL, FREE_SHORTCUT, ACTIVATION)
    module: ClassVar[str] = "hwbench.blocks.kinds:x3d_bottleneck"

    def check(self, spec: BlockSpec) -> None:
        expect(spec, spec.mid_channels > 0, "the channels inside, as in x3d_i24_m54_o24_k3x3x3_swish")
        expect(spec, spec.kernel in _DEPTHWISE_KERNELS, "the kernel 3x3x3, 1x3x3, 1x5x5 or 1x3x3+3x1x1")
        check_causal(spec)
        free = spec.number(FREE_SHORTCUT.name)
        expect(spec, free in (0, 1), "fs1 for a shortcut without weights, or no fs at all")
        steps = spec.stride in (1, 2) and spec.number(TEMPORAL_STRIDE.name) == 1
        expect(spec, not free or steps, "a stride of 1 or 2 and every frame, where a shortcut has no weights (fs1)")

    def output(self, spec: BlockSpec, x: TensorSpec) -> TensorSpec:
        return x.strided(spec.out_channels, spec.stride, spec.number(TEMPORAL_STRIDE.name))

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        step = spec.number(TEMPORAL_STRIDE.name)
        kept = x.strided(x.c, 1, step)
        expand = Convolution(x if extends_over_time(spec.kernel) else kept, spec.mid_channels)
        yield expand
        inner = expand.output
        for convolution in depthwise_chain(inner, spec.kernel, spec.stride):
            yield convolution
            inner = convolution.output
        inner = inner.with_(t=kept.t)
        if spec.se_channels:
            yield from gate(inner, spec.se_channels)
        yield Convolution(inner, spec.out_channels)
        changes = spec.stride != 1 or step != 1 or spec.in_channels != spec.out_channels
        if changes and not spec.number(FREE_SHORTCUT.name):
            yield Convolution(kept, spec.out_channels, stride=spec.stride, path=Path.SIDE)

    def keeps_input(self, spec: BlockSpec) -> bool:
        return not spec.number(FREE_SHORTCUT.name) or spec.in_channels == spec.out_channels


class X3dHeadKind(BlockKind):
    """Pointwise to the inner width of the last stage, the mean over the clip, a hidden layer, the classifier.

    ``activation`` is the one behind the hidden layer: ReLU in X3D, swish in E3D. The one behind the first convolution
    is ReLU.
    """

    name = "head"
    fields = (IN, MID, HIDDEN, OUT, KERNEL, HIDDEN_BIAS, ACTIVATION)
    role = BlockRole.HEAD
    module: ClassVar[str] = "hwbench.blocks.kinds:x3d_head"

    def check(self, spec: BlockSpec) -> None:
        layers = spec.mid_channels > 0 and spec.hidden_channels > 0
        as_x3d = spec.kernel == GLOBAL and layers and spec.activation in ("relu", "swish")
        expect(spec, as_x3d, "a head such as head_i192_m432_d2048_o400_kglobal_relu")
        expect(spec, spec.number(HIDDEN_BIAS.name) in (0, 1), "hb1 for a hidden layer with a bias, or no hb at all")

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        yield Convolution(x, spec.mid_channels)
        pooled = TensorSpec(x.n, spec.mid_channels, 1, 1, 1)
        yield Convolution(pooled, spec.hidden_channels)
        yield Convolution(pooled.with_(c=spec.hidden_channels), spec.out_channels)

    def keeps_input(self, spec: BlockSpec) -> bool:
        return False


def check_causal(spec: BlockSpec) -> None:
    """Whether ``causal`` is 0 or 1.

    Raises:
        UnsupportedModule: It is neither.
    """
    expect(spec, spec.number(CAUSAL.name) in (0, 1), "ca1 for a causal block, or no ca at all")


def extends_over_time(kernel: Kernel) -> bool:
    """Whether an output frame depends on more than one input frame."""
    return any(extents[0] > 1 for extents in kernel)


def depthwise_chain(x: TensorSpec, kernels: Kernel, stride: int) -> Iterator[Convolution]:
    """Depthwise convolutions one after the other; the first takes the stride."""
    for index, kernel in enumerate(kernels):
        convolution = Convolution(x, x.c, kernel, 1 if index else stride, groups=x.c)
        yield convolution
        x = convolution.output


def gate(x: TensorSpec, reduced: int) -> Iterator[Convolution]:
    """The two layers of a squeeze-excite on the mean of ``x`` over T, H and W."""
    pooled = x.with_(t=1, h=1, w=1)
    yield Convolution(pooled, reduced, path=Path.GATE)
    yield Convolution(pooled.with_(c=reduced), x.c, path=Path.GATE)
