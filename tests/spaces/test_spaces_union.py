"""A union of spaces against brute force: every space with arbitrary costs and a fixed part of its own."""

from collections import Counter
from dataclasses import replace

import numpy as np
import optuna
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from random_spaces import brute, number_of, spaces
from scipy.stats import chisquare

from hwbench.errors import InfeasibleBudget, InvalidValue, NotMeasured
from hwbench.spaces import SpaceUnion, load_space, open_spaces
from hwbench.spaces.budgets import Budget
from hwbench.spaces.feasible import GRID, FeasibleSet
from hwbench.spaces.limits import Limits
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.union import UnionSums, joined, sums_over
from hwbench.spaces.union_set import UnionSet, networks_within
from hwbench.testing.small_spaces import SMALL_SPACES, add_small_spaces
from hwbench.workspace import Workspace


def named(space, name):
    """A random space under another name."""
    return replace(space, name=name)


class Known:
    """Two spaces with costs of their own, and everything about their members by brute force."""

    def __init__(self, one, other, salt=0, constants=(3.0, 11.0)):
        self.union = SpaceUnion((named(one, "first"), named(other, "second")))
        self.sums, self.totals = [], {}
        for place, (space, constant) in enumerate(zip(self.union.members, constants, strict=True)):
            self.sums.append(SpaceSums.of(space, self.number(salt, place), num_classes=4, constant=constant))
            self.totals |= {a: constant + t for a, t in brute(space, self.number(salt, place)).items()}

    @staticmethod
    def number(salt, place):
        return lambda block, x: number_of(block, x, salt + 1000 * place, whole=False)

    def budget(self, share):
        ordered = sorted(self.totals.values())
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] * (1 + 1e-9)  # sums are rounded

    def within(self, budget):
        """Members that are in for sure, and those that the grid may leave out of counts and draws."""
        steps = 2 + max(len(space.steps) for space in self.union.members)
        sure = {a for a, t in self.totals.items() if t <= budget * (1 - steps / GRID)}
        return sure, {a for a, t in self.totals.items() if t <= budget}

    def set(self, budget):
        return UnionSet(self.union, [Limits((Budget("cost", budget, sums),)) for sums in self.sums])

    def scores(self, salt):
        parts = [SpaceSums.of(s, self.number(salt, 7 + at), num_classes=4) for at, s in enumerate(self.union.members)]
        return UnionSums(self.union, tuple(parts))


@settings(max_examples=8, deadline=None, phases=(Phase.generate,))
@given(spaces, spaces, st.integers(0, 10**6), st.floats(0.02, 0.98))
def test_the_set_of_a_union_is_that_of_brute_force(one, other, salt, share):
    known = Known(one, other, salt)
    budget = known.budget(share)
    sure, within = known.within(budget)
    try:
        feasible = known.set(budget)
    except InfeasibleBudget:
        assert not sure
        return
    assert len(sure) <= feasible.count <= len(within)
    assert sum(feasible.counts.values()) == feasible.count
    alone = [FeasibleSet(s, budget).count for s in known.sums if s.space.name in feasible.sets]
    assert feasible.count == sum(alone)
    assert not {a for a in sure if a.space not in feasible.sets}  # a space is empty where the grid leaves out its last
    assert {a for a in known.totals if a in feasible} == {a for a in within if a.space in feasible.sets}
    assert feasible.share() == pytest.approx(feasible.count / known.union.size())
    smallest, fastest = feasible.smallest()
    assert smallest == pytest.approx(min(known.totals.values()))
    assert known.totals[fastest] == pytest.approx(smallest)
    scores = known.scores(salt)
    best = feasible.best(scores)
    assert scores.total(best.architecture) == pytest.approx(best.score)
    assert max(map(scores.total, sure), default=-np.inf) <= best.score + 1e-9
    assert best.score <= max(map(scores.total, within)) + 1e-9
    rng = np.random.default_rng(salt)
    for _ in range(5):
        proposal = known.union.random(rng)
        repaired = feasible.repair(proposal)
        assert repaired in feasible
        assert repaired == proposal if proposal in feasible else repaired.space in feasible.sets
        if proposal.space in feasible.sets:
            assert repaired == feasible.sets[proposal.space].repair(proposal)
        assert feasible.draw(rng) in within


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return Workspace.create(tmp_path_factory.mktemp("spaces"))


@pytest.fixture(scope="module")
def small(workspace):
    """Forty-eight and thirty-two networks of two families, which overlap in cost."""
    add_small_spaces(workspace)
    return Known(*(load_space(workspace, name) for name in SMALL_SPACES), constants=(3.0, 700.0))


def test_draws_are_uniform_over_the_union_and_over_a_band(small):
    budget = 1.002 * small.budget(0.7)  # nothing is lost to the grid
    feasible, rng = small.set(budget), np.random.default_rng(0)
    sure, within = small.within(budget)
    assert sure == within
    assert {a.space for a in within} == {"first", "second"}
    for band in ((0.0, 1.0), (0.6, 1.0)):
        expected = {a for a in within if small.totals[a] > band[0] * budget}
        assert feasible.count_within(band) == len(expected)
        drawn = Counter(feasible.draw(rng, band) for _ in range(60 * len(expected)))
        assert set(drawn) == expected
        assert chisquare(list(drawn.values())).pvalue > 1e-3


def test_at_the_edge_of_a_budget_the_next_network_of_either_space_comes_in(small):
    ordered = sorted(small.totals, key=small.totals.__getitem__)
    scores = small.scores(5)
    for at in range(2, len(ordered) - 1, 5):
        edge = (small.totals[ordered[at]] + small.totals[ordered[at + 1]]) / 2
        if small.totals[ordered[at + 1]] - small.totals[ordered[at]] < edge * 20 / GRID:
            continue
        feasible = small.set(edge)
        assert feasible.count == at + 1
        assert feasible.best(scores).score == pytest.approx(max(map(scores.total, ordered[: at + 1])))
        assert ordered[at] in feasible
        assert ordered[at + 1] not in feasible


def test_a_space_without_a_network_within_is_left_out_and_named(small):
    least = {s.space.name: s.smallest()[0] for s in small.sums}
    first, second = sorted(least, key=least.__getitem__)
    feasible = small.set((least[first] + least[second]) / 2)
    assert list(feasible.empty) == [second]
    assert f"no network of space {second!r}" in str(feasible.empty[second])
    assert feasible.counts[second] == 0
    assert feasible.count == feasible.counts[first] > 0
    rng = np.random.default_rng(1)
    assert {feasible.draw(rng).space for _ in range(20)} == {first}
    assert feasible.best(small.scores(1)).architecture.space == first
    stranger = next(a for a in small.totals if a.space == second)
    assert stranger not in feasible
    moved = feasible.repair(stranger)
    assert moved.space == first
    assert moved in feasible
    with pytest.raises(InfeasibleBudget, match="takes 0% to 1%"):
        feasible.draw(rng, (0.0, 0.01))
    assert small.set(2 * least[second]).tightened(0.6).counts.keys() == {"first", "second"}


def test_the_best_is_that_of_the_spaces_whose_networks_have_a_score(small):
    def nothing(block, x):
        raise NotMeasured("no score")

    feasible, scores = small.set(small.budget(0.7)), small.scores(5)
    none = tuple(SpaceSums.of(space, nothing, num_classes=4) for space in small.union.members)
    for lacking in (0, 1):
        members = [unscored if at == lacking else scores.members[at] for at, unscored in enumerate(none)]
        other = feasible.parts[1 - lacking]
        assert feasible.best(UnionSums(small.union, tuple(members))) == other.best(scores)
    with pytest.raises(InvalidValue, match="no network of space 'first' has a finite score"):
        feasible.best(UnionSums(small.union, none))
    with pytest.raises(InfeasibleBudget, match="no network of space 'first' takes at most 1% of"):
        feasible.best(UnionSums(small.union, none), within=0.01)
    least = [one.smallest()[0] for one in small.sums]
    slow, fast = np.argsort(least)[::-1]
    flipped = SpaceUnion((small.union.members[slow], small.union.members[fast]))
    feasible = UnionSet(flipped, [Limits((Budget("cost", 2 * max(least), small.sums[at]),)) for at in (slow, fast)])
    with pytest.raises(InvalidValue, match=f"no network of space {flipped.members[1].name!r} has a finite score"):
        feasible.best(UnionSums(flipped, none), within=sum(least) / 2 / feasible.budget_s)


def test_where_no_space_has_a_network_the_nearest_budget_is_named(small):
    smallest = min(small.totals.values())
    with pytest.raises(InfeasibleBudget, match="no network of any of the spaces first,second") as told:
        small.set(0.5 * smallest)
    assert min(small.totals, key=small.totals.__getitem__).key in str(told.value)
    assert told.value.excess == pytest.approx(2, rel=0.01)
    assert small.set(0.5 * smallest * told.value.excess * 1.0001).count >= 1


def test_limits_of_every_kind_are_those_of_each_space(small):
    """Two budgets and a union of them: the joint set of each space, put together."""
    budget, bytes_ = small.budget(0.6), 900.0
    weights = [SpaceSums.of(s, small.number(3, 20 + n), num_classes=4) for n, s in enumerate(small.union.members)]
    limits = [
        Limits((Budget("cost", budget, cost), Budget("size", bytes_, size)))
        for cost, size in zip(small.sums, weights, strict=True)
    ]
    feasible = networks_within(small.union, limits)
    size = UnionSums(small.union, tuple(weights))
    within = {a for a, cost in small.totals.items() if cost <= budget and size.total(a) <= bytes_}
    assert within
    assert {a for a in small.totals if a in feasible} == within
    assert 0.9 * len(within) <= feasible.count <= len(within)
    assert feasible.latencies(1).total(next(iter(within))) == pytest.approx(size.total(next(iter(within))))
    assert feasible.draw(np.random.default_rng(0)) in within


def test_a_space_without_rows_is_an_error_and_not_left_out(small):
    def nothing(block, x):
        raise NotMeasured("no row")

    lacking = SpaceSums.of(small.union.members[1], nothing, num_classes=4)
    with pytest.raises(NotMeasured, match="no network of space 'second' has all its rows"):
        UnionSet(small.union, [Limits((Budget("cost", 1e6, sums),)) for sums in (small.sums[0], lacking)])


def test_params_of_every_member_come_back(small):
    union = small.union
    assert union.size() == len(small.totals) == sum(1 for _ in union.architectures())
    assert list(union.choices)[:2] == ["space", "first:frames"]
    for architecture in union.architectures():
        params = union.params(architecture)
        assert params.keys() == union.choices.keys()
        assert union.of_params(params) == architecture
        assert union.sample(optuna.trial.FixedTrial(params)) == architecture
        assert union.network(architecture, 4).name == architecture.key
    with pytest.raises(InvalidValue, match=r"no space 'third' among first,second"):
        union.of_params(params | {"space": "third"})
    with pytest.raises(InvalidValue, match="expected a choice of 'space' among first,second, got frames"):
        union.of_params({"frames": "4"})


def test_a_union_is_of_different_spaces_and_one_space_is_itself(small, workspace):
    first, second = small.union.members
    assert joined([first]) is first
    assert sums_over(first, small.number(0, 0), num_classes=4).members[0].space is first
    with pytest.raises(InvalidValue, match="got 'first' more than once"):
        SpaceUnion((first, second, first))
    with pytest.raises(InvalidValue, match="got 'zoo-x3d-xs' more than once in zoo-x3d-xs, zoo-x3d-xs"):
        open_spaces(workspace, ["zoo:x3d-xs", "zoo-x3d-xs"])
