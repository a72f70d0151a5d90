"""What a study tries before anything is sampled."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from hwbench.errors import InfeasibleBudget, InvalidValue
from hwbench.spaces.protocols import NetworkSet, NetworkSums
from hwbench.specs import Architecture
from hwbench.studies.earlier import EarlierTrainings
from hwbench.studies.settings import Settings

# The sampler that does nothing but draw.
DRAWS_ONLY = "random"
# Shares of the budget whose exact optima are tried first when the score is additive: the ends of a front.
_FRONT = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
# Draws from each of several spaces that a study begins with.
_OF_EACH = 2


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
    known = earlier.best(sets) if earlier else []
    largest = sets[-1]
    parts = largest.parts if len(largest.parts) > 1 else ()
    if scores is not None:
        optima = _optima(sets, scores)
        for one in parts:
            with contextlib.suppress(InvalidValue):  # none of its networks has a score
                optima.append(one.best(scores).architecture)
        return list(dict.fromkeys([*optima, *known]))
    if settings.sampler == DRAWS_ONLY:
        return known
    rng = np.random.default_rng([settings.seed, 3])
    return list(dict.fromkeys([*known, *(one.draw(rng) for _ in range(_OF_EACH) for one in parts)]))


def _optima(sets: Sequence[NetworkSet], scores: NetworkSums) -> list[Architecture]:
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
