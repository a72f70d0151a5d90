"""Quantisation-aware training: a trained network goes on with the rounding of int8 in it.

What is trained is the deploy form, operation by operation as it will be in the file, with normalisation folded into the
convolutions (which is fine for fine-tuning of a few epochs; statistics of batches play no part any more). The
checkpoint holds its weights and ranges, and beside them those of the network that it started from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import nn

from hwbench.data import TrainingClips
from hwbench.data.loading import Loader, shuffled
from hwbench.errors import InvalidValue, NotCalibrated
from hwbench.printable import beginning
from hwbench.specs import AUTO, Network

if TYPE_CHECKING:
    from hwbench.runtimes.executorch.fake import FakeQuantized

Weights = Mapping[str, torch.Tensor]

# Clips that ranges start from; they follow the training from there on.
RANGE_CLIPS = 32
# Names of the weights of the network before fine-tuning, among those of the checkpoint.
_START = "start."


@dataclass(frozen=True)
class Quantization:
    """In which form a network was trained with rounding.

    Attributes:
        start: Digest of the checkpoint that was fine-tuned.
        variant: Layout of convolutions over time.
        fp32_blocks: Blocks without rounding.
    """

    start: str
    variant: str = AUTO
    fp32_blocks: tuple[str, ...] = field(default=())

    def facts(self) -> dict[str, str]:
        """What tells a run from another, name -> text."""
        return {"start": self.start, "quantization": f"int8 {self.variant} fp32:{','.join(self.fp32_blocks)}"}

    def module(self, network: Network, start: nn.Module) -> FakeQuantized:
        """The network with rounding, with the weights of ``start``, in training mode; its ranges are not known yet.

        Raises:
            MissingDependency: executorch or torchao is not installed.
            UnknownName: No such variant or block.
        """
        from hwbench import models
        from hwbench.runtimes.executorch.quiet import quiet
        from hwbench.runtimes.executorch.runtime import ExecuTorch
        from hwbench.runtimes.executorch.scheme import Scheme

        ExecuTorch().version()
        with quiet():
            from hwbench.runtimes.executorch.fake import FakeQuantized
        deployed = models.deployed(start, network.input, self.variant)
        example = torch.zeros(network.input.folded)
        return FakeQuantized(deployed, example, Scheme(fp32_blocks=self.fp32_blocks))


def calibrated(module: FakeQuantized, training: TrainingClips, seed: int) -> FakeQuantized:
    """The module, its ranges taken from training clips that follow from the seed.

    Raises:
        NotCalibrated: No video can be read.
    """
    inputs = [*_inputs(training, seed)]
    if not inputs:
        raise NotCalibrated(f"int8: no video of {training.videos.root} could be read to take ranges from")
    module.calibrate(inputs)
    return module


def packed(module: nn.Module, start: nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint: those of the module with rounding, and those that it started from."""
    return {**module.state_dict(), **{f"{_START}{name}": tensor for name, tensor in start.state_dict().items()}}


def unpacked(weights: Weights) -> tuple[Weights, Weights]:
    """What was packed: (weights with rounding, weights of the start)."""
    start = {name.removeprefix(_START): tensor for name, tensor in weights.items() if name.startswith(_START)}
    return {name: tensor for name, tensor in weights.items() if not name.startswith(_START)}, start


def _inputs(training: TrainingClips, seed: int) -> Iterator[torch.Tensor]:
    from hwbench.models import frames_to_batch

    training.set_epoch(0)
    order = [[index] for index in shuffled(len(training), RANGE_CLIPS, seed=seed, epoch=0)[0]]
    for batch in Loader(training).batches(order):
        for clip in torch.split(batch.clips, 1) if len(batch) else ():
            yield frames_to_batch(clip).contiguous()


def require_same(network: Network, classes: tuple[str, ...], found: tuple[str, ...], source: str) -> None:
    """Raises InvalidValue where the data has other classes than the network that is fine-tuned."""
    if classes != found:
        raise InvalidValue(
            f"{source}: its classes ({beginning(found)}) are not those of {network.name} "
            f"({beginning(classes)}); fine-tune on the data it was trained on: --data DATA"
        )
