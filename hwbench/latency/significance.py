"""Which of many small differences are more than chance, where each is known from a handful of sessions only."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hwbench.specs.timing import student_t95

Floats = npt.NDArray[np.float64]

# More of them make a chance of 1 in 20 smaller by less than a fiftieth.
_MOST_DEGREES = 400.0
_SMALLEST = 1e-300
# The range of six values holds what they scatter around with 97 %, that of five with 94 %, and that of one never.
RANGE_FROM = 6
# More of them leave the 95 % quantile as it is, to a ten-thousandth.
_TABULATED = 10_000


@dataclass(frozen=True)
class Variances:
    """Variances with the degrees of freedom they are known to; element by element."""

    values: Floats
    degrees: Floats

    def __add__(self, other: Variances) -> Variances:
        """The variance of a sum or difference; its degrees are those of Welch and Satterthwaite."""
        total = self.values + other.values
        parts = self.values**2 / self.degrees + other.values**2 / other.degrees
        return Variances(total, total**2 / np.maximum(parts, _SMALLEST))

    def plus(self, known: float | Floats) -> Variances:
        """With variances added that are known exactly."""
        total = self.values + known
        return Variances(total, self.degrees * (total / self.values) ** 2)


def t95(degrees: Floats) -> Floats:
    """Two-sided 95 % quantiles of Student's t, by whole degrees of freedom from 1 on."""
    whole = np.clip(np.round(degrees), 1, _TABULATED).astype(int)
    found: Floats = _tabulated_t95()[whole - 1]
    return found


@functools.cache
def _tabulated_t95() -> Floats:
    return np.array([student_t95(degrees) for degrees in range(1, _TABULATED + 1)])


def half_widths(variances: Variances) -> Floats:
    """Half the width of 95 % intervals."""
    return np.asarray(t95(variances.degrees) * np.sqrt(variances.values), dtype=np.float64)


def variances_within(halves: Floats, degrees: Floats, known: float | Floats, least: float | Floats) -> Variances:
    """The variances whose 95 % intervals have these half-widths once ``known`` ones are added.

    The inverse of ``half_widths(variances.plus(known))``, by bisection on a logarithmic scale; ``least`` where an
    interval is narrower than what is known makes it.
    """
    low = np.broadcast_to(np.asarray(least, dtype=np.float64), halves.shape)
    high = np.maximum(low, halves**2)
    for _ in range(40):
        middle = np.sqrt(low * high)
        wide = half_widths(Variances(middle, degrees).plus(known)) > halves
        low, high = np.where(wide, low, middle), np.where(wide, middle, high)
    return Variances(np.sqrt(low * high), degrees)


def moderated(found: Variances) -> Variances:
    """Variances drawn towards what is usual among all of them, as far as they are alike.

    Two degrees of freedom make a variance that is a hundred times too small now and then. All variances are taken to be
    drawn from a scaled inverse chi-square distribution, whose scale and degrees are fitted to the mean and variance of
    their logarithms (Smyth 2004, Linear models and empirical Bayes methods, section 6.2).
    """
    if len(found.values) < 3:
        return found
    half = found.degrees / 2
    logs = np.log(found.values) - _digamma(half) + np.log(half)
    left = float(np.var(logs, ddof=1) - np.mean(_trigamma(half)))
    if left <= 0:
        return Variances(np.full_like(half, math.exp(float(np.mean(logs)))), np.full_like(half, 2 * float(sum(half))))
    prior = _inverse_trigamma(left)
    scale = math.exp(float(np.mean(logs) + _digamma(np.array([prior]))[0]) - math.log(prior))
    degrees = found.degrees + 2 * prior
    return Variances((2 * prior * scale + found.degrees * found.values) / degrees, degrees)


def tails(differences: Floats, variances: Variances) -> Floats:
    """The chance that Student's t is as far from zero as each difference, on either side."""
    squares = differences**2 / variances.values
    degrees = np.minimum(variances.degrees, _MOST_DEGREES)
    # With t = sqrt(n) tan(a) the density is that of cos(a)^(n-1), which is smooth: 100 points give six digits.
    nodes, weights = np.polynomial.legendre.leggauss(100)
    start = np.arctan(np.sqrt(squares / degrees))
    half = (math.pi / 2 - start) / 2
    angles = start[:, None] + half[:, None] * (nodes + 1)
    area = (np.cos(angles) ** (degrees[:, None] - 1)) @ weights * half
    whole = [math.lgamma(n / 2) - math.lgamma((n + 1) / 2) for n in degrees]
    both: Floats = 2 * area / (math.sqrt(math.pi) * np.exp(whole))
    return np.clip(both, _SMALLEST, 1.0)


def unexplained(differences: Floats, variances: Variances) -> float:
    """The standard deviation that the differences have beyond their variances; 0 where these are enough.

    It is the one with which the middle half of the differences is as wide as expected: the random effect of a
    meta-analysis (DerSimonian and Laird 1986), from the median square, which few large differences do not move, as in
    Efron 2004 (Large-scale simultaneous hypothesis testing: the choice of a null hypothesis).
    """

    def width(deviation: float) -> float:
        total = variances.plus(deviation**2)
        return float(np.median(differences**2 / total.values / _median_of_t(total.degrees) ** 2))

    low, high = 0.0, float(np.max(np.abs(differences)))
    if not high or width(low) <= 1:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if width(middle) > 1 else (low, middle)
    return (low + high) / 2


def _median_of_t(degrees: Floats) -> Floats:
    """Median of the absolute value of Student's t: that of a normal number, by the Cornish-Fisher expansion."""
    z = 0.6745
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def false_discovery_rates(chances: Floats) -> Floats:
    """For each chance the share of false ones among all that are as small (Benjamini and Hochberg 1995)."""
    order = np.argsort(chances)[::-1]
    ranks = np.arange(len(chances), 0, -1)
    rates = np.empty_like(chances)
    rates[order] = np.clip(np.minimum.accumulate(chances[order] * len(chances) / ranks), 0.0, 1.0)
    return rates


def median_interval(values: Floats, variances: Variances | None = None) -> tuple[float, float]:
    """95 % interval of a median by order statistics: what is true of any distribution. The level is 95 % or more.

    Fewer than ``RANGE_FROM`` values hold it in their range less often. It is widened to what Student's t makes of the
    variances of all of them, to the fewest degrees of any; without variances it is the range, whatever its level.
    """
    ordered = np.sort(values)
    rank = _left_out(len(ordered))
    low, high = float(ordered[rank]), float(ordered[-1 - rank])
    if variances is None or len(ordered) >= RANGE_FROM:
        return low, high
    of_mean = Variances(np.mean(variances.values, keepdims=True) / len(ordered), variances.degrees.min(keepdims=True))
    centre, half = float(np.median(ordered)), float(half_widths(of_mean)[0])
    return min(low, centre - half), max(high, centre + half)


def _left_out(number: int) -> int:
    """How many of so many values the 95 % interval of their median leaves out at either end.

    The most of which the chance is 1 in 40 or less that no more values than that are below the median; 0 of few values.
    """
    left_out, ways, next_ways = 0, 1, number  # in whole numbers, of 2**number
    while 40 * (ways + next_ways) <= 2**number:
        left_out, ways = left_out + 1, ways + next_ways
        next_ways = next_ways * (number - left_out) // (left_out + 1)
    return left_out


def _digamma(x: Floats) -> Floats:
    """Logarithmic derivative of the gamma function: recurrence up to 6, then the asymptotic series."""
    shift = np.zeros_like(x)
    for _ in range(6):
        shift, x = np.where(x < 6, shift - 1 / x, shift), np.where(x < 6, x + 1, x)
    return shift + np.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - 1 / (252 * x**6)


def _trigamma(x: Floats) -> Floats:
    """Derivative of ``_digamma``, in the same way."""
    shift = np.zeros_like(x)
    for _ in range(6):
        shift, x = np.where(x < 6, shift + 1 / x**2, shift), np.where(x < 6, x + 1, x)
    return shift + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5) + 1 / (42 * x**7)


def _inverse_trigamma(value: float) -> float:
    """Where ``_trigamma``, which falls, has a value; by bisection on a logarithmic scale."""
    low, high = 1e-6, 1e8
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(np.array([middle]))[0] > value else (low, middle)
    return math.sqrt(low * high)
