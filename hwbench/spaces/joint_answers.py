"""What is said where nothing is within several budgets: the nearest ones that some member keeps."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hwbench.errors import InfeasibleBudget
from hwbench.spaces.budgets import Budget, PeakLimit, peaks_applied, typed
from hwbench.spaces.costs import CostSpace, common_unit
from hwbench.spaces.feasible import GRID
from hwbench.spaces.joint_costs import JointCosts
from hwbench.spaces.joint_grid import JointGrid, fewest_steps
from hwbench.spaces.joint_shares import any_within, smallest_of, smallest_share, spent
from hwbench.spaces.walk import Floats
from hwbench.units import rounded_up

# Of a unit, by which sums of whole costs may miss what they are.
_ROUNDING = 1e-6
# Where the grid may lose more of the room than this, more room is tried out, each time so many times as much.
_MOST_LOST = 0.5
_GROWTH = 1.25


def band_is_empty(space: str, budgets: Sequence[Budget], band: tuple[float, float]) -> InfeasibleBudget:
    """No member takes such a share of the budgets."""
    return InfeasibleBudget(
        f"no member of space {space!r} takes {band[0]:.0%} to {band[1]:.0%} of {_listed(budgets)}; widen the band"
    )


def infeasible(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> InfeasibleBudget:
    """No member is within all budgets and peaks; what is named last is enough when it is typed instead."""
    space = f"no member of space {budgets[0].sums.space.name!r}"
    lowest = [_lowest(budgets[0], peak) for peak in peaks]
    alone = [*_alone(budgets), *_peaks_alone(peaks, lowest)]
    if alone:
        return InfeasibleBudget(
            f"{space} is within {'; nor within '.join(alone)}; give {_enough(budgets, peaks, lowest)}",
            _excess(budgets, peaks),
        )
    costs = _costs(budgets, peaks)
    larger = None if costs is None else _all_larger(budgets, peaks, costs)
    nearest = [
        *([typed(budgets, larger)] if larger else []),
        *_one_larger(budgets, costs),
        *_higher_peaks(budgets, peaks),
    ]
    listed = _listed([*budgets, *peaks])
    if costs is not None and any_within(costs):
        what = f"{space} is counted within all of {listed}: there are some, but all are lost to the grid"
    else:
        what = f"{space} is within all of {listed}, though some are within each"
    excess = max(new / old.limit for new, old in zip(larger, budgets)) if larger else math.inf
    return InfeasibleBudget(f"{what}; try for example {', or '.join(nearest)}", excess)


def _excess(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> float:
    """What all budgets are to be multiplied with; infinity where the peaks leave no member."""
    costs = _costs(budgets, peaks)
    return float("inf") if costs is None else smallest_share(costs)[0]


def _alone(budgets: Sequence[Budget]) -> Iterator[str]:
    """Budgets that no member keeps, whatever the others."""
    for budget in budgets:
        smallest, architecture = budget.sums.smallest()
        if smallest > budget.limit:
            yield f"{_listed([budget])}: the smallest reachable is {budget.write(smallest)} ({architecture.key})"


def _peaks_alone(peaks: Sequence[PeakLimit], lowest: Sequence[PeakLimit]) -> Iterator[str]:
    """Peaks that no member keeps, whatever the budgets."""
    for peak, low in zip(peaks, lowest, strict=True):
        if low is not peak:
            yield f"{_listed([peak])}: the smallest reachable is {peak.write(low.limit)}"


def _lowest(budget: Budget, peak: PeakLimit) -> PeakLimit:
    """A peak, or the least one that some member keeps where none keeps it, whatever the budgets."""
    if peak.apply(budget.sums).num_known:
        return peak
    levels = peak.levels()
    lowest = bisect_left(levels, True, key=lambda level: bool(peak.apply(budget.sums, level).num_known))
    return replace(peak, limit=levels[lowest])


def _enough(budgets: Sequence[Budget], peaks: Sequence[PeakLimit], lowest: Sequence[PeakLimit]) -> str:
    """The least that each budget and peak has to be, and where these have no member together, what is enough."""
    options = [f"{low.option} {low.write(low.limit)}" for peak, low in zip(peaks, lowest) if low is not peak]
    limits = [max(budget.limit, budget.sums.smallest()[0]) for budget in budgets]
    least = f"at least {' '.join([typed(budgets, limits), *options])}"
    costs = _costs(raised := _raised(budgets, limits), lowest)
    if costs is None or len(budgets) + len(peaks) == 1 or _is_counted(budgets, lowest, limits):
        return least
    larger = typed(raised, _all_larger(raised, lowest, costs))
    return f"{least}; nothing is within all of these together, try for example {' '.join([larger, *options])}"


def _all_larger(budgets: Sequence[Budget], peaks: Sequence[PeakLimit], costs: JointCosts) -> list[float]:
    """The limits that all budgets need when they grow by the smallest factor, none of which is lower than before."""
    shares, lost = np.full(len(budgets), max(smallest_share(costs)[0], 1.0)), _lost(costs)
    if lost <= _MOST_LOST:
        return _limits(budgets, costs, shares, 1 / (1 - lost))
    room = 1.0
    while not _is_counted(budgets, peaks, limits := _limits(budgets, costs, shares, room)):
        room *= _GROWTH
    return limits


def _is_counted(budgets: Sequence[Budget], peaks: Sequence[PeakLimit], limits: Sequence[float]) -> bool:
    """Whether the set of these limits has a member on its grid."""
    costs = _costs(larger := _raised(budgets, limits), peaks)
    if costs is None:
        return False
    grid = JointGrid(costs, tuple((budget.unit or 0.0) / budget.limit for budget in larger))
    return any(grid.count(size, 1.0) for size in range(len(costs.least)))


def _raised(budgets: Sequence[Budget], limits: Sequence[float]) -> list[Budget]:
    """Budgets with other limits, none of which is lower."""
    return [
        replace(budget, limit=limit, unit=_unit(budget, limit)) for budget, limit in zip(budgets, limits, strict=True)
    ]


def _one_larger(budgets: Sequence[Budget], costs: JointCosts | None) -> Iterator[str]:
    """For each budget the least that it may be, where the others stay; none where the search for it is too long."""
    if costs is None or len(budgets) == 1:
        return
    lost = _lost(costs)
    room = 1 / (1 - lost) if lost < 1 else math.inf
    for number, budget in enumerate(budgets):
        member = smallest_of(costs, number, _sure_shares(budgets, costs))
        if member is None:
            continue
        limits = [other.limit for other in budgets]
        limits[number] = _limits(budgets, costs, spent(costs, member), room)[number]
        if math.isfinite(limits[number]):
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


def _limits(budgets: Sequence[Budget], costs: JointCosts, shares: Floats, room: float) -> list[float]:
    """Limits for members that take these shares of the budgets.

    Args:
        budgets: Of which limits are wanted.
        costs: Of the members.
        shares: By budget.
        room: What lies beyond the least that any member costs, as a multiple of what these members take there; whole
            costs need no more than the members take.
    """
    limits: list[float] = []
    for budget, share, least in zip(budgets, shares.tolist(), costs.least.min(axis=0).tolist(), strict=True):
        units = _whole_units(budget, share, least, costs)
        beyond = room * (share - least) if share > least else 0.0
        limits.append((least + beyond) * budget.limit if units is None else max(units, budget.limit))
    return limits


def _sure_shares(budgets: Sequence[Budget], costs: JointCosts) -> Floats:
    """Shares of the budgets of which no member is lost to the grid."""
    low = costs.least.min(axis=0)
    is_whole = [_whole_units(one, 1.0, least, costs) is not None for one, least in zip(budgets, low, strict=True)]
    sure: Floats = 1.0 - np.where(is_whole, 0.0, min(_lost(costs), 1.0)) * (1.0 - low)
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
    unit = _unit(budget, share * budget.limit)
    if unit is None:
        return None
    units = math.floor(share * budget.limit / unit + _ROUNDING)
    return units * unit if units - least * budget.limit / unit <= fewest_steps(costs) else None


def _unit(budget: Budget, limit: float) -> float | None:
    """What all numbers are whole multiples of under a larger limit; of costs more may be within it."""
    if budget.unit is None or limit <= budget.limit or not isinstance(budget.sums.space, CostSpace):
        return budget.unit
    return common_unit(budget.sums, rounded_up(limit, 7), GRID)


def _listed(limits: Sequence[Budget | PeakLimit]) -> str:
    return " and ".join(f"{one.write(one.limit)} ({one.name})" for one in limits)
