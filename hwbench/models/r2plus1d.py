"""R(2+1)D as one network, with the state-dict keys of PyTorchVideo's published checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from hwbench.blocks.kinds import build
from hwbench.errors import UnsupportedModule
from hwbench.models.stages import stages_of
from hwbench.specs import BlockSpec
from hwbench.specs.kinds import r2plus1d


class R2plus1dNetwork(nn.Module):
    """A stem, stages and a head, in ``blocks``: (N, 3, T, H, W) -> logits (N, classes).

    A stage begins with every block that changes the shape of what it gets. Logits come out: PyTorchVideo's network
    ends with a softmax, which belongs to the loss or the reader.

    Source: "A Closer Look at Spatiotemporal Convolutions for Action Recognition", Tran et al. 2018 (arXiv 1711.11248).
    """

    def __init__(self, blocks: Sequence[BlockSpec], dropout: float = 0.5) -> None:
        super().__init__()
        if not is_r2plus1d(blocks):
            raise UnsupportedModule(
                f"expected a resnet-stem, r2plus1d blocks and a pool-head, got {'>'.join(b.kind for b in blocks)}"
            )
        stem, *inner, last = blocks
        head = build(last)
        head.get_submodule("dropout").p = dropout  # type: ignore[assignment]
        self.blocks = nn.ModuleList([build(stem), *(_Stage(stage) for stage in stages_of(inner, _changes_shape)), head])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class _Stage(nn.Module):
    def __init__(self, blocks: Sequence[BlockSpec]) -> None:
        super().__init__()
        self.res_blocks = nn.ModuleList(build(block) for block in blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.res_blocks:
            x = block(x)
        return x


def is_r2plus1d(blocks: Sequence[BlockSpec]) -> bool:
    """Whether blocks are those of an R(2+1)D: its stem, its bottlenecks, its head."""
    kinds = [block.kind for block in blocks]
    expected = (r2plus1d.ResnetStemKind.name, {r2plus1d.R2plus1dKind.name}, r2plus1d.PoolHeadKind.name)
    return len(blocks) >= 3 and (kinds[0], {*kinds[1:-1]}, kinds[-1]) == expected


def _changes_shape(block: BlockSpec) -> bool:
    strides = (block.stride, block.number("temporal_stride"))
    return block.in_channels != block.out_channels or strides != (1, 1)
