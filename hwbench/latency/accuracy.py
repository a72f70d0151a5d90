"""How far off predictions of networks are that nothing was fitted to: an upper limit, by what was left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median

from hwbench.errors import NotMeasured
from hwbench.latency.predictor import AdditivePredictor
from hwbench.latency.table import LatencyTable
from hwbench.specs import Workload

# With which the limit of an error holds.
CONFIDENCE = 0.9


@dataclass(frozen=True)
class PredictionAccuracy:
    """What networks that were left out say of all others.

    Attributes:
        networks: How many were left out, one at a time.
        error: Median of their |log(measured / predicted)|.
        bound: Upper limit of that median over all networks that are drawn alike, with the confidence asked for.
    """

    networks: int
    error: float
    bound: float

    @classmethod
    def of(cls, errors: Sequence[float], confidence: float = CONFIDENCE) -> PredictionAccuracy:
        """From log(measured / predicted) of networks, each by a fit to the others.

        The limit is an order statistic: with a confidence of 0.9 of 4 errors the largest, of 9 the 7th, of 20 the 14th,
        of 40 the 25th. It holds whatever their distribution is (the sign test; Conover 1999, 3.2), and one that is far
        off does not move it.

        Raises:
            NotMeasured: There are too few for that confidence: with 0.9 fewer than four, with 0.95 fewer than five.
        """
        sizes = sorted(map(abs, errors))
        rank = _median_rank(len(sizes), confidence)
        if rank is None:
            raise NotMeasured(f"accuracy: {len(sizes)} networks that were left out are too few for {confidence:.0%}")
        return cls(len(sizes), median(sizes), sizes[rank - 1])


def left_out_errors(
    table: LatencyTable, networks: Collection[Workload], *, space: str | None = None, members: int | None = None
) -> list[float]:
    """log(measured / predicted) of measured networks, each predicted by a calibration that does not know it.

    Rows, filled in or measured, are single blocks: no network takes part in them. Both times are on the scale of the
    rows: by how much another day is slower (``Scale``) is no error of a prediction.

    Args:
        table: With rows for all blocks of the networks, filled in where they were not measured.
        networks: Those that are judged; the calibration rests on all others of the table as well. One without a
            latency is passed over; one with a block that has no row is infinitely far off.
        space: Named in messages.
        members: Number of networks of the space.

    Raises:
        NotMeasured: Too few networks are left to calibrate with.
    """
    errors = []
    for network in networks:
        stats = table.latency(network)
        if stats is not None:
            others = AdditivePredictor.fit(table, space=space, emulated=True, members=members, left_out=(network,))
            try:
                errors.append(math.log(others.scale * stats.median_s / others.predict(network).seconds))
            except NotMeasured:
                errors.append(math.inf)
    return errors


def _median_rank(count: int, confidence: float) -> int | None:
    """Rank of the first of ``count`` ascending values that is above their median with a confidence; None: none is."""
    below = itertools.accumulate(math.comb(count, rank) / 2**count for rank in range(count))
    return next((rank for rank, probability in enumerate(below, start=1) if probability >= confidence), None)
