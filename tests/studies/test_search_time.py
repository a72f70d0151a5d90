"""Searches that end in time: as many trainings as fit, with the race of the best ones after them."""

import math
from datetime import datetime, timedelta
from types import SimpleNamespace

import optuna
import pytest
from optuna.trial import TrialState

import hwbench
import hwbench.api.search
from hwbench import SearchRequest
from hwbench.api.study_data import StudyData
from hwbench.api.training_forecast import TrainingForecast, time_limit
from hwbench.errors import InvalidValue
from hwbench.reports import commands
from hwbench.reports.result import read_result
from hwbench.studies import time_limit as clocks
from hwbench.studies.course import SearchCourse
from hwbench.studies.journal import UNSCORED
from hwbench.studies.race import Race, RaceResult
from hwbench.studies.time_limit import TimeLimit, TrialClock, spent_s
from hwbench.studies.trials import SearchWatch
from hwbench.studies.worker_pool import Workers
from hwbench.testing.evaluations import Sleep
from hwbench.testing.listeners import Keeper

BEGAN = datetime(2026, 1, 1)
NONE = ("none",)


@pytest.fixture
def now(monkeypatch):
    """Seconds by the clock of a search; it stands still."""
    now = [0.0]
    monkeypatch.setattr(clocks, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def study(*spans, state=TrialState.COMPLETE, names=()):
    """A study with trials from and to these seconds."""
    made = optuna.create_study()
    for number, (start, end) in enumerate(spans):
        values = {"state": state, "user_attrs": {"architecture": names[number] if names else str(number)}}
        if state is TrialState.COMPLETE:
            values["value"] = 0.0
        trial = optuna.trial.create_trial(**values)
        trial.datetime_start, trial.datetime_complete = BEGAN + timedelta(0, start), BEGAN + timedelta(0, end)
        made.add_trial(trial)
    return made


def test_trials_that_overlap_take_their_time_once():
    assert spent_s(study((0, 10), (5, 12), (6, 8), (20, 21)).trials) == pytest.approx(13)
    assert spent_s([]) == 0


def test_the_course_of_parallel_trials_has_the_time_by_the_clock():
    waves = study(*((20 * wave, 20 * wave + 20) for wave in range(3) for _ in range(4)))
    course = SearchCourse.of(waves)
    assert (course.clock_s, course.seconds) == (60, 240)
    assert SearchCourse.from_json(course.to_json()) == course
    before = course.to_json()
    del before["clock_s"]
    assert SearchCourse.from_json(before).clock_s is None


@pytest.mark.parametrize(
    ("seconds", "race_trials", "fits"), [(30, 0, True), (29, 0, False), (30, 0.5, False), (35, 0.5, True)]
)
def test_a_network_is_begun_where_it_ends_in_time_and_the_race_after_it(now, seconds, race_trials, fits):
    clock = TrialClock(TimeLimit(seconds, race_trials), study((0, 12), (12, 20)))
    assert clock.has_room() is fits


def test_what_passes_counts_beside_the_trials_of_before(now):
    clock = TrialClock(TimeLimit(50), study((0, 10)))
    assert (clock.spent_s, clock.left_s) == (10, 40)
    now[0] = 30
    assert (clock.left_s, clock.has_room(), clock.fit(1)) == (10, True, 1)
    now[0] = 31
    assert (clock.left_s, clock.has_room(), clock.fit(1)) == (9, False, 0)


def test_a_study_without_a_trial_begins_one_however_short_the_time(now):
    clock = TrialClock(TimeLimit(1e-9), study())
    now[0] = 5
    assert clock.has_room()
    assert clock.fit(3) is None


def test_scores_that_were_known_say_nothing_of_how_long_a_training_takes(now):
    spans = [(0, 0), (0, 0), (0, 10), (10, 10)]
    made = study(*spans, names=["known", "also", "trained", "trained"])
    clock = TrialClock(TimeLimit(25), made, {"known", "also"})
    assert clock.fit(1) == 1
    assert TrialClock(TimeLimit(19), made, {"known", "also"}).has_room() is False


def test_networks_that_are_given_up_take_less_and_the_race_is_of_whole_trainings(now):
    made = study((0, 10))
    for trial in study((10, 12), (12, 14), (14, 16), state=TrialState.PRUNED, names=["a", "b", "c"]).trials:
        made.add_trial(trial)
    assert TrialClock(TimeLimit(16 + 4 + 10, 1), made).has_room()  # a mean trial of 4 s, and a race of 10 s
    assert not TrialClock(TimeLimit(16 + 4 + 9.9, 1), made).has_room()


def test_what_an_interruption_lost_is_free(now):
    lost = study((0, 1000), state=TrialState.FAIL)
    assert TrialClock(TimeLimit(10), lost).spent_s == 0
    for trial in lost.trials:
        trial.user_attrs[UNSCORED] = True
        lost.add_trial(trial)
    assert TrialClock(TimeLimit(10), lost).spent_s == 1000


def test_a_trial_during_which_the_clock_was_set_back_says_nothing_of_how_long_one_takes(now):
    made = study((0, 10), (10, -3580), (-3580, -3560))
    clock = TrialClock(TimeLimit(60), made)
    assert clock.spent_s == 30
    assert clock.fit(1) == 2  # of 15 s each
    assert not TrialClock(TimeLimit(44, 0), made).has_room()
    assert not TrialClock(TimeLimit(59, 1), made).has_room()
    assert TrialClock(TimeLimit(60, 1), made).has_room()
    course = SearchCourse.of(made)
    assert (course.seconds, course.clock_s, course.whole_s) == (30, 30, 15)


def test_a_study_whose_only_trial_had_the_clock_set_back_is_as_one_without_trials(now):
    made = study((0, -3590))
    clock = TrialClock(TimeLimit(10, 2), made)
    assert (clock.spent_s, clock.has_room(), clock.fit(3)) == (0, True, None)
    assert SearchCourse.of(made).whole_s is None


class Watch(SearchWatch):
    def __init__(self):
        self.totals, self.planned_with = [], []

    def planned(self, networks, clock=None):
        self.planned_with.append((networks, clock))

    def expected(self, trials):
        self.totals.append(trials)


@pytest.fixture
def timed(make_search):
    def make(seconds, workers=None, **changes):
        search = make_search(evaluator="short-train", budget_s=7e-3, sampler="random", **changes)
        search.trainer, search.workers, search.watch = Sleep(0.2), workers, Watch()
        search.time_limit = TimeLimit(seconds)
        return search

    return make


@pytest.mark.parametrize("workers", [None, 2])
def test_a_search_ends_in_time_and_with_more_time_goes_on(timed, workers):
    search = timed(0.9, workers and Workers(workers))
    first = search.run(trials=1000, measure=1)
    most = math.floor(0.9 / 0.2) * (workers or 1)  # a training takes its 0.2 s at least
    assert 1 <= first.trials <= most  # the start of workers takes its part
    assert search.watch.totals[-1] == first.trials
    (asked,) = search.watch.planned_with
    assert asked[0] == 1000
    assert asked[1] is not None
    again = timed(0.9, workers and Workers(workers))
    assert again.run(trials=1000, measure=1).history == first.history
    assert not again.watch.planned_with  # nothing is foretold, and no worker starts
    more = timed(3.0).run(trials=first.trials + 1, measure=1)
    # which of them is measured follows from the best, which may be the one more
    trained = [[(one.architecture, one.score) for one in result.history] for result in (first, more)]
    assert trained[1][: first.trials] == trained[0]
    assert more.trials == first.trials + 1


def test_a_search_has_no_more_trials_than_it_is_asked_for(timed):
    search = timed(600.0)
    assert search.run(trials=3, measure=1).trials == 3
    assert search.watch.totals[-1] == 3


def test_the_time_of_a_race_is_that_of_its_trainings(make_search):
    def limit(races=1, **options):
        request = SearchRequest(budget="5ms", **{"data": "clips", "time": "1 h"} | options)
        return time_limit(request, make_search().feasible, races=races)

    assert limit() == TimeLimit(3600, 2.0)  # two finalists of as many epochs
    assert limit(races=2, workers=2) == TimeLimit(3600, 2.0)
    assert limit(finalists=0) == TimeLimit(3600, 0.0)
    assert limit(finalists=8, trials=2) == limit()  # there are two networks to choose from
    assert limit(epochs=6) == TimeLimit(3600, 4.0)
    assert limit(resolution_share=0.5) == TimeLimit(3600, 8.0)
    assert limit(time=None) is None


@pytest.fixture
def forecast(make_search, workspace, monkeypatch):
    """How many trainings fit, of 120 s each, and what is told of them."""
    monkeypatch.setattr(StudyData, "epoch_s", lambda self, network, seed, threads=None: 10.0)
    monkeypatch.setattr(StudyData, "test_share", lambda self, network, seed: 0.0)

    def of(known=0, **options):
        request = SearchRequest(budget="5ms", **{"data": "clips", "time": "1h"} | options)
        data, keeper = StudyData(workspace, "clips", request.fidelity), Keeper()
        made = TrainingForecast.of(request, data, make_search().feasible, 8, races=1)
        fit = made.begin(request.time_s, known, keeper)
        assert made.tell(10_000, keeper) == fit  # it is told once
        return fit, keeper.lines

    return of


def test_it_is_told_how_many_trainings_fit(forecast):
    fit, (told,) = forecast()
    assert fit == 28  # the race takes 240 s of the hour
    assert told.startswith("28 trainings of 12 epochs take about 56 min 00 s, and the race of the best 2 at most 4 min")
    assert "; --time, --epochs and --finalists say how much is trained" in told
    fit, (told,) = forecast(workers=2, finalists=0)
    assert (fit, "take about 1 h 00 min" in told) == (60, True)
    fit, (told,) = forecast(trials=5)
    assert fit == 5
    assert told.startswith("5 trainings of 12 epochs take about 10 min 00 s")
    assert "; --trials, --epochs and --finalists say" in told


def test_few_trainings_are_told_to_be_few(forecast):
    fit, (_, hint) = forecast(time="30min")
    assert fit == 13
    assert hint.startswith(
        "13 trainings find little more than as many draws do: with another --study, --epochs 6 trains"
    )
    assert len(forecast(time="30min", known=3)[1]) == 1  # with those of before they are enough
    assert len(forecast(time="30min", epochs=1, finalist_epochs=1)[1]) == 1


def test_a_time_that_is_too_short_is_refused_with_one_that_is_not(forecast):
    with pytest.raises(InvalidValue) as refused:
        forecast(time="5 min")
    text = str(refused.value)
    assert text.startswith(
        "--time 5 min: a training takes about 2 min 00 s and the race of the best 2 at most 4 min 00 s;"
    )
    assert text.endswith("; give at least 6 min 36 s or --finalists 0")
    with pytest.raises(InvalidValue, match=r"give at least 6 min 36 s, or 2 min 12 s with --finalists 0$"):
        forecast(time="1 min")
    with pytest.raises(InvalidValue, match=r"give at least 2 min 12 s$"):
        forecast(time="1 min", finalists=0)
    assert forecast(time="6.6min")[0] == 1


def test_a_study_that_goes_on_is_foretold_by_its_own_trials(make_search, workspace, now, monkeypatch):
    monkeypatch.setattr(StudyData, "epoch_s", lambda *_, **__: pytest.fail("nothing is timed"))
    request, feasible, keeper = SearchRequest(budget="5ms", data="clips", time="100s"), make_search().feasible, Keeper()
    forecast = TrainingForecast.of(request, StudyData(workspace, "clips", request.fidelity), feasible, 8, races=1)
    assert forecast.tell(10_000, keeper, TrialClock(TimeLimit(100), study((0, 10)))) == 9
    assert keeper.lines == ["9 more trainings fit into what is left of --time 100s, by those of before"]


def test_the_time_goes_with_trainings_and_is_a_duration(workspace, make_search, monkeypatch):
    with pytest.raises(InvalidValue, match="--time: '90' has no unit; write for example \"90min\""):
        SearchRequest(budget="5ms", data="clips", time="90")
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)
    with pytest.raises(InvalidValue, match="--time: evaluator 'fitted' trains nothing; leave it out"):
        hwbench.search(SearchRequest(budget="4.2ms", time="1h"), workspace=workspace)


def train_telling_epochs(self, network, seed, report):
    """A training of 0.05 s that is tested after each of its epochs."""
    for epoch in range(self.fidelity.epochs):
        score = Sleep(0.05 / self.fidelity.epochs)(network, seed)
        report(epoch, score)
    return score


@pytest.fixture
def search(workspace, make_search, monkeypatch):
    """``hwbench.search`` with trainings of 0.05 s, as is foretold."""
    monkeypatch.setattr(StudyData, "top1", lambda self, network, seed: Sleep(0.05)(network, seed))
    monkeypatch.setattr(StudyData, "tested", train_telling_epochs)
    monkeypatch.setattr(StudyData, "epoch_s", lambda self, network, seed, threads=None: 0.05 / self.fidelity.epochs)
    monkeypatch.setattr(StudyData, "test_share", lambda self, network, seed: 0.0)
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)

    def search(keeper=None, **options):
        request = SearchRequest(**{"budget": "4.2 ms", "data": "synthetic", "time": "1 s", "finalists": 0} | options)
        return hwbench.search(request, keeper or Keeper(), workspace=workspace)

    return search


def test_a_search_with_data_trains_what_fits(search):
    """The whole of it: the progress knows how many trials there will be, and the command ends."""
    keeper = Keeper()
    result = search(keeper)
    assert 1 <= result.trials <= 20
    trials = [at for at in keeper.stages if at.stage == "trials"]
    assert (trials[0].done, trials[-1].done, trials[-1].total) == (0, result.trials, result.trials)
    assert all(at.done <= at.total <= 21 for at in trials)
    assert all(at.done < at.total for at in trials[:-1])  # a full bar is the last
    (told,) = [line for line in keeper.lines if "trainings of 12 epochs" in line]
    assert told.startswith("20 trainings of 12 epochs take about 1 s")
    again = Keeper()
    assert search(again).history == result.history
    assert not [line for line in again.lines if "trainings" in line]


def test_what_is_refused_leaves_no_study(search, workspace):
    with pytest.raises(InvalidValue, match="--time 10ms: a training takes about 50 ms"):
        search(time="10ms")
    assert not list(workspace.studies.glob("*"))
    assert search(epochs=2, trials=2).trials == 2


@pytest.mark.parametrize("kept", ["journal", "sqlite"])
def test_a_study_whose_first_training_was_interrupted_is_foretold_as_one_that_begins(
    search, workspace, monkeypatch, kept
):
    storage = None if kept == "journal" else f"sqlite:///{workspace.root / 'studies.db'}"
    options = {"study": "stopped", "learn_from": NONE, "storage": storage}

    def interrupt(self, network, seed):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StudyData, "top1", interrupt)
        with pytest.raises(KeyboardInterrupt):
            search(**options)
    with pytest.raises(InvalidValue, match="--time 10ms: a training takes about 50 ms; give at least 55 ms"):
        search(time="10ms", **options)
    keeper = Keeper()
    result = search(keeper, time="400ms", **options)
    (forecast,) = [line for line in keeper.lines if "trainings of 12 epochs" in line]
    assert forecast.startswith("8 trainings of 12 epochs take about 400 ms")
    assert result.course.startup == 4
    again = Keeper()
    search(again, time="2s", **options)
    assert [line for line in again.lines if "what is left of --time 2s, by those of before" in line]


def test_a_study_whose_folder_was_renamed_goes_on_in_time(search, workspace):
    first = search(study="before", learn_from=NONE, time=None, trials=2)
    (workspace.studies / "before").rename(workspace.studies / "after")
    keeper = Keeper()
    result = search(keeper, study="after", learn_from=NONE, time="1h", trials=3)
    assert [line for line in keeper.lines if "what is left of --time 1h, by those of before" in line]
    assert result.trials == 3
    assert {one.architecture for one in result.history} > {one.architecture for one in first.history}


def test_half_of_what_fits_is_drawn_and_the_command_of_the_report_draws_as_many(search, workspace):
    first = search(
        time="400ms", study="first", learn_from=NONE
    )  # eight fit by the forecast, fewer where the machine is busy
    assert first.course.startup == 4
    assert first.course.draws == tuple(range(min(4, first.trials)))
    command = commands.search(read_result(workspace, "first"))
    assert f"--trials {first.trials} " in command
    assert " --startup 4 " in command
    assert " --learn-from none " in command
    second = search(time=None, trials=first.trials, startup=4, study="second", learn_from=NONE)
    assert [one.architecture for one in second.history] == [one.architecture for one in first.history]
    longer = search(time=None, trials=first.trials + 1, study="second")
    assert longer.course.startup == 4  # a study keeps its draws
    with pytest.raises(InvalidValue, match="--startup: sampler 'random' draws all networks"):
        search(startup=3, sampler="random")


def test_the_race_of_an_evaluator_that_does_not_say_how_it_trains_comes_on_top(search, monkeypatch):
    keeper = Keeper()
    monkeypatch.setattr(Race, "run", lambda self, networks: RaceResult("synthetic", "fp32", 8, (), networks[0]))
    result = search(keeper, evaluator="deep-and-slow", data=None, finalists=2, trials=3)
    assert result.trials == 3
    assert "the race comes on top of --time: how long evaluator 'deep-and-slow' trains is not known" in keeper.lines


def test_nothing_is_foretold_where_every_network_has_been_tried(search):
    budget = {"budget": "3.05ms", "time": None, "trials": 24}
    first, again = search(**budget), Keeper()
    assert first.trials == first.feasible < 24
    search(again, **budget)
    assert not [line for line in again.lines if "trainings" in line]


def test_known_trainings_count_in_the_progress(search):
    search(study="known", time=None, trials=8)
    keeper = Keeper()
    search(keeper, study="more", time=None, trials=10, learn_from=("known",))
    trials = [at for at in keeper.stages if at.stage == "trials"]
    assert {at.total for at in trials} == {10}


def test_a_study_keeps_its_pruner_whatever_else_is_typed(search):
    search(study="pruned", pruner="asha", time=None, trials=3, epochs=4)
    again = search(study="pruned", time=None, trials=4, epochs=4, evaluator="short-train")
    assert again.settings.pruner == "asha"
    with pytest.raises(InvalidValue, match="pruner was 'asha', now 'none'"):
        search(study="pruned", time=None, trials=5, pruner="none")
