"""Stem, bottlenecks and head of the ResNets as ordinary modules, deployed through their graphs; names as in
PyTorchVideo.
"""

from __future__ import annotations

import torch
from torch import nn

from hwbench.blocks.base import Residual
from hwbench.blocks.mobile_cpu.activations import activation
from hwbench.specs import BlockSpec, Kernel
from hwbench.specs.kinds.resnet import frame_steps, has_projection
from hwbench.specs.operations import POINT, Size


class ResnetStem(nn.Module):
    """A convolution, normalisation, activation, and a maximum over 3 x 3 pixels where ``pool`` is more than 1.

    Args:
        in_channels: Of the clip.
        out_channels: Behind the convolution.
        kernel: One kernel.
        stride: Spatial, of the convolution.
        act: Name of the activation.
        pool: Spatial stride of the maximum; 1: there is none.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel: Kernel, stride: int, act: str, pool: int = 1
    ) -> None:
        super().__init__()
        self.conv = _convolution(in_channels, out_channels, kernel[0], (1, stride))
        self.norm = nn.BatchNorm3d(out_channels)
        self.activation = activation(act)
        self.pool = nn.MaxPool3d((1, 3, 3), (1, pool, pool), (0, 1, 1)) if pool > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(self.activation(self.norm(self.conv(x))))  # type: ignore[no-any-return]


class Conv2plus1d(nn.Module):
    """A convolution over time, normalisation, activation, a convolution over space (arXiv 1711.11248, section 3.5; the
    order of the two is PyTorchVideo's, and so is a width inside that equals the width out).
    """

    def __init__(self, channels: int, kernel: Kernel, stride: int, temporal_stride: int, act: str) -> None:
        super().__init__()
        self.conv_t = _convolution(channels, channels, kernel[0], (temporal_stride, 1))
        self.norm = nn.BatchNorm3d(channels)
        self.activation = activation(act)
        self.conv_xy = _convolution(channels, channels, kernel[1], (1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_xy(self.activation(self.norm(self.conv_t(x))))  # type: ignore[no-any-return]


class _Branch(nn.Module):
    """Three convolutions with a normalisation each and an activation but behind the last."""

    def __init__(self, conv_a: nn.Module, conv_b: nn.Module, widths: tuple[int, int], act: str) -> None:
        super().__init__()
        mid, out_channels = widths
        self.conv_a = conv_a
        self.norm_a = nn.BatchNorm3d(mid)
        self.act_a = activation(act)
        self.conv_b = conv_b
        self.norm_b = nn.BatchNorm3d(mid)
        self.act_b = activation(act)
        self.conv_c = _convolution(mid, out_channels, POINT)
        self.norm_c = nn.BatchNorm3d(out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act_a(self.norm_a(self.conv_a(x)))
        x = self.act_b(self.norm_b(self.conv_b(x)))
        return self.norm_c(self.conv_c(x))  # type: ignore[no-any-return]


class ResnetBottleneck(nn.Module, Residual):
    """``act(shortcut(x) + branch(x))``: (N, C, T, H, W), fewer frames and pixels where the spec has strides.

    Args:
        spec: A block of kind ``bottleneck`` or ``r2plus1d``.
        conv_a: The first convolution of the branch.
        conv_b: What lies between the first convolution and the last.
        shortcut_norm: Whether a shortcut that is a convolution has a normalisation.

    Source: He et al. 2016 (arXiv 1512.03385), section 4.1; names as in PyTorchVideo.
    """

    def __init__(self, spec: BlockSpec, conv_a: nn.Module, conv_b: nn.Module, *, shortcut_norm: bool) -> None:
        super().__init__()
        self.branch1_conv: nn.Module | None = None
        self.branch1_norm: nn.Module | None = None
        if has_projection(spec):
            steps = (spec.number("temporal_stride"), spec.stride)
            self.branch1_conv = _convolution(spec.in_channels, spec.out_channels, POINT, steps)
            self.branch1_norm = nn.BatchNorm3d(spec.out_channels) if shortcut_norm else None
        self.branch2 = _Branch(conv_a, conv_b, (spec.mid_channels, spec.out_channels), spec.activation)
        self.activation = activation(spec.activation)

    @property
    def final_norm(self) -> nn.Module | None:
        return self.branch2.norm_c

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x
        for layer in (self.branch1_conv, self.branch1_norm):
            shortcut = shortcut if layer is None else layer(shortcut)
        return self.activation(shortcut + self.branch2(x))  # type: ignore[no-any-return]


class FramePool(nn.Module):
    """The largest value of each group of frames: (N, C, T, H, W) -> (N, C, T // step, H, W), at least one frame."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = (min(self.step, x.shape[2]), 1, 1)
        return nn.functional.max_pool3d(x, size, size)


class PoolHead(nn.Module):
    """The mean over T, H and W, dropout, the last layer: (N, C, T, H, W) -> logits (N, classes)."""

    def __init__(self, in_channels: int, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.proj = nn.Linear(in_channels, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(self.dropout(x.mean((2, 3, 4))))  # type: ignore[no-any-return]


def stem(spec: BlockSpec) -> nn.Module:
    """What kind ``resnet-stem`` stands for."""
    return ResnetStem(
        spec.in_channels, spec.out_channels, spec.kernel, spec.stride, spec.activation, spec.number("pool")
    )  # fmt: skip


def r2plus1d_bottleneck(spec: BlockSpec) -> nn.Module:
    """What kind ``r2plus1d`` stands for.

    The shortcut has a normalisation only where the number of channels changes, as in the published checkpoints.
    """
    mid, act = spec.mid_channels, spec.activation
    conv_a = _convolution(spec.in_channels, mid, POINT)
    conv_b = Conv2plus1d(mid, spec.kernel, spec.stride, spec.number("temporal_stride"), act)
    return ResnetBottleneck(spec, conv_a, conv_b, shortcut_norm=spec.in_channels != spec.out_channels)


def bottleneck(spec: BlockSpec) -> nn.Module:
    """What kind ``bottleneck`` stands for."""
    (over_time, over_space), (first, second), mid = spec.kernel, frame_steps(spec), spec.mid_channels
    conv_a = _convolution(spec.in_channels, mid, over_time, (first, 1))
    conv_b = _convolution(mid, mid, over_space, (second, spec.stride), spec.groups)
    return ResnetBottleneck(spec, conv_a, conv_b, shortcut_norm=True)


def frame_pool(spec: BlockSpec) -> nn.Module:
    """What kind ``frame-pool`` stands for."""
    return FramePool(spec.number("temporal_stride"))


def pool_head(spec: BlockSpec) -> nn.Module:
    """What kind ``pool-head`` stands for."""
    return PoolHead(spec.in_channels, spec.out_channels)


def _convolution(
    in_channels: int, out_channels: int, kernel: Size, steps: tuple[int, int] = (1, 1), groups: int = 1
) -> nn.Conv3d:
    """Without bias, padded by half its kernel; ``steps`` over frames and over pixels."""
    (t, h, w), (over_time, over_space) = kernel, steps
    return nn.Conv3d(
        in_channels, out_channels, kernel, (over_time, over_space, over_space), (t // 2, h // 2, w // 2),
        groups=groups, bias=False,
    )  # fmt: skip
