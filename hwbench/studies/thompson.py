"""Thompson sampling over a feasible set: the exact best network of a function drawn from what the trials say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from hwbench.spaces.feasible import FeasibleSet
from hwbench.specs import Architecture
from hwbench.studies.posterior import Layout, Posterior

# How far from the mean the proposals of every other trial are drawn, one after the other.
_SCALES = (0.0, 0.25, 0.5, 1.0)

Scored = tuple[Architecture, float]


class Thompson:
    """Learns an additive model of the scores (``hwbench.studies.posterior``) and proposes its exact optimum.

    The optimum of the mean and those of draws take turns: the first wins soon, the others find out what is not known.
    Where the optimum of the mean is known already, draws close to the mean give its neighbours.

    Sources: Thompson, Biometrika 1933; for models of pairs over combinations Baptista and Poloczek, Bayesian
    Optimization of Combinatorial Structures, ICML 2018, who relax the optimum, which is exact here, budget included.

    Args:
        feasible: The networks within the budget.
    """

    def __init__(self, feasible: FeasibleSet) -> None:
        self._feasible = feasible
        self._learned: tuple[list[Scored], Posterior] | None = None

    def propose(
        self,
        scored: Sequence[Scored],
        rng: np.random.Generator,
        *,
        attempt: int = 0,
        running: int = 0,
        front: bool = False,
    ) -> Architecture:
        """The next network to evaluate.

        Args:
            scored: Networks with their scores, larger is better, at least one.
            rng: Of the draw.
            attempt: How many proposals were refused before.
            running: How many networks are being scored: the optimum of the mean is proposed once for a batch, not
                once for each of the workers that ask before the next score.
            front: The best at any latency is wanted, not within the budget alone: a share of it is drawn.
        """
        close = _SCALES[min(attempt, len(_SCALES) - 1)] if (len(scored) + running) % 2 == 0 else 1.0
        function = self._posterior(scored).draw(rng, close)
        return self._feasible.best(function, self._share(rng) if front else 1.0).architecture

    def _posterior(self, scored: Sequence[Scored]) -> Posterior:
        """What the scores say; learned once for the proposals that follow a refused one."""
        if self._learned is None or self._learned[0] != list(scored):
            architectures, scores = zip(*scored)
            self._learned = list(scored), Posterior.fit(self._layout, architectures, scores)
        return self._learned[1]

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self._feasible.sums)

    def _share(self, rng: np.random.Generator) -> float:
        """A share of the budget at which there is a network, roundings of its grid included."""
        smallest, _ = self._feasible.smallest()
        least = min(1.0, smallest * 1.01 / self._feasible.budget_s)
        return float(rng.uniform(least, 1.0)) if least > 0 else 1.0
