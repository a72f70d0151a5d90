"""Two networks on the same videos: by how much one is better, with an interval over videos.

Networks that are tested on the same videos share what makes a video hard. The difference by video leaves that out, so
its interval is narrower than those of two accuracies side by side. Loads neither torch nor Optuna.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit

from hwbench.studies.ranking import Floats, Interval

# Share of the intervals that hold the truth, of all comparisons of a round together.
LEVEL = 0.95
# Samples of videos that an interval rests on, at least; and how many of them lie beyond each bound.
_SAMPLES, _BEYOND = 2000, 10


@dataclass(frozen=True, eq=False)
class VideoResults:
    """What a network says of each validation video.

    Attributes:
        hits: Whether its highest score is right, shape (videos,). A video counts once, however many views of it were
            looked at: their scores are averaged before.
        losses: Negative log-likelihood of the right class in nats, shape (videos,).
        videos: Name of each video; empty: the videos of all networks that are compared are the same ones.
    """

    hits: NDArray[np.bool_]
    losses: Floats
    videos: tuple[str, ...] = ()

    @property
    def top1(self) -> float:
        """Share of videos whose highest score is right."""
        return float(self.hits.mean())

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood in nats."""
        return float(self.losses.mean())

    @property
    def _places(self) -> dict[tuple[str, int, int], int]:
        """The place of each video by its name, and of one that stands there several times, which of how many it is."""
        counts, seen = Counter(self.videos), Counter[str]()
        places = {}
        for place, name in enumerate(self.videos):
            seen[name] += 1
            places[name, seen[name], counts[name]] = place
        return places


def on_shared_videos(results: Sequence[VideoResults]) -> tuple[VideoResults, ...]:
    """Results of networks by those videos alone that every one of them has, in the order of the first; maybe of none.

    A video that stands several times in a list, such as parts of one file, is shared where all have it as often.
    Results without names are left as they are.
    """
    if not results or not all(one.videos for one in results):
        return tuple(results)
    places = [one._places for one in results]
    shared = [key for key in places[0] if all(key in others for others in places[1:])]
    rows = ([of_one[key] for key in shared] for of_one in places)
    names = tuple(name for name, _, _ in shared)
    return tuple(VideoResults(one.hits[row], one.losses[row], names) for one, row in zip(results, rows, strict=True))


@dataclass(frozen=True)
class PairedDifference:
    """What the first of two networks is better by, on the same videos.

    Attributes:
        top1: Its top-1 minus that of the second, a share.
        loss: The loss of the second minus its own, in nats.
    """

    top1: Interval
    loss: Interval


def paired_differences(
    first: VideoResults, others: Sequence[VideoResults], *, seed: int = 0
) -> tuple[PairedDifference, ...]:
    """What a network is better by than each of some others, with intervals that hold together.

    Videos are drawn anew (bootstrap, Efron 1979); bounds are percentiles. Which network leads is seen on the same
    videos, so any pair of the round might have been compared: each interval has a level of 1 - (1 - ``LEVEL``) / pairs
    (Bonferroni), K (K - 1) / 2 of them, so that all of them hold the truth with ``LEVEL``.

    Percentiles are too sure where few videos tell two networks apart. Bounds of top-1 are therefore no closer than the
    exact ones (``_exact_bounds``): an interval is above zero only where McNemar's exact test says so at that level.
    Bounds of the loss are no closer than those of a normal mean (``_student_bounds``). They are still too sure where a
    few videos make most of a loss: of log-normal losses, whose logarithms have a deviation of 1.2, the intervals of 10
    to 30 videos hold the truth in 85 to 90 of 100 cases (in 78 to 88 by percentiles alone).

    Args:
        first: The network, as a rule the best of all.
        others: What it is compared with.
        seed: Of the draws of videos, which are the same for all of them.

    Raises:
        ValueError: They were not tested on the same videos (``on_shared_videos``), or on none.
    """
    count = len(first.hits)
    if not count or any(len(one.hits) != count or one.videos != first.videos for one in others):
        raise ValueError(f"results of {[len(one.hits) for one in (first, *others)]} videos are no pairs")
    if not others:
        return ()
    gained = np.array([[first.hits.astype(float) - o.hits, o.losses - first.losses] for o in others])
    pairs = (len(others) + 1) * len(others) / 2
    tail = (1 - LEVEL) / pairs / 2
    rng, size = np.random.default_rng(seed), max(_SAMPLES, math.ceil(_BEYOND / tail))
    samples = np.array([gained @ _times_drawn(rng, count) / count for _ in range(size)])
    return tuple(
        PairedDifference(
            _wider(_interval(top1, samples[:, i, 0], tail), _exact_bounds(top1, tail)),
            _wider(_interval(loss, samples[:, i, 1], tail), _student_bounds(loss, tail)),
        )
        for i, (top1, loss) in enumerate(gained)
    )


def _times_drawn(rng: np.random.Generator, count: int) -> NDArray[np.intp]:
    """How often each video is in a sample of as many videos."""
    return np.bincount(rng.integers(count, size=count), minlength=count)


def _interval(values: Floats, samples: Floats, tail: float) -> Interval:
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high))


def _exact_bounds(gained: Floats, tail: float) -> tuple[float, float]:
    """Bounds of a mean difference of hits, given how many videos only one of both networks gets right.

    The share of those videos that the first one gets right has the exact bounds of a binomial share (Clopper and
    Pearson, Biometrika, 1934). The lower one is above a half where the exact test of McNemar (Psychometrika, 1947;
    a sign test) rejects that both are equally good, in favour of the first.

    Args:
        gained: 1 where only the first is right, -1 where only the second is, else 0; shape (videos,).
        tail: Probability beyond each bound.
    """
    wins, losses = int((gained > 0).sum()), int((gained < 0).sum())
    low = float(betaincinv(wins, losses + 1, tail)) if wins else 0.0
    high = float(betaincinv(wins + 1, losses, 1 - tail)) if losses else 1.0
    apart = (wins + losses) / len(gained)
    return (2 * low - 1) * apart, (2 * high - 1) * apart


def _student_bounds(gained: Floats, tail: float) -> tuple[float, float]:
    """Bounds of a mean by Student's t, exact of normal values; the mean itself of a single one.

    Args:
        gained: By how much the loss of the second is larger, in nats; shape (videos,).
        tail: Probability beyond each bound.
    """
    mean, count = float(gained.mean()), len(gained)
    if count == 1:
        return mean, mean
    reach = -float(stdtrit(count - 1, tail)) * float(gained.std(ddof=1)) / math.sqrt(count)
    return mean - reach, mean + reach


def _wider(interval: Interval, bounds: tuple[float, float]) -> Interval:
    return Interval(interval.value, min(interval.low, bounds[0]), max(interval.high, bounds[1]))
