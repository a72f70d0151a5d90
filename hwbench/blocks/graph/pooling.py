"""Pooling and means: over space on every frame, then over time, which is the same as over both at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hwbench.blocks.graph.convolution import conv2d
from hwbench.blocks.graph.frames import FrameMean, MeanOfClip, OverTime, taken
from hwbench.blocks.graph.rules import Call, rule
from hwbench.blocks.graph.values import FOLDED, Clip, Plain, Value, sizes
from hwbench.specs import TensorSpec

Pair = tuple[int, int]
# From kernel, stride, padding and dilation to a pooling over pictures.
Make = Callable[[Pair, Pair, Pair, Pair], nn.Module]


@dataclass(frozen=True)
class Windows:
    """Kernel, stride, padding and dilation over T, H and W."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool

    @classmethod
    def of(cls, call: Call, axes: int) -> Windows:
        """Of a pooling operation."""
        kernel = _each(call["kernel_size"], axes)
        stride = _each(call["stride"], axes) if call["stride"] else kernel
        dilation = _each(call["dilation"], axes) if "max_pool" in str(call.node.target) else (1,) * axes
        return cls(kernel, stride, _each(call["padding"], axes), dilation, call["ceil_mode"])

    def size(self, axis: int, size: int) -> int:
        """Size of an axis after the pooling, if windows that are not whole are left out."""
        reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1
        return (size + 2 * self.padding[axis] - reach) // self.stride[axis] + 1

    def over_pictures(self, make: Make, height: int, width: int | None, channels: int) -> nn.Module:
        """A pooling over two axes of T, H, W; of ``height`` alone where ``width`` is None."""
        parts = []
        for values in (self.kernel, self.stride, self.padding, self.dilation):
            neutral = 0 if values is self.padding else 1
            parts.append((values[height], neutral if width is None else values[width]))
        kernel, stride, padding, dilation = parts
        # XNNPACK has no window of one value, and none that leaves values between windows out
        steps = tuple(s if s > k else 1 for k, s in zip(kernel, stride, strict=True))
        dense = tuple(1 if s > k else s for k, s in zip(kernel, stride, strict=True))
        modules: list[nn.Module] = []
        if kernel != (1, 1):
            modules.append(make(kernel, (dense[0], dense[1]), padding, dilation))
        if steps != (1, 1):
            modules.append(every(channels, steps))
        return nn.Sequential(*modules) if len(modules) > 1 else (modules or [nn.Identity()])[0]


def every(channels: int, steps: Sequence[int]) -> nn.Module:
    """Every such row and column: a depthwise 1x1 convolution of ones."""
    return conv2d(torch.ones(channels, 1, 1, 1, dtype=torch.float64), None, steps, (0, 0), (1, 1), channels)


def maximum(kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> nn.Module:
    """The largest value of each window; padding never is."""
    return nn.MaxPool2d(kernel, stride, padding, dilation)


def average(kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> nn.Module:
    """The mean of the values of each window, padding left out."""
    return nn.AvgPool2d(kernel, stride, padding, count_include_pad=False)


def weighted(channels: int, over: float) -> Make:
    """The sum of each window, padding as zeros, over a number to the power of the axes in it: a depthwise convolution.

    Args:
        channels: Of the input.
        over: What the product of the kernel is multiplied with, for the number that the sum is divided by.
    """

    def make(kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> nn.Module:
        weight = torch.full((channels, 1, *kernel), 1 / (kernel[0] * kernel[1] * over), dtype=torch.float64)
        return conv2d(weight, None, stride, padding, dilation, channels)

    return make


@rule("aten.max_pool3d.default", "aten.max_pool2d.default")
def max_pool(call: Call) -> Value:
    """Of a clip or of pictures."""
    return _pooled(call, maximum)


@rule("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool_with_indices(call: Call) -> tuple[Value]:
    """The values; where they stand is not covered."""
    return (_pooled(call, maximum),)


@rule("aten.avg_pool3d.default", "aten.avg_pool2d.default")
def avg_pool(call: Call) -> Value:
    """Of a clip or of pictures; zeros in the padding count only where asked for."""
    x = call.tensor()
    if call["divisor_override"] is not None:
        call.refuse("divisor_override is not covered")
    if call["count_include_pad"] and any(call["padding"]):
        return _pooled(call, weighted(x.shape[1], 1.0))
    return _pooled(call, average)


def _pooled(call: Call, make: Make) -> Value:
    x = _batched(call)
    if isinstance(x, Plain):
        windows = Windows.of(call, 2)
        _whole(call, windows, x.shape[2:], call.shape[2:])
        return call.result(call.emit(windows.over_pictures(make, 0, 1, x.shape[1]), x))
    clip = call.clip("self")
    windows = Windows.of(call, 3)
    _whole(call, windows, clip.shape[2:], call.shape[2:])
    out = TensorSpec(*call.shape)
    between = clip.spec.with_(h=out.h, w=out.w)
    node = call.emit(windows.over_pictures(make, 1, 2, clip.spec.c), clip)
    if windows.kernel[0] == 1:
        return Clip(call.emit(taken(between, 0, windows.stride[0], out.t), node), out)
    time = windows.over_pictures(make, 0, None, clip.spec.c)
    return Clip(call.emit(OverTime(time, between, out), node), out)


def _batched(call: Call) -> Clip | Plain:
    """The input of a pooling; torch also takes one without the axis of the batch."""
    x = call.tensor()
    axes, names = (5, "N, C, T, H, W") if "pool3d" in str(call.node.target) else (4, "N, C, H, W")
    if len(x.shape) != axes:
        call.refuse(f"a tensor ({names}) is expected")
    return x


def _whole(call: Call, windows: Windows, before: Sequence[int], after: Sequence[int]) -> None:
    """Refuses windows that hang over the end, and padding where there is no window."""
    if [windows.size(axis, size) for axis, size in enumerate(before)] != list(after):
        call.refuse("ceil_mode with windows that are not whole is not covered")
    if any(pad and kernel == 1 for pad, kernel in zip(windows.padding, windows.kernel, strict=True)):
        call.refuse("padding with a window of one value is not covered")


@rule("aten.adaptive_avg_pool3d.default", "aten.adaptive_max_pool3d.default",
      "aten.adaptive_avg_pool2d.default", "aten.adaptive_max_pool2d.default")  # fmt: skip
def adaptive_pool(call: Call) -> Value | tuple[Value, ...]:
    """To sizes that divide the input's: a pooling with windows side by side."""
    x, largest = _batched(call), "max" in str(call.node.target)
    before, after = x.shape[2:], call.shape[2:]
    if any(size % wanted for size, wanted in zip(before, after, strict=True)):
        call.refuse(f"pooling to {'x'.join(map(str, after))}, which does not divide the input, is not covered")
    if len(before) == 3:
        clip = call.clip("self")
        if set(after) == {1} and not largest:
            return Clip(call.emit(MeanOfClip(clip.spec), clip), clip.spec.with_(t=1, h=1, w=1))
        result: Value = _over(call, clip, tuple(after), maximum if largest else average)
    else:
        assert isinstance(x, Plain)
        kernel = tuple(size // wanted for size, wanted in zip(before, after, strict=True))
        windows = Windows(kernel, kernel, (0, 0), (1, 1), False)
        make = maximum if largest else average
        node = call.emit(FrameMean() if (*after, largest) == (1, 1, False) else windows.over_pictures(make, 0, 1, 1), x)
        result = Plain(node, call.shape)
    return (result,) if largest else result


def _over(call: Call, clip: Clip, after: tuple[int, ...], make: Make) -> Clip:
    """Windows side by side, so many over T, H and W."""
    t, h, w = after
    spec, out = clip.spec, clip.spec.with_(t=t, h=h, w=w)
    kernel = (spec.t // t, spec.h // h, spec.w // w)
    windows, node = Windows(kernel, kernel, (0, 0, 0), (1, 1, 1), False), clip.node
    between = spec.with_(h=h, w=w)
    if (h, w) == (1, 1) and make is average and kernel[1:] != (1, 1):
        node = call.emit(FrameMean(), node)
    else:
        node = call.emit(windows.over_pictures(make, 1, 2, spec.c), node)
    if kernel[0] > 1:
        node = call.emit(OverTime(windows.over_pictures(make, 0, None, spec.c), between, out), node)
    return Clip(node, out, clip.order)


@rule("aten.max.dim")
def max_over_axis(call: Call) -> tuple[Value]:
    """The values of ``torch.max(x, dim)``; where they stand is not covered."""
    return (reduced(call, call.tensor(), largest=True),)


@rule("aten.mean.dim", "aten.mean.default", "aten.amax.default", "aten.max.default")
def reduce(call: Call) -> Value:
    """Mean or maximum."""
    return reduced(call, call.tensor(), largest="max" in str(call.node.target))


def axes_of(call: Call, x: Clip | Plain) -> list[int]:
    """The axes that a call reduces: all where it names none."""
    rank = len(x.shape)
    if "dim" not in call:
        return list(range(rank))
    given = [call["dim"]] if isinstance(call["dim"], int) else call["dim"]
    return sorted({dim % rank for dim in (given or range(rank))})


def reduced(call: Call, x: Clip | Plain, *, largest: bool) -> Clip | Plain:
    """Mean or maximum over the axes of a call, of any but those of several clips."""
    dims = axes_of(call, x)
    if isinstance(x, Plain):
        return _reduce_plain(call, x, dims, largest)
    small = _over_axes(call, x, {x.order[dim] for dim in dims}, largest)
    return small if len(call.shape) == 5 else call.reshaped(small, call.shape)


def _over_axes(call: Call, x: Clip, axes: set[str], largest: bool) -> Clip:
    """A clip with one place on each of these axes: over T, H and W first, over channels last."""
    if "N" in axes and x.spec.n > 1:
        call.refuse("over the batch is not covered")
    after = tuple(1 if axis in axes else sizes(x.spec)[axis] for axis in "THW")
    if after == (1, 1, 1) and not largest:
        x = Clip(call.emit(MeanOfClip(x.spec), x), x.spec.with_(t=1, h=1, w=1), x.order)
    else:
        x = _over(call, x, after, maximum if largest else average)
    return _over_channels(call, x, largest) if "C" in axes and x.spec.c > 1 else x


def _over_channels(call: Call, x: Clip, largest: bool) -> Clip:
    """A mean is a 1x1 convolution with equal weights; the largest value is that of each row, with channels as W."""
    if largest:
        rows = call.refolded(x, x.order.translate(str.maketrans("CW", "WC")))
        return _over(call, rows, (rows.spec.t, rows.spec.h, 1), maximum)
    equal = torch.full((1, x.spec.c, 1, 1), 1 / x.spec.c, dtype=torch.float64)
    return Clip(call.emit(conv2d(equal, None, (1, 1), (0, 0), (1, 1), 1), x), x.spec.with_(c=1), x.order)


def _reduce_plain(call: Call, x: Plain, dims: list[int], largest: bool) -> Clip | Plain:
    """Two axes at the end of four, one axis of three, (N, T, C) -> (N, C), or any axes of pictures."""
    if len(x.shape) == 4 and dims == [2, 3]:
        module = nn.MaxPool2d(x.shape[2:]) if largest else FrameMean()
        return call.reshaped(Plain(call.emit(module, x), (*x.shape[:2], 1, 1)), call.shape)
    if len(x.shape) == 3 and len(dims) == 1 and dims[0] > 0:
        n, other = x.shape[0], x.shape[3 - dims[0]]
        # the axis to keep as channels, the other one as the height of a picture
        order, size = ((0, 1, 2), x.shape[2]) if dims[0] == 2 else ((0, 2, 1), x.shape[1])
        node = call.emit(Pictures(order, (n, other, size, 1)), x)
        module = nn.MaxPool2d((size, 1)) if largest else FrameMean()
        return call.reshaped(Plain(call.emit(module, node), (n, other, 1, 1)), call.shape)
    if len(x.shape) > 4:
        call.refuse(f"over axes {dims} of {len(x.shape)}: tensors of at most five axes are covered")
    t, c, h, w = shape = (*x.shape, 1, 1, 1, 1)[:4]
    clip = Clip(call.reshaped(x, shape).node, TensorSpec(1, c, t, h, w), FOLDED)  # pictures as frames of one clip
    return call.reshaped(_over_axes(call, clip, {"TCHW"[dim] for dim in dims}, largest), call.shape)


class Pictures(nn.Module):
    """A permutation, then a reshape."""

    def __init__(self, order: Sequence[int], shape: Sequence[int]) -> None:
        super().__init__()
        self.order, self.shape = tuple(order), tuple(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(self.order).reshape(self.shape)


def _each(values: Sequence[int], axes: int) -> tuple[int, ...]:
    return tuple(values) if len(values) == axes else (values[0],) * axes
