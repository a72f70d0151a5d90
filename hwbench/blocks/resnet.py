"""Stem, bottleneck and head of R(2+1)D as ordinary modules, deployed through their graphs; names as in PyTorchVideo."""

from __future__ import annotations

import torch
from torch import nn

from hwbench.blocks.base import Residual
from hwbench.blocks.mobile_cpu.activations import activation
from hwbench.specs import BlockSpec, Kernel


class ResnetStem(nn.Module):
    """A convolution, normalisation, activation: (N, C, T, H, W)."""

    def __init__(self, in_channels: int, out_channels: int, kernel: Kernel, stride: int, act: str) -> None:
        super().__init__()
        t, h, w = kernel[0]
        padding = (t // 2, h // 2, w // 2)
        self.conv = nn.Conv3d(in_channels, out_channels, (t, h, w), (1, stride, stride), padding, bias=False)
        self.norm = nn.BatchNorm3d(out_channels)
        self.activation = activation(act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(self.conv(x)))  # type: ignore[no-any-return]


class Conv2plus1d(nn.Module):
    """A convolution over time, normalisation, activation, a convolution over space (arXiv 1711.11248, section 3.5; the
    order of the two is PyTorchVideo's, and so is a width inside that equals the width out).
    """

    def __init__(self, channels: int, kernel: Kernel, stride: int, temporal_stride: int, act: str) -> None:
        super().__init__()
        (t, _, _), (_, h, w) = kernel
        self.conv_t = nn.Conv3d(
            channels, channels, (t, 1, 1), (temporal_stride, 1, 1), (t // 2, 0, 0), bias=False
        )  # fmt: skip
        self.norm = nn.BatchNorm3d(channels)
        self.activation = activation(act)
        self.conv_xy = nn.Conv3d(channels, channels, (1, h, w), (1, stride, stride), (0, h // 2, w // 2), bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_xy(self.activation(self.norm(self.conv_t(x))))  # type: ignore[no-any-return]


class _Branch(nn.Module):
    def __init__(
        self, in_channels: int, mid: int, out_channels: int, kernel: Kernel, stride: int, temporal_stride: int, act: str
    ) -> None:
        super().__init__()
        self.conv_a = nn.Conv3d(in_channels, mid, 1, bias=False)
        self.norm_a = nn.BatchNorm3d(mid)
        self.act_a = activation(act)
        self.conv_b = Conv2plus1d(mid, kernel, stride, temporal_stride, act)
        self.norm_b = nn.BatchNorm3d(mid)
        self.act_b = activation(act)
        self.conv_c = nn.Conv3d(mid, out_channels, 1, bias=False)
        self.norm_c = nn.BatchNorm3d(out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act_a(self.norm_a(self.conv_a(x)))
        x = self.act_b(self.norm_b(self.conv_b(x)))
        return self.norm_c(self.conv_c(x))  # type: ignore[no-any-return]


class R2plus1dBottleneck(nn.Module, Residual):
    """``act(shortcut(x) + branch(x))``: (N, C, T, H, W), fewer frames where there is a step over them.

    The shortcut has a normalisation only where the number of channels changes, as in the published checkpoints.
    """

    def __init__(
        self, in_channels: int, mid: int, out_channels: int, kernel: Kernel, stride: int, temporal_stride: int, act: str
    ) -> None:
        super().__init__()
        self.branch1_conv: nn.Module | None = None
        self.branch1_norm: nn.Module | None = None
        if in_channels != out_channels or (stride, temporal_stride) != (1, 1):
            steps = (temporal_stride, stride, stride)
            self.branch1_conv = nn.Conv3d(in_channels, out_channels, 1, steps, bias=False)
        if in_channels != out_channels:
            self.branch1_norm = nn.BatchNorm3d(out_channels)
        self.branch2 = _Branch(in_channels, mid, out_channels, kernel, stride, temporal_stride, act)
        self.activation = activation(act)

    @property
    def final_norm(self) -> nn.Module | None:
        return self.branch2.norm_c

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x
        for layer in (self.branch1_conv, self.branch1_norm):
            shortcut = shortcut if layer is None else layer(shortcut)
        return self.activation(shortcut + self.branch2(x))  # type: ignore[no-any-return]


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
    return ResnetStem(spec.in_channels, spec.out_channels, spec.kernel, spec.stride, spec.activation)


def r2plus1d_bottleneck(spec: BlockSpec) -> nn.Module:
    """What kind ``r2plus1d`` stands for."""
    return R2plus1dBottleneck(
        spec.in_channels, spec.mid_channels, spec.out_channels, spec.kernel, spec.stride,
        spec.number("temporal_stride"), spec.activation,
    )  # fmt: skip


def pool_head(spec: BlockSpec) -> nn.Module:
    """What kind ``pool-head`` stands for."""
    return PoolHead(spec.in_channels, spec.out_channels)
