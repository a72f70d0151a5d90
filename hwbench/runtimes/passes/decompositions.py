"""Rules of decomposition for the operations that a graph has, and for no others.

torch knows hundreds of composite operations. For every decomposition of a graph, of which a lowering makes two, it
registers some twenty kernels for each of them and takes them away again, whatever the graph consists of. That took
0.29 s of the 1.13 s of processor time in which a block of an fp32 table was built.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch.export.exported_program as exported_program
from torch.export import ExportedProgram


@contextlib.contextmanager
def rules_of_the_graph() -> Iterator[None]:
    """While it is entered, composite operations that a graph lacks get no rule; for one thread at a time.

    An operation that comes from the decomposition of another one is decomposed by the dispatcher, as in eager mode.
    """
    before = exported_program._decompose_exported_program

    def decomposed(program: ExportedProgram, *, cia_to_decomp: Mapping[Any, Any], **options: Any) -> ExportedProgram:
        present = _operations(program)
        rules = {operation: rule for operation, rule in cia_to_decomp.items() if operation in present}
        result: ExportedProgram = before(program, cia_to_decomp=rules, **options)
        return result

    exported_program._decompose_exported_program = decomposed  # type: ignore[assignment]
    try:
        yield
    finally:
        exported_program._decompose_exported_program = before


def _operations(program: ExportedProgram) -> set[Any]:
    """Of the graph and of the graphs that it calls."""
    graphs = [module.graph for module in program.graph_module.modules() if hasattr(module, "graph")]
    return {node.target for graph in graphs for node in graph.nodes if node.op == "call_function"}
