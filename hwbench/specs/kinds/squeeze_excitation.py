"""Squeeze-excite on its own (arXiv 1709.01507)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import ACTIVATION, IN, KERNEL, OUT, SE
from hwbench.specs.kind import BlockKind, expect
from hwbench.specs.kinds.x3d import gate
from hwbench.specs.operations import Convolution
from hwbench.specs.tensor import TensorSpec


class SqueezeExcitationKind(BlockKind):
    """Each channel times a gate that two layers compute from the means of all channels."""

    name = "se"
    fields = (IN, OUT, KERNEL, SE, ACTIVATION)
    module: ClassVar[str] = "hwbench.blocks.kinds:squeeze_excitation"

    def check(self, spec: BlockSpec) -> None:
        gated = spec.se_channels > 0 and spec.in_channels == spec.out_channels
        expect(spec, gated, "se_channels and as many out as in")

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        yield from gate(x, spec.se_channels)
