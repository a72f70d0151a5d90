"""Short training: the accuracy that a network reaches in a few epochs on the real data."""

from __future__ import annotations

from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.specs import Network
from hwbench.studies.evaluators.base import Context, evaluators


@evaluators.register("short-train")
class ShortTrain:
    """Top-1 accuracy (a fraction) on the validation clips after a short training; every network gets the same seed, so
    all of them see the same clips in the same order. How short is the trainer's to say.
    """

    name: ClassVar[str] = "short-train"
    unit: ClassVar[str] = "top-1 after short training"
    basis: ClassVar[str] = "a short training and a test of each network"

    def __init__(self, context: Context) -> None:
        if context.trainer is None:
            raise InvalidValue("evaluator 'short-train' needs data to train on; give --data synthetic or a path")
        self._train = context.trainer
        self._seed = context.seed

    def score(self, network: Network) -> float:
        return self._train(network, self._seed)
