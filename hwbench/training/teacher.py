"""A trained network that another one learns from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from hwbench.errors import InvalidValue
from hwbench.specs import Network
from hwbench.training.checkpoint import Checkpoint, Weights, build, load_checkpoint


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

    def module(self, network: Network, classes: tuple[str, ...]) -> nn.Module:
        """The teacher in eval mode: clips of the student -> logits (N, classes).

        Raises:
            InvalidValue: It has other classes, or sees clips of another size.
        """
        path, taught = self.checkpoint.path, self.checkpoint.network.input
        if self.checkpoint.classes != classes:
            raise InvalidValue(
                f"--teacher: the classes of {path} ({', '.join(self.checkpoint.classes[:5])}, ...) are not those of "
                f"the data ({', '.join(classes[:5])}, ...)"
            )
        if taught.shape[1:] != network.input.shape[1:]:
            raise InvalidValue(
                f"--teacher: {path} sees clips {'x'.join(map(str, taught.shape[1:]))}, {network.name} sees "
                f"{'x'.join(map(str, network.input.shape[1:]))}; both see the same clip"
            )
        return build(self.checkpoint, self.weights).requires_grad_(False)

    def facts(self) -> dict[str, str]:
        """What tells a run from another, name -> text."""
        return {"teacher": f"sha256 {self.checkpoint.sha256}"}
