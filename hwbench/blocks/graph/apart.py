"""Operations that are made of others: by functions of this module, or as torch takes them apart.

Torch's own decompositions are for compilers, which know comparisons and any index; a mobile runtime knows neither. A
function of this module takes the arguments of the operation and calls those that have a rule.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch.export import ExportedProgram
from torch.nn import functional as F

from hwbench.blocks.graph.rules import rules
from hwbench.errors import UnsupportedModule

Made = TypeVar("Made", bound=Callable[..., object])

_aten = torch.ops.aten
# Operation -> what it is made of.
_made_of: dict[torch._ops.OpOverload, Callable[..., object]] = {}
# What a decomposition makes is taken apart in turn, so often at most.
_ROUNDS = 8
# Of torch's decompositions those whose parts have no rule, so that messages name what a model calls.
_WHOLE = (_aten.conv_transpose1d.default, _aten.conv_transpose2d.input, _aten.conv_transpose3d.input)
# Of softplus: above it torch's is the line itself, which differs by less than fp32 tells apart.
_STRAIGHT = 20.0


def taken_apart(program: ExportedProgram) -> ExportedProgram:
    """A program in which no operation without a rule could be taken apart any further.

    What stays without a rule is refused later, by the name that it has then.
    """
    before: set[object] = set()
    for _ in range(_ROUNDS):
        called = {node.target for node in program.graph.nodes if node.op == "call_function"}
        without = {target for target in called if str(target) not in rules}
        apart = {target: _known()[target] for target in without if target in _known()}
        if set(apart) == before:  # nothing is left, or what stays as it is
            break
        before = set(apart)
        program = program.run_decompositions(apart)
    return program


@functools.cache
def _known() -> dict[Any, Callable[..., object]]:
    """What each operation is made of."""
    table = {**torch.export.default_decompositions(), **_made_of}
    return {operation: function for operation, function in table.items() if operation not in _WHOLE}


def made_of(*operations: torch._ops.OpOverload) -> Callable[[Made], Made]:
    """Decorator which binds a function to the operations that it computes, of floats.

    Numbers of other types do not depend on a clip: their operations stay, and are computed once.
    """

    def bind(function: Made) -> Made:
        @functools.wraps(function)
        def of_floats(*arguments: Any, **named: Any) -> object:
            asked = named.get("dtype")
            tensors = [x for x in (*arguments, *named.values()) if isinstance(x, torch.Tensor)]
            if not all(x.is_floating_point() and asked in (None, x.dtype) for x in tensors):
                return NotImplemented
            return function(*arguments, **named)

        _made_of.update(dict.fromkeys(operations, of_floats))
        return function

    return bind


@made_of(_aten.softplus.default)
def softplus(x: torch.Tensor, beta: float = 1.0, threshold: float = 20.0) -> torch.Tensor:
    """``log(1 + exp(beta · x)) / beta``, stable for large values."""
    if threshold < _STRAIGHT:
        raise UnsupportedModule(f"softplus with threshold={threshold:g} is not covered, with {_STRAIGHT:g} or more is")
    y = x * beta
    return (torch.relu(y) + _log1p_exp_of_negative(y)) * (1.0 / beta)


@made_of(_aten.mish.default)
def mish(x: torch.Tensor) -> torch.Tensor:
    """``x · tanh(softplus(x))`` (Misra 2019)."""
    return x * torch.tanh(torch.relu(x) + _log1p_exp_of_negative(x))


@made_of(_aten.log_sigmoid.default)
def log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """``log(sigmoid(x))``, stable for values far below zero."""
    return -torch.relu(-x) - _log1p_exp_of_negative(x)


def _log1p_exp_of_negative(x: torch.Tensor) -> torch.Tensor:
    """``log(1 + exp(-|x|))``."""
    return torch.log(torch.exp(-torch.abs(x)) + 1.0)


@made_of(_aten.log1p.default)
def log1p(x: torch.Tensor) -> torch.Tensor:
    """``log(1 + x)``."""
    return torch.log(x + 1.0)


@made_of(_aten.expm1.default)
def expm1(x: torch.Tensor) -> torch.Tensor:
    """``exp(x) - 1``."""
    return torch.exp(x) - 1.0


@made_of(_aten.celu.default)
def celu(x: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """``max(x, 0) + alpha · (exp(min(x, 0) / alpha) - 1)`` (Barron 2017)."""
    return torch.relu(x) + (torch.exp(-torch.relu(-x) * (1.0 / alpha)) - 1.0) * alpha


@made_of(_aten.lerp.Scalar, _aten.lerp.Tensor)
def lerp(start: torch.Tensor, end: torch.Tensor, weight: float | torch.Tensor) -> torch.Tensor:
    """A place on the line from one tensor to another."""
    return start + weight * (end - start)


@made_of(_aten.clamp.Tensor)
def clamp(x: torch.Tensor, min: torch.Tensor | None = None, max: torch.Tensor | None = None) -> torch.Tensor:
    """Between two tensors."""
    x = x if min is None else torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


@made_of(_aten.logsumexp.default)
def logsumexp(x: torch.Tensor, dim: list[int], keepdim: bool = False) -> torch.Tensor:
    """``log(sum(exp(x)))`` without the largest value in the exponent."""
    largest = torch.amax(x, dim, keepdim=True)
    logarithm = torch.log(torch.sum(torch.exp(x - largest), dim, keepdim=True)) + largest
    return logarithm if keepdim else _without(logarithm, dim)


@made_of(_aten.var.correction)
def variance(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    """Mean of the squares of what differs from the mean, over less values by ``correction`` (1 for None)."""
    return variance_and_mean(x, dim, correction=correction, keepdim=keepdim)[0]


@made_of(_aten.var_mean.correction)
def variance_and_mean(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance, then mean."""
    axes = sorted(axis % x.dim() for axis in (dim or range(x.dim())))
    count = math.prod(x.shape[axis] for axis in axes)
    left = count - (1 if correction is None else correction)
    if left <= 0:
        raise UnsupportedModule(f"a variance of {count} value with a correction of {count - left:g} is not a number")
    mean = torch.mean(x, axes, keepdim=True)
    centred = x - mean
    made = torch.mean(centred * centred, axes, keepdim=True) * (count / left)
    return (made, mean) if keepdim else (_without(made, axes), _without(mean, axes))


@made_of(_aten.cumsum.default)
def cumsum(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A product with a triangle of ones."""
    ones = torch.tril(torch.ones(x.shape[dim], x.shape[dim], dtype=x.dtype))
    return F.linear(x.transpose(dim, -1), ones).transpose(dim, -1).contiguous()


@made_of(_aten.upsample_nearest1d.vec, _aten.upsample_nearest2d.vec, _aten.upsample_nearest3d.vec)
def nearest(x: torch.Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> torch.Tensor:
    """Every place so many times in a row."""
    for dim, size in _sizes(x, output_size, scale_factors):
        if size % x.shape[dim]:
            raise UnsupportedModule(
                f"nearest interpolation from {x.shape[dim]} to {size} places is not covered, to a multiple is"
            )
        if size != x.shape[dim]:
            x = torch.repeat_interleave(x, size // x.shape[dim], dim)
    return x


@made_of(_aten.upsample_linear1d.vec, _aten.upsample_bilinear2d.vec, _aten.upsample_trilinear3d.vec)
def linear(
    x: torch.Tensor, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None
) -> torch.Tensor:
    """Axis by axis a product with the weights of the two neighbours of each place."""
    factors = scale_factors or (None,) * (x.dim() - 2)
    for (dim, size), factor in zip(_sizes(x, output_size, scale_factors), factors, strict=True):
        if size != x.shape[dim]:
            weights = _between(x.shape[dim], size, align_corners, factor, x.dtype)
            x = F.linear(x.transpose(dim, -1), weights).transpose(dim, -1)
    return x.contiguous()


def _between(before: int, after: int, align_corners: bool, factor: float | None, dtype: torch.dtype) -> torch.Tensor:
    """(after, before): how much a new place has of each old one; the places outside are those at the edges."""
    places = torch.arange(after, dtype=dtype)
    if align_corners:
        places = places * ((before - 1) / (after - 1) if after > 1 else 0.0)
    else:
        places = torch.clamp((places + 0.5) * (1 / factor if factor else before / after) - 0.5, 0.0, before - 1.0)
    return torch.relu(1.0 - torch.abs(places.unsqueeze(1) - torch.arange(before, dtype=dtype)))


def _sizes(
    x: torch.Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> list[tuple[int, int]]:
    """Each axis behind the channels, and its size afterwards."""
    before = x.shape[2:]
    after = output_size or [int(size * factor) for size, factor in zip(before, scale_factors or (), strict=True)]
    return list(enumerate(after, start=2))


def _without(x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    """Less axes of one place."""
    left = {axis % x.dim() for axis in axes}
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in left])
