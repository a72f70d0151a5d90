"""Modules that tests of the graph rules make of functions."""

from collections.abc import Callable

import torch
from torch import nn


class Does(nn.Module):
    """A function of a clip and of layers."""

    def __init__(self, function: Callable[..., torch.Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.layers)


class All(nn.Module):
    """All models of a group in one, so that the graph is exported once: their answers in a row."""

    def __init__(self, models: list[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([model(x).flatten() for model in self.models])
