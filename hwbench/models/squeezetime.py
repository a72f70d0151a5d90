"""SqueezeTime as one network; ``hwbench.models.squeezetime_weights`` has the way to its published names."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from hwbench.blocks.deployment import deploy_form
from hwbench.blocks.kinds import build
from hwbench.errors import UnsupportedModule
from hwbench.models.stages import stages_of
from hwbench.specs import AUTO, BlockSpec, TensorSpec
from hwbench.specs.kinds.r2plus1d import PoolHeadKind
from hwbench.specs.kinds.squeezetime import ChannelTimeKind, SqueezeStemKind


class SqueezeTimeNetwork(nn.Module):
    """A stem, stages of Channel-Time Learning bottlenecks and a head: (N, 3, T, H, W) -> logits (N, classes).

    The names of weights are ``stem``, ``stages.STAGE.BLOCK`` and ``head``.

    Args:
        blocks: From stem to head.
        dropout: Before the last layer, in training.

    Raises:
        UnsupportedModule: Other blocks, or in another order.

    Source: Zhai et al. 2024 (arXiv 2405.08344).
    """

    def __init__(self, blocks: Sequence[BlockSpec], dropout: float = 0.5) -> None:
        super().__init__()
        if not self.matches(blocks):
            raise UnsupportedModule(
                f"expected a {SqueezeStemKind.name}, {ChannelTimeKind.name} blocks and a {PoolHeadKind.name}, "
                f"got {'>'.join(block.kind for block in blocks)}"
            )
        self.specs = tuple(blocks)
        stem, *inner, last = blocks
        self.stem = build(stem)
        self.stages = nn.ModuleList(
            nn.ModuleList(build(block) for block in stage) for stage in stages_of(inner, _begins)
        )
        self.head = build(last)
        self.head.get_submodule("dropout").p = dropout  # type: ignore[assignment]

    @staticmethod
    def matches(blocks: Sequence[BlockSpec]) -> bool:
        """Whether blocks are those of such a network, on one pathway."""
        kinds = [block.kind for block in blocks]
        ends, inner = (SqueezeStemKind.name, PoolHeadKind.name), {*kinds[1:-1]}
        fits = inner == {ChannelTimeKind.name} and (kinds[0], kinds[-1]) == ends
        return fits and not any(block.pathway for block in blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self._blocks():
            x = block(x)
        return x

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """Folded (N·T, 3, H, W) -> logits (N, classes), in eval mode."""
        layers = []
        for spec, block in zip(self.specs, self._blocks(), strict=True):
            layers.append(deploy_form(block, input, variant))
            input = spec.output(input)
        return nn.Sequential(*layers).eval()

    def _blocks(self) -> list[nn.Module]:
        inner = (block for stage in self.stages for block in stage)  # type: ignore[attr-defined]
        return [self.stem, *inner, self.head]


def _begins(block: BlockSpec) -> bool:
    """Whether a block is the first of a stage: it changes the shape of what it gets."""
    return block.in_channels != block.out_channels or block.stride != 1
