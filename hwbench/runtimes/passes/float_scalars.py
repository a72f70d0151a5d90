"""Numbers in arithmetic on floating values are floating numbers.

``x + 3`` is lowered with a tensor of the integer 3 and its conversion to float, which stays outside the delegate.
PyTorch's own hard sigmoid is written with such integers, so it is spelled out here.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

_ARITHMETIC = tuple(
    getattr(torch.ops.aten, name).Tensor for name in ("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_")
)
_HARDSIGMOID = (torch.ops.aten.hardsigmoid.default, torch.ops.aten.hardsigmoid_.default)


def float_scalars(module: GraphModule) -> int:
    """Makes the integers of arithmetic on floating values floating, in a graph of ``torch.export``, which changes.

    Returns:
        How many operations were changed.
    """
    count = 0
    for node in list(module.graph.nodes):
        if node.target in _HARDSIGMOID:
            _spell_out(module, node)
        elif node.target in _ARITHMETIC and _floating(node) and any(type(arg) is int for arg in node.args):
            node.args = tuple(float(arg) if type(arg) is int else arg for arg in node.args)
        else:
            continue
        count += 1
    module.recompile()
    return count


def _spell_out(module: GraphModule, node: Node) -> None:
    """hardsigmoid(x) = min(max(x + 3, 0), 6) / 6."""
    x, aten = node.args[0], torch.ops.aten
    with module.graph.inserting_before(node):
        moved = module.graph.call_function(aten.add.Tensor, (x, 3.0))
        clamped = module.graph.call_function(aten.hardtanh.default, (moved, 0.0, 6.0))
        for made in (moved, clamped):
            made.meta = dict(node.meta)
    node.target, node.args = aten.mul.Tensor, (clamped, 1 / 6)


def _floating(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()
