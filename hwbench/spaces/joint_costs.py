"""What the members of a space cost under several budgets, in arrays over all input sizes.

Costs are shares of their budget. Of every cost the least that has to come anyway is taken off: what is left of a choice
is what it costs more than the cheapest way on. A member costs ``least`` and the sum of what is left of its choices. As
nothing that is left is below zero, what is above a budget at one stage is above it at the end.

Source: potentials of shortest paths (Johnson, JACM 1977), here one for each budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hwbench.spaces.budgets import Budget, Mask
from hwbench.spaces.walk import Floats, Integers, StageSums

# Of a budget: what costs more counts as so much, which is as far beyond. Squares of sums of such shares are numbers.
_MOST = 1e150

_Number = TypeVar("_Number", np.float64, np.int64)


@dataclass(frozen=True)
class JointCosts:
    """The costs of all members.

    Attributes:
        least: Shape (input sizes, budgets): the least that a member costs; infinity where there is none.
        stages: By stage: shape (budgets, input sizes, activations, choices): what a choice costs beyond the least.
        known: By stage: shape (input sizes, activations, choices): whether the choice is part of any member.
        out: By stage, of the same shape: the number of the activation that reaches the next stage.
    """

    least: Floats
    stages: tuple[Floats, ...]
    known: tuple[Mask, ...]
    out: tuple[Integers, ...]

    @classmethod
    def of(cls, budgets: Sequence[Budget]) -> JointCosts:
        """Costs under budgets over one space, each of which knows the same blocks (``jointly_known``)."""
        sizes = range(len(budgets[0].sums.cells))
        out = tuple(stacked([stage.out for stage in column], 0) for column in _columns(budgets[0]))
        raw = [np.stack(by_budget) for by_budget in zip(*(_shares(budget) for budget in budgets), strict=True)]
        ahead, stages, known = np.zeros((len(budgets), len(sizes), 1)), [], []
        for costs, outs in zip(reversed(raw), reversed(out)):
            through = costs + ahead[:, np.arange(len(sizes))[:, None, None], outs]
            ahead = through.min(axis=3)
            known.append(np.isfinite(through[0]))
            with np.errstate(invalid="ignore"):  # infinity less infinity, where nothing leads on
                beyond = np.maximum(through - ahead[..., None], 0.0)
            stages.append(np.where(known[-1], beyond, 0.0))
        bases = np.stack([_of(np.array([cell.base for cell in one.sums.cells]), one) for one in budgets], axis=1)
        return cls(bases + ahead[:, :, 0].T, tuple(stages[::-1]), tuple(known[::-1]), out)

    @cached_property
    def alike(self) -> tuple[bool, ...]:
        """By stage: whether all activations that reach it have the same choices at the same costs, now and later."""
        found = [True]
        for costs, known, out in zip(reversed(self.stages), reversed(self.known), reversed(self.out)):
            same = all(_is_repeated(one) for one in (costs, known))
            found.append(same and (found[-1] or _is_repeated(out)))
        return tuple(found[:0:-1])

    def most_ahead(self) -> list[Floats]:
        """For each stage and one past the last, shape (budgets, input sizes, activations): the most still to come."""
        sizes = np.arange(len(self.least))[:, None, None]
        most = [np.zeros((self.least.shape[1], len(self.least), 1))]
        for costs, known, out in zip(reversed(self.stages), reversed(self.known), reversed(self.out)):
            most.append(np.where(known, costs + most[-1][:, sizes, out], 0.0).max(axis=3))
        return most[::-1]


def _is_repeated(values: NDArray[np.generic]) -> bool:
    """Whether the rows of all activations, the last axis but one, are the same."""
    return bool((values == values[..., :1, :]).all())


def stacked(rows: Sequence[NDArray[_Number]], fill: float) -> NDArray[_Number]:
    """One array of shape (input sizes, activations, choices); activations that an input size lacks are filled."""
    most = max(len(one) for one in rows)
    found = np.full((len(rows), most, rows[0].shape[1]), fill, rows[0].dtype)
    for at, one in enumerate(rows):
        found[at, : len(one)] = one
    return found


def _columns(budget: Budget) -> Iterator[tuple[StageSums, ...]]:
    """By stage: its sums at each input size."""
    return zip(*(cell.stages for cell in budget.sums.cells), strict=True)


def _shares(budget: Budget) -> list[Floats]:
    """By stage: what its choices cost in shares of the budget; infinity where there is no number."""
    return [_of(stacked([stage.seconds for stage in column], np.inf), budget) for column in _columns(budget)]


def _of(costs: Floats, budget: Budget) -> Floats:
    """Costs in shares of a budget, of which the smallest would make infinity of them."""
    with np.errstate(over="ignore"):
        shares: Floats = np.where(np.isfinite(costs), np.minimum(costs / budget.limit, _MOST), np.inf)
    return shares
