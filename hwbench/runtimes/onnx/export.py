"""A module to an ONNX model, by the exporter of torch that goes through ``torch.export``."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from torch import nn

from hwbench.errors import UnsupportedModule

# The newest that torch 2.14 writes without asking, and older than what ONNX Runtime 1.23 (2025) reads.
OPSET = 20
INPUT, OUTPUT = "input", "output"


def input_names(count: int) -> list[str]:
    """Names of the inputs of a model with so many."""
    return [INPUT, *(f"{INPUT}_{index}" for index in range(2, count + 1))]


def exported(module: nn.Module, *example: torch.Tensor) -> onnx.ModelProto:
    """The model of a module in eval mode, weights inside, for inputs of the shapes of ``example`` only; checked.

    Raises:
        UnsupportedModule: The module cannot be exported, or has an operation that ONNX has not.
    """
    try:
        with torch.no_grad():
            program: Any = torch.onnx.export(
                module,
                example,
                dynamo=True,
                opset_version=OPSET,
                input_names=input_names(len(example)),
                output_names=[OUTPUT],
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        cause = " ".join(str(error.__cause__ or error).split())[:300]
        raise UnsupportedModule(f"{type(module).__name__} cannot be written as ONNX: {cause}") from error
    model = program.model_proto
    _strip(model)
    onnx.checker.check_model(model, full_check=True)
    return model


def _strip(model: onnx.ModelProto) -> None:
    """Takes out what the exporter notes for debugging: where in which file each operation was called."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
