"""What int8 does to each block of a network, and which blocks are better left in fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from hwbench.blocks.deployment import DeployedPathways
from hwbench.deploy.clips import Clips
from hwbench.deploy.manifest_records import BlockQuality
from hwbench.deploy.parity import judged, noise_db, sqnr_db
from hwbench.errors import InvalidValue, UnsupportedModule

if TYPE_CHECKING:
    from hwbench.deploy.source import ExportSource
    from hwbench.runtimes.executorch.rounding import Rounding

# Every block costs a pass over each of them.
QUALITY_CLIPS = 8
_BY_BLOCK = "--keep-accuracy and --blocks are for X3D, E3D, SqueezeTime, MViT and chains of blocks"


@dataclass(frozen=True)
class Int8:
    """How a network is to become int8.

    Attributes:
        observer: How ranges of activations are found (``hwbench.runtimes.executorch.scheme.Scheme``); None: histograms,
            or where their parity is under the bound, what reaches the best.
        fp32_blocks: Blocks that stay in fp32 in any case.
        max_loss: Top-1 that may be lost on the validation videos, as a share; so many blocks stay in fp32 as it takes.
        inspect: Whether to look at each block; done anyway where a loss is limited.
    """

    observer: str | None = None
    fp32_blocks: tuple[str, ...] = ()
    max_loss: float | None = None
    inspect: bool = False

    def __post_init__(self) -> None:
        if self.max_loss is not None and not 0 <= self.max_loss <= 1:
            raise InvalidValue(f"max_loss: expected a share from 0 to 1, got {self.max_loss}")
        if self.max_loss is not None and self.fp32_blocks:
            raise InvalidValue("either name the blocks in fp32 (--fp32-block) or let them be chosen (--keep-accuracy)")

    @property
    def by_block(self) -> bool:
        """Whether the blocks of the network are to be looked at one by one."""
        return self.inspect or self.max_loss is not None


def require_blocks(original: ExportSource) -> None:
    """Whether the deploy form of a network has blocks to look at one by one; it is not made for that.

    Raises:
        UnsupportedModule: It has none.
    """
    from hwbench import models

    if not models.keeps_blocks(original.module):
        raise UnsupportedModule(
            f"{original.network.name} is deployed as one graph without blocks: {_BY_BLOCK}; leave both out, or name "
            "operations of the graph by --fp32-block"
        )


def block_names(deployed: nn.Module) -> tuple[str, ...]:
    """The blocks of a deploy form: the parts of its stages, and the stages that have none.

    Raises:
        UnsupportedModule: It is no chain of blocks.
    """
    if not isinstance(deployed, nn.Sequential | DeployedPathways) or not [*deployed.children()]:
        raise UnsupportedModule(f"{type(deployed).__name__} is no chain of blocks: {_BY_BLOCK}; leave both out")
    names = []
    for name, stage in deployed.named_children():
        inner = [*stage.named_children()] if isinstance(stage, nn.Sequential) else []
        names += [f"{name}.{part}" for part, _ in inner] or [name]
    return tuple(names)


def qualities(
    rounding: Rounding, inputs: Sequence[torch.Tensor], progress: Callable[[int, int], None]
) -> tuple[BlockQuality, ...]:
    """Every block in the order of the network, over the inputs (T, 3, H, W); leaves all blocks rounding."""
    blocks, inputs = rounding.blocks, inputs[:QUALITY_CLIPS]
    power = {name: [0.0, 0.0] for name in blocks}
    clean, alone = [], {name: list[torch.Tensor]() for name in blocks}
    for count, x in enumerate(inputs, start=1):
        rounding.choose(())
        exact = rounding.outputs(x)
        clean.append(rounding(x))
        rounding.choose(blocks)
        for name, value in rounding.outputs(x).items():
            power[name][0] += exact[name].square().sum().item()
            power[name][1] += (exact[name] - value).square().sum().item()
        for name in blocks:
            rounding.choose((name,))
            alone[name].append(rounding(x))
        progress(count, len(inputs))
    rounding.choose(blocks)
    logits = torch.cat(clean)
    return tuple(BlockQuality(name, noise_db(*power[name]), sqnr_db(logits, torch.cat(alone[name]))) for name in blocks)


def choices(
    rounding: Rounding,
    found: Sequence[BlockQuality],
    score: Callable[[], float],
    least: float,
) -> Iterator[tuple[str, ...]]:
    """Blocks to leave in fp32: as few as keep the score, then more and more.

    The most sensitive are taken first, until the score is kept; then each that turns out not to be needed is put back.
    That is a greedy search and not the proof that no smaller set would do.

    Args:
        rounding: The calibrated network.
        found: Its blocks.
        score: Top-1 of the network as it rounds at the time.
        least: The score to keep.
    """
    order = [quality.name for quality in sorted(found, key=lambda quality: quality.alone_db)]

    def keeps(fp32: Sequence[str]) -> bool:
        rounding.choose([name for name in order if name not in fp32])
        return score() >= least

    kept: list[str] = []
    while len(kept) < len(order) and not keeps(kept):
        kept.append(order[len(kept)])
    for name in kept[:-1]:
        without = [other for other in kept if other != name]
        if keeps(without):
            kept = without
    yield tuple(sorted(kept, key=rounding.blocks.index))
    for name in [name for name in order if name not in kept]:
        kept = [*kept, name]
        yield tuple(sorted(kept, key=rounding.blocks.index))


@dataclass(frozen=True)
class Answers:
    """Logits (views, classes) in double precision over views of videos; view ``i`` is of video ``videos[i]``."""

    logits: torch.Tensor
    videos: tuple[int, ...]

    @classmethod
    def of(cls, run: Callable[[torch.Tensor], torch.Tensor], clips: Clips) -> Answers:
        """Of (1, 3, T, H, W) -> logits (1, classes) over all views of some clips."""
        with torch.inference_mode():
            answers = [(run(view).double(), video) for video, view in clips.views()]
        return cls(torch.cat([logits for logits, _ in answers]), tuple(video for _, video in answers))

    def top1(self, clips: Clips) -> float:
        """Top-1 over the labelled videos."""
        return judged([row[None] for row in self.logits], self.videos, clips.dataset.videos).top(1)
