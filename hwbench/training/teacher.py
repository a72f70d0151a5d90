"""A trained network that another one learns from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hwbench.data import Normalisation
from hwbench.errors import InvalidValue
from hwbench.printable import beginning
from hwbench.specs import Network
from hwbench.training.checkpoint import Checkpoint, Weights, build, load_checkpoint


class Renormalised(nn.Module):
    """Clips (N, C, T, H, W) that were normalised in one way -> as if they had been in another."""

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, given: Normalisation, wanted: Normalisation) -> None:
        super().__init__()
        channels = list(zip(given.mean, given.std, wanted.mean, wanted.std, strict=True))
        for name, values in (
            ("scale", [std / other_std for _, std, _, other_std in channels]),
            ("shift", [(mean - other) / other_std for mean, _, other, other_std in channels]),
        ):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1, 1))

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Shape (N, C, T, H, W)."""
        return torch.addcmul(self.shift, clips, self.scale)


@dataclass(frozen=True)
class Teacher:
    """A checkpoint and the weights in it."""

    checkpoint: Checkpoint
    weights: Weights

    @classmethod
    def of(cls, path: Path) -> Teacher:
        """The teacher that a file is.

        Raises:
            InvalidFile: No checkpoint there, or a damaged one.
        """
        return cls(*load_checkpoint(path))

    def module(self, network: Network, classes: tuple[str, ...], normalisation: Normalisation) -> nn.Module:
        """The teacher in eval mode: clips of the student -> logits (N, classes).

        Args:
            network: The student.
            classes: Of the data.
            normalisation: Of the student's clips; where that of the teacher is another, clips are converted.

        Raises:
            InvalidValue: It has other classes, or sees clips of another size.
        """
        path, taught = self.checkpoint.path, self.checkpoint.network.input
        if self.checkpoint.classes != classes:
            raise InvalidValue(
                f"--teacher: the classes of {path} ({beginning(self.checkpoint.classes)}) are not those of "
                f"the data ({beginning(classes)})"
            )
        if taught.shape[1:] != network.input.shape[1:]:
            raise InvalidValue(
                f"--teacher: {path} sees clips {'x'.join(map(str, taught.shape[1:]))}, {network.name} sees "
                f"{'x'.join(map(str, network.input.shape[1:]))}; both see the same clip"
            )
        module = build(self.checkpoint, self.weights).requires_grad_(False)
        if self.checkpoint.normalisation == normalisation:
            return module
        return nn.Sequential(Renormalised(normalisation, self.checkpoint.normalisation), module).eval()

    def facts(self) -> dict[str, str]:
        """What tells a run from another, name -> text."""
        return {"teacher": f"sha256 {self.checkpoint.sha256}"}
