"""Networks that are behind are given up: by real trainings' reports, in this process and in workers, over a kill."""

import json
import math
from dataclasses import dataclass, field, replace

import optuna
import pytest
from optuna.trial import TrialState

import hwbench
import hwbench.api.search
from hwbench import SearchRequest
from hwbench.api.learning import learn_from
from hwbench.errors import InvalidValue
from hwbench.reports.result import read_result
from hwbench.studies.earlier import EarlierTrainings
from hwbench.studies.journal import finished_trials, open_study
from hwbench.studies.pruning import PRUNERS, Pruning
from hwbench.studies.sampler import FeasibleSampler, samplers
from hwbench.studies.trials import SearchWatch
from hwbench.studies.worker_pool import Workers

EPOCHS = 9


def worth(network) -> float:
    """More blocks are better."""
    return len(network.blocks) / 20


@dataclass(frozen=True)
class Falling:
    """Losses that fall the faster the better a network is; pickles, and keeps how many epochs each one had."""

    folder: object = None
    ends_at: int = field(default=-1)

    def __call__(self, network, seed, report):
        for epoch in range(EPOCHS):
            if self.folder is not None:
                with (self.folder / "epochs").open("a") as file:
                    file.write(network.name + "\n")
                if len((self.folder / "epochs").read_text().splitlines()) == self.ends_at:
                    raise KeyboardInterrupt
            report(epoch, 4.0 - worth(network) * (1 + epoch) / EPOCHS)


@pytest.fixture
def make(make_search):
    def make(name, pruner="asha", workers=None, losses=None, **changes):
        search = make_search(name, evaluator="curve", budget_s=7e-3, pruner=pruner, **changes)
        search.losses, search.workers = losses or Falling(), workers
        search.pruning = Pruning(pruner, EPOCHS) if pruner else None
        return search

    return make


class Watch(SearchWatch):
    def __init__(self):
        self.given_up, self.evaluations = [], []

    def gave_up(self, candidate, epochs):
        self.given_up.append((candidate.architecture, epochs, candidate.score))

    def evaluated(self, candidate):
        self.evaluations.append(candidate.architecture)


@pytest.mark.parametrize("pruner", PRUNERS)
def test_networks_behind_are_given_up_and_the_best_is_found(make, pruner, tmp_path):
    search = make(f"by-{pruner}", pruner, losses=Falling(tmp_path), sampler="thompson")
    search.watch = watch = Watch()
    result = search.run(trials=30, measure=1)
    spent = len((tmp_path / "epochs").read_text().splitlines())
    assert result.trials == 30 == len(result.history) + len(result.given_up)
    assert spent < 0.9 * 30 * EPOCHS
    assert [(one.candidate.architecture, one.epochs, one.candidate.score) for one in result.given_up] == watch.given_up
    assert {one.epochs for one in result.given_up} <= {3, 6}  # of nine, none at the end
    seen = [*watch.evaluations, *(key for key, _, _ in watch.given_up)]
    assert len(set(seen)) == 30
    assert result.to_json()["given_up"] == len(result.given_up) > 5
    stored = json.loads((search.workspace.studies / search.name / "result.json").read_text())
    assert [one["epochs"] for one in stored["given_up"]] == [one.epochs for one in result.given_up]
    assert read_result(search.workspace, search.name).settings.pruner == pruner
    best = max(result.history, key=lambda one: one.score)
    lost = [one.candidate for one in result.given_up]
    assert blocks(search, best.architecture) >= max(blocks(search, one.architecture) for one in lost)


def blocks(search, key):
    space = search.feasible.space
    return len(space.network(next(a for a in space.architectures() if a.key == key), 8).blocks)


def test_without_a_pruner_all_is_as_it_was(make):
    plain = make("plain", "", sampler="thompson").run(trials=16, measure=1)
    assert "given_up" not in plain.to_json()
    assert len(plain.history) == 16
    assert plain.given_up == ()


def test_workers_give_up_what_this_process_gives_up(make):
    here = make("here", sampler="thompson").run(trials=20, measure=1)
    there = make("there", workers=Workers(1), sampler="thompson").run(trials=20, measure=1)
    assert [one.to_json() for one in there.given_up] == [one.to_json() for one in here.given_up]
    assert [one.architecture for one in there.history] == [one.architecture for one in here.history]


def test_several_workers_are_judged_each_by_its_own_reports(make):
    result = make("several", workers=Workers(2), sampler="thompson").run(trials=20, measure=1)
    assert result.trials == 20 == len(result.history) + len(result.given_up)
    assert result.given_up


def test_a_study_that_ended_in_the_middle_of_a_training_goes_on(make, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        make("cut", losses=Falling(tmp_path, ends_at=60)).run(trials=24, measure=1)
    search = make("cut", losses=Falling(tmp_path))
    result = search.run(trials=24, measure=1)
    assert result.trials == 24
    assert result.given_up
    names = (tmp_path / "epochs").read_text().splitlines()
    cut = names[59]
    assert cut in {one.architecture for one in result.history} | {o.candidate.architecture for o in result.given_up}
    folder = search.workspace.studies / "cut"
    with open_study(folder, search.settings, None, len(search.feasible.space.choices)) as study:
        assert len(finished_trials(study)) == 24
        states = [trial.state.name for trial in study.trials]
    assert states.count("FAIL") == 1


def test_what_was_given_up_is_learned_from(make):
    """The sampler hears of all trials at the epochs of the rungs, and the longest training is asked about."""
    search = make("learned", sampler="thompson")
    search.run(trials=24, measure=1)
    folder = search.workspace.studies / "learned"
    with open_study(folder, search.settings, None, len(search.feasible.space.choices)) as study:
        sampler = FeasibleSampler(search.feasible, samplers.get("thompson"), seed=0, startup=2)
        observations = sampler._scored(study)
        trials = study.trials
    whole = [one for one in observations if not one.fidelity]
    assert len(whole) == sum(trial.state.name == "COMPLETE" for trial in trials)
    early = [one for one in observations if one.fidelity == (math.log2(3 / EPOCHS),)]
    assert len(early) == 24
    assert {one.training for one in early} == set(range(24))


@pytest.mark.parametrize("before", ["", "journal", "nothing"])
def test_another_study_learns_what_all_had_where_some_were_given_up(make, space, before):
    """Those alone that were given up at an epoch are the losers of it: the best of them is no good network."""
    search = make("first", sampler="thompson", effort=f"{EPOCHS} epochs")
    result = search.run(trials=24, measure=1)
    folder = search.workspace.studies / "first"
    if before:  # results of before had no rungs
        stored = json.loads((folder / "result.json").read_text())
        assert len(stored.pop("rungs")) > 24
        (folder / "result.json").write_text(json.dumps(stored))
    if before == "nothing":
        (folder / "journal.log").unlink()
    observations = learn_from(search.workspace, space, ["first"]).observations
    early = [one for one in observations if one.fidelity == (math.log2(3 / EPOCHS), 0.0, 0.0)]
    lost = [one.candidate.architecture for one in result.given_up]
    at_3 = [one.candidate.architecture for one in result.given_up if one.epochs == 3]
    assert len({one.training for one in observations}) == 24
    assert sorted(one.architecture.key for one in observations if one.given_up) == sorted(lost)
    assert sorted(one.architecture.key for one in early if one.given_up) == sorted(at_3) != []
    assert len(early) == (len(at_3) if before == "nothing" else 24)
    whole = sorted(result.history, key=lambda one: -one.score)
    tried = [one.key for one in EarlierTrainings(observations).best([search.feasible], 24)]
    assert tried[: len(whole)] == [one.architecture for one in whole]
    assert set(tried[len(whole) :]) == set(lost)


@pytest.mark.parametrize(("epochs", "asked"), [(12, [3, 6]), (6, [2, 4]), (4, [1, 2]), (2, [1])])
def test_rungs_are_at_a_quarter_and_a_half(epochs, asked):
    study = optuna.create_study(direction="maximize")
    trials = {number: study.ask() for number in range(3)}
    behind = Pruning("asha", epochs).judge(study, trials)
    for epoch in range(epochs):
        behind(0, epoch, 1.0)
        behind(1, epoch, 0.9)
    assert [epoch + 1 for epoch in range(epochs) if behind(2, epoch, 0.1)] == asked


def scores(number, epoch):
    """Of the network of a trial after an epoch; those of later trials are as often better as worse."""
    return (number * 7 % 24) / 24 + epoch / 100


def ends(study, behind, numbers):
    """After how many of 12 epochs the trials of a study end: ``behind`` (trial, epoch, score) ends one."""
    found = []
    for number in numbers:
        trial = study.ask()
        epochs = next((epoch + 1 for epoch in range(12) if behind(trial, epoch, scores(number, epoch))), 12)
        state = TrialState.COMPLETE if epochs == 12 else TrialState.PRUNED
        study.tell(trial, scores(number, 11) if epochs == 12 else None, state)
        found.append(epochs)
    return found


def judged(study, numbers):
    trials = {}
    judge = Pruning("hyperband", 12).judge(study, trials)

    def behind(trial, epoch, score):
        trials[trial.number] = trial
        return judge(trial.number, epoch, score)

    return ends(study, behind, numbers)


def by_optuna(study, numbers):
    def behind(trial, epoch, score):
        trial.report(score, epoch + 1)
        return epoch < 11 and trial.should_prune()

    return ends(study, behind, numbers)


def test_the_name_of_a_study_does_not_decide_which_networks_are_given_up():
    made = [optuna.create_study(study_name=name, direction="maximize") for name in ("one", "other", "third")]
    first, *others = ([*judged(study, range(10)), *judged(study, range(10, 24))] for study in made)
    assert others == [first, first]
    assert len(set(first)) > 2


def test_a_study_of_before_keeps_the_brackets_of_its_name():
    for name in ("one", "other", "third"):
        whole, study = (
            optuna.create_study(study_name=name, direction="maximize", pruner=PRUNERS["hyperband"](12))
            for _ in range(2)
        )
        assert [*by_optuna(study, range(2)), *judged(study, range(2, 24))] == by_optuna(whole, range(24))


@pytest.mark.parametrize(
    ("smaller_s", "behind"), [((), [False, True, False, True, False, True]), ((1e-3,), [False] * 6)]
)
def test_networks_of_a_front_compete_within_their_budget(smaller_s, behind):
    """Slow networks are better than all fast ones, and each one is better than the one before of its kind."""
    study = optuna.create_study(direction="maximize")
    trials = {number: study.ask() for number in range(6)}
    for number, trial in trials.items():
        trial.set_user_attr("predicted_s", 1e-3 if number % 2 else 3e-3)
    judge = Pruning("asha", 4, smaller_s).judge(study, trials)
    assert [judge(number, 0, number / 10 + (0 if number % 2 else 1)) for number in trials] == behind


def test_a_search_tells_its_pruner_of_the_budgets_of_a_front(make):
    request = SearchRequest(budget="3 ms, 7 ms", data="clips", pruner="asha")
    settings = replace(make("front").settings, smaller_budgets_ms=(3.0,))
    assert hwbench.api.search._pruning(request, settings) == Pruning("asha", 12, (3e-3,))
    assert hwbench.api.search._pruning(replace(request, pruner="none"), settings) is None


def test_a_pruner_asks_only_within_the_training():
    study = optuna.create_study(direction="maximize")
    trials = {0: study.ask(), 1: study.ask()}
    behind = Pruning("asha", 3).judge(study, trials)
    assert not any(behind(0, epoch, 1.0) for epoch in range(3))
    assert behind(1, 0, 0.5)
    assert not behind(1, 2, 0.5)  # what is done is not given up
    assert study.trials[0].intermediate_values == {1: 1.0, 2: 1.0, 3: 1.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "score,latency"}, "goes with --objective score"),
        ({"epochs": 1}, "expected at least --epochs 2, got 1"),
        ({"ray": "local"}, "not with --ray"),
    ],
)
def test_what_cannot_be_given_up_is_told(changes, message):
    with pytest.raises(InvalidValue, match=message):
        SearchRequest(**{"budget": "5ms", "evaluator": "curve", "pruner": "asha"} | changes)


def test_an_evaluator_without_reports_is_refused(workspace):
    with pytest.raises(InvalidValue, match="'fitted' tells no score before its end; take curve or short-train"):
        hwbench.search(SearchRequest(budget="4.2 ms", pruner="asha"), workspace=workspace)


@pytest.mark.slow
@pytest.mark.parametrize("evaluator", [pytest.param("curve", marks=pytest.mark.long), "short-train"])
def test_real_trainings_report_each_epoch(workspace, make_search, monkeypatch, evaluator):
    from hwbench.data import SyntheticSpec
    from hwbench.data.synthetic import prepare

    data = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    request = SearchRequest(
        budget="3.5 ms",
        evaluator=evaluator,
        pruner="asha",
        epochs=2,
        trials=3,
        finalists=0,
        measure=1,
        study="real",
        data=data,
        resolution_share=0.5,
    )
    result = hwbench.search(request, workspace=workspace)
    assert result.trials == 3 == len(result.history) + len(result.given_up)
    with open_study(
        workspace.studies / "real", result.settings, None, len(make_search().feasible.space.choices)
    ) as study:
        for trial in study.trials:
            steps = sorted(trial.intermediate_values)
            assert steps == list(range(1, len(steps) + 1))
            assert trial.values[0] == trial.intermediate_values[steps[-1]]
