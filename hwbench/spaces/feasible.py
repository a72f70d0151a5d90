"""Exactly which members of a space fit a latency budget: counted, drawn uniformly, optimised over, repaired into.

Because a predicted latency is a sum over blocks, the members within a budget are counted by dynamic programming over
the stages, with the activation that reaches a stage and the latency still to spend as the state. Latencies lie on a
grid of ``GRID`` steps; each stage (and the base) is rounded up to it, so every network that is counted is within the
budget. The price: a network is left out only if it is closer to the budget than one step per stage and one for the
base, 0.025 % of the budget for four stages. Where blocks choose for themselves it is one step per
block. Counts are 64-bit floats: exact up to 2**53, correct to 15 digits beyond.

Source of the idea: counting and backward sampling in knapsack problems (Dyer, STOC 2003, "Approximate counting by
dynamic programming"); the same tables with (max, +) give optima, with (min, +) repairs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hwbench.errors import InfeasibleBudget, InvalidValue
from hwbench.spaces.budgets import checked_share
from hwbench.spaces.completions import Completions
from hwbench.spaces.costs import (
    Costs,
    CostSpace,
    common_unit,
    cost_budget,
    most_units,
    of_choices,
    spent_sums,
    unit_within,
)
from hwbench.spaces.optimum import GridCosts, Optimiser
from hwbench.spaces.protocols import NetworkSums
from hwbench.spaces.reachable import parts_within
from hwbench.spaces.repair import nearest_within
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.walk import Floats, Integers
from hwbench.specs import Architecture, BlockSpec, TensorSpec
from hwbench.units import format_duration, rounded_up

GRID = 20_000
# Of the budget, by which sums of whole steps may differ from them.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Optimum:
    """A best member: its score, its latency and itself."""

    score: float
    seconds: float
    architecture: Architecture


class FeasibleSet:
    """The members of a space whose predicted latency is at most ``budget_s``.

    Members with a block that has no latency are left out; ``sums.coverage`` is the share of the space that is known.

    Args:
        sums: The latencies of the space.
        budget_s: The budget in seconds.
        unit: All latencies are whole multiples of it, which are the steps of the grid: nothing is lost to it.

    Raises:
        InfeasibleBudget: No member fits; the message names the smallest reachable latency.
        NotMeasured: No member has latencies for all its blocks.
    """

    def __init__(self, sums: SpaceSums, budget_s: float, *, unit: float | None = None) -> None:
        sums.require()
        self.sums = sums
        self.space = sums.space
        self.budget_s = budget_s
        self._unit = unit
        # Steps are counted from what is least there, which is below zero where the constant of a calibration is.
        self._origin = min(0.0, *(cell.base for cell in sums.cells))
        room = budget_s - self._origin
        self._step = room / GRID if unit is None else unit
        self._rounding = 0.0 if unit is None else _ROUNDING * room / unit
        self._grid = GRID if unit is None else math.floor(room / unit + self._rounding)
        if not self._step:  # no room for steps: only what costs nothing is within
            self._step, self._grid = 1.0, 0
        self._most_s = budget_s + self._rounding * self._step
        self._bases = np.array([self._ceil(np.array(cell.base - self._origin)) for cell in sums.cells]).reshape(-1)
        self._costs = [[self._ceil(stage.seconds) for stage in cell.stages] for cell in sums.cells]
        smallest, architecture = sums.smallest()
        if smallest > self._most_s or not np.any(self._bases <= self._grid):
            raise self._infeasible(smallest, architecture)
        self._ahead = self._completions()
        self._band: tuple[int, list[Completions]] | None = None
        if not self.count:
            raise self._infeasible(smallest, architecture)

    def __getstate__(self) -> dict[str, Any]:
        """Without the tables of the last band, which is as much again: they are made where they are asked for."""
        return vars(self) | {"_band": None}

    @classmethod
    def of_costs(cls, costs: Costs, budget: float) -> FeasibleSet:
        """Choices of any kind whose costs add up, no networks: for Optuna studies of one's own.

        Whole costs, and decimal ones with few digits, are exact as long as a table of all sums up to the budget has
        room, 20,000 different ones at least; others are rounded up to a grid, see above, and ``error`` is not 0. For
        several budgets: ``hwbench.spaces.joint.JointSet.of_named_costs``.

        Args:
            costs: What each value of each choice costs, by the name and the values of ``trial.suggest_categorical``.
            budget: What they may cost together.

        Raises:
            InvalidValue: The costs are no mapping, a cost is not a number of 0 or more, the budget is not a finite one,
                values of one choice read the same, or there are more combinations than a float counts.
            InfeasibleBudget: Nothing is that cheap; the message names the smallest sum.
        """
        sums = spent_sums(costs)
        most = cost_budget(budget)
        if not sums.num_known:
            raise InfeasibleBudget(f"budget {most:g}: a choice has only values that are ruled out, by infinite costs")
        return FeasibleSet(sums, most, unit=common_unit(sums, most, most_units(sums, GRID)))

    @property
    def count(self) -> float:
        """Number of members within the budget (on the grid, see above)."""
        return float(sum(self._totals(self._grid)))

    @property
    def error(self) -> tuple[float, ...]:
        """By budget, which is one: only members closer to it than this share of it may be missing from counts, draws
        and optima.
        """
        if self._unit is not None or not self._grid:
            return (0.0,)
        return (self._step * self._lost_steps / self.budget_s if self.budget_s else math.inf,)

    @property
    def parts(self) -> tuple[FeasibleSet, ...]:
        """Itself: one space is a union of one (``hwbench.spaces.union_set``)."""
        return (self,)

    @property
    def counts(self) -> Mapping[str, float]:
        """The same by space, which is one."""
        return {self.space.name: self.count}

    def share(self) -> float:
        """Share of the known members that are within the budget."""
        return self.count / self.sums.num_known

    def latencies(self, number: int) -> SpaceSums:
        """What members take on the device of this number, from 0: here is one."""
        if number:
            raise IndexError(f"one budget, asked for number {number}")
        return self.sums

    def __contains__(self, architecture: object) -> bool:
        return isinstance(architecture, Architecture) and self.sums.total(architecture) <= self._most_s

    def tightened(self, share: float) -> FeasibleSet:
        """The members within a share of the budget.

        Raises:
            InvalidValue: The share is not a finite number of 0 or more.
            InfeasibleBudget: There is none.
        """
        budget = checked_share(share) * self.budget_s
        unit = unit_within(self.sums, budget, most_units(self.sums, GRID), self._unit)
        return FeasibleSet(self.sums, budget, unit=unit)

    def smallest(self) -> tuple[float, Architecture]:
        """The smallest latency of any member and the member, without any grid."""
        return self.sums.smallest()

    def count_within(self, band: tuple[float, float]) -> float:
        """Number of members whose latency is in a band, as ``draw`` takes it."""
        return float(self._ways(band).sum())

    def draw(self, rng: np.random.Generator, band: tuple[float, float] = (0.0, 1.0)) -> Architecture:
        """A member whose latency is within ``band``, as shares of the budget: above the first, at most the second.

        Exactly uniform: all members of the band (on the grid) are equally likely, and none is ever rejected.

        Raises:
            InfeasibleBudget: The band is empty.
        """
        weights = self._ways(band)
        if not weights.sum() > 0:
            raise InfeasibleBudget(
                f"no {self._member} takes {band[0]:.0%} to {band[1]:.0%} of {self._most}; widen the band"
            )
        at = pick(weights, rng)
        low, high = self._ends(band)
        left, state, picked = high - self._bases[at], 0, []
        ahead = self._ahead_within(low, high)[at]
        for index, (axis, stage) in enumerate(zip(self.sums.axes, self.sums.cells[at].stages)):
            costs, out = self._costs[at][index][state], stage.out[state]
            number = pick(ahead.at_most(index + 1, out, left - costs), rng)
            picked.append(axis.choices[number])
            left, state = left - costs[number], int(out[number])
        return self.space.member(self.sums.cells[at].cell, tuple(picked))

    def best(self, scores: NetworkSums, within: float = 1.0) -> Optimum:
        """The member with the highest additive score within the budget (on the grid).

        Args:
            scores: What is to be as large as possible, over the same space.
            within: Share of the budget that the member may take.

        Raises:
            InfeasibleBudget: No member is within that share.
            InvalidValue: Some are, but none of them has a finite score; or scores of costs are of other choices.
        """
        steps = self._steps_within(within)
        found = self._optimiser.best(of_choices(scores.of_space(self.space.name), self.space), steps)
        if found is None and any(self._totals(steps)):
            raise InvalidValue(
                f"no {self._member} has a finite score, of those that take at most {within:.0%} of {self._most}"
            )
        if found is None:
            raise InfeasibleBudget(f"no {self._member} takes at most {within:.0%} of {self._most}")
        choices = tuple(axis.choices[number] for axis, number in zip(self.sums.axes, found.numbers))
        architecture = self.space.member(self.sums.cells[found.cell].cell, choices)
        return Optimum(found.score, self.sums.total(architecture), architecture)

    def repair(self, architecture: Architecture) -> Architecture:
        """The member within the budget that is nearest to a proposal: fewest choices changed, then fewest steps on
        their scales, then the faster one. A proposal within the budget comes back as it is. Exact, without any grid.
        """
        if self.sums.total(architecture) <= self._most_s:
            return architecture
        return nearest_within(self.sums, self._most_s, architecture)

    def reachable_parts(self) -> Iterator[tuple[BlockSpec, TensorSpec]]:
        """The blocks, on their inputs, that occur in at least one member within the budget."""
        return parts_within(self.sums, self._most_s)

    @property
    def _lost_steps(self) -> int:
        """Steps that rounding up may cost a member: one for each step of the space, and one for the base."""
        return len(self.sums.axes) + 1

    @property
    def _member(self) -> str:
        return "combination" if isinstance(self.space, CostSpace) else f"network of space {self.space.name!r}"

    @property
    def _most(self) -> str:
        """The budget, in words."""
        return f"{self.budget_s:g}" if isinstance(self.space, CostSpace) else format_duration(self.budget_s)

    def _ceil(self, seconds: Floats) -> Integers:
        """Grid steps, rounded up; more than any budget where there is no latency."""
        with np.errstate(over="ignore"):  # far beyond a tiny budget
            steps = np.ceil(seconds / self._step - self._rounding)
        return np.minimum(steps, self._grid + 1).astype(np.int64)

    def _steps_within(self, share: float) -> int:
        """Grid steps of a share of the budget, at most all of them."""
        if self._unit is not None:
            steps = math.floor((share * self.budget_s - self._origin) / self._step + self._rounding)
            return min(steps, self._grid)
        below_zero = -self._origin / self._step
        return min(math.floor(share * self._grid + (1 - share) * below_zero), self._grid)

    def _ends(self, band: tuple[float, float]) -> tuple[int, int]:
        """Grid steps that the members of a band are above, and that they are at most."""
        return self._steps_within(band[0]) if band[0] > 0 else -1, self._steps_within(band[1])

    def _ways(self, band: tuple[float, float]) -> Floats:
        """By input size: the number of members in a band."""
        low, high = self._ends(band)
        if high <= low:
            return np.zeros(len(self._bases))
        return np.array(self._counted(self._ahead_within(low, high), high))

    def _ahead_within(self, low: int, high: int) -> list[Completions]:
        """By input size: ways on of members above some steps and at most others; those of the last band are kept."""
        if low < 0:
            return self._ahead
        band = self._band
        if band is None or band[0] != high - low:
            self._band = band = high - low, self._completions(high - low)
        return band[1]

    def _completions(self, width: int | None = None) -> list[Completions]:
        cells = zip(self.sums.cells, self._costs)
        return [Completions.of(cell.stages, costs, self._grid, width) for cell, costs in cells]

    @cached_property
    def _optimiser(self) -> Optimiser:
        out = [[stage.out for stage in cell.stages] for cell in self.sums.cells]
        return Optimiser(GridCosts(self._grid, self._bases, self._costs, out))

    def _totals(self, steps: int) -> list[float]:
        """By input size: the number of members whose latency is at most ``steps``."""
        return self._counted(self._ahead, steps)

    def _counted(self, ahead: Sequence[Completions], steps: int) -> list[float]:
        """By input size: the number of members within so many steps that have the ways on of ``ahead``."""
        return [
            float(ways.at_most(1, cell.stages[0].out[0], steps - base - costs[0][0]).sum())
            for ways, base, costs, cell in zip(ahead, self._bases.tolist(), self._costs, self.sums.cells)
        ]

    def _infeasible(self, smallest: float, architecture: Architecture) -> InfeasibleBudget:
        # what is named must be enough when typed again
        if isinstance(self.space, CostSpace):
            enough = self._enough(smallest)
            return InfeasibleBudget(
                f"budget {self.budget_s:.12g}: the smallest reachable sum is {smallest:.12g} ({architecture.key}); "
                f"{enough:.7g} is enough",
                enough / self.budget_s if self.budget_s else math.inf,
            )
        enough = smallest if self._unit is not None else self._beyond_grid(smallest)
        enough_ms = math.ceil(enough * 1e6) / 1e3
        known = "" if not self.sums.missing else f" among the {self.sums.coverage:.1%} of it that is measured"
        return InfeasibleBudget(
            f"budget {format_duration(self.budget_s)}: no network of space {self.space.name!r}{known} is that fast; "
            f"the smallest reachable latency is {enough_ms:g} ms ({architecture.key}); "
            f"try for example --budget {enough_ms:g}ms",
            enough / self.budget_s if self.budget_s else math.inf,
        )

    def _enough(self, smallest: float) -> float:
        """A budget of seven digits within which there is a combination that costs so much: the costs within it, which
        may be others than those within this one, tell whether it is counted on a grid.
        """
        typed = rounded_up(smallest, 7)
        if common_unit(self.sums, typed, most_units(self.sums, GRID)) is not None:
            return typed
        return rounded_up(self._beyond_grid(smallest), 7)

    def _beyond_grid(self, smallest: float) -> float:
        """A budget on whose grid a member with the smallest sum is counted, whatever rounding up costs it."""
        return self._origin + (smallest - self._origin) * GRID / (GRID - self._lost_steps)


def pick(weights: Floats, rng: np.random.Generator) -> int:
    """An index drawn in proportion to weights >= 0."""
    edges = np.cumsum(np.maximum(weights, 0.0))
    return int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
