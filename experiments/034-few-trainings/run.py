"""What a model of few trainings says of networks that it has not seen, by its prior. See README.md.

python experiments/034-few-trainings/run.py          # results.json, in a few minutes
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau

from hwbench.specs import Architecture
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.ground_truth import GroundTruth, TrainedNetwork
from hwbench.studies.posterior import Posterior
from hwbench.studies.posterior_layout import Layout
from hwbench.testing.experiments import neighbour

HERE = Path(__file__).resolve().parent
RESULTS, SPENDING = HERE / "results.json", neighbour(HERE.parent / "032-spending")
TRUTHS = {"muon": HERE.parent / "031-recipes", "sgd": HERE.parent / "018-ground-truth"}
# Deviations of the logarithm of the variances under their prior; of the last, what was the default.
SPREADS = (0.35, 0.5, 0.7, 1.0, 1.4)
# Trainings that the model is learned from; how often such are drawn.
TRAININGS, DRAWS, FOLDS = (12, 24, 36, 60, 120), 20, 10
# What is compared counts within these bands, of networks with two trainings.
BANDS, SEEDS = ("edge", "middle"), (0, 1)


@dataclass(frozen=True)
class Trainings:
    """Trained networks of x3d-mini, of which some are learned from and others predicted."""

    networks: Sequence[TrainedNetwork]
    layout: Layout

    @cached_property
    def observations(self) -> list[tuple[int, ScoreObservation]]:
        """Each training with the number of its network."""
        return [
            (number, ScoreObservation(self.architectures[number], training.top1))
            for number, network in enumerate(self.networks)
            for training in network.trainings
            if training.seed in SEEDS
        ]

    @cached_property
    def architectures(self) -> list[Architecture]:
        return [Architecture.parse(network.architecture) for network in self.networks]

    def agreement(self, count: int, draw: int) -> list[tuple[float, float]]:
        """By spread: correlation and tau of predictions from ``count`` trainings with top-1, the mean of the bands.

        Networks are predicted from trainings of others, in ``FOLDS`` parts; all spreads learn from the same trainings.
        """
        rng = np.random.default_rng([draw, count])
        predicted = np.empty((len(SPREADS), len(self.networks)))
        for fold in np.array_split(rng.permutation(len(self.networks)), FOLDS):
            others = [one for number, one in self.observations if number not in set(fold.tolist())]
            learned = [others[number] for number in rng.permutation(len(others))[:count]]
            asked = [self.architectures[number] for number in fold]
            for place, spread in enumerate(SPREADS):
                predicted[place, fold] = Posterior.fit(self.layout, learned, spread=spread).predict(asked)[0]
        return [self._agrees(one) for one in predicted]

    def _agrees(self, predicted: Any) -> tuple[float, float]:
        found = []
        for band in BANDS:
            here = [number for number in self._judged if self.networks[number].band == band]
            truth = [self.networks[number].top1 for number in here]
            found.append((np.corrcoef(predicted[here], truth)[0, 1], kendalltau(predicted[here], truth).statistic))
        correlation, tau = np.mean(found, axis=0)
        return float(correlation), float(tau)

    @cached_property
    def _judged(self) -> list[int]:
        return [number for number, network in enumerate(self.networks) if len(network.trainings) > 1]


def table(trainings: Trainings) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """By number of trainings: correlation and tau by spread, and how much more than with the last (standard error)."""
    for count in TRAININGS:
        draws = np.array([trainings.agreement(count, draw) for draw in range(DRAWS)])
        more = draws[:, :, 0] - draws[:, -1:, 0]
        error = more.std(axis=0, ddof=1) / DRAWS**0.5
        mean = draws.mean(axis=0)
        yield (
            str(count),
            {
                f"{spread:g}": {
                    "correlation": round(float(mean[place, 0]), 3),
                    "tau": round(float(mean[place, 1]), 3),
                    "more correlation": [round(float(more[:, place].mean()), 3), round(float(error[place]), 3)],
                }
                for place, spread in enumerate(SPREADS)
            },
        )


def main() -> None:
    torch.set_num_threads(1)
    layout, results = Layout(SPENDING.sets()[-1].sums), dict[str, Any]()
    for name, folder in TRUTHS.items():
        results[name] = {}
        for count, row in table(Trainings(GroundTruth.read(folder).networks, layout)):
            results[name][count] = row
            print(name, count, row, flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
