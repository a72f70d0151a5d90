"""Observations of networks at several fidelities: trainings of more and fewer epochs, frames and pixels. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hwbench.spaces.walk import Floats, Integers
from hwbench.specs import Architecture

# A training that is no different from the one that is asked about.
FULL: tuple[float, ...] = ()


@dataclass(frozen=True)
class ScoreObservation:
    """What one training said of a network at one time.

    Attributes:
        architecture: The network.
        score: Finite; larger is better. Scores of one fidelity are of one unit.
        fidelity: By how many doublings the training is longer (above zero) or shorter than the one asked about, by
            epochs, frames and resolution; ``FULL``: it is that one.
        training: Observations of one training have the same number, those of before a study negative ones; None:
            nothing else is of this training.
        elsewhere: It was on other data, whose scores have a level and a scale of their own.
        given_up: The training ended there because the network was behind others.
    """

    architecture: Architecture
    score: float
    fidelity: tuple[float, ...] = FULL
    training: int | None = None
    elsewhere: bool = False
    given_up: bool = False


def doublings(amount: float, full: float) -> float:
    """``ScoreObservation.fidelity`` of an amount, such as epochs, where the full training has another."""
    return math.log2(amount / full)


@dataclass(frozen=True)
class Levels:
    """The fidelities of some observations; the first level is the one that is asked about.

    Attributes:
        places: The distinct fidelities, shape (levels, quantities); the first row is zeros.
        level: Of each observation, shape (N).
        training: Number of the training of each observation, shape (N).
    """

    places: Floats
    level: Integers
    training: Integers

    @classmethod
    def of(cls, observations: Sequence[ScoreObservation]) -> Levels:
        """The levels in the order in which they come."""
        width = max(len(one.fidelity) for one in observations)
        rows = [one.fidelity + (0.0,) * (width - len(one.fidelity)) for one in observations]
        numbers = {row: number for number, row in enumerate(dict.fromkeys([(0.0,) * width, *rows]))}
        trainings: dict[object, int] = {}
        keys = [("", place) if one.training is None else one.training for place, one in enumerate(observations)]
        training = [trainings.setdefault(key, len(trainings)) for key in keys]
        places = np.array(list(numbers), np.float64).reshape(len(numbers), width)
        return cls(places, np.array([numbers[row] for row in rows]), np.array(training))

    @property
    def single(self) -> bool:
        """Whether all observations are of the level that is asked about."""
        return len(self.places) == 1

    def correlation(self, length: float) -> Floats:
        """Shape (levels, levels): exp(-doublings / length), whichever quantity is doubled."""
        apart = np.abs(self.places[:, None, :] - self.places[None, :, :]).sum(axis=2)
        found: Floats = np.exp(-apart / length)
        return found

    @cached_property
    def same_training(self) -> Floats:
        """Shape (N, N): 1 where two observations are of one training, else 0."""
        return np.equal(self.training[:, None], self.training).astype(np.float64)

    def of_rows(self, rows: Integers) -> Levels:
        """The same levels with some of the observations only, given by their indices."""
        return replace(self, level=self.level[rows], training=self.training[rows])

    def chosen(self, most: int) -> Integers:
        """The indices of at most ``most`` observations that stand for all, in order; the same ones at every call.

        The last observations of trainings come first: of those that are of the fidelity asked about, then of the
        others. Then come the earlier observations. Of a group for which there is too little room some are taken, spread
        evenly in the order given. Scores have no part in that: the best of many noisy scores are too good, and would
        lift all predictions.
        """
        length = self.places.sum(axis=1)[self.level]
        by_training = np.lexsort((length, self.training))
        last = by_training[np.append(np.diff(self.training[by_training]) > 0, True)]
        asked = last[self.level[last] == 0]
        rows = np.empty(0, np.int64)
        for group in (np.sort(asked), np.setdiff1d(last, asked), np.setdiff1d(by_training, last)):
            count = min(len(group), most - len(rows))
            rows = np.append(rows, group[np.arange(count) * len(group) // max(count, 1)])
        return np.sort(rows)

    def standardised(self, scores: Floats) -> tuple[Floats, float, float]:
        """Scores as standard deviations from the mean of their level; mean and deviation where scores are asked about.

        These are those of the first level, or of the nearest one where the first has fewer than two scores. Scores of
        a level that are all the same become 0; their deviation is taken to be 1.
        """
        values, moments = np.empty(len(scores)), dict[int, tuple[float, float]]()
        for number in np.unique(self.level).tolist():
            at = self.level == number
            there = scores[at]
            # Of equal scores mean and deviation have a rounding error, which is no difference between them.
            mean, deviation = (there.mean(), there.std()) if np.ptp(there) else (there[0], 1.0)
            moments[number] = float(mean), float(deviation)
            values[at] = (there - mean) / deviation
        counts = np.bincount(self.level, minlength=len(self.places))
        apart = np.abs(self.places).sum(axis=1)
        nearest = min(moments, key=lambda number: (counts[number] < 2, apart[number]))
        return values, *moments[nearest]
