"""Scores of networks from trainings of others: the mean of the posterior that ``thompson`` learns, too. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hwbench.spaces.protocols import NetworkSums
from hwbench.specs import Architecture
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.posterior import Posterior
from hwbench.studies.posterior_layout import EffectLayout
from hwbench.studies.posterior_union import layout_of


@dataclass(frozen=True)
class Prediction:
    """What other networks say of one: the mean of its score, and one standard deviation, noise left out."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class FittedScores:
    """The posterior of the trainings of a space, or of a union of some.

    Args:
        sums: Any sums over the space; only the way through it is used.
        observations: Trainings of networks of the space, at least one.
        leave_out: Predicts a network from all trainings but its own: what it is judged on is nothing it has learned.
            What all trainings decide is kept: the few variances (Rasmussen and Williams 2006, §5.4.2), and the mean and
            the deviation of the scores, which are the same for all networks and rank none. Taken anew without a network
            they move away from its score. Of scores that are permuted, what is left out has a rank correlation with
            them of -0.08 on average with variances learned anew (48 networks, ``experiments/018-ground-truth``), and of
            -0.2 with the mean of the others (8 networks), in place of none.
    """

    sums: NetworkSums
    observations: tuple[ScoreObservation, ...]
    leave_out: bool = False

    def predict(self, architecture: Architecture) -> Prediction:
        """The score at full length; not a number of a network of another space, or where nothing is left to learn."""
        others = [one for one in self.observations if one.architecture != architecture]
        held_out = self.leave_out and len(others) < len(self.observations)
        posterior = self._without(others) if held_out else self.posterior
        if posterior is None or architecture.space not in self._spaces:
            return Prediction(float("nan"), float("nan"))
        mean, deviation = posterior.predict([architecture])
        return Prediction(float(mean[0]), float(deviation[0]))

    def expected(self) -> NetworkSums:
        """The mean of the posterior, whose best network within a budget is found exactly."""
        assert self.posterior is not None
        return self.posterior.expected()

    def __reduce__(self) -> tuple[type[FittedScores], tuple[object, ...]]:
        """Other processes learn for themselves, the same."""
        return FittedScores, (self.sums, self.observations, self.leave_out)

    @cached_property
    def posterior(self) -> Posterior | None:
        """Learned from all observations; None without any."""
        return Posterior.fit(self._layout, self.observations) if self.observations else None

    def _without(self, others: Sequence[ScoreObservation]) -> Posterior | None:
        """What these observations say, with the variances, mean and deviation of all; of other data, too."""
        assert self.posterior is not None
        if not others:
            return None
        there = [replace(one, elsewhere=False) for one in others if one.elsewhere]
        of_there = self.posterior.elsewhere or self.posterior  # the latter, where all are of other data
        elsewhere = Posterior.fit(self._layout, there, of_there.parameters) if there else None
        posterior = Posterior.fit(self._layout, others, self.posterior.parameters, elsewhere=elsewhere)
        if posterior is elsewhere and self.posterior.elsewhere is not None:  # no score here is left: those of there
            return posterior
        return replace(posterior, mean=self.posterior.mean, deviation=self.posterior.deviation)

    @cached_property
    def _spaces(self) -> frozenset[str]:
        return frozenset(one.name for one in self.sums.space.members)

    @cached_property
    def _layout(self) -> EffectLayout:
        return layout_of(self.sums)
