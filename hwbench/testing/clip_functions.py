"""Modules made of functions of a clip: what graph rules are tried on."""

from collections.abc import Callable

import torch
from torch import nn


class Does(nn.Module):
    """A function of a clip and of layers.

    Args:
        function: Of a clip (N, C, T, H, W), and of the layers behind it.
        layers: What it calls.
    """

    def __init__(self, function: Callable[..., torch.Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.layers)


class All(nn.Module):
    """All models of a group in one, so that the graph is exported once: their answers in a row.

    Args:
        models: Each takes a clip (N, C, T, H, W).
    """

    def __init__(self, models: list[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([model(x).flatten() for model in self.models])
