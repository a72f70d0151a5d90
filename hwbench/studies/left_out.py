"""What a model of trainings is worth on networks that it was not learned from. Loads neither torch nor Optuna."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwbench.studies.ranking import Interval

_NUMBERS = ("tau", "tau_low", "tau_high", "deviation")


@dataclass(frozen=True)
class LeftOut:
    """Predictions of networks beside their trainings, each network left out of the model in turn.

    Attributes:
        networks: How many were left out.
        tau: Kendall's tau-b of the predictions with the scores of trainings, with a 95 % interval; nan where these do
            not differ, and the bounds where too few of them do.
        deviation: Standard deviation of a prediction, in the mean, in the unit of the scores.
    """

    networks: int
    tau: Interval
    deviation: float

    @property
    def informative(self) -> bool:
        """Whether the model ranks networks better than chance, as far as ``tau`` tells.

        Predictions that share their trainings vary together, so ``tau`` varies by more than its interval says: of the
        models of 8 to 24 random scores one in ten is called informative.
        """
        return self.tau.low > 0

    @property
    def doubt(self) -> str:
        """Why the model is not informative, for people; empty where it is."""
        if self.informative:
            return ""
        return "the interval holds zero" if math.isfinite(self.tau.low) else "too few scores differ for an interval"

    def __str__(self) -> str:
        tau = self.tau
        bounds = f" ({tau.low:.2f} to {tau.high:.2f})" if math.isfinite(tau.low) else ""
        return f"tau {tau.value:.2f}{bounds}"

    def to_json(self) -> dict[str, Any]:
        """``learned`` of a search; null where a number is not known."""
        numbers = zip(_NUMBERS, (self.tau.value, self.tau.low, self.tau.high, self.deviation), strict=True)
        return {"networks": self.networks} | {key: one if math.isfinite(one) else None for key, one in numbers}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LeftOut:
        """What ``to_json`` wrote; raises KeyError, TypeError or ValueError where it is none."""
        tau, low, high, deviation = (math.nan if values[key] is None else float(values[key]) for key in _NUMBERS)
        return cls(int(values["networks"]), Interval(tau, low, high), deviation)
