"""Whether a pass of the engine has anything to do.

Each of the engine's passes traces the whole graph anew, found or not found, and there are a dozen that look for
operations which a deployed video network does not have. Those are half of the time that the delegate takes.
"""

from __future__ import annotations

from executorch.backends.transforms.remove_getitem_op import RemoveGetItemPass
from executorch.backends.xnnpack._passes.conv1d_unsqueeze_pass import Conv1dUnsqueezePass
from executorch.backends.xnnpack._passes.convert_to_linear import ConvertToLinearPass
from executorch.backends.xnnpack._passes.convert_to_sdpa import ConvertToSDPAPass
from executorch.backends.xnnpack._passes.convert_to_upsample_bilinear2d import ConvertToUpsampleBilinear2d
from executorch.backends.xnnpack._passes.decompose_batch_norm import DecomposeBatchNorm
from executorch.backends.xnnpack._passes.decompose_cat import DecomposeConcatenate
from executorch.backends.xnnpack._passes.fuse_batch_norm import FuseBatchNormPass
from executorch.backends.xnnpack._passes.insert_pad_qdq import InsertPadQDQPass
from executorch.backends.xnnpack._passes.prelu_reshape_pass import PReLUReshapePass
from executorch.exir.passes.memory_format_ops_pass import DimOrderOpsRevertPass
from torch.fx import GraphModule, Node

from hwbench.runtimes.passes.edge import value

# A pass -> parts of the names of the operations that it starts from.
_STARTS: dict[type, tuple[str, ...]] = {
    DimOrderOpsRevertPass: ("dim_order",),
    ConvertToUpsampleBilinear2d: ("aten.index.", "upsample"),
    ConvertToLinearPass: ("aten.mm.", "aten.addmm.", "aten.bmm."),
    ConvertToSDPAPass: ("softmax", "scaled_dot_product"),
    FuseBatchNormPass: ("batch_norm",),
    DecomposeBatchNorm: ("batch_norm",),
    DecomposeConcatenate: ("aten.cat.",),
    RemoveGetItemPass: ("max_pool2d_with_indices", "aten.max."),
    InsertPadQDQPass: ("pad",),
    PReLUReshapePass: ("prelu",),
}


def needed(made: type, graph_module: GraphModule) -> bool:
    """False only where a pass would leave the graph as it is."""
    calls = [node for node in graph_module.graph.nodes if node.op == "call_function"]
    if made is Conv1dUnsqueezePass:
        return any("convolution" in _name(node) and value(node).dim() == 3 for node in calls)
    starts = _STARTS.get(made)
    return starts is None or any(start in _name(node) for node in calls for start in starts)


def _name(node: Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
