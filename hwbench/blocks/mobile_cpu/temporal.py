"""Convolutions over time and space with frames as batch, exactly.

A 3-D convolution with zero padding is a sum over its temporal taps (``taps``), which the variants (``layouts``) lay out
differently. Two cases have a better form and no variants: one temporal tap (or one frame) is one 2-D convolution;
k x 1 x 1 is one convolution with kernel (k, 1) on (N, C, T, H·W).
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from hwbench.blocks.layout import from_planes, to_planes
from hwbench.blocks.mobile_cpu.layouts import IM2COL, PER_FRAME, SHIFT_ADD, variants
from hwbench.blocks.mobile_cpu.taps import Taps
from hwbench.specs import AUTO, TensorSpec


def prior(taps: Taps) -> str:
    """The variant that ``auto`` stands for where nothing was measured, as it came out for XNNPACK on x86 and fp32.

    (``experiments/002-deploy-latency``.)
    """
    return SHIFT_ADD if taps.depthwise else IM2COL


def folded_conv(
    conv: nn.Conv3d, norm: nn.Module | None, act: nn.Module, input: TensorSpec, variant: str = AUTO
) -> nn.Module:
    """``act(norm(conv(x)))`` in eval mode on folded inputs.

    The activation stands where a runtime can fuse it: right behind the last convolution or sum.

    Raises:
        UnsupportedModule: The convolution is strided over time, or padded over time otherwise than by half its kernel
            with zeros.
        UnknownName: No such variant.
    """
    taps = Taps(conv, norm)
    name = prior(taps) if variant == AUTO else variant
    layout = variants.get(name)
    if taps.pointwise and taps.count > 1 and input.t > 1 and name != PER_FRAME:
        return TemporalConv(taps, act, input).eval()
    folded = taps.conv2d(0) if taps.count == 1 or input.t == 1 else layout(taps, input)
    if isinstance(act, nn.Identity):
        return folded.eval()
    return nn.Sequential(OrderedDict(conv=folded, act=act)).eval()


class TemporalConv(nn.Module):
    """k x 1 x 1 as one convolution with kernel (k, 1) on (N, C, T, H·W), the activation right behind it."""

    def __init__(self, taps: Taps, act: nn.Module, input: TensorSpec) -> None:
        super().__init__()
        self.conv = taps.over_time()
        self.act = act
        self.spec = input

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return from_planes(self.act(self.conv(to_planes(x, self.spec))), self.spec)
