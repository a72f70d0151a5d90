"""Blocks on a pair of pathways, slow and fast (SlowFast, Feichtenhofer et al. 2019, arXiv 1812.03982, section 3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import ACTIVATION, GLOBAL, IN, KERNEL, OUT, Field, FieldType
from hwbench.specs.kind import BlockKind, BlockRole, expect
from hwbench.specs.operations import Convolution
from hwbench.specs.tensor import TensorSpec

# The fast pathway has so many frames for each of the slow one.
ALPHA = Field("alpha", "al", FieldType.COUNT, 1)
FAST = Field("fast_channels", "fc", FieldType.SIZE, 0)


class PathwaySplitKind(BlockKind):
    """A clip as two: every ``alpha``-th frame of it, and all of it."""

    name = "pathway-split"
    fields = (IN, OUT, KERNEL, ALPHA, ACTIVATION)
    role = BlockRole.STEM
    module: ClassVar[str] = "hwbench.blocks.pathways:split"
    gives = 2

    def check(self, spec: BlockSpec) -> None:
        expect(spec, spec.in_channels == spec.out_channels, "as many channels out as in")

    def outputs(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        (x,) = pathways
        return x.with_(t=-(-x.t // spec.number(ALPHA.name))), x

    def operations_on(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> Iterator[Convolution]:
        """None: frames are picked."""
        yield from ()


class PathwayFuseKind(BlockKind):
    """A lateral connection: a convolution over time from fast to slow, whose channels are put behind the slow ones."""

    name = "pathway-fuse"
    fields = (IN, OUT, KERNEL, ALPHA, FAST, ACTIVATION)
    module: ClassVar[str] = "hwbench.blocks.pathways:fuse"
    takes = gives = 2

    def check(self, spec: BlockSpec) -> None:
        over_time = len(spec.kernel) == 1 and spec.kernel[0][1:] == (1, 1)
        expect(spec, over_time, "one kernel over time, such as 5x1x1")
        expect(spec, spec.number(FAST.name) > 0, "the channels of the fast pathway, as fc8")
        expect(spec, spec.out_channels > spec.in_channels, "more channels out than in: those that are fused")

    def outputs(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        slow, fast = pathways
        fused = _lateral(spec, fast).output
        if fast.c != spec.number(FAST.name) or fused.with_(c=slow.c) != slow:
            raise InvalidValue(
                f"{spec.key} takes {spec.number(FAST.name)} fast channels, with {spec.number(ALPHA.name)} frames for "
                f"each slow one, got {slow.key} and {fast.key}"
            )
        return slow.with_(c=spec.out_channels), fast

    def operations_on(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> Iterator[Convolution]:
        yield _lateral(spec, pathways[1])


class PathwayHeadKind(BlockKind):
    """The mean of each pathway over its clip, side by side, then the classifier."""

    name = "pathway-head"
    fields = (IN, OUT, KERNEL, FAST, ACTIVATION)
    role = BlockRole.HEAD
    module: ClassVar[str] = "hwbench.blocks.pathways:head"
    takes = 2

    def check(self, spec: BlockSpec) -> None:
        plain = spec.kernel == GLOBAL and spec.activation == "identity" and spec.number(FAST.name) > 0
        expect(spec, plain, "a head such as pathway-head_i256_o400_kglobal_fc32_identity")

    def outputs(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        slow, fast = pathways
        if fast.c != spec.number(FAST.name):
            raise InvalidValue(f"{spec.key} takes {spec.number(FAST.name)} fast channels, got {fast.key}")
        return (TensorSpec(slow.n, spec.out_channels, 1, 1, 1),)

    def operations_on(self, spec: BlockSpec, pathways: tuple[TensorSpec, ...]) -> Iterator[Convolution]:
        slow, fast = pathways
        yield Convolution(TensorSpec(slow.n, slow.c + fast.c, 1, 1, 1), spec.out_channels)


def _lateral(spec: BlockSpec, fast: TensorSpec) -> Convolution:
    fused = spec.out_channels - spec.in_channels
    return Convolution(fast, fused, spec.kernel[0], temporal_stride=spec.number(ALPHA.name))
