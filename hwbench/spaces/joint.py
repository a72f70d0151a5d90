"""The members of a space within several budgets at once: counted, drawn uniformly, optimised over, repaired into.

Whether there is one, the best by an additive score, and repairs are exact (``hwbench.spaces.joint_optimum``). Counts
and draws are exact on a grid (``hwbench.spaces.joint_grid``), which leaves out some members close to a budget and lets
in none beyond.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from hwbench.errors import InvalidValue
from hwbench.spaces.budgets import Budget, PeakLimit, jointly_known, peaks_applied
from hwbench.spaces.costs import Costs, cost_budgets, of_choices, unit_within
from hwbench.spaces.feasible import GRID, FeasibleSet, Optimum, pick
from hwbench.spaces.joint_answers import band_is_empty, infeasible
from hwbench.spaces.joint_costs import JointCosts, stacked
from hwbench.spaces.joint_grid import JointGrid
from hwbench.spaces.joint_optimum import ROUNDING, JointProblem
from hwbench.spaces.joint_shares import any_within, smallest_share
from hwbench.spaces.optimum import BestChoices
from hwbench.spaces.protocols import NetworkSums
from hwbench.spaces.reachable import parts_within
from hwbench.spaces.repair import size_distances, stage_distances
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.walk import Floats
from hwbench.specs import Architecture, BlockSpec, TensorSpec

# How far a member is from its budgets decides between repairs that change equally much, which differ by 1 or more.
_TIE = 0.25


class JointSet(FeasibleSet):
    """The members of a space that are within each of several budgets.

    ``budget_s`` and ``sums`` are those of the first budget. Where one number stands for all costs of a member, as in
    ``smallest``, it is the largest share that the member takes of a budget, times the first budget.

    Args:
        budgets: Over the same space; members that lack a number under any of them are left out.
        peaks: Limits of the largest block.

    Raises:
        InfeasibleBudget: No member is within all of them, or the grid loses every one that is; the message says which,
            and names the nearest budgets whose set has a member.
        NotMeasured: No member has all its numbers.
    """

    def __init__(self, budgets: Sequence[Budget], peaks: Sequence[PeakLimit] = ()) -> None:
        known = jointly_known([budget.sums for budget in budgets])
        known[0].require()
        self._take([replace(budget, sums=sums) for budget, sums in zip(budgets, known)], peaks)
        if not self._filtered[0].sums.num_known or not any_within(self._joint_costs) or not self.count:
            raise infeasible(self.budgets, self.peaks)

    @classmethod
    def of_named_costs(cls, costs: Mapping[str, Costs], budgets: Mapping[str, float]) -> JointSet:
        """Choices of any kind under several budgets, as ``FeasibleSet.of_costs`` under one.

        Args:
            costs: What each value of each choice costs, by the name of the budget.
            budgets: What they may cost together, by the same names.

        Raises:
            InvalidValue: A cost is not a number of 0 or more, a budget is not above zero, names differ, or there are
                more combinations than a float counts.
            InfeasibleBudget: Nothing is within all budgets; the message names the nearest ones.
        """
        return cls(cost_budgets(costs, budgets, GRID))

    def _take(self, budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> None:
        self.budgets, self.peaks = tuple(budgets), tuple(peaks)
        self.sums, self.budget_s = budgets[0].sums, budgets[0].limit
        self.space = self.sums.space

    def tightened(self, share: float) -> JointSet:
        """The members within a share of each budget; there may be none. Peaks stay.

        Raises:
            InvalidValue: The share is not a finite number above 0.
        """
        tighter = JointSet.__new__(JointSet)
        scaled = [budget.scaled(share) for budget in self.budgets]
        units = [unit_within(one.sums, one.limit, GRID, one.unit) for one in scaled]
        tighter._take([replace(one, unit=unit) for one, unit in zip(scaled, units, strict=True)], self.peaks)
        return tighter

    @property
    def count(self) -> float:
        """Number of members within the budgets (on the grid; ``error`` says what it may leave out)."""
        return float(sum(self._totals(1.0)))

    @property
    def error(self) -> tuple[float, ...]:
        """By budget: only members closer to it than this share of it may be missing from counts and draws."""
        return tuple(self._joint_grid.error.tolist())

    def latencies(self, number: int) -> SpaceSums:
        """What members take on the device of this number, from 0: of budgets those of latency stand first."""
        return self.budgets[number].sums

    def __contains__(self, architecture: object) -> bool:
        return isinstance(architecture, Architecture) and self.share_of(architecture) <= 1.0 + ROUNDING

    def share_of(self, architecture: Architecture) -> float:
        """The largest share that a member takes of a budget; infinity where it is above a peak or lacks a number."""
        return max(budget.sums.total(architecture) / budget.limit for budget in self._filtered)

    def smallest(self) -> tuple[float, Architecture]:
        """The least share of all budgets within which there is a member, times the first one, to 0.1 %; the member."""
        share, member = self._smallest
        return share * self.budget_s, self._architecture(member)

    def draw(self, rng: np.random.Generator, band: tuple[float, float] = (0.0, 1.0)) -> Architecture:
        """A member within the higher share of all budgets and not within the lower one. Budgets that every member
        keeps do not count.

        Exactly uniform: all members of the band (on the grid) are equally likely, and none is ever rejected.

        Raises:
            InfeasibleBudget: The band is empty.
        """
        grid, weights = self._joint_grid, self._ways(band)
        if not weights.sum() > 0:
            raise band_is_empty(self.space.name, self.budgets, band)
        size, state, picked = pick(weights, rng), 0, []
        left, width = grid.left(size, band[1]), grid.width(size, band)
        for number, out in enumerate(self._joint_costs.out):
            choice = pick(grid.ways(number, size, state, left, width), rng)
            picked.append(choice)
            cost = grid.cost(number, size, state, choice)
            left, state = left - cost, int(out[size, state, choice])
        return self._architecture(BestChoices(0.0, size, tuple(picked)))

    def best(self, scores: NetworkSums, within: float = 1.0) -> Optimum:
        """The member with the highest additive score within a share of all budgets: exact, without any grid.

        Raises:
            InfeasibleBudget: No member is within that share.
            InvalidValue: Some are, but none of them has a finite score; or scores of costs are of other choices.
        """
        scores = of_choices(scores.of_space(self.space.name), self.space)
        bases = _above_least(np.array([cell.base for cell in scores.cells]))
        seconds = [
            stacked([cell.stages[number].seconds for cell in scores.cells], -np.inf)
            for number in range(len(self._joint_costs.stages))
        ]
        gains = [_above_least(np.where(np.isposinf(stage), -np.inf, stage)) for stage in seconds]  # inf: no score
        shares = np.full(len(self.budgets), within)
        member = JointProblem(self._joint_costs, shares, bases, gains).solve()
        if member is None:
            alike = np.zeros_like(bases), [np.zeros_like(gain) for gain in gains]
            if JointProblem(self._joint_costs, shares, *alike).solve() is not None:
                raise InvalidValue(
                    f"no member of space {self.space.name!r} has a finite score, of those within {within:.0%} of all "
                    "budgets"
                )
            raise band_is_empty(self.space.name, self.budgets, (0.0, within))
        architecture = self._architecture(member)
        return Optimum(scores.total(architecture), self.sums.total(architecture), architecture)

    def repair(self, architecture: Architecture) -> Architecture:
        """The member within the budgets that is nearest to a proposal: fewest choices changed, then fewest steps on
        their scales, then the least mean share of the budgets. Exact. What is within comes back as it is.
        """
        if architecture in self:
            return architecture
        member = JointProblem(self._joint_costs, np.ones(len(self.budgets)), *self._nearness(architecture)).solve()
        if member is None:
            raise AssertionError("a feasible set is never empty")
        return self._architecture(member)

    def reachable_parts(self) -> Iterator[tuple[BlockSpec, TensorSpec]]:
        """The blocks, on their inputs, that occur in members of each budget by itself."""
        first, *others = (parts_within(one.sums, one.limit * (1 + ROUNDING)) for one in self._filtered)
        sets = [set(parts) for parts in others]
        return (part for part in first if all(part in parts for parts in sets))

    @cached_property
    def _filtered(self) -> list[Budget]:
        return [peaks_applied(budget, self.peaks) for budget in self.budgets]

    @cached_property
    def _joint_costs(self) -> JointCosts:
        return JointCosts.of(self._filtered)

    @cached_property
    def _joint_grid(self) -> JointGrid:
        return JointGrid(self._joint_costs, tuple((budget.unit or 0.0) / budget.limit for budget in self.budgets))

    @cached_property
    def _smallest(self) -> tuple[float, BestChoices]:
        return smallest_share(self._joint_costs)

    def _ways(self, band: tuple[float, float]) -> Floats:
        grid, sizes = self._joint_grid, range(len(self.sums.cells))
        return np.array([grid.ways(0, n, 0, grid.left(n, band[1]), grid.width(n, band)).sum() for n in sizes])

    def _totals(self, share: float) -> list[float]:
        return [self._joint_grid.count(size, share) for size in range(len(self.sums.cells))]

    def _architecture(self, member: BestChoices) -> Architecture:
        choices = tuple(axis.choices[number] for axis, number in zip(self.sums.axes, member.numbers))
        return self.space.member(self.sums.cells[member.cell].cell, choices)

    def _nearness(self, proposal: Architecture) -> tuple[Floats, list[Floats]]:
        """By input size, and by stage and choice: less the more it differs from a proposal."""
        costs = self._joint_costs
        bases = -size_distances(self.sums, proposal) - _TIE * costs.least.mean(axis=1)
        away = [stage_distances(self.sums, number, proposal) for number in range(len(self.sums.axes))]
        return bases, [-steps - _TIE * stage.mean(axis=0) for steps, stage in zip(away, costs.stages)]


def _above_least(scores: Floats) -> Floats:
    """Scores beyond the least finite one: what all have alike would hide what they differ by in rounding."""
    finite = scores[np.isfinite(scores)]
    return scores - finite.min() if finite.size else scores
