"""Reshapes that cost nothing in NHWC memory.

The delegate computes convolutions on NHWC tensors. There (T, C, H, W) and (1, C, T, H·W) are the same bytes, so that a
convolution over time, kernel (k, 1) on the latter, needs no data moved. Written in PyTorch,

    x.reshape(n, t, c, h * w).permute(0, 2, 1, 3)        frames as batch -> (N, C, T, H·W)
    y.permute(0, 2, 1, 3).reshape(n * t, c, h, w)        back

it is lowered with several transposes each way, because a reshape is defined on NCHW. This pass replaces such a chain by
one reshape that is marked; marked ones are computed in NHWC (``inject``), where XNNPACK moves nothing.

Put activations directly after the convolution, before the way back: only there they are fused into it.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from hwbench.runtimes.passes.edge import DEQUANTIZE, PERMUTE, VIEW, read, through_quantization, value

# Key in a node's meta: its reshape is one of NHWC tensors.
FREE = "HWBENCH_FREE_RESHAPE"


def free_reshapes(graph_module: GraphModule) -> int:
    """Replaces every chain of reshapes and permutations that keeps the order of the values in NHWC memory.

    Quantise and dequantise pairs between the links are looked through where their parameters are the same. Links that
    something else reads as well stay for it. A chain without a permutation is left alone.

    Returns:
        How many chains were replaced.
    """
    count = 0
    for node in reversed(list(graph_module.graph.nodes)):
        if node.target not in (VIEW, PERMUTE) or not node.users:
            continue
        source = _free_source(node)
        if source is None:
            continue
        node.target = VIEW
        node.args = (source, list(value(node).shape))
        node.meta[FREE] = True
        count += 1
        graph_module.graph.eliminate_dead_code()  # so that the inner links, which come next, have no users
        _own_dequantization(graph_module, node)
    graph_module.recompile()
    return count


def _own_dequantization(graph_module: GraphModule, node: Node) -> None:
    """Gives a node a dequantise node of its own, as every reader has: the engine moves values for all who read one."""
    source = read(node)
    if source.target == DEQUANTIZE and len(source.users) > 1:
        with graph_module.graph.inserting_before(node):
            node.args = (graph_module.graph.node_copy(source, lambda one: one), *node.args[1:])


def is_free(node: Node) -> bool:
    """Whether this pass made the node."""
    return bool(node.meta.get(FREE, False))


def _free_source(node: Node) -> Node | None:
    """Where the longest free chain that ends at a node begins."""
    found, links = None, [node]
    while True:
        source = read(links[0])
        if any(link.target == PERMUTE for link in links) and _keeps_order(source, links):
            found = source
        before = through_quantization(source)
        if before.target not in (VIEW, PERMUTE):
            return found
        links.insert(0, before)


def _keeps_order(source: Node, links: list[Node]) -> bool:
    """Whether the values lie in the same order before and after, if both tensors are 4-D and stored as NHWC."""
    shape = value(source).shape
    if len(shape) != 4:
        return False
    n, c, h, w = shape
    places = torch.arange(n * c * h * w).reshape(n, h, w, c).permute(0, 3, 1, 2)
    for link in links:
        places = places.reshape(_arguments(link)) if link.target == VIEW else places.permute(_arguments(link))
    return places.dim() == 4 and torch.equal(places.permute(0, 2, 3, 1).flatten(), torch.arange(n * c * h * w))


def _arguments(link: Node) -> list[int]:
    sizes = link.args[1]
    assert isinstance(sizes, list | tuple)
    return [int(size) for size in sizes]  # type: ignore[arg-type]  # static shapes only
