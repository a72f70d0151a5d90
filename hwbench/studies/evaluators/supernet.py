"""Weight sharing: the accuracy that a network has with weights that all networks within the budget were trained on."""

from __future__ import annotations

from typing import ClassVar

from hwbench.errors import InvalidValue
from hwbench.specs import Network
from hwbench.studies.evaluators.base import Context, evaluators


@evaluators.register("supernet")
class SupernetScore:
    """Top-1 accuracy (a fraction) on the validation clips with inherited weights, no training of the network itself.

    One training serves all networks of the feasible set; after it a score takes as long as a test. The weights are
    those of ``hwbench.training.supernet``. Sources: Cai et al., Once-for-All, ICLR 2020; Yu et al., BigNAS, ECCV 2020.
    Whether such scores rank networks as trainings of their own do is nothing to be taken for granted (Yu et al.,
    Evaluating the Search Phase of Neural Architecture Search, ICLR 2020): ``hwbench scoreboard`` tells.
    """

    name: ClassVar[str] = "supernet"
    unit: ClassVar[str] = "top-1 with inherited weights"
    basis: ClassVar[str] = "one training for all networks within the budget, then a test of each"
    # 2: trained with Muon
    scoring: ClassVar[int] = 2
    judged: ClassVar[str] = (
        "48 trained networks of one budget were ranked half as well as by a second training (tau 0.28, 95 % 0.10 to "
        "0.45, experiment 031)"
    )

    def __init__(self, context: Context) -> None:
        if context.inherited is None:
            raise InvalidValue("evaluator 'supernet' needs data to train on; give --data synthetic or a path")
        self._score = context.inherited

    def score(self, network: Network) -> float:
        return self._score(network)
