"""The edge operations that the passes look at, and quantised values between them."""

from __future__ import annotations

import torch
from executorch.backends.xnnpack.utils.quant_utils import (
    IS_IMPLICIT_Q_DQ_TAG,
    is_tagged_as_implicit_q_dq,
    tag_as_implicit_q_dq,
)
from executorch.exir.dialects._ops import ops
from torch.fx import Node

VIEW = ops.edge.aten.view_copy.default
PERMUTE = ops.edge.aten.permute_copy.default
SLICE = ops.edge.aten.slice_copy.Tensor
TO_COPY = ops.edge.aten._to_copy.default
QUANTIZE = ops.edge.quantized_decomposed.quantize_per_tensor.default
DEQUANTIZE = ops.edge.quantized_decomposed.dequantize_per_tensor.default


def value(node: Node) -> torch.Tensor:
    """The fake tensor that a node gives: shape and dtype."""
    found = node.meta["val"]
    assert isinstance(found, torch.Tensor)
    return found


def read(node: Node) -> Node:
    """The node that a unary operation reads."""
    source = node.args[0]
    assert isinstance(source, Node)
    return source


def through_quantization(node: Node) -> Node:
    """The node before ``x -> quantise -> dequantise`` where both have the same parameters; else the node itself."""
    if node.target == DEQUANTIZE:
        quantize = read(node)
        if quantize.target == QUANTIZE and quantize.args[1:] == node.args[1:]:
            return read(quantize)
    return node


def only_user(node: Node) -> Node | None:
    """The one node that reads a node; None where there are several."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def is_implicit(node: Node) -> bool:
    """Whether a quantise or dequantise node only says the type of a value; otherwise XNNPACK converts values there."""
    return bool(is_tagged_as_implicit_q_dq(node))


def make_implicit(node: Node) -> None:
    """Makes a quantise or dequantise node say no more than the type."""
    tag_as_implicit_q_dq(node)


def make_explicit(node: Node) -> None:
    """Makes XNNPACK convert the values at a quantise or dequantise node."""
    node.meta.pop(IS_IMPLICIT_Q_DQ_TAG, None)
