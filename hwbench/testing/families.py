"""The suite that every family passes: a test class with a fixture ``space`` inherits ``FamilyConformance``.

``space`` is a ``StagedSpace`` of the family with at most ``MOST`` members, at least two stages and more than one value
on every axis that may vary, so that sums, counts, optima and repairs can be held against all members one by one.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from hwbench.errors import InfeasibleBudget
from hwbench.models import network as network_module
from hwbench.spaces import StagedSpace
from hwbench.spaces.budgets import Budget, PeakLimit
from hwbench.spaces.family import families
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.joint import JointSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, BlockRole, BlockSpec, TensorSpec

MOST = 600
CLASSES = 4
# A budget in the middle of the members: many are within, many are not.
MIDDLE = 0.5


class FamilyConformance:
    """Inherit, and give a fixture ``space``."""

    def test_the_space_is_small_enough_to_be_counted_by_hand(self, space: StagedSpace) -> None:
        assert 1 < space.size() <= MOST
        assert families.get(space.family.name) is space.family
        assert len(list(space.architectures())) == space.size()

    def test_members_read_back_and_are_told_apart(self, space: StagedSpace) -> None:
        keys = set()
        for architecture in space.architectures():
            assert Architecture.parse(architecture.key) == architecture
            keys.add(architecture.key)
        assert len(keys) == space.size()

    def test_blocks_join_from_the_clip_to_the_logits(self, space: StagedSpace) -> None:
        for architecture in space.architectures():
            network = space.network(architecture, CLASSES)
            x = network.input
            roles = [block.role for block in network.blocks]
            for block in network.blocks:
                block.descriptor.check(block)
                x = block.output(x)
            several = any(block.pathway for block in network.blocks)
            stems = len([*itertools.takewhile(lambda role: role is BlockRole.STEM, roles)])
            assert stems == 1 or (several and stems > 1)
            assert roles[-1] is BlockRole.HEAD
            assert set(roles[stems:-1]) == {BlockRole.BODY}
            assert (x.c, x.t, x.h, x.w) == (CLASSES, 1, 1, 1)

    def test_the_same_choices_make_the_same_blocks(self, space: StagedSpace) -> None:
        first = next(iter(space.architectures()))
        again = space.network(Architecture.parse(first.key), CLASSES)
        assert again.blocks == space.network(first, CLASSES).blocks

    def test_a_network_runs(self, space: StagedSpace) -> None:
        network = space.network(next(iter(space.architectures())), CLASSES)
        module = network_module(network).eval()
        with torch.no_grad():
            assert module(torch.zeros(network.input.shape)).shape == (network.input.n, CLASSES)

    def test_sums_and_the_count_are_those_of_all_members(self, space: StagedSpace) -> None:
        costs = _members(space, _cost)
        feasible = FeasibleSet(_sums(space, _cost), _budget(costs))
        inside = {a: cost for a, cost in costs.items() if cost <= feasible.budget_s}
        # The grid never counts a network over budget; it may lose those nearest to it.
        assert 0.99 * len(inside) - 1 <= feasible.count <= len(inside)
        assert feasible.smallest()[0] == pytest.approx(min(costs.values()))
        for architecture, cost in costs.items():
            assert feasible.sums.total(architecture) == pytest.approx(cost)

    def test_the_optimum_is_that_of_all_members(self, space: StagedSpace) -> None:
        costs, scores = _members(space, _cost), _members(space, _score)
        feasible = FeasibleSet(_sums(space, _cost), _budget(costs) * (1 + 1e-3))
        best = feasible.best(_sums(space, _score)).architecture
        assert costs[best] <= feasible.budget_s
        inside = [scores[a] for a, cost in costs.items() if cost <= _budget(costs)]
        assert scores[best] >= max(inside) - 1e-9

    def test_draws_are_within_the_budget_and_reach_everything(self, space: StagedSpace) -> None:
        costs = _members(space, _cost)
        feasible = FeasibleSet(_sums(space, _cost), _budget(costs))
        rng = np.random.default_rng(0)
        drawn = Counter(feasible.draw(rng) for _ in range(20 * math.ceil(feasible.count)))
        assert all(costs[a] <= feasible.budget_s for a in drawn)
        assert len(drawn) >= 0.95 * feasible.count

    def test_a_repair_is_within_the_budget_and_leaves_the_feasible_alone(self, space: StagedSpace) -> None:
        costs = _members(space, _cost)
        feasible = FeasibleSet(_sums(space, _cost), _budget(costs))
        for architecture in list(costs)[:: max(len(costs) // 40, 1)]:
            repaired = feasible.repair(architecture)
            assert repaired in feasible
            if architecture in feasible:
                assert repaired == architecture

    def test_two_budgets_and_a_peak_are_kept_as_by_all_members(self, space: StagedSpace) -> None:
        costs, others, scores = (_members(space, number) for number in (_cost, _other_cost, _score))
        peaks = {architecture: _peak(space, architecture) for architecture in costs}
        limits, level = [1.05 * _budget(costs), 1.05 * _budget(others)], float(np.quantile(list(peaks.values()), 0.9))
        budgets = [
            Budget(name, limit, _sums(space, number))
            for name, limit, number in zip(("one", "other"), limits, (_cost, _other_cost))
        ]
        heights = PeakLimit("peak", level, SpaceSums.of_peaks(space, _cost, num_classes=CLASSES), "--peak")
        feasible = JointSet(budgets, [heights])
        inside = [a for a in costs if costs[a] <= limits[0] and others[a] <= limits[1] and peaks[a] <= level]
        sure = 1 - max(feasible.error)
        close = [a for a in inside if costs[a] > sure * limits[0] or others[a] > sure * limits[1]]
        assert len(inside) - len(close) <= feasible.count <= len(inside)
        assert scores[feasible.best(_sums(space, _score)).architecture] == pytest.approx(max(scores[a] for a in inside))
        rng = np.random.default_rng(0)
        assert {feasible.draw(rng) for _ in range(50)} <= set(inside)
        assert all(feasible.repair(a) in inside for a in list(costs)[:: max(len(costs) // 20, 1)])

    def test_an_impossible_budget_is_told_with_the_smallest_cost(self, space: StagedSpace) -> None:
        with pytest.raises(InfeasibleBudget):
            FeasibleSet(_sums(space, _cost), 0.5 * min(_members(space, _cost).values())).draw(np.random.default_rng(0))


def _cost(block: BlockSpec, x: TensorSpec) -> float:
    """Milliseconds between 1 and 2 for a block on an input: arbitrary, and always the same."""
    return 1e-3 * (1 + _share(f"cost {block.key}@{x.key}"))


def _other_cost(block: BlockSpec, x: TensorSpec) -> float:
    return 1e-3 * (1 + _share(f"other cost {block.key}@{x.key}"))


def _peak(space: StagedSpace, architecture: Architecture) -> float:
    """The largest cost of any block."""
    network, costs = space.network(architecture, CLASSES), []
    x = network.input
    for block in network.blocks:
        costs.append(_cost(*block.located(x)))
        x = block.output(x)
    return max(costs)


def _score(block: BlockSpec, x: TensorSpec) -> float:
    return _share(f"score {block.key}@{x.key}")


def _share(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32


def _sums(space: StagedSpace, number: object) -> SpaceSums:
    return SpaceSums.of(space, number, num_classes=CLASSES)  # type: ignore[arg-type]


def _members(space: StagedSpace, number: object) -> dict[Architecture, float]:
    totals = {}
    for architecture in space.architectures():
        network = space.network(architecture, CLASSES)
        x, total = network.input, 0.0
        for block in network.blocks:
            total += number(*block.located(x))  # type: ignore[operator]
            x = block.output(x)
        totals[architecture] = total
    return totals


def _budget(costs: dict[Architecture, float]) -> float:
    return float(np.quantile(list(costs.values()), MIDDLE))
