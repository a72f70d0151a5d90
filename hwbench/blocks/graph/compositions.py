"""Operations that are made of those of the other modules, or that only move values by a fixed pattern."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch

from hwbench.blocks.graph.attention import multiplied
from hwbench.blocks.graph.pointwise import Op, combined
from hwbench.blocks.graph.pooling import axes_of, reduced
from hwbench.blocks.graph.rules import Call, rule
from hwbench.blocks.graph.shaping import MAX_PARTS, chosen, concatenated, expanded
from hwbench.blocks.graph.values import MAX_AXES, Clip, Plain, Reorder, Value

_aten = torch.ops.aten


@rule("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.square.default")
def power(call: Call) -> Value:
    """One exponent for all values; XNNPACK has no power but the square."""
    x, exponent = call.reshaped(call.tensor(), call.shape), _exponent(call)
    if not math.isfinite(exponent):
        call.refuse(f"a power of {exponent:g} is not covered")
    return _power(call, x, exponent) if exponent else torch.ones(call.shape, dtype=torch.float64)


def _exponent(call: Call) -> float:
    if "exponent" not in call:
        return 2.0
    exponent = call["exponent"]
    if isinstance(exponent, Clip | Plain):
        call.refuse("its exponent depends on the input; where x is above 0 write torch.exp(exponent * torch.log(x))")
    if isinstance(exponent, torch.Tensor) and exponent.numel() > 1:
        call.refuse(
            "more than one exponent is not covered; where x is above 0 write torch.exp(exponent * torch.log(x))"
        )
    return float(exponent)


def _power(call: Call, x: Clip | Plain, exponent: float) -> Clip | Plain:
    """Products for whole exponents, times a root for halves, else ``exp(exponent · log(x))``."""
    if exponent == 1:
        return x
    if abs(exponent) == 0.5:
        return _same_axes(call, Op((_aten.sqrt if exponent > 0 else _aten.rsqrt).default), x)
    if exponent < 0:
        return combined(call, "div", [1.0, _power(call, x, -exponent)])
    if exponent % 1 == 0.5:
        return combined(call, "mul", [_power(call, x, exponent - 0.5), _power(call, x, 0.5)])
    if exponent % 1:
        scaled = combined(call, "mul", [_same_axes(call, Op(_aten.log.default), x), exponent])
        return _same_axes(call, Op(_aten.exp.default), scaled)
    half = _power(call, x, exponent // 2)
    squared = combined(call, "mul", [half, half])
    return combined(call, "mul", [squared, x]) if exponent % 2 else squared


@rule("aten.reciprocal.default")
def reciprocal(call: Call) -> Value:
    """One over the values."""
    return combined(call, "div", [1.0, call.tensor()])


@rule("aten.clamp_min.default", "aten.clamp_max.default")
def clamp(call: Call) -> Value:
    """A clamp with one bound."""
    least, most = (float(call[name]) if name in call else None for name in ("min", "max"))
    return _same_axes(call, Op(_aten.clamp.default, least, most), call.tensor())


@rule("aten.max.other", "aten.min.other")
def larger(call: Call) -> Value:
    """The larger or smaller one of two, as ``maximum`` and ``minimum``."""
    name = "maximum" if "max" in str(call.node.target) else "minimum"
    return combined(call, name, [call.stored("self"), call.stored("other")])


@rule("aten.sum.dim_IntList", "aten.sum.default")
def total(call: Call) -> Value:
    """The mean times the number of values."""
    x = call.tensor()
    count = math.prod(x.shape[dim] for dim in axes_of(call, x))
    return combined(call, "mul", [reduced(call, x, largest=False), float(count)])


@rule("aten.amin.default", "aten.min.default")
def smallest(call: Call) -> Value:
    """Minimum."""
    return _smallest(call)


@rule("aten.min.dim")
def smallest_over_axis(call: Call) -> tuple[Value]:
    """The values of ``torch.min(x, dim)``; where they stand is not covered."""
    return (_smallest(call),)


def _smallest(call: Call) -> Clip | Plain:
    """The largest value of what is negated, negated."""
    negated = _same_axes(call, Op(_aten.neg.default), call.tensor())
    return _same_axes(call, Op(_aten.neg.default), reduced(call, negated, largest=True))


@rule("aten.repeat.default", "aten.tile.default")
def repeat(call: Call) -> Value:
    """The tensor several times in a row; an axis of one place is expanded."""
    x, counts = call.tensor(), list(call["repeats" if "repeats" in call else "dims"])
    rank = len(call.shape)
    if rank > MAX_AXES:
        call.refuse(f"more than {MAX_AXES} axes are not covered")
    counts = [1] * (rank - len(counts)) + counts
    x = call.reshaped(x, [1] * (rank - len(x.shape)) + list(x.shape))
    for dim, count in enumerate(counts):
        if count > 1 and x.shape[dim] > 1:
            x = concatenated(call, [x] * count, dim, (*x.shape[:dim], count * x.shape[dim], *x.shape[dim + 1 :]))
    return expanded(call, x)


@rule("aten.masked_fill.Scalar")
def masked_fill(call: Call) -> Value:
    """With a constant mask, by bounds that are infinite where values are kept: these may be infinite themselves."""
    x, mask, value = call.tensor(), call.constant("mask"), float(call["value"])
    assert mask is not None
    made: Value = x
    for name, open_end in (("minimum", math.inf), ("maximum", -math.inf)):
        bound = torch.full(mask.shape, open_end, dtype=torch.float64).masked_fill(mask, value)
        if value != open_end:
            made = combined(call, name, [made, bound])
    return made


@rule("aten.where.self")
def where(call: Call) -> Value:
    """By a constant mask: of two tensors, or of one and a constant, which bounds it from both sides where taken."""
    condition = call["condition"]
    if not isinstance(condition, torch.Tensor):
        call.refuse("its condition depends on the input; write what it chooses with clamp, relu, maximum or minimum")
    first, second = call["self"], call["other"]
    if isinstance(first, torch.Tensor) or isinstance(second, torch.Tensor):
        kept, made, constant = (
            (condition, first, second) if isinstance(second, torch.Tensor) else (~condition, second, first)
        )
        for name, open_end in (("minimum", math.inf), ("maximum", -math.inf)):
            made = combined(call, name, [made, torch.where(kept, open_end, constant.double())])
        return made  # type: ignore[no-any-return]
    parts = [combined(call, "mul", [x, mask.double()]) for x, mask in ((first, condition), (second, ~condition))]
    return combined(call, "add", parts)


@rule("aten.flip.default")
def flip(call: Call) -> Value:
    """The places of axes from the last to the first; each is a part of its own, as XNNPACK slices."""
    x = call.tensor()
    for dim in call["dims"]:
        dim, size = dim % len(x.shape), x.shape[dim]
        if size > MAX_PARTS:
            call.refuse(f"of {size} places is not covered, of {MAX_PARTS} at most is")
        x = chosen(call, x, dim, range(size)[::-1])
    return x


@rule("aten.baddbmm.default", "aten.addmm.default")
def sum_with_product(call: Call) -> Value:
    """``beta · first + alpha · product of the matrices``; with a ``beta`` of 0 the first is not read."""
    product: Value = multiplied(call, *(call[name] for name in call.names[1:3]))
    if call["alpha"] != 1:
        product = combined(call, "mul", [product, float(call["alpha"])])
    if not call["beta"]:
        return product
    return combined(call, "add", [product, call["self"]], float(call["beta"]))


@rule("aten.channel_shuffle.default")
def channel_shuffle(call: Call) -> Value:
    """Channels of all groups in turn (Zhang et al., ShuffleNet, CVPR 2018): groups and channels change places."""
    groups = call["groups"]
    return _permuted(call, lambda n, c, *space: (n, groups, c // groups, math.prod(space)), (0, 2, 1, 3))


@rule("aten.pixel_shuffle.default")
def pixel_shuffle(call: Call) -> Value:
    """Channels (C·r²) become r rows and r columns of each place (Shi et al., CVPR 2016)."""
    r = call["upscale_factor"]
    return _permuted(call, lambda n, c, h, w: (n, c // r**2, r, r, h, w), (0, 1, 4, 2, 5, 3))


@rule("aten.pixel_unshuffle.default")
def pixel_unshuffle(call: Call) -> Value:
    """r rows and r columns become channels (C·r²)."""
    r = call["downscale_factor"]
    return _permuted(call, lambda n, c, h, w: (n, c, h // r, r, w // r, r), (0, 1, 3, 5, 2, 4))


def _permuted(call: Call, split: Callable[..., Sequence[int]], order: tuple[int, ...]) -> Value:
    """Axes of the stored pictures split, permuted and put together again."""
    x = call.tensor()
    if isinstance(x, Clip):
        spatial = "pixel" in str(call.node.target)  # frames stay where they are: (N, T, C, H, W)
        x = call.refolded(x, "NTCHW" if spatial else "NCTHW")
        made = call.result(x.node, x.order)
        assert isinstance(made, Clip)
        stored, shape = x.spec.folded, made.spec.folded
        return Clip(call.emit(Reorder(tuple(split(*stored)), order, shape), x), made.spec, made.order)
    if "pixel" in str(call.node.target) and len(x.shape) != 4:
        call.refuse("pictures (N, C, H, W) and clips are covered")
    return Plain(call.emit(Reorder(tuple(split(*x.shape)), order, call.shape), x), call.shape)


def _same_axes(call: Call, op: Op, x: Clip | Plain) -> Clip | Plain:
    """An operation element by element."""
    return dataclasses.replace(x, node=call.emit(op, x))
