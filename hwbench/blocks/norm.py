"""Batch normalisation folded into the convolution before it."""

from __future__ import annotations

import torch
from torch import nn

from hwbench.errors import UnsupportedModule

Folded = tuple[torch.Tensor, torch.Tensor | None]


def fold_norm(conv: nn.Conv3d, norm: nn.Module | None) -> Folded:
    """Weight and bias of a convolution that does what ``norm(conv(x))`` does in eval mode.

    With s = gamma / sqrt(var + eps): weight' = weight · s, bias' = (bias - mean) · s + beta.

    Raises:
        UnsupportedModule: ``norm`` is no batch normalisation with running statistics.
    """
    weight = conv.weight.detach()
    bias = None if conv.bias is None else conv.bias.detach()
    if norm is None:
        return weight.clone(), None if bias is None else bias.clone()
    if type(norm) is not nn.BatchNorm3d or norm.running_mean is None or norm.running_var is None:
        raise UnsupportedModule(f"expected BatchNorm3d with running statistics behind a convolution, got {norm}")
    scale = torch.rsqrt(norm.running_var + norm.eps)
    shift = -norm.running_mean if bias is None else bias - norm.running_mean
    if norm.affine:
        scale = scale * norm.weight.detach()
        return weight * _per_output(scale), shift * scale + norm.bias.detach()
    return weight * _per_output(scale), shift * scale


def _per_output(scale: torch.Tensor) -> torch.Tensor:
    return scale.reshape(-1, 1, 1, 1, 1)
