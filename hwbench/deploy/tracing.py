"""What a module's forward does with its layers, as ``torch.fx`` sees it, in training and in evaluation."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from hwbench.blocks.base import EfficientBlock

Modules = Mapping[str, nn.Module]


class Untraceable(Exception):
    """A forward that depends on values; the text is the cause."""


@dataclass(frozen=True)
class Traced:
    """A forward as a graph, and the modules that its nodes call.

    Two calls of one module are two nodes of one module, whatever the names it is called by.
    """

    graph: fx.Graph
    modules: Modules

    def module(self, node: object) -> nn.Module | None:
        """What a node calls, if it calls a module on one tensor and on nothing else."""
        if not isinstance(node, fx.Node) or node.op != "call_module":
            return None
        plain = len(node.args) == 1 and isinstance(node.args[0], fx.Node) and not node.kwargs
        return self.modules[str(node.target)] if plain else None

    def calls(self) -> dict[nn.Module, list[fx.Node]]:
        """The nodes that call each module, whatever with."""
        found: dict[nn.Module, list[fx.Node]] = defaultdict(list)
        for node in self.graph.nodes:
            if node.op == "call_module":
                found[self.modules[str(node.target)]].append(node)
        return found

    def attributes(self) -> set[str]:
        """Names of parameters and buffers that the forward uses beside the layers they belong to."""
        return {str(node.target) for node in self.graph.nodes if node.op == "get_attr"}


def trace(module: nn.Module) -> tuple[Traced, ...]:
    """The forward in training and in evaluation, with a tensor for every argument; the module is left as it is.

    Arguments with defaults are mostly left out, and a forward may ask for that: where there are any, both modes follow
    once more with the defaults.

    Raises:
        Untraceable: It depends on values, or fails.
    """
    modes = {part: part.training for part in module.modules()}
    try:
        traces = [_traced(module.train(training), {}) for training in (True, False)]
        if defaults := _defaults(module):
            traces += [_traced(module.train(training), defaults) for training in (True, False)]
        return tuple(traces)
    finally:
        for part, mode in modes.items():
            part.training = mode


def _defaults(module: nn.Module) -> dict[str, Any]:
    """The arguments of a forward that may be left out, and what they are then."""
    parameters = inspect.signature(type(module).forward).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}


def _traced(module: nn.Module, constants: Mapping[str, Any]) -> Traced:
    tracer = _Tracer()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a graph of constants is for reading only
            graph = tracer.trace(module, concrete_args=dict(constants) or None)
    except Exception as error:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        raise Untraceable(cause) from None
    return Traced(graph, dict(module.named_modules()))


class _Proxy(fx.Proxy):
    """Takes itself for a tensor, so that a forward which asks does what it does with one."""

    @property
    def __class__(self) -> Any:
        return torch.Tensor

    @__class__.setter
    def __class__(self, value: object) -> None:
        raise AttributeError


class _Tracer(fx.Tracer):
    """Stops at the layers of torch and at efficient blocks."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, EfficientBlock) or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def create_arg(self, a: Any) -> Any:
        return a.node if type(a) is _Proxy else super().create_arg(a)
