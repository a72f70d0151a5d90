"""Operations that are made of those of the other modules, or that only move values by a fixed pattern."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from hwbench.blocks.graph.attention import multiplied
from hwbench.blocks.graph.pointwise import Op, combined
from hwbench.blocks.graph.pooling import reduce
from hwbench.blocks.graph.rules import Call, rule
from hwbench.blocks.graph.shaping import concatenated, expanded
from hwbench.blocks.graph.values import MAX_AXES, Clip, Plain, Reorder, Value

_aten = torch.ops.aten
# Powers that are one operation: exponent -> operation.
_ROOTS = {0.5: _aten.sqrt.default, -0.5: _aten.rsqrt.default}


@rule("aten.pow.Tensor_Scalar", "aten.square.default")
def power(call: Call) -> Value:
    """A product for 2 and 3, a root for 1/2 and -1/2, a quotient for -1: XNNPACK has no power of any exponent."""
    x, exponent = call.tensor(), float(call["exponent"]) if "exponent" in call else 2.0
    if exponent in _ROOTS:
        return _same_axes(call, Op(_ROOTS[exponent]), x)
    if exponent == -1:
        return combined(call, "div", [1.0, x])
    if exponent not in (2, 3):
        call.refuse(f"a power of {exponent:g} is not covered; 2, 3, 0.5, -0.5 and -1 are")
    squared = combined(call, "mul", [x, x])
    return squared if exponent == 2 else combined(call, "mul", [squared, x])


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


@rule("aten.sum.dim_IntList")
def total(call: Call) -> Value:
    """The mean times the number of values."""
    x = call.tensor()
    count = math.prod(x.shape[dim] for dim in (call["dim"] or range(len(x.shape))))
    return combined(call, "mul", [reduce(call), float(count)])


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
    """With a constant mask: the values times what is kept, plus the number where it is not."""
    x, mask, value = call.tensor(), call.constant("mask"), float(call["value"])
    assert mask is not None
    filled = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask, value)
    kept: Value = x if math.isinf(value) else combined(call, "mul", [x, (~mask).double()])
    return combined(call, "add", [kept, filled])


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


def _same_axes(call: Call, op: Op, x: Clip | Plain) -> Value:
    node = call.emit(op, x)
    return call.result(node, x.order) if isinstance(x, Clip) else call.result(node)
