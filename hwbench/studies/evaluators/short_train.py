"""Short training: the accuracy that a network reaches in a few epochs on the real data."""

from __future__ import annotations

import math
from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.specs import Network
from hwbench.studies.evaluators.base import Context, Report, evaluators


@evaluators.register("short-train")
class ShortTrain:
    """Top-1 accuracy (a fraction) on the validation clips after a short training; every network gets the same seed, so
    all of them see the same clips in the same order. How short is the trainer's to say.
    """

    name: ClassVar[str] = "short-train"
    unit: ClassVar[str] = "top-1 after short training"
    basis: ClassVar[str] = "a short training and a test of each network"
    # 2: trained with Muon
    scoring: ClassVar[int] = 2

    def __init__(self, context: Context) -> None:
        if context.trainer is None:
            raise InvalidValue("evaluator 'short-train' needs data to train on; give --data synthetic or a path")
        self._train, self._tested = context.trainer, context.tested
        self._seed = context.seed

    def score(self, network: Network) -> float:
        return self._train(network, self._seed)

    def score_reporting(self, network: Network, report: Report) -> float:
        """``score``, with the accuracy after each epoch reported, which takes a test each; at the end alone where the
        trainer tests no sooner. What ``report`` raises ends the training.
        """
        if self._tested is not None:
            return self._tested(network, self._seed, report)
        score = self.score(network)
        if math.isfinite(score):
            report(0, score)
        return score
