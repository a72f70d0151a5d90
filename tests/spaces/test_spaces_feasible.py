"""The exact feasible set against brute force on small spaces with arbitrary costs."""

import math
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_spaces import brute, budget_of, number_of, spaces

from hwbench.errors import InfeasibleBudget, InvalidValue, NotMeasured
from hwbench.spaces import FeasibleSet, read_space
from hwbench.spaces.families import X3d
from hwbench.spaces.families.x3d import Head, X3dEnds, X3dStemChoice
from hwbench.spaces.feasible import GRID
from hwbench.spaces.scales import steps_along
from hwbench.spaces.space import StagedSpace
from hwbench.spaces.stages import Stage
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, BlockSpec, TensorSpec
from hwbench.units import parse_duration
from hwbench.workspace import shipped


def x3d_stage(depth, width, expansion, kernel, se, act, stride) -> Stage:
    axes = {"depth": depth, "width": width, "expansion": expansion, "kernel": kernel, "se": se, "act": act}
    return Stage.of(axes, stride=stride)


def x3d_space(name, frames, resolution, stem, stages, head) -> StagedSpace:
    return StagedSpace(name, frames, resolution, X3d(), X3dEnds(stem, head), stages)


@settings(max_examples=25, deadline=None)
@given(spaces, st.integers(0, 10**6))
def test_many_sums_at_once_are_those_one_at_a_time_to_the_last_bit(space, salt):
    def number(block, x):
        value = number_of(block, x, salt, whole=False)
        if value > 380:
            raise NotMeasured("no row")
        return value / 7

    sums = SpaceSums.of(space, number, num_classes=4, constant=0.1)
    members = list(space.architectures())
    codes = space.encode(members)
    assert sums.totals(codes).tolist() == [sums.total(member) for member in members]
    assert space.decode(codes) == members
    assert len(np.unique(codes, axis=0)) == space.size()


def test_more_members_than_one_piece_and_none():
    space = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
    sums = SpaceSums.of(space, lambda b, x: number_of(b, x, 0, whole=False), num_classes=4)
    codes = space.random_codes(np.random.default_rng(0), 40_000)
    totals = sums.totals(codes)
    for at in (0, 16_383, 16_384, 39_999):
        assert totals[at] == sums.total(space.decode(codes[at : at + 1])[0])
    assert sums.totals(codes[:0]).shape == (0,)
    assert len(np.unique(codes, axis=0)) > 0.6 * min(space.size(), len(codes))


def test_codes_of_another_space_are_refused():
    space = read_space(shipped() / "search_spaces" / "x3d-tiny.toml")
    sums = SpaceSums.of(space, lambda b, x: 1.0, num_classes=4)
    codes = space.random_codes(np.random.default_rng(0), 3)
    for wrong in (codes[:, 1:], codes[0], codes + 99, codes - 99):
        with pytest.raises(InvalidValue, match="codes"):
            sums.totals(wrong)
    with pytest.raises(InvalidValue, match="member"):
        space.encode([Architecture("other", ())])


def feasible_of(space: StagedSpace, number, budget: float) -> FeasibleSet:
    return FeasibleSet(SpaceSums.of(space, number, num_classes=4), budget)


@settings(max_examples=25, deadline=None)
@given(spaces, st.integers(0, 10**6), st.floats(0, 1))
def test_sums_count_and_extremes_are_those_of_brute_force(space, salt, share):
    def number(block, x):
        return number_of(block, x, salt, whole=True)

    totals = brute(space, number)
    # whole costs under a budget of GRID lie on the grid: nothing is lost to rounding
    scale = GRID / budget_of(totals, share)
    budget = GRID
    sums = SpaceSums.of(space, lambda b, x: math.ceil(number(b, x) * scale), num_classes=4)
    exact = brute(space, lambda b, x: math.ceil(number(b, x) * scale))
    assert all(sums.total(a) == pytest.approx(t) for a, t in exact.items())
    assert sums.smallest()[0] == pytest.approx(min(exact.values()))
    assert sums.largest()[0] == pytest.approx(max(exact.values()))
    assert sums.coverage == 1.0
    assert exact[sums.smallest()[1]] == min(exact.values())
    within = {a for a, t in exact.items() if t <= budget}
    if not within:
        with pytest.raises(InfeasibleBudget):
            FeasibleSet(sums, budget)
        return
    assert FeasibleSet(sums, budget).count == len(within)


@settings(max_examples=25, deadline=None)
@given(spaces, st.integers(0, 10**6), st.floats(0.05, 1))
def test_the_grid_never_counts_a_network_over_budget_and_loses_only_its_own_width(space, salt, share):
    def number(block, x):
        return number_of(block, x, salt, whole=False)

    totals = brute(space, number)
    budget = budget_of(totals, share) * 1.01
    feasible = feasible_of(space, number, budget)
    loss = budget * (len(space.steps) + 1) / GRID
    assert sum(t <= budget - loss for t in totals.values()) <= feasible.count
    assert feasible.count <= sum(t <= budget for t in totals.values())
    rng = np.random.default_rng(salt)
    for _ in range(20):
        drawn = feasible.draw(rng)
        assert totals[drawn] <= budget
        assert drawn in feasible


@settings(max_examples=25, deadline=None)
@given(spaces, st.integers(0, 10**6), st.floats(0.05, 1))
def test_the_best_score_is_that_of_brute_force(space, salt, share):
    totals = brute(space, lambda b, x: number_of(b, x, salt, whole=False))
    scores = brute(space, lambda b, x: number_of(b, x, salt + 1, whole=False))
    budget = budget_of(totals, share) * 1.01
    feasible = feasible_of(space, lambda b, x: number_of(b, x, salt, whole=False), budget)
    best = feasible.best(SpaceSums.of(space, lambda b, x: number_of(b, x, salt + 1, whole=False), num_classes=4))
    assert best.score == pytest.approx(scores[best.architecture])
    assert best.seconds == pytest.approx(totals[best.architecture])
    assert best.seconds <= budget
    loss = budget * (len(space.steps) + 1) / GRID
    assert best.score >= max((scores[a] for a, t in totals.items() if t <= budget - loss), default=0) - 1e-9


@settings(max_examples=20, deadline=None)
@given(spaces, st.integers(0, 10**6), st.floats(0.3, 1), st.floats(0.3, 1), st.floats(-300, 300))
def test_budgets_may_be_shared_and_constants_be_negative(space, salt, share, within, constant):
    totals = {a: t + constant for a, t in brute(space, lambda b, x: number_of(b, x, salt, whole=True)).items()}
    budget = budget_of(totals, share)
    if budget <= 0:
        return
    sums = SpaceSums.of(space, lambda b, x: number_of(b, x, salt, whole=True), num_classes=4, constant=constant)
    feasible = FeasibleSet(sums, budget * 1.01)
    step = (feasible.budget_s - min(0.0, constant)) / GRID
    loss = step * (len(space.steps) + 2)
    assert sum(t <= feasible.budget_s - loss for t in totals.values()) <= feasible.count
    assert feasible.count <= sum(t <= feasible.budget_s for t in totals.values())
    rng = np.random.default_rng(salt)
    assert all(totals[feasible.draw(rng)] <= feasible.budget_s for _ in range(20))
    scores = brute(space, lambda b, x: number_of(b, x, salt + 1, whole=False))
    summed = SpaceSums.of(space, lambda b, x: number_of(b, x, salt + 1, whole=False), num_classes=4)
    limit = within * feasible.budget_s
    fitting = [scores[a] for a, t in totals.items() if t <= limit - loss]
    try:
        best = feasible.best(summed, within)
    except InfeasibleBudget:
        assert not fitting
        return
    assert totals[best.architecture] <= limit + 1e-9
    assert best.score >= max(fitting, default=-math.inf) - 1e-9


@settings(max_examples=40, deadline=None)
@given(spaces, st.integers(0, 10**6), st.floats(0.02, 0.9), st.integers(0, 10**6), st.sampled_from([401, 330, 250]))
def test_repair_changes_as_little_as_possible(space, salt, share, seed, known):
    def number(block, x):
        value = number_of(block, x, salt, whole=False)
        if value > known:
            raise NotMeasured("no row")
        return value

    whole = brute(space, lambda b, x: value if (value := number_of(b, x, salt, whole=False)) <= known else math.inf)
    totals = {a: total for a, total in whole.items() if total < math.inf}
    if not totals:
        return
    budget = budget_of(totals, share) * 1.01
    feasible = feasible_of(space, number, budget)
    proposal = space.random(np.random.default_rng(seed))

    def distance(other: Architecture) -> tuple[int, int]:
        told = dict(other.choices)  # of blocks that only one of both has, nothing is changed
        places = {name: dict(zip(values, steps_along(values).tolist())) for name, values in space.choices.items()}
        pairs = [(places[n][v], places[n][told.get(n, v)]) for n, v in proposal.choices]
        return sum(a != b for a, b in pairs), sum(abs(a - b) for a, b in pairs)

    repaired = feasible.repair(proposal)
    assert totals[repaired] <= budget
    assert distance(repaired) == min(distance(a) for a, t in totals.items() if t <= budget)


@pytest.mark.parametrize("listed", [(8, 32, 64), (64, 8, 32), (64, 32, 8)])
def test_repair_takes_the_nearest_number_in_whatever_order_they_are_listed(listed):
    cost = {8: 1, 32: 3, 64: 5}
    feasible = FeasibleSet.of_costs({"width": {value: cost[value] for value in listed}, "act": {"a": 1, "b": 1}}, 5)
    repaired = feasible.repair(feasible.space.of_params({"width": 64, "act": "b"}))
    assert feasible.space.params(repaired) == {"width": 32, "act": "b"}


@pytest.mark.parametrize("listed", ["4, 8, 16", "16, 4, 8"])
def test_repair_takes_the_nearest_input_size_in_whatever_order_they_are_listed(tmp_path, listed):
    text = (shipped() / "search_spaces" / "x3d-tiny.toml").read_text()
    path = tmp_path / "x3d-tiny.toml"
    path.write_text(text.replace("frames = 8\n", f"frames = [{listed}]\n"))
    space = read_space(path)
    sums = SpaceSums.of(space, lambda _, x: float(x.numel), num_classes=4)
    params = space.params(next(space.architectures()))
    proposal, nearest = (space.of_params(params | {"frames": frames}) for frames in ("16", "8"))
    assert FeasibleSet(sums, sums.total(nearest)).repair(proposal) == nearest


@settings(max_examples=15, deadline=None)
@given(spaces, st.integers(0, 10**6), st.floats(0.05, 1))
def test_reachable_parts_are_those_of_the_networks_within_the_budget(space, salt, share):
    def number(block, x):
        return number_of(block, x, salt, whole=False)

    totals = brute(space, number)
    budget = budget_of(totals, share) * 1.01
    parts = list(feasible_of(space, number, budget).reachable_parts())
    expected = set()
    for architecture in (a for a, t in totals.items() if t <= budget):
        x = space.network(architecture, 4).input
        for block in space.network(architecture, 4).blocks:
            expected.add(block.located(x))
            x = block.output(x)
    assert len(parts) == len(set(parts))
    assert set(parts) == expected


TWO = x3d_space(
    "two",
    (2, 4),
    (16,),
    X3dStemChoice(8, ((1, 3, 3), (5, 1, 1)), "relu"),
    (
        x3d_stage((1, 2, 3), (8, 16), (1.0, 2.0), (((3, 3, 3),),), (0.0, 0.25), ("relu",), 2),
        x3d_stage((1, 2), (16, 24), (1.0,), (((3, 3, 3),),), (0.0,), ("relu", "swish"), 2),
    ),
    Head(16, "relu"),
)


def cost(block: BlockSpec, x: TensorSpec) -> float:
    return number_of(block, x, 7, whole=True)


@pytest.mark.parametrize("band", [(0.0, 1.0), (0.8, 1.0), (0.5, 0.75)])
def test_draws_are_exactly_uniform_over_the_band(band):
    totals = brute(TWO, cost)
    # whole costs under a budget of GRID: the band on the grid is the band itself
    factor = GRID / budget_of(totals, 0.7)
    sums = SpaceSums.of(TWO, lambda b, x: math.ceil(cost(b, x) * factor), num_classes=4)
    rounded = {a: sums.total(a) for a in totals}
    feasible = FeasibleSet(sums, GRID)
    low, high = (math.floor(share * GRID) for share in band)
    within = [a for a, t in rounded.items() if low < t <= high]
    assert len(within) > 10
    rng = np.random.default_rng(1)
    counts = Counter(feasible.draw(rng, band) for _ in range(40 * len(within)))
    assert set(counts) <= set(within)
    chi_square = sum((counts[a] - 40) ** 2 / 40 for a in within)
    degrees = len(within) - 1
    assert chi_square < degrees + 3.1 * math.sqrt(2 * degrees) + 6  # beyond the 99.9 % quantile


def test_the_tables_of_a_band_are_not_sent_to_other_processes():
    feasible = feasible_of(TWO, cost, budget_of(brute(TWO, cost), 0.7))
    feasible.draw(np.random.default_rng(0))
    before = len(pickle.dumps(feasible))
    drawn = feasible.draw(np.random.default_rng(0), (0.5, 1.0))
    sent = pickle.dumps(feasible)
    assert len(sent) == before
    assert pickle.loads(sent).draw(np.random.default_rng(0), (0.5, 1.0)) == drawn


def test_an_impossible_budget_names_the_smallest_reachable_latency_and_that_is_enough():
    sums = SpaceSums.of(TWO, lambda b, x: cost(b, x) * 1e-5, num_classes=4)
    seconds, architecture = sums.smallest()
    with pytest.raises(InfeasibleBudget, match="smallest reachable latency is") as caught:
        FeasibleSet(sums, seconds * 0.5)
    assert architecture.key in str(caught.value)
    named = float(str(caught.value).rpartition("--budget ")[2].removesuffix("ms")) / 1e3
    assert seconds <= named < seconds * 1.001 + 1e-6
    assert FeasibleSet(sums, named).count >= 1
    assert caught.value.exit_status == 4


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.95, 0.99, 0.999])
def test_what_is_named_is_enough_for_one_network_far_above_a_negative_constant(share):
    stage = x3d_stage((1,), (8,), (1.0,), (((3, 3, 3),),), (0.0,), ("relu",), 2)
    stem = X3dStemChoice(8, ((1, 3, 3), (5, 1, 1)), "relu")
    space = x3d_space("one", (2,), (16,), stem, (stage,) * 4, Head(16, "relu"))
    for salt in range(20):

        def number(block, x, salt=salt):
            return number_of(block, x, salt, whole=False) * 1e-3

        plain = SpaceSums.of(space, number, num_classes=4)
        sums = SpaceSums.of(space, number, num_classes=4, constant=-share * plain.smallest()[0])
        with pytest.raises(InfeasibleBudget, match="smallest reachable latency is") as caught:
            FeasibleSet(sums, sums.smallest()[0] * 0.9)
        named = parse_duration(str(caught.value).rpartition("--budget ")[2])
        assert FeasibleSet(sums, named).count == 1
        assert named <= sums.smallest()[0] + plain.smallest()[0] * 7 / GRID + 1e-6


def test_an_empty_band_is_said():
    sums = SpaceSums.of(TWO, cost, num_classes=4)
    feasible = FeasibleSet(sums, sums.largest()[0] * 100)
    with pytest.raises(InfeasibleBudget, match="widen the band"):
        feasible.draw(np.random.default_rng(0), (0.95, 1.0))


def test_choices_without_rows_are_left_out_and_counted():
    def partly(block: BlockSpec, x: TensorSpec) -> float:
        if block.activation == "swish":
            raise NotMeasured(f"no row for {block.key}")
        return cost(block, x)

    sums = SpaceSums.of(TWO, partly, num_classes=4)
    known = {a: t for a, t in brute(TWO, cost).items() if "swish" not in a.key}
    assert sums.coverage == 0.5
    assert sums.num_known == len(known)
    assert all(block.activation == "swish" for block, _ in sums.missing)
    feasible = FeasibleSet(sums, sums.largest()[0] * 1.01)
    assert feasible.count == len(known)
    assert feasible.share() == 1.0
    rng = np.random.default_rng(0)
    assert all("swish" not in feasible.draw(rng).key for _ in range(50))
    swish = next(a for a in TWO.architectures() if a["s2.act"] == "swish")
    assert swish not in feasible
    repaired = feasible.repair(swish)
    assert [n for n, v in swish.choices if repaired[n] != v] == ["s2.act"]
    assert all("swish" not in block.key for block, _ in feasible.reachable_parts())
    with pytest.raises(InfeasibleBudget, match=r"among the 50\.0% of it that is measured"):
        FeasibleSet(sums, 1.0)


def test_nothing_measured_is_an_error_that_passes_on_the_command():
    def nothing(block: BlockSpec, x: TensorSpec) -> float:
        raise NotMeasured(f"{block.key}: run hwbench profile")

    with pytest.raises(NotMeasured, match="run hwbench profile"):
        feasible_of(TWO, nothing, 1.0)


def test_the_constant_is_spent_too():
    sums = SpaceSums.of(TWO, cost, num_classes=4, constant=1000.0)
    plain = SpaceSums.of(TWO, cost, num_classes=4)
    assert sums.smallest()[0] == plain.smallest()[0] + 1000.0
