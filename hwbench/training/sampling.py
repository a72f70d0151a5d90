"""Which clips each step of a run sees, of which shape, and at which rate: all of it follows from the recipe.

A multigrid run (Wu et al. 2020, arXiv:1912.00998) has phases, in which clips are smaller and batches are larger by as
much. Shapes change between epochs alone, so an epoch is one pass over the videos in every phase.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from hwbench.data import TrainingClips
from hwbench.data.loading import repeated, shuffled
from hwbench.data.samples import ClipShape, Draw
from hwbench.errors import HwbenchError, InvalidValue
from hwbench.training.recipe import Recipe

# A side is a multiple of this. Below the smallest side, networks of five strides of 2 see less than one pixel.
_SIDE_STEP, _SMALLEST_SIDE = 16, 32


@dataclass(frozen=True)
class Phase:
    """A part of a run.

    Attributes:
        share: Share of the steps of the run.
        frames: Factor of the frames of a clip; the clip covers the same time.
        side: Factor of height and width.
        batch: Factor of the batch, and of the learning rate with it (Goyal et al. 2017).
    """

    share: float
    frames: float = 1.0
    side: float = 1.0
    batch: int = 1

    def shape(self, full: ClipShape) -> ClipShape:
        """(T, h, w) of the clips, where ``full`` is that of the network."""
        frames, height, width = full
        return max(1, round(frames * self.frames)), _side(height, self.side), _side(width, self.side)


# Factors of frames, side and batch in a long cycle: table 2 of the paper.
_LONG_CYCLE = ((1 / 4, math.sqrt(1 / 2), 8), (1 / 2, math.sqrt(1 / 2), 4), (1 / 2, 1.0, 2), (1.0, 1.0, 1))


def phases(recipe: Recipe) -> tuple[Phase, ...]:
    """The phases of a run in their order; without ``multigrid`` there is one.

    A cycle of four shapes ends at each of ``decay_at``, and each shape has a quarter of the cycle's steps. The last
    phase has the full shape: PySlowFast, ``utils/multigrid.py``.
    """
    if not recipe.multigrid:
        return (Phase(1.0),)
    ends = (0.0, *sorted(recipe.decay_at))
    cycles = [Phase((end - begin) / 4, *shape) for begin, end in itertools.pairwise(ends) for shape in _LONG_CYCLE]
    return (*cycles, Phase(1 - ends[-1]))


class Sampling:
    """The batches of a run.

    Args:
        recipe: How.
        training: The clips that are drawn from.
    """

    def __init__(self, recipe: Recipe, training: TrainingClips) -> None:
        self._recipe, self._videos = recipe, len(training)
        self._full = training.shape
        whole = max(1, self._videos * recipe.repeats // recipe.batch_size)
        # a batch is no larger than the set
        self._phases = _by_epoch([replace(one, batch=min(one.batch, whole)) for one in phases(recipe)], recipe.epochs)
        self.steps = sum(self.length(epoch) for epoch in range(recipe.epochs))

    def phase(self, epoch: int) -> Phase:
        """The phase that an epoch is in."""
        return self._phases[epoch]

    def length(self, epoch: int) -> int:
        """Steps of an epoch."""
        return max(1, self._videos // self._videos_per_step(self.phase(epoch)))

    def batches(self, epoch: int) -> list[list[Draw]]:
        """The batches of an epoch, of all processes together."""
        return self._batches(epoch, self.phase(epoch))

    def full_batches(self, epoch: int) -> list[list[Draw]]:
        """The same videos in batches of the recipe's size, and clips of the network's shape."""
        return self._batches(epoch, Phase(1.0))

    def rate(self, epoch: int, step: int) -> float:
        """Learning rate of a step, counted from 0 over the whole run."""
        return self._recipe.rate(step, self.steps) * self.phase(epoch).batch

    def shapes(self) -> list[ClipShape]:
        """All (T, h, w) of clips, from the first phase to the last."""
        return list(dict.fromkeys(phase.shape(self._full) for phase in self._phases))

    def _batches(self, epoch: int, phase: Phase) -> list[list[Draw]]:
        videos = shuffled(self._videos, self._videos_per_step(phase), seed=self._recipe.seed, epoch=epoch)
        shape = phase.shape(self._full)
        return repeated(videos, self._recipe.repeats, None if shape == self._full else shape)

    def _videos_per_step(self, phase: Phase) -> int:
        return self._recipe.batch_size * phase.batch // self._recipe.repeats


def channels_of(training: TrainingClips) -> int:
    """Channels of the clips: 3 of pictures, 2 of optical flow."""
    return len(training.transform.normalisation.mean)


def require_shapes(module: nn.Module, channels: int, shapes: Iterable[ClipShape]) -> None:
    """Runs a network on a grey clip of each shape (T, h, w) with so many channels, in eval mode.

    Raises:
        InvalidValue: The network does not take one of them.
    """
    like, training = next(module.parameters()), module.training
    module.eval()
    try:
        for shape in shapes:
            try:
                with torch.no_grad():
                    module(torch.zeros(1, channels, *shape, device=like.device))
            except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, HwbenchError) as error:
                line = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
                size = "x".join(map(str, shape))
                raise InvalidValue(
                    f"multigrid: the network does not take clips of {size} ({line}); leave multigrid out"
                ) from None
    finally:
        module.train(training)


def _by_epoch(parts: list[Phase], epochs: int) -> list[Phase]:
    """The phase of each epoch: those whose batches are larger take more passes for their share of the steps.

    The last epoch is in the last phase; a phase of less than half an epoch may have none.
    """
    passes = list(itertools.accumulate(part.share * part.batch for part in parts))
    ends = [min(epochs - 1, round(end / passes[-1] * epochs)) for end in passes[:-1]]
    counts = [end - begin for begin, end in itertools.pairwise((0, *ends, epochs))]
    return [part for part, count in zip(parts, counts, strict=True) for _ in range(count)]


def _side(full: int, factor: float) -> int:
    if factor == 1:
        return full
    return min(full, max(_SMALLEST_SIDE, _SIDE_STEP * round(full * factor / _SIDE_STEP)))
