"""The best member within several budgets by a score that is additive over stages: exact, without any grid.

A price for each budget turns budgets into costs, so that the best member at these prices is found stage by stage;
whatever the prices, its value plus the price of all room is no less than what any member within the budgets scores.
Prices go down the subgradient of that bound, for all input sizes at once. Then the choices are followed from the first
stage, most promising first, and what cannot beat the best member seen by that bound is left out.

Sources: Lagrangian bounds of multidimensional knapsack problems (Kellerer, Pferschy and Pisinger, Knapsack Problems,
2004, §9.2); step lengths of Polyak, USSR Computational Mathematics and Mathematical Physics 1969.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hwbench.spaces.budgets import Mask
from hwbench.spaces.joint_costs import JointCosts
from hwbench.spaces.optimum import BestChoices
from hwbench.spaces.walk import Floats, Integers

# Steps down the bound, and steps without a lower one after which steps get shorter.
_STEPS = 80
_PATIENCE = 4
# A bound that is lower by less, as a share of it, is not.
_LOWER = 1e-6
# Partial networks that are followed at a time.
_CHUNK = 256
# Of a budget, and of a score: sums of the same numbers in another order.
ROUNDING = 1e-11


@dataclass
class JointProblem:
    """The best member of the input sizes of ``costs``.

    Args:
        costs: What members cost, in shares of the budgets.
        limits: Shape (budgets): the share of each budget that a member may take.
        bases: Shape (input sizes): what all members of an input size score.
        gains: By stage: shape (input sizes, activations, choices), or what is broadcast to it: what choices score.
        floor: A member is wanted that scores more.
        any_will_do: The first member that is within the budgets is the answer.
        most_chunks: So many chunks of partial networks are followed at most; then the best member seen so far is
            given.
    """

    costs: JointCosts
    limits: Floats
    bases: Floats
    gains: Sequence[Floats]
    floor: float = -np.inf
    any_will_do: bool = False
    most_chunks: float = math.inf
    best: BestChoices | None = field(default=None, init=False)
    chunks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        known = np.isfinite(self.costs.least)
        room = self.limits - np.where(known, self.costs.least, 0.0)
        self._within = np.all(known & (room >= -ROUNDING), axis=1) & np.isfinite(self.bases)
        self._room = np.where(self._within[:, None] & np.isfinite(room), room, 0.0)
        self._gains = [np.where(known, gain, -np.inf) for known, gain in zip(self.costs.known, self.gains)]

    @cached_property
    def _scale(self) -> float:
        """How large scores may be, or 1 where they may be larger: what sums are off by is a share of it."""
        largest = [np.abs(part[np.isfinite(part)]).max(initial=0.0) for part in (self.bases, *self._gains)]
        return min(1.0, float(sum(largest)))

    def solve(self) -> BestChoices | None:
        """The member with the highest score above ``floor``; None where none is within the budgets."""
        if not self._within.any():
            return None
        prices, bounds = self._prices()
        for size in np.argsort(-bounds, kind="stable").tolist():
            if self.beaten(bounds[[size]]).all() or self.done:
                break
            values = [value[size] for value in self.ahead(prices)]
            search = _Search(self, size, prices[size], values)
            search.follow(_Partial.at_start(self.bases[size], self.costs.least.shape[1]))
        return self.best

    @property
    def done(self) -> bool:
        """Whether nothing more is looked for."""
        return (self.any_will_do and self.best is not None) or self.chunks >= self.most_chunks

    def beaten(self, bounds: Floats) -> Mask:
        """Whether nothing below these bounds is better than what is there."""
        least = self.best.score if self.best is not None else self.floor
        slack = ROUNDING * (self._scale + abs(least)) if np.isfinite(least) else 0.0
        return np.logical_not(bounds > least + slack)

    def offer(self, score: float, size: int, numbers: Sequence[int]) -> None:
        """A member within the budgets, which is kept if it is the best so far."""
        if not self.beaten(np.array([score])).all():
            self.best = BestChoices(float(score), size, tuple(numbers))

    def _prices(self) -> tuple[Floats, Floats]:
        """By input size: prices at which the bound is low, and the bound."""
        sizes = len(self.bases)
        prices, lowest = np.zeros_like(self._room), np.full(sizes, np.inf)
        at, length, stalled = np.zeros_like(self._room), np.ones(sizes), np.zeros(sizes, np.int64)
        for _ in range(_STEPS):
            ahead = self.ahead(at)
            bounds = np.where(self._within, self.bases + (at * self._room).sum(axis=1) + ahead[0][:, 0], -np.inf)
            lower = bounds < lowest - _LOWER * np.abs(np.where(np.isfinite(lowest), lowest, 0.0))
            prices, lowest = np.where(lower[:, None], at, prices), np.minimum(lowest, bounds)
            stalled = np.where(lower, 0, stalled + 1)
            length = np.where(stalled >= _PATIENCE, length / 2, length)
            stalled = np.where(stalled >= _PATIENCE, 0, stalled)
            excess = self._offer_traced(at, ahead) - self._room
            if self.beaten(lowest).all() or self.done:
                break
            at = np.maximum(at + self._step(bounds, lowest, length, excess)[:, None] * excess, 0.0)
        return prices, lowest

    def _step(self, bounds: Floats, lowest: Floats, length: Floats, excess: Floats) -> Floats:
        """Polyak's step towards the best score seen, or to somewhat below the bound where none is."""
        least = self.best.score if self.best is not None else self.floor
        aim = np.where(np.isfinite(lowest), np.maximum(least, lowest - self._spread), 0.0)
        steepness = (excess**2).sum(axis=1)
        return np.where(steepness > 0, length * np.maximum(bounds - aim, 0.0) / np.maximum(steepness, 1e-12), 0.0)

    @property
    def _spread(self) -> float:
        finite = [gain[np.isfinite(gain)] for gain in self._gains]
        return sum(float(np.ptp(gain)) for gain in finite if gain.size) / len(finite) + 1e-12

    def ahead(self, prices: Floats) -> list[Floats]:
        """For each stage and one past the last, by input size and activation: the most that is still to come."""
        sizes = np.arange(len(prices))[:, None, None]
        values = [np.zeros((len(prices), 1))]
        for gain, costs, out in zip(*(reversed(part) for part in (self._gains, self.costs.stages, self.costs.out))):
            priced = np.einsum("sb,bsac->sac", prices, costs)
            values.append((gain - priced + values[-1][sizes, out]).max(axis=2))
        return values[::-1]

    def _offer_traced(self, prices: Floats, ahead: list[Floats]) -> Floats:
        """By input size: what the best member at its prices costs beyond the least. Those within are offered."""
        numbers, scores, spent = self.trace(prices, ahead)
        fits = self._within & np.all(spent <= self._room + ROUNDING, axis=1) & np.isfinite(scores)
        for size in np.flatnonzero(fits).tolist():
            self.offer(scores[size], size, numbers[size].tolist())
        return spent

    def trace(self, prices: Floats, ahead: list[Floats]) -> tuple[Integers, Floats, Floats]:
        """By input size: the choices of the best member at its prices, its score, and its costs beyond the least."""
        sizes = np.arange(len(prices))
        state, scores, picked = np.zeros(len(prices), np.int64), self.bases.copy(), []
        spent = np.zeros_like(prices)
        for gain, costs, out, after in zip(self._gains, self.costs.stages, self.costs.out, ahead[1:]):
            row = costs[:, sizes, state]
            total = gain[sizes, state] - np.einsum("sb,bsc->sc", prices, row) + after[sizes[:, None], out[sizes, state]]
            number = total.argmax(axis=1)
            scores += gain[sizes, state, number]
            spent += row[:, sizes, number].T
            picked.append(number)
            state = out[sizes, state, number]
        return np.stack(picked, axis=1), scores, spent

    def room(self, size: int) -> Floats:
        """Shape (budgets): what members of an input size may cost beyond the least."""
        room: Floats = self._room[size]
        return room

    def stage(self, number: int, size: int) -> tuple[Floats, Floats, Integers]:
        """Of one stage at one input size: scores, costs and what is handed on."""
        return self._gains[number][size], self.costs.stages[number][:, size], self.costs.out[number][size]


@dataclass(frozen=True)
class _Partial:
    """Networks up to a stage: arrays over them."""

    state: Integers
    score: Floats
    spent: Floats
    picked: Integers

    @classmethod
    def at_start(cls, base: float, budgets: int) -> _Partial:
        """Nothing chosen."""
        zero = np.zeros(1, np.int64)
        return cls(zero, np.array([base]), np.zeros((1, budgets)), np.empty((1, 0), np.int64))

    def taken(self, at: Integers) -> _Partial:
        """Some of them."""
        return _Partial(self.state[at], self.score[at], self.spent[at], self.picked[at])


@dataclass(frozen=True)
class _Search:
    """Follows the choices of one input size by the bound at its prices."""

    problem: JointProblem
    size: int
    prices: Floats
    ahead: list[Floats]

    def follow(self, partial: _Partial) -> None:
        """Completes partial networks from the first stage on, the most promising first."""
        waiting = [(0, part) for part in self._chunks(0, partial)]
        while waiting and not self.problem.done:
            number, chunk = waiting.pop()
            chunk = chunk.taken(np.flatnonzero(~self.problem.beaten(self._bounds(number, chunk))))
            if not len(chunk.score):
                continue
            self.problem.chunks += 1
            further = self._further(number, chunk)
            if number == len(self.problem.gains) - 1:
                self._offer(further)
            else:
                waiting += ((number + 1, part) for part in self._chunks(number + 1, further))

    def _chunks(self, number: int, partial: _Partial) -> list[_Partial]:
        """Partial networks that reach a stage, few at a time; the most promising come last."""
        order = np.argsort(-self._bounds(number, partial), kind="stable")
        return [partial.taken(order[first : first + _CHUNK]) for first in range(0, len(order), _CHUNK)][::-1]

    def _further(self, number: int, partial: _Partial) -> _Partial:
        """All ways through one more stage that are within the budgets and may still be the best."""
        gains, costs, out = self.problem.stage(number, self.size)
        score = partial.score[:, None] + gains[partial.state]
        spent = partial.spent.T[:, :, None] + costs[:, partial.state]
        room = self.problem.room(self.size)
        left = room[:, None, None] - spent
        bounds = score + np.einsum("b,bpc->pc", self.prices, left) + self.ahead[number + 1][out[partial.state]]
        kept = ~self.problem.beaten(bounds) & np.all(left >= -ROUNDING, axis=0)
        parent, choice = np.nonzero(kept)
        picked = np.concatenate([partial.picked[parent], choice[:, None]], axis=1)
        return _Partial(
            out[partial.state[parent], choice], score[parent, choice], spent[:, parent, choice].T.copy(), picked
        )

    def _bounds(self, number: int, partial: _Partial) -> Floats:
        left = self.problem.room(self.size) - partial.spent
        return partial.score + left @ self.prices + self.ahead[number][partial.state]

    def _offer(self, complete: _Partial) -> None:
        if len(complete.score):
            at = int(np.argmax(complete.score))
            self.problem.offer(complete.score[at], self.size, complete.picked[at].tolist())
