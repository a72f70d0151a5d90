"""Depthwise 3-D convolutions with a faster backward pass on CPUs.

oneDNN runs the forward pass of a depthwise 3-D convolution with compiled kernels, but its backward pass falls back to a
reference loop which takes most of a training step of an X3D. Within ``fast_depthwise()`` the gradients are computed by
kernels that are fast:

* to the input: for stride 1 the convolution of the gradient with the mirrored kernel; for other strides the same after
  zeros are put between the rows and columns of the gradient;
* to the weight: time is folded into the batch, and each tap in time is the weight gradient of a depthwise 2-D one.

Forward results are the same bits; gradients equal those of autograd up to the order of the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

_Triple = tuple[int, int, int]

# Compiled 2-D kernels want whole vectors of channels: 8 floats in AVX2, a divisor of the 16 of AVX-512.
_LANES = 8


@contextmanager
def fast_depthwise() -> Iterator[None]:
    """Inside, a float32 depthwise ``conv3d`` on a CPU has the gradients above; other operations stay as they are."""
    with _Mode():
        yield


class _Mode(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.conv3d and not kwargs and _covered(*args):
            x, weight, _, stride, padding, *_ = args
            return _DepthwiseConv3d.apply(x, weight, stride, padding)
        return func(*args, **(kwargs or {}))


def _covered(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool:
    """Whether the operation is a depthwise convolution of the common kind: half padding, no stride in time, no bias."""
    if x.device.type != "cpu" or x.dtype != torch.float32 or weight.dtype != torch.float32 or x.dim() != 5:
        return False
    if bias is not None or groups != x.shape[1] or weight.shape[0] != groups or groups == 1:
        return False
    half = tuple(k // 2 for k in weight.shape[2:])
    return (
        isinstance(stride, tuple)
        and stride[0] == 1
        and stride[1] == stride[2]
        and padding == half
        and dilation == (1, 1, 1)
        and all(k % 2 == 1 for k in weight.shape[2:])
        and torch.is_grad_enabled()
        and weight.requires_grad
        and not torch.is_autocast_enabled("cpu")
    )


class _DepthwiseConv3d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, stride: _Triple, padding: _Triple) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv3d(x, weight, None, stride, padding, 1, x.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last_3d)
        x_grad = _input_grad(grad, weight, ctx.stride[1], ctx.padding, x.shape) if ctx.needs_input_grad[0] else None
        weight_grad = _weight_grad(grad, x, weight, ctx.stride[1]) if ctx.needs_input_grad[1] else None
        return x_grad, weight_grad, None, None


def _input_grad(
    grad: torch.Tensor, weight: torch.Tensor, stride: int, padding: _Triple, shape: torch.Size
) -> torch.Tensor:
    """Gradient to the input: the gradient, spread out by the stride, convolved with the mirrored kernel."""
    if stride > 1:
        spread = grad.new_zeros(shape).contiguous(memory_format=torch.channels_last_3d)
        spread[..., ::stride, ::stride] = grad
        grad = spread
    return F.conv3d(grad, weight.flip(2, 3, 4), None, 1, padding, 1, weight.shape[0])


def _weight_grad(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: int) -> torch.Tensor:
    """Gradient to the weight (C, 1, kT, kH, kW), one 2-D convolution per tap in time.

    A kernel in time alone is one (kT, 1) kernel on rows that hold a whole frame. Otherwise both tensors get kT - 1
    frames of zeros per clip, so that a shift in time is a shift of the folded batch.
    """
    channels, _, taps, kernel_h, kernel_w = weight.shape
    if kernel_h == kernel_w == stride == 1:
        return _plane_grad(grad.flatten(3), x.flatten(3), (taps, 1), 1).unsqueeze(-1)
    lanes = -channels % _LANES
    x_folded = _fold(x, taps // 2, taps // 2, lanes)
    grad_folded = _fold(grad, 0, taps - 1, lanes)
    frames = x_folded.shape[0] - (taps - 1)
    grads = [
        _plane_grad(grad_folded[:frames], x_folded[tap : tap + frames], (kernel_h, kernel_w), stride)[:channels]
        for tap in range(taps)
    ]
    return torch.stack(grads, dim=2)


def _plane_grad(grad: torch.Tensor, x: torch.Tensor, kernel: tuple[int, int], stride: int) -> torch.Tensor:
    """Weight gradient (C, 1, kH, kW) of a depthwise 2-D convolution with half padding."""
    channels = x.shape[1]
    weight = x.new_empty((channels, 1, *kernel))
    half = (kernel[0] // 2, kernel[1] // 2)
    only_weight = (False, True, False)
    grads = torch.ops.aten.convolution_backward(
        grad, x, weight, None, (stride, stride), half, (1, 1), False, (0, 0), channels, only_weight
    )
    return grads[1]  # type: ignore[no-any-return]


def _fold(x: torch.Tensor, before: int, after: int, lanes: int) -> torch.Tensor:
    """(N, C, T, H, W) -> (N·(before + T + after), C + lanes, H, W), channels last; new frames and channels are zero."""
    padded = F.pad(x.permute(0, 2, 3, 4, 1), (0, lanes, 0, 0, 0, 0, before, after))
    return padded.flatten(0, 1).permute(0, 3, 1, 2)
