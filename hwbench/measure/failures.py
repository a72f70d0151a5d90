"""What did not become a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.specs import Outcome, Workload


@dataclass(frozen=True)
class MeasurementFailure:
    """A file that the runner could not time."""

    workload: Workload
    outcome: Outcome
    reason: str
