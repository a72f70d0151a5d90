"""A network that computes in fp32 what it will compute in int8, and can be trained so."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx, nn

from hwbench.runtimes.executorch.quantize import SMALLEST_SCALE, converted, observers, trainable
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.executorch.scheme import Scheme


class FakeQuantized(nn.Module):
    """A deploy form with rounding, behind the outside of an ordinary network: (N, 3, T, H, W) -> logits (N, classes).

    The graph holds one clip, so a batch is one pass for each of its clips: what is trained is what will be deployed,
    operation by operation. Normalisation is folded before, so no clip of a batch sees another. On a CPU a
    batch in one pass is slower (``experiments/003-int8-accuracy``).

    In training mode ranges of activations follow what runs through; in eval mode they are fixed. Loading weights
    leaves the smallest scale as it is.
    """

    def __init__(self, deployed: nn.Module, example: torch.Tensor, scheme: Scheme) -> None:
        super().__init__()
        module = copy.deepcopy(deployed).eval()
        for parameter in module.parameters():
            parameter.requires_grad_(True)
        with quiet():
            self.graph: fx.GraphModule = trainable(module, example, scheme)
        self._initialised(example)
        self.register_load_state_dict_post_hook(_keep_smallest_scale)  # type: ignore[no-untyped-call]

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        self._forget()
        frames = clips.transpose(1, 2)  # each clip (T, 3, H, W): frames as batch
        logits = torch.cat([self.graph(clip) for clip in frames.unbind(0)])
        self._forget()
        return logits

    def train(self, mode: bool = True) -> FakeQuantized:
        """Ranges of activations follow, or are fixed; the graph itself has no modes."""
        self.training = mode
        for _, fake in self._activations():
            fake.enable_observer(mode)
            if not mode and fake.activation_post_process.min_val.isfinite().all():
                fake.scale, fake.zero_point = _parameters(fake)
        return self

    def calibrate(self, inputs: Iterable[torch.Tensor]) -> None:
        """Starts the ranges at the mean over folded inputs (T, 3, H, W) of what runs through without rounding."""
        fakes = [fake for _, fake in self._activations()]
        before = [fake.activation_post_process.averaging_constant for fake in fakes]
        for fake in fakes:
            fake.disable_fake_quant()
            fake.enable_observer()
        with torch.no_grad():
            for count, batch in enumerate(inputs, start=1):
                for fake in fakes:
                    fake.activation_post_process.averaging_constant = 1 / count
                self.graph(batch)
        self._forget()
        for fake, constant in zip(fakes, before, strict=True):
            fake.activation_post_process.averaging_constant = constant
            fake.enable_fake_quant()
        self.train(self.training)

    def converted(self) -> nn.Module:
        """The deploy form in int8, with the learned weights and ranges; this module stays as it is.

        Raises:
            NotCalibrated: A range is not known.
        """
        made = copy.deepcopy(self)
        made.eval()
        with quiet():
            return converted(made.graph)

    def _forget(self) -> None:
        """Weights are rounded once for all clips of a batch."""
        for _, fake in observers(self.graph):
            fake.forget()

    def _initialised(self, example: torch.Tensor) -> None:
        """Gives every buffer its shape; ranges stay open."""
        self.train()
        with torch.no_grad():
            self.graph(example)
        self._forget()

    def _activations(self) -> list[tuple[str, Any]]:
        return [(name, fake) for name, fake in observers(self.graph) if not fake.is_per_channel]


def _keep_smallest_scale(module: FakeQuantized, _: object) -> None:
    """torchao takes a dictionary without metadata for one of its first version, and its own smallest scale with it."""
    for _, fake in observers(module.graph):
        fake.activation_post_process.eps.fill_(SMALLEST_SCALE)


def _parameters(fake: Any) -> tuple[torch.Tensor, torch.Tensor]:
    scale, zero_point = fake.calculate_qparams()
    return scale.to(fake.scale.dtype), zero_point.to(fake.zero_point.dtype)
