"""Trainings of other studies that a study begins from: another budget, another precision, another device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from hwbench.spaces.protocols import NetworkSet
from hwbench.specs import Architecture
from hwbench.studies.fidelities import Levels, ScoreObservation

# The best of the networks that are known, for each budget: a study tries them first.
BEST = 4


@dataclass(frozen=True)
class EarlierTrainings:
    """What is known of networks before the first trial.

    Attributes:
        observations: What trainings said, beside those of the study; their ``training`` are negative numbers.
        scores: By architecture the scores of trainings that the study would only repeat: they are taken as they are.
    """

    observations: tuple[ScoreObservation, ...]
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def here(self) -> tuple[ScoreObservation, ...]:
        """What trainings on the data of the study said."""
        return tuple(one for one in self.observations if not one.elsewhere)

    @property
    def networks(self) -> int:
        """How many networks were trained on the data of the study."""
        return len({one.architecture for one in self.here})

    @property
    def elsewhere(self) -> bool:
        """Whether there are trainings on other data."""
        return any(one.elsewhere for one in self.observations)

    def best(self, sets: Sequence[NetworkSet], count: int = BEST) -> list[Architecture]:
        """The best networks within each budget, those of the largest budget first: on the data of the study.

        A network goes by the mean of its trainings, each at its end, in standard deviations from the mean of those of
        its length. Networks whose trainings were all given up come after all others, those that lasted longest first:
        who else is known at those epochs may be losers, too, and what lasted to the end are winners alone.
        """
        if not (here := self.here):
            return []
        scores = np.array([one.score for one in here], np.float64)
        values, _, _ = Levels.of(here).standardised(scores)
        whole, given_up = (defaultdict[Architecture, list[tuple[float, float]]](list) for _ in range(2))
        for place in _ends(here):
            one = here[place]
            (given_up if one.given_up else whole)[one.architecture].append((sum(one.fidelity), float(values[place])))
        ranked = sorted(whole, key=lambda one: -fmean(value for _, value in whole[one]))
        ranked += sorted(given_up.keys() - whole.keys(), key=lambda one: (max(given_up[one]), one.key), reverse=True)
        found = [[one for one in ranked if one in within][:count] for within in reversed(sets)]
        return list(dict.fromkeys(one for networks in found for one in networks))


def _ends(observations: Sequence[ScoreObservation]) -> list[int]:
    """Places of the last observation of each training."""
    ends: dict[object, int] = {}
    for place, one in enumerate(observations):
        training = ("", place) if one.training is None else one.training
        before = ends.setdefault(training, place)
        if sum(one.fidelity) > sum(observations[before].fidelity):
            ends[training] = place
    return list(ends.values())
