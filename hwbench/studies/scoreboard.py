"""How well scores rank trained networks, by evaluator, beside what is possible: one row for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from typing import Any, Protocol

from hwbench.studies.ground_truth import GroundTruth, TrainedNetwork
from hwbench.studies.ranking import (
    Interval,
    chance_regret,
    mean_rank_interval,
    of_unlike,
    precision_at,
    rank_interval,
    regret,
)

# Networks below which nothing is said of an evaluator.
FEWEST = 8
# What makes a pair of networks say something.
_DIFFER = "differ in score and top-1"


class Judged(Protocol):
    """A network that was trained."""

    @property
    def band(self) -> str:
        """Networks of one band take about the same time."""
        ...

    @property
    def top1(self) -> float:
        """Top-1 accuracy, a share."""
        ...


@dataclass(frozen=True)
class Standing:
    """What an evaluator is worth.

    Attributes:
        evaluator: Its name.
        networks: Trained networks that it has scored.
        tau: Kendall's tau-b of score and top-1 within bands, with a 95 % interval; of fewer networks than ``FEWEST``
            the bounds are nan, since a bootstrap over so few says nothing. They are nan, too, where too few networks of
            one band differ (``rank_interval``).
        precision: Share of its five first choices that are among the five best, mean over bands.
        regret: Top-1 that its first choice loses to the best, a share, mean over bands.
        cost_s: Mean CPU time of a score in seconds; None: not known.
        share: ``tau`` over that of the ceiling; None where there is no ceiling. The beginning of a training is compared
            with what a whole one in its place would say.
    """

    evaluator: str
    networks: int
    tau: Interval
    precision: float
    regret: float
    cost_s: float | None = None
    share: float | None = None

    @property
    def judged(self) -> bool:
        """Whether there are enough networks, and enough of one band that differ, to judge the evaluator by."""
        return self.networks >= FEWEST and math.isfinite(self.tau.low)

    @property
    def informative(self) -> bool:
        """Whether the scores say something: the evaluator is judged, and the interval is above zero."""
        return self.judged and self.tau.low > 0

    @property
    def verdict(self) -> str:
        """For people, in a word or two."""
        if self.networks < FEWEST:
            return f"too few networks ({self.networks} of {FEWEST})"
        if not self.judged:
            return f"too few networks of one latency {_DIFFER}"
        return "informative" if self.informative else "uninformative: the interval holds zero"

    def to_json(self) -> dict[str, Any]:
        """One of ``evaluators`` of ``hwbench scoreboard --json``; what is not a number or not known is null."""
        values = asdict(self) | {"tau": self.tau.value, "tau_low": self.tau.low, "tau_high": self.tau.high}
        values |= {"informative": self.informative if self.judged else None}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value for name, value in values.items()
        }


@dataclass(frozen=True)
class Scoreboard:
    """All evaluators on the same networks, best first.

    Attributes:
        standings: One for each evaluator.
        networks: Number of trained networks that they are judged on.
        ceiling: Rank correlation with as many other trainings of the same networks; None where none was trained twice.
        chance_regret: Top-1 that a random network loses to the best of its band, a share.
        cost_s: Mean CPU time of a whole training; None: not known.
        others: Number of networks that were trained less often, and are only learned from.
    """

    standings: tuple[Standing, ...]
    networks: int
    ceiling: Interval | None
    chance_regret: float
    cost_s: float | None
    others: int = 0

    @property
    def best(self) -> Standing | None:
        """The evaluator that earns to be used: the highest informative one."""
        return next((one for one in self.standings if one.informative), None)

    @property
    def verdict(self) -> str:
        """For people, in a line."""
        if self.best is not None:
            return f"best: {self.best.evaluator}"
        if all(one.networks < FEWEST for one in self.standings):
            return f"too few networks to judge evaluators by: {self.networks} of {FEWEST}"
        if not any(one.judged for one in self.standings):
            return f"too few networks of one latency {_DIFFER} to judge evaluators by"
        return "none of them is informative"


def standing(
    evaluator: str,
    networks: Sequence[Judged],
    scores: Sequence[float],
    *,
    cost_s: float | None = None,
    ceiling: Interval | None = None,
) -> Standing:
    """What the scores of one evaluator are worth; networks whose score is not finite are left out."""
    known = [(network, score) for network, score in zip(networks, scores, strict=True) if math.isfinite(score)]
    truths, bands = [network.top1 for network, _ in known], [network.band for network, _ in known]
    values = [score for _, score in known]
    if len(known) < 2:
        nothing = float("nan")
        return Standing(evaluator, len(known), Interval(nothing, nothing, nothing), nothing, nothing, cost_s)
    tau = _enough(rank_interval(values, truths, bands), len(known))
    share = _share(tau, ceiling)
    lost, first = regret(values, truths, bands), precision_at(values, truths, bands)
    return Standing(evaluator, len(known), tau, first, lost, cost_s, share)


def scoreboard(truth: GroundTruth, bands: Sequence[str] | None = None) -> Scoreboard:
    """What every evaluator with scores in a ground truth is worth, and what its own early epochs are.

    Args:
        truth: Trained networks with the scores of evaluators; those that were trained most often are judged on.
        bands: Only networks of these; default: all.
    """
    known = tuple(one for one in truth.networks if bands is None or one.band in bands)
    networks = replace(truth, networks=known).judged
    ceiling = replace(truth, networks=networks).ceiling
    found = []
    for evaluator, scores in truth.scores.items():
        scored = [one for one in networks if one.name in scores]
        values, seconds = [scores[one.name][0] for one in scored], [scores[one.name][1] for one in scored]
        if scored:
            cost_s = sum(seconds) / len(seconds)
            found.append(standing(evaluator, scored, values, cost_s=cost_s, ceiling=ceiling))
    found += [_of_curves(name, networks, score, ceiling) for name, score in _early(networks).items()]
    return Scoreboard(
        tuple(sorted(found, key=lambda one: -one.tau.value if math.isfinite(one.tau.value) else math.inf)),
        len(networks),
        ceiling,
        chance_regret([one.top1 for one in networks], [one.band for one in networks]),
        _cost_s(networks),
        len(known) - len(networks),
    )


def _cost_s(networks: Sequence[TrainedNetwork]) -> float | None:
    """Mean CPU time of the trainings that had no GPU; None where all had one."""
    costs = [training.cost_s for one in networks for training in one.trainings if training.cost_s is not None]
    return fmean(costs) if costs else None


def _early(networks: Sequence[TrainedNetwork]) -> Mapping[str, Any]:
    """What the beginning of a training says: its name -> (score of a training, share of the training)."""
    epochs = min((len(training.curve) for one in networks for training in one.trainings), default=0)
    found: dict[str, Any] = {}
    for count in sorted({epochs // 6, epochs // 4, epochs // 2} - {0}):
        found[f"top-1 after {count} of {epochs} epochs"] = (lambda t, n=count: t.curve[n - 1], count / epochs)
        quarters = count * 4
        found[f"losses of {count} of {epochs} epochs"] = (lambda t, n=quarters: -sum(t.losses[:n]), count / epochs)
    return found


def _of_curves(
    name: str, networks: Sequence[TrainedNetwork], score: tuple[Any, float], ceiling: Interval | None
) -> Standing:
    """The beginning of each training against the end of the others of a network: no seed is held against itself."""
    of_training, part = score
    several = [one for one in networks if len(one.trainings) > 1]
    bands, comparisons = [one.band for one in several], list[tuple[list[float], list[float]]]()
    for number in range(min((len(one.trainings) for one in several), default=0)):
        begun = [of_training(one.trainings[number]) for one in several]
        ends = [fmean(t.top1 for at, t in enumerate(one.trainings) if at != number) for one in several]
        comparisons.append((begun, ends))
    if not comparisons:
        return standing(name, [], [])
    tau = _enough(mean_rank_interval(comparisons, bands), len(several))
    of_ceiling, own = (median(len(one.trainings) for one in each) for each in (networks, several))
    whole = None if ceiling is None else _whole(ceiling, of_ceiling, own - 1)
    precision = fmean(precision_at(begun, ends, bands) for begun, ends in comparisons)
    lost = fmean(regret(begun, ends, bands) for begun, ends in comparisons)
    whole_s = _cost_s(several)
    cost_s = None if whole_s is None else part * whole_s
    return Standing(name, len(several), tau, precision, lost, cost_s, _share(tau, whole))


def _enough(tau: Interval, networks: int) -> Interval:
    """A rank correlation without its bounds where there are too few networks for these."""
    return tau if networks >= FEWEST else Interval(tau.value, math.nan, math.nan)


def _whole(ceiling: Interval, trainings: float, others: float) -> Interval:
    """What one training says of so many others, where means of so many ``trainings`` agree by the ceiling."""
    bounds = (ceiling.value, ceiling.low, ceiling.high)
    return Interval(*(of_unlike(tau, trainings, 1, others) for tau in bounds))


def _share(tau: Interval, ceiling: Interval | None) -> float | None:
    return None if ceiling is None or not ceiling.value > 0 else tau.value / ceiling.value
