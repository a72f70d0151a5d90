"""Forward and backward passes of a network replayed as CUDA graphs, for networks that are small for their GPU.

A pass of a small network takes a GPU less time than Python takes to start its kernels. A graph of them is recorded once
and started as one. It computes what the network computes, dropout included; all that is around it (loss, optimizer,
running average) is as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hwbench.errors import InvalidValue
from hwbench.training.recipe import Recipe

# Passes before one is recorded: in them libraries choose their kernels and allocate.
_WARM_UP = 3
# What a graph cannot have: networks in parts, batches in parts, clips of several shapes, other arithmetic inside.
_PLAIN = ("accumulate", "compile", "gradient_checkpointing", "multigrid", "precision", "sync_bn")


class GraphedNetwork(nn.Module):
    """A network in training mode: clips (N, 3, T, H, W) -> logits (N, classes).

    A batch of another shape than the recorded one, such as one that lost videos, goes through the network itself.

    Args:
        network: On a GPU, in training mode; its tensors stay where they are.
        example: Clips of the shape that is recorded, there too. No other thread may use the GPU meanwhile.
    """

    def __init__(self, network: nn.Module, example: torch.Tensor) -> None:
        super().__init__()
        self._network, self._shape = network, example.shape
        self._graph = _recorded(network, example)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Logits; the backward pass is replayed as well."""
        logits: torch.Tensor = self._graph(clips) if clips.shape == self._shape else self._network(clips)
        return logits


def _recorded(network: nn.Module, example: torch.Tensor) -> Callable[..., Any]:
    """Both passes; statistics of normalisations and random numbers are put back, which the first passes moved."""
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    with torch.random.fork_rng(devices=[example.device] if example.is_cuda else []):
        # A gradient of one batch is overwritten by that of the next: each is used up by then.
        graph: Callable[..., Any] = torch.cuda.make_graphed_callables(
            _Shell(network), (example,), num_warmup_iters=_WARM_UP, allow_unused_input=True
        )
    with torch.no_grad():
        for name, buffer in network.named_buffers():
            buffer.copy_(buffers[name])
    return graph


class _Shell(nn.Module):
    """What torch puts the graph in the place of; the network keeps its own forward pass."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network(clips)
        return logits


def check_replayable(recipe: Recipe, device: torch.device, processes: int) -> None:
    """Refuses what is no use or cannot be replayed.

    Raises:
        InvalidValue: No GPU, several processes, or a recipe whose passes are not always the same.
    """
    if device.type != "cuda":
        raise InvalidValue("--cuda-graphs needs a GPU; leave it out")
    if processes > 1:
        raise InvalidValue("--cuda-graphs goes with one process; leave it out, or start hwbench without torchrun")
    for name in _PLAIN:
        if getattr(recipe, name) != getattr(Recipe, name):
            raise InvalidValue(
                f"--cuda-graphs does not go with {name} = {getattr(recipe, name)!r}; leave out one of them"
            )
