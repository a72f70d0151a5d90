"""What a study tries before anything is sampled."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.study import Study
from optuna.trial import TrialState

from hwbench.errors import InfeasibleBudget, InvalidValue
from hwbench.spaces.protocols import NetworkSet, NetworkSums
from hwbench.specs import Architecture
from hwbench.studies.earlier import EarlierTrainings
from hwbench.studies.journal import FIXED_PARAMS, finished_trials
from hwbench.studies.settings import Settings

# The sampler that does nothing but draw.
DRAWS_ONLY = "random"
# Shares of the budget whose exact optima are tried first when the score is additive: the ends of a front.
_FRONT = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
# Draws from each of several spaces that a study begins with.
_OF_EACH = 2
# Choices of the networks that a study tries first, kept before they are queued one by one.
_FIRST = "first_networks"


def enqueue_first(
    study: Study,
    trials: int,
    sets: Sequence[NetworkSet],
    settings: Settings,
    scores: NetworkSums | None,
    earlier: EarlierTrainings | None = None,
) -> None:
    """Queues what a study tries first, as far as ``trials`` reach: the rest follows when it goes on with more.

    Where a process ended before it had queued them all, the next one queues the rest. Where newer rows of a table put
    some of them beyond the budget, these are left out, and the optima of today come first.

    Args:
        study: Keeps what it tries first.
        trials: Networks to score in all.
        sets: As the others, for ``first_networks``.
        settings: What is searched for.
        scores: The scores of all networks, where they are sums.
        earlier: Trainings that the study begins from.
    """
    stored, kept = study.get_trials(deepcopy=False), study.user_attrs.get(_FIRST)
    if kept is None and stored:  # begun before this was kept
        return
    done = finished_trials(study)
    room = trials - len(done) - sum(trial.state is TrialState.WAITING for trial in stored)
    if room <= 0:
        return
    optima = _optima(sets, scores)
    networks = list(dict.fromkeys([*optima, *_others(sets, settings, scores, earlier)]))
    space, within = sets[-1].space, sets[-1]
    first = _each_once([*map(space.params, optima), *(kept or []), *map(space.params, networks[len(kept or []) :])])
    if first != kept:  # earlier versions kept as many as they queued
        study.set_user_attr(_FIRST, first)
    queued = [trial.system_attrs.get(FIXED_PARAMS) for trial in stored]
    tried = {trial.user_attrs["architecture"] for trial in done}
    networks = [space.of_params(one) for one in first if one not in queued]
    left = [one for one in networks if one in within and one.key not in tried]
    for network in left[:room]:
        study.enqueue_trial(space.params(network))


def _each_once(several: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choices in order, each once."""
    return [one for place, one in enumerate(several) if one not in several[:place]]


def first_networks(
    sets: Sequence[NetworkSet],
    settings: Settings,
    scores: NetworkSums | None,
    earlier: EarlierTrainings | None = None,
) -> list[Architecture]:
    """Optima of an additive score, and the best of what was trained before; of several spaces networks of each.

    Draws from several spaces hardly meet a small one, so it has some of its own.

    Args:
        sets: The networks within each budget, ascending.
        settings: What is searched for.
        scores: The scores of all networks, where they are sums.
        earlier: Trainings that the study begins from.
    """
    return list(dict.fromkeys([*_optima(sets, scores), *_others(sets, settings, scores, earlier)]))


def _optima(sets: Sequence[NetworkSet], scores: NetworkSums | None) -> list[Architecture]:
    """The best networks by an additive score; of several spaces those of each as well. None without such scores."""
    if scores is None:
        return []
    found = _optima_within(sets, scores)
    for one in _spaces(sets):
        with contextlib.suppress(InvalidValue):  # none of its networks has a score
            found.append(one.best(scores).architecture)
    return list(dict.fromkeys(found))


def _others(
    sets: Sequence[NetworkSet], settings: Settings, scores: NetworkSums | None, earlier: EarlierTrainings | None
) -> list[Architecture]:
    """The best of what was trained before; without additive scores draws from each of several spaces."""
    known = earlier.best(sets) if earlier else []
    if scores is not None or settings.sampler == DRAWS_ONLY:
        return known
    rng = np.random.default_rng([settings.seed, 3])
    return [*known, *(one.draw(rng) for _ in range(_OF_EACH) for one in _spaces(sets))]


def _spaces(sets: Sequence[NetworkSet]) -> Sequence[NetworkSet]:
    """The networks of each space within the largest budget, where there are several spaces."""
    return sets[-1].parts if len(sets[-1].parts) > 1 else ()


def _optima_within(sets: Sequence[NetworkSet], scores: NetworkSums) -> list[Architecture]:
    """The exact best networks of each budget, the largest first; of a single one also at shares of it."""
    largest = sets[-1]
    if len(sets) > 1:
        return [one.best(scores).architecture for one in reversed(sets)]
    smallest, _ = largest.smallest()
    found = []
    for share in _FRONT:
        if share == 1.0:
            found.append(largest.best(scores).architecture)
        elif share * largest.budget_s > smallest * 1.01:
            with contextlib.suppress(InfeasibleBudget):  # none so close to the edge on a grid
                found.append(largest.tightened(share).best(scores).architecture)
    return found
