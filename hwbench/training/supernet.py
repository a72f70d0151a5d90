"""Trains the networks of a space together, on shared weights, so that each can be scored without a training of its own.

A step trains four networks on the same videos, each at its own input size: the largest within the budget, the smallest,
and two draws (the sandwich rule of Yu and Huang, ICCV 2019). The largest learns the labels; the others learn from it as
well (in-place distillation, BigNAS, Yu et al., ECCV 2020). Only networks within the budget are trained.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import nn

from hwbench.data import Batch, TestClips, TrainingClips
from hwbench.data.loading import Loader, shuffled
from hwbench.data.samples import Draw
from hwbench.errors import CheckFailed, VideoError
from hwbench.specs import Architecture
from hwbench.training.batch_norm import precise_statistics
from hwbench.training.convolutions import fast_convolutions
from hwbench.training.losses import classification_loss, distillation_loss
from hwbench.training.metrics import Scores, evaluate
from hwbench.training.optimizers import set_rate
from hwbench.training.processes import ALONE
from hwbench.training.recipe import Recipe
from hwbench.training.resources import Resources, clip_layout
from hwbench.training.shared_weights import SharedWeights
from hwbench.training.state import Resume, TrainState
from hwbench.units import MOST_WHOLE

# Draws of a step beside the largest and the smallest.
DRAWS = 2
# Batches that the statistics of a network are taken from before it is scored.
STATISTICS = 8


class Candidates(Protocol):
    """The networks that may be chosen."""

    @property
    def largest(self) -> Architecture:
        """The one that the others learn from."""
        ...

    @property
    def smallest(self) -> Architecture:
        """The fastest."""
        ...

    def draw(self, rng: np.random.Generator) -> Architecture:
        """Any one, uniformly."""
        ...


@dataclass(frozen=True)
class SupernetProgress:
    """Steps done of all, and the loss of the largest network in nats."""

    step: int
    steps: int
    loss: float


def train_supernet(
    shared: SharedWeights,
    candidates: Candidates,
    training: TrainingClips,
    recipe: Recipe,
    *,
    run_dir: Path | None = None,
    identity: Mapping[str, str] | None = None,
    resources: Resources | None = None,
    progress: Callable[[SupernetProgress], None] | None = None,
) -> dict[str, torch.Tensor]:
    """Trains shared weights in place.

    Killed at any moment, the same call with the same ``run_dir`` goes on.

    Args:
        shared: The weights.
        candidates: Which networks are trained.
        training: Clips to train on; each network reads them at its own size.
        recipe: Hyper-parameters; ``distill_weight`` is the share of the largest network in what the others learn.
        run_dir: Keeps the state; None: nothing is kept.
        identity: What must be the same for a training to go on, name -> text.
        resources: Device, threads, worker processes.
        progress: Called after every step.

    Returns:
        The running average of the weights, which is what networks are scored with.

    Raises:
        CheckFailed: The loss or a gradient is not a finite number.
        VideoError: A video cannot be read.
        InvalidValue: ``run_dir`` holds another training.
        InvalidFile: The state in ``run_dir`` is damaged.
    """
    resources = resources or Resources()
    recipe = recipe.for_targets(several=training.videos.multi_label)
    with resources.applied() as device, torch.random.fork_rng(), contextlib.ExitStack() as stack:
        shared.to(device)
        if device.type == "cpu":
            stack.enter_context(fast_convolutions())
        state = TrainState(shared, recipe)
        facts = {**recipe.facts(), "data": training.videos.identity, "transform": repr(training.transform)}
        resume = Resume(run_dir, {**facts, **(identity or {})})
        resume.load(state)
        loader = Loader(training, workers=resources.workers, device=device)
        steps = recipe.epochs * max(1, len(training) // recipe.batch_size)
        while state.position.epoch < recipe.epochs:
            epoch = state.position.epoch
            training.set_epoch(epoch)
            chosen = _chosen(candidates, len(training), recipe, state.position.step)
            order = [_draws(shared, architecture, videos) for group, videos in chosen for architecture in group]
            batches = loader.batches(order)
            for group, _ in chosen:
                loss = _step(state, [(architecture, next(batches)) for architecture in group], steps, device)
                state.position.step += 1
                if progress is not None:
                    progress(SupernetProgress(state.position.step, steps, loss))
            state.position.epoch += 1
            resume.save(state)
        return dict(state.average)


def score_inherited(
    shared: SharedWeights,
    architecture: Architecture,
    training: TrainingClips,
    validation: TestClips,
    recipe: Recipe,
    *,
    values: Mapping[str, torch.Tensor] | None = None,
    resources: Resources | None = None,
) -> Scores:
    """What a network is worth with the weights it inherits.

    Args:
        shared: The weights.
        architecture: The network.
        training: Clips of its size; the statistics of its normalisations are means over ``STATISTICS`` batches of them.
        validation: Clips of its size.
        recipe: Batch size and seed.
        values: A running average of the weights to take in their place.
        resources: Device, threads, worker processes.
    """
    resources = resources or Resources()
    with resources.applied() as device, torch.random.fork_rng():
        module = calibrated(shared.inherited(architecture, values).to(device), training, recipe, device)
        return evaluate(module, validation, batch_size=recipe.batch_size, workers=resources.workers, device=device)


def calibrated(module: nn.Module, training: TrainingClips, recipe: Recipe, device: torch.device) -> nn.Module:
    """A network with the statistics that its own normalisations see, in eval mode.

    Statistics of shared weights are of all networks and fit none (Yu et al., Slimmable Neural Networks, ICLR 2019).
    """
    training.set_epoch(0)
    order = shuffled(len(training), recipe.batch_size, seed=recipe.seed, epoch=0)[:STATISTICS]
    clips = (batch.clips for batch in Loader(training, device=device).batches(order) if len(batch))
    values = precise_statistics(module.eval(), clips, [], ALONE)
    module.load_state_dict({**module.state_dict(), **values})
    return module


def _chosen(
    candidates: Candidates, videos: int, recipe: Recipe, first: int
) -> list[tuple[list[Architecture], list[int]]]:
    """By step of an epoch: the networks, the largest first, and the videos; both follow from the seed and the step."""
    length = max(1, videos // recipe.batch_size)
    order = shuffled(videos, recipe.batch_size, seed=recipe.seed, epoch=first // length)
    found = []
    for number, batch in enumerate(order):
        rng = np.random.default_rng([recipe.seed, first + number, 3])
        drawn = [candidates.draw(rng) for _ in range(DRAWS)]
        found.append((list(dict.fromkeys([candidates.largest, candidates.smallest, *drawn])), batch))
    return found


def _draws(shared: SharedWeights, architecture: Architecture, videos: Sequence[int]) -> list[Draw]:
    size, span_s = shared.space.cell(architecture), shared.space.span_s(architecture)
    return [Draw(video, 0, (size.frames, size.resolution, size.resolution), span_s) for video in videos]


def _step(state: TrainState, parts: Sequence[tuple[Architecture, Batch]], steps: int, device: torch.device) -> float:
    """One step of the optimizer on the mean gradient of some networks; the loss of the first.

    A video may be readable at one size alone; networks that saw other videos than the first learn the labels alone.
    """
    shared, recipe, layout = state.module, state.recipe, clip_layout(device)
    torch.manual_seed((recipe.seed * steps + state.position.step) % (MOST_WHOLE + 1))
    set_rate(state.optimizer, recipe.rate(state.position.step, steps))
    state.optimizer.zero_grad(set_to_none=True)
    taught: tuple[torch.Tensor, torch.Tensor] | None = None
    first = math.nan
    for architecture, batch in parts:
        if not len(batch):
            raise VideoError("no video of a step could be read")
        logits = shared(batch.clips.contiguous(memory_format=layout), architecture)
        loss = classification_loss(logits, batch.labels.to(device), recipe)
        if taught is None:
            taught, first = (batch.videos, logits.detach()), loss.item()
        elif torch.equal(batch.videos, taught[0]):
            loss = loss.lerp(distillation_loss(logits, taught[1], recipe), recipe.distill_weight)
        _check(loss.item(), "loss", state)
        (loss / len(parts)).backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.clip_grad_norm_(shared.parameters(), recipe.clip_grad_norm)
    _check(norm.item(), "gradient", state)
    state.optimizer.step()
    state.update_average()
    return first


def _check(value: float, name: str, state: TrainState) -> None:
    if not math.isfinite(value):
        step, rate = state.position.step, state.recipe.learning_rate
        raise CheckFailed(
            f"training of the supernet diverged: the {name} is {value} at step {step}; lower --lr ({rate:g})"
        )
