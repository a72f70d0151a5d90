"""Lazy layers: those whose weights have no shape before the first clip."""

from __future__ import annotations

from torch import nn


def uninitialised(module: nn.Module) -> list[str]:
    """Names of the parameters and buffers that have no values, as those of an ``nn.LazyConv3d`` before a clip."""
    tensors = (*module.named_parameters(), *module.named_buffers())
    return [name for name, tensor in tensors if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer))]
