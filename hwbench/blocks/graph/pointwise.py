"""Operations element by element, with one input and with two."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from hwbench.blocks.functional import FloatFunctional
from hwbench.blocks.graph.rules import Call, rule
from hwbench.blocks.graph.values import FOLDED, MAX_AXES, NCTHW, Clip, Plain, Unsplit, Value, spec_of


class Op(nn.Module):
    """One ATen operation, such as ``torch.ops.aten.relu.default``; arguments behind the tensors are fixed."""

    def __init__(self, target: Any, *arguments: Any, **named: Any) -> None:
        super().__init__()
        self.target, self.arguments, self.named = target, arguments, named

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        return self.target(*tensors, *self.arguments, **self.named)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return ", ".join(map(str, (self.target, *self.arguments)))

    def __getstate__(self) -> dict[str, Any]:
        # Operations of torch cannot be pickled; their names can.
        return {**super().__getstate__(), "target": str(self.target)}  # type: ignore[no-untyped-call]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "target": operator.attrgetter(state["target"])(torch.ops)})  # type: ignore[no-untyped-call]


class WithConstants(nn.Module):
    """An operation on tensors, some of which are constants.

    Args:
        operation: Takes all tensors in order.
        operands: Constants, and anything else in the places of the tensors that ``forward`` gets.
    """

    def __init__(self, operation: Callable[..., torch.Tensor], operands: Sequence[Any]) -> None:
        super().__init__()
        self.operation = operation
        self.constant = [isinstance(x, torch.Tensor) for x in operands]
        for index, x in enumerate(operands):
            if isinstance(x, torch.Tensor):
                self.register_buffer(f"constant_{index}", _laid_out(x))

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        given = iter(tensors)
        return self.operation(
            *(getattr(self, f"constant_{i}") if known else next(given) for i, known in enumerate(self.constant))
        )


def _laid_out(constant: torch.Tensor) -> torch.Tensor:
    """A copy with its axes in order, or with channels last where they were.

    ExecuTorch knows no other order and loads such a file, but does not run it. An axis of one place has any stride: a
    permuted constant of a single frame is in no order by its strides, though it is one.
    """
    pictures = constant.dim() == 4 and not constant.is_contiguous()
    last = pictures and constant.is_contiguous(memory_format=torch.channels_last)
    return constant.clone(memory_format=torch.channels_last if last else torch.contiguous_format)


def depending(operands: Sequence[Any]) -> list[Any]:
    """Those that depend on the input."""
    return [x for x in operands if not isinstance(x, torch.Tensor)]


@rule(*(f"aten.{name}.default" for name in (
    "relu", "sigmoid", "silu", "hardswish", "hardtanh", "clamp", "tanh", "gelu", "leaky_relu",
    "abs", "neg", "exp", "log", "sqrt", "rsqrt", "ceil", "floor", "sin", "cos",
)))  # fmt: skip
def unary(call: Call) -> Value:
    """The same operation on the stored tensor."""
    x = call.tensor()
    op = Op(call.node.target, *call.node.args[1:], **call.node.kwargs)
    return call.result(call.emit(op, x), order_of(x))


@rule("aten.relu6.default")
def relu6(call: Call) -> Value:
    """The clamp that it is."""
    x = call.tensor()
    return call.result(call.emit(Op(torch.ops.aten.hardtanh.default, 0.0, 6.0), x), order_of(x))


class HardSigmoid(nn.Module):
    """``relu6(x + 3) / 6``, which is delegated where the operation of that name is not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x + 3.0, 0.0, 6.0) * (1.0 / 6.0)


class Elu(nn.Module):
    """``max(x, 0) · scale + (exp(min(x, 0) · input_scale) - 1) · alpha · scale``."""

    def __init__(self, alpha: float, scale: float, input_scale: float) -> None:
        super().__init__()
        self.alpha, self.scale, self.input_scale = alpha, scale, input_scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        negative = torch.exp(-torch.relu(-x) * self.input_scale) - 1.0
        return torch.relu(x) * self.scale + negative * (self.alpha * self.scale)


@rule("aten.hardsigmoid.default", "aten.elu.default")
def composed(call: Call) -> Value:
    """Activations that XNNPACK does not know, made of what it knows."""
    x = call.tensor()
    if "elu" in str(call.node.target):
        module: nn.Module = Elu(float(call["alpha"]), float(call["scale"]), float(call["input_scale"]))
    else:
        module = HardSigmoid()
    return call.result(call.emit(module, x), order_of(x))


@rule("aten.prelu.default")
def prelu(call: Call) -> Value:
    """A slope per channel, which is the second axis of a folded clip as well."""
    x, weight = call.tensor(), call.constant("weight")
    assert weight is not None
    if isinstance(x, Clip):
        x = call.clip("self")
    module = nn.PReLU(weight.numel(), device="meta")
    module.weight = nn.Parameter(weight.clone(), requires_grad=False)
    return call.result(call.emit(module, x))


_BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


class Binary(nn.Module):
    """A sum, product, ... of two tensors, or of a tensor and a constant.

    Args:
        name: ``add``, ``sub``, ``mul``, ``div``, ``maximum`` or ``minimum``.
        shapes: Shapes in which the two (first, second) are combined; None as they are.
        constant: One operand.
        constant_first: Whether it is the first.
        scale: A factor of the second operand.
        shape: Shape of the result where operands are reshaped.
    """

    constant: torch.Tensor | None

    def __init__(self, name: str, *, shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
                 constant: torch.Tensor | None = None, constant_first: bool = False, scale: float = 1.0,
                 shape: tuple[int, ...] = ()) -> None:  # fmt: skip
        super().__init__()
        self.name, self.shapes, self.constant_first, self.scale, self.shape = name, shapes, constant_first, scale, shape
        self.register_buffer("constant", None if constant is None else _laid_out(constant))
        self.observed = FloatFunctional() if constant is None and name in ("add", "mul") else None

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        constant = [] if self.constant is None else [self.constant]
        x, y = [*constant, *tensors] if self.constant_first else [*tensors, *constant]
        if self.scale != 1:
            y = y * self.scale
        if self.shapes is None:
            return self._joined(x, y)
        return self._joined(x.reshape(self.shapes[0]), y.reshape(self.shapes[1])).reshape(self.shape)

    def _joined(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self.observed is None:
            return _BINARY[self.name](x, y)
        return self.observed.add(x, y) if self.name == "add" else self.observed.mul(x, y)

    def extra_repr(self) -> str:
        return self.name


@rule("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor", "aten.maximum.default",
      "aten.minimum.default", "aten.rsub.Scalar", "aten.rsub.Tensor")  # fmt: skip
def binary(call: Call) -> Value:
    """Two operands with broadcasting as in the original."""
    name, operands = str(call.node.target).split(".")[1], [call.stored("self"), call.stored("other")]
    alpha = float(call["alpha"]) if name in ("add", "sub", "rsub") else 1.0
    if name == "rsub":
        other = operands[1] if isinstance(operands[1], Clip | Plain) else _tensor(operands[1])
        name, operands = "sub", [other, operands[0]]
    if name == "div" and not isinstance(operands[1], Clip | Plain):
        name, operands[1] = "mul", 1.0 / _tensor(operands[1])
    return combined(call, name, operands, alpha)


def combined(call: Call, name: str, operands: list[Any], alpha: float = 1.0) -> Clip | Plain:
    """Two operands, values or constants, as the result of a call; the second one times ``alpha``."""
    if len(call.shape) > 5:
        operands = [Plain(call.natural(x), x.shape) if isinstance(x, Clip) else x for x in operands]
    clips = [x for x in operands if isinstance(x, Clip)]
    if not clips:
        if len(call.shape) == 5:
            call.refuse("no operand has five axes")
        if len(call.shape) > MAX_AXES:
            return _many_axes(call, name, operands, alpha)
        return _plain(call, name, operands, alpha)
    clip = next((x for x in clips if x.shape == call.shape), clips[0])
    return _folded(call, name, [_like(call, x, clip) for x in operands], clip, alpha)


def _plain(call: Call, name: str, operands: list[Any], alpha: float) -> Plain:
    tensors = [x for x in operands if isinstance(x, Plain)]
    constants = [_tensor(x) for x in operands if not isinstance(x, Plain)]
    constant = constants[0] if constants else None
    if constant is not None and constant.dim() < len(call.shape):
        constant = constant.reshape(*[1] * (len(call.shape) - constant.dim()), *constant.shape)
    module = Binary(name, constant=constant, constant_first=not isinstance(operands[0], Plain), scale=alpha)
    return Plain(call.emit(module, *tensors), call.shape)


def _many_axes(call: Call, name: str, operands: list[Any], alpha: float) -> Plain:
    """With neighbouring axes in one where both operands have them, or one lacks them."""
    tensors = [x if isinstance(x, Plain) else _tensor(x) for x in operands]
    shapes = [(*[1] * (len(call.shape) - len(x.shape)), *x.shape) for x in tensors]
    groups = itertools.groupby(
        (axis for axis in range(len(call.shape)) if call.shape[axis] > 1),
        key=lambda axis: tuple(shape[axis] > 1 for shape in shapes),
    )
    merged = [list(axes) for _, axes in groups]
    first, second = (tuple(math.prod(shape[axis] for axis in axes) for axes in merged) for shape in shapes)
    constants = [x for x in tensors if isinstance(x, torch.Tensor)]
    module = Binary(
        name,
        shapes=(first, second),
        constant=constants[0] if constants else None,
        constant_first=isinstance(tensors[0], torch.Tensor),
        scale=alpha,
        shape=tuple(math.prod(call.shape[axis] for axis in axes) for axes in merged),
    )
    return Unsplit(call.emit(module, *depending(tensors)), call.shape)


def _like(call: Call, x: Any, clip: Clip) -> Clip | torch.Tensor:
    """An operand as a clip with its axes in the order of another, or as a constant (N, C, T, H, W)."""
    if isinstance(x, Plain):
        x = call.reshaped(x, (*[1] * (5 - len(x.shape)), *x.shape))
    if isinstance(x, Clip):
        return call.refolded(x, clip.order)
    constant = _tensor(x)
    constant = constant.reshape(*[1] * (5 - constant.dim()), *constant.shape)
    return constant.permute([clip.order.index(axis) for axis in NCTHW])


def _folded(call: Call, name: str, operands: list[Clip | torch.Tensor], clip: Clip, alpha: float) -> Clip:
    specs = [x.spec if isinstance(x, Clip) else spec_of(x.shape) for x in operands]
    out = spec_of(call.shape, clip.order)
    shapes = None
    if out.n > 1 and any((s.n, s.t) not in ((out.n, out.t), (1, 1)) for s in specs):
        x, y = ((s.n, s.t, s.c, s.h, s.w) for s in specs)
        shapes = (x, y)
    constants = [_fold_constant(x) for x in operands if isinstance(x, torch.Tensor)]
    module = Binary(
        name,
        shapes=shapes,
        constant=constants[0] if constants else None,
        constant_first=isinstance(operands[0], torch.Tensor),
        scale=alpha,
        shape=out.folded,
    )
    return Clip(call.emit(module, *(x for x in operands if isinstance(x, Clip))), out, clip.order)


def _fold_constant(x: torch.Tensor) -> torch.Tensor:
    order = [NCTHW.index(axis) for axis in FOLDED]
    return x.permute(order).reshape(spec_of(x.shape).folded)


def _tensor(x: Any) -> torch.Tensor:
    """A constant in double precision; an attribute that is no buffer has its own dtype, in which 1 / x is rounded."""
    return x.double() if isinstance(x, torch.Tensor) else torch.tensor(float(x), dtype=torch.float64)


def order_of(x: Clip | Plain) -> str:
    """The axes of a clip in the order of the original."""
    return x.order if isinstance(x, Clip) else NCTHW


__all__ = ["Binary", "Elu", "HardSigmoid", "Op", "WithConstants", "combined", "depending", "order_of"]
