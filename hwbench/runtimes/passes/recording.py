"""Writes into a ``.pte`` file which module each operation of its delegate comes from (``hwbench.runtimes.pte_record``).

ExecuTorch drops the origin of an operation when the delegate is written, so for the time of a lowering the names under
which the delegate finds its visitors and its writer are bound to ours, which call them and take notes.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from executorch.backends.xnnpack import xnnpack_preprocess
from torch.fx import Node

from hwbench.runtimes.pte_record import KEY, GraphNode, ModuleCall, encode


@contextlib.contextmanager
def recorded_operations() -> Iterator[None]:
    """While it is entered, each delegate that is written holds a record of its operations; for one thread at a time."""
    before = xnnpack_preprocess.get_node_visitors, xnnpack_preprocess.serialize_xnnpack_binary
    get_visitors, serialize = before
    graphs: list[_Graph] = []

    def visitors(program: Any, externals: Any, store: Any) -> Mapping[str, Any]:
        graphs.append(_Graph(store))
        return {name: _Noting(visitor, graphs[-1]) for name, visitor in get_visitors(program, externals, store).items()}

    def write(graph: Any, constants: Any) -> bytes:
        graphs[-1].keep(f"{KEY}.{len(graphs) - 1}")
        return bytes(serialize(graph, constants))

    xnnpack_preprocess.get_node_visitors, xnnpack_preprocess.serialize_xnnpack_binary = visitors, write
    try:
        yield
    finally:
        xnnpack_preprocess.get_node_visitors, xnnpack_preprocess.serialize_xnnpack_binary = before


class _Graph:
    """The notes about one delegate; ``store`` is what goes into the file beside it."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.nodes: list[GraphNode] = []
        self._made_by: dict[int, int] = {}

    def add(self, node: Node, written: Any) -> None:
        """Notes one operation, as the delegate writes it down for a node."""
        operation = written.xnode_union
        values = {one.name: getattr(operation, one.name) for one in dataclasses.fields(operation)}
        read = [value for name, value in values.items() if name.startswith("input") and name.endswith("_id")]
        inputs = tuple(self._made_by[value] for value in read if value in self._made_by)
        for name, value in values.items():
            if name.startswith("output") and name.endswith("_id"):
                self._made_by[value] = len(self.nodes)
        kind, clamped = type(operation).__name__.removeprefix("XNN"), written.output_min_max is not None
        self.nodes.append(GraphNode(kind, _shape(node), inputs, clamped, _modules(node)))

    def keep(self, key: str) -> None:
        """Puts the record into the file."""
        self.store.add_named_data(key, encode(self.nodes), alignment=1)


class _Noting:
    """A visitor of the engine, whose operations are noted."""

    def __init__(self, visitor: Any, graph: _Graph) -> None:
        self._visitor = visitor
        self._graph = graph

    def define_node(self, node: Node, xnn_graph: Any, ids: Any, debug_handle: Any) -> None:
        before = len(xnn_graph.xnodes)
        self._visitor.define_node(node, xnn_graph, ids, debug_handle)
        for written in xnn_graph.xnodes[before:]:
            self._graph.add(node, written)


def _shape(node: Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(int(size) for size in value.shape) if isinstance(value, torch.Tensor) else ()


def _modules(node: Node) -> tuple[ModuleCall, ...]:
    stack = node.meta.get("nn_module_stack") or {}
    calls = [(path, kind if isinstance(kind, str) else kind.__name__) for path, kind in stack.values()]
    return tuple(ModuleCall(path, kind.rpartition(".")[2]) for path, kind in calls if path)
