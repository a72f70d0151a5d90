"""Networks that were trained to the end, as text: what evaluators, samplers and searches are judged on in seconds.

A folder of ground truth has ``networks.json`` (what was drawn, in which band of which budget) and a training in each
``rows/NAME-seedK.json``; ``scores.json`` has what evaluators said. ``experiments/018-ground-truth`` makes one.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwbench import lookup
from hwbench.documents import read_json
from hwbench.errors import InvalidFile
from hwbench.studies.ranking import Interval, mean_rank_interval, of_longer
from hwbench.workspace import write_text

NETWORKS, ROWS, SCORES = "networks.json", "rows", "scores.json"
# Networks that are enough to be judged on without others that were trained less often.
JUDGED = 24


@dataclass(frozen=True)
class Training:
    """One training of a network.

    Attributes:
        seed: Of weights and order.
        top1: Mean of the last evaluations, a share.
        loss: Mean negative log-likelihood of the last evaluations, in nats.
        hits: By validation video, in how many of the last evaluations the highest score was right.
        curve: Top-1 after each epoch.
        losses: Training loss, means over quarters of epochs.
        cost_s: CPU time in seconds; None where a GPU did the work.
        int8_top1: Of the int8 file of the final weights; None: not known.
        optimizer: As ``hwbench train --optimizer`` takes it; empty: not known.
    """

    seed: int
    top1: float
    loss: float
    hits: NDArray[np.int64]
    curve: tuple[float, ...]
    losses: tuple[float, ...]
    cost_s: float | None
    int8_top1: float | None
    optimizer: str = ""

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Training:
        """From a row; raises KeyError, TypeError or ValueError where it is none."""
        recipe = row.get("recipe")
        return cls(
            seed=int(row["seed"]),
            top1=float(row["top1"]),
            loss=float(row["loss"]),
            hits=np.array([int(digit) for digit in row["hits"]]),
            curve=tuple(float(one["top1"]) for one in row["validation"]),
            losses=tuple(float(one) for one in row["training_loss"]),
            cost_s=None if "gpu" in row else float(row["cpu_s"]),
            int8_top1=float(row["int8"]["top1"]) if "int8" in row else None,
            optimizer=str(recipe.get("optimizer", "")) if isinstance(recipe, Mapping) else "",
        )


@dataclass(frozen=True)
class TrainedNetwork:
    """A network with its trainings, in order of their seeds.

    Attributes:
        name: In the folder.
        band: Networks of one band are predicted to take about the same time.
        architecture: Printed form.
        trainings: At least one.
    """

    name: str
    band: str
    architecture: str
    trainings: tuple[Training, ...]

    @property
    def top1(self) -> float:
        """Mean over the seeds, a share."""
        return statistics.fmean(one.top1 for one in self.trainings)


@dataclass(frozen=True)
class GroundTruth:
    """Trained networks of one budget.

    Attributes:
        folder: Where they were read.
        budget_ms: The budget that the bands are shares of.
        data: What was trained on, as ``hwbench train --data`` takes it.
        num_classes: Width of the logits.
        networks: Those with at least one training, in the order they were drawn.
        scores: By evaluator, what it said of networks, by name: (score, seconds it took).
    """

    folder: Path
    budget_ms: float
    data: str
    num_classes: int
    networks: tuple[TrainedNetwork, ...]
    scores: Mapping[str, Mapping[str, tuple[float, float]]]

    @classmethod
    def read(cls, folder: Path) -> GroundTruth:
        """Reads a folder.

        Raises:
            InvalidFile: A file is missing or not as it should be, or nothing has been trained.
        """
        if not lookup.is_file(folder / NETWORKS):
            raise InvalidFile(no_truth(folder))
        drawn, trainings = _read(folder / NETWORKS), _trainings(folder)
        try:
            networks = tuple(
                TrainedNetwork(one["name"], one["band"], one["architecture"], trainings[one["name"]])
                for one in drawn["networks"]
                if one["name"] in trainings
            )
            budget_ms, data, num_classes = float(drawn["budget_ms"]), str(drawn["data"]), int(drawn["classes"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidFile(
                f"{folder / NETWORKS}: expected budget_ms, data, classes and networks: {error!r}"
            ) from None
        if not networks:
            raise InvalidFile(f"{folder / ROWS}: no network of {NETWORKS} has been trained")
        return cls(folder, budget_ms, data, num_classes, networks, _scores(folder / SCORES))

    def with_scores(self, evaluator: str, scores: Mapping[str, tuple[float, float]]) -> GroundTruth:
        """With what an evaluator says: by name of the network (score, seconds); what it said before stays."""
        return replace(self, scores={**self.scores, evaluator: {**self.scores.get(evaluator, {}), **scores}})

    def write_scores(self) -> None:
        """Stores ``scores.json``; a score that is not a number is null."""
        plain = {
            evaluator: {name: [_rounded(score), round(seconds, 3)] for name, (score, seconds) in scores.items()}
            for evaluator, scores in self.scores.items()
        }
        write_text(self.folder / SCORES, json.dumps(plain, indent=1, allow_nan=False) + "\n")

    @cached_property
    def judged(self) -> tuple[TrainedNetwork, ...]:
        """The networks that scores are held against: those that were trained most often, at least ``JUDGED`` of them.

        The others are known less well, and are there to be learned from. Of fewer than that all are judged.
        """
        counts = sorted((len(one.trainings) for one in self.networks), reverse=True)
        return tuple(one for one in self.networks if len(one.trainings) >= counts[:JUDGED][-1])

    @cached_property
    def ceiling(self) -> Interval | None:
        """Rank correlation of the accuracy of the networks with that of as many other trainings of them, within bands.

        No evaluator can be expected to agree better with what was trained than other trainings do. The trainings of a
        network are split in half in every way, one half is held against the other one, and the mean of these rank
        correlations is that of means of so many trainings as a network has (the median; ``of_longer``). Networks with
        one training are not part of it; None where there is no network with two.
        """
        several = [one for one in self.networks if len(one.trainings) > 1]
        if not several:
            return None
        count = min(len(one.trainings) for one in several)
        half = count // 2
        comparisons = [
            ([_mean(one, first) for one in several], [_mean(one, second) for one in several])
            for first, second in _halves(count)
        ]
        found = mean_rank_interval(comparisons, [one.band for one in several])
        times = statistics.median(len(one.trainings) for one in self.networks) / half
        return Interval(*(of_longer(tau, times) for tau in (found.value, found.low, found.high)))


def no_truth(folder: Path) -> str:
    """What is wrong with a folder that holds no ground truth, for people."""
    return f"{folder}: has no {NETWORKS}; expected a folder of ground truth"


def is_truth(source: str) -> bool:
    """Whether a source of trainings is a folder of ground truth; of one that is gone its name says so."""
    path = Path(source)
    return lookup.is_file(path / NETWORKS) or ("/" in source and path.suffix != ".csv" and not lookup.is_file(path))


def _halves(count: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every two sets without a common member of half of so many trainings, once."""
    for first in combinations(range(count), count // 2):
        rest = [one for one in range(count) if one not in first]
        yield from ((first, second) for second in combinations(rest, count // 2) if first < second)


def _mean(network: TrainedNetwork, trainings: Sequence[int]) -> float:
    return statistics.fmean(network.trainings[number].top1 for number in trainings)


def _trainings(folder: Path) -> dict[str, tuple[Training, ...]]:
    found: dict[str, list[Training]] = {}
    for path in sorted((folder / ROWS).glob("*.json")):
        row = _read(path)
        try:
            found.setdefault(str(row["name"]), []).append(Training.read(row))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidFile(f"{path}: is no training of a ground truth: {error!r}") from None
    return {name: tuple(sorted(rows, key=lambda one: one.seed)) for name, rows in found.items()}


def _scores(path: Path) -> dict[str, dict[str, tuple[float, float]]]:
    if not path.is_file():
        return {}
    try:
        return {
            evaluator: {name: (_number(score), float(seconds)) for name, (score, seconds) in scores.items()}
            for evaluator, scores in _read(path).items()
        }
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidFile(f"{path}: expected evaluator -> network -> [score, seconds]: {error!r}") from None


def _number(score: float | None) -> float:
    return math.nan if score is None else float(score)


def _rounded(score: float) -> float | None:
    return float(f"{score:.7g}") if math.isfinite(score) else None


def _read(path: Path) -> Any:
    try:
        return read_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: {error}") from None
