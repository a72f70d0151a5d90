"""The mean over a whole clip."""

from __future__ import annotations

from typing import ClassVar

from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import ACTIVATION, GLOBAL, IN, KERNEL, OUT
from hwbench.specs.kind import BlockKind, expect
from hwbench.specs.operations import Convolution
from hwbench.specs.tensor import TensorSpec


class PoolKind(BlockKind):
    """The mean over T, H and W of each channel. It has no multiply-adds and no weights."""

    name = "pool"
    fields = (IN, OUT, KERNEL, ACTIVATION)
    module: ClassVar[str] = "hwbench.blocks.kinds:pool"

    def check(self, spec: BlockSpec) -> None:
        whole = spec.kernel == GLOBAL and spec.in_channels == spec.out_channels
        expect(spec, whole, "kernel global and as many out as in")

    def operations(self, spec: BlockSpec, x: TensorSpec) -> tuple[Convolution, ...]:
        return ()
