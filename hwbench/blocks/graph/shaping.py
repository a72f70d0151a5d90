"""Operations that move values: reshapes, permutations, slices, concatenations, padding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from hwbench.blocks.graph.frames import Joined, Pad, taken
from hwbench.blocks.graph.pointwise import Op, WithConstants, combined, depending
from hwbench.blocks.graph.pooling import every
from hwbench.blocks.graph.rules import Call, rule
from hwbench.blocks.graph.values import BlockSwaps, Clip, Plain, Unsplit, Value, sizes, spec_of

# So many parts a file has for places of an axis that are no neighbours: XNNPACK slices with step 1.
MAX_PARTS = 64


@rule("aten.clone.default", "aten.alias.default", "aten.contiguous.default", "aten.detach.default",
      "aten.dropout.default", "aten.feature_dropout.default", "aten.lift_fresh_copy.default")  # fmt: skip
def nothing(call: Call) -> Value:
    """The value itself: the graph is that of eval mode."""
    return call.unsplit()


@rule("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten.flatten.using_ints",
      "aten.unflatten.int", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
      "aten.unsqueeze.default")  # fmt: skip
def reshape(call: Call) -> Value:
    """The values in the order of the original in another shape."""
    return call.reshaped(call.unsplit(), call.shape)


@rule("aten.expand.default")
def expand(call: Call) -> Value:
    """A sum with zeros of that shape; nothing where the shape is the same."""
    return expanded(call, call.tensor())


def expanded(call: Call, x: Clip | Plain) -> Value:
    """A tensor in the shape of the call: axes of one place are repeated by zeros, as long in these axes alone."""
    if x.shape == call.shape:
        return x
    mine = (1,) * (len(call.shape) - len(x.shape)) + x.shape
    wider = [wanted if size == 1 else 1 for size, wanted in zip(mine, call.shape, strict=True)]
    return combined(call, "add", [x, torch.zeros(wider, dtype=torch.float64)])


@rule("aten.permute.default", "aten.transpose.int", "aten.t.default", "aten.movedim.int")
def permute(call: Call) -> Value:
    """Of a clip another order of its axes, which costs nothing; of other tensors a permutation."""
    x = call.unsplit()
    order = _order(call, len(x.shape))
    if isinstance(x, Clip):
        return Clip(x.node, x.spec, "".join(x.order[dim] for dim in order))
    if isinstance(x, Unsplit):
        return Unsplit(call.emit(BlockSwaps(x.shape, order), x), call.shape)
    return call.result(call.emit(Op(torch.ops.aten.permute.default, order), x))


def _order(call: Call, rank: int) -> list[int]:
    if "permute" in str(call.node.target):
        return [dim % rank for dim in call["dims"]]
    order = list(range(rank))
    if "movedim" in str(call.node.target):
        order.insert(call["destination"] % rank, order.pop(call["source"] % rank))
        return order
    a, b = (call["dim0"] % rank, call["dim1"] % rank) if "transpose" in str(call.node.target) else (0, rank - 1)
    order[a], order[b] = order[b], order[a]
    return order


@rule("aten.slice.Tensor")
def slice_(call: Call) -> Value:
    """Part of one axis; with a step over T, H and W of a clip, or over few places of a tensor of other axes."""
    x = call.tensor()
    dim = call["dim"] % len(x.shape)
    kept = range(*slice(call["start"], call["end"], call["step"]).indices(x.shape[dim]))
    if isinstance(x, Plain) and kept.step != 1 and 1 < len(kept) <= MAX_PARTS:
        return chosen(call, x, dim, kept)
    return part(call, x, dim, kept if len(kept) != 1 else range(kept.start, kept.start + 1))


@rule("aten.select.int")
def select(call: Call) -> Value:
    """One place of an axis, which goes."""
    x = call.tensor()
    dim = call["dim"] % len(x.shape)
    index = call["index"] % x.shape[dim]
    return call.reshaped(part(call, x, dim, range(index, index + 1)), call.shape)


@rule("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.unbind.int")
def split(call: Call) -> tuple[Value, ...]:
    """Every part of an axis that the original takes."""
    x = call.tensor()
    dim = call["dim"] % len(x.shape)
    unbound = "unbind" in str(call.node.target)
    parts: list[Value] = []
    first = 0
    for shape in call.shapes:
        last = first + (1 if unbound else shape[dim])
        found = part(call, x, dim, range(first, last))
        parts.append(call.reshaped(found, shape) if unbound else found)
        first = last
    return tuple(parts)


def part(call: Call, x: Clip | Plain, dim: int, kept: range) -> Clip | Plain:
    """Places ``kept`` of one axis."""
    shape = (*x.shape[:dim], len(kept), *x.shape[dim + 1 :])
    if shape == x.shape:
        return x
    if isinstance(x, Plain):
        if kept.step != 1:
            call.refuse(f"step {kept.step} over axis {dim} of {len(x.shape)} is not covered")
        return Plain(call.emit(Op(torch.ops.aten.slice.Tensor, dim, kept.start, kept.stop, 1), x), shape)
    axis = x.order[dim]
    if axis == "N":
        call.refuse("part of a batch is not covered")
    spec = spec_of(shape, x.order)
    if axis == "T":
        return Clip(call.emit(taken(x.spec, kept.start, kept.step, len(kept)), x), spec, x.order)
    place = "CHW".index(axis) + 1
    node = x.node
    if kept.step != 1 and axis == "C":
        call.refuse(f"step {kept.step} over channels is not covered")
    if kept.start or kept.step == 1:
        last = kept.stop if kept.step == 1 else sizes(x.spec)[axis]
        node = call.emit(Op(torch.ops.aten.slice.Tensor, place, kept.start, last, 1), node)
    if kept.step != 1:
        node = call.emit(every(x.spec.c, (kept.step, 1) if axis == "H" else (1, kept.step)), node)
        node = call.emit(Op(torch.ops.aten.slice.Tensor, place, 0, len(kept), 1), node)
    return Clip(node, spec, x.order)


def chosen(call: Call, x: Clip | Plain, dim: int, places: Sequence[int]) -> Clip | Plain:
    """These places of one axis in this order: one part for each run of neighbours."""
    parts = [part(call, x, dim, run) for run in _runs(places)]
    shape = (*x.shape[:dim], len(places), *x.shape[dim + 1 :])
    return parts[0] if len(parts) == 1 else concatenated(call, parts, dim, shape)


def _runs(places: Sequence[int]) -> list[range]:
    """Numbers as ranges of step 1, in their order."""
    runs: list[range] = []
    for place in places:
        if runs and runs[-1].stop == place:
            runs[-1] = range(runs[-1].start, place + 1)
        else:
            runs.append(range(place, place + 1))
    return runs


@rule("aten.cat.default", "aten.stack.default")
def cat(call: Call) -> Value:
    """Along any axis but the batch; a stack is a concatenation of tensors with one axis more."""
    name = "tensors" if "tensors" in call else "self"
    values: list[Any] = call[name]
    dim = call["dim"] % len(call.shape)
    if any(isinstance(x, torch.Tensor) for x in values):
        return _with_constants(call, values, dim)
    if "stack" in str(call.node.target):
        shape = (*call.shape[:dim], 1, *call.shape[dim + 1 :])
        values = [call.reshaped(x, shape) for x in values]
    return concatenated(call, values, dim, call.shape)


def _with_constants(call: Call, values: Sequence[Any], dim: int) -> Clip | Plain:
    """Some parts do not depend on the input, such as the token of the class."""
    join = torch.stack if "stack" in str(call.node.target) else torch.cat
    operands = [x if isinstance(x, torch.Tensor) else call.natural(x) for x in values]
    module = WithConstants(functools.partial(_joined, join, dim), operands)
    return call.from_natural(call.emit(module, *depending(operands)))


def _joined(join: Callable[..., torch.Tensor], dim: int, *parts: torch.Tensor) -> torch.Tensor:
    return join(parts, dim)


def concatenated(call: Call, values: Sequence[Any], dim: int, shape: tuple[int, ...]) -> Clip | Plain:
    """Values one after the other along an axis; ``shape`` is that of the result."""
    if not isinstance(values[0], Clip):
        return call.result(call.emit(_Cat(dim), *values), shape=shape)
    order = values[0].order
    values = [call.refolded(x, order) for x in values]
    axis = order[dim]
    if axis == "N":
        call.refuse("along the batch is not covered")
    module = Joined(values[0].spec.n) if axis == "T" else _Cat("NCHW".index(axis))
    return call.result(call.emit(module, *values), order, shape)


class _Cat(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return torch.cat(list(parts), self.dim)


@rule("aten.pad.default", "aten.constant_pad_nd.default")
def pad(call: Call) -> Value:
    """With a constant, any axis of a clip but the batch; or with places of the tensor itself."""
    x, amounts = call.tensor(), list(call["pad"])
    if "mode" in call and call["mode"] != "constant":
        return _padded_with_itself(call, x, amounts, call["mode"])
    value = float(call["value"] or 0.0)
    if not any(amounts):
        return x
    if min(amounts) < 0:
        call.refuse("negative padding is not covered")
    if isinstance(x, Plain):
        return call.result(call.emit(Op(torch.ops.aten.constant_pad_nd.default, amounts, value), x))
    by_axis = {axis: tuple(amounts[2 * i : 2 * i + 2]) for i, axis in enumerate(reversed(x.order)) if amounts[2 * i :]}
    if any(by_axis.get("N", ())):
        call.refuse("padding of the batch is not covered")
    pairs = [by_axis.get(axis, (0, 0)) for axis in "CTHW"]
    return call.result(call.emit(Pad(x.spec, pairs, value), x), x.order)


# Mode -> the place of an axis that stands at a place outside of it; the axis has so many places.
_OUTSIDE: dict[str, Callable[[int, int], int]] = {
    "replicate": lambda place, size: min(max(place, 0), size - 1),
    "reflect": lambda place, size: size - 1 - abs(size - 1 - abs(place)),
    "circular": lambda place, size: place % size,
}


def _padded_with_itself(call: Call, x: Clip | Plain, amounts: Sequence[int], mode: str) -> Clip | Plain:
    """Axis by axis from the last one."""
    for index, (before, after) in enumerate(zip(amounts[::2], amounts[1::2], strict=True)):
        dim = len(x.shape) - 1 - index
        size = x.shape[dim]
        x = chosen(call, x, dim, [_OUTSIDE[mode](place, size) for place in range(-before, size + after)])
    return x


@rule("aten.copy.default")
def copy(call: Call) -> Value:
    """The second tensor, where it has the shape of the first that it is written over."""
    source: Value = call["src"]
    if tuple(source.shape) != call.shape:
        call.refuse("a copy that broadcasts is not covered")
    return source


@rule("aten.slice_scatter.default", "aten.select_scatter.default")
def scatter(call: Call) -> Value:
    """A tensor with another one in the place of a part of it."""
    dim = call["dim"] % len(call.shape)
    single = "select" in str(call.node.target)
    size = call.shape[dim]
    kept = (
        range(call["index"] % size, call["index"] % size + 1)
        if single
        else range(*slice(call["start"], call["end"], call["step"]).indices(size))
    )
    if kept.step != 1:
        call.refuse(f"step {kept.step} is not covered")
    operands = [x if isinstance(x, torch.Tensor) else call.natural(x) for x in (call["self"], call["src"])]
    put = functools.partial(_scattered, dim, kept, single)
    return call.from_natural(call.emit(WithConstants(put, operands), *depending(operands)))


def _scattered(dim: int, kept: range, single: bool, whole: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """``whole`` with ``new``, which lacks the axis where ``single``, in the place of what is ``kept``."""
    new = new.unsqueeze(dim) if single else new
    ends = whole.narrow(dim, 0, kept.start), whole.narrow(dim, kept.stop, whole.shape[dim] - kept.stop)
    return torch.cat([one for one in (ends[0], new, ends[1]) if one.shape[dim]], dim)
