"""The best member within a budget by a score that is additive over stages: exact, without looking at most choices.

Latencies are whole steps of a grid (``hwbench.spaces.feasible``). A price per step turns the budget into a cost, so
that the best member at that price is found stage by stage; whatever the price, its value plus the price of all steps
is no less than what any member within the budget scores. Prices are halved in on for all input sizes at once. A choice
through which not even that bound reaches the best score found so far is left out, and what remains, mostly a few
choices of one input size, is solved by dynamic programming over the steps left.

Source: Lagrangian bounds and the fixing of variables by them in knapsack problems (Kellerer, Pferschy and Pisinger,
Knapsack Problems, 2004, §9.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.walk import Floats, Integers

# Prices that are tried: each halves what is not known of the best one.
_PRICES = 14
# Scores are sums of the same numbers in another order than their bounds.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class BestChoices:
    """The number of an input size, and the number of a choice for each stage."""

    score: float
    cell: int
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class GridCosts:
    """What members cost in whole steps.

    Attributes:
        grid: Steps of the budget.
        bases: Shape (input sizes): steps of what is always there.
        stages: By input size and stage: shape (activations that reach the stage, choices).
        out: By input size and stage, of the same shape: the activation that reaches the next stage.
    """

    grid: int
    bases: Integers
    stages: Sequence[Sequence[Integers]]
    out: Sequence[Sequence[Integers]]

    def stacked(self) -> list[_Stacked]:
        """Each stage of all input sizes in arrays; rows that an input size does not have are out of reach."""
        return [self._stack(index) for index in range(len(self.stages[0]))]

    def _stack(self, index: int) -> _Stacked:
        rows = max(len(stages[index]) for stages in self.stages)
        shape = (len(self.stages), rows, self.stages[0][index].shape[1])
        costs, out = np.full(shape, self.grid + 1, np.int64), np.zeros(shape, np.int64)
        for at, (stages, outs) in enumerate(zip(self.stages, self.out)):
            costs[at, : len(stages[index])], out[at, : len(stages[index])] = stages[index], outs[index]
        return _Stacked(costs, out)


@dataclass(frozen=True)
class _Stacked:
    """Arrays of shape (input sizes, activations, choices)."""

    costs: Integers
    out: Integers

    def gains(self, scores: Sequence[Floats], grid: int) -> Floats:
        """What the choices score; minus infinity where one is beyond the budget, or has no score: infinity."""
        gains = np.full(self.costs.shape, -np.inf)
        for at, rows in enumerate(scores):
            gains[at, : len(rows)] = rows
        gains[(self.costs > grid) | np.isposinf(gains)] = -np.inf
        return gains


class Optimiser:
    """Finds best members within ``grid`` steps; made once for a set of costs."""

    def __init__(self, costs: GridCosts) -> None:
        self._costs = costs
        self._stacked = costs.stacked()
        self._cells = np.arange(len(costs.bases))

    def best(self, scores: SpaceSums, grid: int) -> BestChoices | None:
        """The member with the highest score within so many steps; None where none is.

        Args:
            scores: What is to be as large as possible.
            grid: Steps that a member may take, at most those of the budget.
        """
        left = grid - self._costs.bases
        gains = [
            stage.gains([cell.stages[index].seconds for cell in scores.cells], self._costs.grid)
            for index, stage in enumerate(self._stacked)
        ]
        bases = np.array([cell.base for cell in scores.cells])
        bases = np.where((left >= 0) & np.isfinite(bases), bases, -np.inf)
        prices, least = self._prices(gains, bases, left)
        behind = self._behind(gains, prices)
        bounds = bases + prices * left + behind[0][:, 0]
        slack = _ROUNDING * (1 + abs(least)) if math.isfinite(least) else 0.0
        found: BestChoices | None = None
        for cell in np.argsort(-bounds, kind="stable").tolist():
            if not np.isfinite(bounds[cell]) or bounds[cell] < max(least, found.score if found else -np.inf) - slack:
                break
            kept = self._kept(cell, gains, prices[cell], behind, bases[cell] + prices[cell] * left[cell], least - slack)
            candidate = self._solve(cell, scores, kept, int(left[cell]))
            if candidate is not None and (found is None or _beats(candidate, found)):
                found = candidate
        return found

    def _prices(self, gains: list[Floats], bases: Floats, left: Integers) -> tuple[Floats, float]:
        """By input size a price at which the bound is low, and the highest score of a member found on the way."""
        finite = [stage[np.isfinite(stage)] for stage in gains]
        spread = sum(float(np.ptp(stage)) for stage in finite if stage.size)
        low, high = np.zeros(len(bases)), np.full(len(bases), spread + 1.0)
        price, least = np.zeros(len(bases)), -np.inf
        for _ in range(_PRICES):
            score, cost = self._trace(gains, self._behind(gains, price), price)
            within = (cost <= left) & np.isfinite(bases + score)
            if within.any():
                least = max(least, float((bases + score)[within].max()))
            high, low = np.where(within, price, high), np.where(within, low, price)
            # prices lie orders of magnitude apart: steps are small and scores may be anything
            middle = np.sqrt(np.maximum(low, spread * 1e-9 + 1e-300) * high)
            price = np.where(high == 0, 0.0, middle)
        return high, least

    def _behind(self, gains: list[Floats], prices: Floats) -> list[Floats]:
        """For each stage and one past the last, by input size and activation: the most that is still to come."""
        values = [np.zeros((len(prices), 1))]
        for stage, gain in zip(reversed(self._stacked), reversed(gains)):
            ahead = values[-1][self._cells[:, None, None], stage.out]
            values.append((gain - prices[:, None, None] * stage.costs + ahead).max(axis=2))
        return values[::-1]

    def _trace(self, gains: list[Floats], behind: list[Floats], prices: Floats) -> tuple[Floats, Integers]:
        """By input size: score and cost of the best member at its price."""
        state = np.zeros(len(prices), np.int64)
        score, cost = np.zeros(len(prices)), np.zeros(len(prices), np.int64)
        for stage, gain, ahead in zip(self._stacked, gains, behind[1:]):
            row_gain, row_cost = gain[self._cells, state], stage.costs[self._cells, state]
            row_out = stage.out[self._cells, state]
            total = row_gain - prices[:, None] * row_cost + ahead[self._cells[:, None], row_out]
            number = total.argmax(axis=1)
            score += row_gain[self._cells, number]
            cost += row_cost[self._cells, number]
            state = row_out[self._cells, number]
        return score, cost

    def _kept(
        self, cell: int, gains: list[Floats], price: float, behind: list[Floats], base: float, least: float
    ) -> list[list[Integers]]:
        """By stage and activation: the choices through which the bound reaches ``least``."""
        ahead, kept = np.zeros(1), []
        for stage, gain, rest in zip(self._stacked, gains, behind[1:]):
            rows = len(ahead)
            out = stage.out[cell, :rows]
            reached = ahead[:, None] + gain[cell, :rows] - price * stage.costs[cell, :rows]
            through = base + reached + rest[cell][out]
            kept.append([np.flatnonzero(row) for row in (through >= least) & np.isfinite(through)])
            following = np.full(rest.shape[1], -np.inf)
            np.maximum.at(following, out, reached)
            ahead = following
        return kept

    def _solve(self, cell: int, scores: SpaceSums, kept: list[list[Integers]], left: int) -> BestChoices | None:
        """The best member of one input size among the choices kept, by dynamic programming over the steps left."""
        costs, out = self._costs.stages[cell], self._costs.out[cell]
        gains = [stage.seconds for stage in scores.cells[cell].stages]
        tables = [np.zeros((1, left + 1))]
        for index in range(len(costs) - 1, 0, -1):
            table = np.full((len(costs[index]), left + 1), -np.inf)
            for row, numbers, steps, outs, scored in zip(table, kept[index], costs[index], out[index], gains[index]):
                for number in numbers.tolist():
                    cost, after = int(steps[number]), tables[-1][outs[number]]
                    if cost <= left:
                        np.maximum(row[cost:], scored[number] + after[: left + 1 - cost], out=row[cost:])
            tables.append(table)
        tables.append(np.empty((0, 0)))
        tables.reverse()
        picked: list[int] = []
        state, first = 0, 0.0
        for index, by_state in enumerate(kept):
            numbers = by_state[state]
            steps, outs = costs[index][state][numbers], out[index][state][numbers]
            rest = np.where(steps <= left, tables[index + 1][outs, np.maximum(left - steps, 0)], -np.inf)
            values = gains[index][state][numbers] + rest
            if not np.isfinite(values).any():
                return None
            at = int(np.argmax(values))
            first = first if picked else float(values[at])
            picked.append(int(numbers[at]))
            left, state = left - int(steps[at]), int(outs[at])
        return BestChoices(float(scores.cells[cell].base + first), cell, tuple(picked))


def _beats(one: BestChoices, other: BestChoices) -> bool:
    return one.score > other.score or (one.score == other.score and one.cell < other.cell)
