import statistics
from collections import Counter

import optuna
import pytest

from hwbench.spaces.joint import JointSet
from hwbench.studies.sampler import FeasibleSampler, samplers


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
