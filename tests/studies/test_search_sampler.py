import math
import pickle
import statistics
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from hwbench.cli.main import main
from hwbench.errors import InvalidValue
from hwbench.spaces import SpaceUnion, read_space
from hwbench.spaces.budgets import Budget
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.joint import JointSet
from hwbench.spaces.limits import Limits
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.union import sums_over
from hwbench.spaces.union_set import UnionSet
from hwbench.studies.evaluators.base import Context
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.first_networks import first_networks
from hwbench.studies.posterior import Posterior
from hwbench.studies.sampler import _RUNGS, FeasibleSampler, _spread, samplers
from hwbench.studies.thompson import Thompson
from hwbench.workspace import shipped


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


@pytest.fixture
def feasible(make_search):
    return make_search().feasible


def run(feasible, base, trials, *, startup=5, seed=0, value=lambda a: 0.0):
    sampler = FeasibleSampler(feasible, base, seed=seed, startup=startup)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    found = []

    def objective(trial):
        architecture = feasible.space.sample(trial)
        found.append(architecture)
        trial.set_user_attr("architecture", architecture.key)
        return value(architecture)

    study.optimize(objective, n_trials=trials)
    return found


@pytest.mark.parametrize("name", samplers.names())
def test_every_proposal_is_feasible_and_new(feasible, name):
    found = run(feasible, samplers.get(name), 25)
    assert all(a in feasible for a in found)
    assert len(set(found)) == 25


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: optuna.samplers.RandomSampler(seed=seed),
        lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=False),
        lambda seed: optuna.samplers.NSGAIISampler(seed=seed, population_size=5),
    ],
    ids=["random", "independent-tpe", "nsga2"],
)
def test_any_optuna_sampler_can_be_wrapped(feasible, make):
    assert all(a in feasible for a in run(feasible, make, 15))


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_in_place_of_what_is_proposed_again_come_its_neighbours():
    """As the optimum of an acquisition function that knows no budget, one proposal over the budget comes always."""
    weights = {f"item{number}": {0: 0, 1: 3 + number % 5} for number in range(16)}
    sizes = {name: {0: 0, 1: 12 - cost[1]} for name, cost in weights.items()}
    feasible = JointSet.of_named_costs({"weight": weights, "size": sizes}, budgets={"weight": 60, "size": 90})
    all_items = dict.fromkeys(weights, 1)

    def stubborn(seed):
        return optuna.samplers.PartialFixedSampler(all_items, optuna.samplers.RandomSampler(seed=seed))

    def packed(networks):
        return [sum(text == "1" for _, text in one.choices) for one in networks]

    near, drawn = (run(feasible, base, 40)[5:] for base in (stubborn, None))
    assert len(set(near)) == len(near)
    assert all(one in feasible for one in near)
    most = sum(text == "1" for _, text in feasible.repair(feasible.space.of_params(all_items)).choices)
    assert most >= max(packed(near)) >= min(packed(near)) >= most - 3
    assert min(packed(near)) > max(packed(drawn)) - 2


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("value", ["first", "last"])
def test_neighbours_of_a_network_within_the_budget_are_near(feasible, value):
    at = {"first": 0, "last": -1}[value]
    proposed = {name: values[at] for name, values in feasible.space.values.items()}

    def stubborn(seed):
        return optuna.samplers.PartialFixedSampler(proposed, optuna.samplers.RandomSampler(seed=seed))

    centre = feasible.repair(feasible.space.of_params(proposed))

    def changes(networks):
        return statistics.fmean(sum(one[n] != text for n, text in centre.choices) for one in networks)

    near, drawn = (run(feasible, base, 30)[5:] for base in (stubborn, None))
    assert len(set(near)) == len(near)
    assert all(one in feasible for one in near)
    assert changes(near) < 0.7 * changes(drawn)


def test_proposals_use_what_was_learned(make_search):
    feasible = make_search(budget_s=8e-3).feasible
    wanted = "s2.expansion"

    def value(architecture):
        return float(architecture[wanted] == "4")

    learned = Counter(a[wanted] for a in run(feasible, samplers.get("tpe"), 50, startup=10, value=value)[25:])
    drawn = Counter(a[wanted] for a in run(feasible, None, 50, value=value)[25:])
    assert learned["4"] > drawn["4"] + 5


def test_networks_that_are_tried_first_count_among_the_trials_before_the_sampler(make_search, capsys):
    def draws(startup, evaluator):
        search = make_search(f"{evaluator}-{startup}", budget_s=8e-3, sampler="thompson", evaluator=evaluator)
        return replace(search, startup=startup).run(trials=20, measure=1).course.draws

    assert draws(9, "deep-and-slow") == tuple(range(9))
    optima = len(first_of_entropy(make_search))
    assert 3 < optima <= 6
    assert draws(9, "entropy") == tuple(range(optima, 9))
    assert draws(optima, "entropy") == ()
    with pytest.raises(SystemExit):
        main(["search", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "Trials before the sampler takes over, uniform draws; default: 12" in told
    assert "Networks that are tried first count among them" in told


def first_of_entropy(make_search):
    search = make_search(budget_s=8e-3, evaluator="entropy")
    scores = sums_over(search.feasible.space, Entropy(Context(0, lambda count: [])).block_score, num_classes=8)
    return first_networks([search.feasible], search.settings, scores)


def test_draws_at_the_start_are_parents_of_nsga2(feasible):
    """Optuna tells generations by what the sampler noted on a trial; a draw it knew nothing of would be no parent."""
    sampler = FeasibleSampler(feasible, samplers.get("nsga2"), seed=0, startup=20)
    study = optuna.create_study(sampler=sampler, direction="maximize")

    def objective(trial):
        trial.set_user_attr("architecture", feasible.space.sample(trial).key)
        return float(trial.number)

    study.optimize(objective, n_trials=25)
    generations = [next(v for k, v in t.system_attrs.items() if k.endswith("generation")) for t in study.trials]
    assert generations == [0] * 20 + [1] * 5


def test_thompson_sampling_finds_more_than_draws_do(feasible):
    def value(architecture):
        return sum(float(v) for name, v in architecture.choices if name.endswith("depth"))

    found = {name: run(feasible, samplers.get(name), 24, startup=8, value=value) for name in ("thompson", "random")}
    best = {name: max(value(a) for a in networks[8:]) for name, networks in found.items()}
    most = max(value(a) for a in feasible.space.architectures() if a in feasible)
    assert best["thompson"] == most > best["random"]


WIDTHS = (16, 32, 64, 128)
COSTS = {f"layer{number}": {width: width / 100 for width in WIDTHS} for number in range(6)}


@pytest.fixture
def widths():
    return FeasibleSet.of_costs(COSTS, 3.0)


def chosen(trial):
    return [trial.suggest_categorical(name, list(values)) for name, values in COSTS.items()]


def worth(trial):
    return sum((place + 1) * width**0.5 for place, width in enumerate(chosen(trial)))


def study_of(feasible, base="thompson", **options):
    sampler = FeasibleSampler(feasible, samplers.get(base), seed=0, startup=4)
    return optuna.create_study(sampler=sampler, direction="maximize", **options)


def combinations(study):
    return combinations_of(study, COSTS)


def combinations_of(study, costs):
    return {tuple(trial.params[name] for name in costs) for trial in study.trials}


@pytest.mark.parametrize("base", ["random", "thompson", "tpe"])
@pytest.mark.parametrize("fault", ["raised", "nan"])
def test_what_failed_is_not_proposed_again(widths, base, fault):
    def objective(trial):
        value = worth(trial)
        if trial.params["layer5"] < 64:
            return value
        if fault == "nan":
            return math.nan
        raise MemoryError

    study = study_of(widths, base)
    study.optimize(objective, n_trials=20, catch=MemoryError)
    assert len(combinations(study)) == 20
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE, TrialState.FAIL}


@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("told", ["score", "nan", "-inf"])
def test_thompson_learns_beside_any_pruner(widths, first, told):
    def objective(trial):
        value = worth(trial)
        for step in range(first, first + 30):
            odd = told != "score" and trial.params["layer5"] >= 64
            trial.report(float(told) if odd else value * (step + 1) / 30, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return float(told) if told == "-inf" and odd else value

    study = study_of(widths, pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=0))
    study.optimize(objective, n_trials=20)
    assert len(combinations(study)) == 20
    sampler = study.sampler
    assert len(sampler._scored(study)) <= 20 * (_RUNGS + 1)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("base", samplers.names())
def test_combinations_of_all_brackets_of_hyperband_are_new(widths, base, jobs):
    """Optuna shows a sampler the trials of one bracket alone."""

    def objective(trial):
        value = worth(trial)
        for step in range(9):
            trial.report(value * (step + 1), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = study_of(widths, base, pruner=optuna.pruners.HyperbandPruner(1, 9, 3), study_name="hyperband")
    study.optimize(objective, n_trials=30, n_jobs=jobs)
    assert len(combinations(study)) == 30
    assert TrialState.PRUNED in {trial.state for trial in study.trials}


def test_thompson_learns_from_all_brackets_of_hyperband(widths, monkeypatch):
    learned = []

    def propose(self, scored, rng, **options):
        learned.append({one.training for one in scored})
        return widths.draw(rng)

    monkeypatch.setattr(Thompson, "propose", propose)
    study = study_of(widths, pruner=optuna.pruners.HyperbandPruner(1, 9, 3), study_name="hyperband")
    study.optimize(worth, n_trials=8)
    assert learned[-1] == set(range(7))


def test_rungs_are_spread_over_doublings():
    assert _spread([1, 3, 9], 4) == [1, 3, 9]
    assert _spread(list(range(1, 65)), 4) == [1, 4, 16, 64]
    assert _spread(list(range(64)), 4) == [0, 3, 15, 63]


@pytest.mark.parametrize("base", ["random", "thompson", "tpe"])
def test_threads_get_combinations_of_their_own(widths, base):
    def objective(trial):
        value = worth(trial)
        time.sleep(0.002)
        return value

    study = study_of(widths, base)
    study.optimize(objective, n_trials=24, n_jobs=4)
    assert len(combinations(study)) == 24


@pytest.mark.parametrize("base", samplers.names())
def test_a_later_trial_that_is_finished_first_is_not_repeated(base):
    """As beside threads: each trial gets its values after the next one has been told its score."""
    feasible = FeasibleSet.of_costs({"a": dict.fromkeys(range(12), 0), "b": {0: 0}}, 1)
    study = study_of(feasible, base)
    for _ in range(6):
        first, second = study.ask(), study.ask()
        for trial in (second, first):
            study.tell(trial, trial.suggest_categorical("a", range(12)) + trial.suggest_categorical("b", [0]))
    assert sorted(trial.params["a"] for trial in study.trials) == list(range(12))


def test_the_last_combinations_of_a_set_are_found():
    costs = {"a": dict.fromkeys(range(20), 0), "b": dict.fromkeys(range(10), 0)}
    sampler = FeasibleSampler(FeasibleSet.of_costs(costs, 1), None, seed=0, startup=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: sum(trial.suggest_categorical(n, list(v)) for n, v in costs.items()), n_trials=200)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 200


def test_a_queued_trial_is_completed_within_the_budget(widths):
    study = study_of(widths)
    for number in range(6):
        study.enqueue_trial({f"layer{number}": 128, f"layer{(number + 1) % 6}": 64})
    study.optimize(worth, n_trials=8)
    for number, trial in enumerate(study.trials[:6]):
        assert trial.params[f"layer{number}"] == 128
        assert sum(COSTS[name][width] for name, width in trial.params.items()) <= 3.0 + 1e-9


@pytest.mark.parametrize("base", ["thompson", "tpe", "random"])
def test_each_of_many_trials_that_are_queued_alike_is_a_new_combination(base):
    """There are 16 combinations with what is queued, all within the budget."""
    costs = {name: {number: number for number in (1, 2, 3, 4)} for name in ("a", "b", "c")}
    sampler = FeasibleSampler(FeasibleSet.of_costs(costs, 12), samplers.get(base), seed=0, startup=3)
    study = optuna.create_study(sampler=sampler)
    for _ in range(12):
        study.enqueue_trial({"a": 4})
    study.optimize(lambda trial: sum(trial.suggest_categorical(n, list(v)) for n, v in costs.items()), n_trials=12)
    assert {trial.params["a"] for trial in study.trials} == {4}
    assert len(combinations_of(study, costs)) == 12


def test_where_all_combinations_with_what_is_queued_were_tried_one_is_tried_again(items):
    study = optuna.create_study(sampler=FeasibleSampler(items, None, seed=0, startup=0))
    queued = dict.fromkeys(list(ITEMS)[1:], False)
    for _ in range(3):
        study.enqueue_trial(queued)
    study.optimize(lambda trial: use(trial, *range(6)), n_trials=3)
    assert all(queued.items() <= trial.params.items() for trial in study.trials)
    assert len(combinations_of(study, ITEMS)) == 2


def test_a_queued_space_without_networks_within_the_budget_is_completed_from_another():
    spaces = [read_space(shipped() / "search_spaces" / f"{name}.toml") for name in ("x3d-tiny", "x3d-mini")]
    sums = [SpaceSums.of(one, lambda *_, cost=cost: cost, num_classes=4) for one, cost in zip(spaces, (1, 50))]
    within = UnionSet(SpaceUnion(tuple(spaces)), [Limits((Budget("cost", 50, one),)) for one in sums])
    assert list(within.sets) == ["x3d-tiny"]
    study = optuna.create_study(sampler=FeasibleSampler(within, None, seed=0, startup=0))
    study.enqueue_trial({"space": "x3d-mini"})
    assert within.space.sample(study.ask()).space == "x3d-mini"


@pytest.mark.parametrize("queued", [{"s3.depth": "4"}, {"s2.expansion": "4"}, {"s1.depth": "2", "s3.width": "128"}])
def test_the_rest_of_a_stage_gives_way_to_a_queued_choice_of_it(feasible, queued):
    """There are networks within the budget that have what is queued, so that a trial is one of them."""
    within = 0
    for seed in range(40):
        study = optuna.create_study(sampler=FeasibleSampler(feasible, None, seed=seed, startup=100))
        study.enqueue_trial(queued)
        architecture = feasible.space.sample(study.ask())
        assert queued.items() <= dict(architecture.choices).items()
        within += architecture in feasible
    assert within == 40


def test_other_parameters_are_sampled_beside_the_choices(widths):
    study = study_of(widths)
    study.optimize(lambda trial: worth(trial) - trial.suggest_float("lr", 1e-4, 1, log=True), n_trials=16)
    assert len(combinations(study)) == 16
    assert len({trial.params["lr"] for trial in study.trials}) == 16
    assert len(study.sampler._scored(study)) == 16


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("base", [*samplers.names(), "grouped"])
def test_no_sampler_minds_other_parameters(widths, base, place):
    """A wrapped sampler finds the other parameters in the trials, and would propose them with the choices."""

    def objective(trial):
        if place == "first":
            trial.suggest_float("lr", 1e-4, 1, log=True)
        value = worth(trial)
        if trial.number % 5 == 4:
            return None
        return value - trial.suggest_float("lr", 1e-4, 1, log=True) - trial.suggest_int("warmup", 1, 5)

    study = study_of(widths, "tpe" if base == "grouped" else base)
    if base == "grouped":
        study.sampler = FeasibleSampler(widths, grouped_tpe, seed=0, startup=4)
    study.optimize(objective, n_trials=30)
    assert len(combinations(study)) == 30
    assert len({trial.params["lr"] for trial in study.trials if "lr" in trial.params}) >= 24


def grouped_tpe(seed):
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=0, multivariate=True, group=True)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_fixing_a_choice_from_outside_says_what_to_do(widths):
    sampler = optuna.samplers.PartialFixedSampler({"layer0": 64}, FeasibleSampler(widths, None, seed=0, startup=0))
    study = optuna.create_study(sampler=sampler)
    with pytest.raises(InvalidValue, match=r"layer0: .* rule out its other values"):
        study.optimize(worth, n_trials=1)


def test_a_class_of_samplers_is_a_way_to_make_one(widths):
    study = optuna.create_study(sampler=FeasibleSampler(widths, optuna.samplers.RandomSampler, seed=0, startup=2))
    study.optimize(worth, n_trials=6)
    assert len(combinations(study)) == 6


def test_a_study_can_be_pickled(widths):
    study = study_of(widths)
    study.optimize(worth, n_trials=6)
    again = pickle.loads(pickle.dumps(study))
    for one in (study, again):
        one.optimize(worth, n_trials=3)
    assert [t.params for t in again.trials] == [t.params for t in study.trials]


@pytest.mark.parametrize("base", ["random", "thompson"])
def test_each_trial_is_read_once_for_all_that_come_after(feasible, monkeypatch, base):
    read, kind = [], type(feasible.space)
    of_params = kind.of_params
    monkeypatch.setattr(kind, "of_params", lambda self, params: read.append(1) or of_params(self, params))
    sampler = FeasibleSampler(feasible, samplers.get(base), seed=0, startup=45)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    values = feasible.space.values
    study.optimize(
        lambda trial: float(sum(len(trial.suggest_categorical(name, one)) for name, one in values.items())), n_trials=50
    )
    assert len(read) <= 50
    assert not pickle.loads(pickle.dumps(sampler))._networks


def test_a_sampler_serves_several_studies(feasible):
    def proposed(sampler):
        study = optuna.create_study(sampler=sampler)
        study.optimize(lambda trial: float(len(feasible.space.sample(trial).key)), n_trials=12)
        return [trial.params for trial in study.trials]

    once = FeasibleSampler(feasible, Thompson, seed=3, startup=6)
    optuna.create_study(sampler=once).optimize(lambda trial: -len(feasible.space.sample(trial).key), n_trials=7)
    assert proposed(once) == proposed(FeasibleSampler(feasible, Thompson, seed=3, startup=6))


def test_the_empty_text_is_a_value_as_any_other():
    costs = {"a": {"flip": 0, "": 0}, "b": {0: 0, 1: 0}}
    sampler = FeasibleSampler(FeasibleSet.of_costs(costs, 1), Thompson, seed=0, startup=0)
    study = optuna.create_study(sampler=sampler, direction="maximize")

    def objective(trial):
        return 10 * (trial.suggest_categorical("a", ["flip", ""]) == "") + trial.suggest_categorical("b", [0, 1])

    study.optimize(objective, n_trials=4)
    posterior = Posterior.fit(sampler._thompson._layout, sampler._scored(study))
    space = sampler._space
    flip, none = (space.of_params({"a": value, "b": 0}) for value in ("flip", ""))
    found, _ = posterior.predict([flip, none])
    assert found[1] - found[0] > 5


@pytest.mark.parametrize("base", samplers.names())
@pytest.mark.parametrize(
    ("offered", "asked"), [((0, 1), (False, True)), ((False, True), (0, 1)), ((16, 32), (16.0, 32.0))]
)
def test_values_that_are_equal_are_one_value(base, offered, asked):
    """Optuna takes their distributions for the same."""
    costs = {f"item{place}": {offered[0]: 0, offered[1]: place + 1} for place in range(5)}
    sampler = FeasibleSampler(FeasibleSet.of_costs(costs, 9), samplers.get(base), seed=0, startup=2)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.enqueue_trial({"item4": asked[1]})
    study.optimize(lambda trial: sum(trial.suggest_categorical(name, asked) for name in costs), n_trials=8)
    assert len(combinations_of(study, costs)) == 8
    assert study.trials[0].params["item4"] == asked[1]
    for trial in study.trials:
        assert sum(costs[name][value] for name, value in trial.params.items()) <= 9


ITEMS = {f"use{place}": {False: 0, True: place + 1} for place in range(6)}


@pytest.fixture
def items():
    return FeasibleSet.of_costs(ITEMS, 12)


def use(trial, *places):
    return sum(place * trial.suggest_categorical(f"use{place}", [False, True]) for place in places)


@pytest.mark.parametrize("base", samplers.names())
def test_a_choice_that_depends_on_others_is_no_misspelt_one(items, base):
    def objective(trial):
        augment = trial.suggest_categorical("augment", [False, True])
        if trial.suggest_categorical("use0", [False, True]) or trial.number == 0:
            return use(trial, 1, 2, 3, 4, 5) + augment
        return use(trial, 2, 3, 4, 5) + augment

    study = study_of(items, base)
    study.optimize(objective, n_trials=14)
    assert len({len(trial.params) for trial in study.trials}) == 2


def test_a_trial_that_is_pruned_among_its_choices_misspells_none(items):
    def objective(trial):
        trial.suggest_categorical("augment", [False, True])
        if not use(trial, 0, 1, 2) or trial.number == 0:
            raise optuna.TrialPruned
        return use(trial, 3, 4, 5)

    study = study_of(items)
    study.optimize(objective, n_trials=14)
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}


DEEP = {"depth": dict.fromkeys((1, 2, 3, 4, 5), 0)} | {f"l{place}": COSTS["layer0"] for place in range(5)}


def of_some_depth(trial):
    depth = trial.suggest_categorical("depth", [1, 2, 3, 4, 5])
    return sum((i + 1) * trial.suggest_categorical(f"l{i}", WIDTHS) ** 0.5 for i in range(depth)) - 3 * depth**2


def test_thompson_learns_where_choices_depend_on_others():
    study = study_of(FeasibleSet.of_costs(DEEP, 3.0))
    study.optimize(of_some_depth, n_trials=40)
    partial = [trial for trial in study.trials if len(trial.params) < 6]
    assert partial
    for trial in study.trials:
        left_out = trial.system_attrs.get("hwbench:left_out", {})
        assert left_out.keys() | trial.params.keys() == DEEP.keys()
        spent = sum(DEEP[name][int(value)] for name, value in (left_out | trial.params).items())
        assert spent <= 3.0 + 1e-9
    assert len(study.sampler._scored(study)) == 40
    drawn = study_of(FeasibleSet.of_costs(DEEP, 3.0), "random")
    drawn.optimize(of_some_depth, n_trials=40)
    assert study.best_value > drawn.best_value


def test_what_failed_is_not_proposed_again_where_choices_depend_on_others():
    def objective(trial):
        value = of_some_depth(trial)
        if trial.params["depth"] == 2:
            raise MemoryError
        return value

    study = study_of(FeasibleSet.of_costs(DEEP, 3.0))
    study.optimize(objective, n_trials=25, catch=MemoryError)
    found = {tuple((t.system_attrs.get("hwbench:left_out", {}) | t.params).items()) for t in study.trials}
    assert len(found) == 25


PARTLY = {"depth": {1: 1, 2: 2}, "width2": {16: 1, 32: 2, 64: 3}}  # five combinations are within 4


def partly(trial):
    depth = trial.suggest_categorical("depth", list(PARTLY["depth"]))
    return depth if depth == 1 else depth + trial.suggest_categorical("width2", list(PARTLY["width2"]))


def whole_of(trial):
    attributes = trial.system_attrs
    whole = attributes.get("hwbench:left_out", {}) | attributes.get("fixed_params", {}) | trial.params
    return tuple(str(whole[name]) for name in PARTLY)


@pytest.mark.parametrize("base", samplers.names())
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another parameter"])
def test_a_queued_choice_that_is_not_asked_for_is_of_the_network(base, beside):
    study = study_of(FeasibleSet.of_costs(PARTLY, 4), base)
    study.enqueue_trial({"depth": 1, "width2": 64})
    study.optimize(lambda trial: partly(trial) + (trial.suggest_float("lr", 0, 1) if beside else 0), n_trials=5)
    assert len({whole_of(trial) for trial in study.trials}) == 5
    assert len(study.sampler._scored(study)) == 5


@pytest.mark.parametrize("base", samplers.names())
@pytest.mark.parametrize("seed", range(4))
def test_what_failed_is_told_apart_by_the_choices_that_it_did_not_ask_for(base, seed):
    def objective(trial):
        value = partly(trial)
        if trial.number < 3:
            raise MemoryError
        return value

    sampler = FeasibleSampler(FeasibleSet.of_costs(PARTLY, 4), samplers.get(base), seed=seed, startup=2)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    study.optimize(objective, n_trials=5, catch=MemoryError)
    assert len({whole_of(trial) for trial in study.trials}) == 5


@pytest.mark.filterwarnings("ignore:Fixed parameter:UserWarning")
def test_a_queued_value_that_is_not_offered_is_of_no_network():
    study = study_of(FeasibleSet.of_costs(PARTLY, 4))
    study.enqueue_trial({"depth": 1, "width2": 65})
    study.enqueue_trial({"depth": 2, "width2": 65})
    study.optimize(partly, n_trials=6, catch=ValueError)
    assert [trial.state for trial in study.trials].count(TrialState.COMPLETE) == 5
    assert len({whole_of(trial) for trial in study.trials[2:]}) == 4


def test_trials_of_before_that_left_choices_out_are_passed_over(items):
    study = study_of(items)
    study.add_trial(
        optuna.trial.create_trial(
            params={"use0": True},
            distributions={"use0": optuna.distributions.CategoricalDistribution((False, True))},
            value=1.0,
        )
    )
    study.optimize(lambda trial: use(trial, *range(6)), n_trials=8)
    assert len(study.sampler._scored(study)) == 8
    assert not any("hwbench:left_out" in trial.system_attrs for trial in study.trials)


@pytest.mark.parametrize("budget", [0, 12])
def test_that_thompson_learns_from_the_first_objective_alone_is_warned_of_once(budget):
    costs = {name: {False: 0, True: budget and 1} for name in ITEMS}
    sampler = FeasibleSampler(FeasibleSet.of_costs(costs, budget), Thompson, seed=0, startup=2)
    study = optuna.create_study(sampler=sampler, directions=["maximize", "minimize"])
    with pytest.warns(UserWarning, match="learns from the first of 2 objectives alone") as warned:
        study.optimize(lambda trial: (use(trial, *range(6)), 1.0), n_trials=8)
    assert len(warned) == 1
    assert len(combinations_of(study, ITEMS)) == 8


@pytest.mark.filterwarnings("ignore:FeasibleSampler. thompson learns from the first of 2 objectives")
@pytest.mark.parametrize("least", [0, 1])
def test_thompson_looks_for_cheap_combinations_of_two_objectives_whatever_the_cheapest_costs(least):
    costs = {f"item{number}": {False: least, True: number + 1} for number in range(10)}
    sampler = FeasibleSampler(FeasibleSet.of_costs(costs, 40), Thompson, seed=0, startup=5)
    study = optuna.create_study(sampler=sampler, directions=["maximize", "minimize"])

    def worth_and_cost(trial):
        packed = [trial.suggest_categorical(name, list(values)) for name, values in costs.items()]
        return sum((place + 1) ** 0.5 for place, one in enumerate(packed) if one), spent_of(trial.params, costs)

    study.optimize(worth_and_cost, n_trials=30)
    spent = [trial.values[1] for trial in study.trials[5:]]
    assert min(spent) <= 20
    assert sum(one <= 30 for one in spent) >= 5


def test_a_share_of_the_budget_that_the_grid_leaves_empty_has_the_cheapest_combination():
    """Costs of a fifth of a step are rounded up to one: below 60 of 20,000 steps the grid has no combination."""
    costs = {f"layer{number}": {1: 0.2 + number / 1e4, 8: 400.0 + number / 7} for number in range(60)}
    feasible = FeasibleSet.of_costs(costs, 20_000)
    _, cheapest = feasible.smallest()
    drawn = [feasible.draw(np.random.default_rng(seed)) for seed in range(4)]
    observations = [ScoreObservation(one, score) for score, one in enumerate(drawn)]
    seeds = [seed for seed in range(2000) if np.random.default_rng(seed).uniform() < 0.002]
    assert len(seeds) >= 3
    for seed in seeds:
        assert Thompson(feasible).propose(observations, np.random.default_rng(seed), front=True) == cheapest


def spent_of(params, costs):
    return sum(costs[name][value] for name, value in params.items())


@pytest.mark.parametrize("base", ["nsga2", "random", "tpe"])
def test_the_others_learn_from_all_objectives(items, base):
    sampler = FeasibleSampler(items, samplers.get(base), seed=0, startup=2)
    study = optuna.create_study(sampler=sampler, directions=["maximize", "minimize"])
    study.optimize(lambda trial: (use(trial, *range(6)), len(trial.params)), n_trials=8)
    assert len(combinations_of(study, ITEMS)) == 8


@pytest.mark.filterwarnings("ignore:`constraints_func`", "ignore:Argument ``constraints_func``")
def test_constraints_are_kept_where_another_process_tells_the_score(items, tmp_path):
    def constrained(seed):
        return optuna.samplers.TPESampler(seed=seed, constraints_func=lambda trial: (trial.params["use5"] - 0.5,))

    def opened():
        """As another process has the study."""
        sampler = FeasibleSampler(items, constrained, seed=0, startup=0)
        return optuna.create_study(
            study_name="shared", storage=f"sqlite:///{tmp_path}/shared.db", sampler=sampler, load_if_exists=True
        )

    asked = opened().ask()
    use(asked, *range(6))
    study = opened()
    study.tell(asked.number, 1.0)
    assert study.trials[0].system_attrs["constraints"] == [asked.params["use5"] - 0.5]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: optuna.samplers.GridSampler({name: [False, True] for name in ITEMS}, seed=seed),
        lambda seed: optuna.samplers.BruteForceSampler(seed=seed),
    ],
    ids=["grid", "brute-force"],
)
def test_samplers_that_go_through_a_list_are_refused_and_what_is_said_instead_works(items, make):
    study = optuna.create_study(sampler=FeasibleSampler(items, make, seed=0, startup=2))
    with pytest.raises(InvalidValue, match=r"goes through a list of its own.* queue all: .*enqueue_trial"):
        study.optimize(lambda trial: use(trial, *range(6)), n_trials=1)
    every = optuna.create_study()
    for one in items.space.architectures():
        if one in items:
            every.enqueue_trial(items.space.params(one))
    every.optimize(lambda trial: use(trial, *range(6)), n_trials=int(items.count))
    assert len(combinations_of(every, ITEMS)) == items.count
    assert all(sum(ITEMS[n][v] for n, v in trial.params.items()) <= 12 for trial in every.trials)
