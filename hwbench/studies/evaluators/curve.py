"""Training speed: how fast the training loss of a network falls in a few epochs on the real data."""

from __future__ import annotations

import math
from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.specs import Network
from hwbench.studies.evaluators.base import Context, Report, evaluators

# Weight of an epoch by that of the next. The paper's 0.999 is for hundreds of epochs: of a few it makes a plain sum, in
# which the first epoch, where the rate warms up and losses say least, has the largest part.
DECAY = 0.9


@evaluators.register("curve")
class Curve:
    """Minus the mean of the training losses of a short training, later epochs counting more: training speed.

    With ``l_t`` the mean loss of the steps of epoch ``t`` of ``T``, the score is
    ``-sum_t DECAY^(T - t) l_t / sum_t DECAY^(T - t)``. This is TSE-EMA of Ru et al., "Speedy Performance Estimation for
    Neural Architecture Search" (NeurIPS 2021), with a sign and divided by its weights, which keeps the order of
    networks of one study and makes nats of it. Losses are those of the recipe, label smoothing included. A network that
    diverges has no score.

    There is no test, so all the time goes into training, and losses of hundreds of steps are averaged, where the top-1
    of a short test counts some clips. Every network gets the same seed: first weights, clips and their order.
    """

    name: ClassVar[str] = "curve"
    unit: ClassVar[str] = "minus the training loss (nats), late epochs first"
    basis: ClassVar[str] = "a short training of each network, without a test"
    # 2: trained with Muon
    scoring: ClassVar[int] = 2

    def __init__(self, context: Context) -> None:
        if context.losses is None:
            raise InvalidValue("evaluator 'curve' needs data to train on; give --data synthetic or a path")
        self._losses = context.losses
        self._seed = context.seed

    def score(self, network: Network) -> float:
        return self.score_reporting(network, _nobody)

    def score_reporting(self, network: Network, report: Report) -> float:
        """``score``, with the score after each epoch reported; what ``report`` raises ends the training."""
        total = weight = 0.0

        def add(epoch: int, loss: float) -> None:
            nonlocal total, weight
            total, weight = DECAY * total + loss, DECAY * weight + 1
            if math.isfinite(total):
                report(epoch, -total / weight)

        self._losses(network, self._seed, add)
        return -total / weight if weight and math.isfinite(total) else math.nan


def _nobody(epoch: int, score: float) -> None:
    """Hears scores that nobody asked for."""
