"""How far off predictions of networks are that nothing was fitted to: an upper limit, by what was left out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median

from hwbench.errors import NotMeasured
from hwbench.latency.predictor import AdditivePredictor
from hwbench.latency.table import LatencyTable
from hwbench.specs import Workload

# Of each of two limits, the smaller of which counts: together they hold with at least 0.9.
_CONFIDENCE = 0.95
# Fewer networks say too little of a spread to promise anything.
LEAST_NETWORKS = 4
# Median of |error| in standard deviations, where errors are normal.
_MEDIAN = NormalDist().inv_cdf(0.75)


@dataclass(frozen=True)
class Accuracy:
    """What networks that were left out say of all others.

    Attributes:
        networks: How many were left out, one at a time.
        error: Median of their |log(measured / predicted)|.
        bound: Upper limit of that median over all networks that are drawn alike, with a confidence of 0.9 or more;
            never below ``error``.
    """

    networks: int
    error: float
    bound: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Accuracy:
        """From log(measured / predicted) of at least four networks, each by a fit to the others.

        Two limits hold with 0.95 each, and the smaller one counts. One takes errors for normal: their spread is known
        from its chi-square distribution, so that few networks do. The other takes an order statistic (the sign test),
        which needs more networks and is not moved by one that was measured wrongly.

        Raises:
            NotMeasured: There are fewer than four.
        """
        count = len(errors)
        if count < LEAST_NETWORKS:
            raise NotMeasured(f"accuracy: expected at least {LEAST_NETWORKS} networks that were left out, got {count}")
        sizes = sorted(map(abs, errors))
        spread = math.sqrt(fmean(size**2 for size in sizes) * count / _chi_square(1 - _CONFIDENCE, count))
        rank = _median_rank(count)
        limits = [_MEDIAN * spread] + ([sizes[rank - 1]] if rank <= count else [])
        return cls(count, median(sizes), max(median(sizes), min(limits)))


def left_out_errors(
    table: LatencyTable, networks: Collection[Workload], *, space: str | None = None, members: int | None = None
) -> list[float]:
    """log(measured / predicted) of measured networks, each predicted by a calibration that does not know it.

    Rows, filled in or measured, are single blocks: no network takes part in them.

    Args:
        table: With rows for all blocks of the networks, filled in where they were not measured.
        networks: Those that are judged; the calibration rests on all others of the table as well. One without a
            latency is passed over.
        space: Named in messages.
        members: Number of networks of the space.

    Raises:
        NotMeasured: A block has no row, or too few networks are left to calibrate with.
    """
    errors = []
    for network in networks:
        stats = table.latency(network)
        if stats is not None:
            others = AdditivePredictor.fit(table, space=space, emulated=True, members=members, left_out=(network,))
            errors.append(math.log(stats.median_s / others.predict(network).seconds))
    return errors


def _chi_square(probability: float, degrees: int) -> float:
    """Quantile of the chi-square distribution (Wilson and Hilferty 1931): within 2 % from four degrees on."""
    share = 2 / (9 * degrees)
    return degrees * (1 - share + NormalDist().inv_cdf(probability) * math.sqrt(share)) ** 3


def _median_rank(count: int) -> int:
    """Rank of the value that is above the median with ``_CONFIDENCE``; above ``count`` where none is."""
    below = 0.0
    for rank in range(1, count + 1):
        below += math.comb(count, rank - 1) / 2**count
        if below >= _CONFIDENCE:
            return rank
    return count + 1
