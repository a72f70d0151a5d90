"""The blocks of a network from stem to head: what is frozen, how fast each one learns, and which are computed twice."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from hwbench.errors import InvalidValue
from hwbench.training.convolutions import same_convolutions
from hwbench.training.recipe import Recipe


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """The parts of a network that have weights, from stem to head.

    A part is a child of the module. A lone child stands for its children, and so do a sequence of layers and a
    container that is never called itself: a list or a dictionary of modules, at any depth.
    """
    parts = _with_weights(module)
    while len(parts) == 1 and _with_weights(parts[0]):
        parts = _with_weights(parts[0])
    return [one for part in parts for one in _opened(part)]


def frozen_blocks(module: nn.Module, recipe: Recipe) -> list[nn.Module]:
    """The blocks that keep their weights.

    Raises:
        InvalidValue: As many blocks as there are, or more.
    """
    blocks = blocks_of(module)
    count = {"": 0, "stem": 1, "all-but-head": len(blocks) - 1}.get(recipe.freeze)
    count = int(recipe.freeze) if count is None else count
    if count and count >= len(blocks):
        raise InvalidValue(f"freeze: the network has {len(blocks)} blocks, at most {len(blocks) - 1} can be frozen")
    return blocks[:count]


def freeze(module: nn.Module, recipe: Recipe) -> None:
    """Makes the frozen blocks ask for no gradients."""
    for block in frozen_blocks(module, recipe):
        block.requires_grad_(False)


def train_mode(module: nn.Module, recipe: Recipe) -> None:
    """Puts a network in training mode; frozen blocks stay in eval mode, so their statistics stay, too."""
    module.train()
    for block in frozen_blocks(module, recipe):
        block.eval()


def rate_scales(module: nn.Module, recipe: Recipe) -> dict[int, float]:
    """Share of the learning rate for each parameter, by ``id``; weights outside of the blocks have the whole rate."""
    blocks = blocks_of(module)
    return {
        id(parameter): recipe.layer_decay ** (len(blocks) - 1 - depth)
        for depth, block in enumerate(blocks)
        for parameter in block.parameters()
    }


@contextmanager
def recomputed(module: nn.Module) -> Iterator[None]:
    """Inside, blocks keep their inputs alone and are computed again in the backward pass (Chen et al. 2016).

    The second time leaves the statistics of batch normalisation as they are.
    """
    blocks = [block for block in blocks_of(module) if any(p.requires_grad for p in block.parameters())]
    for block in blocks:
        again = functools.partial(_contexts, block)
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, context_fn=again)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward  # the method of the class shows again


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _second_time(block, same_convolutions())


@contextmanager
def _second_time(block: nn.Module, convolutions: AbstractContextManager[None]) -> Iterator[None]:
    """Inside, a block computes in the backward pass what it has computed before, by the same convolutions."""
    with convolutions, _without_statistics(block):
        yield


@contextmanager
def _without_statistics(block: nn.Module) -> Iterator[None]:
    """Inside, batch normalisation takes no statistics: a momentum of 0, and a counter that is put back."""
    layers = [layer for layer in block.modules() if isinstance(layer, _BatchNorm)]
    before = [(layer.momentum, None if layer.num_batches_tracked is None else layer.num_batches_tracked.clone())
              for layer in layers]  # fmt: skip
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        with torch.no_grad():
            for layer, (momentum, count) in zip(layers, before, strict=True):
                layer.momentum = momentum
                if count is not None and layer.num_batches_tracked is not None:
                    layer.num_batches_tracked.copy_(count)


def _opened(part: nn.Module) -> list[nn.Module]:
    if isinstance(part, (nn.ModuleList, nn.ModuleDict)):
        return [one for child in _with_weights(part) for one in _opened(child)]
    return _with_weights(part) if isinstance(part, nn.Sequential) else [part]


def _with_weights(module: nn.Module) -> list[nn.Module]:
    return [child for child in module.children() if next(child.parameters(), None) is not None]
