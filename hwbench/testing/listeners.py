"""A listener that keeps what it hears."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.listener import Listener, StageProgress

if TYPE_CHECKING:
    from hwbench.specs import Measurement
    from hwbench.studies.candidates import Candidate
    from hwbench.training.loop import TrainingProgress


class Keeper(Listener):
    """Keeps lines, stages, rows, candidates and steps of training, each in the order in which they were told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.stages: list[StageProgress] = []
        self.rows: list[Measurement] = []
        self.candidates: list[Candidate] = []
        self.steps: list[TrainingProgress] = []

    def say(self, message: str) -> None:
        """Keeps a line."""
        self.lines.append(message)

    def progress(self, at: StageProgress) -> None:
        """Keeps where a stage is."""
        self.stages.append(at)

    def measured(self, measurement: Measurement) -> None:
        """Keeps a row."""
        self.rows.append(measurement)

    def evaluated(self, candidate: Candidate) -> None:
        """Keeps a candidate of a search."""
        self.candidates.append(candidate)

    def trained(self, progress: TrainingProgress) -> None:
        """Keeps a step of training."""
        self.steps.append(progress)

    def ends(self) -> dict[str, StageProgress]:
        """The last that was heard of each stage."""
        return {at.stage: at for at in self.stages}
