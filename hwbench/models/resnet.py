"""C2D, I3D, Slow, CSN and R(2+1)D as one network each, with the state-dict keys of PyTorchVideo's checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import nn

from hwbench.blocks.kinds import build
from hwbench.errors import UnsupportedModule
from hwbench.models.stages import stages_of
from hwbench.specs import BlockSpec
from hwbench.specs.kinds.r2plus1d import PoolHeadKind, ResnetStemKind
from hwbench.specs.kinds.resnet import BottleneckKind, FramePoolKind


class ResnetNetwork(nn.Module):
    """A stem, stages and a head, in ``blocks``: (N, 3, T, H, W) -> logits (N, classes).

    A stage begins with every block that changes the shape of what it gets; a pool over frames is an entry of its own.
    Logits come out, where some networks of PyTorchVideo end with a softmax: that belongs to the loss or the reader.

    Args:
        blocks: From stem to head.
        dropout: Before the last layer, in training.

    Raises:
        UnsupportedModule: Other blocks, or in another order.

    Sources: SlowFast (arXiv 1812.03982) for Slow, Non-local networks (arXiv 1711.07971) for C2D and I3D, CSN (arXiv
    1904.02811).
    """

    # Kinds between the stem and the head; the first of them makes the stages.
    inner: ClassVar[tuple[str, ...]] = (BottleneckKind.name, FramePoolKind.name)

    def __init__(self, blocks: Sequence[BlockSpec], dropout: float = 0.5) -> None:
        super().__init__()
        if not self.matches(blocks):
            raise UnsupportedModule(
                f"expected a {ResnetStemKind.name}, {self.inner[0]} blocks and a {PoolHeadKind.name}, "
                f"got {'>'.join(block.kind for block in blocks)}"
            )
        stem, *inner, last = blocks
        head = build(last)
        head.get_submodule("dropout").p = dropout  # type: ignore[assignment]
        self.blocks = nn.ModuleList([build(stem), *self._entries(inner), head])

    @classmethod
    def matches(cls, blocks: Sequence[BlockSpec]) -> bool:
        """Whether blocks are those of such a network: its stem, its bottlenecks, its head, on one pathway."""
        kinds = [block.kind for block in blocks]
        ends, inner = (ResnetStemKind.name, PoolHeadKind.name), {*kinds[1:-1]}
        fits = cls.inner[0] in inner and inner <= {*cls.inner}
        return len(blocks) >= 3 and (kinds[0], kinds[-1]) == ends and fits and not any(b.pathway for b in blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def _entries(self, inner: Sequence[BlockSpec]) -> Iterator[nn.Module]:
        """What lies between stem and head: stages, and whatever is no block of a stage on its own."""
        for kind, run in itertools.groupby(inner, lambda block: block.kind):
            if kind == self.inner[0]:
                yield from (ResidualStage(stage) for stage in stages_of([*run], begins))
            else:
                yield from (build(block) for block in run)


class ResidualStage(nn.Module):
    """Blocks one after the other, in ``res_blocks``."""

    def __init__(self, blocks: Sequence[BlockSpec]) -> None:
        super().__init__()
        self.res_blocks = nn.ModuleList(build(block) for block in blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.res_blocks:
            x = block(x)
        return x


def begins(block: BlockSpec) -> bool:
    """Whether a block is the first of a stage: it changes the shape of what it gets."""
    strides = (block.stride, block.number("temporal_stride"))
    return block.in_channels != block.out_channels or strides != (1, 1)
