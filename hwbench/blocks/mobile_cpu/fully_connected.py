"""The last layer."""

from __future__ import annotations

from torch import nn

from hwbench.blocks.mobile_cpu.no_op import NoOpConvertBlock


class FullyConnected(NoOpConvertBlock):
    """``nn.Linear`` on the last axis, in both forms."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(nn.Linear(in_features, out_features, bias=bias))
