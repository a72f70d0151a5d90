"""3-D convolutions that train faster on CPUs: depthwise ones, and pointwise ones of small batches.

oneDNN runs the forward pass of a depthwise 3-D convolution with compiled kernels, but its backward pass falls back to a
reference loop which takes most of a training step of an X3D. Within ``fast_convolutions()`` the gradients are computed
by kernels that are fast:

* of a kernel that looks at one frame, frames are the batch of a 2-D convolution, whose gradients they are;
* to the input of any other: for stride 1 the convolution of the gradient with the mirrored kernel; for other strides
  the same after zeros are put between the rows and columns of the gradient;
* to the weight of any other: each tap in time is the weight gradient of a 2-D one, on the frames that have a partner.

With one thread, torch gives a 3-D convolution of fewer than 16 clips to oneDNN only where its kernel looks at more than
one pixel (``use_mkldnn`` in ATen's Convolution.cpp). The loop that it falls back to copies the input column by column,
and a clip of a step takes twice as long. Such kernels of depthwise convolutions are given to oneDNN here. Of a
pointwise one, frames become the batch of a 2-D convolution.

Where torch takes oneDNN itself, forward results are the same bits; all else equals torch's up to the order of the sums.

In bf16 oneDNN (torch 2.14.1) reads and writes memory outside its tensors in the weight gradient of some convolutions
whose windows all cover zeros of the padding: a kernel over five frames of a clip of four, a stride of two over one
column. Within ``padded_convolutions()`` the zeros are put around such an input first, and the gradient is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

_Triple = tuple[int, int, int]
# From so many clips on torch gives pointwise convolutions to oneDNN, with one thread too.
_MANY = 16
# Stride, padding, dilation and groups of a pointwise convolution, as ``nn.Conv3d`` passes them.
_PLAIN = ((1, 1, 1), (0, 0, 0), (1, 1, 1), 1)
_HAS_ONE_DNN: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


@contextmanager
def fast_convolutions() -> Iterator[None]:
    """Inside, float32 ``conv3d`` on a CPU is computed as above; other operations stay as they are."""
    with _Fast():
        yield


@contextmanager
def padded_convolutions() -> Iterator[None]:
    """Inside, convolutions of an input that is too small for their kernel pad it first, as above, in any arithmetic."""
    with _Padded():
        yield


def same_convolutions() -> AbstractContextManager[None]:
    """A context, for later, with the convolutions of the place where it is made."""
    stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return _inside([type(mode) for mode in stack if isinstance(mode, (_Fast, _Padded))])


@contextmanager
def _inside(modes: Iterable[type[TorchFunctionMode]]) -> Iterator[None]:
    with ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode())
        yield


class _Padded(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in (torch.conv1d, torch.conv2d, torch.conv3d):
            return _padded(func, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _padded(
    convolution: Callable[..., Any],
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """A convolution of torch, whose names of arguments these are; what is too small for its kernel is padded first."""
    axes = weight.dim() - 2
    strides, dilations = _of_axes(stride, axes), _of_axes(dilation, axes)
    spans = [1 + step * (size - 1) for step, size in zip(dilations, weight.shape[2:], strict=True)]
    widths = _widths(padding, spans)
    sides = list(zip(input.shape[-axes:], spans, strides, widths, strict=True))
    lone = axes == 3 and _outputs(*sides[0]) == 1  # of a single frame the gradient is right
    if any(_covers_zeros(*side) for side in sides[lone:]):
        input, padding = F.pad(input, [width for pair in reversed(widths) for width in pair]), 0
    return convolution(input, weight, bias, stride, padding, dilation, groups)


def _outputs(size: int, span: int, stride: int, widths: tuple[int, int]) -> int:
    return (size + sum(widths) - span) // stride + 1


def _covers_zeros(size: int, span: int, stride: int, widths: tuple[int, int]) -> bool:
    """Whether along an axis no window of ``span`` lies in the input alone."""
    return size < span + -widths[0] % stride


def _widths(padding: Any, spans: Sequence[int]) -> list[tuple[int, int]]:
    """Zeros before and behind the input, by axis."""
    if padding == "same":
        return [((span - 1) // 2, span // 2) for span in spans]
    return [(width, width) for width in _of_axes(0 if padding == "valid" else padding, len(spans))]


def _of_axes(value: Any, axes: int) -> tuple[int, ...]:
    """An argument of a convolution by axis: torch takes one number for all of them, too."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * (axes // len(values))


class _Fast(TorchFunctionMode):
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
        if func is torch.conv3d and not kwargs and _is_slow_pointwise(*args):
            return _pointwise(*args[:3])
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
    if not _is_float_on_cpu(x, weight):
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
    )


def _is_slow_pointwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *rest: Any) -> bool:
    """Whether the operation is a pointwise convolution, channels last, that torch would not give to oneDNN."""
    return (
        _is_float_on_cpu(x, weight)
        and tuple(weight.shape[2:]) == (1, 1, 1)
        and rest == _PLAIN
        and _is_left_to_a_loop(x)
        and x.is_contiguous(memory_format=torch.channels_last_3d)
    )


def _is_float_on_cpu(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether clips, and no single one without a batch, are computed in float32 on a CPU."""
    is_float = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return is_float and x.device.type == "cpu" and x.dim() == 5


def _pointwise(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """(N, C, T, H, W) -> (N, C', T, H, W), channels last."""
    return _unfold(F.conv2d(_fold(x), weight.squeeze(2), bias), len(x))


class _DepthwiseConv3d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, stride: _Triple, padding: _Triple) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return _convolved(x, weight, stride, padding)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last_3d)
        if weight.shape[2] == 1:
            return *_frame_grads(grad, x, weight, ctx.stride[1], ctx.needs_input_grad[:2]), None, None
        x_grad = _input_grad(grad, weight, ctx.stride[1], ctx.padding, x.shape) if ctx.needs_input_grad[0] else None
        weight_grad = _weight_grad(grad, x, weight, ctx.stride[1]) if ctx.needs_input_grad[1] else None
        return x_grad, weight_grad, None, None


def _frame_grads(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: int, wanted: tuple[bool, ...]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of a (1, kH, kW) kernel to the input and to the weight, those that are wanted."""
    x_grad, weight_grad = _plane_grads(_fold(grad), _fold(x), weight.squeeze(2), stride, wanted)
    x_grad = None if x_grad is None else _unfold(x_grad, len(x))
    return x_grad, None if weight_grad is None else weight_grad.unsqueeze(2)


def _input_grad(
    grad: torch.Tensor, weight: torch.Tensor, stride: int, padding: _Triple, shape: torch.Size
) -> torch.Tensor:
    """Gradient to the input: the gradient, spread out by the stride, convolved with the mirrored kernel."""
    if stride > 1:
        spread = torch.empty(shape, memory_format=torch.channels_last_3d).zero_()
        spread[..., ::stride, ::stride] = grad
        grad = spread
    return _convolved(grad, weight.flip(2, 3, 4), (1, 1, 1), padding)


def _convolved(x: torch.Tensor, weight: torch.Tensor, stride: _Triple, padding: _Triple) -> torch.Tensor:
    """A depthwise convolution, by oneDNN where there is one."""
    slow = _is_left_to_a_loop(x) and weight.shape[3] == weight.shape[4] == 1 and stride[1] == 1
    if slow and _HAS_ONE_DNN:
        found: torch.Tensor = torch.ops.aten.mkldnn_convolution(
            x, weight, None, padding, stride, (1, 1, 1), len(weight)
        )
        return found
    return F.conv3d(x, weight, None, stride, padding, 1, len(weight))


def _is_left_to_a_loop(x: torch.Tensor) -> bool:
    """Whether torch keeps a kernel of one pixel from oneDNN for this input."""
    return len(x) < _MANY and torch.get_num_threads() == 1


def _weight_grad(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: int) -> torch.Tensor:
    """Gradient to the weight (C, 1, kT, kH, kW), one 2-D convolution per tap in time.

    A kernel in time alone is one (kT, 1) kernel on rows that hold a whole frame. Otherwise a tap ``s`` frames from the
    middle pairs frame ``t`` of the gradient with frame ``t + s`` of the input, as far as there is one.
    """
    _, _, taps, kernel_h, kernel_w = weight.shape
    if kernel_h == kernel_w == stride == 1:
        return _only_weight(grad.flatten(3), x.flatten(3), weight.flatten(3), 1).unsqueeze(-1)
    # Time first: then any run of frames, over all clips, is a batch without another copy.
    grad, x = (tensor.permute(2, 0, 3, 4, 1).contiguous() for tensor in (grad, x))
    frames, found = len(x), torch.zeros_like(weight)
    for tap in range(taps):
        shift = tap - taps // 2
        if abs(shift) < frames:
            grads, inputs = grad[max(0, -shift) : frames - max(0, shift)], x[max(0, shift) : frames + min(0, shift)]
            planes = grads.flatten(0, 1).permute(0, 3, 1, 2), inputs.flatten(0, 1).permute(0, 3, 1, 2)
            found[:, :, tap] = _only_weight(planes[0], planes[1], weight[:, :, tap], stride)
    return found


def _only_weight(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: int) -> torch.Tensor:
    _, found = _plane_grads(grad, x, weight, stride, (False, True))
    assert found is not None
    return found


def _plane_grads(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: int, wanted: tuple[bool, ...]
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of a depthwise 2-D convolution with half padding to its input and to its weight (C, 1, kH, kW)."""
    half = (weight.shape[2] // 2, weight.shape[3] // 2)
    x_grad, weight_grad, _ = torch.ops.aten.convolution_backward(
        grad, x, weight, None, (stride, stride), half, (1, 1), False, (0, 0), len(weight), (*wanted, False)
    )
    return x_grad, weight_grad


def _fold(x: torch.Tensor) -> torch.Tensor:
    """(N, C, T, H, W) -> (N·T, C, H, W), channels last."""
    return x.permute(0, 2, 3, 4, 1).flatten(0, 1).permute(0, 3, 1, 2)


def _unfold(x: torch.Tensor, clips: int) -> torch.Tensor:
    """(N·T, C, H, W) -> (N, C, T, H, W), channels last."""
    planes = x.permute(0, 2, 3, 1)
    return planes.reshape(clips, -1, *planes.shape[1:]).permute(0, 4, 1, 2, 3)
