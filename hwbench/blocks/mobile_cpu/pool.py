"""Average pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from hwbench.blocks.base import EfficientBlock
from hwbench.blocks.graph.pooling import average, weighted
from hwbench.blocks.layout import clip_mean, from_planes, to_planes
from hwbench.blocks.mobile_cpu.no_op import NoOpConvertBlock
from hwbench.blocks.streaming import MeanStep, StreamStep
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, TensorSpec

_Pair = tuple[int, int]


class _OutSize1(EfficientBlock):
    """Average over all positions."""

    pool: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        return ClipMean(input).eval()

    def to_stream(self, input: TensorSpec) -> StreamStep:
        return MeanStep(input.n, input.c)

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


class Pool3d(EfficientBlock):
    """``nn.AvgPool3d`` or ``nn.MaxPool3d``: first over every frame, then over time.

    Both are exact by axis: the largest of the largest, and a mean whose divisor is the product of one per axis.

    Raises (construction):
        UnsupportedModule: Another module, indices, a divisor of one's own, or windows that end outside (``ceil_mode``).
    """

    def __init__(self, pool: nn.AvgPool3d | nn.MaxPool3d) -> None:
        super().__init__()
        odd = getattr(pool, "return_indices", False) or getattr(pool, "divisor_override", None) is not None
        if type(pool) not in (nn.AvgPool3d, nn.MaxPool3d) or odd or pool.ceil_mode:
            raise UnsupportedModule(f"expected average or maximum pooling of whole windows, got {pool}")
        self.pool = pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pool(x)  # type: ignore[no-any-return]

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        kernel, stride, padding, dilation = self._axes()
        space = self._pool2d(*((v[1], v[2]) for v in (kernel, stride, padding, dilation)))
        time = self._pool2d((kernel[0], 1), (stride[0], 1), (padding[0], 0), (dilation[0], 1))
        output = self.output(input)
        return FoldedPool(space, None if kernel[0] == stride[0] == 1 else time, output.with_(t=input.t), output).eval()

    def output(self, x: TensorSpec) -> TensorSpec:
        sizes = (x.t, x.h, x.w)
        t, h, w = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(sizes, *self._axes()))
        return TensorSpec(x.n, x.c, t, h, w)

    def _axes(self) -> tuple[tuple[int, int, int], ...]:
        """Kernel, stride, padding and dilation along (T, H, W)."""
        pool = self.pool
        values = (pool.kernel_size, pool.stride, pool.padding, getattr(pool, "dilation", 1))
        return tuple((v, v, v) if isinstance(v, int) else (v[0], v[1], v[2]) for v in values)

    def _pool2d(self, kernel: _Pair, stride: _Pair, padding: _Pair, dilation: _Pair) -> nn.Module:
        if isinstance(self.pool, nn.MaxPool3d):
            return nn.MaxPool2d(kernel, stride, padding, dilation)
        return nn.AvgPool2d(kernel, stride, padding, count_include_pad=self.pool.count_include_pad)


class FoldedPool(nn.Module):
    """The deploy form of ``Pool3d``."""

    def __init__(self, space: nn.Module, time: nn.Module | None, between: TensorSpec, output: TensorSpec) -> None:
        super().__init__()
        self.space = space
        self.time = time
        self.between, self.output = between, output

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.space(x)
        if self.time is None:
            return x
        return from_planes(self.time(to_planes(x, self.between)), self.output)


class PixelMean(EfficientBlock):
    """The mean of each 2 x 2 pixels of a frame: (N, C, T, H, W) -> (N, C, T, H/2, W/2), halves rounded up.

    Where a side is odd, its first pixel stands for two. The deploy form for even sides is a depthwise convolution,
    which quantisers know, where they leave an average in fp32.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padding = (0, x.shape[3] % 2, x.shape[4] % 2)
        return F.avg_pool3d(x, (1, 2, 2), padding=padding, count_include_pad=False)

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        padding = (input.h % 2, input.w % 2)
        make = average if any(padding) else weighted(input.c, 1.0)
        return make((2, 2), (2, 2), padding, (1, 1)).eval()

    @property
    def is_framewise(self) -> bool:
        return True

    def output(self, x: TensorSpec) -> TensorSpec:
        return x.strided(x.c, 2)


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
