"""Choices of any kind with costs that add up: exact sets for Optuna studies that know nothing of networks."""

import contextlib
import itertools
import math
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import optuna
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hwbench.errors import InfeasibleBudget, InvalidValue
from hwbench.spaces.costs import cost_sums
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.joint import JointSet
from hwbench.studies.sampler import FeasibleSampler, samplers

MIXED = {"width": {32: 1.0, 64: 2.5, 128: 6.0}, "act": {"relu": 0.0, None: 0.5}, "packed": {True: 3.0, False: 0.0}}

some_costs = st.lists(
    st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=5
).map(lambda rows: {f"c{i}": dict(enumerate(row)) for i, row in enumerate(rows)})  # fmt: skip


def combinations(costs):
    return [dict(zip(costs, values)) for values in itertools.product(*costs.values())]


def total(costs, params):
    return sum(costs[name][value] for name, value in params.items())


@settings(max_examples=60, deadline=None)
@given(some_costs, st.integers(1, 120), st.integers(0, 10**6))
def test_counts_draws_optima_and_repairs_are_those_of_brute_force(costs, budget, seed):
    within = [p for p in combinations(costs) if total(costs, p) <= budget]
    if not within:
        with pytest.raises(InfeasibleBudget):
            FeasibleSet.of_costs(costs, budget)
        return
    feasible = FeasibleSet.of_costs(costs, budget)
    assert feasible.count == len(within)
    rng = np.random.default_rng(seed)
    scores = {name: dict(zip(row, rng.normal(size=len(row)))) for name, row in costs.items()}
    floor = {name: min(row.values()) for name, row in scores.items()}
    positive = {name: {v: s - floor[name] for v, s in row.items()} for name, row in scores.items()}
    best = feasible.space.params(feasible.best(cost_sums(positive)).architecture)
    assert total(positive, best) == pytest.approx(max(total(positive, p) for p in within))
    assert total(costs, best) <= budget
    assert all(total(costs, feasible.space.params(feasible.draw(rng))) <= budget for _ in range(10))
    proposal = {name: values[rng.integers(len(values))] for name, values in feasible.space.values.items()}
    repaired = feasible.space.params(feasible.repair(feasible.space.of_params(proposal)))
    changed = sum(repaired[name] != value for name, value in proposal.items())
    assert total(costs, repaired) <= budget
    assert changed == min(sum(p[name] != value for name, value in proposal.items()) for p in within)


def brute(costs, budget):
    return [total(costs, p) for p in combinations(costs) if total(costs, p) <= budget * (1 + 1e-12)]


@pytest.mark.parametrize(
    ("costs", "budget"),
    [
        ({"a": {0: 0, 1: 12345}, "b": {0: 0, 1: 12346}}, 24691),
        ({f"item {i}": {False: 0, True: 1009 + 733 * i} for i in range(12)}, 24691),
        ({"a": {1: 10_000_000, 2: 20_000_000}, "b": {0: 0, 1: 10_000_000}}, 19_999_999),
        ({f"layer{i}": {w: w * 1e-12 for w in (16, 32, 64)} for i in range(4)}, 130e-12),
        ({"a": {0: 0, 1: 3e-10}, "b": {0: 0, 1: 3e-10}}, 1e-9),
        ({"a": {0: 0.0, 1: 1.0}}, 0),
        ({"a": {0: 0.1, 1: 0.2}, "b": {0: 0.1, 1: 0.7}}, 0.3),
    ],
)
def test_sums_of_any_size_are_counted_and_drawn_as_brute_force_has_them(costs, budget):
    feasible, within = FeasibleSet.of_costs(costs, budget), brute(costs, budget)
    missing = [one for one in within if one > budget * (1 - feasible.error[0])]
    assert len(within) - len(missing) <= feasible.count <= len(within)
    assert feasible.best(cost_sums(costs)).score == pytest.approx(max(within), rel=feasible.error[0] + 1e-12)
    rng = np.random.default_rng(0)
    for _ in range(50):
        drawn = feasible.draw(rng)
        assert drawn in feasible
        assert total(costs, feasible.space.params(drawn)) <= budget * (1 + 1e-12)
    joint = JointSet.of_named_costs({"one": costs, "two": costs}, {"one": budget or 1, "two": budget or 1})
    assert all(joint.draw(rng) in joint for _ in range(50))


def test_whole_costs_are_exact_up_to_a_million_units():
    feasible = FeasibleSet.of_costs({f"item {i}": {False: 0, True: 9001 + i} for i in range(12)}, 80_000)
    assert feasible.error == (0.0,)
    assert FeasibleSet.of_costs({"a": {1: math.pi}, "b": {1: math.e}}, 6).error[0] > 0


@pytest.mark.parametrize("several", [False, True])
def test_a_cost_that_is_nearly_a_decimal_is_no_whole_one(several):
    costs = {f"layer{i}": {False: 0, True: 10_000 / 3} for i in range(10)}
    for budget in (10_001, 10_010):
        one = FeasibleSet.of_costs(costs, budget)
        feasible = JointSet.of_named_costs({"kg": costs}, {"kg": budget}) if several else one
        sure = brute(costs, budget * (1 - feasible.error[0]))
        assert len(sure) <= feasible.count <= len(brute(costs, budget)) == 176


@pytest.mark.parametrize("budget", [math.nan, math.inf, -1, "3", None, True])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(InvalidValue, match="budget: expected a finite number of 0 or more"):
        FeasibleSet.of_costs(MIXED, budget)


def test_nothing_is_said_of_networks_and_seconds():
    with pytest.raises(InfeasibleBudget, match="a choice has only values that are ruled out"):
        FeasibleSet.of_costs({"a": {1: math.inf}}, 3)
    feasible = FeasibleSet.of_costs({"a": {1: 1.0, 2: 2.0}}, 3)
    with pytest.raises(InfeasibleBudget, match="no combination takes 0% to 10% of 3; widen the band"):
        feasible.draw(np.random.default_rng(0), band=(0.0, 0.1))
    with pytest.raises(InfeasibleBudget, match="no combination takes at most 10% of 3"):
        feasible.best(cost_sums({"a": {1: 1.0, 2: 2.0}}), within=0.1)


@pytest.mark.parametrize(
    ("budget", "share"), [(100, 0.29), (10.9, 0.92), (11, 0.9), (7.5, 0.95), (1.9, 0.6), (30, 0.1)]
)
def test_a_share_of_the_budget_is_that_of_brute_force(budget, share):
    costs = {"a": {0: 0, 1: 1, 2: 2}, "b": {0: 0, 1: 3, 2: 5}, "c": {0: 0, 1: 3, 2: 29}}
    feasible = FeasibleSet.of_costs(costs, budget)
    sums = [total(costs, p) for p in combinations(costs)]
    within = [one for one in sums if one <= share * budget + 1e-9]
    assert feasible.count_within((0.0, share)) == len(within)
    assert feasible.best(cost_sums(costs), within=share).score == max(within)
    assert feasible.tightened(share).count == len(within)
    above = {one for one in sums if share * budget + 1e-9 < one <= budget}
    rng = np.random.default_rng(0)
    if above:
        assert {total(costs, feasible.space.params(feasible.draw(rng, (share, 1.0)))) for _ in range(200)} == above


@settings(max_examples=60, deadline=None)
@given(
    some_costs,
    st.integers(1, 60),
    st.sampled_from([0.0, 1e-320, 1e-300, 0.3, 1.5, 2.5]),
    st.sampled_from([0.5, math.pi]),
)
@example({"a": {0: 0, 1: 1}, "b": {0: 0, 1: 1}}, 2, 0.0, math.pi)
@example({"a": {0: 1, 1: 2.5}, "b": {0: 0, 1: 2.5}}, 2, 2.5, 1)
@example({"a": {0: 18, 1: 21, 2: 30}}, 18, 1.5, 1)
def test_a_share_has_what_a_set_of_that_budget_has(costs, budget, share, scale):
    """Of the costs some are within that budget and not within the one before, or none is."""
    costs = {name: {value: cost * scale for value, cost in row.items()} for name, row in costs.items()}
    budget *= scale

    def counted(make):
        with contextlib.suppress(InfeasibleBudget):
            made = make()
            return made.count, made.error
        return 0

    if counted(lambda: FeasibleSet.of_costs(costs, budget)):
        feasible = FeasibleSet.of_costs(costs, budget)
        again = counted(lambda: FeasibleSet.of_costs(costs, share * budget))
        assert counted(lambda: feasible.tightened(share)) == again
        if share > 1:
            joint = JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": budget, "l": budget})
            larger = JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": share * budget, "l": share * budget})
            assert (joint.tightened(share).count, joint.tightened(share).error) == (larger.count, larger.error)


def test_no_room_is_no_error_of_sums_without_a_unit():
    sums = cost_sums({"a": {0: 0.0, 1: math.pi}, "b": {0: 0.0, 1: math.e}})
    nothing = FeasibleSet(sums, 0.0)
    assert (nothing.count, nothing.error) == (1.0, (0.0,))
    assert nothing.space.params(nothing.draw(np.random.default_rng(0))) == {"a": 0, "b": 0}
    dearer = cost_sums({"a": {0: 1.0, 1: math.pi}})
    with pytest.raises(InfeasibleBudget, match="budget 0: the smallest reachable sum is 1 "):
        FeasibleSet(dearer, 0.0)


@pytest.mark.parametrize("name", samplers.names())
def test_a_plain_study_stays_within_the_budget_with_the_values_it_offers(name):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    feasible = FeasibleSet.of_costs(MIXED, 6.0)
    study = optuna.create_study(
        direction="maximize", sampler=FeasibleSampler(feasible, samplers.get(name), seed=0, startup=3)
    )

    def objective(trial):
        width = trial.suggest_categorical("width", [32, 64, 128])
        act = trial.suggest_categorical("act", ["relu", None])
        packed = trial.suggest_categorical("packed", [True, False])
        assert isinstance(packed, bool)
        assert isinstance(width, int)
        return width / 64 + (act is None) + packed

    study.optimize(objective, n_trials=int(feasible.count))
    params = [tuple(trial.params.items()) for trial in study.trials]
    assert len(set(params)) == feasible.count == sum(total(MIXED, p) <= 6.0 for p in combinations(MIXED))
    assert all(total(MIXED, trial.params) <= 6.0 for trial in study.trials)


@pytest.mark.parametrize("name", ["thompson", "tpe"])
def test_what_lowers_a_loss_is_found(name):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rng = np.random.default_rng(0)
    costs = {f"item{i}": {0: 0.0, 1: float(rng.integers(3, 20))} for i in range(12)}
    worth = {name: float(rng.integers(3, 20)) for name in costs}
    most = max(total({n: {0: 0, 1: worth[n]} for n in costs}, p) for p in combinations(costs) if total(costs, p) <= 60)
    study = optuna.create_study(  # minimised: the sampler must know
        sampler=FeasibleSampler(FeasibleSet.of_costs(costs, 60), samplers.get(name), seed=1, startup=8)
    )
    study.optimize(lambda t: -sum(worth[n] * t.suggest_categorical(n, [0, 1]) for n in costs), n_trials=40)
    assert study.best_value <= -0.85 * most


@pytest.mark.parametrize("scale", [0.1, 0.01, 1.0, 4096.0, math.pi])
def test_sums_that_meet_the_budget_to_the_letter_are_within_it(scale):
    costs = {"a": {0: 0.0, 1: 1 * scale}, "b": {0: 0.0, 1: 2 * scale}, "c": {0: 0.0, 1: 3 * scale}}
    feasible = FeasibleSet.of_costs(costs, 3 * scale)
    exact = scale != math.pi  # no decimal number: two costs that just meet the budget are rounded up
    assert feasible.count == (5 if exact else 4)
    both = feasible.space.of_params({"a": 1, "b": 1, "c": 0})
    assert (feasible.repair(both) == both) is (both in feasible)
    assert (both in feasible) or not exact


def test_a_value_may_be_ruled_out():
    feasible = FeasibleSet.of_costs({"a": {1: 1.0, 2: math.inf}, "b": {1: 1.0, 2: 1.0}}, 10)
    assert feasible.count == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("several", [False, True])
def test_scores_that_are_no_numbers_are_no_lack_of_room(several, value):
    costs = {"a": {0: 1, 1: 2}, "b": {0: 0, 1: 3}}
    joint = JointSet.of_named_costs({"one": costs, "two": costs}, {"one": 4, "two": 4})
    feasible = joint if several else FeasibleSet.of_costs(costs, 4)
    scores = cost_sums(costs)
    scores.cells[0].stages[0].seconds[:] = value
    for within in (1.0, 0.5):
        with pytest.raises(InvalidValue, match="has a finite score"):
            feasible.best(scores, within)
    with pytest.raises(InfeasibleBudget):
        feasible.best(scores, 0.1)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize("several", [False, True])
def test_the_best_is_among_those_that_have_a_score(several, value):
    costs = {"a": {0: 1, 1: 2}, "b": {0: 1, 1: 2}}
    joint = JointSet.of_named_costs({"one": costs, "two": costs}, {"one": 4, "two": 4})
    scores = cost_sums({"a": {0: 1, 1: 9}, "b": {0: 1, 1: 2}})
    scores.cells[0].stages[0].seconds[:, 1] = value
    best = (joint if several else FeasibleSet.of_costs(costs, 4)).best(scores)
    assert (best.score, dict(best.architecture.choices)) == (3.0, {"a": "0", "b": "1"})


@pytest.mark.parametrize(
    ("costs", "words"),
    [
        ({}, "at least one choice"),
        ({"a": {}}, "'a' has no values"),
        ({"a": {1: 1.0, "1": 2.0}}, "read the same"),
        ({"a": {1: -1.0}}, "'a' = 1: expected a number of 0 or more"),
        ({"a": {1: "3"}}, "expected a number"),
        ({"a": {1: math.nan}}, "expected a number"),
    ],
)
def test_costs_that_are_none_are_refused(costs, words):
    with pytest.raises(InvalidValue, match=words):
        FeasibleSet.of_costs(costs, 5)


def test_a_budget_that_nothing_meets_names_what_would_do():
    with pytest.raises(InfeasibleBudget, match=r"budget 0\.5: the smallest reachable sum is 1 .*is enough") as caught:
        FeasibleSet.of_costs(MIXED, 0.5)
    enough = float(str(caught.value).rpartition("; ")[2].removesuffix(" is enough"))
    assert FeasibleSet.of_costs(MIXED, enough).count == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.floats(0.001, 1e6) | st.integers(1, 50) | st.just(math.pi), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 99),
)
def test_what_is_named_is_enough_although_dearer_costs_are_no_decimals(rows, share):
    costs = {f"c{i}": dict(enumerate(row)) for i, row in enumerate(rows)}
    budget = share / 100 * sum(min(row.values()) for row in costs.values())
    try:
        FeasibleSet.of_costs(costs, budget)
    except InfeasibleBudget as error:
        enough = float(str(error).rpartition("; ")[2].removesuffix(" is enough"))
        assert FeasibleSet.of_costs(costs, enough).count
        assert enough >= sum(min(row.values()) for row in costs.values()) * (1 - 1e-12)


def test_neither_torch_nor_video_is_loaded():
    code = """
import sys
from decimal import Decimal
from fractions import Fraction
from hwbench.spaces.feasible import FeasibleSet
from hwbench.studies.sampler import FeasibleSampler
FeasibleSet.of_costs({'a': {1: 1.0}}, 2)
print([m for m in ('torch', 'av', 'executorch') if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


WEIGHTS = {"tent": 9, "stove": 4, "rope": 3, "lamp": 1, "books": 6}
WORTH = {"tent": 10, "stove": 6, "rope": 2, "lamp": 3, "books": 5}


def packing(values, items=WEIGHTS, order=(False, True)):
    return {item: {packed: values[item] if packed else 0 for packed in order} for item in items}


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("items", [WEIGHTS, sorted(WEIGHTS)])
@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_scores_are_matched_by_names_and_values_in_any_order(several, items, order):
    weight = packing(WEIGHTS)
    bag = JointSet.of_named_costs({"kg": weight}, {"kg": 14}) if several else FeasibleSet.of_costs(weight, 14)
    best = bag.best(cost_sums(packing(WORTH, items, order)))
    packed = bag.space.params(best.architecture)
    assert best.score == 19
    assert [item for item, inside in packed.items() if inside] == ["tent", "stove", "lamp"]


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"z": {1: 1, 2: 5}}, "expected for 'a' the values 1, 2, got none"),
        ({"a": {1: 1, 3: 5}}, "expected for 'a' the values 1, 2, got 1, 3"),
        ({"a": {1: 1, 2: 5}, "b": {1: 1}}, "expected for 'b' the values none, got 1"),
    ],
)
def test_scores_of_other_choices_are_refused(scores, words):
    with pytest.raises(InvalidValue, match=words):
        FeasibleSet.of_costs({"a": {1: 1, 2: 2}}, 2).best(cost_sums(scores))


@pytest.mark.parametrize("cost", [Fraction(1, 2), Decimal("0.5"), np.float32(0.5)])
def test_costs_are_real_numbers_of_any_kind(cost):
    assert FeasibleSet.of_costs({"a": {1: cost, 2: 2 * cost}}, cost).smallest()[0] == 0.5


@pytest.mark.parametrize("cost", [10**400, 1 + 1j, np.complex128(1), "1"])
def test_what_is_no_real_number_is_refused(cost):
    with pytest.raises(InvalidValue, match="costs: 'a' = 1: expected a number of 0 or more"):
        FeasibleSet.of_costs({"a": {1: cost}}, 1)
    with pytest.raises(InvalidValue, match="budget: expected a finite number of 0 or more"):
        FeasibleSet.of_costs({"a": {1: 1}}, cost)
    with pytest.raises(InvalidValue, match="budget kg: expected a finite number above zero"):
        JointSet.of_named_costs({"kg": {"a": {1: 1}}}, {"kg": cost})


def test_values_without_costs_are_refused():
    with pytest.raises(InvalidValue, match=r"'a': expected a number by value, got \[1, 2\]"):
        FeasibleSet.of_costs({"a": [1, 2]}, 1)


@pytest.mark.parametrize("costs", [[("a", {1: 1})], None, "a"])
def test_costs_that_are_no_mapping_are_refused(costs):
    with pytest.raises(InvalidValue, match="costs: expected numbers by choice and value, a dict of dicts, got "):
        FeasibleSet.of_costs(costs, 1)
    with pytest.raises(InvalidValue, match="costs: expected numbers by choice and value, a dict of dicts, got "):
        JointSet.of_named_costs({"kg": costs}, {"kg": 1})


@pytest.mark.parametrize("share", [math.nan, math.inf, -0.1])
def test_a_share_of_the_budget_is_a_finite_number(share):
    costs = {"a": {1: 1, 2: 2}}
    for bag in (FeasibleSet.of_costs(costs, 2), JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": 2, "l": 2})):
        with pytest.raises(InvalidValue, match="share of the budget: expected a finite number of 0 or more"):
            bag.tightened(share)


@pytest.mark.parametrize("share", [1e-300, 1e-308, 5e-324])
def test_a_share_of_budgets_may_be_as_small_as_floats_are(share):
    scores = cost_sums({"a": {1: 1, 2: 5}, "b": {1: 2, 2: 6}})
    free = {"a": {1: 0, 2: 2}, "b": {1: 0, 2: 3}}
    bag = JointSet.of_named_costs({"kg": free, "l": free}, {"kg": 8, "l": 8}).tightened(share)
    assert (bag.count, bag.best(scores).score) == (1, 3)
    taken = {"a": {1: 0, 2: 2}, "b": {1: 1, 2: 3}}
    empty = JointSet.of_named_costs({"kg": free, "l": taken}, {"kg": 8, "l": 8}).tightened(share)
    assert empty.count == 0
    with pytest.raises(InfeasibleBudget, match="no member of space 'costs' takes 0% to 100% of"):
        empty.best(scores)


def test_more_combinations_than_can_be_counted_are_refused():
    costs = {f"a{number}": {0: 0, 1: 1} for number in range(1100)}
    with pytest.raises(InvalidValue, match="1100 choices have more combinations than can be counted"):
        FeasibleSet.of_costs(costs, 550)
    with pytest.raises(InvalidValue, match="1100 choices have more combinations than can be counted"):
        JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": 1100, "l": 1100})


def test_costs_of_several_budgets_are_matched_by_names_and_values_in_any_order():
    weight = {"a": {"s": 1, "l": 4}, "b": {"s": 2, "l": 3}}
    volume = {"b": {"l": 5, "s": 1}, "a": {"l": 2, "s": 6}}
    bag = JointSet.of_named_costs({"kg": weight, "l": volume}, {"kg": 6, "l": 7})
    assert bag.count == 2
    drawn = {bag.draw(np.random.default_rng(seed)).choices for seed in range(20)}
    assert drawn == {(("a", "s"), ("b", "s")), (("a", "l"), ("b", "s"))}


@pytest.mark.parametrize("scale", [1, math.pi])
def test_a_band_ends_at_the_budget(scale):
    costs = {f"c{i}": {v: v * scale for v in (0, 1, 2, 3)} for i in range(6)}
    feasible = FeasibleSet.of_costs(costs, 9.5 * scale)
    for high in (1.05, 1.2, 1.5, 3.0):
        assert feasible.count_within((0.0, high)) == feasible.count
        assert feasible.count_within((0.5, high)) == feasible.count_within((0.5, 1.0))


def test_a_choice_that_budgets_rule_out_together_is_named():
    costs = {"kg": {"a": {1: 1, 2: math.inf}}, "l": {"a": {1: math.inf, 2: 1}}}
    with pytest.raises(InfeasibleBudget, match="'a' has only values that are ruled out, by infinite costs"):
        JointSet.of_named_costs(costs, {"kg": 3, "l": 3})
    with pytest.raises(InvalidValue, match="got those of none"):
        JointSet.of_named_costs({}, {"kg": 3})


def test_a_budget_just_below_what_is_enough_is_told_apart():
    with pytest.raises(InfeasibleBudget, match=r"budget 1\.9999999999: the smallest reachable sum is 2 "):
        FeasibleSet.of_costs({"a": {1: 2}}, 1.9999999999)


def test_a_choice_by_another_name_is_warned_of_once():
    feasible = FeasibleSet.of_costs({"a": {1: 1, 2: 2, 3: 3}, "b": {1: 1, 2: 2, 3: 3}}, 4)

    def study():
        return optuna.create_study(sampler=FeasibleSampler(feasible, None, seed=0, startup=2))

    def misnamed(trial):
        return trial.suggest_categorical("x", [1, 2, 3]) + trial.suggest_categorical("b", [1, 2, 3])

    with pytest.warns(UserWarning, match="asked for 'x' and not for 'a' of the set") as warned:
        study().optimize(misnamed, n_trials=3)
    assert len(warned) == 1

    def failing(trial):
        trial.suggest_categorical("x", [1, 2, 3])
        raise KeyError("of the objective")

    with pytest.raises(KeyError, match="of the objective"):
        study().optimize(failing, n_trials=1)

    def conditional(trial):
        a = trial.suggest_categorical("a", [1, 2, 3])
        return a * trial.suggest_float("rate", 0, 1) + (trial.suggest_categorical("b", [1, 2, 3]) if a > 1 else 0)

    plain = study()
    plain.optimize(conditional, n_trials=6)
    assert {"a"} < {name for trial in plain.trials for name in trial.params}


def test_a_space_of_costs_is_printed():
    text = repr(FeasibleSet.of_costs({"a": {1: 1}}, budget=1).space)
    assert text.startswith("StagedSpace(name=")
    assert "stem=" not in text


def test_a_sampler_that_cannot_be_made_is_refused():
    feasible = FeasibleSet.of_costs({"a": {1: 1}}, 1)
    with pytest.raises(InvalidValue, match=r"expected a function from a seed to a sampler, as in lambda seed: TPES"):
        FeasibleSampler(feasible, optuna.samplers.TPESampler(seed=1), seed=0, startup=2)
    with pytest.raises(InvalidValue, match="startup: expected 0 or more trials, got -1"):
        FeasibleSampler(feasible, None, seed=0, startup=-1)


@pytest.mark.parametrize("several", [False, True])
def test_a_score_may_subtract(several):
    costs = {"a": {1: 1, 2: 2}, "b": {1: 1, 2: 2}, "c": {1: 1, 2: 2}}
    worth = {"a": {1: -5, 2: -1.5}, "b": {1: 4, 2: 6}, "c": {1: 0, 2: -2}}
    bag = (
        JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": 5, "l": 6})
        if several
        else FeasibleSet.of_costs(costs, 5)
    )
    best = bag.best(cost_sums(worth))
    assert best.score == 4.5
    assert bag.space.params(best.architecture) == {"a": 2, "b": 2, "c": 1}
    negative = {"a": {1: -1}, "b": {1: -2, 2: -3}}
    assert FeasibleSet.of_costs({"a": {1: 0}, "b": {1: 0, 2: 5}}, 5).best(cost_sums(negative)).score == -3


@pytest.mark.parametrize("given", [-math.inf, math.nan, "1", True])
def test_a_score_that_is_none_is_refused_without_a_word_of_costs(given):
    with pytest.raises(InvalidValue, match=r"^'a' = 1: expected a number, or infinity to rule it out, got "):
        cost_sums({"a": {1: given}})


@pytest.mark.parametrize("several", [False, True])
def test_a_cost_below_0_is_refused_under_one_budget_and_several(several):
    costs = {"a": {1: -1}}
    with pytest.raises(InvalidValue, match="costs: 'a' = 1: expected a number of 0 or more, got -1"):
        JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": 5, "l": 6}) if several else FeasibleSet.of_costs(
            costs, 5
        )


def sums_of(rows):
    """By sum: in how many ways it is reached, in whole numbers of any size."""
    ways = [1]
    for row in rows:
        further = [0] * (len(ways) + max(row))
        for before, number in enumerate(ways):
            for cost in row:
                further[before + cost] += number
        ways = further
    return ways


@pytest.mark.parametrize(
    ("several", "choices", "most", "budget", "low"),
    [
        (False, 56, 1, 56, 0.975),
        (False, 60, 1, 60, 0.975),
        (False, 60, 1, 60, 0.2),
        (False, 100, 3, 270, 0.9),
        (False, 100, 3, 270, 0.95),
        (False, 100, 3, 290, 0.99),
        (True, 60, 1, 59, 0.975),
        (True, 60, 1, 59, 0.2),
        (True, 100, 1, 99, 0.9),
        (True, 100, 1, 98, 0.98),
    ],
)
def test_a_band_of_the_few_among_many_is_counted_and_drawn_from(several, choices, most, budget, low):
    costs = {f"c{place}": {value: value for value in range(most + 1)} for place in range(choices)}
    within = sums_of([range(most + 1)] * choices)
    within = {spent: ways for spent, ways in enumerate(within) if low * budget < spent <= budget}
    bag = FeasibleSet.of_costs(costs, budget)
    if several:
        bag = JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": budget, "l": budget})
    assert bag.count_within((low, 1.0)) == pytest.approx(sum(within.values()), rel=1e-9)
    rng = np.random.default_rng(0)
    drawn = [total(costs, bag.space.params(bag.draw(rng, (low, 1.0)))) for _ in range(200)]
    assert within.keys() >= set(drawn)
    mean = sum(spent * ways for spent, ways in within.items()) / sum(within.values())
    spread = math.sqrt(sum((spent - mean) ** 2 * ways for spent, ways in within.items()) / sum(within.values()))
    assert abs(np.mean(drawn) - mean) <= 4 * spread / math.sqrt(200)


@pytest.mark.parametrize("band", [(0.9, 0.9), (0.9, 0.5), (0.9926, 0.9962)])
@pytest.mark.parametrize("several", [False, True])
def test_an_empty_band_of_many_is_empty(band, several):
    costs = {f"c{place}": {0: 0, 1: 3} for place in range(100)}
    bag = FeasibleSet.of_costs(costs, 270)
    if several:
        bag = JointSet.of_named_costs({"kg": costs, "l": costs}, {"kg": 270, "l": 270})
    assert bag.count_within(band) == 0
    with pytest.raises(InfeasibleBudget, match="widen the band"):
        bag.draw(np.random.default_rng(0), band)
