"""How far budgets must grow together, or one of them alone, until some member is within all of them."""

from __future__ import annotations

import numpy as np

from hwbench.spaces.joint_costs import JointCosts
from hwbench.spaces.joint_optimum import JointProblem
from hwbench.spaces.optimum import BestChoices
from hwbench.spaces.walk import Floats

# Rounds in which the weights of the budgets are learned, and halvings of what is not known of the smallest share.
_ROUNDS = 60
_HALVINGS = 14
# About a second. Most answers take a hundred; with 30 choices of 4 values the search may not end, and what it has seen
# so far is far from the least.
_MOST_CHUNKS = 5_000
# Shares that are closer to each other are one.
TOLERANCE = 1e-3


def smallest_share(costs: JointCosts) -> tuple[float, BestChoices]:
    """The smallest share of all budgets within which there is a member, up to 0.1 % above it; and such a member.

    Whatever the weights of the budgets, the least weighted sum of costs is no more than the share. Weights are learned
    by multiplicative updates, one set for each input size; then the interval between that bound and the best member
    seen is halved.

    Source: Arora, Hazan and Kale, Theory of Computing 2012, "The multiplicative weights update method".
    """
    weights, lower, upper, member = _weigh(costs)
    for _ in range(_HALVINGS):
        if upper <= lower * (1 + TOLERANCE):
            break
        middle = (lower + upper) / 2
        found = _any_within(costs, weights, np.full(costs.least.shape[1], middle))
        if found is None:
            lower = middle
        else:
            upper, member = min(middle, float(spent(costs, found).max())), found
    return upper, member


def any_within(costs: JointCosts, limits: Floats | None = None) -> bool:
    """Whether a member is within all budgets, or within these shares of them. Exact."""
    sizes, budgets = costs.least.shape
    shares = np.ones(budgets) if limits is None else limits
    return _any_within(costs, np.full((sizes, budgets), 1 / budgets), shares) is not None


def smallest_of(costs: JointCosts, budget: int, limits: Floats) -> BestChoices | None:
    """The member that costs least under one budget while it is within shares of the others.

    None: there is none, or too many members are close to each other to find it.
    """
    most = costs.least + costs.most_ahead()[0][:, :, 0].T
    free = limits.copy()
    free[budget] = most[np.isfinite(most).all(axis=1), budget].max()
    gains = [-stage[budget] for stage in costs.stages]
    problem = JointProblem(costs, free, -costs.least[:, budget], gains, most_chunks=_MOST_CHUNKS)
    member = problem.solve()
    return None if problem.chunks >= _MOST_CHUNKS else member


def spent(costs: JointCosts, member: BestChoices) -> Floats:
    """What a member costs, by budget."""
    total: Floats = costs.least[member.cell].copy()
    state = 0
    for stage, out, number in zip(costs.stages, costs.out, member.numbers):
        total += stage[:, member.cell, state, number]
        state = int(out[member.cell, state, number])
    return total


def _any_within(costs: JointCosts, weights: Floats, limits: Floats) -> BestChoices | None:
    """A member within shares of the budgets. By weights, members within score no less than minus the weighted shares;
    whatever scores less is left out.
    """
    gains = [-np.einsum("sb,bsac->sac", weights, stage) for stage in costs.stages]
    bases = -_weighted(weights, costs.least)
    floor = -float((weights @ limits).max())
    return JointProblem(costs, limits, bases, gains, floor=floor - 1e-9 * abs(floor), any_will_do=True).solve()


def _weigh(costs: JointCosts) -> tuple[Floats, float, float, BestChoices]:
    """By input size weights at which the bound is high; the bound over all; the smallest share seen and its member."""
    sizes, budgets = costs.least.shape
    zeros = [np.zeros(known.shape) for known in costs.known]
    problem = JointProblem(costs, np.full(budgets, np.inf), np.zeros(sizes), zeros)
    logs, lower, weights = np.zeros((sizes, budgets)), np.full(sizes, -np.inf), np.zeros((sizes, budgets))
    upper, member = np.inf, BestChoices(0.0, 0, ())
    for index in range(_ROUNDS):
        at = np.exp(logs - logs.max(axis=1, keepdims=True))
        at /= at.sum(axis=1, keepdims=True)
        ahead = problem.ahead(at)
        bounds = _weighted(at, costs.least) - ahead[0][:, 0]
        weights, lower = np.where((bounds > lower)[:, None], at, weights), np.maximum(lower, bounds)
        numbers, _, beyond = problem.trace(at, ahead)
        total = np.where(np.isfinite(costs.least), costs.least + beyond, np.inf)
        worst = total.max(axis=1)
        size = int(np.argmin(worst))
        if worst[size] < upper:
            upper, member = float(worst[size]), BestChoices(0.0, size, tuple(numbers[size].tolist()))
        finite = np.where(np.isfinite(total), total, 0.0)
        logs += 2 / np.sqrt(index + 1) * finite / np.maximum(finite.max(axis=1, keepdims=True), 1e-300)
    return weights, float(lower.min()), upper, member


def _weighted(weights: Floats, least: Floats) -> Floats:
    """By input size; infinity where there is no member."""
    return np.where(
        np.isfinite(least).all(axis=1), (weights * np.where(np.isfinite(least), least, 0)).sum(axis=1), np.inf
    )
