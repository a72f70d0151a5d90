"""Conversions between fp32 and fp16 inside the delegate, so that a file in fp16 takes and gives fp32.

XNNPACK has the operation (``xnn_define_convert``, with which ExecuTorch quantises), but the partitioner takes no change
of type, and what writes the graph of the delegate takes every ``_to_copy`` for a change of layout.
"""

from __future__ import annotations

from typing import Any

import torch
from executorch.backends.xnnpack.operators import node_visitor
from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
from executorch.backends.xnnpack.partition.config.generic_node_configs import GenericNodePartitionerConfig
from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
from executorch.backends.xnnpack.serialization.xnnpack_graph_schema import XNNConvert, XNode
from torch.fx import Node

from hwbench.runtimes.passes.edge import TO_COPY, read, value

_TYPES = {torch.float32, torch.float16}
_VISITED = "aten._to_copy.default"
_CONVOLUTION = "aten.convolution.default"
_Engine: Any = node_visitor._node_visitor_dict[_CONVOLUTION]
_Layout: Any = node_visitor._node_visitor_dict[_VISITED]


class _CastConfig(GenericNodePartitionerConfig):  # type: ignore[misc]
    """Lets the partitioner take conversions between fp32 and fp16."""

    target_name = "_to_copy.default"

    def supported_precision_types(self) -> list[ConfigPrecisionType]:
        return [ConfigPrecisionType.FP32]

    def check_constraints(self, node: Node, ep: Any) -> bool:
        return bool(self.check_common_constraints(node, ep)) and is_cast(node)


class _Cast(_Layout):  # type: ignore[misc]
    """Writes a conversion as XNNPACK's own, and a change of layout as the engine does."""

    target = _VISITED

    def define_node(self, node: Node, xnn_graph: Any, vals_to_ids: dict[Node, int], debug_handle: int) -> None:
        if not is_cast(node):
            super().define_node(node, xnn_graph, vals_to_ids, debug_handle)
            return
        for one in (read(node), node):
            self.define_tensor(one, xnn_graph, vals_to_ids)
        convert = XNNConvert(input_id=vals_to_ids[read(node)], output_id=vals_to_ids[node], flags=0)
        xnn_graph.xnodes.append(XNode(xnode_union=convert, debug_handle=debug_handle))


class _Convolution(_Engine):  # type: ignore[misc]
    """Writes weights in fp16 as they are: the engine's own writes those of every convolution in fp32."""

    target = _CONVOLUTION

    def define_tensor(self, tensor: Node, *args: Any, **options: Any) -> None:
        options["force_fp32"] = options.get("force_fp32", False) and value(tensor).dtype != torch.float16
        super().define_tensor(tensor, *args, **options)


# What the partitioner takes: all that the engine's own takes, and conversions.
CONFIGS = [*ALL_PARTITIONER_CONFIGS, _CastConfig]
node_visitor.register_node_visitor(_Cast)
node_visitor.register_node_visitor(_Convolution)


def is_cast(node: Node) -> bool:
    """Whether a node converts between fp32 and fp16, and does nothing else."""
    if node.target != TO_COPY or "dtype" not in node.kwargs:
        return False
    types = {value(read(node)).dtype, value(node).dtype}
    return types == _TYPES
