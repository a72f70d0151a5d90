"""Puts the passes into the list that the XNNPACK delegate runs over its graph before it is written.

ExecuTorch offers no way to add to that list, so for the time of a lowering the name under which the delegate finds its
list is bound to another one: the engine's own passes in their order, less those with nothing to do, and ours.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from executorch.backends.xnnpack import xnnpack_preprocess
from executorch.backends.xnnpack._passes import XNNPACKPassManager
from executorch.backends.xnnpack._passes.channels_last_tagged_reshape_pass import ChannelsLastTaggedReshapePass
from executorch.backends.xnnpack._passes.remove_redundant_copy_pass import RemoveRedundantCopyPass
from executorch.backends.xnnpack._passes.xnnpack_pass import XNNPACKPass
from executorch.exir.pass_base import PassResult
from executorch.exir.program._program import _transform
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.traceback import NodeSource

from hwbench.runtimes.passes.casts import is_cast
from hwbench.runtimes.passes.decompositions import rules_of_the_graph
from hwbench.runtimes.passes.edge import value
from hwbench.runtimes.passes.free_reshape import free_reshapes, is_free
from hwbench.runtimes.passes.implicit_moves import implicit_moves
from hwbench.runtimes.passes.needed import needed
from hwbench.runtimes.passes.recording import recorded_operations
from hwbench.runtimes.passes.shared_copies import shared_copies

_lock = threading.Lock()


@contextlib.contextmanager
def delegate_passes() -> Iterator[None]:
    """While it is entered, XNNPACK lowers with our passes; for one thread at a time."""
    with _lock, _shared_provenance(), rules_of_the_graph(), recorded_operations():
        before = xnnpack_preprocess.XNNPACKPassManager
        xnnpack_preprocess.XNNPACKPassManager = _Passes
        try:
            yield
        finally:
            xnnpack_preprocess.XNNPACKPassManager = before


@contextlib.contextmanager
def _shared_provenance() -> Iterator[None]:
    """The history of a node is shared by the nodes made of it, and not copied for each.

    torch copies all of it whenever a graph is traced, dozens of times, and it grows with each; nobody changes it.
    """
    NodeSource.__deepcopy__ = lambda self, _: self  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del NodeSource.__deepcopy__  # type: ignore[attr-defined]


class _Layouts(ChannelsLastTaggedReshapePass):  # type: ignore[misc]
    """Chooses layouts as the engine does, NHWC for free reshapes, and NCHW for conversions, which the engine has none
    of; so what is moved is in fp16. What lies in NHWC outside, as states of streams, is converted as it lies."""

    def requires_nhwc_input(self, node: Node) -> bool:
        kept = is_cast(node) and self._is_nhwc(value(node))
        return kept or is_free(node) or bool(super().requires_nhwc_input(node))

    def requires_nchw_inputs(self, node: Node) -> bool:
        return is_cast(node) or bool(super().requires_nchw_inputs(node))


class _RedundantCopies(RemoveRedundantCopyPass):  # type: ignore[misc]
    """Takes changes of layout away as the engine does, and no conversion, which looks like one.

    The engine's own takes a conversion and the change of layout behind it for two changes that cancel. What follows
    would then be computed in fp32.
    """

    def _try_remove_regular_redundant_to_copy(self, node: Node, graph: Graph) -> bool:
        if is_cast(node) or is_cast(node.all_input_nodes[0]):
            return False
        return bool(super()._try_remove_regular_redundant_to_copy(node, graph))


def _pass(function: Callable[[GraphModule], int]) -> type:
    """A function over a graph as a pass of the engine."""

    def call(self: Any, graph_module: GraphModule) -> PassResult:
        return PassResult(graph_module, function(graph_module) > 0)

    return type(function.__name__, (XNNPACKPass,), {"call": call})


class _Passes(XNNPACKPassManager):  # type: ignore[misc]
    """The engine's list with ours around the choice of layouts; passes with nothing to do are not run."""

    passes: list[type]

    def __init__(self, exported_program: Any, passes: list[type] | None = None) -> None:
        super().__init__(exported_program, passes)
        if not passes:
            own: dict[type, list[type]] = {
                ChannelsLastTaggedReshapePass: [_pass(free_reshapes), _pass(implicit_moves), _Layouts],
                RemoveRedundantCopyPass: [_RedundantCopies],
            }
            self.passes = [made for each in self.passes for made in own.get(each, [each])]
            self.passes.append(_pass(shared_copies))

    def transform(self) -> ExportedProgram:
        program: ExportedProgram = self.exported_program
        for made in self.passes:
            if needed(made, program.graph_module):
                each = made(program) if issubclass(made, XNNPACKPass) else made()
                program = _transform(program, each)
        return program
