"""Whether a score ranks networks as their trained accuracy does: rank correlation, choices, and what chance leaves.

Networks are compared within groups of like latency (bands): a score that only knows that slower networks are better
would rank across bands, and choose nothing within a budget. Loads neither torch nor Optuna.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Share of the intervals that hold the truth.
LEVEL = 0.95
# Samples of networks that an interval rests on.
_SAMPLES = 2000
# Networks that a precision looks at.
FIRST = 5


@dataclass(frozen=True)
class Interval:
    """A value with its bounds; nan where there is too little to tell."""

    value: float
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether nothing may be there; so it may, too, where nothing is known."""
        return not (self.low > 0 or self.high < 0)


def rank_correlation(scores: Sequence[float], truths: Sequence[float], bands: Sequence[object]) -> float:
    """Kendall's tau-b over the pairs of networks of one band; nan without a pair that differs in both.

    Args:
        scores: What was said of each network.
        truths: What came of it.
        bands: Only networks of an equal band are compared.
    """
    pairs = _Pairs.of(scores, truths, bands)
    return float(pairs.taus(np.ones((1, len(pairs.agreement))))[0])


def rank_interval(scores: Sequence[float], truths: Sequence[float], bands: Sequence[object], seed: int = 0) -> Interval:
    """``rank_correlation`` with the bounds that a bootstrap over networks gives, drawn anew within each band.

    A network that is drawn twice makes no pair with itself. The bounds are percentiles (Efron 1979). They are nan where
    more samples than lie beyond a bound order nothing: too few networks of one band differ in score and truth.
    """
    return mean_rank_interval([(scores, truths)], bands, seed)


def mean_rank_interval(
    comparisons: Sequence[tuple[Sequence[float], Sequence[float]]], bands: Sequence[object], seed: int = 0
) -> Interval:
    """The mean of the rank correlations of several comparisons of the same networks, with bounds as ``rank_interval``.

    Args:
        comparisons: Scores and truths of each; all comparisons have the networks in the same order.
        bands: Only networks of an equal band are compared.
        seed: Of the samples.
    """
    several, rng = [_Pairs.of(scores, truths, bands) for scores, truths in comparisons], np.random.default_rng(seed)

    def means(weights: Floats) -> Floats:
        found: Floats = np.stack([pairs.taus(weights) for pairs in several], axis=1).mean(axis=1)
        return found

    members, weights = _members(bands), np.zeros((_SAMPLES, len(bands)))
    for sample in weights:
        for band in members:
            sample[band] = np.bincount(rng.integers(len(band), size=len(band)), minlength=len(band))
    return _interval(float(means(np.ones((1, len(bands))))[0]), means(weights))


def of_longer(tau: float, times: float) -> float:
    """The rank correlation of two means of ``times`` as many repetitions as the two means that agree by ``tau``.

    Tau is that of a normal correlation (Greiner 1909), which grows with repetitions as Spearman (1910) and Brown (1910)
    say; with ``times`` below one it is that of fewer repetitions. What agrees by less than chance stays at -1 at least.
    """
    r = math.sin(math.pi / 2 * tau)
    rest = 1 + (times - 1) * r
    longer = -1.0 if rest <= 0 else times * r / rest
    return float(2 / math.pi * np.arcsin(np.clip(longer, -1, 1)))


def of_unlike(tau: float, count: float, one: float, other: float) -> float:
    """The rank correlation of a mean of ``one`` with a mean of ``other`` repetitions.

    Two means of ``count`` repetitions agree by ``tau``. The correlation is the geometric mean of those of two means of
    either kind (Spearman 1904); where nothing agrees it is 0.
    """
    alike = [math.sin(math.pi / 2 * of_longer(tau, times / count)) for times in (one, other)]
    return float(2 / math.pi * np.arcsin(math.sqrt(alike[0] * alike[1]))) if min(alike) > 0 else 0.0


def precision_at(
    scores: Sequence[float], truths: Sequence[float], bands: Sequence[object], first: int = FIRST
) -> float:
    """The share of the ``first`` networks by score that are among the ``first`` by truth: a mean over bands.

    A band of so few that chance alone gives one half counts as half of its networks. Of networks with equal values at
    the last of the ``first`` places each is equally likely to have it: the share is the expected one.
    """
    shares = []
    for chosen, found in _by_band(scores, truths, bands):
        count = min(first, len(chosen) // 2)
        if count:
            shares.append(float(_chances(chosen, count) @ _chances(found, count)) / count)
    return float(np.mean(shares)) if shares else float("nan")


def regret(scores: Sequence[float], truths: Sequence[float], bands: Sequence[object]) -> float:
    """By how much the network of the highest score falls short of the best: a mean over bands, in units of truth.

    A band of one network tells nothing; where there are no others the mean is not a number. Of networks that share the
    highest score the mean counts.
    """
    several = [band for band in _by_band(scores, truths, bands) if len(band[1]) > 1]
    lost = [found.max() - found[chosen == chosen.max()].mean() for chosen, found in several]
    return float(np.mean(lost)) if lost else float("nan")


def chance_regret(truths: Sequence[float], bands: Sequence[object]) -> float:
    """``regret`` of a network drawn at random, on average."""
    lost = [found.max() - found.mean() for _, found in _by_band(truths, truths, bands) if len(found) > 1]
    return float(np.mean(lost)) if lost else float("nan")


@dataclass(frozen=True)
class _Pairs:
    """Of each two networks of a band: whether score and truth order them alike (1, -1; 0 where one is equal)."""

    agreement: Floats
    scored: Floats
    true: Floats

    @classmethod
    def of(cls, scores: Sequence[float], truths: Sequence[float], bands: Sequence[object]) -> _Pairs:
        if not len(scores) == len(truths) == len(bands):
            raise ValueError(f"{len(scores)} scores, {len(truths)} truths, {len(bands)} bands")
        same = np.array([[one == other for other in bands] for one in bands], dtype=bool).reshape(len(bands), -1)
        first, second = (np.asarray(values, dtype=float) for values in (scores, truths))
        scored, true = (np.sign(values[:, None] - values[None, :]) * same for values in (first, second))
        return cls(scored * true, np.abs(scored), np.abs(true))

    def taus(self, weights: Floats) -> Floats:
        """Tau-b where each network counts so often, for each row of weights; NaN where nothing is ordered.

        Weights and orders are whole numbers, so that no sum depends on how it is taken.
        """
        parts = (self.agreement, self.scored, self.true)
        both, scored, true = ((weights @ part * weights).sum(axis=1) for part in parts)
        with np.errstate(invalid="ignore"):
            found: Floats = both / np.sqrt(scored * true)
        return found


def _chances(values: Floats, count: int) -> Floats:
    """By network: how likely it is among the ``count`` of the largest values where equal ones are ordered at random."""
    last = np.sort(values)[-count]
    above, level = values > last, values == last
    chances: Floats = above + level * ((count - above.sum()) / level.sum())
    return chances


def _by_band(scores: Sequence[float], truths: Sequence[float], bands: Sequence[object]) -> list[tuple[Floats, Floats]]:
    first, second = (np.asarray(values, dtype=float) for values in (scores, truths))
    return [(first[at], second[at]) for at in _members(bands)]


def _members(bands: Sequence[object]) -> list[NDArray[np.int64]]:
    """The places of the networks of each band."""
    return [np.flatnonzero([band == one for band in bands]) for one in dict.fromkeys(bands)]


def _interval(value: float, samples: Floats) -> Interval:
    known = samples[np.isfinite(samples)]
    if len(known) < len(samples) * (1 + LEVEL) / 2:
        return Interval(value, float("nan"), float("nan"))
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))
