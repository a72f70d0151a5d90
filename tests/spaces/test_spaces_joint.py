"""Several budgets at once against brute force, on small spaces with arbitrary costs and on choices of costs."""

import itertools
import math
import pickle
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_spaces import X3D_ENDS, brute, budget_of, located_blocks, number_of, spaces

from hwbench.errors import HwbenchError, InfeasibleBudget, InvalidValue
from hwbench.spaces.budgets import Budget, PeakLimit
from hwbench.spaces.costs import cost_sums
from hwbench.spaces.families import X3d
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.joint import JointSet
from hwbench.spaces.scales import steps_along
from hwbench.spaces.space import StagedSpace
from hwbench.spaces.stages import Stage
from hwbench.spaces.sums import SpaceSums

# Sums of the same numbers in another order.
CLOSE = 1 + 1e-9


class Case:
    """A space, two or three budgets and a peak, and every member's numbers."""

    def __init__(self, space, salt, shares, peak_share):
        self.space, self.salt = space, salt
        numbers = [lambda b, x, s=salt + k: number_of(b, x, s, whole=False) for k in range(len(shares))]
        self.totals = [brute(space, number) for number in numbers]
        self.sums = [SpaceSums.of(space, number, num_classes=4) for number in numbers]
        self.limits = [budget_of(totals, share) * 1.01 for totals, share in zip(self.totals, shares)]
        self.budgets = [
            Budget(f"b{k}", limit, sums, f"--b{k}") for k, (limit, sums) in enumerate(zip(self.limits, self.sums))
        ]
        self.heights = self.largest()
        level = budget_of(self.heights, peak_share)
        peaks = SpaceSums.of_peaks(space, lambda b, x: number_of(b, x, salt + 50, whole=False), num_classes=4)
        self.peak = PeakLimit("height", level, peaks, "--height")

    def largest(self):
        return {
            architecture: max(number_of(block, x, self.salt + 50, whole=False) for block, x in parts)
            for architecture, parts in located_blocks(self.space).items()
        }

    def shares(self, architecture):
        return [totals[architecture] / limit for totals, limit in zip(self.totals, self.limits)]

    def within(self, share=1.0):
        allowed = [a for a in self.totals[0] if self.heights[a] <= self.peak.limit]
        return [a for a in allowed if max(self.shares(a)) <= share]


cases = st.builds(
    Case, spaces, st.integers(0, 10**6), st.lists(st.floats(0.2, 1), min_size=1, max_size=3), st.floats(0.3, 1)
)


def case_of_a_width_that_is_too_high_at_two_frames():
    """Longer ways lead on from that width than from all that fit."""
    fixed = {"expansion": (1.0,), "kernel": (((3, 3, 3),),), "se": (0.25,), "act": ("relu",)}
    first = {"depth": (2,), "width": (8, 16), **fixed, "temporal_stride": (1,)}
    second = {"depth": (1,), "width": (8,), **fixed, "se": (0.0,), "temporal_stride": (1, 2)}
    by_block = ("expansion", "se")
    stages = Stage.of(first, stride=2, by_block=by_block), Stage.of(second, stride=1, by_block=by_block[:1])
    space = StagedSpace("fine", frames=(2, 5), resolution=(16,), family=X3d(), ends=X3D_ENDS, stages=stages)
    return Case(space, 106784, [0.5], 0.5)


def case_of_one_network_that_costs_what_is_typed():
    """Its costs in shares of the budget, 939, add up to one and a rounding error."""
    fixed = {"depth": (1,), "width": (8,), "act": ("relu",)}
    apart, flat = {"kernel": (((3, 3, 3),),), "se": (0.0, 0.25)}, {"kernel": (((1, 3, 3),),), "se": (0.25,)}
    stages = (
        Stage.of({**fixed, "expansion": (1.0,), **apart}, stride=1),
        Stage.of({**fixed, "expansion": (1.0,), **flat}, stride=2),
        Stage.of({**fixed, "expansion": (1.0, 2.25), **flat}, stride=2),
    )
    space = StagedSpace("any", frames=(4,), resolution=(32,), family=X3d(), ends=X3D_ENDS, stages=stages)
    return Case(space, 68, [1.0], 0.375)


def joint(case):
    """The set, or None where brute force finds it empty, too."""
    try:
        return JointSet(case.budgets, [case.peak])
    except InfeasibleBudget:
        # what is closer to a budget than the grid tells apart may be all there is
        q = (len(case.space.steps) + 1) / 60
        least = [min(totals.values()) / limit for totals, limit in zip(case.totals, case.limits)]
        assert not [a for a in case.within() if all(c < 1 - q * (1 - low) for c, low in zip(case.shares(a), least))]
        return None


@settings(max_examples=40, deadline=None)
@given(cases)
@example(case_of_a_width_that_is_too_high_at_two_frames())
def test_the_count_is_that_of_brute_force_but_for_the_error_that_is_said(case):
    feasible = joint(case)
    if feasible is None:
        return
    within = case.within()
    sure = [a for a in within if all(c <= 1 - e for c, e in zip(case.shares(a), feasible.error))]
    assert len(sure) <= feasible.count <= len(within)
    assert feasible.share() == feasible.count / case.space.size()
    assert all(a in feasible for a in within)
    assert sum(a in feasible for a in case.totals[0]) == len(within)
    rng = np.random.default_rng(case.salt)
    assert {feasible.draw(rng) for _ in range(20)} <= set(within)


@settings(max_examples=40, deadline=None)
@given(cases, st.floats(0.5, 1))
def test_the_best_is_that_of_brute_force_without_any_grid(case, share):
    feasible = joint(case)
    if feasible is None:
        return
    scores = brute(case.space, lambda b, x: number_of(b, x, case.salt + 9, whole=False))
    sums = SpaceSums.of(case.space, lambda b, x: number_of(b, x, case.salt + 9, whole=False), num_classes=4)
    within = case.within(share)
    if not within:
        with pytest.raises(InfeasibleBudget):
            feasible.best(sums, share)
        return
    for best in (feasible.best(sums, share), feasible.tightened(share).best(sums)):
        assert best.architecture in within
        assert best.score == pytest.approx(max(scores[a] for a in within))
        assert best.seconds == pytest.approx(case.totals[0][best.architecture])


@settings(max_examples=40, deadline=None)
@given(cases, st.integers(0, 10**6))
def test_repair_changes_as_little_as_possible(case, seed):
    feasible = joint(case)
    if feasible is None:
        return
    proposal = case.space.random(np.random.default_rng(seed))

    # The order of choices and values stands once: brute force asks for thousands of distances.
    places = {name: dict(zip(values, steps_along(values).tolist())) for name, values in case.space.choices.items()}

    def distance(other):
        told = dict(other.choices)  # of blocks that only one of both has, nothing is changed
        pairs = [(places[n][v], places[n][told.get(n, v)]) for n, v in proposal.choices]
        return sum(a != b for a, b in pairs), sum(abs(a - b) for a, b in pairs)

    repaired, within = feasible.repair(proposal), case.within()
    assert repaired in within
    if proposal in within:
        assert repaired == proposal
        return
    key = {a: (distance(a), sum(case.shares(a))) for a in within}
    nearest = min(key.values())
    assert key[repaired][0] == nearest[0]
    assert key[repaired][1] == pytest.approx(nearest[1])


@settings(max_examples=40, deadline=None)
@given(cases)
def test_the_smallest_share_is_that_of_brute_force_to_a_thousandth(case):
    feasible = joint(case)
    if feasible is None:
        return
    seconds, member = feasible.smallest()
    truth = min(max(case.shares(a)) for a in case.within())
    assert truth <= seconds / feasible.budget_s * CLOSE <= truth * 1.002
    assert max(case.shares(member)) == pytest.approx(seconds / feasible.budget_s)


@settings(max_examples=25, deadline=None)
@given(cases)
def test_reachable_parts_are_those_of_the_members_of_each_budget(case):
    feasible = joint(case)
    if feasible is None:
        return
    parts, blocks = list(feasible.reachable_parts()), located_blocks(case.space)
    lower = [a for a in blocks if case.heights[a] <= case.peak.limit]
    by_budget = [
        {part for a in lower if totals[a] <= limit for part in blocks[a]}
        for totals, limit in zip(case.totals, case.limits)
    ]
    assert len(parts) == len(set(parts))
    assert set(parts) == set.intersection(*by_budget)


def test_budgets_with_room_for_one_network_have_its_parts():
    """The grid of one budget by itself would lose it."""
    fixed = {"depth": (2,), "width": (8,), "expansion": (1.0,), "kernel": (((3, 3, 3),),), "se": (0.0,)}
    stages = tuple(Stage.of({**fixed, "act": ("relu",)}, stride=stride) for stride in (1, 2))
    space = StagedSpace("one", frames=(2,), resolution=(32,), family=X3d(), ends=X3D_ENDS, stages=stages)
    sums = [SpaceSums.of(space, lambda b, x, s=s: number_of(b, x, s, whole=False), num_classes=4) for s in (0, 1)]
    for room in (1.0, 1.00001):
        feasible = JointSet([Budget(f"b{k}", one.smallest()[0] * room, one) for k, one in enumerate(sums)])
        assert feasible.count == 1
        (blocks,) = located_blocks(space).values()
        assert set(feasible.reachable_parts()) == set(blocks)


@settings(max_examples=40, deadline=None)
@given(cases, st.floats(0.01, 0.2))
@example(case_of_one_network_that_costs_what_is_typed(), 0.125)
def test_what_is_named_where_nothing_is_within_is_enough_and_near(case, tight):
    case.limits = [min(totals.values()) * (1 + tight) for totals in case.totals]
    case.budgets = [budget.scaled(limit / budget.limit) for budget, limit in zip(case.budgets, case.limits)]
    try:
        JointSet(case.budgets, [case.peak])
    except InfeasibleBudget as error:
        message = str(error)
    else:
        assert case.within()
        return
    if "the smallest reachable" in message:
        assert min(case.heights.values()) > case.peak.limit
        assert JointSet(*typed_again(case, named_last(message))).count
        return
    for way in message.partition("try for example ")[2].split(", or "):
        assert JointSet(*typed_again(case, way.partition(" (")[0])).count


def named_last(message):
    return re.split("give at least |try for example ", message)[-1]


def typed_again(case, options):
    words = options.split()
    values = dict(zip(words[::2], map(float, words[1::2])))
    budgets = [b.scaled(values.get(b.option, b.limit) / b.limit) for b in case.budgets]
    peak = PeakLimit("height", values.get("--height", case.peak.limit), case.peak.peaks, "--height")
    return budgets, [peak]


def test_draws_are_uniform():
    costs = {
        name: {f"c{i}": {v: (v * (i + k) * 7) % 5 + 1 for v in range(4)} for i in range(3)}
        for k, name in enumerate("ab")
    }
    feasible = JointSet.of_named_costs(costs, {"a": 8, "b": 9})
    members = combinations(costs, {"a": 8, "b": 9})
    rng, number = np.random.default_rng(0), 400 * len(members)
    drawn = Counter(tuple(feasible.space.params(feasible.draw(rng)).values()) for _ in range(number))
    assert set(drawn) == set(members)
    expected = number / len(members)
    chi2 = sum((n - expected) ** 2 / expected for n in drawn.values())
    assert chi2 < len(members) + 4 * math.sqrt(2 * len(members))


def test_a_band_holds_what_is_within_its_upper_share_and_not_within_its_lower():
    costs = {
        name: {f"c{i}": {v: (v * (i + k) * 7) % 5 + 1 for v in range(4)} for i in range(3)}
        for k, name in enumerate("ab")
    }
    budgets = {"a": 10, "b": 10}
    feasible = JointSet.of_named_costs(costs, budgets)
    expected = set(combinations(costs, budgets)) - set(combinations(costs, {"a": 7, "b": 7}))
    rng = np.random.default_rng(0)
    drawn = {tuple(feasible.space.params(feasible.draw(rng, (0.7, 1.0))).values()) for _ in range(60 * len(expected))}
    assert drawn == expected
    with pytest.raises(InfeasibleBudget, match="widen the band"):
        feasible.draw(rng, (0.0, 0.1))


def combinations(costs, budgets):
    """All values of the choices that are within all budgets."""
    first = next(iter(costs.values()))
    return [
        values
        for values in itertools.product(*(list(by_value) for by_value in first.values()))
        if all(
            sum(cost[v] for cost, v in zip(costs[name].values(), values)) <= budget for name, budget in budgets.items()
        )
    ]


knapsacks = st.integers(1, 5).flatmap(
    lambda choices: st.lists(
        st.lists(
            st.lists(st.integers(0, 12).map(lambda n: n / 4), min_size=3, max_size=3),
            min_size=choices,
            max_size=choices,
        ),
        min_size=2,
        max_size=3,
    )
)


@settings(max_examples=40, deadline=None)
@given(knapsacks, st.floats(0.2, 1))
def test_knapsacks_with_whole_weights_are_exact(rows, share):
    costs = {
        f"b{k}": {f"c{i}": dict(enumerate(row)) for i, row in enumerate(by_choice)} for k, by_choice in enumerate(rows)
    }
    budgets = {
        name: max(0.25, round(4 * share * sum(max(row.values()) for row in by_choice.values())) / 4)
        for name, by_choice in costs.items()
    }
    members = combinations(costs, budgets)
    if not members:
        with pytest.raises(InfeasibleBudget):
            JointSet.of_named_costs(costs, budgets)
        return
    feasible = JointSet.of_named_costs(costs, budgets)
    assert feasible.count == len(members)
    assert set(feasible.error) == {0.0}
    worth = {f"c{i}": {v: (v * 13 + i * 5) % 7 for v in range(3)} for i in range(len(rows[0]))}
    best = feasible.best(cost_sums(worth))
    assert best.score == max(sum(worth[f"c{i}"][v] for i, v in enumerate(values)) for values in members)
    assert tuple(feasible.space.params(best.architecture).values()) in members


@pytest.mark.parametrize("scale", [1e-9, 1e-12, 1e-30, 1e30])
def test_the_best_score_is_exact_whatever_the_scale_of_the_scores(scale):
    rng, budgets = np.random.default_rng(1), {"a": 9, "b": 9}
    for _ in range(20):
        costs = {name: {f"c{i}": dict(enumerate(rng.integers(0, 6, 4).tolist())) for i in range(4)} for name in budgets}
        scores = {f"c{i}": dict(enumerate((rng.random(4) * scale).tolist())) for i in range(4)}
        most = max(sum(scores[f"c{i}"][v] for i, v in enumerate(values)) for values in combinations(costs, budgets))
        found = JointSet.of_named_costs(costs, budgets).best(cost_sums(scores)).score
        assert found == pytest.approx(most, rel=1e-10, abs=0)


@pytest.mark.parametrize("offset", [1e11, 1e12, -1e12])
def test_what_all_values_of_a_choice_score_alike_hides_no_gain(offset):
    costs = {name: {0: 0, 1: 1} for name in "abc"}
    scores = {"a": {0: offset, 1: offset + 1}, "b": {0: 0, 1: 5}, "c": {0: 0, 1: 3}}
    best = JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": 2, "l": 2}).best(cost_sums(scores))
    assert best.score - offset == 8


def test_whole_costs_are_answered_with_whole_budgets():
    """More of one budget is the least that some member takes, and more of all is enough."""
    rows = {"a": {1: 0, 2: 2, 3: 3}, "b": {1: 1, 2: 0, 3: 4}}
    costs = {"kg": rows, "l": {name: dict(zip(row, reversed(row.values()))) for name, row in rows.items()}}
    sums = [
        tuple(sum(costs[name][choice][value] for choice, value in zip("ab", pair, strict=True)) for name in ("kg", "l"))
        for pair in itertools.product((1, 2, 3), repeat=2)
    ]
    budgets = {"kg": 2, "l": 1}
    with pytest.raises(InfeasibleBudget, match="try for example") as error:
        JointSet.of_named_costs(costs, budgets)
    for way in str(error.value).partition("try for example ")[2].split(", or "):
        kg, litres = map(int, re.findall(r"= (\S+)", way))
        assert JointSet.of_named_costs(costs, {"kg": kg, "l": litres}).count
        if "alone" in way:
            at, other = (0, 1) if "kg alone" in way else (1, 0)
            assert (kg, litres)[at] == min(one[at] for one in sums if one[other] <= (2, 1)[other])


def test_more_of_one_budget_is_left_out_where_the_search_for_the_least_would_not_end():
    """On three budgets of 30 choices with 4 values, one of them near the least that any member costs."""
    rng = np.random.default_rng(1)
    costs = {name: {f"c{i}": dict(enumerate(rng.random(4))) for i in range(30)} for name in ("a", "b", "c")}
    least = {name: sum(min(row.values()) for row in rows.values()) for name, rows in costs.items()}
    budgets = {name: share * least[name] for name, share in (("a", 2.2), ("b", 2.2), ("c", 1.001))}
    with pytest.raises(InfeasibleBudget, match="try for example a = ") as error:
        JointSet.of_named_costs(costs, budgets)
    assert "alone" not in str(error.value)
    larger = dict(zip(costs, map(float, re.findall(r"= (\S+)", str(error.value)))))
    assert JointSet.of_named_costs(costs, larger).count


mixed_costs = st.integers(1, 4).flatmap(
    lambda choices: st.lists(
        st.lists(
            st.lists(
                st.sampled_from([0, 1, 2, 3, 5, 0.25, 1.5, 8.000001, math.pi, math.e, math.inf]), min_size=3, max_size=3
            ),
            min_size=choices,
            max_size=choices,
        ),
        min_size=2,
        max_size=3,
    )
)


@settings(max_examples=60, deadline=None)
@given(mixed_costs, st.floats(0.3, 1.5))
@example([[[3, 5]], [[10, 0]]], 1.0)
@example([[[3, math.pi, 5]], [[10, 0, 0]]], 1.0)
@example([[[0, 1, 0]], [[5, 3, 5]]], 1.1)
def test_what_is_named_is_enough_although_dearer_costs_are_no_multiples(rows, share):
    costs = {
        f"b{k}": {f"c{i}": dict(enumerate(row)) for i, row in enumerate(by_choice)} for k, by_choice in enumerate(rows)
    }
    budgets = {name: 0.5 + share * sum(min(row.values()) for row in costs[name].values()) for name in costs}
    if not all(math.isfinite(budget) for budget in budgets.values()):
        return
    try:
        JointSet.of_named_costs(costs, budgets)
    except InfeasibleBudget as error:
        message = str(error)
    else:
        return
    for way in message.partition("try for example ")[2].split(", or "):
        larger = dict(zip(costs, (float(number) for number in re.findall(r"= (\S+)", way))))
        if larger:
            assert JointSet.of_named_costs(costs, larger).count
            # A budget that stays is named as it is printed: 3.8 for 0.5 + 1.1 * 3.
            assert all(larger[name] >= budgets[name] * (1 - 1e-9) for name in costs)


@pytest.mark.parametrize(("share", "words"), [(0.4, "some are within each"), (0.42, "all are lost to the grid")])
def test_where_a_grid_loses_all_of_a_long_space_what_is_named_is_enough(share, words):
    """Twenty choices lose twenty-one steps, as many as four budgets have."""
    rng, names = np.random.default_rng(2), "abcd"
    rows = {name: rng.uniform(0, 1, (20, 2)) for name in names}
    costs = {name: {f"c{i}": dict(enumerate(row)) for i, row in enumerate(rows[name].tolist())} for name in names}
    sums = np.zeros((1, len(names)))
    for place in range(20):
        sums = (sums[:, None] + np.stack([rows[name][place] for name in names], axis=1)).reshape(-1, len(names))
    limits = np.full(len(names), 20 * share)
    assert (sums <= limits).all(axis=1).any() == ("lost" in words)
    with pytest.raises(InfeasibleBudget, match=words) as error:
        JointSet.of_named_costs(costs, dict(zip(names, limits.tolist())))
    larger = [float(number) for number in re.findall(r"= (\S+)", str(error.value))]
    assert (np.array(larger) >= limits).all()
    assert error.value.excess == pytest.approx(max(larger / limits), rel=1e-6)
    assert JointSet.of_named_costs(costs, dict(zip(names, larger))).count


def test_more_choices_than_functions_may_call_each_other_are_optimised_over():
    rng, items = np.random.default_rng(0), [f"item {number}" for number in range(8)]
    fixed = {f"fixed {number}": {0: 0} for number in range(1100)}
    weight, volume, worth = rng.integers(1, 10, (3, len(items))).tolist()
    costs = {
        unit: {**fixed, **{item: {0: 0, 1: cost} for item, cost in zip(items, row)}}
        for unit, row in (("kg", weight), ("l", volume))
    }
    scores = {**fixed, **{item: {0: 0, 1: value} for item, value in zip(items, worth)}}
    best = JointSet.of_named_costs(costs, {"kg": 15, "l": 15}).best(cost_sums(scores))
    packings = np.array(list(itertools.product((0, 1), repeat=len(items))))
    within = (packings @ weight <= 15) & (packings @ volume <= 15)
    assert best.score == (packings @ worth)[within].max()


def test_one_budget_is_the_set_of_one_budget():
    costs = {f"c{i}": {v: ((v + 1) * (i + 3)) % 11 for v in range(4)} for i in range(4)}
    plain, several = FeasibleSet.of_costs(costs, 17), JointSet.of_named_costs({"weight": costs}, {"weight": 17})
    assert several.count == plain.count
    assert several.share() == plain.share()
    scores = cost_sums({f"c{i}": {v: (v * 7 + i) % 5 for v in range(4)} for i in range(4)})
    assert several.best(scores).score == plain.best(scores).score
    assert several.smallest()[0] == pytest.approx(plain.smallest()[0], rel=1e-3)


def test_budgets_that_all_members_keep_take_no_steps():
    rng = np.random.default_rng(0)
    costs = {n: {f"c{i}": dict(enumerate(rng.uniform(0, 1, 4).tolist())) for i in range(4)} for n in "abc"}
    loose = JointSet.of_named_costs(costs, {"a": 2.0, "b": 100, "c": 100})
    assert isinstance(loose, JointSet)
    assert (loose.error[1:], loose.count) == ((0.0, 0.0), FeasibleSet.of_costs(costs["a"], 2.0).count)
    assert loose.error[0] < 1e-4 < JointSet.of_named_costs(costs, {"a": 2.0, "b": 2.0, "c": 100}).error[0]


def test_a_budget_that_all_members_keep_takes_no_steps_although_an_input_size_has_no_member():
    """The peak leaves none of 8 frames."""
    shape = {"depth": (1, 2, 3), "width": (8, 16, 24), "expansion": (1.0, 1.5), "kernel": (((3, 3, 3),),)}
    stages = tuple(Stage.of({**shape, "se": (0.0,), "act": ("relu",)}, stride=stride) for stride in (1, 2))
    space = StagedSpace("sizes", frames=(2, 8), resolution=(32,), family=X3d(), ends=X3D_ENDS, stages=stages)
    sums = [SpaceSums.of(space, lambda b, x, s=s: number_of(b, x, s, whole=False), num_classes=4) for s in (0, 1)]
    peaks = SpaceSums.of_peaks(space, lambda b, x: float(x.t), num_classes=4)
    peak = PeakLimit("frames", 2, peaks, "--frames")
    tight = Budget("tight", sums[0].smallest()[0] * 2, sums[0], "--tight")
    loose = Budget("loose", sums[1].largest()[0] * 2, sums[1], "--loose")
    alone, both = JointSet([tight], [peak]), JointSet([tight, loose], [peak])
    assert both.error == (*alone.error, 0.0)
    assert both.count == alone.count


@pytest.mark.parametrize(
    "costs",
    [
        {"a": {"x": {1: 1, 2: 3}}, "b": {"x": {1: 3, 2: 1}}},
        {"a": {"x": {1: 1, 2: math.pi}}, "b": {"x": {1: math.e, 2: 1}}},
        {"a": {"x": {1: 1, 2: 2, 3: 5}, "y": {1: 0, 2: 1}}, "b": {"x": {1: 4, 2: 2, 3: 1}, "y": {1: 2, 2: 0}}},
    ],
)
def test_where_the_least_budgets_have_no_member_together_larger_ones_are_named_that_have(costs):
    budgets = {"a": 0.5, "b": 2}
    with pytest.raises(InfeasibleBudget, match=r"give at least a = 1 b = 2; nothing is within all of these") as error:
        JointSet.of_named_costs(costs, budgets)
    larger = dict(zip(costs, map(float, re.findall(r"= (\S+)", named_last(str(error.value))))))
    assert JointSet.of_named_costs(costs, larger).count
    assert all(larger[name] >= limit for name, limit in budgets.items())


@pytest.mark.parametrize(
    ("costs", "budgets", "said"),
    [
        ({"a": {"x": {1: 1.0}}}, {"b": 1.0}, "expected those of b, got those of a"),
        ({}, {}, "expected those of"),
        ({"a": {"x": {1: 1.0}}, "b": {"x": {2: 1.0}}}, {"a": 1, "b": 1}, "'b' has other choices or values than 'a'"),
        (
            {"a": {"x": {1: 1.0}}, "b": {"x": {1: 1.0}}},
            {"a": 1, "b": 0},
            "budget b: expected a finite number above zero, got 0",
        ),
        (
            {"a": {"x": {1: 1.0}}, "b": {"x": {1: 1.0}}},
            {"a": 1, "b": -1},
            "budget b: expected a finite number above zero, got -1",
        ),
        (
            {"a": {"x": {1: 2.0}}, "b": {"x": {1: 1.0}}},
            {"a": 1, "b": 1},
            r"within 1 \(a\): the smallest reachable is 2 \(.*\); give at least a = 2 b = 1",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(costs, budgets, said):
    with pytest.raises(HwbenchError, match=said) as error:
        JointSet.of_named_costs(costs, budgets)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, InvalidValue | InfeasibleBudget)


def test_sums_of_two_spaces_are_refused():
    one, other = cost_sums({"a": {1: 1.0}}), cost_sums({"b": {1: 1.0}})
    with pytest.raises(ValueError, match="different spaces"):
        JointSet([Budget("one", 2, one), Budget("other", 2, other)])


@pytest.mark.parametrize(("choices", "budget"), [(40, 510), (60, 500), (100, 410)])
def test_many_choices_are_counted_exactly(choices, budget):
    """What the guide says; activations that are alike share a row of a table."""
    rng = np.random.default_rng(0)
    costs = {
        name: {f"c{i}": {v: v * int(rng.integers(1, 9)) for v in range(4)} | {1: 1} for i in range(choices)}
        for name in ("kg", "l")
    }
    feasible = JointSet.of_named_costs(costs, dict.fromkeys(costs, budget))
    ways = np.zeros((budget + 1, budget + 1))
    ways[0, 0] = 1
    for kg, litres in zip(costs["kg"].values(), costs["l"].values(), strict=True):
        further = np.zeros_like(ways)
        for value in range(4):
            a, b = kg[value], litres[value]
            further[a:, b:] += ways[: budget + 1 - a, : budget + 1 - b]
        ways = further
    assert feasible.error == (0.0, 0.0)
    assert feasible.count == pytest.approx(ways.sum(), rel=1e-12)
    drawn = feasible.space.params(feasible.draw(rng, (0.95, 1.0)))
    spent = max(sum(costs[name][choice][value] for choice, value in drawn.items()) for name in costs)
    assert 0.95 * budget < spent <= budget


def test_what_is_kept_of_a_band_is_not_sent_to_other_processes():
    """Nearly all of so many combinations are within the budgets, so that the band has tables of its own."""
    costs = {
        name: {f"c{i}": {v: v * (1 + (i + k) % 3) for v in range(4)} for i in range(30)} for k, name in enumerate("ab")
    }
    feasible = JointSet.of_named_costs(costs, {"a": 165, "b": 165})
    assert feasible.count > 2.0**53
    feasible.draw(np.random.default_rng(0))
    before = len(pickle.dumps(feasible))
    drawn = feasible.draw(np.random.default_rng(0), (0.98, 1.0))
    assert feasible._joint_grid._bands
    sent = pickle.dumps(feasible)
    assert len(sent) == before
    assert pickle.loads(sent).draw(np.random.default_rng(0), (0.98, 1.0)) == drawn


def test_only_activations_that_are_alike_share_a_row():
    costs = {"kg": {"a": {1: 1, 2: 2}, "b": {1: 1, 2: 3}, "c": {1: 1, 2: 2}}}
    costs["l"] = costs["kg"]
    feasible = JointSet.of_named_costs(costs, {"kg": 6, "l": 6})
    assert feasible._joint_costs.alike == (True, True, True)
    pairs = cost_sums(costs["kg"])
    pairs.cells[0].stages[1].seconds[1, 0] = 2
    budgets = [Budget(name, 6, pairs, f"{name} =", unit=1) for name in "ab"]
    assert JointSet(budgets)._joint_costs.alike == (True, False, True)
    assert JointSet(budgets).count == sum(
        a + (2 if (a, b) == (2, 1) else {1: 1, 2: 3}[b]) + c <= 6 for a, b, c in itertools.product((1, 2), repeat=3)
    )
