"""The training loop: it knows a module, two data sets and a recipe, and nothing of networks or spaces."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from hwbench.data import Batch, Failures, TestClips, TrainingClips
from hwbench.data.loading import Loader, shuffled
from hwbench.errors import CheckFailed, VideoError
from hwbench.training.depthwise import fast_depthwise
from hwbench.training.log import MetricsLog
from hwbench.training.metrics import Scores, evaluate
from hwbench.training.recipe import Recipe
from hwbench.training.resources import Resources
from hwbench.training.state import Resume, TrainState

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class TrainingProgress:
    """What a progress bar shows: steps done of all, the epoch from 1, the loss of the last step, the last top-1."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    top1: float | None


@dataclass(frozen=True)
class Fit:
    """The end of a run: scores of the trained weights on the validation set, steps and seconds of all its parts.

    ``failures`` are the training videos that could not be read.
    """

    scores: Scores | None
    steps: int
    seconds: float
    failures: Failures


def fit(
    module: nn.Module,
    training: TrainingClips,
    validation: TestClips | None,
    recipe: Recipe,
    *,
    run_dir: Path | None = None,
    resources: Resources | None = None,
    identity: Mapping[str, str] | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> Fit:
    """Trains a module in place; afterwards it is in eval mode and holds the weights that were tested.

    With ``run_dir`` the run can be killed at any moment and goes on at the next call with the same arguments: see
    ``hwbench.training.state.Resume``. ``metrics.jsonl`` there gets a line per step and per epoch.

    Args:
        module: float32 (N, 3, T, H, W) -> logits (N, classes); its weights are the start of the run.
        training: Clips to train on.
        validation: What to test on, or None.
        recipe: Hyper-parameters.
        run_dir: Folder of the run, or None to keep nothing.
        resources: Device, threads, worker processes.
        identity: Further facts that must be the same for a run to go on, name -> text.
        progress: Called after every step.

    Raises:
        VideoError: A video cannot be read under the policy ``raise``, or none can.
        CheckFailed: The loss or a gradient is not a finite number.
        InvalidValue: ``run_dir`` holds another run.
        InvalidFile: The state in ``run_dir`` is damaged.
        WorkspaceError: ``run_dir`` cannot be written.
    """
    resources = resources or Resources()
    with resources.applied() as device, torch.random.fork_rng():
        layout = torch.channels_last_3d if device.type == "cpu" else torch.contiguous_format
        _place(module, device)
        state = TrainState(module, recipe)
        resume = Resume(run_dir, fingerprint(training, recipe, identity or {}))
        resume.load(state)
        run = _Run(state, resume, training, validation, resources, device, layout, progress)
        with contextlib.closing(MetricsLog(run_dir, state.position.log_bytes)) as log:
            return run.to_end(log)


def _place(module: nn.Module, device: torch.device) -> None:
    """Moves a module; on a CPU the weights of convolutions get channels last, which its kernels want."""
    module.to(device)
    if device.type == "cpu":
        for parameter in module.parameters():
            if parameter.dim() in _CHANNELS_LAST:
                parameter.data = parameter.data.contiguous(memory_format=_CHANNELS_LAST[parameter.dim()])


def fingerprint(training: TrainingClips, recipe: Recipe, identity: Mapping[str, str]) -> dict[str, str]:
    """What must be equal for a stored run to go on, name -> text."""
    facts = {
        **{name: str(value) for name, value in asdict(recipe).items()},
        "data": training.videos.identity,
        "clip": str(training.clip),
        "transform": repr(training.transform),
        "on_error": str(training.policy),
    }
    return {**facts, **identity}


class _Run:
    def __init__(
        self,
        state: TrainState,
        resume: Resume,
        training: TrainingClips,
        validation: TestClips | None,
        resources: Resources,
        device: torch.device,
        layout: torch.memory_format,
        progress: Callable[[TrainingProgress], None] | None,
    ) -> None:
        self.state, self.resume, self.training, self.validation = state, resume, training, validation
        self.recipe, self.resources, self.device, self.layout = state.recipe, resources, device, layout
        self.progress = progress
        self.loader = Loader(training, workers=resources.workers, pin_memory=device.type == "cuda")
        self.per_epoch = len(self._order(0))
        self.steps = self.per_epoch * self.recipe.epochs
        self.scores: Scores | None = None
        self.loss = math.nan

    def to_end(self, log: MetricsLog) -> Fit:
        position = self.state.position
        start = time.monotonic() - position.seconds
        while position.epoch < self.recipe.epochs:
            self._epoch(log, start)
            self._validate(log)
            position.epoch, position.batch = position.epoch + 1, 0
            position.seconds = time.monotonic() - start
            position.log_bytes = log.length
            log.sync()  # the state that follows knows of these lines
            self.resume.save(self.state)
        self.state.module.load_state_dict(self.state.average)
        self.state.module.eval()
        if self.scores is None and self.validation is not None:
            self.scores = self._evaluate()
        return Fit(self.scores, position.step, position.seconds, position.failures)

    def _order(self, epoch: int) -> list[list[int]]:
        return shuffled(len(self.training), self.recipe.batch_size, seed=self.recipe.seed, epoch=epoch)

    def _epoch(self, log: MetricsLog, start: float) -> None:
        """The rest of the epoch the position is in."""
        position = self.state.position
        self.training.set_epoch(position.epoch)
        self.state.module.train()
        empty = 0
        for batch in self.loader.batches(self._order(position.epoch)[position.batch :]):
            position.failures.add(batch.failures)
            empty += not len(batch)
            if len(batch):
                rate = self.recipe.rate(position.step, self.steps)
                self.loss = self._step(batch, rate)
                log.write(event="step", step=position.step, epoch=position.epoch, loss=self.loss, learning_rate=rate)
            position.step, position.batch = position.step + 1, position.batch + 1
            position.seconds = time.monotonic() - start
            position.log_bytes = log.length
            self.resume.save_if_cheap(self.state)
            self._tell()
        if empty == self.per_epoch:
            raise VideoError(f"no video of {self.training.videos.root} could be read:\n{position.failures}")

    def _step(self, batch: Batch, rate: float) -> float:
        """Forward, backward, optimizer and average for one batch; the loss."""
        torch.manual_seed(_step_seed(self.recipe.seed, self.state.position.step))
        clips = batch.clips.to(self.device, memory_format=self.layout, non_blocking=True)
        labels = batch.labels.to(self.device, non_blocking=True)
        for group in self.state.optimizer.param_groups:
            group["lr"] = rate
        self.state.optimizer.zero_grad(set_to_none=True)
        with self._arithmetic():
            logits = self.state.module(clips)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=self.recipe.label_smoothing)
        value = loss.item()
        self._check_finite("loss", value, rate)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.state.module.parameters(), self.recipe.clip_grad_norm)
        self._check_finite("gradient", norm.item(), rate)
        self.state.optimizer.step()
        self.state.update_average()
        return value

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self.recipe.precision == "bf16":
                stack.enter_context(torch.autocast(self.device.type, dtype=torch.bfloat16))
            else:
                stack.enter_context(fast_depthwise())
            yield

    def _check_finite(self, name: str, value: float, rate: float) -> None:
        if not math.isfinite(value):
            raise CheckFailed(
                f"training diverged: the {name} is {value} at step {self.state.position.step} with learning rate "
                f"{rate:.3g}; try a smaller --lr (now {self.recipe.learning_rate:g}) with --fresh"
            )

    def _validate(self, log: MetricsLog) -> None:
        """Tests the running average where the recipe wants it, and logs the end of the epoch."""
        position, epochs = self.state.position, self.recipe.epochs
        due = (position.epoch + 1) % self.recipe.eval_every == 0 or position.epoch + 1 == epochs
        values: dict[str, object] = {"event": "epoch", "epoch": position.epoch, "step": position.step}
        if due and self.validation is not None:
            weights = {name: tensor.clone() for name, tensor in self.state.module.state_dict().items()}
            self.state.module.load_state_dict(self.state.average)
            self.scores = self._evaluate()
            self.state.module.load_state_dict(weights)
            values |= {"top1": self.scores.top1, "top5": self.scores.top5, "videos": self.scores.videos}
        values |= {"lost_samples": position.failures.samples, "unreadable": position.failures.causes}
        log.write(**values)
        self._tell()

    def _evaluate(self) -> Scores:
        assert self.validation is not None
        self.state.module.eval()
        return evaluate(
            self.state.module,
            self.validation,
            batch_size=self.recipe.batch_size,
            workers=self.resources.workers,
            device=self.device,
        )

    def _tell(self) -> None:
        if self.progress is not None:
            position = self.state.position
            epoch = min(position.epoch + 1, self.recipe.epochs)
            top1 = None if self.scores is None else self.scores.top1
            self.progress(TrainingProgress(position.step, self.steps, epoch, self.recipe.epochs, self.loss, top1))


def _step_seed(seed: int, step: int) -> int:
    return int.from_bytes(hashlib.sha256(json.dumps([seed, step]).encode()).digest()[:7], "big")
