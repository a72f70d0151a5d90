"""The blocks of a network from stem to head: what is frozen, how fast each one learns, and which are computed twice."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from hwbench.blocks.authors import is_ours
from hwbench.errors import InvalidValue
from hwbench.models.hand_weights import LAYERS
from hwbench.registry import is_ending
from hwbench.training.convolutions import same_convolutions
from hwbench.training.recipe import Recipe


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """The parts of a network that have weights, from stem to head.

    A part is a child of the module. A lone child stands for its children, and so do a sequence of layers and a
    container that is never called itself: a list or a dictionary of modules, at any depth. What several of them hold
    counts once. The order is that of ``sorted_blocks``, else the one in which the module has them.
    """
    if (order := _orders.get(module)) is not None:
        return list(order)
    parts = _with_weights(module)
    while len(parts) == 1 and _with_weights(parts[0]):
        parts = _with_weights(parts[0])
    blocks: list[nn.Module] = []
    counted: set[int] = set()
    for block in (one for part in parts for one in _opened(part)):
        weights = {id(weight) for weight in block.parameters()}
        if not weights <= counted:
            blocks.append(block)
        counted |= weights
    return blocks


@contextmanager
def sorted_blocks(module: nn.Module, clip: torch.Tensor) -> Iterator[None]:
    """Inside, the blocks of a module are in the order in which a clip passes them.

    The last one is the head: that with the linear layer or convolution that the clip passes last. Blocks that it does
    not pass stay behind those that the module has before them. All modules of hwbench have their blocks in order.

    Args:
        module: Left as it is.
        clip: (1, C, T, H, W); a module that does not take it keeps the order that it has.
    """
    if not is_ours(module):
        _orders[module] = _passed(module, blocks_of(module), clip)
    try:
        yield
    finally:
        _orders.pop(module, None)


# By network, while it is trained: the functions below are asked for the same blocks.
_orders: WeakKeyDictionary[nn.Module, list[nn.Module]] = WeakKeyDictionary()


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
    """Makes the frozen blocks ask for no gradients.

    Raises:
        InvalidValue: As many blocks as there are, or more, or no other weight is trained.
    """
    frozen = frozen_blocks(module, recipe)
    for block in frozen:
        block.requires_grad_(False)
    if frozen and not any(parameter.requires_grad for parameter in module.parameters()):
        raise InvalidValue(
            f"freeze: no weight is left to train: all outside of the {len(frozen)} frozen blocks are in these as well, "
            "or have requires_grad=False; freeze fewer blocks"
        )


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


def _passed(module: nn.Module, blocks: Sequence[nn.Module], clip: torch.Tensor) -> list[nn.Module]:
    """The blocks in the order in which a clip passes them, the head last."""
    holders: dict[nn.Module, list[int]] = defaultdict(list)
    for index, block in enumerate(blocks):
        for part in block.modules():
            holders[part].append(index)
    calls, first, heads = itertools.count(), dict[int, int](), list[int]()

    def note(part: nn.Module, _: object) -> None:
        call = next(calls)
        for index in holders[part]:
            first.setdefault(index, call)
        if isinstance(part, LAYERS):
            heads[:] = holders[part]

    hooks = [part.register_forward_pre_hook(note) for part in holders]
    modes = [(part, part.training) for part in module.modules()]
    try:
        with torch.no_grad():
            module.eval()(clip.to(next(module.parameters()).device, copy=True))
    except (Exception, SystemExit) as error:  # the user's code raises what it likes
        if is_ending(error):
            raise
        return [*blocks]
    finally:
        for hook in hooks:
            hook.remove()
        for part, mode in modes:
            part.training = mode
    places = list(itertools.accumulate(range(len(blocks)), lambda before, index: first.get(index, before), initial=-1))
    order = sorted(range(len(blocks)), key=lambda index: (index in heads, places[index + 1]))
    return [blocks[index] for index in order]


def _opened(part: nn.Module) -> list[nn.Module]:
    if isinstance(part, (nn.ModuleList, nn.ModuleDict)):
        return [one for child in _with_weights(part) for one in _opened(child)]
    return _with_weights(part) if isinstance(part, nn.Sequential) else [part]


def _with_weights(module: nn.Module) -> list[nn.Module]:
    return [child for child in module.children() if next(child.parameters(), None) is not None]
