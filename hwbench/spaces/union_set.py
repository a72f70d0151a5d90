"""The members of a union of spaces within a budget: the disjoint union of what each space has within it. Exact.

Each space keeps its own sums, grid and budgets, so nothing is lost beyond what its own set loses. Counts add up, a draw
takes a space in proportion to its count, and the best member is the best of the best ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from hwbench.errors import InfeasibleBudget, InvalidValue
from hwbench.spaces.feasible import FeasibleSet, Optimum, pick
from hwbench.spaces.limits import Limits
from hwbench.spaces.protocols import NetworkSet, NetworkSums, SearchedSpace
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.union import SpaceUnion, UnionSums
from hwbench.specs import Architecture


class UnionSet:
    """The members of a union of spaces within a budget.

    Args:
        space: The union.
        limits: By space, in order: over its own sums, of the same values.

    Attributes:
        sets: By name, the spaces that have networks within the budget.
        empty: By name, those that have none, and by how much.

    Raises:
        InfeasibleBudget: No space has a network within them; the nearest budgets are named.
        NotMeasured: A space has no network all of whose rows are there.
    """

    def __init__(self, space: SpaceUnion, limits: Sequence[Limits]) -> None:
        self.space, self.limits = space, tuple(limits)
        self.sets: dict[str, FeasibleSet] = {}
        self.empty: dict[str, InfeasibleBudget] = {}
        for member, one in zip(space.members, limits, strict=True):
            try:
                self.sets[member.name] = one.networks()
            except InfeasibleBudget as reason:
                self.empty[member.name] = reason
        if not self.sets:
            nearest = min(self.empty.values(), key=lambda reason: reason.excess)
            raise InfeasibleBudget(
                f"no network of any of the spaces {space.name} is within the budget; the nearest is: {nearest}",
                nearest.excess,
            )
        self.sums = self.latencies(0)
        self.budget_s = limits[0].budgets[0].limit

    @property
    def count(self) -> float:
        """Number of members within the budget."""
        return sum(one.count for one in self.sets.values())

    @property
    def parts(self) -> tuple[FeasibleSet, ...]:
        """The sets of the spaces that have networks within the budget, in order."""
        return tuple(self.sets.values())

    @property
    def counts(self) -> Mapping[str, float]:
        """The same by space; 0 of a space that has none."""
        return {one.name: self.sets[one.name].count if one.name in self.sets else 0.0 for one in self.space.members}

    def share(self) -> float:
        """Share of the known members that are within the budget."""
        return self.count / self.sums.num_known

    def __contains__(self, architecture: object) -> bool:
        return (
            isinstance(architecture, Architecture)
            and architecture.space in self.sets
            and architecture in self.sets[architecture.space]
        )

    def latencies(self, number: int) -> UnionSums:
        """What members take on the device of this number, from 0; of spaces without a network within, too."""
        return UnionSums(self.space, tuple(self._latencies(one, number) for one in self.limits))

    def tightened(self, share: float) -> UnionSet:
        """The members within a share of the budget.

        Raises:
            InfeasibleBudget: There is none.
        """
        return UnionSet(self.space, [one.scaled(share) for one in self.limits])

    def smallest(self) -> tuple[float, Architecture]:
        """The smallest latency of any member, and the first such member."""
        return min((one.smallest() for one in self.sets.values()), key=lambda found: found[0])

    def count_within(self, band: tuple[float, float]) -> float:
        """Number of members whose latency is in a band, as ``draw`` takes it."""
        return sum(one.count_within(band) for one in self.sets.values())

    def draw(self, rng: np.random.Generator, band: tuple[float, float] = (0.0, 1.0)) -> Architecture:
        """A member whose latency is within ``band``, as shares of the budget: above the first, at most the second.

        Exactly uniform over the union: a space is drawn in proportion to what it has in the band.

        Raises:
            InfeasibleBudget: The band is empty.
        """
        sets = list(self.sets.values())
        weights = np.array([one.count_within(band) for one in sets])
        if not weights.sum() > 0:
            raise InfeasibleBudget(
                f"no network of the spaces {self.space.name} takes {band[0]:.0%} to {band[1]:.0%} of the budget; "
                "widen the band"
            )
        return sets[pick(weights, rng)].draw(rng, band)

    def best(self, scores: NetworkSums, within: float = 1.0) -> Optimum:
        """The member with the highest additive score within a share of the budget; of equal ones the first.

        Args:
            scores: What is to be as large as possible, over the same union.
            within: Share of the budget that the member may take.

        Raises:
            InfeasibleBudget: No member is within that share.
            InvalidValue: Some are, but none of them has a finite score.
        """
        optima, reasons = list[Optimum](), list[InfeasibleBudget | InvalidValue]()
        for one in self.sets.values():
            try:
                optima.append(one.best(scores, within))
            except (InfeasibleBudget, InvalidValue) as reason:
                reasons.append(reason)
        if not optima:
            raise next((one for one in reasons if isinstance(one, InvalidValue)), reasons[0])
        return max(optima, key=lambda optimum: optimum.score)

    def repair(self, architecture: Architecture) -> Architecture:
        """The member within the budget that is nearest to a proposal, in its own space as that space has it.

        Where its space has none, the space with the most is taken, there the fastest network with all that the proposal
        chooses and that is offered there, too; of that one the nearest.
        """
        own = self.sets.get(architecture.space)
        return own.repair(architecture) if own is not None else self._moved(architecture)

    def _latencies(self, limits: Limits, number: int) -> SpaceSums:
        sums = limits.budgets[number].sums
        within = self.sets.get(sums.space.name)
        return sums if within is None else within.latencies(number)

    def _moved(self, architecture: Architecture) -> Architecture:
        largest = self._largest
        space, (_, fastest) = largest.space, largest.smallest()
        shared = {name: text for name, text in architecture.choices if text in space.choices.get(name, ())}
        return largest.repair(space.of_params(space.params(fastest) | shared))

    @cached_property
    def _largest(self) -> FeasibleSet:
        return max(self.sets.values(), key=lambda one: one.count)


def networks_within(space: SearchedSpace, limits: Sequence[Limits]) -> NetworkSet:
    """The networks of a space, or of a union of some, within limits.

    Args:
        space: The space.
        limits: By space, in order.

    Raises:
        InfeasibleBudget: There is none; the nearest budgets are named.
        NotMeasured: A space has no network all of whose rows are there.
    """
    return UnionSet(space, limits) if isinstance(space, SpaceUnion) else limits[0].networks()
