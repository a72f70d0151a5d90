"""What differs between two tables: all rows together, single rows beyond chance, and how they were taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.errors import InvalidValue
from hwbench.latency.significance import (
    RANGE_FROM,
    Floats,
    Variances,
    false_discovery_rates,
    median_interval,
    moderated,
    t95,
    tails,
    unexplained,
    variances_within,
)
from hwbench.latency.table import LatencyRow, LatencyTable, Role
from hwbench.latency.uncertainty import CERTAIN, Uncertainty
from hwbench.specs import LatencyStats, Workload

# A smaller difference is none: it is what the protocol claims of a latency, and less than any choice depends on.
SMALLEST = 0.01
# Share of false ones among the rows that are said to have moved.
FALSE_SHARE = 0.05
# Fewer rows have no common shift: the median of ten lies between the second and the ninth with 98 % confidence, so that
# one row that moved does not look like all.
COMMON_FROM = 10
# Digits of a published time beyond the first.
_DIGITS = 3
# An interval that ends beyond a million times tells nothing; where a session stalled, that of few rows has no number.
_FURTHEST = math.log(1e6)


@dataclass(frozen=True)
class RowChange:
    """One row that both tables have a latency of.

    ``change`` is relative (0.01: 1 % slower afterwards), ``beyond`` what of it is left without the common shift of all
    rows. ``chance`` is how often no change at all looks like this one, ``rate`` the share of false ones among all rows
    that seem to have moved as surely, beyond the shift; None: one session has no interval, so nothing can be said.
    ``scale_spread`` is the factor, either way, of the 95 % interval of the scales that both latencies were brought to
    their days by.
    """

    role: Role
    workload: Workload
    before: LatencyStats
    after: LatencyStats
    change: float
    beyond: float
    chance: float | None
    rate: float | None
    moved: bool
    scale_spread: float = 1.0

    @property
    def agrees(self) -> bool:
        """The 95 % intervals of the two latencies have a part in common, or lie apart by less than the scales may."""
        before, after, spread = self.before, self.after, self.scale_spread
        return before.ci_low_s <= after.ci_high_s * spread and after.ci_low_s <= before.ci_high_s * spread


@dataclass(frozen=True)
class TableChanges:
    """How one table differs from another.

    Args:
        rows: Those with a latency in both, the largest change first.
        shift: Median of all changes, relative, with its 95 % interval ``shift_low`` to ``shift_high``, which also holds
            how far the scales of the tables are unsure; their range where there is no interval (``has_interval``).
        allowed: What counts as no change: 1 %, or the larger A/A figure of the two tables.
        spread: Standard deviation of the changes beyond what the intervals of the rows explain, relative.
        only_before: Rows with a latency in the first table alone.
        only_after: Rows with a latency in the second table alone.
    """

    rows: tuple[RowChange, ...]
    shift: float
    shift_low: float
    shift_high: float
    allowed: float
    spread: float
    only_before: tuple[LatencyRow, ...]
    only_after: tuple[LatencyRow, ...]

    @property
    def moved(self) -> tuple[RowChange, ...]:
        """The rows that moved, beyond the common shift and beyond chance."""
        return tuple(row for row in self.rows if row.moved)

    @property
    def agreeing(self) -> float:
        """Share of the rows whose intervals have a part in common."""
        return sum(row.agrees for row in self.rows) / len(self.rows)

    @property
    def consistent(self) -> float:
        """Share of the rows whose change lies in the 95 % interval of a difference; 0.95 where nothing changed."""
        judged = [row.chance for row in self.rows if row.chance is not None]
        return sum(chance >= 0.05 for chance in judged) / len(judged) if judged else math.nan

    @property
    def has_interval(self) -> bool:
        """Whether ``shift_low`` to ``shift_high`` is a 95 % interval.

        Fewer than six changes tell it only where the sessions of each say how far it scatters.
        """
        return len(self.rows) >= RANGE_FROM or all(row.chance is not None for row in self.rows)

    @property
    def shifted(self) -> bool:
        """All rows together moved: the shift is larger than what is allowed, and its interval leaves zero out.

        Of fewer than ``COMMON_FROM`` rows each is judged by itself.
        """
        if len(self.rows) < COMMON_FROM:
            return False
        return abs(self.shift) > self.allowed and self.shift_low * self.shift_high > 0

    @property
    def none(self) -> bool:
        """Nothing moved: no row by itself, nor all together."""
        return not self.moved and not self.shifted

    def __str__(self) -> str:
        """The finding as a sentence."""
        interval = f"{100 * self.shift_low:+.2f} % to {100 * self.shift_high:+.2f} %"
        interval = f"95 %: {interval}" if self.has_interval else f"from {interval}: too few sessions for an interval"
        common = f"median {100 * self.shift:+.2f} % ({interval})"
        if self.shifted:
            common = f"all rows together {'slower' if self.shift > 0 else 'faster'}: {common}"
        single = f"{len(self.moved)} of {len(self.rows)} rows moved" if self.moved else "no row moved"
        single += " beyond that" if self.shifted else ""
        return f"{common}; {single} by more than {100 * self.allowed:.2g} % and beyond chance"


def compare_tables(before: LatencyTable, after: LatencyTable, scales: Uncertainty = CERTAIN) -> TableChanges:
    """Which rows moved from one table to the other, each tested against the sessions that it is the median of.

    The standard error of a row follows from its interval, less what the interval allows for another hour
    (``between_runs`` of the table), which is known and added again. What the sessions say is known to few degrees of
    freedom, so it is drawn towards what is usual in the two tables (``moderated``); rounding to four digits adds its
    part. From ``COMMON_FROM``
    rows on, their median change is the common shift, which a change of the machine makes, and single rows are tested
    beyond it; there the spread of all changes also shows what the intervals leave out (``unexplained``). A row
    moved where the rate of false discoveries is at most ``FALSE_SHARE`` and the change is larger than ``allowed``.

    Args:
        before: The first table, its rows on the day that is meant.
        after: The second one, likewise.
        scales: Of the factor between their rows, as the scales that brought these to their days have it
            (``between_scales``): all rows have one error in common.

    Raises:
        InvalidValue: The tables have no row in common.
    """
    pairs = _pairs(before, after)
    if not pairs:
        raise InvalidValue(
            f"the tables have no row in common: {len(before)} rows of {before.target} in {before.precision}, "
            f"{len(after)} of {after.target} in {after.precision}"
        )
    logs = np.array([math.log(b.median_s / a.median_s) for _, a, b in pairs])
    variances = variances_of([pair[1:] for pair in pairs if _judged(pair)], (before.between_runs, after.between_runs))
    low, high = median_interval(logs, variances if len(variances.values) == len(logs) else None)
    common = len(pairs) >= COMMON_FROM
    centre = float(np.median(logs))
    shift = centre if common else 0.0
    # The common shift takes the error of the scales off; rows that are judged by themselves have it.
    shift_variance = ((high - low) / (2 * 1.96)) ** 2 if common else scales.variance
    chances, rates, spread = _judge(pairs, logs, variances, shift, shift_variance, scales.variance)
    scale_spread = scales.spread(0.95)
    if scales.variance:
        half = math.log(scale_spread)
        low, high = centre - math.hypot(centre - low, half), centre + math.hypot(high - centre, half)
    figures = [table.aa.found.largest for table in (before, after) if table.aa]
    allowed = max(SMALLEST, *figures) if figures else SMALLEST
    beyond = np.expm1(logs - shift)
    rows = [
        RowChange(
            row.role, row.workload, a, b, math.expm1(logs[at]), float(beyond[at]), chances[at], rate,
            rate is not None and rate <= FALSE_SHARE and bool(abs(beyond[at]) > allowed), scale_spread,
        )
        for at, ((row, a, b), rate) in enumerate(zip(pairs, rates))
    ]  # fmt: skip
    return TableChanges(
        rows=tuple(sorted(rows, key=lambda row: (-abs(math.log1p(row.change)), row.workload.key))),
        shift=math.expm1(centre),
        shift_low=math.expm1(low),
        shift_high=math.expm1(min(high, max(_FURTHEST, centre))),
        allowed=allowed,
        spread=spread,
        only_before=_only(before, after),
        only_after=_only(after, before),
    )


def sample_rows(table: LatencyTable, count: int, seed: int) -> list[LatencyRow]:
    """Rows with a latency, one from each of ``count`` strata of latencies; all of them where there are no more.

    The same for the same arguments in every process.
    """
    rows = sorted((row for row in table if row.stats is not None), key=_by_latency)
    rng = np.random.default_rng([seed, 0x5A3B])
    strata = np.array_split(np.arange(len(rows)), min(count, len(rows)) or 1)
    return [rows[int(rng.choice(stratum))] for stratum in strata if len(stratum)]


def _by_latency(row: LatencyRow) -> tuple[float, str]:
    return row.stats.median_s if row.stats else 0.0, row.workload.key


def taken_otherwise(
    before: LatencyTable, after: LatencyTable, known: Mapping[str, Mapping[str, str]] | None = None
) -> list[str]:
    """What two tables were not taken with alike, in words; their rows may differ for that reason alone.

    Args:
        before: The first table.
        after: The second table.
        known: Conditions by their digest, as far as they are known.
    """
    said = []
    if before.target != after.target:
        said.append(f"another target: {before.target}, then {after.target}")
    if before.conditions != after.conditions:
        first, second = ((known or {}).get(table.conditions) for table in (before, after))
        digests = f"{before.conditions or 'unknown'}, then {after.conditions or 'unknown'}"
        if first is not None and second is not None:
            digests = differing_conditions(first, second)
        said.append(f"other conditions: {digests}")
    if before.emulated or after.emulated:
        said.append("taken under emulation: its times are no latencies")
    for table, which in ((before, "before"), (after, "after")):
        if table.aa is not None and not table.aa.found.ok:
            said.append(f"the A/A test {which} found {table.aa.found}")
    return said


def differing_conditions(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The conditions that differ, by name, with both values."""
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    return "; ".join(f"{name} {before.get(name, '-')}, then {after.get(name, '-')}" for name in names)


def variances_of(
    pairs: Sequence[tuple[LatencyStats, LatencyStats]], between: tuple[float, float] = (0.0, 0.0)
) -> Variances:
    """Variances of the differences between the logarithms of two latencies each.

    Args:
        pairs: Of two sessions and more each.
        between: Standard deviation, relative, that the intervals of the first and of the second latencies allow for
            another hour (``with_honest_intervals``); 0: they are those of the sessions alone.
    """
    if not pairs:
        return Variances(np.zeros(0), np.zeros(0))
    stats = [one for pair in pairs for one in pair]
    known = np.tile(np.square(between), len(pairs))
    degrees = np.array([one.num_sessions - 1.0 for one in stats])
    units = np.array([_unit(one.median_s) / one.median_s for one in stats])
    halves = np.array([(one.ci_high_s - one.median_s) / one.median_s for one in stats])
    of_sessions = variances_within(halves, degrees, known, (units / 2 / t95(degrees)) ** 2)
    counts = degrees + 1
    # Of one session each, so that rows with more of them are known better and not drawn up to the others.
    spread = moderated(Variances(of_sessions.values * counts, degrees))
    of_rows = Variances(spread.values / counts, spread.degrees).plus(known + units**2 / 12)
    return Variances(of_rows.values[::2], of_rows.degrees[::2]) + Variances(of_rows.values[1::2], of_rows.degrees[1::2])


_Pair = tuple[LatencyRow, LatencyStats, LatencyStats]


def _pairs(before: LatencyTable, after: LatencyTable) -> list[_Pair]:
    found = ((row, row.stats, after.latency(row.workload)) for row in before)
    return [(row, a, b) for row, a, b in found if a is not None and b is not None]


def _only(table: LatencyTable, other: LatencyTable) -> tuple[LatencyRow, ...]:
    return tuple(row for row in table if row.stats is not None and other.latency(row.workload) is None)


def _judged(pair: _Pair) -> bool:
    """Whether both latencies have an interval."""
    return min(pair[1].num_sessions, pair[2].num_sessions) > 1


def _judge(
    pairs: Sequence[_Pair],
    logs: Floats,
    variances: Variances,
    shift: float,
    shift_variance: float,
    scale_variance: float,
) -> tuple[list[float | None], list[float | None], float]:
    """Chances of the whole changes, rates of what is beyond the shift, and the spread that nothing explains."""
    chances: list[float | None] = [None] * len(pairs)
    rates: list[float | None] = [None] * len(pairs)
    judged = [at for at, pair in enumerate(pairs) if _judged(pair)]
    if not judged:
        return chances, rates, 0.0
    beyond = logs[judged] - shift
    spread = unexplained(beyond, variances) if len(judged) >= COMMON_FROM else 0.0
    single = tails(beyond, variances.plus(shift_variance + spread**2))
    found = zip(judged, tails(logs[judged], variances.plus(scale_variance)), false_discovery_rates(single))
    for at, chance, rate in found:
        chances[at], rates[at] = float(chance), float(rate)
    return chances, rates, spread


def _unit(seconds: float) -> float:
    """What the last digit of a published time counts."""
    return float(10.0 ** (math.floor(math.log10(seconds)) - _DIGITS))
