"""Which choices of a space a study's scores depend on: functional analysis of variance over its trials."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence

from hwbench.errors import HwbenchError
from hwbench.specs import Architecture
from hwbench.studies.candidates import Candidate

# Trials below which a forest of regression trees says nothing.
FEWEST_TRIALS = 8
# The value of a choice that a network does not make: of a block that is not there, or of another space.
_ABSENT = "-"


def importances(trials: Sequence[Candidate]) -> Mapping[str, float]:
    """By choice, the share of the variance of the scores that it explains alone, largest first.

    fANOVA (Hutter, Hoos and Leyton-Brown, ICML 2014) as Optuna has it: a random forest is fitted to the scores, and its
    variance is taken apart. Choices that never varied are left out. What choices explain only together belongs to none
    of them, so shares may sum to less than 1. A sampler that looks for good networks sees fewer bad ones, so shares are
    those among what was tried.

    Raises:
        HwbenchError: There are too few trials, or all have the same score.
    """
    distinct = {one.architecture: one.score for one in trials}
    if len(distinct) < FEWEST_TRIALS:
        raise HwbenchError(
            f"{len(distinct)} networks have a score, and importances need {FEWEST_TRIALS}: raise --trials"
        )
    if len(set(distinct.values())) == 1:
        raise HwbenchError("all networks have the same score: no choice matters to it")
    return _fanova(tuple(distinct.items()))


def _choices(architectures: Sequence[Architecture]) -> dict[str, dict[str, str]]:
    """By network what it chooses; of several spaces the space, too, and each choice under the name of its space."""
    if len({one.space for one in architectures}) == 1:
        return {one.key: dict(one.choices) for one in architectures}
    return {
        one.key: {"space": one.space} | {f"{one.space}:{name}": value for name, value in one.choices}
        for one in architectures
    }


@functools.cache
def _fanova(scored: tuple[tuple[str, float], ...]) -> Mapping[str, float]:
    """Of networks by their printed form; the forest takes seconds, and a page may be written several times."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.importance import FanovaImportanceEvaluator

    from hwbench.studies.optuna_log import quiet_optuna

    choices = _choices([Architecture.parse(key) for key, _ in scored])
    names = list(dict.fromkeys(name for one in choices.values() for name in one))
    values = {name: sorted({one.get(name, _ABSENT) for one in choices.values()}) for name in names}
    varied: dict[str, BaseDistribution] = {n: CategoricalDistribution(v) for n, v in values.items() if len(v) > 1}
    with quiet_optuna():
        study = optuna.create_study(direction="maximize")
        for key, score in scored:
            params = {name: choices[key].get(name, _ABSENT) for name in varied}
            study.add_trial(optuna.create_trial(params=params, distributions=varied, value=score))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = FanovaImportanceEvaluator(seed=0).evaluate(study)  # get_param_importances scales the sum to 1
    shares = {name: float(share) for name, share in found.items()}
    return dict(sorted(shares.items(), key=lambda one: -one[1]))
