"""A model of the trainings that there are: what other networks' trainings say of a network, without another one."""

from __future__ import annotations

from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.spaces.protocols import NetworkSums
from hwbench.specs import Architecture, Network
from hwbench.studies.evaluators.base import Context, evaluators
from hwbench.studies.fitted_scores import Prediction


@evaluators.register("fitted")
class Fitted:
    """Mean of the posterior of ``hwbench.studies.posterior``, in the unit of the scores that it is learned from.

    An additive Bayesian model over choices, pairs of choices that meet and whole stages is learned from networks that
    were trained, at all fidelities together. The best network within a budget is found exactly.
    """

    name: ClassVar[str] = "fitted"
    unit: ClassVar[str] = "predicted score of a training"
    basis: ClassVar[str] = "a model of the trainings of other networks, no training"

    def __init__(self, context: Context) -> None:
        if context.fitted is None:
            raise InvalidValue(
                "evaluator 'fitted' needs trained networks to learn from; give --learn-from STUDY (of curve or "
                "short-train) or a folder of ground truth"
            )
        self._fitted = context.fitted

    def score(self, network: Network) -> float:
        return self.predict(network).mean

    def predict(self, network: Network) -> Prediction:
        """The score with its standard deviation."""
        return self._fitted.predict(Architecture.parse(network.name))

    def score_sums(self) -> NetworkSums:
        """The scores of all networks of the space."""
        return self._fitted.expected()
