"""Lazy layers: those whose weights have no shape before the first clip."""

from __future__ import annotations

from torch import nn

_WITHOUT_VALUES = (nn.UninitializedParameter, nn.UninitializedBuffer)


def uninitialised(module: nn.Module) -> list[str]:
    """Names of the parameters and buffers that have no values, as those of an ``nn.LazyConv3d`` before a clip."""
    tensors = (*module.named_parameters(), *module.named_buffers())
    return [name for name, tensor in tensors if isinstance(tensor, _WITHOUT_VALUES)]


def lazy_layers(module: nn.Module) -> dict[str, nn.Module]:
    """By name the parts that hold parameters or buffers without values themselves, not in parts of their own."""
    return {
        name: part
        for name, part in module.named_modules()
        if any(isinstance(tensor, _WITHOUT_VALUES) for tensor in (*part._parameters.values(), *part._buffers.values()))
    }
