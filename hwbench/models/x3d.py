"""Vanilla X3D: the reference network of plain PyTorch layers, with the state-dict keys of the published checkpoints.

Source: X3D (Feichtenhofer 2020, arXiv 2004.04730), tables 1 and 2. What differs on purpose: the network returns logits
(softmax belongs to the loss or the reader), and pooling over the whole clip is the default, so that any size is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn

from hwbench.blocks.base import Residual
from hwbench.errors import InvalidValue, UnknownName
from hwbench.registry import suggest
from hwbench.specs.widths import inner_width, round_width, squeezed

Make = Callable[[], nn.Module]
MakeFor = Callable[[int], nn.Module]

# Depth factor of each size; XS, S and M differ in the clip alone.
DEPTH_FACTORS = {"XS": 2.2, "S": 2.2, "M": 2.2, "L": 5.0}
_BASE_DEPTHS = (1, 2, 5, 3)


class VanillaX3d(nn.Module):
    """A stem, stages and a head, in ``blocks``: (N, 3, T, H, W) -> logits (N, classes)."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class VanillaStem(nn.Module):
    """A convolution over space, a depthwise one over time, normalisation, activation."""

    def __init__(self, in_channels: int, out_channels: int, kernel: tuple[int, int, int],
                 stride: tuple[int, int, int], norm: MakeFor, activation: Make) -> None:  # fmt: skip
        super().__init__()
        self.conv = _SpaceThenTime(in_channels, out_channels, kernel, stride)
        self.norm = norm(out_channels)
        self.activation = activation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.norm(self.conv(x)))  # type: ignore[no-any-return]


class _SpaceThenTime(nn.Module):
    """In published checkpoints ``conv_t`` is the convolution over space and ``conv_xy`` the one over time."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel: tuple[int, int, int], stride: tuple[int, int, int]
    ) -> None:
        super().__init__()
        t, h, w = kernel
        self.conv_t = nn.Conv3d(in_channels, out_channels, (1, h, w), (1, *stride[1:]), (0, h // 2, w // 2), bias=False)
        self.conv_xy = nn.Conv3d(
            out_channels, out_channels, (t, 1, 1), (stride[0], 1, 1), (t // 2, 0, 0), groups=out_channels, bias=False
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv_xy(self.conv_t(x))  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """Pointwise, depthwise, squeeze-excite, pointwise. ``norm_b`` holds the normalisation and squeeze-excite."""

    def __init__(self, in_channels: int, inner: int, out_channels: int, kernel: tuple[int, int, int],
                 stride: tuple[int, int, int], se_channels: int, norm: MakeFor, activation: Make,
                 inner_act: Make) -> None:  # fmt: skip
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2, kernel[2] // 2)
        self.conv_a = nn.Conv3d(in_channels, inner, 1, bias=False)
        self.norm_a = norm(inner)
        self.act_a = activation()
        self.conv_b = nn.Conv3d(inner, inner, kernel, stride, padding, groups=inner, bias=False)
        gate = _SqueezeExcitation(inner, se_channels) if se_channels else nn.Identity()
        self.norm_b = nn.Sequential(norm(inner), gate)
        self.act_b = inner_act()
        self.conv_c = nn.Conv3d(inner, out_channels, 1, bias=False)
        self.norm_c = norm(out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act_a(self.norm_a(self.conv_a(x)))
        x = self.act_b(self.norm_b(self.conv_b(x)))
        return self.norm_c(self.conv_c(x))  # type: ignore[no-any-return]


class _SqueezeExcitation(nn.Module):
    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv3d(channels, reduced, 1), nn.ReLU(), nn.Conv3d(reduced, channels, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate: torch.Tensor = self.block(x.mean((2, 3, 4), keepdim=True))
        return x * gate


class ResBlock(nn.Module, Residual):
    """``activation(branch1(x) + branch2(x))``; ``branch1`` is x itself where shapes agree.

    The projection has a normalisation only where the number of channels changes, as in the published checkpoints.
    """

    def __init__(self, branch2: nn.Module, in_channels: int, out_channels: int, stride: tuple[int, int, int],
                 norm: MakeFor, activation: Make) -> None:  # fmt: skip
        super().__init__()
        self.branch1_conv: nn.Module | None = None
        self.branch1_norm: nn.Module | None = None
        if in_channels != out_channels or stride != (1, 1, 1):
            self.branch1_conv = nn.Conv3d(in_channels, out_channels, 1, stride, bias=False)
        if in_channels != out_channels:
            self.branch1_norm = norm(out_channels)
        self.branch2 = branch2
        self.activation = activation()

    @property
    def final_norm(self) -> nn.Module | None:
        return self.branch2.norm_c if isinstance(self.branch2, Bottleneck) else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x
        for layer in (self.branch1_conv, self.branch1_norm):
            shortcut = shortcut if layer is None else layer(shortcut)
        return self.activation(shortcut + self.branch2(x))  # type: ignore[no-any-return]


class ResStage(nn.Module):
    """Blocks one after the other, in ``res_blocks``."""

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.res_blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.res_blocks:
            x = block(x)
        return x


class _ProjectedPool(nn.Module):
    def __init__(self, in_channels: int, inner: int, out_channels: int, pool: nn.Module, norm: MakeFor,
                 activation: Make, bn_lin5: bool) -> None:  # fmt: skip
        super().__init__()
        self.pre_conv = nn.Conv3d(in_channels, inner, 1, bias=False)
        self.pre_norm = norm(inner)
        self.pre_act = activation()
        self.pool = pool
        self.post_conv = nn.Conv3d(inner, out_channels, 1, bias=False)
        self.post_norm = norm(out_channels) if bn_lin5 else None
        self.post_act = activation()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.post_conv(self.pool(self.pre_act(self.pre_norm(self.pre_conv(x)))))
        return self.post_act(x if self.post_norm is None else self.post_norm(x))  # type: ignore[no-any-return]


class VanillaHead(nn.Module):
    """Projection, pooling, projection, dropout, the last layer; averaged over what positions are left."""

    def __init__(self, pool: nn.Module, in_features: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.proj = nn.Linear(in_features, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(x).permute(0, 2, 3, 4, 1)
        return self.proj(self.dropout(x)).mean((1, 2, 3))  # type: ignore[no-any-return]


def create_x3d_bottleneck_block(
    *,
    in_channels: int,
    inner: int,
    out_channels: int,
    kernel: tuple[int, int, int] = (3, 3, 3),
    stride: tuple[int, int, int] = (1, 1, 1),
    se_channels: int = 0,
    norm: MakeFor = nn.BatchNorm3d,
    activation: Make = nn.ReLU,
    inner_act: Make = nn.SiLU,
) -> nn.Module:
    """The bottleneck that ``create_x3d`` takes by default."""
    return Bottleneck(in_channels, inner, out_channels, kernel, stride, se_channels, norm, activation, inner_act)


def create_x3d(
    *,
    expansion: str | None = None,
    num_classes: int = 400,
    dropout: float = 0.5,
    in_channels: int = 3,
    width_factor: float = 2.0,
    depth_factor: float = 2.2,
    norm: MakeFor = nn.BatchNorm3d,
    activation: Make = nn.ReLU,
    inner_act: Make = nn.SiLU,
    stem_width: int = 12,
    stem_kernel: tuple[int, int, int] = (5, 3, 3),
    stem_stride: tuple[int, int, int] = (1, 2, 2),
    stage_kernels: Sequence[tuple[int, int, int]] = ((3, 3, 3),) * 4,
    stage_spatial_strides: Sequence[int] = (2, 2, 2, 2),
    stage_temporal_strides: Sequence[int] = (1, 1, 1, 1),
    bottleneck: Callable[..., nn.Module] = create_x3d_bottleneck_block,
    bottleneck_factor: float = 2.25,
    se_ratio: float = 0.0625,
    head_width: int = 2048,
    head_pool: tuple[int, int, int] | None = None,
    head_norm: bool = False,
) -> VanillaX3d:
    """A vanilla X3D with parts that can be exchanged.

    Args:
        expansion: XS, S, M or L: the depth factor of that size in place of ``depth_factor``.
        num_classes: Width of the logits.
        dropout: Before the last layer.
        in_channels: Channels of the clip.
        width_factor: Times the base widths 12, 12, 24, 48, 96.
        depth_factor: Times the base depths 1, 2, 5, 3, rounded up.
        norm: Makes a normalisation for a number of channels.
        activation: Makes an activation.
        inner_act: Makes the activation after the depthwise convolution.
        stem_width: Base width of the stem.
        stem_kernel: (T, H, W) of the stem.
        stem_stride: (T, H, W) of the stem.
        stage_kernels: Depthwise kernel of each stage.
        stage_spatial_strides: Of the first block of each stage.
        stage_temporal_strides: Of the first block of each stage.
        bottleneck: Makes the residual branch; called like ``create_x3d_bottleneck_block``.
        bottleneck_factor: Channels inside a block by its channels out, cut off.
        se_ratio: Of squeeze-excite, in every other block; 0 = none.
        head_width: Features before the last layer.
        head_pool: Kernel of the average pooling, stride 1; None pools the whole clip.
        head_norm: A normalisation before the last activation of the head.

    Raises:
        UnknownName: No such size.
        InvalidValue: Stage settings of different lengths.
    """
    if expansion is not None and expansion not in DEPTH_FACTORS:
        raise UnknownName(f"unknown size of X3D {expansion!r}; {suggest(expansion, DEPTH_FACTORS)}")
    factor = depth_factor if expansion is None else DEPTH_FACTORS[expansion]
    if not len(stage_kernels) == len(stage_spatial_strides) == len(stage_temporal_strides) == len(_BASE_DEPTHS):
        raise InvalidValue("create_x3d: expected kernels and strides for four stages")
    base = [stem_width, stem_width]
    for _ in _BASE_DEPTHS[1:]:
        base.append(round_width(base[-1], 2.0))
    widths = [round_width(width, width_factor) for width in base]
    blocks: list[nn.Module] = [VanillaStem(in_channels, widths[0], stem_kernel, stem_stride, norm, activation)]
    settings = zip(pairwise(widths), _BASE_DEPTHS, stage_kernels, stage_spatial_strides, stage_temporal_strides)
    for (before, width), depth, kernel, spatial, temporal in settings:
        inner, stage = inner_width(width, bottleneck_factor), []
        for index in range(math.ceil(factor * depth)):
            stride = (temporal, spatial, spatial) if index == 0 else (1, 1, 1)
            channels = before if index == 0 else width
            branch = bottleneck(
                in_channels=channels, inner=inner, out_channels=width, kernel=kernel, stride=stride,
                se_channels=squeezed(inner, se_ratio) if index % 2 == 0 else 0,
                norm=norm, activation=activation, inner_act=inner_act,
            )  # fmt: skip
            stage.append(ResBlock(branch, channels, width, stride, norm, activation))
        blocks.append(ResStage(stage))
    pool = nn.AdaptiveAvgPool3d(1) if head_pool is None else nn.AvgPool3d(head_pool, stride=1)
    projected = _ProjectedPool(widths[-1], inner, head_width, pool, norm, activation, head_norm)
    blocks.append(VanillaHead(projected, head_width, num_classes, dropout))
    return VanillaX3d(blocks)


__all__ = ["Bottleneck", "ResBlock", "ResStage", "VanillaX3d", "VanillaHead", "VanillaStem", "create_x3d",
           "create_x3d_bottleneck_block"]  # fmt: skip
