"""From the blocks of a network to its module: a chain, unless their network has names of weights of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from torch import nn

from hwbench.blocks.deployment import BlockChain
from hwbench.errors import UnsupportedModule
from hwbench.models.efficient_x3d import EfficientX3d, is_x3d
from hwbench.models.mvit import MvitNetwork
from hwbench.models.r2plus1d import R2plus1dNetwork
from hwbench.models.resnet import ResnetNetwork
from hwbench.models.slowfast import SlowFastNetwork, is_slowfast
from hwbench.models.squeezetime import SqueezeTimeNetwork
from hwbench.specs import BlockRole, BlockSpec

Assembler = Callable[[Sequence[BlockSpec], float], nn.Module]

# What makes a network of blocks, and of which; the first that answers yes. The names of their weights are those of
# published checkpoints. ``ChainNetwork`` takes all others.
ASSEMBLERS: list[tuple[Callable[[Sequence[BlockSpec]], bool], Assembler]] = [
    (is_x3d, EfficientX3d.of),
    (R2plus1dNetwork.matches, R2plus1dNetwork),
    (ResnetNetwork.matches, ResnetNetwork),
    (is_slowfast, SlowFastNetwork),
    (SqueezeTimeNetwork.matches, SqueezeTimeNetwork),
    (MvitNetwork.matches, MvitNetwork),
]


class ChainNetwork(BlockChain):
    """Blocks from stem to head: (N, 3, T, H, W) -> logits (N, classes).

    Every dropout inside the head has the probability ``dropout``.

    Raises:
        UnsupportedModule: The first block is no stem, the last is no head, or there is another of either between them.
    """

    def __init__(self, blocks: Sequence[BlockSpec], dropout: float = 0.5) -> None:
        roles = [block.role for block in blocks]
        stems = _stems(blocks)
        inner = set(roles[stems:-1]) <= {BlockRole.BODY}
        if len(blocks) < 2 or not stems or roles[-1] is not BlockRole.HEAD or not inner:
            raise UnsupportedModule(
                f"expected a stem, blocks and a head, got {'>'.join(block.kind for block in blocks)}"
            )
        super().__init__(blocks)
        head = self.get_submodule(f"block_{len(blocks) - 1}")
        for layer in head.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = dropout


def _stems(blocks: Sequence[BlockSpec]) -> int:
    """The number of blocks that take the clip: one, or what makes several pathways of it with the stem of each."""
    several = any(block.pathway or block.descriptor.gives > 1 for block in blocks)
    leading = sum(1 for _ in itertools.takewhile(lambda block: block.role is BlockRole.STEM, blocks))
    return leading if several else min(leading, 1)


def assemble(blocks: Sequence[BlockSpec], dropout: float = 0.5) -> nn.Module:
    """The network that some blocks make, as its layers initialise themselves.

    Raises:
        UnsupportedModule: Blocks that make no network.
    """
    for matches, make in ASSEMBLERS:
        if matches(blocks):
            return make(blocks, dropout)
    return ChainNetwork(blocks, dropout)


def initialise(module: nn.Module) -> None:
    """Draws convolutions as He et al. 2015 do for ReLU (fan out), linear layers with a deviation of 0.01; an MViT is
    drawn as its own code does.
    """
    if isinstance(module, MvitNetwork):
        module.initialise()
        return
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Conv3d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.01)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
