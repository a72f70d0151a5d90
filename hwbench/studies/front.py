"""A front over budgets in one study: the networks within each budget, and who proposes the next one for which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from hwbench.errors import InfeasibleBudget
from hwbench.spaces.joint import JointSet
from hwbench.spaces.protocols import NetworkSet
from hwbench.studies.candidates import Candidate
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.journal import finished_trials
from hwbench.studies.sampler import Base, FeasibleSampler
from hwbench.studies.space_shares import SpaceShare

if TYPE_CHECKING:
    from hwbench.studies.race import RaceResult


@dataclass(frozen=True)
class FrontPoint:
    """The answer for one budget of a study.

    Attributes:
        budget_ms: The budget.
        feasible: Number of networks within it.
        best: The best network that was measured within it; None where none was.
        race: How the finalists fared against each other, where they raced.
        spaces: What each space has within the budget, where there are several.
    """

    budget_ms: float
    feasible: float
    best: Candidate | None
    race: RaceResult | None = None
    spaces: tuple[SpaceShare, ...] = ()

    def to_json(self, device: str) -> dict[str, object]:
        """One of ``front`` of ``hwbench search --json``."""
        values: dict[str, object] = {
            "budget_ms": self.budget_ms,
            "feasible": int(self.feasible) if self.feasible < 2**53 else self.feasible,
            "best": None if self.best is None else self.best.to_json(device, with_space=bool(self.spaces)),
        }
        if self.spaces:
            values["spaces"] = [one.to_json() for one in self.spaces]
        return values if self.race is None else values | {"race": self.race.to_json()}


class FrontSampler(BaseSampler):
    """Budgets take turns: each trial is proposed by the sampler of one budget, and all of them learn from all trials.

    A draw for a budget is from its band: slower than the next smaller budget, whatever other limits there are. What is
    proposed for a budget is within it, and so within all larger ones. A budget all of whose networks have been seen is
    passed over.

    Args:
        sets: The networks within each budget, ascending.
        base: What proposes networks (``hwbench.studies.sampler``).
        seed: Of the study.
        startup: Trials of all budgets together before the sampler takes over: draws, but for those that were queued.
        known: What is learned from as well.
    """

    def __init__(
        self,
        sets: Sequence[NetworkSet],
        base: Base,
        *,
        seed: int,
        startup: int,
        known: Sequence[ScoreObservation] = (),
    ) -> None:
        self._sets = sets
        limits = [one.budget_s for one in sets]
        bands = [_band(one, smaller / one.budget_s) for one, smaller in zip(sets, [0.0, *limits[:-1]], strict=True)]
        self._samplers = [
            FeasibleSampler(
                one,
                base,
                seed=seed,
                startup=startup,
                band=band,
                known=known,
                turns=len(sets),
                faster=_faster(one, smaller),
            )
            for one, band, smaller in zip(sets, bands, [None, *sets[:-1]], strict=True)
        ]
        self._current = self._samplers[-1]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        taken = [*finished_trials(study), *(other for other in running if other.number != trial.number)]
        turn = len(taken) % len(self._sets)
        order = [*range(turn, len(self._sets)), *range(turn)]
        number = next((number for number in order if self._has_more(number, taken)), order[0])
        self._current = self._samplers[number]
        self._current.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._current.after_trial(study, trial, state, values)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._current.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._current.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._current.sample_independent(study, trial, param_name, param_distribution)

    def _has_more(self, number: int, taken: Sequence[FrozenTrial]) -> bool:
        """Whether a budget has networks that no trial has tried."""
        feasible, choices = self._sets[number], self._sets[number].space.choices
        if feasible.count > len(taken):
            return True
        tried = {feasible.space.of_params(trial.params) for trial in taken if trial.params.keys() == choices.keys()}
        return sum(architecture in feasible for architecture in tried) < feasible.count


def _band(feasible: NetworkSet, low: float) -> tuple[float, float]:
    """The share of the budget above a smaller one; the whole budget where nothing is in between."""
    try:
        feasible.draw(np.random.default_rng(0), (low, 1.0))
    except InfeasibleBudget:
        return 0.0, 1.0
    return low, 1.0


def _faster(feasible: NetworkSet, smaller: NetworkSet | None) -> NetworkSet | None:
    """The networks within a smaller budget, where the band of a set may have some of them: that of several limits is of
    networks beyond a share of any limit, such as that of the file."""
    return smaller if any(isinstance(part, JointSet) for part in feasible.parts) else None
