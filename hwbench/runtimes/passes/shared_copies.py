"""One change of layout for all who read the same int8 values.

Every reader of a quantised value has a dequantise node of its own, and so each gets its own transpose to NHWC: the
input of a residual block is moved twice.
"""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule, Node

from hwbench.runtimes.passes.edge import DEQUANTIZE, QUANTIZE, TO_COPY, only_user, read


def shared_copies(graph_module: GraphModule) -> int:
    """Lets the readers of ``dequantise -> copy -> quantise`` of one value share the first of them.

    Returns:
        How many copies are gone.
    """
    first: dict[tuple[Any, ...], Node] = {}
    count = 0
    for copy in list(graph_module.graph.nodes):
        if copy.target != TO_COPY or read(copy).target != DEQUANTIZE:
            continue
        after = only_user(copy)
        if after is None or after.target != QUANTIZE:
            continue
        key = (*read(copy).args, copy.kwargs.get("memory_format"), *after.args[1:])
        kept = first.setdefault(key, after)
        if kept is not after:
            after.replace_all_uses_with(kept)
            count += 1
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()
    return count
