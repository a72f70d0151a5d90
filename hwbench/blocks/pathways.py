"""Modules of blocks on a pair of pathways, one tensor for each in and out (``hwbench.specs.kinds.pathways``)."""

from __future__ import annotations

import torch
from torch import nn

from hwbench.blocks.deployment import deploy_form
from hwbench.blocks.graph.frames import taken
from hwbench.blocks.layout import clip_mean
from hwbench.specs import AUTO, BlockSpec, TensorSpec

Pair = tuple[torch.Tensor, torch.Tensor]


class PathwaySplit(nn.Module):
    """(N, C, T, H, W) -> every ``alpha``-th frame from the first on, and the clip itself."""

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        self.alpha = spec.number("alpha")

    def forward(self, x: torch.Tensor) -> Pair:
        return x[:, :, :: self.alpha], x

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """Folded in and out."""
        return _Split(taken(input, 0, self.alpha, -(-input.t // self.alpha)))


class PathwayFuse(nn.Module):
    """(slow, fast) -> (slow with the fused channels behind its own, fast); names as in PyTorchVideo."""

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        fused, (size, _, _) = spec.out_channels - spec.in_channels, spec.kernel[0]
        stride, padding = (spec.number("alpha"), 1, 1), (size // 2, 0, 0)
        channels = spec.number("fast_channels")
        self.conv_fast_to_slow = nn.Conv3d(channels, fused, (size, 1, 1), stride, padding, bias=False)
        self.norm = nn.BatchNorm3d(fused)
        self.activation = _ACTIVATIONS[spec.activation]()

    def forward(self, slow: torch.Tensor, fast: torch.Tensor) -> Pair:
        lateral = self.activation(self.norm(self.conv_fast_to_slow(fast)))
        return torch.cat([slow, lateral], 1), fast

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """Folded in and out."""
        lateral = nn.Sequential(self.conv_fast_to_slow, self.norm, self.activation)
        return _Fuse(deploy_form(lateral, input.pathways[1], variant))


class PathwayHead(nn.Module):
    """(slow, fast) -> logits (N, classes)."""

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.proj = nn.Linear(spec.in_channels + spec.number("fast_channels"), spec.out_channels)

    def forward(self, slow: torch.Tensor, fast: torch.Tensor) -> torch.Tensor:
        pooled = torch.cat([slow.mean((2, 3, 4)), fast.mean((2, 3, 4))], 1)
        logits: torch.Tensor = self.proj(self.dropout(pooled))
        return logits

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """Folded in."""
        return _Head(input, self.proj)


_ACTIVATIONS = {"relu": nn.ReLU, "swish": nn.SiLU, "hswish": nn.Hardswish, "gelu": nn.GELU, "identity": nn.Identity}


class _Split(nn.Module):
    def __init__(self, frames: nn.Module) -> None:
        super().__init__()
        self.frames = frames

    def forward(self, x: torch.Tensor) -> Pair:
        return self.frames(x), x


class _Fuse(nn.Module):
    def __init__(self, lateral: nn.Module) -> None:
        super().__init__()
        self.lateral = lateral

    def forward(self, slow: torch.Tensor, fast: torch.Tensor) -> Pair:
        return torch.cat([slow, self.lateral(fast)], 1), fast


class _Head(nn.Module):
    def __init__(self, input: TensorSpec, projection: nn.Linear) -> None:
        super().__init__()
        self.slow, self.fast = input.pathways
        self.projection = projection

    def forward(self, slow: torch.Tensor, fast: torch.Tensor) -> torch.Tensor:
        pooled = torch.cat([clip_mean(slow, self.slow), clip_mean(fast, self.fast)], 1)
        logits: torch.Tensor = self.projection(pooled.flatten(1))
        return logits


def split(spec: BlockSpec) -> nn.Module:
    """A clip as two."""
    return PathwaySplit(spec)


def fuse(spec: BlockSpec) -> nn.Module:
    """A lateral connection."""
    return PathwayFuse(spec)


def head(spec: BlockSpec) -> nn.Module:
    """The head on both."""
    return PathwayHead(spec)
