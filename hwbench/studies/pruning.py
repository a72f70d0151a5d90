"""Giving up networks that are behind: Optuna's successive halving and Hyperband over the epochs of a training."""

from __future__ import annotations

import bisect
import copy
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.pruners import BasePruner, HyperbandPruner, SuccessiveHalvingPruner
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from hwbench.studies.journal import runs_again

# The attribute of a trial that has what its network is predicted to take.
PREDICTED = "predicted_s"
# Hears the trial, the epoch from 0 and the score so far of a network under way; True: it is to be given up.
Judge = Callable[[int, int, float], bool]

# One network in so many goes on at each rung, and rungs are so many times as long (Li et al., ASHA, use 4).
_REDUCTION = 2
# The first rung is at one of so many parts of a training: before, the order of networks says next to nothing of what
# it will be. Rungs at a quarter and a half find more than those at 1, 3 and 9 of 12 epochs (experiments/031-recipes).
_PARTS = 4

# Optuna takes the bracket of a trial from its number and the name of its study. By one name for all studies the seed
# decides, not the name that a user chooses; by this one 24 trainings of 12 epochs have brackets of 12, 6 and 6.
_BRACKET_NAME = "hwbench"
# The attribute of a study that has this name; a study that was begun before it was kept goes by its own.
_BRACKETS = "bracket_name"


@dataclass(frozen=True)
class Pruning:
    """How a study gives up networks.

    Attributes:
        pruner: Name of the pruner.
        epochs: Of a whole training; what has come so far is not given up.
        smaller_s: Budgets of a front below the largest, ascending. The fast networks within one of them would be behind
            slower ones of the next, and are not compared with these.
    """

    pruner: str
    epochs: int
    smaller_s: tuple[float, ...] = ()

    def judge(self, study: Study, trials: Mapping[int, Trial]) -> Judge:
        """Tells Optuna of each epoch, and asks its pruner.

        Args:
            study: Of the trials.
            trials: By number, those under way.
        """
        pruner, name = PRUNERS[self.pruner](self.epochs), _bracket_name(study)

        def behind(number: int, epoch: int, score: float) -> bool:
            trials[number].report(score, epoch + 1)
            if epoch + 1 >= self.epochs:
                return False
            all_trials = study.get_trials(deepcopy=False)
            slot = self._slot(all_trials[number])
            competes = [not runs_again(trial) and self._slot(trial) == slot for trial in all_trials]
            seen = Study(name, _Competing(study._storage, study._study_id, competes))  # type: ignore[arg-type]
            return pruner.prune(seen, seen.get_trials(deepcopy=False)[sum(competes[:number])])

        return behind

    def _slot(self, trial: FrozenTrial) -> int:
        """The smallest budget that a network is within, by its place."""
        return bisect.bisect_left(self.smaller_s, float(trial.user_attrs.get(PREDICTED, 0.0)))


def _bracket_name(study: Study) -> str:
    """The name by which trials of a study have their brackets, kept with it before any of them is asked about."""
    if _BRACKETS not in study.user_attrs and not any(t.intermediate_values for t in study.get_trials(deepcopy=False)):
        study.set_user_attr(_BRACKETS, _BRACKET_NAME)
    return str(study.user_attrs.get(_BRACKETS, study.study_name))


class _Competing:
    """An Optuna storage as if a study had the trials that compete with one, and no other, whatever its name.

    Trials of another budget are left out, and those that run again, whose networks would compete with themselves; so a
    study that was interrupted goes on as it would have. The numbers of those behind them, from which Hyperband takes
    the bracket, close up.

    Args:
        storage: Has all of them.
        study_id: Of the study.
        competes: Whether a trial is one of them, by its number; later ones are not.
    """

    def __init__(self, storage: BaseStorage, study_id: int, competes: Sequence[bool]) -> None:
        self._storage, self._study_id, self._competes = storage, study_id, competes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._study_id

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        trials = self._storage.get_all_trials(study_id, deepcopy=deepcopy)
        found = [copy.copy(trial) for trial, competes in zip(trials, self._competes, strict=False) if competes]
        for number, trial in enumerate(found):
            trial.number = number
        return found if states is None else [trial for trial in found if trial.state in states]


def asha(epochs: int) -> BasePruner:
    """Asynchronous successive halving (Li et al., MLSys 2020): rungs after a quarter and a half of the epochs."""
    return SuccessiveHalvingPruner(min_resource=_first_rung(epochs), reduction_factor=_REDUCTION)


def hyperband(epochs: int) -> BasePruner:
    """Hyperband (Li et al., JMLR 2018): brackets whose first rungs are later and later, for scores that turn late."""
    return HyperbandPruner(min_resource=_first_rung(epochs), max_resource=epochs, reduction_factor=_REDUCTION)


def _first_rung(epochs: int) -> int:
    return math.ceil(epochs / _PARTS)


# The pruner is asked by itself, and no part of the study: Optuna would show a sampler the trials of one bracket alone.
PRUNERS: Mapping[str, Callable[[int], BasePruner]] = {"asha": asha, "hyperband": hyperband}


def rungs(trials: list[FrozenTrial]) -> list[int]:
    """The epochs after which trials were given up."""
    return sorted({t.last_step for t in trials if t.state is TrialState.PRUNED and t.last_step is not None})
