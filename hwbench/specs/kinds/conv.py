"""One convolution with its normalisation and activation, in the forms that efficient blocks have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hwbench.specs.block import BlockSpec
from hwbench.specs.fields import ACTIVATION, GROUPS, IN, KERNEL, OUT, STRIDE
from hwbench.specs.kind import BlockKind, expect
from hwbench.specs.operations import Convolution
from hwbench.specs.tensor import TensorSpec


class ConvKind(BlockKind):
    """1x1x1, 1xkxk, 3x1x1, 5x1x1, or depthwise 3x3x3."""

    name = "conv"
    fields = (IN, OUT, KERNEL, STRIDE, GROUPS, ACTIVATION)
    module: ClassVar[str] = "hwbench.blocks.kinds:conv"

    def check(self, spec: BlockSpec) -> None:
        expect(spec, len(spec.kernel) == 1, "one kernel")
        (t, h, w), plain = spec.kernel[0], spec.stride == 1
        depthwise = spec.groups == spec.in_channels == spec.out_channels
        over_time = (h, w) == (1, 1) and t in (3, 5) and plain
        offered = over_time or (t == 1 and h == w) or ((t, h, w) == (3, 3, 3) and depthwise)
        expect(spec, offered, "1x1x1, 1xkxk, 3x1x1, 5x1x1 or depthwise 3x3x3")

    def operations(self, spec: BlockSpec, x: TensorSpec) -> Iterator[Convolution]:
        for index, kernel in enumerate(spec.kernel):
            convolution = Convolution(x, spec.out_channels, kernel, 1 if index else spec.stride, spec.groups)
            yield convolution
            x = convolution.output
