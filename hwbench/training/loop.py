"""The training loop: it knows a module, two data sets and a recipe, and nothing of networks or spaces."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hwbench.blocks.authors import is_ours
from hwbench.data import Failures, TestClips, TrainingClips
from hwbench.data.loading import Loader
from hwbench.errors import VideoError
from hwbench.training.batch_norm import precise_statistics, synchronise
from hwbench.training.log import MetricsLog
from hwbench.training.memory_formats import ContiguousClips, place
from hwbench.training.metrics import Scores, evaluate
from hwbench.training.parts import frozen_blocks, recomputed, sorted_blocks, train_mode
from hwbench.training.processes import ALONE, World
from hwbench.training.recipe import Recipe
from hwbench.training.resources import Resources
from hwbench.training.sampling import Sampling, channels_of, require_shapes
from hwbench.training.state import POLICY, Resume, TrainState
from hwbench.training.steps import StepReport, TrainingStep
from hwbench.training.tensorboard import TensorBoard, require_tensorboard

# At most: a layer that normalises over the batch needs two.
_CLIPS_TRIED = 2


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
    teacher: nn.Module | None = None,
    world: World = ALONE,
    tensorboard: bool = False,
    fresh: bool = False,
    begins: Callable[[], None] | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    validated: Callable[[int, Scores], None] | None = None,
    losses: Callable[[int, float], None] | None = None,
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
        teacher: A network in eval mode to learn from, too: clips -> logits (N, classes).
        world: The processes that train together; each takes its share of every batch, and the first writes the files.
        tensorboard: Also write the log for TensorBoard, in ``run_dir``.
        fresh: No stored state is read; ``begins`` removes it.
        begins: Called once, when the arguments have been found right, and before files in ``run_dir`` are changed.
        progress: Called after every step.
        validated: Called after every validation with the epoch, from 1, and its scores.
        losses: Called once with the epoch, from 0, and the loss of every step, in order; on a GPU a step later. What it
            raises ends the run.

    Raises:
        VideoError: A video cannot be read under the policy ``raise``, or none can.
        CheckFailed: The loss or a gradient is not a finite number.
        InvalidValue: ``run_dir`` holds another run, or the network does not take the clips of a multigrid run.
        InvalidFile: The state in ``run_dir`` is damaged.
        MissingDependency: ``tensorboard`` without TensorBoard, or an optimizer of timm without timm.
        WorkspaceError: ``run_dir`` cannot be written.
    """
    resources, recipe = resources or Resources(), recipe.for_targets(several=training.videos.multi_label)
    with resources.applied() as device, torch.random.fork_rng(), contextlib.ExitStack() as stack:
        tried = min(_CLIPS_TRIED, max(1, recipe.batch_size // recipe.accumulate))
        drawn = torch.randn(tried, channels_of(training), *training.shape, generator=torch.Generator().manual_seed(0))
        if recipe.freeze or recipe.layer_decay != 1:
            stack.enter_context(sorted_blocks(module, drawn[:1]))
        layout = place(module, device, drawn)
        sampling, teacher = Sampling(recipe, training), None if teacher is None else _taught_by(teacher.to(device))
        for network in (module, teacher) if recipe.multigrid else ():
            if network is not None:
                require_shapes(network, channels_of(training), sampling.shapes())
        if device.type == "cuda":
            stack.enter_context(_quietly("Attempting to run cuBLAS, but there was no current CUDA context"))
        if resources.cuda_graphs:
            stack.enter_context(_quietly("The AccumulateGrad node's stream does not match"))
        if recipe.sync_bn and world.size > 1:
            synchronise(module)
        state = TrainState(module, recipe)
        folder = run_dir if world.leads else None
        resume = Resume(folder, fingerprint(training, recipe, identity or {}))
        if not fresh:
            resume.load(state, world)
        if recipe.gradient_checkpointing:
            stack.enter_context(recomputed(module))
        if recipe.compile:
            module.compile()
        step = TrainingStep(state, training, device, layout, teacher, world, resources.cuda_graphs)
        run = _Run(step, sampling, resume, validation, resources, progress)
        run.validated, run.losses = validated, losses
        if tensorboard:
            require_tensorboard()
        if begins is not None:
            begins()
        log = stack.enter_context(contextlib.closing(MetricsLog(folder, state.position.log_bytes)))
        if tensorboard and folder is not None:
            log.mirror(stack.enter_context(contextlib.closing(TensorBoard(folder, state.position.step))))
        return run.to_end(log)


def _taught_by(teacher: nn.Module) -> nn.Module:
    """A teacher that takes clips in the order of memory that the student wants."""
    return teacher if is_ours(teacher) else ContiguousClips(teacher)


@contextlib.contextmanager
def _quietly(warning: str) -> Iterator[None]:
    """Inside, torch does not warn of what it does right: a warning by its first words.

    The thread of the backward pass meets the GPU after that of the forward pass. What a graph was recorded on is
    another stream than that of a step.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=warning)
        yield


def fingerprint(training: TrainingClips, recipe: Recipe, identity: Mapping[str, str]) -> dict[str, str]:
    """What must be equal for a stored run to go on, name -> text."""
    facts = {
        **recipe.facts(),
        "data": training.videos.identity,
        "clip": str(training.clip),
        "transform": repr(training.transform),
        POLICY: str(training.policy),
    }
    return {**facts, **identity}


class _Run:
    def __init__(
        self,
        step: TrainingStep,
        sampling: Sampling,
        resume: Resume,
        validation: TestClips | None,
        resources: Resources,
        progress: Callable[[TrainingProgress], None] | None,
    ) -> None:
        self.step, self.resume, self.validation, self.resources = step, resume, validation, resources
        self.state, self.training, self.recipe = step.state, step.training, step.recipe
        self.device, self.world, self.progress = step.device, step.world, progress
        self.validated: Callable[[int, Scores], None] | None = None
        self.losses: Callable[[int, float], None] | None = None
        self.loader = Loader(self.training, workers=resources.workers, device=self.device)
        self.sampling = sampling
        self.steps = sampling.steps
        self.scores: Scores | None = None
        self.loss = math.nan
        self.reports: deque[StepReport] = deque()

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
        self.world.copy_leader([*self.state.average.values()])
        self.state.module.load_state_dict(self.state.average)
        self.state.module.eval()
        if self.scores is None and self.validation is not None:
            self.scores = self._evaluate()
        return Fit(self.scores, position.step, position.seconds, position.failures)

    def _epoch(self, log: MetricsLog, start: float) -> None:
        """The rest of the epoch the position is in."""
        position = self.state.position
        self.training.set_epoch(position.epoch)
        train_mode(self.state.module, self.recipe)
        empty = 0
        order = [self.world.part(batch) for batch in self.sampling.batches(position.epoch)[position.batch :]]
        for batch in self.loader.batches(order):
            shared = self.step.share(batch)
            position.failures.add(shared.failures)
            empty += not shared.clips
            if shared.clips:
                rate = self.sampling.rate(position.epoch, position.step)
                self.reports.append(self.step(batch, shared, rate))
                self._write(log, all_of_them=not self.step.waits)
            position.step, position.batch = position.step + 1, position.batch + 1
            position.seconds = time.monotonic() - start
            if self.resume.is_cheap():
                self._write(log)
                position.log_bytes = log.length
                self.resume.save(self.state, durable=False)
            self._tell()
        self._write(log)
        position.log_bytes = log.length
        if empty == self.sampling.length(position.epoch):
            raise VideoError(f"no video of {self.training.videos.root} could be read:\n{position.failures}")

    def _write(self, log: MetricsLog, *, all_of_them: bool = True) -> None:
        """Logs the steps whose numbers are there: on a GPU all but the last, so that nothing waits for it."""
        while len(self.reports) > (0 if all_of_them else 1):
            report = self.reports.popleft()
            self.loss = self.step.check(report)
            log.write(event="step", step=report.step, epoch=report.epoch, loss=self.loss, learning_rate=report.rate)
            if self.losses is not None:
                self.losses(report.epoch, self.loss)

    def _validate(self, log: MetricsLog) -> None:
        """Tests the running average where the recipe wants it, and logs the end of the epoch."""
        position, epochs = self.state.position, self.recipe.epochs
        due = (position.epoch + 1) % self.recipe.eval_every == 0 or position.epoch + 1 == epochs
        values: dict[str, object] = {"event": "epoch", "epoch": position.epoch, "step": position.step}
        if due:
            self._test_average()
        if due and self.scores is not None and self.validated is not None and self.world.leads:
            self.validated(position.epoch + 1, self.scores)
        if due and self.scores is not None:
            values |= {"top1": self.scores.top1, "top5": self.scores.top5, "videos": self.scores.videos}
            values |= {} if self.scores.by_video is None else self.scores.by_video.measures()
        values |= {"lost_samples": position.failures.samples, "unreadable": position.failures.causes}
        log.write(**values)
        self._tell()

    def _test_average(self) -> None:
        """Scores the running average, which all processes take over from the first; the weights are put back."""
        module = self.state.module
        self.world.copy_leader([*self.state.average.values()])
        weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        module.load_state_dict(self.state.average)
        if self.recipe.precise_bn:
            self.state.average.update(self._precise())
            module.load_state_dict(self.state.average)
        if self.validation is not None:
            self.scores = self._evaluate()
        module.load_state_dict(weights)

    def _precise(self) -> Mapping[str, torch.Tensor]:
        """Statistics of batch normalisation over some batches of this epoch."""
        module = self.state.module.eval()
        frozen = frozen_blocks(module, self.recipe)
        return precise_statistics(module, self._precise_batches(), frozen, self.world)

    def _precise_batches(self) -> Iterator[torch.Tensor]:
        batches = self.sampling.full_batches(self.state.position.epoch)[: self.recipe.precise_bn]
        for batch in self.loader.batches([self.world.part(batch) for batch in batches]):
            if len(batch):
                yield batch.clips.to(self.device, memory_format=self.step.layout)

    def _evaluate(self) -> Scores:
        assert self.validation is not None
        self.state.module.eval()
        return evaluate(
            self.state.module,
            self.validation,
            batch_size=self.recipe.test_batch(self.validation.transform.crops, self.world.size),
            workers=self.resources.workers,
            device=self.device,
            world=self.world,
        )

    def _tell(self) -> None:
        if self.progress is not None and self.world.leads:
            position = self.state.position
            epoch = min(position.epoch + 1, self.recipe.epochs)
            top1 = None if self.scores is None else self.scores.top1
            self.progress(TrainingProgress(position.step, self.steps, epoch, self.recipe.epochs, self.loss, top1))
