"""States of a stream in int8: a file in int8 hands them on as it computes them.

A state goes in where it is added to a product, and comes out as that sum. With one range for both it needs no floating
point between two frames: neither a conversion nor four bytes a value. The range is symmetric, so that zeros, with which
a stream begins, are bytes of zeros.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn
from torchao.quantization.pt2e.quantizer import QuantizationSpec, SharedQuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

_QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = torch.ops.quantized_decomposed.dequantize_per_tensor.default


def share_ranges(graph: fx.Graph, spec: QuantizationSpec) -> None:
    """Gives every state that is computed in int8 one range, of that kind, as it goes in and as it comes out."""
    for given, renewed in _states(graph):
        made = renewed.meta.get(Q_ANNOTATION_KEY)
        readers = [reader.meta[Q_ANNOTATION_KEY] for reader in given.users if Q_ANNOTATION_KEY in reader.meta]
        rounded = [reader for reader in readers if given in reader.input_qspec_map]
        if made is not None and made.output_qspec is not None and len(rounded) == len(given.users):
            made.output_qspec = spec
            for reader in rounded:
                reader.input_qspec_map[given] = SharedQuantizationSpec(renewed)


def in_int8(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A quantised stream whose states go in and come out as the integers that they are, and arguments for it.

    A state in floating point stays as it is. The module that is given stays as it is; weights are shared.
    """
    assert isinstance(module, fx.GraphModule)
    graph, taken = copy.deepcopy(module.graph), list(arguments)
    outputs = [*_outputs(graph)]
    for at, (given, renewed) in enumerate(_states(graph), start=1):
        readers = list(given.users)
        if renewed.target is not _DEQUANTIZE or any(reader.target is not _QUANTIZE for reader in readers):
            continue
        if any(reader.args[1:] != renewed.args[1:] for reader in readers):
            continue
        for reader in readers:
            reader.replace_all_uses_with(given)
            graph.erase_node(reader)
        outputs[at] = renewed.args[0]
        taken[at] = torch.zeros_like(arguments[at], dtype=torch.int8)
    graph.output_node().args = (tuple(outputs),)
    graph.eliminate_dead_code()
    return fx.GraphModule(module, graph), tuple(taken)


def _states(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Each state as it goes in and as it comes out."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    yield from zip(inputs[1:], _outputs(graph)[1:], strict=True)


def _outputs(graph: fx.Graph) -> tuple[Any, ...]:
    made: Any = graph.output_node().args[0]
    return tuple(made)
