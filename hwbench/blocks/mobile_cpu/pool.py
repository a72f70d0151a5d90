"""Average pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.layout import clip_mean
from hwbench.blocks.mobile_cpu.no_op import NoOpConvertBlock
from hwbench.specs import AUTO, TensorSpec


class _OutSize1(EfficientBlock):
    """Average over all positions."""

    pool: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        return ClipMean(input).eval()

    def output(self, x: TensorSpec) -> TensorSpec:
        return TensorSpec(x.n, x.c, 1, 1, 1)


class AdaptiveAvgPool3dOutSize1(_OutSize1):
    """(N, C, T, H, W) -> (N, C, 1, 1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool3d(1)


class AdaptiveAvgPool2dOutSize1(_OutSize1):
    """(N, C, H, W) -> (N, C, 1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)


class ClipMean(nn.Module):
    """The deploy form: folded (N·T, C, H, W) -> (N, C, 1, 1)."""

    def __init__(self, input: TensorSpec) -> None:
        super().__init__()
        self.spec = input

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return clip_mean(x, self.spec)


class AdaptiveAvgPool3d(NoOpConvertBlock):
    """Average pooling to a given (T, H, W); the same in both forms."""

    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        size = output_size if isinstance(output_size, int) else tuple(output_size)
        super().__init__(nn.AdaptiveAvgPool3d(size))


class AdaptiveAvgPool2d(NoOpConvertBlock):
    """Average pooling to a given (H, W); the same in both forms."""

    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        size = output_size if isinstance(output_size, int) else tuple(output_size)
        super().__init__(nn.AdaptiveAvgPool2d(size))
