"""All limits of the networks of one space, and the set of those that keep them."""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.spaces.budgets import Budget, PeakLimit
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.joint import JointSet


@dataclass(frozen=True)
class Limits:
    """Limits of one space.

    Attributes:
        budgets: Of sums over blocks: the latency on each device first.
        peaks: Of the largest block.
    """

    budgets: tuple[Budget, ...]
    peaks: tuple[PeakLimit, ...] = ()

    def networks(self) -> FeasibleSet:
        """The members within all of them.

        Raises:
            InfeasibleBudget: There is none.
            NotMeasured: No member has all its numbers.
        """
        first = self.budgets[0]
        if len(self.budgets) == 1 and not self.peaks:
            return FeasibleSet(first.sums, first.limit, unit=first.unit)
        return JointSet(self.budgets, self.peaks)

    def scaled(self, share: float) -> Limits:
        """The same with a share of each budget; peaks stay."""
        return Limits(tuple(budget.scaled(share) for budget in self.budgets), self.peaks)
