"""Two networks on the same videos: by how much one is better, with an interval over videos.

Networks that are tested on the same videos share what makes a video hard. The difference by video leaves that out, so
its interval is narrower than those of two accuracies side by side. Loads neither torch nor Optuna.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwbench.studies.ranking import Floats, Interval

# Share of the intervals that hold the truth, of all comparisons of a round together.
LEVEL = 0.95
# Samples of videos that an interval rests on.
_SAMPLES = 2000


@dataclass(frozen=True, eq=False)
class VideoResults:
    """What a network says of each validation video.

    Attributes:
        hits: Whether its highest score is right, shape (videos,).
        losses: Negative log-likelihood of the right class in nats, shape (videos,).
    """

    hits: NDArray[np.bool_]
    losses: Floats

    @property
    def top1(self) -> float:
        """Share of videos whose highest score is right."""
        return float(self.hits.mean())

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood in nats."""
        return float(self.losses.mean())


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

    Videos are drawn anew (bootstrap, Efron 1979); bounds are percentiles. Each interval has a level of
    1 - (1 - ``LEVEL``) / comparisons (Bonferroni), so that all of them hold the truth with ``LEVEL``.

    Args:
        first: The network.
        others: What it is compared with.
        seed: Of the draws of videos, which are the same for all of them.

    Raises:
        ValueError: They were not tested on the same number of videos, or on none.
    """
    count = len(first.hits)
    if not count or any(len(one.hits) != count for one in others):
        raise ValueError(f"results of {[len(one.hits) for one in (first, *others)]} videos are no pairs")
    if not others:
        return ()
    gained = np.array([[first.hits.astype(float) - o.hits, o.losses - first.losses] for o in others])
    rng = np.random.default_rng(seed)
    samples = np.array([gained[..., rng.integers(count, size=count)].mean(-1) for _ in range(_SAMPLES)])
    tail = (1 - LEVEL) / max(len(others), 1) / 2
    return tuple(
        PairedDifference(*(_interval(gained[i, j], samples[:, i, j], tail) for j in range(2)))
        for i in range(len(others))
    )


def _interval(values: Floats, samples: Floats, tail: float) -> Interval:
    low, high = np.quantile(samples, [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high))
