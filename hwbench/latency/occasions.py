"""Occasions: what all latencies of a device have in common on one day and not on another, with an interval.

An occasion is a stretch of measuring without a pause of ten minutes or another start of the host. Rows that were
measured on several occasions, the anchors among them, tell by how much the device was slower on each. Two things are
estimated from them: the shift of each occasion, by which its rows are brought to one scale, and how far occasions lie
apart, which is what a prediction for another day has to allow for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import InvalidValue
from hwbench.latency.significance import Floats, variances_within
from hwbench.latency.uncertainty import CERTAIN, Uncertainty
from hwbench.linear_algebra import one_blas_thread
from hwbench.printable import counted
from hwbench.specs import LatencyStats
from hwbench.specs.timing import student_t95

# A later session belongs to another occasion.
APART_S = 600.0
# Of the change from one occasion to another, before a device has shown any: shared servers changed by 1 to 7 % within
# an hour, phones by 3 to 10 %. Four degrees of freedom: as much as five occasions tell.
BETWEEN_OCCASIONS = Uncertainty.of_deviation(0.05, 4.0)
# Of one row beyond the shift of all, from one occasion to another (experiment 010: 0 to 0.7 %). One degree of freedom:
# rows of other devices scatter by several percent, and a prior for so few of them has to have a long tail (Gelman 2006,
# Prior distributions for variance parameters in hierarchical models, section 7). With four the 95 % intervals of
# anchors that scatter by 3 % had 93 % of the shifts where there are four of them, and 87 % where there are two.
_ROW = Uncertainty.of_deviation(0.007, 1.0)
# Anchors that differ by more than this beyond chance moved apart: no one factor brings a table to the day.
_APART = 0.02
# Rounds of estimating shifts and the scatter of rows around them, and of shifts and their prior; both converge fast.
_ROUNDS = 4
# Inverse variance of a shift of which nothing is known before; not 0, so that rows of no weight leave it at 0.
_NOTHING_KNOWN = 1e-9
_TIME = "%Y-%m-%dT%H:%MZ"
_TIME_PATTERN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", re.ASCII)

RowOccasions = Mapping[int, LatencyStats]
"""What one row was on each occasion that it was measured on, by the number of the occasion."""


@dataclass(frozen=True)
class Scale:
    """The day that predictions of a table speak of, beside the day on which most of its rows were measured.

    Attributes:
        factor: How many times slower the device was on that day than the rows say.
        low: Lower end of its 95 % interval.
        high: Upper end.
        at: When the occasion ended, as ``2026-01-31T22:15Z``.
        between: Of the change to yet another occasion.
        occasions: Number of occasions that tell of ``between``.

    Raises:
        InvalidValue: The factor is not in its interval, the interval is not above zero, or the time is none.
    """

    factor: float
    low: float
    high: float
    at: str
    between: Uncertainty = BETWEEN_OCCASIONS
    occasions: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.low <= self.factor <= self.high < math.inf):
            raise InvalidValue(f"scale: expected a factor inside its interval, got {self.low:.4g} <= {self.factor:.4g}")
        if not _is_time(self.at):
            raise InvalidValue(f"scale: expected a time such as 2026-01-31T22:15Z, got {self.at!r}")

    @classmethod
    def now(cls, moment: datetime) -> str:
        """A moment as ``at`` has it."""
        return moment.astimezone(UTC).strftime(_TIME)

    @property
    def uncertainty(self) -> Uncertainty:
        """Of the factor."""
        return Uncertainty.of_deviation(math.log(self.high / self.low) / 2 / student_t95(1000))

    def __str__(self) -> str:
        """The day, and how far it is from that of the rows."""
        text = f"{self.at.replace('T', ' ').replace('Z', ' UTC')}"
        if self.factor == 1.0:
            return text
        return f"{text}, {self.factor - 1:+.1%} beside the rows ({self.low - 1:+.1%} to {self.high - 1:+.1%})"

    def age_s(self, moment: datetime) -> float:
        """Seconds since the occasion; below zero where the clock that dated it was ahead of the one of now."""
        return (moment - datetime.strptime(self.at, _TIME).replace(tzinfo=UTC)).total_seconds()

    def is_of(self, moment: datetime) -> bool:
        """Whether a moment is of the occasion: a day to come is not, for a clock was wrong, and nothing tells by how
        much."""
        return abs(self.age_s(moment)) <= APART_S

    def on(self, moment: datetime | None) -> Uncertainty:
        """Of log(latency at that moment / what the scaled rows say), as far as all networks share it.

        Args:
            moment: When networks are to run; None: on the occasion of the scale.
        """
        if moment is None or self.is_of(moment):
            return self.uncertainty
        return self.uncertainty + self.between


def _is_time(text: str) -> bool:
    """Whether a text is a time of the calendar as ``Scale.at`` has it."""
    try:
        return _TIME_PATTERN.fullmatch(text) is not None and bool(datetime.strptime(text, _TIME))
    except ValueError:
        return False


def scale_words(scale: Scale | None) -> str:
    """The day that predictions speak of, and what another one may change, for a page."""
    if scale is None:
        return "that of the rows; the table does not say when its last occasion ended"
    known = counted(scale.occasions, "occasion")
    return f"{scale}; another one may differ by ±{scale.between.spread(0.9) - 1:.0%} (90 %, by {known} and a prior)"


def occasion_uncertainty(scale: Scale | None, moment: datetime | None) -> Uncertainty:
    """As ``Scale.on``; a table without a scale does not say when it was taken, so that any moment is another one."""
    if scale is None:
        return CERTAIN if moment is None else BETWEEN_OCCASIONS
    return scale.on(moment)


def between_scales(before: Scale | None, after: Scale | None) -> Uncertainty:
    """Of log(rows of one table / rows of another), as far as the scales that brought them to their days are unsure.

    A table without a scale stands as it was measured, and a scale cancels beside itself.
    """
    if before == after:
        return CERTAIN
    one, other = (CERTAIN if scale is None else scale.uncertainty for scale in (before, after))
    return one + other


@dataclass(frozen=True)
class Shift:
    """By how much the device was slower on one occasion than on the reference: a logarithm and its 95 % half-width."""

    log: float
    half: float

    @property
    def factor(self) -> float:
        """How many times slower."""
        return math.exp(self.log)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval of the factor."""
        return math.exp(self.log - self.half)

    @property
    def high(self) -> float:
        """Upper end."""
        return math.exp(self.log + self.half)


@dataclass(frozen=True)
class OccasionShifts:
    """The shifts of occasions that rows tie to a reference.

    Attributes:
        by_occasion: Of each occasion that shares rows with the reference, which has 0 itself.
        between: Of the change from one occasion to another.
        deviation: Of a row around the shift of all, relative.
        residuals: By number of the row and occasion: log of what the row is slower by than all together.
    """

    by_occasion: Mapping[int, Shift]
    between: Uncertainty
    deviation: float
    residuals: Mapping[tuple[int, int], float]

    @property
    def apart(self) -> bool:
        """Rows moved apart, beyond what their sessions explain: the shift is not common."""
        return self.deviation > _APART

    def moved(self, occasion: int) -> dict[int, float]:
        """By number of each row: log of what it is slower by on an occasion than on its others, beside all together.

        A residual alone has the occasion itself in the mean of its row: of two occasions it shows half of the move.
        """
        elsewhere: dict[int, list[float]] = {}
        for (row, at), value in self.residuals.items():
            if at != occasion and (row, occasion) in self.residuals:
                elsewhere.setdefault(row, []).append(value)
        return {row: self.residuals[row, occasion] - fmean(values) for row, values in elsewhere.items()}


@one_blas_thread()
def occasion_shifts(
    rows: Sequence[RowOccasions], reference: int, between: Mapping[int, float] | None = None
) -> OccasionShifts:
    """Estimates the shifts of occasions from the rows that were measured on several of them.

    The logarithm of a row on an occasion is that of the row, plus the shift of the occasion, plus an error of its
    sessions, plus what moves the row by itself: a model with random effects (DerSimonian and Laird 1986 for one
    occasion; Henderson 1975 for all). The shift has a Student's t prior of ``BETWEEN_OCCASIONS``: an occasion that a
    single noisy row ties to the reference is hardly moved, and a device that became several times slower has its shift
    from the rows alone. The scatter of rows has a prior of its own, which their residuals update. Residuals are beside
    shifts without a prior: what a prior takes off a shift would be in the residuals of all rows of the occasion.

    Args:
        rows: Of each row, what it was on each occasion; those with one occasion say nothing.
        reference: The occasion whose shift is 0.
        between: By number of the occasion, the standard deviation, relative, that the intervals of its latencies allow
            for another hour, as those of tables do (``with_honest_intervals``); of others they are of the sessions
            alone.
    """
    cells = [(row, at, stats) for row, those in enumerate(rows) if len(those) > 1 for at, stats in those.items()]
    tied = tied_occasions(rows, reference)
    cells = [cell for cell in cells if cell[1] in tied]
    others = sorted(tied - {reference})
    if not others:
        return OccasionShifts({reference: Shift(0.0, 0.0)}, BETWEEN_OCCASIONS, 0.0, {})
    logs = np.array([math.log(stats.median_s) for _, _, stats in cells])
    allowed = [(between or {}).get(at, 0.0) for _, at, _ in cells]
    errors = _variances([stats for _, _, stats in cells], np.array(allowed))
    places = {at: place for place, at in enumerate((reference, *others))}
    joined = _Cells.of([row for row, _, _ in cells], [places[at] for _, at, _ in cells])
    free = len(cells) - joined.num_rows - len(others)
    scatter = _ROW
    residuals: Floats
    covariance: Floats
    for _ in range(_ROUNDS):
        weights = 1 / (errors + scatter.variance / 2)
        solution, _ = joined.solved(logs, weights, np.full(len(others), _NOTHING_KNOWN))
        residuals = joined.beside_rows(logs - np.append(0.0, solution)[joined.occasions], weights)
        # What rows scatter by beyond their sessions; both occasions of a change have half of its variance.
        beyond = 2 * float(np.sum(residuals**2) - free * np.mean(errors)) / max(free, 1)
        scatter = _ROW.updated([math.sqrt(max(beyond, 0.0))], free)
    for _ in range(_ROUNDS):
        solution, covariance = joined.solved(logs, weights, _prior_precisions(solution))
    quantile = student_t95(max(free, 2))
    shifts = {reference: Shift(0.0, 0.0)}
    for place, at in enumerate(others):
        shifts[at] = Shift(float(solution[place]), quantile * math.sqrt(covariance[place, place]))
    return OccasionShifts(
        by_occasion=shifts,
        between=_between(np.array([shift.log for shift in shifts.values()])),
        deviation=scatter.deviation,
        residuals={(row, at): float(residuals[line]) for line, (row, at, _) in enumerate(cells)},
    )


@dataclass(frozen=True)
class _Cells:
    """The row and the occasion of each cell, that is of one row on one occasion.

    The effects of rows are eliminated, each from its own equation: a system of the occasions is left, the Laplacian of
    their graph (Schur complement), so that memory grows with the cells and not with the square of the rows.

    Attributes:
        rows: Numbers of the rows, shape (cells,).
        occasions: Numbers of the occasions, shape (cells,); 0: the reference.
        first: Each cell, once for each other cell of its row, shape (pairs,).
        second: That other cell.
    """

    rows: NDArray[np.int64]
    occasions: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[int], occasions: Sequence[int]) -> _Cells:
        """Of cells that stand row by row."""
        counts = np.unique(rows, return_counts=True)[1]
        numbers = np.repeat(np.arange(len(counts)), counts)
        of_row = counts[numbers]
        first = np.repeat(np.arange(len(numbers)), of_row)
        within = np.arange(len(first)) - np.repeat(np.cumsum(of_row) - of_row, of_row)
        second = (np.cumsum(counts) - counts)[numbers[first]] + within
        different = first != second
        return cls(numbers, np.asarray(occasions, dtype=np.int64), first[different], second[different])

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.rows[-1]) + 1

    def beside_rows(self, values: Floats, weights: Floats) -> Floats:
        """Values less the weighted mean of their row, shape (cells,)."""
        sums = np.bincount(self.rows, weights * values) / np.bincount(self.rows, weights)
        return np.asarray(values - sums[self.rows], dtype=np.float64)

    def solved(self, logs: Floats, weights: Floats, priors: Floats) -> tuple[Floats, Floats]:
        """Shifts of all occasions but the reference, and their covariance.

        Args:
            logs: Of each cell.
            weights: Inverse variance of each.
            priors: Inverse variance of each shift around zero.
        """
        count = int(self.occasions.max()) + 1
        totals = np.bincount(self.rows, weights)[self.rows]
        ties = weights[self.first] * weights[self.second] / totals[self.first]
        pairs = self.occasions[self.first] * count + self.occasions[self.second]
        tied = np.bincount(pairs, ties, count**2).reshape(count, count)
        known = np.diag(tied.sum(axis=1) + np.append(0.0, priors)) - tied
        right = np.bincount(self.occasions, weights * self.beside_rows(logs, weights), count)
        covariance = np.asarray(np.linalg.inv(known[1:, 1:]), dtype=np.float64)
        return np.asarray(covariance @ right[1:], dtype=np.float64), covariance


def _prior_precisions(logs: Floats) -> Floats:
    """Inverse variances of the normal priors that draw shifts of these logarithms as the Student's t prior does.

    Source: Lange, Little and Taylor, Robust Statistical Modeling Using the t Distribution, 1989, section 3: the weights
    of their EM algorithm.
    """
    degrees = BETWEEN_OCCASIONS.degrees
    return np.asarray((degrees + 1) / (degrees * BETWEEN_OCCASIONS.variance + logs**2), dtype=np.float64)


def _between(logs: Floats) -> Uncertainty:
    """Of the change from one occasion to another, whose variance is twice that of occasions around their mean."""
    degrees = len(logs) - 1
    square = 2 * float(np.sum((logs - logs.mean()) ** 2)) / degrees
    return BETWEEN_OCCASIONS.updated([math.sqrt(square)], degrees)


def tied_occasions(rows: Collection[RowOccasions], reference: int) -> set[int]:
    """The occasions that rows tie to the reference, directly or by way of others."""
    tied = {reference}
    while True:
        more = {at for those in rows if tied & set(those) for at in those}
        if more <= tied:
            return tied
        tied |= more


def _variances(latencies: Sequence[LatencyStats], between: Floats | float = 0.0) -> Floats:
    """Of the logarithms of latencies, by their 95 % intervals less what these allow for another hour; of one session,
    whose interval says nothing, one of 2 %."""
    halves = [max(one.ci_high_s - one.median_s, one.median_s - one.ci_low_s) / one.median_s for one in latencies]
    sessions = np.array([one.num_sessions for one in latencies])
    degrees = np.maximum(sessions - 1.0, 1.0)
    found = variances_within(np.array(halves), degrees, np.square(between), 1e-8).values
    return np.where(sessions < 2, 0.02**2, found)
