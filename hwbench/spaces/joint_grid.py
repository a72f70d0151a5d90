"""How many members are within several budgets, and which one is the n-th: by dynamic programming on a product grid.

What a choice costs beyond the least (``hwbench.spaces.joint_costs``) is rounded up to steps of each budget, so every
member that is counted is within all of them. The tables have an entry for each activation and each combination of steps
left, at most ``CELLS``; activations from which everything costs the same, as of costs that are no networks, share one.
The first two stages need no table, as their choices are gone through one by one.

A member is left out only if it is closer to a budget than one step per stage and one more. A step is the room between
the budget and the least that any member costs, divided by 511 under two budgets, by 63 under three and by 21 under
four. Budgets that all members keep take no steps, and those with whole costs take as many as there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hwbench.spaces.joint_costs import JointCosts
from hwbench.spaces.walk import Floats, Integers

# Combinations of steps in one table, and in all tables of one input size.
CELLS = 1 << 18
_ALL_CELLS = 1 << 24
# Of a number of steps, by which a quotient may miss it.
_ROUNDING = 1e-6
# Of a budget, by which sums may miss what they are.
_SLACK = 1e-12
# Ways that are gone through at a time where there is no table.
_CHUNK = 1 << 19
# Of a budget: where there is no room, a step is still one, and more than sums of shares are off by.
_SHORTEST = 1e-8
# Stages from this one on have tables.
_FIRST = 2
# Up to this number counts are exact; beyond, a band is the difference of two totals where it is more than this share.
_EXACT = 2.0**53
_PRECISE = 1e-6


@dataclass(frozen=True)
class JointGrid:
    """The members within budgets, on a grid.

    Args:
        costs: In shares of the budgets.
        units: By budget: what all costs are whole multiples of, as a share of the budget; 0: they are any numbers.
    """

    costs: JointCosts
    units: tuple[float, ...]
    _seen: dict[tuple[int, tuple[int, ...]], Floats] = field(default_factory=dict, init=False, repr=False)
    _bands: dict[int, tuple[tuple[int, ...], list[Floats]]] = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what was kept of answers and of the last bands: it is made where it is asked for."""
        return vars(self) | {"_seen": {}, "_bands": {}}

    @cached_property
    def steps(self) -> Integers:
        """By budget: the number of steps between the least that any member costs and the budget; 0: all keep it."""
        room = 1.0 - self.costs.least.min(axis=0)
        most = self.costs.least + self._most[0][:, :, 0].T
        reachable = np.isfinite(self.costs.least).all(axis=1)
        binding = (most[reachable] > 1.0).any(axis=0)
        whole = np.array([room[k] / unit if unit else np.inf for k, unit in enumerate(self.units)])
        steps = np.zeros(len(room), np.int64)
        cells, waiting = float(_cells(self.costs)), int(binding.sum())
        for k in sorted(np.flatnonzero(binding), key=lambda k: whole[k]):  # few whole steps leave more to the others
            steps[k] = max(1, min(_root(cells, waiting), whole[k] + _ROUNDING))
            cells, waiting = cells / (steps[k] + 1), waiting - 1
        return steps

    @cached_property
    def error(self) -> Floats:
        """By budget: a member that is closer to it than this share of it may be left out."""
        lost = [0.0 if not n or self._is_whole(k) else self._step[k] for k, n in enumerate(self.steps.tolist())]
        return np.array(lost) * (len(self._stages) + 1)

    def _is_whole(self, k: int) -> bool:
        room = 1.0 - self.costs.least[:, k].min()
        return bool(self.units[k]) and int(room / self.units[k] + _ROUNDING) <= self.steps[k]

    @cached_property
    def _step(self) -> Floats:
        """By budget: the length of a step; infinity where no steps are counted."""
        room = 1.0 - self.costs.least.min(axis=0)
        lengths = [self.units[k] if self._is_whole(k) else room[k] / max(n, 1) for k, n in enumerate(self.steps)]
        return np.where(self.steps > 0, np.maximum(lengths, _SHORTEST), np.inf)

    @cached_property
    def _most(self) -> list[Floats]:
        return self.costs.most_ahead()

    @cached_property
    def _stages(self) -> list[Integers]:
        """By stage: costs in steps, shape (input sizes, activations, choices, budgets); beyond all where not known."""
        found = []
        for costs, known in zip(self.costs.stages, self.costs.known):
            length = self._step[:, None, None, None]
            steps = np.ceil((costs - _SLACK) / length)
            steps = np.where(known, np.minimum(steps, self.steps[:, None, None, None] + 1), self.steps.max() + 1)
            found.append(np.moveaxis(steps.astype(np.int64), 0, 3))
        return found

    @cached_property
    def _tables(self) -> list[list[Floats]]:
        """By input size, then by stage from ``_FIRST`` on and one past the last."""
        return [self._tables_of(size) for size in range(len(self.costs.least))]

    def left(self, size: int, share: float) -> Integers:
        """Steps that members of an input size may take beyond the least, by budget, within a share of all budgets."""
        room = share - self.costs.least[size]
        if not np.isfinite(room).all():
            return self.nothing
        steps = np.floor(np.where(np.isfinite(self._step), (room + _SLACK) / self._step, 0.0))
        return np.clip(steps, -1, self.steps).astype(np.int64)

    @property
    def nothing(self) -> Integers:
        """Steps within which there is no member."""
        return np.full(len(self.steps), -1)

    def width(self, size: int, band: tuple[float, float]) -> Integers | None:
        """Steps by budget from the lower share of a band to the higher; None: the lower share is nothing."""
        low, high = band
        return self.left(size, high) - self.left(size, low) if low > 0 else None

    def count(self, size: int, share: float) -> float:
        """Number of members of an input size within a share of all budgets."""
        return float(self.ways(0, size, 0, self.left(size, share)).sum())

    def ways(self, number: int, size: int, state: int, left: Integers, width: Integers | None = None) -> Floats:
        """By choice of a stage: the number of members that go on with it within the steps left.

        Args:
            number: Of the stage.
            size: Number of the input size.
            state: Number of the activation that reaches the stage.
            left: Steps by budget.
            width: Only of members that are not within so many steps fewer.
        """
        within = self._within(number, size, state, left)
        if width is None or not (width > 0).any():
            return within if width is None else np.zeros(len(within))
        band: Floats = within - self._within(number, size, state, left - width)
        if within.sum() <= _EXACT or band.sum() > _PRECISE * within.sum():
            return band
        return self._ways(number, size, state, left, self._tables_of_band(size, width))

    def _within(self, number: int, size: int, state: int, left: Integers) -> Floats:
        if number:
            return self._ways(number, size, state, left, self._tables[size])
        key = (size, tuple(left.tolist()))
        if key not in self._seen:
            if len(self._seen) > 512:
                self._seen.clear()
            self._seen[key] = self._ways(number, size, state, left, self._tables[size])
        return self._seen[key]

    def _tables_of_band(self, size: int, width: Integers) -> list[Floats]:
        """As of all members; those of the last band are kept."""
        key = tuple(width.tolist())
        if size not in self._bands or self._bands[size][0] != key:
            self._bands[size] = key, self._tables_of(size, width)
        return self._bands[size][1]

    def _ways(self, number: int, size: int, state: int, left: Integers, tables: Sequence[Floats]) -> Floats:
        costs, out = self._stages[number][size, state], self.costs.out[number][size, state]
        return self._completions(number + 1, size, out, left - costs, tables)

    def cost(self, number: int, size: int, state: int, choice: int) -> Integers:
        """What a choice costs beyond the least, in steps by budget."""
        steps: Integers = self._stages[number][size, state, choice]
        return steps

    def _completions(
        self, number: int, size: int, states: Integers, left: Integers, tables: Sequence[Floats]
    ) -> Floats:
        """The number of ways from a stage on, by the activation that reaches it and by the steps left (N, budgets)."""
        within = (left >= 0).all(axis=1)
        found: Floats = np.zeros(len(states))
        states, left = states[within], left[within]
        if not len(states):
            return found
        if number >= _FIRST or number == len(self._stages):
            table = tables[-1] if number == len(self._stages) else tables[number - _FIRST]
            at = np.minimum(left, np.array(table.shape[1:]) - 1)
            found[within] = table[(_rows_of(table, states), *at.T)]
            return found
        costs, out = self._stages[number][size], self.costs.out[number][size]
        some = np.empty(len(states))
        width = max(1, _CHUNK // costs.shape[1])
        for first in range(0, len(states), width):
            part = states[first : first + width]
            further = left[first : first + width, None] - costs[part]
            ways = self._completions(number + 1, size, out[part].ravel(), further.reshape(-1, further.shape[2]), tables)
            some[first : first + width] = ways.reshape(len(part), -1).sum(axis=1)
        found[within] = some
        return found

    def _tables_of(self, size: int, width: Integers | None = None) -> list[Floats]:
        if not (self.left(size, 1.0) >= 0).all():
            return []
        more = np.zeros(len(self.steps)) if width is None else width
        after = _end(np.minimum(self.steps, more).astype(np.int64), width)
        tables = [after]
        for number in range(len(self._stages) - 1, _FIRST - 1, -1):
            most = np.ceil(self._most[number][:, size].max(axis=1) / self._step) + len(self._stages) + more
            shape = [int(n) + 1 for n in np.minimum(self.steps, most)]
            after = self._table(number, size, after, shape)
            tables.append(after)
        return tables[::-1]

    def _table(self, number: int, size: int, after: Floats, shape: Sequence[int]) -> Floats:
        rows = slice(0, 1 if self.costs.alike[number] else None)
        costs, out = self._stages[number][size, rows], _rows_of(after, self.costs.out[number][size, rows])
        # Activations that no member reaches may have longer ways on than all that are reached.
        after = after[(slice(None), *(slice(0, n) for n in shape))]
        wide = np.pad(after, [(0, 0), *((0, n - m) for n, m in zip(shape, after.shape[1:]))], mode="edge")
        table = np.zeros((len(costs), *shape))
        for row, steps, outs in zip(table, costs, out):
            alike, counts = np.unique(np.column_stack([steps, outs]), axis=0, return_counts=True)
            within = (alike[:, :-1] < np.array(shape)).all(axis=1)
            for (*step, handed_on), number_alike in zip(alike[within].tolist(), counts[within].tolist()):
                into = tuple(slice(n, None) for n in step)
                row[into] += number_alike * wide[(handed_on, *(slice(0, m - n) for n, m in zip(step, shape)))]
        return table


def _end(most: Integers, width: Integers | None) -> Floats:
    """By the steps left where a member ends, up to ``most`` and more: 1; of a band only below its width, else 0."""
    left = np.indices([1, *(most + 1)])[1:]
    if width is None:
        return np.ones(left.shape[1:])
    ends = np.zeros(left.shape[1:])
    ends[(left < width.reshape(-1, *(1 for _ in ends.shape))).any(axis=0)] = 1.0
    return ends


def fewest_steps(costs: JointCosts) -> int:
    """Steps of a budget where all of them take as many."""
    return _root(_cells(costs), costs.least.shape[1])


def _rows_of(table: Floats, states: Integers) -> Integers:
    """The rows of activations in a table, which has one for all of them where they are alike."""
    return np.minimum(states, len(table) - 1)


def _cells(costs: JointCosts) -> int:
    rows = sum(1 if alike else stage.shape[2] for stage, alike in zip(costs.stages[_FIRST:], costs.alike[_FIRST:]))
    return min(CELLS, _ALL_CELLS // max(rows, 1))


def _root(cells: float, budgets: int) -> int:
    """Steps of each of so many budgets that share a table."""
    return int(math.pow(cells, 1 / budgets) + _ROUNDING) - 1
