"""How good predictions are: predicted against measured, over networks that were never used for calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import InvalidValue
from hwbench.specs import Estimate


@dataclass(frozen=True)
class Comparison:
    """One network: what was predicted and what was measured, in seconds."""

    name: str
    predicted: Estimate
    measured_s: float

    @property
    def error(self) -> float:
        """Relative error of the prediction, with its sign: (predicted - measured) / measured."""
        return (self.predicted.seconds - self.measured_s) / self.measured_s

    @property
    def covered(self) -> bool:
        """Whether the interval holds the measured latency."""
        return self.predicted.low_s <= self.measured_s <= self.predicted.high_s


@dataclass(frozen=True)
class Validation:
    """Summary over networks. All shares are fractions 0-1; ``nominal`` is what ``coverage`` should be."""

    networks: int
    median_error: float
    mape: float
    within_5: float
    within_10: float
    spearman: float
    coverage: float
    nominal: float

    @classmethod
    def of(cls, comparisons: Sequence[Comparison], nominal: float) -> Validation:
        """Sums up at least two networks.

        Raises:
            InvalidValue: Fewer than two: there is nothing to rank.
        """
        if len(comparisons) < 2:
            raise InvalidValue(f"validation: expected at least 2 measured networks, got {len(comparisons)}")
        errors = [abs(c.error) for c in comparisons]
        return cls(
            networks=len(comparisons),
            median_error=median(errors),
            mape=fmean(errors),
            within_5=fmean(e <= 0.05 for e in errors),
            within_10=fmean(e <= 0.10 for e in errors),
            spearman=spearman([c.predicted.seconds for c in comparisons], [c.measured_s for c in comparisons]),
            coverage=fmean(c.covered for c in comparisons),
            nominal=nominal,
        )


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation; equal values share their mean rank. Zero where one side has only equal values."""
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    if not (np.ptp(ranks_a) and np.ptp(ranks_b)):
        return 0.0
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=float)
    return np.array([(array < v).sum() + ((array == v).sum() - 1) / 2 for v in array])
