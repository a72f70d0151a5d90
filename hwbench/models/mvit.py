"""MViT as one network, with the state-dict keys of PyTorchVideo's published checkpoints."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn

from hwbench.blocks.deployment import DeployedPathways, along, deploy_form
from hwbench.blocks.kinds import build
from hwbench.blocks.mvit import TokenHead, TokenPositions, TokenStem, token_head, token_stem
from hwbench.errors import UnsupportedModule
from hwbench.specs import AUTO, BlockSpec, TensorSpec
from hwbench.specs.kinds.mvit import (
    ClassTokenHeadKind,
    ClassTokenStemKind,
    MultiscaleClassKind,
    MultiscaleKind,
    TokenHeadKind,
    TokenStemKind,
)


class MvitNetwork(nn.Module):
    """A stem, multiscale blocks and a head: (N, 3, T, H, W) -> logits (N, classes).

    Args:
        blocks: From stem to head; with a class token all are of the kinds that have one.
        dropout: Before the last layer, in training.

    Raises:
        UnsupportedModule: Other blocks, or in another order.

    Source: "Multiscale Vision Transformers", Fan et al. 2021 (arXiv 2104.11227).
    """

    def __init__(self, blocks: Sequence[BlockSpec], dropout: float = 0.5) -> None:
        super().__init__()
        if not self.matches(blocks):
            raise UnsupportedModule(
                f"expected a {TokenStemKind.name}, {MultiscaleKind.name} blocks and a {TokenHeadKind.name}, or all of "
                f"them with a class token, got {'>'.join(block.kind for block in blocks)}"
            )
        self.specs = tuple(blocks)
        stem, head = token_stem(blocks[0]), token_head(blocks[-1])
        self.patch_embed, self.cls_positional_encoding = stem.patch_embed, stem.cls_positional_encoding
        self.blocks = nn.ModuleList(build(block) for block in blocks[1:-1])
        self.norm_embed, self.head = head.norm_embed, head.head
        self.head.dropout.p = dropout
        self.initialise()

    @classmethod
    def matches(cls, blocks: Sequence[BlockSpec]) -> bool:
        """Whether blocks are those of such a network."""
        kinds = [block.kind for block in blocks]
        networks = (
            (TokenStemKind, MultiscaleKind, TokenHeadKind),
            (ClassTokenStemKind, MultiscaleClassKind, ClassTokenHeadKind),
        )
        return len(kinds) >= 3 and any(
            kinds == [stem.name, *[block.name] * (len(kinds) - 2), head.name] for stem, block, head in networks
        )

    def initialise(self) -> None:
        """Draws linear layers and position terms from a normal distribution of deviation 0.02, cut at 2, as MViT does;
        convolutions stay as torch draws them.
        """
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
            elif isinstance(layer, TokenPositions):
                layer.initialise()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = along(self.specs, self._in_order(), (x,))
        assert isinstance(logits, torch.Tensor)
        return logits

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """Folded in: (N·T, 3, H, W) -> logits (N, classes); block by block, as each has a row of its own."""
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (spec, module) in enumerate(zip(self.specs, self._in_order(), strict=True)):
            layers[f"block_{number}"] = deploy_form(module, input, variant)
            input = spec.output(input)
        return DeployedPathways(self.specs, layers).eval()

    def _in_order(self) -> list[nn.Module]:
        """A module for each block."""
        stem = TokenStem(self.patch_embed, self.cls_positional_encoding)
        return [stem, *self.blocks, TokenHead(self.norm_embed, self.head)]
