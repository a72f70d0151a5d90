"""One step of the optimizer: from a batch to new weights, and its loss and gradient as numbers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from hwbench.data import Batch, DecodingFailure, TrainingClips
from hwbench.errors import CheckFailed, InvalidValue
from hwbench.training.batch_norm import is_synchronised, uncounted
from hwbench.training.convolutions import fast_convolutions, padded_convolutions
from hwbench.training.losses import check_targets, classification_loss, distillation_loss
from hwbench.training.mixing import Mixing
from hwbench.training.optimizers import set_rate
from hwbench.training.parts import train_mode
from hwbench.training.processes import ALONE, World
from hwbench.training.replayed import GraphedNetwork, check_replayable
from hwbench.training.sampling import channels_of
from hwbench.training.state import TrainState

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


class StepReport:
    """What a step gave: its number, its epoch, its rate, and two numbers that may still be under way from a GPU."""

    def __init__(self, step: int, epoch: int, rate: float, loss: torch.Tensor, norm: torch.Tensor) -> None:
        self.step, self.epoch, self.rate = step, epoch, rate
        self._values = torch.stack((loss.detach().float(), norm.detach().float()))
        self._ready: torch.cuda.Event | None = None
        if self._values.is_cuda:
            # a copy into memory that can be paged out would wait for the GPU
            self._values = torch.empty(2, pin_memory=True).copy_(self._values, non_blocking=True)
            self._ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._ready.record()

    def numbers(self) -> tuple[float, float]:
        """Loss and norm of the gradient; waits for them."""
        if self._ready is not None:
            self._ready.synchronize()
        loss, norm = self._values.tolist()
        return loss, norm


@dataclass(frozen=True)
class Shared:
    """What all processes know of a step: clips of all of them together, and what none of them could read.

    ``fewest`` are the clips of the process that has fewest, at least the one that stands for none.
    """

    clips: int
    failures: tuple[DecodingFailure, ...]
    fewest: int


class TrainingStep:
    """Steps of one run.

    Args:
        state: What is trained.
        training: The clips that are trained on.
        device: Where the module is.
        layout: Memory format of clips there.
        teacher: A network in eval mode whose logits are learnt from, too; clips -> logits (N, classes).
        world: Whose gradients are averaged.
        replayed: Whether passes are replayed as CUDA graphs.

    Raises:
        InvalidValue: They cannot be, or the precision does not run on the device.
    """

    def __init__(
        self,
        state: TrainState,
        training: TrainingClips,
        device: torch.device,
        layout: torch.memory_format,
        teacher: nn.Module | None = None,
        world: World = ALONE,
        replayed: bool = False,
    ) -> None:
        self.state, self.recipe, self.device, self.layout = state, state.recipe, device, layout
        self.training, self.teacher, self.world = training, teacher, world
        self.mixing = Mixing(self.recipe, len(training.classes))
        # Reading a number of a GPU waits for all that it was told to do; a CPU has done it already.
        self.waits = device.type == "cuda"
        self._forward: nn.Module = state.module
        self._synchronised = world.size > 1 and is_synchronised(state.module)
        world.copy_leader([*state.module.parameters(), *state.module.buffers()])
        if replayed:
            check_replayable(self.recipe, device, world.size)
            train_mode(state.module, self.recipe)
            count = min(self.recipe.batch_size, len(training))
            self._forward = GraphedNetwork(state.module, self._grey(count).to(device, memory_format=layout))
        if self.recipe.precision == "fp16":
            require_half(device)

    def share(self, batch: Batch) -> Shared:
        """Tells the other processes how many clips were read here, and what was not."""
        lengths = [len(batch) if rank == self.world.rank else 0 for rank in range(self.world.size)]
        *lengths, lost = self.world.sum(torch.tensor([*lengths, len(batch.failures)])).tolist()
        failures = batch.failures
        if self.world.size > 1 and lost:
            failures = tuple(failure for part in self.world.gather(failures) for failure in part)
        return Shared(sum(lengths), failures, max(1, min(lengths)))

    def __call__(self, batch: Batch, shared: Shared, rate: float) -> StepReport:
        """Forward, backward, optimizer and average for a batch of which the other processes have the rest.

        Raises:
            CheckFailed: The loss or a gradient is not a finite number (on a GPU ``check`` says so later).
        """
        position = self.state.position
        self.world.copy_leader([*self.state.module.buffers()])
        torch.manual_seed(_step_seed(self.recipe.seed, position.step, self.world.rank))
        set_rate(self.state.optimizer, rate)
        self.state.optimizer.zero_grad(set_to_none=True)
        loss = self._gradients(batch, shared, rate)
        self.state.scaler.unscale_(self.state.optimizer)
        norm = nn.utils.clip_grad_norm_(self.state.module.parameters(), self.recipe.clip_grad_norm)
        if not self.waits:
            self._check("gradient", norm.item(), position.step, rate)
        self.state.scaler.step(self.state.optimizer)
        self.state.scaler.update()
        self.state.update_average()
        return StepReport(position.step, position.epoch, rate, loss, norm)

    def check(self, report: StepReport) -> float:
        """The loss of a step, once it is known.

        Raises:
            CheckFailed: The loss or the gradient is not a finite number.
        """
        loss, norm = report.numbers()
        self._check("loss", loss, report.step, report.rate)
        self._check("gradient", norm, report.step, report.rate)
        return loss

    def _gradients(self, batch: Batch, shared: Shared, rate: float) -> torch.Tensor:
        """Leaves the gradients of the mean loss over all clips of the batch; the mean loss."""
        total = torch.zeros((), device=self.device)
        if not len(batch):
            self._take_part()
        for x, targets in self._parts(batch, shared):
            # gradients are added up over processes, so a share counts by its length
            share = len(x) / shared.clips
            loss = self._loss(x, targets)
            total += loss.detach() * share
            if not self.waits and self.world.size == 1:
                self._check("loss", loss.item(), self.state.position.step, rate)
            self.state.scaler.scale(loss if share == 1 else loss * share).backward()  # type: ignore[no-untyped-call]
        self._add_up()
        total = self.world.sum(total)
        if not self.waits and self.world.size > 1:
            self._check("loss", total.item(), self.state.position.step, rate)
        return total

    def _take_part(self) -> None:
        """What stands for a batch where nothing was read; neither gradients nor statistics have anything of it."""
        self.state.scaler.scale(torch.zeros((), device=self.device))  # learns its first scale from what it is given
        if self._synchronised:
            # layers of the other processes wait for those of this one, in both passes
            with uncounted(self.state.module), self._arithmetic():
                self._forward(self._grey(1).to(self.device, memory_format=self.layout)).float().sum().backward()
            self.state.optimizer.zero_grad(set_to_none=True)

    def _add_up(self) -> None:
        """Adds up the gradients of all processes; weights that none of them used have none, as in one process.

        Not during the backward pass, as DistributedDataParallel does it: which weights are used may differ from process
        to process and from step to step, and the exchanges of ``sync_bn`` would meet those of gradients.
        """
        if self.world.size == 1:
            return
        weights = [weight for weight in self.state.module.parameters() if weight.requires_grad]
        users = self.world.sum(torch.tensor([int(weight.grad is not None) for weight in weights])).tolist()
        used = [weight for weight, count in zip(weights, users, strict=True) if count]
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in used]
        self.world.sum_each(gradients)
        for weight, gradient in zip(used, gradients, strict=True):
            weight.grad = gradient

    def _loss(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with self._arithmetic():
            # A network may change its clips in place, and the teacher sees the same.
            logits = self._forward(x if self.teacher is None else x.clone())
        loss = classification_loss(logits.float(), targets, self.recipe)
        if self.teacher is None:
            return loss
        with torch.no_grad():
            taught = self.teacher(x).float()
        return loss.lerp(distillation_loss(logits.float(), taught, self.recipe), self.recipe.distill_weight)

    def _parts(self, batch: Batch, shared: Shared) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
        """Clips and targets of the batch on the device, mixed, in as many parts as the recipe accumulates."""
        check_targets(batch.labels, self.recipe)
        if not len(batch):
            return []
        clips = batch.clips.to(self.device, memory_format=self.layout, non_blocking=True)
        targets = batch.labels.to(self.device, non_blocking=True)
        if self.mixing:
            clips, targets = self.mixing(clips, targets)
        # statistics of all processes are taken together, so each of them has as many parts
        count = min(self.recipe.accumulate, shared.fewest if self._synchronised else len(clips))
        return list(zip(clips.tensor_split(count), targets.tensor_split(count), strict=True))

    def _grey(self, count: int) -> torch.Tensor:
        """Clips of the size that is trained on."""
        return torch.zeros(count, channels_of(self.training), self.training.clip.frames, *self.training.transform.size)

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        on_cpu = self.device.type == "cpu"
        with contextlib.ExitStack() as stack:
            if self.recipe.precision in _AUTOCAST:
                stack.enter_context(torch.autocast(self.device.type, dtype=_AUTOCAST[self.recipe.precision]))
                # torch.compile refuses such a mode around blocks that are computed again
                if on_cpu and not (self.recipe.compile and self.recipe.gradient_checkpointing):
                    stack.enter_context(padded_convolutions())
            elif not self.recipe.compile and on_cpu:
                stack.enter_context(fast_convolutions())
            yield

    def _check(self, name: str, value: float, step: int, rate: float) -> None:
        # steps whose scaled gradient overflows are left out by the scaler, which then scales less
        if math.isfinite(value) or (name == "gradient" and self.state.scaler.is_enabled()):
            return
        raise CheckFailed(
            f"training diverged: the {name} is {value} at step {step} with learning rate "
            f"{rate:.3g}; try a smaller --lr (now {self.recipe.learning_rate:g}) with --fresh"
        )


def require_half(device: torch.device) -> None:
    """Trains one convolution in fp16.

    Raises:
        InvalidValue: The device or this build of torch cannot.
    """
    try:
        layer = nn.Conv3d(2, 2, 1, device=device)
        with torch.autocast(device.type, dtype=torch.float16):
            y = layer(torch.zeros(1, 2, 2, 2, 2, device=device))
        y.float().sum().backward()
    except RuntimeError as error:
        line = (str(error).strip().splitlines() or [""])[0][:120]
        raise InvalidValue(f"precision: fp16 does not run on {device.type} here ({line}); use bf16 or fp32") from None


def _step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of a step's dropout and mixing; that of the leading process is the one of a run in one process."""
    place = [seed, step, rank] if rank else [seed, step]
    return int.from_bytes(hashlib.sha256(json.dumps(place).encode()).digest()[:7], "big")
