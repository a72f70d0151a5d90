"""What torchrun tells a process of several that it started; loads nothing of weight."""

from __future__ import annotations

import os

from hwbench.errors import HwbenchError


class SaidElsewhere(HwbenchError):
    """This process ends because another one of its run did, which has said why."""


def under_torchrun() -> bool:
    """Whether this process is one of several that torchrun started."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def leads() -> bool:
    """Whether this process speaks for its run; true outside of torchrun."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def local_rank() -> int:
    """The number of this process among those of the run on this machine."""
    return int(os.environ["LOCAL_RANK"]) if under_torchrun() else 0


def neighbours() -> int:
    """Processes of the run on this machine, this one included."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if under_torchrun() else 1
