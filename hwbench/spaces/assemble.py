"""From an architecture to a trainable network. The only module of this package that loads torch."""

from __future__ import annotations

from torch import nn

from hwbench.models import network as build
from hwbench.spaces.space import StagedSpace
from hwbench.specs import Architecture


def assemble(space: StagedSpace, architecture: Architecture, num_classes: int, dropout: float = 0.5) -> nn.Module:
    """The network of a member, with fresh weights: normalised clips (N, 3, T, H, W) -> logits (N, num_classes).

    Raises:
        InvalidValue: Not a member of the space.
    """
    return build(space.network(architecture, num_classes), dropout=dropout)
