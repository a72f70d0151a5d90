"""SlowFast as one network, with the state-dict keys of PyTorchVideo's published checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from hwbench.blocks.kinds import build
from hwbench.blocks.pathways import Pair
from hwbench.errors import UnsupportedModule
from hwbench.models.resnet import ResidualStage
from hwbench.specs import BlockSpec
from hwbench.specs.kinds.pathways import PathwayFuseKind, PathwayHeadKind, PathwaySplitKind
from hwbench.specs.kinds.r2plus1d import ResnetStemKind
from hwbench.specs.kinds.resnet import BottleneckKind


@dataclass
class LevelBlocks:
    """The blocks of a stem or of a stage: those of each pathway, then the lateral connection, if there is one."""

    slow: list[BlockSpec] = field(default_factory=list)
    fast: list[BlockSpec] = field(default_factory=list)
    fuse: list[BlockSpec] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether both pathways have a stem, or blocks of a stage."""
        kinds = [{block.kind for block in blocks} for blocks in (self.slow, self.fast)]
        return kinds[0] == kinds[1] and kinds[0] in ({ResnetStemKind.name}, {BottleneckKind.name})


class SlowFastNetwork(nn.Module):
    """Slow and fast pathway of one clip, in ``blocks``: (N, 3, T, H, W) -> logits (N, classes).

    The slow pathway sees every alpha-th frame from the first on. PyTorchVideo's network gets both clips from its
    caller; its tutorial takes the slow frames evenly from the first to the last.

    Args:
        blocks: A split, the stems of both pathways, their stages with lateral connections, a head on both.
        dropout: Before the last layer, in training.

    Raises:
        UnsupportedModule: Other blocks, or in another order.

    Source: Feichtenhofer et al. 2019 (arXiv 1812.03982), section 3.
    """

    def __init__(self, blocks: Sequence[BlockSpec], dropout: float = 0.5) -> None:
        super().__init__()
        if not is_slowfast(blocks):
            raise UnsupportedModule(
                f"expected a {PathwaySplitKind.name}, blocks of both pathways and a {PathwayHeadKind.name}, "
                f"got {'>'.join(block.kind for block in blocks)}"
            )
        self.split = build(blocks[0])
        head = build(blocks[-1])
        head.get_submodule("dropout").p = dropout  # type: ignore[assignment]
        # The place before the head is that of PyTorchVideo's pooling, which has no weights.
        levels = (PathwayLevel(level) for level in levels_of(blocks[1:-1]))
        self.blocks = nn.ModuleList([*levels, nn.Identity(), head])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        slow, fast = self.split(x)
        *levels, _, head = self.blocks
        for level in levels:
            slow, fast = level(slow, fast)
        logits: torch.Tensor = head(slow, fast)
        return logits


class PathwayLevel(nn.Module):
    """The stems, or a stage of each pathway, then the lateral connection: (slow, fast) -> (slow, fast)."""

    def __init__(self, level: LevelBlocks) -> None:
        super().__init__()
        self.multipathway_blocks = nn.ModuleList(_part(blocks) for blocks in (level.slow, level.fast))
        self.multipathway_fusion = build(level.fuse[0]) if level.fuse else None

    def forward(self, slow: torch.Tensor, fast: torch.Tensor) -> Pair:
        first, second = self.multipathway_blocks
        slow, fast = first(slow), second(fast)
        if self.multipathway_fusion is None:
            return slow, fast
        fused: Pair = self.multipathway_fusion(slow, fast)
        return fused


def is_slowfast(blocks: Sequence[BlockSpec]) -> bool:
    """Whether blocks are those of a SlowFast: a split, stems and stages of two pathways, a head on both."""
    kinds = [block.kind for block in blocks]
    if len(blocks) < 4 or (kinds[0], kinds[-1]) != (PathwaySplitKind.name, PathwayHeadKind.name):
        return False
    levels = levels_of(blocks[1:-1])
    return bool(levels) and all(level.is_whole for level in levels)


def levels_of(blocks: Sequence[BlockSpec]) -> list[LevelBlocks]:
    """Blocks between split and head by stem and stage; a level ends with its lateral connection, or where the slow
    pathway goes on behind the fast one.
    """
    levels = [LevelBlocks()]
    for block in blocks:
        level = levels[-1]
        if level.fuse or (block.pathway == 1 and level.fast):
            levels.append(level := LevelBlocks())
        if block.kind == PathwayFuseKind.name:
            level.fuse.append(block)
        else:
            (level.slow if block.pathway == 1 else level.fast).append(block)
    return levels


def _part(blocks: Sequence[BlockSpec]) -> nn.Module:
    alone = [block.alone for block in blocks]
    return build(alone[0]) if alone[0].kind == ResnetStemKind.name else ResidualStage(alone)
