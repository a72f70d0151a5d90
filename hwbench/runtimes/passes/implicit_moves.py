"""Moves of int8 values stay in int8.

The partitioner takes ``dequantise -> move -> quantise`` as one operation on int8 values only where nothing else stands
between the two. A ``contiguous`` that export puts before a reshape does (it is removed later), and then the values are
converted to fp32, moved, and converted back; XNNPACK refuses to load some of these graphs.
"""

from __future__ import annotations

from torch.fx import GraphModule

from hwbench.runtimes.passes.edge import (
    DEQUANTIZE,
    PERMUTE,
    QUANTIZE,
    SLICE,
    VIEW,
    is_implicit,
    make_implicit,
    only_user,
    read,
)

_MOVES = (VIEW, PERMUTE, SLICE)


def implicit_moves(graph_module: GraphModule) -> int:
    """Drops conversions around reshapes, permutations and slices whose input and output have the same parameters.

    Returns:
        How many moves changed from fp32 to int8.
    """
    count = 0
    for move in graph_module.graph.nodes:
        if move.target not in _MOVES:
            continue
        before, after = read(move), only_user(move)
        if before.target != DEQUANTIZE or only_user(before) is not move:
            continue
        if after is None or after.target != QUANTIZE or after.args[1:] != before.args[1:]:
            continue
        if not (is_implicit(before) and is_implicit(after)):
            make_implicit(before)
            make_implicit(after)
            count += 1
    return count
