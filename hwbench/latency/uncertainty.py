"""How far off a latency may be: variances of logarithms that are known to few degrees of freedom, and their sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.latency.significance import Variances, tails

# More degrees of freedom make no difference in the third digit of a quantile.
_MOST_DEGREES = 400.0


@dataclass(frozen=True)
class Uncertainty:
    """The distribution of the logarithm of a ratio around zero: a scaled Student's t.

    Attributes:
        variance: Squared scale.
        degrees: Degrees of freedom to which the variance is known; infinity: exactly.
    """

    variance: float
    degrees: float = math.inf

    @classmethod
    def of_deviation(cls, deviation: float, degrees: float = math.inf) -> Uncertainty:
        """From a standard deviation, relative."""
        return cls(deviation**2, degrees)

    @property
    def deviation(self) -> float:
        """The scale: a standard deviation, relative."""
        return math.sqrt(self.variance)

    def updated(self, errors: Sequence[float], degrees: float) -> Uncertainty:
        """This as the prior of a variance, and errors that speak of it: their mean square, to so many degrees.

        The posterior of a scaled inverse chi-square prior: degrees add up, and variances weighted by them (Gelman et
        al., Bayesian Data Analysis, 3rd edition, section 2.6).
        """
        if not errors or degrees <= 0:
            return self
        square = math.fsum(error**2 for error in errors) / len(errors)
        both = self.degrees + degrees
        return Uncertainty((self.degrees * self.variance + degrees * square) / both, both)

    def times(self, factor: float) -> Uncertainty:
        """The variance times a factor, known as well as before."""
        return Uncertainty(factor * self.variance, self.degrees)

    def __add__(self, other: Uncertainty) -> Uncertainty:
        """Of the sum of two independent errors; its degrees are those of Welch and Satterthwaite."""
        total = self.variance + other.variance
        parts = sum(one.variance**2 / one.degrees for one in (self, other))
        return Uncertainty(total, total**2 / parts if parts else math.inf)

    def spread(self, share: float) -> float:
        """Factor of the interval, either way, that holds this share."""
        return math.exp(student_t((1 + share) / 2, self.degrees) * self.deviation)

    def margin(self, confidence: float) -> float:
        """Factor that is not exceeded with this probability; at least 1."""
        return math.exp(student_t(max(confidence, 0.5), self.degrees) * self.deviation)

    def chance(self, log_room: float) -> float:
        """The probability of at most ``exp(log_room)``."""
        if not self.variance:
            return float(log_room >= 0)
        variances = Variances(np.array([self.variance]), np.array([min(self.degrees, _MOST_DEGREES)]))
        both = float(tails(np.array([log_room]), variances)[0])
        return 1 - both / 2 if log_room >= 0 else both / 2


# Of what is not uncertain at all.
CERTAIN = Uncertainty(0.0)


@functools.lru_cache(maxsize=1024)
def student_t(probability: float, degrees: float) -> float:
    """The quantile of Student's t at a probability from 1/2 on, by bisection."""
    if not 0.5 <= probability < 1:
        raise ValueError(f"expected a probability from 0.5 to below 1, got {probability}")
    known = Variances(np.ones(1), np.array([min(degrees, _MOST_DEGREES)]))
    low, high = 0.0, 1.0
    while tails(np.array([high]), known)[0] / 2 > 1 - probability:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        above = tails(np.array([middle]), known)[0] / 2 > 1 - probability
        low, high = (middle, high) if above else (low, middle)
    return (low + high) / 2
