"""What transformers add: normalisation over the last axis, products of matrices, attention, windows that are rolled."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import nn

from hwbench.blocks.graph.convolution import conv2d, fully_connected
from hwbench.blocks.graph.pointwise import Binary, Op, WithConstants, depending, order_of
from hwbench.blocks.graph.rules import Call, rule
from hwbench.blocks.graph.shaping import chosen, concatenated, part
from hwbench.blocks.graph.values import CHANNELS_LAST, Clip, Plain, Value
from hwbench.specs import Precision


@rule("aten.new_zeros.default", "aten.new_ones.default", "aten.new_empty.default", "aten.new_full.default",
      "aten.zeros_like.default", "aten.ones_like.default", "aten.full_like.default")  # fmt: skip
def filled_like(call: Call) -> Value:
    """A constant: it takes shape and dtype of the input alone, and both are baked in."""
    like = call.node.meta["val"]
    value = 1.0 if "ones" in str(call.node.target) else float(call["fill_value"]) if "fill_value" in call else 0.0
    return torch.full(call.shape, value, dtype=like.dtype)


@rule("aten._to_copy.default", "aten.to.dtype")
def same(call: Call) -> Value:
    """The value itself, where neither the numbers nor their type change."""
    x, made = call.tensor(), call.node.meta.get("val")
    if isinstance(made, torch.Tensor):
        source = call.node.all_input_nodes[0].meta.get("val")
        if not made.dtype.is_floating_point or (isinstance(source, torch.Tensor) and source.dtype != made.dtype):
            call.refuse(f"a conversion to {made.dtype} is not covered: leave it out, a file computes in one type")
    return x


class LayerNorm(nn.Module):
    """Layer normalisation over one axis (Ba, Kiros and Hinton 2016) of operations that a mobile runtime has.

    A mean over channels is a convolution with equal weights: XNNPACK takes no mean over any axes but height and width.

    Args:
        axis: 1: channels of (N, C, H, W); -1: the last axis of any tensor.
        channels: Size of the axis.
        eps: Added to the variance.
        weight: Scale by channel; None: 1.
        bias: Shift by channel; None: 0.
    """

    # Squares span far more than 8 bits do, and go beyond what 16 bits hold.
    in_fp32: ClassVar[frozenset[Precision]] = frozenset({Precision.INT8, Precision.FP16, Precision.BF16})
    scale: torch.Tensor | None
    shift: torch.Tensor | None

    def __init__(
        self, axis: int, channels: int, eps: float, weight: torch.Tensor | None, bias: torch.Tensor | None
    ) -> None:
        super().__init__()
        self.axis, self.eps = axis, eps
        self.mean = mean_over(axis, channels)
        shape = (-1, 1, 1) if axis == 1 else (-1,)
        self.register_buffer("scale", None if weight is None else weight.reshape(shape).clone())
        self.register_buffer("shift", None if bias is None else bias.reshape(shape).clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x - self.mean(x)
        x = x * torch.rsqrt(self.mean(x * x) + self.eps)
        if self.scale is not None:
            x = x * self.scale
        return x if self.shift is None else x + self.shift


def mean_over(axis: int, channels: int) -> nn.Module:
    """The mean over channels of (N, C, H, W), axis 1, or over the last axis of any tensor, -1; the axis is kept."""
    equal = torch.full((1, channels), 1.0 / channels, dtype=torch.float64)
    if axis == 1:
        return conv2d(equal[:, :, None, None], None, (1, 1), (0, 0), (1, 1), 1)
    return fully_connected(equal, None)


def normalised(call: Call) -> tuple[Clip | Plain, int, int]:
    """A tensor whose last axis is normalised, that axis as it is stored (1: channels of a clip; or -1), its size."""
    x, shape = call.tensor(), list(call["normalized_shape"])
    if len(shape) != 1:
        call.refuse(f"normalisation over the last {len(shape)} axes is not covered, over the last one is")
    if isinstance(x, Clip):
        return (x if x.order[-1] == "C" else call.refolded(x, CHANNELS_LAST)), 1, shape[0]
    return x, -1, shape[0]


@rule("aten.layer_norm.default", "aten.native_layer_norm.default")
def layer_norm(call: Call) -> Value | tuple[Value, ...]:
    """Over the last axis."""
    x, axis, size = normalised(call)
    weight, bias = call.constant("weight"), call.constant("bias")
    node = call.emit(LayerNorm(axis, size, float(call["eps"]), weight, bias), x)
    made = call.result(node, order_of(x))
    return (made, made, made) if "native" in str(call.node.target) else made


@rule("aten.matmul.default", "aten.bmm.default", "aten.mm.default")
def matmul(call: Call) -> Value:
    """Matrices in the last two axes."""
    return multiplied(call, *(call[name] for name in call.names[:2]))


def multiplied(call: Call, first: Any, second: Any) -> Value:
    """The product of two matrices, in the shape of the call; a constant second factor is a linear layer."""
    if isinstance(second, torch.Tensor) and second.dim() == 2 and not isinstance(first, torch.Tensor):
        node = call.emit(fully_connected(second.t(), None), call.natural(first))
        return call.from_natural(node)
    operands = [x if isinstance(x, torch.Tensor) else call.natural(x) for x in (first, second)]
    return call.from_natural(call.emit(WithConstants(product, operands), *depending(operands)))


def product(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Products of matrices, (..., M, K) and (..., K, N); of equal batches, nothing is broadcast in vain."""
    ahead = first.shape[:-2]
    if ahead != second.shape[:-2] or not ahead:
        return torch.matmul(first, second)
    pair = (one.reshape(-1, *one.shape[-2:]) for one in (first, second))
    return torch.bmm(*pair).reshape(*ahead, first.shape[-2], second.shape[-1])


@rule("aten.einsum.default")
def einsum(call: Call) -> Value:
    """A sum of products by its equation, as a product of matrices where it has two factors."""
    operands = [x if isinstance(x, torch.Tensor) else call.natural(x) for x in call["tensors"]]
    contraction = Contraction(call["equation"])
    return call.from_natural(call.emit(WithConstants(contraction, operands), *depending(operands)))


class Contraction:
    """``torch.einsum`` of an equation; of two factors as one product of matrices, which broadcasts nothing.

    Args:
        equation: Such as ``bhqc,hkc->bhqk``.
    """

    def __init__(self, equation: str) -> None:
        self.equation = equation.replace(" ", "")

    def __call__(self, *tensors: torch.Tensor) -> torch.Tensor:
        sources, arrow, target = self.equation.partition("->")
        letters = sources.split(",")
        plain = arrow and "." not in self.equation and all(len(set(word)) == len(word) for word in (*letters, target))
        if not plain or len(letters) != 2:
            return torch.einsum(self.equation, *tensors)
        first, second = letters
        size = dict(zip(first + second, (*tensors[0].shape, *tensors[1].shape), strict=True))
        batch = [letter for letter in first if letter in second and letter in target]
        summed = [letter for letter in first if letter in second and letter not in target]
        rows, columns = (
            [x for x in word if x in target and x not in other] for word, other in ((first, second), (second, first))
        )
        if len(batch) + len(summed) + len(rows) != len(first) or len(batch) + len(summed) + len(columns) != len(second):
            return torch.einsum(self.equation, *tensors)  # one factor is summed on its own

        def matrices(tensor: torch.Tensor, word: str, *groups: list[str]) -> torch.Tensor:
            moved = tensor.permute([word.index(letter) for group in groups for letter in group])
            return moved.reshape([math.prod(size[letter] for letter in group) for group in groups])

        made = torch.bmm(
            matrices(tensors[0], first, batch, rows, summed), matrices(tensors[1], second, batch, summed, columns)
        )
        order = [*batch, *rows, *columns]
        made = made.reshape([size[letter] for letter in order])
        return made.permute([order.index(letter) for letter in target])


class Attention(nn.Module):
    """``softmax(scale · q kᵀ + mask) v`` over the last two axes (Vaswani et al. 2017, equation 1)."""

    # ExecuTorch's quantiser knows no product of two activations.
    in_fp32: ClassVar[frozenset[Precision]] = frozenset({Precision.INT8})

    mask: torch.Tensor | None

    def __init__(self, scale: float, mask: torch.Tensor | None) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("mask", None if mask is None else mask.clone())

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = product(q * self.scale, k.transpose(-2, -1))
        if self.mask is not None:
            scores = scores + self.mask
        return product(torch.softmax(scores, -1), v)


@rule("aten.scaled_dot_product_attention.default")
def attention(call: Call) -> Value:
    """With a constant mask or none; of constants such as the query of a pooling, too."""
    operands, mask = [call["query"], call["key"], call["value"]], call.constant("attn_mask")
    q, k, _ = operands
    if call["dropout_p"]:
        call.refuse("it draws random numbers, also in eval mode; pass dropout_p=self.p if self.training else 0.0")
    if call["enable_gqa"]:
        call.refuse("groups of queries that share a key are not covered")
    length, keys = q.shape[-2], k.shape[-2]
    if call["is_causal"]:
        mask = torch.ones(length, keys, dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -math.inf)
    scale = 1 / math.sqrt(q.shape[-1]) if call["scale"] is None else float(call["scale"])
    operands = [x if isinstance(x, torch.Tensor) else call.natural(x) for x in operands]
    attended = Attention(scale, mask)
    if len(depending(operands)) == len(operands):
        return call.from_natural(call.emit(attended, *operands))
    return call.from_natural(call.emit(WithConstants(attended, operands), *depending(operands)))


@rule("aten.roll.default")
def roll(call: Call) -> Value:
    """Of any axes but the batch of a clip: what leaves at one end enters at the other."""
    x, dims = call.tensor(), list(call["dims"])
    if not dims:
        call.refuse("over all axes at once is not covered")
    for shift, dim in zip(call["shifts"], dims, strict=True):
        dim, size = dim % len(x.shape), x.shape[dim]
        cut = -shift % size
        if cut:
            ends = [part(call, x, dim, range(cut, size)), part(call, x, dim, range(cut))]
            x = concatenated(call, ends, dim, x.shape)
    return x


@rule("aten.index.Tensor", "aten.index_select.default")
def index(call: Call) -> Value:
    """Places of one axis that do not depend on the input: one part for each run of neighbours, as XNNPACK slices."""
    x = call.tensor()
    if "index_select" in str(call.node.target):
        dim, places = call["dim"] % len(x.shape), call["index"]
    else:
        given = [(dim, places) for dim, places in enumerate(call["indices"]) if places is not None]
        if len(given) != 1:
            call.refuse("places of one axis are covered")
        ((dim, places),) = given
    if not isinstance(places, torch.Tensor) or places.dim() != 1 or places.dtype == torch.bool:
        call.refuse("its places must be a list of numbers that does not depend on the input")
    return chosen(call, x, dim, [int(place) % x.shape[dim] for place in places])


@rule("aten.repeat_interleave.self_int")
def repeat_interleave(call: Call) -> Value:
    """Each place of an axis so many times in a row, as a product with ones: XNNPACK broadcasts and does not expand."""
    x, count = call.tensor(), int(call["repeats"])
    if call["dim"] is None:
        call.refuse("over all axes at once is not covered")
    dim = call["dim"] % len(x.shape)
    places, values = math.prod(x.shape[: dim + 1]), math.prod(x.shape[dim + 1 :])
    ones = torch.ones(count, 1, dtype=torch.float64)
    module = Binary("mul", shapes=((places, 1, values), (count, 1)), constant=ones, shape=call.shape)
    return call.from_natural(call.emit(module, call.natural(x)))


@rule("aten.softmax.int", "aten._softmax.default")
def softmax(call: Call) -> Value:
    """Over one axis; XNNPACK takes the last one."""
    return over_last_axis(call, Op(torch.ops.aten.softmax.int, -1))


def over_last_axis(call: Call, module: nn.Module) -> Value:
    """What a module makes of the last axis, of the axis that a call names."""
    x = call.tensor()
    dim = call["dim"] % len(x.shape)
    node = call.natural(x)
    swaps = [] if dim == len(x.shape) - 1 else [Op(torch.ops.aten.transpose.int, dim, -1)]
    for step in (*swaps, module, *swaps):
        node = call.emit(step, node)
    return call.from_natural(node)
