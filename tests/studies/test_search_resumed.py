"""Studies that go on: with more trials, with newer rows of a table, after an interruption, over networks alike."""

import itertools
import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import optuna
import pytest
from optuna.study import Study
from optuna.trial import Trial, TrialState

from hwbench.api.study_data import Fidelity, StudyData
from hwbench.api.study_supernet import StudySupernet
from hwbench.errors import OverBudget
from hwbench.latency import AdditivePredictor
from hwbench.reports.result import read_result
from hwbench.spaces import load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, Precision
from hwbench.studies.dashboard import opened_for_reading
from hwbench.studies.evaluators.base import evaluators
from hwbench.studies.journal import open_study
from hwbench.studies.latencies import choices_digest, feasible_set, row_positions
from hwbench.studies.pruning import PRUNERS, Pruning
from hwbench.studies.sampler import FeasibleSampler
from hwbench.studies.storage import StudyStorage
from hwbench.studies.study import Search
from hwbench.studies.trials import SearchWatch, Trials
from hwbench.testing.tables import space_table
from hwbench.workspace import Workspace

EPOCHS = 9
INT8 = Precision.INT8


@evaluators.register("some-unknown")
class SomeUnknown:
    """As ``deep-and-slow``, but every fourth network or so has no score; counts its calls."""

    name = "some-unknown"
    unit = "blocks"
    calls: list[str] = []

    def __init__(self, context) -> None:
        pass

    def score(self, network):
        self.calls.append(network.name)
        if sum(map(ord, network.name)) % 4 == 0:
            return math.nan
        return len(network.blocks) + 1e-3 * sum(block.out_channels or 0 for block in network.blocks)


class Watch(SearchWatch):
    def __init__(self):
        self.seen, self.lost = [], []

    def exhausted(self, networks):
        self.seen.append(networks)

    def unpredicted(self, networks):
        self.lost.append(networks)


@pytest.fixture
def slower(space, predictor):
    """The networks within a budget by rows that take longer by a factor."""

    def make(search, factor) -> FeasibleSet:
        position = row_positions(space)

        def seconds(block, x):
            return factor * predictor.row_cost(space.part(block, x, INT8), position(block, x))

        sums = SpaceSums.of(space, seconds, num_classes=8, constant=predictor.constant_s)
        return FeasibleSet(sums, search.settings.budget_s)

    return make


class Stop(SearchWatch):
    """Ends a search as Ctrl-C does, before so many networks of it have their score."""

    def __init__(self, evaluations):
        self.left = evaluations

    def evaluated(self, candidate):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def small(make_search, name="few", **changes) -> Search:
    """A study of a set of some ten networks."""
    return make_search(name, budget_s=3.5e-3, sampler="thompson", **changes)


@pytest.mark.parametrize("lost_is_best", [False, True])
def test_a_network_whose_row_is_gone_is_left_out_and_told_of(make_search, space, lost_is_best):
    changes = {"evaluator": "deep-and-slow", "sampler": "thompson"}
    first = make_search(**changes)
    history = first.run(trials=12, measure=1).history
    uses: dict[object, set[str]] = {}
    for one in history:
        for part in first.workload(one.architecture).parts():
            uses.setdefault(part, set()).add(one.architecture)
    best = max(history, key=lambda one: one.score).architecture
    few = sorted(uses.items(), key=lambda item: len(item[1]))
    part, networks = next(item for item in few if (best in item[1]) == lost_is_best)
    less = AdditivePredictor.fit(space_table(space, INT8).without([part]), space=space.name)
    again = make_search(**changes)
    again.feasible, again.watch = feasible_set(space, less, again.settings), Watch()
    result = again.run(trials=13, measure=1)
    assert again.watch.lost == [len(networks)]
    assert not networks & {one.architecture for one in (*result.history, *result.measured, result.best)}
    assert len(result.history) == 13 - len(networks)


def test_of_networks_with_one_workload_the_better_is_measured_as_well(make_search, workspace):
    text = (workspace.root / "search_spaces" / "x3d-tiny.toml").read_text()
    text = text.replace('"x3d-tiny"', '"spanned"').replace("[input]", "[input]\nspan_s = [1, 2]")
    (workspace.root / "search_spaces" / "spanned.toml").write_text(text)
    space = load_space(workspace, "spanned")
    predictor = AdditivePredictor.fit(space_table(space, INT8), space=space.name)
    search = make_search("spans", evaluator="prefers-two-seconds", sampler="thompson")
    settings = replace(search.settings, space=space.name, choices=choices_digest(space))
    spanned = replace(search, settings=settings, feasible=feasible_set(space, predictor, settings))
    result = spanned.run(trials=40, measure=3)
    ranked = sorted(result.history, key=lambda one: -one.score)
    first = next(one for one in ranked if one.measured_s is not None and one.measured_s <= settings.budget_s)
    assert result.best.architecture == first.architecture
    assert not [one for one in result.measured if "did not report" in one.failure]
    pairs = {one.architecture.replace("span_s=1", "span_s=2") for one in result.measured}
    assert len(pairs) < len(result.measured)  # there were two of one workload


@evaluators.register("prefers-two-seconds")
class PrefersTwoSeconds:
    name = "prefers-two-seconds"
    unit = "blocks"

    def __init__(self, context) -> None:
        pass

    def score(self, network):
        placed = sum(block.key.count("3x1x1") * (place + 1) ** 2 for place, block in enumerate(network.blocks))
        return len(network.blocks) + 1e-4 * placed + 1e-7 * (network.span_s or 0)


def test_scores_stay_relative_to_the_networks_of_the_beginning(make_search, slower, monkeypatch):
    drawn = []

    @evaluators.register("relative")
    class Relative:
        name = "relative"
        unit = "blocks"

        def __init__(self, context) -> None:
            drawn.append([one.name for one in context.reference(12)])

        def score(self, network):
            return float(len(network.blocks))

    make_search(evaluator="relative").run(trials=3, measure=1)
    again = make_search(evaluator="relative")
    again.feasible = slower(again, 1.02)
    again.run(trials=6, measure=1)
    other = make_search("other", evaluator="relative")
    other.feasible = slower(other, 1.02)
    other.run(trials=1, measure=1)
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 12


def test_a_supernet_stays_that_of_the_beginning(workspace, make_search, slower, monkeypatch):
    videos = SimpleNamespace(root=workspace.root / "clips", identity="some videos")
    clips = SimpleNamespace(videos=videos, classes=("a",) * 8, clip="4 frames", transform="none")
    monkeypatch.setattr(StudySupernet, "_training", clips)
    first, data = make_search().feasible, StudyData(workspace, "clips", Fidelity(1))
    begun, newer = StudySupernet(workspace, data, first, 30, 0), slower(make_search(), 1.02)
    assert StudySupernet(workspace, data, newer, 30, 0).folder != begun.folder
    assert StudySupernet(workspace, data, newer, 30, 0, begun=begun.networks).folder == begun.folder
    assert StudySupernet(workspace, data, newer, 20, 0, begun=begun.networks).folder != begun.folder


def test_networks_that_are_beyond_the_budget_by_now_do_not_count_as_seen(make_search, slower):
    first = small(make_search, evaluator="deep-and-slow")
    before = int(first.feasible.count)
    first.run(trials=before // 2, measure=1)
    again = small(make_search, evaluator="deep-and-slow")
    again.feasible, again.watch = slower(again, 1.03), Watch()
    within = int(again.feasible.count)
    assert 3 < within < before
    result = again.run(trials=3 * before, measure=1)
    scored = {one.architecture for one in result.history}
    assert sum(Architecture.parse(key) in again.feasible for key in scored) == within
    assert again.watch.seen == [within]


def test_where_newer_rows_put_all_networks_beyond_the_budget_those_that_may_fit_are_measured(make_search, slower):
    first = make_search(sampler="thompson").run(trials=1, measure=1)
    again = make_search(sampler="thompson")
    again.feasible = slower(again, 1.004)
    result = again.run(trials=1, measure=1)
    assert all(one.predicted_s > again.settings.budget_s for one in result.history)
    assert result.best.measured_s <= again.settings.budget_s
    assert result.best.architecture == first.best.architecture


def test_where_newer_rows_put_all_networks_far_beyond_the_budget_the_nearest_is_named(make_search, slower):
    make_search(sampler="thompson").run(trials=1, measure=1)
    again = make_search(sampler="thompson")
    again.feasible = slower(again, 1.15)
    words = (
        r"1 network with a score, none of which .*predicted too far beyond 4.2 ms to be measured: 1, .* takes 4.8\d ms;"
    )
    with pytest.raises(OverBudget, match=words):
        again.run(trials=1, measure=1)


def test_where_all_networks_have_a_row_that_is_gone_the_table_is_named(make_search, space):
    first = make_search(sampler="thompson").run(trials=1, measure=1)
    again = make_search(sampler="thompson")
    parts = list(again.workload(first.best.architecture).parts())
    less = AdditivePredictor.fit(space_table(space, INT8).without(parts[1:2]), space=space.name)
    again.feasible, again.watch = feasible_set(space, less, again.settings), Watch()
    words = "with a block that the table lacks by now: 1; measure the rows: hwbench profile --device local"
    with pytest.raises(OverBudget, match=words):
        again.run(trials=1, measure=1)
    assert again.watch.lost == [1]


def test_the_best_of_before_is_within_the_budget_of_today(make_search, slower):
    class Begun(SearchWatch):
        def started(self, trials, finished, best):
            self.best = best

    first = make_search(evaluator="deep-and-slow").run(trials=12, measure=1)
    scores = {Architecture.parse(one.architecture): one.score for one in first.history}
    for factor in (1.0, 1.1):
        again = make_search(evaluator="deep-and-slow")
        again.feasible, again.watch = slower(again, factor), Begun()
        again.run(trials=12, measure=1)
        assert again.watch.best == max(score for network, score in scores.items() if network in again.feasible)
        assert (again.watch.best < max(scores.values())) == (factor > 1)


def test_networks_that_were_given_up_and_are_beyond_the_budget_by_now_are_marked(make_search, slower):
    def search():
        search = make_search("rungs", evaluator="curve", budget_s=4.2e-3, pruner="asha", sampler="random")
        search.losses, search.pruning = Falling(None), Pruning("asha", EPOCHS)
        return search

    first, again = search().run(trials=24, measure=1), search()
    again.feasible = slower(again, 1.1)
    result = again.run(trials=24, measure=1)
    keys = [Architecture.parse(one.candidate.architecture) for one in result.given_up]
    assert [one.beyond for one in result.given_up] == [key not in again.feasible for key in keys]
    assert {one.beyond for one in result.given_up} == {False, True}
    assert not any(one.beyond for one in first.given_up)
    kept = tuple(one.candidate.trial for one in result.given_up if not one.beyond)
    assert read_result(again.workspace, "rungs").given_up_trials == kept


def within(search, candidate):
    return Architecture.parse(candidate.architecture) in search.feasible


@pytest.mark.parametrize("newer", ["slower", "without a row"])
def test_an_interrupted_network_that_is_beyond_the_budget_by_now_is_not_tried(make_search, space, slower, newer):
    def search(name):
        return replace(small(make_search, name, evaluator="deep-and-slow"), startup=5)

    whole, again = search("whole").run(trials=8, measure=1).history, search("stopped")
    if newer == "slower":
        again.feasible = slower(again, 1.03)
    else:
        parts = Counter(part for one in whole for part in again.workload(one.architecture).parts())
        less = space_table(space, INT8).without([min(parts, key=parts.__getitem__)])
        again.feasible = feasible_set(space, AdditivePredictor.fit(less, space=space.name), again.settings)
    lost = next(place for place, one in enumerate(whole) if not within(again, one))
    with pytest.raises(KeyboardInterrupt):
        replace(search("stopped"), watch=Stop(lost + 1)).run(trials=8, measure=1)
    result = again.run(trials=lost + 2, measure=1)
    assert all(within(again, one) for one in result.history[lost:])
    search("twin").run(trials=lost, measure=1)
    twin = replace(again, name="twin").run(trials=lost + 2, measure=1)  # had not begun that network
    assert result.trials == lost + 2
    assert result.history == tuple(replace(one, trial=one.trial + (one.trial >= lost)) for one in twin.history)


def test_queued_networks_that_are_beyond_the_budget_by_now_wait_for_a_table_that_has_them_within(optima, slower):
    first = replace(optima(), name="first").run(trials=4, measure=1).history
    with pytest.raises(KeyboardInterrupt):
        replace(optima(), watch=Stop(2)).run(trials=4, measure=1)
    again = optima()
    again.feasible = slower(again, 1.3)
    result = again.run(trials=4, measure=1)
    assert [within(again, one) for one in result.history] == [False, True, True, True]
    assert TrialState.WAITING not in [trial.state for trial in stored_trials(again)]
    result = optima().run(trials=8, measure=1)
    assert {one.architecture for one in first} <= {one.architecture for one in result.history}


def test_what_has_no_score_is_not_tried_again(make_search):
    SomeUnknown.calls.clear()
    whole = small(make_search, evaluator="some-unknown")
    trials = int(whole.feasible.count) + 20
    first = whole.run(trials=trials, measure=1)
    assert 0 < len(first.history) < len(SomeUnknown.calls) == int(whole.feasible.count)
    SomeUnknown.calls.clear()
    again = small(make_search, evaluator="some-unknown").run(trials=trials, measure=1)
    assert (again.trials, SomeUnknown.calls) == (first.trials, [])
    assert again.history == first.history


def test_proposals_are_no_draws_however_many_trials_follow(make_search):
    def run(trials, stop=None):
        class Stop(SearchWatch):
            def evaluated(self, candidate):
                if candidate.trial == stop:
                    raise KeyboardInterrupt

        search = make_search(evaluator="deep-and-slow", sampler="thompson")
        search.watch = Stop()
        return search.run(trials=trials, measure=1)

    assert run(6).course.draws == (0, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        run(24, stop=8)
    assert set(run(24).course.draws) == {0, 1, 2, 6, 7, 9, 10, 11, 12}  # 8 was drawn, and is repeated as 9
    search = make_search(evaluator="deep-and-slow", sampler="thompson")
    tried = {one.architecture for one in run(24).history}
    space, rng = search.feasible.space, np.random.default_rng(0)
    queue(search, next(space.params(one) for _ in range(99) if (one := search.feasible.draw(rng)).key not in tried))
    with pytest.raises(KeyboardInterrupt):
        run(25, stop=25)
    again = run(25)
    assert (again.trials, again.history[-1].trial, 26 in again.course.draws) == (25, 26, False)  # queued by hand, as 25


def test_a_study_of_before_keeps_the_draws_that_it_told_by_their_places(make_search):
    def search():
        return replace(make_search(evaluator="deep-and-slow", sampler="thompson"), startup=0)

    search().run(trials=2, measure=1)
    folder, num_choices = search().workspace.studies / "mine", len(search().feasible.space.choices)
    with open_study(folder, search().settings, None, num_choices) as study:
        study.set_user_attr("drawn", [[0, 4]])  # it was interrupted among its draws
    for trials in (6, 8):
        assert search().run(trials=trials, measure=1).course.draws == (0, 1)


@pytest.fixture(params=["journal", "sqlite"])
def optima(request, make_search, tmp_path):
    """Makes a search that begins with four optima; the first one has the best score."""

    def make():
        search = make_search("optima", sampler="random", budget_s=7e-3)
        if request.param == "sqlite":
            search.storage = StudyStorage.parse(f"sqlite:///{tmp_path / 'studies.db'}")
        return search

    return make


# What is under way when a search ends (a network is queued, a trial begins, choices are made), and whether the process
# is killed.
MOMENTS = [
    (Study, "enqueue_trial", 3, False),
    (FeasibleSampler, "before_trial", 1, False),
    (Trial, "suggest_categorical", 5, False),
    (Trial, "suggest_categorical", 5, True),
]


@pytest.mark.parametrize(("owner", "method", "call", "killed"), MOMENTS)
def test_a_queued_network_survives_whatever_ends_the_search(
    optima, make_search, monkeypatch, owner, method, call, killed
):
    whole = make_search("whole", sampler="random", budget_s=7e-3).run(trials=4, measure=1)
    calls = itertools.count(1)
    original = getattr(owner, method)

    def interrupted(*arguments, **named):
        if next(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, interrupted)
        if killed:
            patch.setattr(Trials, "_abandon", lambda self: None)
        with pytest.raises(KeyboardInterrupt):
            optima().run(trials=4, measure=1)
    assert (TrialState.RUNNING in [trial.state for trial in stored_trials(optima())]) == killed
    result = optima().run(trials=4, measure=1)
    assert result.best.score == whole.best.score == max(one.score for one in whole.history)
    assert {one.architecture for one in result.history} == {one.architecture for one in whole.history}


@pytest.mark.parametrize("ended", [(1,), (2,), (1, 2, 2)])
def test_an_interrupted_study_tries_what_it_would_have_in_the_same_order(optima, make_search, ended):
    def thompson(search, evaluation=0):
        return replace(search, settings=replace(search.settings, sampler="thompson"), watch=Stop(evaluation))

    whole = thompson(make_search("whole", budget_s=7e-3)).run(trials=12, measure=1)
    for evaluation in ended:
        with pytest.raises(KeyboardInterrupt):
            thompson(optima(), evaluation).run(trials=12, measure=1)
    result = thompson(optima()).run(trials=12, measure=1)
    assert [one.architecture for one in result.history] == [one.architecture for one in whole.history]
    queued = [trial for trial in stored_trials(optima()) if "fixed_params" in trial.system_attrs]
    assert sum(trial.state is TrialState.COMPLETE for trial in queued) == 6
    assert all(trial.datetime_start for trial in queued)


@pytest.mark.parametrize("ended", [(4,), (4, 12, 2)])
def test_a_network_that_is_repeated_is_of_the_generation_that_it_was_of(make_search, ended):
    def search(name, evaluation=0):
        return replace(make_search(name, evaluator="deep-and-slow", sampler="nsga2"), watch=Stop(evaluation))

    whole = search("whole").run(trials=26, measure=1)  # a generation has 20
    for evaluation in ended:
        with pytest.raises(KeyboardInterrupt):
            search("stopped", evaluation).run(trials=26, measure=1)
    result = search("stopped").run(trials=26, measure=1)
    assert [one.architecture for one in result.history] == [one.architecture for one in whole.history]


def test_a_study_of_before_does_not_get_its_first_networks_again(optima):
    search = optima()
    search.run(trials=2, measure=1)
    folder, num_choices = search.workspace.studies / "optima", len(search.feasible.space.choices)
    with open_study(folder, search.settings, None, num_choices, search.storage) as study:
        assert len(study.user_attrs["first_networks"]) == 6
        study.set_user_attr("first_networks", None)
    result = optima().run(trials=4, measure=1)
    assert len({one.architecture for one in result.history}) == 4
    assert [trial.number for trial in stored_trials(optima()) if "fixed_params" in trial.system_attrs] == [0, 1]


@pytest.mark.parametrize("cut", [False, True], ids=["kept whole", "kept as earlier versions did"])
def test_a_study_begun_with_one_trial_gets_the_optima_of_its_other_budgets(make_search, cut):
    def front(name, trials):
        search = make_search(name, budget_s=7e-3, smaller_s=(3.5e-3, 4.2e-3), sampler="thompson")
        return search, search.run(trials=trials, measure=1)

    search, _ = front("grown", 1)
    if cut:
        folder, num_choices = search.workspace.studies / "grown", len(search.feasible.space.choices)
        with open_study(folder, search.settings, None, num_choices) as study:
            study.set_user_attr("first_networks", study.user_attrs["first_networks"][:1])
    for trials in (2, 6):
        search, grown = front("grown", trials)
        queued = [trial.number for trial in stored_trials(search) if "fixed_params" in trial.system_attrs]
        assert (grown.trials, queued) == (trials, list(range(min(trials, 3))))
    _, whole = front("whole", 6)
    assert [point.best.architecture for point in grown.front] == [point.best.architecture for point in whole.front]


def test_a_study_that_goes_on_with_newer_rows_tries_the_optima_of_today(optima, make_search, slower):
    def today(search):
        return replace(search, feasible=slower(search, 1.3))

    begun = optima().run(trials=1, measure=1).history
    grown = [today(optima()).run(trials=trials, measure=1).history for trials in (2, 6)][-1]
    fresh = today(replace(optima(), name="fresh")).run(trials=5, measure=1).history
    assert grown[0].architecture == begun[0].architecture
    assert [one.architecture for one in grown[1:]] == [one.architecture for one in fresh]
    assert grown[1].score == max(one.score for one in fresh)


def queue(search, *several):
    """Queues trials as a user does with Optuna."""
    folder, num_choices = search.workspace.studies / search.name, len(search.feasible.space.choices)
    with open_study(folder, search.settings, None, num_choices, search.storage) as study:
        for choices in several:
            study.enqueue_trial(choices)


def test_a_trial_that_is_queued_with_some_of_its_choices_is_completed_and_run_once(optima):
    begun = optima()
    begun.run(trials=2, measure=1)
    queue(begun, {"s1.depth": "2"}, {"s1.depth": "3"})
    with pytest.raises(KeyboardInterrupt):  # the second one waits, and is queued again behind the first
        replace(optima(), watch=Stop(1)).run(trials=4, measure=1)
    for trials in (4, 5, 6):
        result = optima().run(trials=trials, measure=1)
        assert [one.architecture.split("s1.depth=")[1][0] for one in result.history[2:4]] == ["2", "3"]
        assert all(within(optima(), one) for one in result.history)
        assert len({one.architecture for one in result.history}) == result.trials == trials
    asked = [trial.system_attrs.get("fixed_params") for trial in stored_trials(optima()) if trial.state.is_finished()]
    assert asked.count({"s1.depth": "3"}) == 2  # the one that waited, and its copy


@pytest.mark.parametrize("choices", [{"s1.depth": "77"}, {"s1.depth": 2}, {}], ids=["not offered", "no text", "all"])
def test_a_trial_that_is_queued_with_a_value_that_its_choice_does_not_have_is_closed(make_search, choices):
    def search():
        return make_search(evaluator="deep-and-slow", sampler="thompson")

    begun = search()
    network = Architecture.parse(begun.run(trials=2, measure=1).history[0].architecture)
    queue(begun, choices or begun.feasible.space.params(network) | {"s1.depth": 2})
    for trials in (3, 4):
        assert search().run(trials=trials, measure=1).trials == trials
    states = [trial.state for trial in stored_trials(search())]
    assert states == [TrialState.COMPLETE] * 2 + [TrialState.FAIL] + [TrialState.COMPLETE] * 2


def stored_trials(search):
    """The trials as they are stored; nothing is written."""
    folder = search.workspace.studies / search.name
    with opened_for_reading(folder, search.storage) as storage:
        return optuna.load_study(study_name=search.name, storage=storage).trials


class Falling:
    """Losses that fall the faster the better a network is; ends in the middle of everything where it is told to."""

    def __init__(self, stop):
        self.epochs, self.stop = 0, stop

    def __call__(self, network, seed, report):
        worth = len(network.blocks) / 20 / EPOCHS
        for epoch in range(EPOCHS):
            self.epochs += 1
            if self.epochs == self.stop:
                raise KeyboardInterrupt
            report(epoch, 4.0 - worth * (1 + epoch) - 1e-4 * (sum(map(ord, network.name)) % 97))


@pytest.mark.parametrize("pruner", PRUNERS)
@pytest.mark.parametrize("sampler", [pytest.param("thompson", marks=pytest.mark.long), "random"])
def test_a_network_does_not_compete_with_itself(make_search, pruner, sampler, tmp_path):
    def run(folder, stop=None):
        search = make_search("rungs", evaluator="curve", budget_s=7e-3, pruner=pruner, sampler=sampler)
        search.workspace = Workspace.create(tmp_path / folder)
        search.losses, search.pruning = Falling(stop), Pruning(pruner, EPOCHS)
        result = search.run(trials=24, measure=1)
        ends = {one.architecture: one.score for one in result.history}
        return ends | {one.candidate.architecture: one.epochs for one in result.given_up}

    whole = run("whole")
    for stop in (12, 23, 34, 45):
        with pytest.raises(KeyboardInterrupt):
            run(f"from-{stop}", stop)
        assert run(f"from-{stop}") == whole
