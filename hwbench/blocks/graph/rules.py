"""The rules by operation, and what a rule sees: one call of the original."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from hwbench.blocks.graph.values import (
    FOLDED,
    MAX_AXES,
    NCTHW,
    Clip,
    Plain,
    Reorder,
    Unsplit,
    Value,
    reorder,
    sizes,
    spec_of,
)
from hwbench.errors import UnsupportedModule
from hwbench.registry import Registry, a_callable
from hwbench.specs import TensorSpec

if TYPE_CHECKING:
    from hwbench.blocks.graph.rewrite import Rewriter

Rule = Callable[["Call"], Value | tuple[Value, ...]]
# Name of an ATen operation -> its rule.
rules: Registry[Rule] = Registry("rule for the operation", entry_points="hwbench.graph_rules", expects=a_callable)

BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator which binds a rule to operations such as ``aten.conv3d.default``."""

    def bind(function: Rule) -> Rule:
        for name in names:
            rules.register(name)(function)
        return function

    return bind


def name_of(node: fx.Node) -> str:
    """Name of the operation that a node of the original calls."""
    return "getitem" if node.target is operator.getitem else str(node.target)


def arguments(node: fx.Node) -> dict[str, Any]:
    """Arguments of a call by the names of the operation's schema, defaults included."""
    schema = node.target._schema  # type: ignore[union-attr]
    found = {argument.name: argument.default_value for argument in schema.arguments if argument.has_default_value()}
    return found | dict(zip((argument.name for argument in schema.arguments), node.args)) | dict(node.kwargs)


class Call:
    """One operation of the original model, with its arguments as values of the rewritten graph."""

    def __init__(self, rewriter: Rewriter, node: fx.Node) -> None:
        self.node = node
        self.absorbed: list[fx.Node] = []
        self._rewriter = rewriter
        self._arguments = arguments(node)
        self._schema = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]

    @property
    def variant(self) -> str:
        """Layout of convolutions over time."""
        return self._rewriter.variant

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the (first) result in the original."""
        return self.shapes[0]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of all results in the original."""
        found = self.node.meta["val"]
        return tuple(tuple(int(s) for s in t.shape) for t in (found if isinstance(found, list | tuple) else (found,)))

    @property
    def names(self) -> list[str]:
        """Names of the arguments, in the order of the operation's schema."""
        return self._schema

    def __getitem__(self, name: str) -> Any:
        """An argument: a value, a list of values, or a number, text or list as it stands."""
        found = self._rewriter.resolved(self._arguments[name])
        return pytree.tree_map_only(Unsplit, self._split, found, is_leaf=lambda x: isinstance(x, Unsplit))

    def stored(self, name: str) -> Any:
        """An argument; a tensor of many axes as it is stored (``Unsplit``)."""
        return self._rewriter.resolved(self._arguments[name])

    def unsplit(self) -> Clip | Plain:
        """The first argument; a tensor of many axes as it is stored."""
        value = self.stored(self._schema[0])
        return value if isinstance(value, Unsplit) else self.tensor()

    def _split(self, value: Unsplit) -> Plain:
        return Plain(self.emit(Reorder((), (), value.shape), value.node), value.shape)

    def __contains__(self, name: str) -> bool:
        return name in self._arguments

    def tensor(self) -> Clip | Plain:
        """The first argument, which depends on the input."""
        value = self[self._schema[0]]
        if not isinstance(value, Clip | Plain):
            self.refuse("its first operand does not depend on the input")
        return value

    def clip(self, name: str) -> Clip:
        """An argument that must be a clip, its axes named N, C, T, H, W by position."""
        value = self[name]
        if not isinstance(value, Clip):
            self.refuse("a tensor with five axes is expected")
        return self.refolded(value, NCTHW)

    def constant(self, name: str) -> torch.Tensor | None:
        """An argument that must not depend on the input."""
        value = self[name]
        if value is not None and not isinstance(value, torch.Tensor):
            self.refuse(f"its {name} depends on the input")
        return value

    def emit(self, module: nn.Module, *values: Clip | Plain | fx.Node) -> fx.Node:
        """Puts a module into the rewritten graph."""
        nodes = [value if isinstance(value, fx.Node) else value.node for value in values]
        return self._rewriter.emit(module, nodes, self.node)

    def result(self, node: fx.Node, order: str = NCTHW, shape: tuple[int, ...] | None = None) -> Clip | Plain:
        """A node as the result of this call: folded, if the original has five axes here."""
        shape = self.shape if shape is None else shape
        return Clip(node, spec_of(shape, order), order) if len(shape) == 5 else Plain(node, shape)

    def reshaped(self, value: Clip | Plain, shape: Sequence[int]) -> Clip | Plain:
        """The values of a tensor in the order of the original, as a tensor of another shape."""
        shape = tuple(shape)
        if value.shape == shape:
            return value
        node = value.node
        if isinstance(value, Clip):
            if shape == value.spec.folded and _same_order(value.spec, value.order):
                return Plain(node, shape)
            if len(shape) == 5 and _same_order(value.spec, value.order):
                return self._folded(node, shape)
            if len(shape) > MAX_AXES:
                return Unsplit(self.emit(reorder(value.spec, FOLDED, value.order, value.shape), node), shape)
            node = self.emit(reorder(value.spec, FOLDED, value.order, shape), node)
        elif len(shape) > MAX_AXES:
            return Unsplit(node, shape)
        elif len(shape) == 5 and value.shape == spec_of(shape, FOLDED).folded:
            return Clip(node, spec_of(shape, FOLDED), FOLDED)  # pictures (N·T, C, H, W) -> (N, T, C, H, W)
        elif len(shape) != 5:
            node = self.emit(Reorder((), (), shape), node)
        return self._folded(node, shape) if len(shape) == 5 else Plain(node, shape)

    def natural(self, value: Clip | Plain) -> fx.Node:
        """A node with the axes of the original, for an operation that has no form on folded clips."""
        if isinstance(value, Plain):
            return value.node
        return self.emit(reorder(value.spec, FOLDED, value.order, value.shape), value.node)

    def from_natural(self, node: fx.Node) -> Clip | Plain:
        """A node with the axes of the original as the result of this call."""
        return self._folded(node, self.shape) if len(self.shape) == 5 else Plain(node, self.shape)

    def refolded(self, value: Clip, order: str) -> Clip:
        """The same clip with its axes named otherwise, and stored accordingly."""
        if value.order == order:
            return value
        names = dict(zip(order, value.order, strict=True))
        spec = spec_of(value.shape, order)
        moved = "".join(names[axis] for axis in FOLDED)
        return Clip(self.emit(reorder(value.spec, FOLDED, moved, spec.folded), value.node), spec, order)

    def _folded(self, node: fx.Node, shape: tuple[int, ...]) -> Clip:
        spec = spec_of(shape)
        return Clip(self.emit(reorder(spec, NCTHW, FOLDED, spec.folded), node), spec)

    def follower(self, names: Sequence[str]) -> fx.Node | None:
        """The next operation, if it is one of these and alone reads what this call (with what it absorbed) gives.

        It becomes part of this call.
        """
        read = self.absorbed[-1] if self.absorbed else self.node
        users = list(read.users)
        if len(users) == 1 and name_of(users[0]) == "getitem":
            read, users = users[0], list(users[0].users)
        if len(users) != 1 or name_of(users[0]) not in names or users[0].all_input_nodes[0] is not read:
            return None
        if not all(self._rewriter.is_constant(node) for node in users[0].all_input_nodes[1:]):
            return None
        self.absorbed.append(users[0])
        return users[0]

    def affine(self, norm: fx.Node) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and shift per channel of a batch normalisation: s = gamma / sqrt(var + eps), beta - mean · s."""
        found = {name: self._rewriter.resolved(value) for name, value in arguments(norm).items() if name != "input"}
        scale = torch.rsqrt(found["running_var"] + found["eps"])
        if found["weight"] is not None:
            scale = scale * found["weight"]
        shift = -found["running_mean"] * scale
        return scale, shift if found["bias"] is None else shift + found["bias"]

    def require_own_dtype(self) -> None:
        """Refuses a ``dtype`` other than the input's: the rounding of another one shows in double precision."""
        asked, inputs = self._arguments.get("dtype"), self.node.all_input_nodes
        source = inputs[0].meta.get("val") if inputs else None
        if asked is not None and isinstance(source, torch.Tensor) and asked != source.dtype:
            self.refuse(f"a result in {asked} is not covered: leave dtype={asked} out, a file computes in one type")

    def refuse(self, reason: str) -> NoReturn:
        """Ends the rewriting.

        Raises:
            UnsupportedModule: Always; it names the operation, its place in the model and the shape of its input.
        """
        raise UnsupportedModule(f"{described(self.node)}: {reason}")


def described(node: fx.Node) -> str:
    """An operation with its place in the model and the shapes of its inputs."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    place, kind = (stack[-1][0], str(stack[-1][1]).rpartition(".")[2]) if stack else ("", "")
    where = f" in {place or 'the model itself'}" + (f" ({kind})" if kind else "")
    shapes = [
        "x".join(map(str, source.meta["val"].shape))
        for source in node.all_input_nodes
        if isinstance(source.meta.get("val"), torch.Tensor)
    ]
    return f"{name_of(node)}{where} on {', '.join(shapes[:2]) or 'nothing'}"


def _same_order(spec: TensorSpec, order: str) -> bool:
    """Whether a folded clip holds its values in the order of the original."""
    size = sizes(spec)
    return [a for a in FOLDED if size[a] > 1] == [a for a in order if size[a] > 1]
