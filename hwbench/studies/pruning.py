"""Giving up networks that are behind: Optuna's successive halving and Hyperband over the epochs of a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optuna.pruners import BasePruner, HyperbandPruner, SuccessiveHalvingPruner
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

# Hears the trial, the epoch from 0 and the score so far of a network under way; True: it is to be given up.
Judge = Callable[[int, int, float], bool]

# One network in so many goes on at each rung, and rungs are so many times as long (Li et al., ASHA, use 4; three rungs
# need 27 epochs then, and studies here have about a dozen).
_REDUCTION = 3


@dataclass(frozen=True)
class Pruning:
    """How a study gives up networks.

    Attributes:
        pruner: Name of the pruner.
        epochs: Of a whole training; what has come so far is not given up.
    """

    pruner: str
    epochs: int

    def judge(self, study: Study, trials: Mapping[int, Trial]) -> Judge:
        """Tells Optuna of each epoch, and asks its pruner.

        Args:
            study: Of the trials.
            trials: By number, those under way.
        """
        pruner = PRUNERS[self.pruner](self.epochs)

        def behind(number: int, epoch: int, score: float) -> bool:
            trials[number].report(score, epoch + 1)
            if epoch + 1 >= self.epochs:
                return False
            return pruner.prune(study, study.get_trials(deepcopy=False)[number])

        return behind


def asha(epochs: int) -> BasePruner:
    """Asynchronous successive halving (Li et al., MLSys 2020): rungs after 1, 3, 9 ... epochs."""
    return SuccessiveHalvingPruner(min_resource=1, reduction_factor=_REDUCTION)


def hyperband(epochs: int) -> BasePruner:
    """Hyperband (Li et al., JMLR 2018): brackets whose first rungs are later and later, for scores that turn late."""
    return HyperbandPruner(min_resource=1, max_resource=epochs, reduction_factor=_REDUCTION)


# The pruner is asked by itself, and no part of the study: Optuna would show a sampler the trials of one bracket alone.
PRUNERS: Mapping[str, Callable[[int], BasePruner]] = {"asha": asha, "hyperband": hyperband}


def rungs(trials: list[FrozenTrial]) -> list[int]:
    """The epochs after which trials were given up."""
    return sorted({t.last_step for t in trials if t.state is TrialState.PRUNED and t.last_step is not None})
