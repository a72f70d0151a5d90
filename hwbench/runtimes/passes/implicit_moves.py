"""Moves of int8 values stay in int8; other moves are done in fp32.

XNNPACK moves int8 values only where input and output have the same parameters, and loads no graph with another move
that reads or gives int8. The partitioner takes ``dequantise -> move -> quantise`` as one operation on int8 values.
Three cases are left:

- A ``contiguous``, which export puts before a reshape, stands between (it is removed later): the move is done in fp32.
- The parameters differ, as around a reshape in a block that stays in fp32.
- A chain of moves became one (``free_reshape``), which reads int8 as its first link did and gives fp32 as its last did.
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
    make_explicit,
    make_implicit,
    only_user,
    read,
)

_MOVES = (VIEW, PERMUTE, SLICE)


def implicit_moves(graph_module: GraphModule) -> int:
    """Drops conversions around moves whose input and output have the same parameters, and makes those around others.

    Returns:
        How many moves changed between fp32 and int8.
    """
    count = 0
    for move in graph_module.graph.nodes:
        if move.target not in _MOVES:
            continue
        before, after = read(move), only_user(move)
        conversions = [before] if before.target == DEQUANTIZE and only_user(before) is move else []
        if after is not None and after.target == QUANTIZE:
            conversions.append(after)
        in_int8 = len(conversions) == 2 and conversions[0].args[1:] == conversions[1].args[1:]
        if all(is_implicit(conversion) == in_int8 for conversion in conversions):
            continue
        for conversion in conversions:
            (make_implicit if in_int8 else make_explicit)(conversion)
        count += 1
    return count
