"""Normalisations that measure the tensor itself: of groups, of instances, by the root of the mean square."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import nn

from hwbench.blocks.graph.attention import LayerNorm, mean_over, normalised, over_last_axis
from hwbench.blocks.graph.convolution import batch_norm, conv2d
from hwbench.blocks.graph.pointwise import Op, order_of
from hwbench.blocks.graph.rules import Call, rule
from hwbench.blocks.graph.values import Clip, Plain, Value
from hwbench.blocks.layout import clip_mean
from hwbench.specs import Precision, TensorSpec

# Of fp32: below it a logarithm of what fp32 holds is minus infinity.
_TINY = torch.finfo(torch.float32).tiny


class GroupNorm(nn.Module):
    """Group normalisation (Wu and He 2018) of a folded clip (N·T, C, H, W), of operations that a mobile runtime has.

    A mean over the channels of a group is a grouped 1x1 convolution with equal weights.

    Args:
        spec: Of the clip; pictures are clips of one frame.
        groups: Of channels; as many as channels for instance normalisation.
        eps: Added to the variance.
        weight: Scale by channel; None: 1.
        bias: Shift by channel; None: 0.
    """

    in_fp32: ClassVar[frozenset[Precision]] = LayerNorm.in_fp32
    scale: torch.Tensor | None
    shift: torch.Tensor | None

    def __init__(
        self, spec: TensorSpec, groups: int, eps: float, weight: torch.Tensor | None, bias: torch.Tensor | None
    ) -> None:
        super().__init__()
        self.spec, self.eps = spec, eps
        size = spec.c // groups
        equal = torch.full((spec.c, size, 1, 1), 1.0 / size, dtype=torch.float64)
        self.group = nn.Identity() if size == 1 else conv2d(equal, None, (1, 1), (0, 0), (1, 1), groups)
        self.register_buffer("scale", None if weight is None else weight.reshape(-1, 1, 1).clone())
        self.register_buffer("shift", None if bias is None else bias.reshape(-1, 1, 1).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = x.shape
        x = self._of_clips(x) - self._mean(x)
        x = x * torch.rsqrt(self._mean((x * x).reshape(shape)) + self.eps)
        x = x.reshape(shape)
        if self.scale is not None:
            x = x * self.scale
        return x if self.shift is None else x + self.shift

    def _mean(self, x: torch.Tensor) -> torch.Tensor:
        return self._of_clips(self.group(clip_mean(x, self.spec)))

    def _of_clips(self, x: torch.Tensor) -> torch.Tensor:
        """With an axis of frames, where several clips have several: elsewhere frames broadcast as they are."""
        n, t = self.spec.n, self.spec.t
        return x if n == 1 or t == 1 else x.reshape(n, -1, *x.shape[1:])


@rule("aten.group_norm.default", "aten.instance_norm.default")
def group_norm(call: Call) -> Value | tuple[Value, ...]:
    """Over T, H and W of each clip and the channels of each group; of pictures over H and W."""
    if "use_input_stats" in call and not call["use_input_stats"]:
        return batch_norm(call)
    weight, bias, eps = call.constant("weight"), call.constant("bias"), float(call["eps"])
    x = call.tensor()
    x = call.clip("input") if isinstance(x, Clip) else x
    groups = int(call["num_groups"]) if "num_groups" in call else x.shape[1]
    if isinstance(x, Clip):
        spec = x.spec
    else:
        if len(x.shape) > 4:
            call.refuse("a tensor of at most five axes is expected")
        n, c, h, w = picture = (*x.shape, 1, 1)[:4]
        x, spec = call.reshaped(x, picture), TensorSpec(n, c, 1, h, w)
    node = call.emit(GroupNorm(spec, groups, eps, weight, bias), x)
    return Clip(node, x.spec, x.order) if isinstance(x, Clip) else call.reshaped(Plain(node, x.shape), call.shape)


class RmsNorm(nn.Module):
    """``x / sqrt(mean(x²) + eps)`` over one axis (Zhang and Sennrich 2019, equation 4).

    Args:
        axis: 1: channels of (N, C, H, W); -1: the last axis of any tensor.
        channels: Size of the axis.
        eps: Added to the mean.
        weight: Scale by channel; None: 1.
    """

    in_fp32: ClassVar[frozenset[Precision]] = LayerNorm.in_fp32
    scale: torch.Tensor | None

    def __init__(self, axis: int, channels: int, eps: float, weight: torch.Tensor | None) -> None:
        super().__init__()
        self.eps, self.mean = eps, mean_over(axis, channels)
        shape = (-1, 1, 1) if axis == 1 else (-1,)
        self.register_buffer("scale", None if weight is None else weight.reshape(shape).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * torch.rsqrt(self.mean(x * x) + self.eps)
        return x if self.scale is None else x * self.scale


@rule("aten.rms_norm.default")
def rms_norm(call: Call) -> Value:
    """Over the last axis."""
    x, axis, size = normalised(call)
    eps = torch.finfo(torch.float64).eps if call["eps"] is None else float(call["eps"])  # that of the proof
    return call.result(call.emit(RmsNorm(axis, size, eps, call.constant("weight")), x), order_of(x))


class Length(nn.Module):
    """``sqrt(sum(x²))`` over channels of (N, C, H, W), axis 1, or over the last axis of any tensor, -1."""

    in_fp32: ClassVar[frozenset[Precision]] = LayerNorm.in_fp32

    def __init__(self, axis: int, channels: int) -> None:
        super().__init__()
        self.mean, self.root = mean_over(axis, channels), math.sqrt(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(self.mean(x * x)) * self.root


@rule("aten.linalg_vector_norm.default")
def length(call: Call) -> Value:
    """The Euclidean length over one axis."""
    x, given = call.tensor(), call["dim"]
    if float(call["ord"]) != 2:
        call.refuse(f"a norm of order {call['ord']} is not covered, of order 2 is")
    dims = [given] if isinstance(given, int) else list(range(len(x.shape)) if given is None else given)
    if len(dims) != 1:
        call.refuse(f"over {len(dims)} axes is not covered, over one is")
    dim = dims[0] % len(x.shape)
    kept = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    if isinstance(x, Clip):
        if x.order[dim] == "N":
            call.refuse("over the batch is not covered")
        axis = x.order[dim]
        x = call.refolded(x, x.order.translate(str.maketrans(f"C{axis}", f"{axis}C")))
        node = call.emit(Length(1, x.spec.c), x)
        return call.reshaped(Clip(node, x.spec.with_(c=1), x.order), call.shape)
    last = len(x.shape) - 1
    swap = [] if dim == last else [Op(torch.ops.aten.transpose.int, dim, -1)]
    node = x.node
    for module in (*swap, Length(-1, x.shape[dim]), *swap):
        node = call.emit(module, node)
    return call.reshaped(Plain(node, kept), call.shape)


class LogSoftmax(nn.Module):
    """``log(softmax(x))`` over the last axis; what fp32 does not hold is the least that it does."""

    in_fp32: ClassVar[frozenset[Precision]] = LayerNorm.in_fp32

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(torch.clamp(torch.softmax(x, -1), min=_TINY))


@rule("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(call: Call) -> Value:
    """Over one axis; XNNPACK takes the last one."""
    return over_last_axis(call, LogSoftmax())
