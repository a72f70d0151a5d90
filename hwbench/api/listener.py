"""What a running request tells: lines of talk, progress, and the values it makes. The API itself prints nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwbench.api.devices.steps import CheckStep
    from hwbench.specs import Measurement
    from hwbench.studies.candidates import Candidate
    from hwbench.training.loop import TrainingProgress


@dataclass(frozen=True)
class StageProgress:
    """Where one stage of a request is.

    Args:
        stage: Its name: ``build``, ``measure``, ``trials``, ``train``, ...
        done: Steps that are finished.
        total: Steps in all; None: not known.
        rate: Steps a second or a minute as text; empty: not known yet.
        note: What is of interest at the moment, as text.
    """

    stage: str
    done: int
    total: int | None
    rate: str = ""
    note: str = ""


class Listener:
    """Hears everything and does nothing; override what is of interest. The thread that asked calls the methods."""

    def say(self, message: str) -> None:
        """One line for a person: a warning, what comes next, what was left out."""

    def progress(self, at: StageProgress) -> None:
        """A stage began (``done`` 0), went on, or ended (``done`` equals ``total``)."""

    def measured(self, measurement: Measurement) -> None:
        """A row was measured on the device, or failed there."""

    def evaluated(self, candidate: Candidate) -> None:
        """A trial of a search has its score."""

    def trained(self, progress: TrainingProgress) -> None:
        """One step of a training was made."""

    def checked(self, step: CheckStep) -> None:
        """One thing was looked at on a device."""

    def confirm(self, question: str) -> bool | None:
        """Whether a person says yes to a question; None: there is nobody to ask, as here."""
        return None


SILENT = Listener()
