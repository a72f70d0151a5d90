"""Thompson sampling over a feasible set: the exact best network of a function drawn from what the trials say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from hwbench.errors import InfeasibleBudget
from hwbench.spaces.protocols import NetworkSet, NetworkSums
from hwbench.specs import Architecture
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.posterior import Hyperparameters, Posterior
from hwbench.studies.posterior_layout import EffectLayout
from hwbench.studies.posterior_union import layout_of

# How far from the mean functions are drawn, in turns. A draw at its full distance is more noise than function where
# there are many choices: its optimum is where nothing is known (experiments/020-samplers).
_SCALES = (0.0, 0.25, 0.0, 0.5)
# The same after a proposal was refused: the optima of the mean and close by are known already.
_NEXT_SCALES = (0.25, 0.5, 1.0)
# Variances are learned anew with each of so many first observations, later with every eighth part more of them.
_ALWAYS_LEARNED = 32
_GROWTH = 1.125


class Thompson:
    """Learns an additive model of the scores (``hwbench.studies.posterior``) and proposes its exact optimum.

    The optimum of the mean and those of draws take turns: the first wins soon, the others find out what is not known.
    Draws are held closer to the mean than the posterior has them. Where the optimum of the mean is known already, draws
    close to the mean give its neighbours.

    Sources: Thompson, Biometrika 1933; for models of pairs over combinations Baptista and Poloczek, Bayesian
    Optimization of Combinatorial Structures, ICML 2018, who relax the optimum, which is exact here, budget included.

    Args:
        feasible: The networks within the budget.
    """

    def __init__(self, feasible: NetworkSet) -> None:
        self._feasible = feasible
        self._learned: tuple[list[ScoreObservation], Posterior] | None = None
        self._parameters: tuple[list[ScoreObservation], Hyperparameters] | None = None
        self._elsewhere: tuple[list[ScoreObservation], Posterior] | None = None

    def propose(
        self,
        observations: Sequence[ScoreObservation],
        rng: np.random.Generator,
        *,
        attempt: int = 0,
        running: int = 0,
        front: bool = False,
        turns: int = 1,
    ) -> Architecture:
        """The next network to evaluate.

        Args:
            observations: What is known of networks, larger scores are better; at least one.
            rng: Of the draw.
            attempt: How many proposals were refused before.
            running: How many networks are being scored: the optimum of the mean is proposed once for a batch, not
                once for each of the workers that ask before the next score.
            front: The best at any latency is wanted, not within the budget alone: a share of it is drawn.
            turns: How many budgets take turns: each has optima of the mean and of draws in turns.
        """
        trials = len({(one.architecture, one.training) for one in observations}) + running
        scale = _SCALES[trials // turns % len(_SCALES)]
        if attempt:
            scale = max(scale, _NEXT_SCALES[min(attempt, len(_NEXT_SCALES)) - 1])
        function = self._posterior(list(observations)).draw(rng, scale)
        if front and self._feasible.budget_s:
            return self._best_of_front(function, rng)
        return self._feasible.best(function).architecture

    def _posterior(self, observations: list[ScoreObservation]) -> Posterior:
        """What is known; learned once for the proposals that follow a refused one."""
        if self._learned is None or self._learned[0] != observations:
            elsewhere = self._elsewhere_of([one for one in observations if one.elsewhere])
            here = [one for one in observations if not one.elsewhere]
            parameters = self._parameters_of(here, elsewhere) if here else None
            self._learned = observations, Posterior.fit(self._layout, here, parameters, elsewhere=elsewhere)
        return self._learned[1]

    def _parameters_of(self, observations: list[ScoreObservation], elsewhere: Posterior | None) -> Hyperparameters:
        """Those of a beginning of the observations, whose length follows from their number alone."""
        beginning = observations[: _steady(len(observations))]
        if self._parameters is None or self._parameters[0] != beginning:
            self._parameters = beginning, Posterior.fit(self._layout, beginning, elsewhere=elsewhere).parameters
        return self._parameters[1]

    def _elsewhere_of(self, observations: list[ScoreObservation]) -> Posterior | None:
        """What trainings on other data say, which are the same for all trials; None: there are none."""
        if observations and (self._elsewhere is None or self._elsewhere[0] != observations):
            self._elsewhere = observations, Posterior.fit(self._layout, observations)
        return None if self._elsewhere is None else self._elsewhere[1]

    @cached_property
    def _layout(self) -> EffectLayout:
        return layout_of(self._feasible.sums)

    def _best_of_front(self, function: NetworkSums, rng: np.random.Generator) -> Architecture:
        """The optimum within a share of the budget; the cheapest network where the grid has none within the share."""
        smallest, cheapest = self._feasible.smallest()
        least = min(1.0, smallest * 1.01 / self._feasible.budget_s)
        try:
            return self._feasible.best(function, float(rng.uniform(max(least, 0.0), 1.0))).architecture
        except InfeasibleBudget:
            return cheapest


def _steady(number: int) -> int:
    """The last number up to this one with which variances are learned anew."""
    if number <= _ALWAYS_LEARNED:
        return number
    at = float(_ALWAYS_LEARNED)
    while at * _GROWTH <= number:
        at *= _GROWTH
    return int(at)
