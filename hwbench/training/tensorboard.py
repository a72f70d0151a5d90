"""The log of a run for TensorBoard: the same numbers as ``metrics.jsonl``, by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwbench.errors import MissingDependency

FOLDER = "tensorboard"
_POSITION = ("step", "epoch")


def require_tensorboard() -> None:
    """Raises MissingDependency where TensorBoard is not installed."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise MissingDependency(
            "--tensorboard: tensorboard is not installed; install it with: pip install 'hwbench[tensorboard]'"
        ) from None


class TensorBoard:
    """Event files below the folder of a run; those of steps that are done again are hidden.

    Raises:
        MissingDependency: TensorBoard is not installed.
    """

    def __init__(self, folder: Path, step: int) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / FOLDER), purge_step=step)

    def write(self, values: Mapping[str, Any]) -> None:
        """Takes one line of the log.

        The line of an epoch has the number of the next step, which is done again, and hidden, where a run goes on
        there; what the epoch gave stands at its last step.
        """
        is_step = values["event"] == "step"
        part, step = ("train", values["step"]) if is_step else ("validation", values["step"] - 1)
        for name, value in values.items():
            if isinstance(value, int | float) and name not in _POSITION:
                self._writer.add_scalar(f"{part}/{name}", value, step)

    def close(self) -> None:
        """Writes what is left and closes the file."""
        self._writer.close()
