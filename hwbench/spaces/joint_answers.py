"""What is said where nothing is within several budgets: the nearest ones that some member keeps."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hwbench.errors import InfeasibleBudget
from hwbench.spaces.budgets import Budget, PeakLimit, peaks_applied, typed
from hwbench.spaces.joint_costs import JointCosts
from hwbench.spaces.joint_grid import fewest_steps
from hwbench.spaces.joint_shares import any_within, smallest_of, smallest_share, spent
from hwbench.spaces.walk import Floats

# Of a unit, by which sums of whole costs may miss what they are.
_ROUNDING = 1e-6


def band_is_empty(space: str, budgets: Sequence[Budget], band: tuple[float, float]) -> InfeasibleBudget:
    """No member takes such a share of the budgets."""
    return InfeasibleBudget(
        f"no member of space {space!r} takes {band[0]:.0%} to {band[1]:.0%} of {_listed(budgets)}; widen the band"
    )


def infeasible(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> InfeasibleBudget:
    """No member is within all budgets and peaks; what is named is enough when it is typed instead."""
    space = f"no member of space {budgets[0].sums.space.name!r}"
    alone = [*_alone(budgets), *_peaks_alone(budgets[0], peaks)]
    if alone:
        words, options = zip(*alone)
        least = typed(budgets, [max(budget.limit, budget.sums.smallest()[0]) for budget in budgets])
        others = [option for option in options if option]
        return InfeasibleBudget(
            f"{space} is within {'; nor within '.join(words)}; give at least {' '.join([least, *others])}",
            _excess(budgets, peaks),
        )
    nearest = [*_all_larger(budgets, peaks), *_one_larger(budgets, peaks), *_higher_peaks(budgets, peaks)]
    return InfeasibleBudget(
        f"{space} is within all of {_listed([*budgets, *peaks])}, though some are within each; "
        f"try for example {', or '.join(nearest)}",
        _excess(budgets, peaks),
    )


def _excess(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> float:
    """What all budgets are to be multiplied with; infinity where the peaks leave no member."""
    costs = _costs(budgets, peaks)
    return float("inf") if costs is None else smallest_share(costs)[0]


def _alone(budgets: Sequence[Budget]) -> Iterator[tuple[str, str]]:
    """Budgets that no member keeps, whatever the others."""
    for budget in budgets:
        smallest, architecture = budget.sums.smallest()
        if smallest > budget.limit:
            yield f"{_listed([budget])}: the smallest reachable is {budget.write(smallest)} ({architecture.key})", ""


def _peaks_alone(budget: Budget, peaks: Sequence[PeakLimit]) -> Iterator[tuple[str, str]]:
    """Peaks that no member keeps, whatever the budgets; and the option that sets the least one."""
    for peak in peaks:
        if not peak.apply(budget.sums).num_known:
            levels = peak.levels()
            lowest = bisect_left(levels, True, key=lambda level: bool(peak.apply(budget.sums, level).num_known))
            level = peak.write(levels[lowest])
            yield f"{_listed([peak])}: the smallest reachable is {level}", f"{peak.option} {level}"


def _all_larger(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> Iterator[str]:
    """The smallest factor by which all budgets may grow."""
    costs = _costs(budgets, peaks)
    if costs is not None:
        share, _ = smallest_share(costs)
        yield typed(budgets, _limits(budgets, costs, np.full(len(budgets), max(share, 1.0))))


def _one_larger(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> Iterator[str]:
    """For each budget the least that it may be, where the others stay."""
    costs = _costs(budgets, peaks)
    if costs is None or len(budgets) == 1:
        return
    for number, budget in enumerate(budgets):
        member = smallest_of(costs, number, _sure_shares(budgets, costs))
        if member is not None:
            limits = [other.limit for other in budgets]
            limits[number] = _limits(budgets, costs, spent(costs, member))[number]
            yield f"{typed(budgets, limits)} (more of {budget.name} alone)"


def _higher_peaks(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> Iterator[str]:
    """For each peak the least that it may be, where everything else stays."""
    for peak in peaks:
        others = [other for other in peaks if other is not peak]

        def fits(level: float, peak: PeakLimit = peak, others: Sequence[PeakLimit] = others) -> bool:
            costs = _costs(budgets, [*others, replace(peak, limit=level)])
            return costs is not None and any_within(costs, _sure_shares(budgets, costs))

        levels = peak.levels()
        levels = levels[levels > peak.limit]
        lowest = bisect_left(levels, True, key=fits)
        if lowest < len(levels):
            yield f"{peak.option} {peak.write(levels[lowest])} ({peak.name} alone)"


def _costs(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> JointCosts | None:
    """None where the peaks leave no member."""
    kept = [peaks_applied(budget, peaks) for budget in budgets]
    return JointCosts.of(kept) if kept[0].sums.num_known else None


def _limits(budgets: Sequence[Budget], costs: JointCosts, shares: Floats) -> list[float]:
    """Limits under which members that take these shares of the budgets are not lost to the grid."""
    low, lost = costs.least.min(axis=0), _lost(costs)
    limits: list[float] = []
    for budget, share, least, safe in zip(budgets, shares, low, (shares - lost * low) / (1.0 - lost), strict=True):
        units = _whole_units(budget, share, least, costs)
        limits.append(safe * budget.limit if units is None else max(units, budget.limit))
    return limits


def _sure_shares(budgets: Sequence[Budget], costs: JointCosts) -> Floats:
    """Shares of the budgets of which no member is lost to the grid."""
    low = costs.least.min(axis=0)
    is_whole = [_whole_units(one, 1.0, least, costs) is not None for one, least in zip(budgets, low, strict=True)]
    sure: Floats = 1.0 - np.where(is_whole, 0.0, _lost(costs)) * (1.0 - low)
    return sure


def _lost(costs: JointCosts) -> float:
    """Of the room between the least and a budget, the share that the grid may lose."""
    return (len(costs.stages) + 1) / fewest_steps(costs)


def _whole_units(budget: Budget, share: float, least: float, costs: JointCosts) -> float | None:
    """A share of a budget of whole costs, in whole units; None: they are any numbers, or more than the grid has steps.

    Args:
        budget: Of one kind.
        share: Of the budget.
        least: That any member takes, as a share of the budget.
        costs: Whose grid it is.
    """
    if budget.unit is None:
        return None
    units = math.floor(share * budget.limit / budget.unit + _ROUNDING)
    return units * budget.unit if units - least * budget.limit / budget.unit <= fewest_steps(costs) else None


def _listed(limits: Sequence[Budget | PeakLimit]) -> str:
    return " and ".join(f"{one.write(one.limit)} ({one.name})" for one in limits)
