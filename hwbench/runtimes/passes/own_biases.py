"""A bias of its own for every convolution.

In int8 a bias is stored as integers in units of input scale x weight scale. A convolution that is called on two inputs
has two input scales, but one bias: XNNPACK refuses to load the file ("failed to create ... node").
"""

from __future__ import annotations

import torch
from torch import nn
from torch.fx import GraphModule, Node

_BIASED = (torch.ops.aten.conv1d.default, torch.ops.aten.conv2d.default, torch.ops.aten.linear.default)
_BIAS = 2  # its place among the arguments of all of them


def own_biases(module: GraphModule) -> int:
    """Gives every call but the first of a biased convolution or linear layer a copy of the bias.

    Args:
        module: What ``torch.export`` gives as a module; changed.

    Returns:
        How many copies were made.
    """
    taken: set[str] = set()
    count = 0
    for call in list(module.graph.nodes):
        if call.target not in _BIASED or len(call.args) <= _BIAS:
            continue
        bias = call.args[_BIAS]
        if not isinstance(bias, Node) or bias.op != "get_attr":
            continue
        name = str(bias.target)
        if name in taken:
            _copy(module, call, bias, f"own_bias_{count}")
            count += 1
        taken.add(name)
    if count:
        module.recompile()
    return count


def _copy(module: GraphModule, call: Node, bias: Node, name: str) -> None:
    owner, _, attribute = str(bias.target).rpartition(".")
    value: torch.Tensor = getattr(module.get_submodule(owner), attribute)
    module.register_parameter(name, nn.Parameter(value.detach().clone(), requires_grad=False))
    with module.graph.inserting_before(call):
        own = module.graph.get_attr(name)
    own.meta = dict(bias.meta)
    call.update_arg(_BIAS, own)
