"""What a search does that is not told how to score: by its data, and by the study that it goes on with."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import hwbench
import hwbench.api.search
from hwbench import Listener, SearchRequest
from hwbench.api.finalists import begun_race
from hwbench.api.score_plan import ScorePlan, going_on
from hwbench.api.study_data import Fidelity, StudyData, _StepWatch, _TimedEnough
from hwbench.api.training_forecast import TrainingForecast, race_epochs
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import HwbenchError, InfeasibleBudget, InvalidValue, UnknownName
from hwbench.reports import commands
from hwbench.reports.race_advice import race_advice
from hwbench.reports.result import read_result
from hwbench.spaces.begun import ASKED
from hwbench.spaces.begun import going_on as going_on_with
from hwbench.studies.left_out import LeftOut
from hwbench.studies.race import Race, RaceResult, RaceRound
from hwbench.studies.storage import StudyStorage
from hwbench.studies.stored_settings import JOURNAL, stored_settings
from hwbench.testing.listeners import Keeper
from hwbench.training.description import RUN, RunDescription, write_description

SHORT = {"trials": 3, "finalists": 0}
NO_OTHER = "no other network is within the budget, so there is no race; a larger --budget has more"


@pytest.fixture
def trained(monkeypatch):
    """Networks that are trained, none of them really: an epoch takes ten seconds, and as many clips are tested."""
    names = []

    def top1(self, network, seed):
        names.append(network.name)
        return len(network.blocks) / 40

    monkeypatch.setattr(StudyData, "top1", top1)
    monkeypatch.setattr(StudyData, "epoch_s", lambda self, network, seed, threads=None: 10.0)
    monkeypatch.setattr(StudyData, "test_share", lambda self, network, seed: 1.0)
    return names


@pytest.fixture
def search(workspace, make_search, monkeypatch, trained):
    """``hwbench.search`` on the simulated device."""
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: make_search().measure)

    def search(listener=None, **options):
        request = SearchRequest(**{"budget": "4.2 ms"} | options)
        return hwbench.search(request, listener or Listener(), workspace=workspace)

    return search


@pytest.mark.parametrize(
    ("asked", "plan"),
    [
        ({}, ScorePlan("entropy", "synthetic", 64, 12, 0)),
        ({"data": "clips"}, ScorePlan("short-train", "clips", 24, 12, 2)),
        ({"data": "synthetic"}, ScorePlan("short-train", "synthetic", 24, 12, 2)),
        ({"data": "clips", "evaluator": "entropy"}, ScorePlan("entropy", "clips", 64, 12, 0)),
        ({"evaluator": "curve"}, ScorePlan("curve", "synthetic", 24, 12, 2)),
        ({"evaluator": "zero-cost"}, ScorePlan("zero-cost", "synthetic", 64, 12, 0)),
        (
            {"data": "clips", "trials": 5, "epochs": 2, "finalists": 0},
            ScorePlan("short-train", "clips", 5, 2, 0),
        ),
        ({"data": "clips", "epochs": 1}, ScorePlan("short-train", "clips", 24, 1, 2)),
        ({"data": "clips", "ray": "local"}, ScorePlan("short-train", "clips", 24, 12, 2)),
        ({"data": "clips", "objective": "score,latency"}, ScorePlan("short-train", "clips", 24, 12, 2)),
        ({"data": "clips", "pruner": "asha"}, ScorePlan("short-train", "clips", 24, 12, 2, "asha")),
        ({"data": "clips", "time": "1h"}, ScorePlan("short-train", "clips", 10_000, 12, 2)),
        ({"data": "clips", "time": "1h", "trials": 30}, ScorePlan("short-train", "clips", 30, 12, 2)),
    ],
)
def test_what_is_left_open_follows_from_the_data_and_the_evaluator(asked, plan):
    assert SearchRequest(budget="5ms", **asked).plan == plan


def test_with_data_networks_are_trained_and_it_is_told_how_long_before(search, trained):
    keeper = Keeper()
    result = search(keeper, data="synthetic", **SHORT)
    assert result.study == "x3d-tiny_local_int8_4.2ms_short-train"
    assert (result.settings.evaluator, result.settings.data, result.settings.effort) == (
        "short-train",
        "synthetic",
        "12 epochs",
    )
    assert len(trained) == 3
    told = [line for line in keeper.lines if line.startswith("3 trainings of 12 epochs take about 6 min 10 s")]
    assert len(told) == 1  # 3 times 12 epochs of 10 s and a test of a third
    assert "race" not in told[0]
    keeper = Keeper()
    search(keeper, data="synthetic", **SHORT)
    assert not [line for line in keeper.lines if "trainings of" in line]  # nothing is left to train


@pytest.fixture
def bare(workspace, monkeypatch):
    """The space of these tests without the trainings that come with it."""
    monkeypatch.setattr(hwbench.api.search, "coming_with", lambda workspace, spaces: ())


def test_without_data_networks_are_scored_by_trainings_that_come_with_the_space(search, trained, workspace):
    keeper = Keeper()
    result = search(keeper, trials=8)
    assert result.study == "x3d-tiny_local_int8_4.2ms_fitted"
    assert result.settings.sources == ("x3d-tiny.trained.csv",)
    assert not trained
    (told,) = [line for line in keeper.lines if line.startswith("learned from 15 networks of x3d-tiny.trained")]
    learned = read_result(workspace, result.study).learned
    assert learned == result.learned == LeftOut.from_json(result.to_json()["learned"])
    assert f"of those left out one by one {learned}" in told
    assert learned.networks == 15
    asked = search(evaluator="fitted", trials=8)
    assert (asked.study, asked.history) == (result.study, result.history)
    table = workspace.root / "search_spaces" / "x3d-tiny.trained.csv"
    table.write_text(table.read_text().replace("s1.width=32", "s1.width=40"))
    changed = Keeper()
    assert search(changed, study="other", trials=8).settings.evaluator == "entropy"
    (told,) = [line for line in changed.lines if "trained in another space of this name" in line]
    assert told.endswith("; so the study begins without trainings")
    with pytest.raises(InvalidValue, match="trained in another space of this name"):
        search(study="more", evaluator="fitted", trials=8)


def test_a_study_of_another_space_is_named_and_not_the_trainings_that_it_began_from(search, workspace):
    search(study="team", trials=3)
    path = workspace.root / "search_spaces" / "x3d-tiny.toml"
    narrower = path.read_text().replace("depth = [1, 2, 3, 4]", "depth = [1, 2]")
    path.with_name("narrower.toml").write_text(narrower.replace('name = "x3d-tiny"', 'name = "narrower"'))
    advice = "; repeat it as it was, or choose another name: --study team-2"
    others = r"study 'team' exists with other settings: "
    with pytest.raises(InvalidValue, match=f"^{others}space was 'x3d-tiny', now 'narrower'; choices was .*{advice}$"):
        search(study="team", space="narrower", trials=3)
    search(study="scored", evaluator="entropy", trials=3)  # by the second version of that score
    choices = "choices was '[0-9a-f]+', now '[0-9a-f]+'"
    with pytest.raises(InvalidValue, match=f"settings: space was 'x3d-tiny', now 'narrower'; {choices}; repeat"):
        search(study="scored", space="narrower", evaluator="entropy", trials=3)
    path.write_text(narrower)
    with pytest.raises(InvalidValue, match=f"^{others}choices was '[0-9a-f]+', now '[0-9a-f]+'{advice}$"):
        search(study="team", trials=3)


def test_a_study_on_other_data_begins_from_the_trainings_that_come_with_the_space(search, workspace):
    source = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    keeper, bare = Keeper(), Keeper()
    result = search(keeper, data=source, **SHORT)
    assert result.settings.sources == ("x3d-tiny.trained.csv",)
    told = "30 trainings on other data count as far as trials agree with them; --learn-from none begins without"
    assert told in keeper.lines
    assert " --learn-from x3d-tiny.trained.csv" in commands.search(read_result(workspace, result.study))
    without = search(bare, data=source, learn_from=("none",), study="bare", **SHORT)
    assert without.settings.sources == ()
    assert told not in bare.lines
    assert "learned" not in without.to_json()
    assert read_result(workspace, "bare").learned is None
    assert search(data=source, study="bare", **SHORT).settings == without.settings  # it goes on as it began
    with pytest.raises(InvalidValue, match=r"begun_from was 'learned from 15 networks .*', now ''"):
        search(data=source, learn_from=("none",), **SHORT)


def test_without_data_and_trainings_the_score_costs_nothing_and_it_is_told_what_it_is_worth(bare, search, trained):
    with pytest.raises(InvalidValue, match=r"fitted needs --learn-from: .* none comes with --space x3d-tiny"):
        search(evaluator="fitted")
    keeper = Keeper()
    result = search(keeper, trials=8)
    assert result.study == "x3d-tiny_local_int8_4.2ms_entropy"
    assert not trained
    (doubt,) = [line for line in keeper.lines if "experiment 031" in line]
    assert "no better than by chance" in doubt
    assert "--data DATA" in doubt


def test_a_study_of_another_evaluator_goes_on_as_it_was(search, trained):
    first = search(study="mine", evaluator="entropy", trials=8)
    assert search(study="mine", trials=8).settings == first.settings  # which the trainings of the space change no more
    with pytest.raises(InvalidValue, match="evaluator was 'entropy', now 'fitted'"):
        search(study="mine", evaluator="fitted")
    keeper = Keeper()
    second = search(keeper, study="mine", data="synthetic", trials=10)
    assert second.settings == first.settings
    assert [one.architecture for one in second.history[:8]] == [one.architecture for one in first.history]
    assert not trained
    assert [
        line for line in keeper.lines if line.startswith("study mine goes on as it began, with --evaluator entropy")
    ]
    with pytest.raises(InvalidValue, match="evaluator was 'entropy', now 'short-train'"):
        search(study="mine", data="synthetic", evaluator="short-train")
    search(study="trained", data="synthetic", **SHORT)
    assert search(study="trained", **SHORT).settings.evaluator == "short-train"  # also where no data are named


def test_no_trainings_stand_alone():
    with pytest.raises(InvalidValue, match=r"--learn-from: none stands alone, got none, own\.csv"):
        SearchRequest(budget="5ms", learn_from=("none", "own.csv"))


def test_no_new_study_has_the_name_that_stands_for_no_trainings(search, make_search, workspace):
    with pytest.raises(InvalidValue, match=r"^--study none: --learn-from could not name it, for none stands for no"):
        search(study="none", trials=4)
    assert not (workspace.studies / "none").exists()
    make_search("none").run(trials=4, measure=1)  # by an earlier version
    assert read_result(workspace, "none").trials == 4
    assert search(study="none", evaluator="entropy", sampler="tpe", trials=5).trials == 5


def test_a_study_goes_on_with_its_data(search, workspace):
    source = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    search(study="mine", data=source, **SHORT)
    untyped, typed = Keeper(), Keeper()
    assert search(untyped, study="mine", **SHORT).settings.data == source
    began = "study mine goes on as it began, with"
    (told,) = (line for line in untyped.lines if line.startswith(began))
    assert told.startswith(f"{began} --evaluator short-train and --data {source}; ")
    assert told.endswith("; fitted, the default without --data, takes another --study")
    assert search(typed, study="mine", evaluator="short-train", **SHORT).settings.data == source
    assert f"{began} --data {source}" in typed.lines
    with pytest.raises(InvalidValue, match="now 'synthetic'"):
        search(study="mine", data="synthetic", **SHORT)


def test_a_study_goes_on_with_trainings_of_its_length(search):
    search(evaluator="short-train", epochs=2, **SHORT)
    assert search(evaluator="short-train", **SHORT).settings.effort == "2 epochs"
    assert search(data="synthetic", **SHORT).settings.effort == "2 epochs"
    with pytest.raises(InvalidValue, match="effort was '2 epochs', now '12 epochs'"):
        search(data="synthetic", epochs=12, **SHORT)


def test_with_fewer_trials_than_there_are_the_progress_shows_all_of_them(search):
    search(trials=4)
    keeper = Keeper()
    search(keeper, trials=3)
    assert [(at.done, at.total) for at in keeper.stages if at.stage == "trials"] == [(4, 4)]


def test_who_has_searched_by_entropy_before_is_told_how_that_goes_on(search):
    before = search(evaluator="entropy", trials=8).study
    scored = Keeper()
    search(scored, trials=8)
    told = f"networks are scored by trainings from here on; study {before} goes on with --evaluator entropy"
    assert told in scored.lines
    keeper = Keeper()
    search(keeper, data="synthetic", **SHORT)
    assert f"networks are trained from here on; study {before} goes on with --evaluator entropy" in keeper.lines
    again = Keeper()
    search(again, data="synthetic", **SHORT)
    assert not [line for line in again.lines if before in line]


def test_the_best_trained_networks_race(search, trained, monkeypatch):
    raced = []

    def run(self, networks):
        raced.append(len(networks))
        return RaceResult("synthetic", "fp32", 8, (), networks[1])

    monkeypatch.setattr(Race, "run", run)
    keeper = Keeper()
    result = search(keeper, data="synthetic", trials=8)
    assert raced == [2]
    assert result.best.architecture == result.race.winner
    assert [line for line in keeper.lines if "and the race of the best 2 at most 4 min 00 s" in line]


def test_a_study_whose_score_needs_no_data_races_again_on_the_data_of_its_last_race(search, workspace, tmp_path):
    source = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    race = {"study": "raced", "evaluator": "entropy", "finalists": 2, "finalist_epochs": 1, "trials": 4}
    first, same, untyped, unraced = search(data=source, **race), Keeper(), Keeper(), Keeper()
    told = f"study raced races on the data of its last race, --data {source}"
    search(same, data=source, **race)
    assert told not in same.lines
    again = search(untyped, **race)  # all of it is trained
    assert (again.race.data, again.race.winner) == (source, first.race.winner)
    assert told in untyped.lines
    search(unraced, **race | {"finalists": 0, "finalist_epochs": None})
    assert told not in unraced.lines
    search(data=source, **race)
    Path(source).rename(tmp_path / "elsewhere")
    with pytest.raises(HwbenchError, match=re.escape(source)):
        search(**race | {"trials": 6})
    assert read_result(workspace, "raced").trials == 4


def test_a_study_that_has_raced_races_again_unless_it_is_told_not_to(search, workspace):
    source = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    asked = {"study": "raced", "evaluator": "entropy", "finalist_epochs": 1, "data": source}
    first = search(trials=4, finalists=3, **asked)
    told = "study raced races as it did last, with --finalists 3; --finalists 0 leaves the race out"
    for kept in (True, False):  # studies of before keep no command
        if not kept:
            (workspace.studies / "raced" / ASKED).unlink()
        again = search(keeper := Keeper(), study="raced", trials=4)
        assert keeper.lines.count(told) == 1
        assert [len(one.standings) for one in again.race.rounds] == [len(one.standings) for one in first.race.rounds]
        assert (again.race.winner, read_result(workspace, "raced").race.winner) == (first.race.winner,) * 2
    typed = Keeper()
    more = search(typed, trials=6, finalists=2, **asked)
    assert len(more.race.rounds[0].standings) == 2
    assert told not in typed.lines
    search(study="raced", trials=6)
    assert len(read_result(workspace, "raced").race.rounds[0].standings) == 2
    for options in ({"finalists": 0}, {}):  # after the last race, there is none
        assert search(last := Keeper(), study="raced", trials=6, **options).race is None
        assert not [line for line in last.lines if " races " in line]


def test_where_one_network_is_within_the_budget_no_race_is_advised_and_that_there_is_none_is_said(search, workspace):
    with pytest.raises(InfeasibleBudget) as least:
        search(budget="1us")
    alone = {"budget": f"{1.0001 * least.value.excess:.6g}us", "evaluator": "entropy", "trials": 4}
    first = search(unraced := Keeper(), **alone)
    assert first.feasible == 1
    assert not [line for line in unraced.lines if "--finalists" in line]
    assert search(raced := Keeper(), finalists=2, data="synthetic", **alone).race.rounds == ()
    assert "there is no race: of the networks that were tried, one is within the budget" in raced.lines
    assert race_advice(read_result(workspace, first.study)) == NO_OTHER


def test_a_study_races_again_as_it_was_asked_for_last(search, workspace, monkeypatch):
    raced = []

    def run(self, networks):
        raced.append(dict(self.train.description))
        description = self.train.description
        return RaceResult("synthetic", description["score"], 8, (RaceRound(description["epochs"], ()),), networks[0])

    monkeypatch.setattr(Race, "run", run)
    race = {"data": "synthetic", "trials": 3, "study": "raced"}
    search(finalist_epochs=5, finalist_score="int8", **race)
    search(**race | {"trials": 4}, finalists=0)  # which keeps what no race asked for
    keeper = Keeper()
    search(keeper, **race)
    assert raced == [{"data": "synthetic", "score": "int8", "epochs": 5}] * 2
    assert "study raced races as it was asked for last, with --finalist-epochs 5 --finalist-score int8" in keeper.lines
    search(finalist_score="fp32", **race)
    assert raced[-1] == {"data": "synthetic", "score": "fp32", "epochs": 5}
    search(finalist_score="int8", **race)
    (workspace.studies / "raced" / ASKED).unlink()  # studies of before have none
    told = Keeper()
    search(told, **race)
    assert raced[-1] == {"data": "synthetic", "score": "int8", "epochs": 5}
    assert "study raced races as it was asked for last, with --finalist-epochs 5 --finalist-score int8" in told.lines
    (workspace.studies / "raced" / ASKED).write_text('{"finalist-epochs": "many", "finalist-score": 8}')
    search(**race)
    assert raced[-1] == {"data": "synthetic", "score": "int8", "epochs": 12}


@pytest.mark.parametrize("kept", [True, False])  # studies of before keep no command
def test_a_race_without_a_result_goes_on_with_its_epochs_and_on_its_data(search, workspace, kept):
    class Interrupting(Listener):
        def progress(self, at):
            if at.stage == "finalist, round 1":
                raise KeyboardInterrupt

    source = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    race = {"study": "raced", "evaluator": "entropy", "finalists": 2, "trials": 4}
    with pytest.raises(KeyboardInterrupt):
        search(Interrupting(), data=source, finalist_epochs=1, **race)
    folder = workspace.studies / "raced"
    assert f" --finalists 2 --data {source} --finalist-epochs 1 " in going_on_with(folder, ["x3d-tiny"])
    if not kept:
        (folder / ASKED).unlink()
    unraced, keeper = Keeper(), Keeper()
    assert search(unraced, **race | {"finalists": 0}).race is None
    assert not [line for line in unraced.lines if " races " in line]
    result = search(keeper, **race)
    assert (result.race.data, result.race.rounds[0].epochs) == (source, 1)
    assert f"study raced races on the data of its last race, --data {source}" in keeper.lines
    assert "study raced races as it was asked for last, with --finalist-epochs 1 --finalist-score fp32" in keeper.lines


def test_what_a_race_was_begun_with_is_read_from_its_last_training(tmp_path):
    assert begun_race(tmp_path) == {}
    options = {}
    for number, (data, epochs) in enumerate({"first": 2, "second": 3}.items()):
        run_dir = tmp_path / "finalists" / f"{data}-round1"
        run_dir.mkdir(parents=True)
        write_description(run_dir, RunDescription("x", "1x3x4x8x8", data, 8, {}, {"epochs": epochs}, {}))
        os.utime(run_dir / RUN, (number, number))
        options[data] = {"finalist-epochs": str(epochs), "data": data}
    assert begun_race(tmp_path) == options["second"]
    (run_dir / "int8-executorch").mkdir()
    assert begun_race(tmp_path) == {**options["second"], "finalist-score": "int8"}
    (run_dir / RUN).write_text("{")
    assert begun_race(tmp_path) == {}


def test_the_command_that_goes_on_with_a_search_names_its_time_and_its_race(search, workspace):
    class Interrupting(Listener):
        def evaluated(self, candidate):
            raise KeyboardInterrupt

    race = {"finalists": 3, "finalist_epochs": 2}
    for study, more in {"timed": {"time": "1h"} | race, "unraced": {"trials": 5, "finalists": 0}, "plain": {}}.items():
        with pytest.raises(KeyboardInterrupt):
            search(Interrupting(), data="synthetic", study=study, **more)
    told = {study: going_on_with(workspace.studies / study, ["x3d-tiny"]) for study in ("timed", "unraced", "plain")}
    assert " --time 1h --finalists 3 --finalist-epochs 2 --finalist-score fp32 --study timed" in told["timed"]
    assert told["unraced"].endswith(" --trials 5 --finalists 0 --study unraced")
    assert told["plain"].endswith(" --finalists 2 --finalist-epochs 12 --finalist-score fp32 --study plain")
    with pytest.raises(UnknownName, match=" --time 1h --finalists 3 "):
        read_result(workspace, "timed")


def test_what_a_damaged_study_holds_is_open():
    request = SearchRequest(budget="5ms")
    assert going_on(request, {}) is request
    assert going_on(request, {"evaluator": 3, "effort": "2 epochs"}) == replace(request, pruner="none")
    assert going_on(request, {"evaluator": "curve", "effort": "many"}).plan.epochs == 12
    assert going_on(request, {"evaluator": "curve", "effort": "3 epochs, frames-share 0.5"}).plan.epochs == 3
    assert going_on(SearchRequest(budget="5ms", epochs=4), {"evaluator": "curve", "effort": "3 epochs"}).epochs == 4
    assert going_on(request, {"evaluator": "curve", "data": "clips"}).data == "clips"
    assert going_on(replace(request, data="other"), {"evaluator": "curve", "data": "clips"}).data == "other"
    for data in ("", 3):
        assert going_on(request, {"evaluator": "curve", "data": data}).data is None
    assert going_on(request, {"evaluator": "entropy", "data": ""}).data is None
    assert going_on(request, {"evaluator": "curve", "pruner": "hyperband"}).plan.pruner == "hyperband"
    assert going_on(SearchRequest(budget="5ms", pruner="asha"), {"evaluator": "curve"}).plan.pruner == "asha"
    shared = {"evaluator": "supernet", "effort": "supernet of 5 epochs"}
    assert going_on(request, shared).plan.supernet_epochs == 5
    assert going_on(SearchRequest(budget="5ms", supernet_epochs=30), shared).plan.supernet_epochs == 30
    learned = "learned from 12 networks of mine, other.csv (0123456789ab)"
    assert going_on(request, {"evaluator": "fitted", "effort": learned}).learn_from == ("mine", "other.csv")
    assert going_on(request, {"evaluator": "curve", "begun_from": learned}).learn_from == ("mine", "other.csv")
    assert going_on(replace(request, evaluator="curve"), {"evaluator": "fitted", "effort": learned}).learn_from == ()
    for effort in ("learned from nothing", 3, None):
        assert going_on(request, {"evaluator": "fitted", "effort": effort}).learn_from == ()


def test_the_settings_of_a_study_are_read_where_it_is_kept(make_search, workspace, tmp_path):
    assert stored_settings(workspace.studies / "none") == {}
    result = make_search("kept").run(trials=4, measure=1)
    journal = workspace.studies / "kept" / JOURNAL
    assert stored_settings(journal.parent) == json.loads(json.dumps(result.settings.as_dict()))
    with journal.open("a") as file:
        file.write('{"op_code": 2, "user_attr": {"settings": [1]\n["settings"]\n{"settings"')
    assert stored_settings(journal.parent)["evaluator"] == "entropy"
    storage = StudyStorage.parse(f"sqlite:///{tmp_path}/studies.db")
    assert stored_settings(workspace.studies / "other", storage) == {}
    assert not (tmp_path / "studies.db").exists()
    search = make_search("other")
    search.storage = storage
    search.run(trials=4, measure=1)
    assert stored_settings(workspace.studies / "other", storage)["budget_ms"] == 4.2


def test_the_command_of_a_report_races_no_network_that_did_not(search, workspace):
    result = search(data="synthetic", **SHORT)
    command = commands.search(read_result(workspace, result.study))
    assert "--evaluator short-train" in command
    assert "--epochs 12" in command
    assert "--finalists 0" in command
    entropy = read_result(workspace, search(trials=4).study)
    assert "--finalists" not in commands.search(entropy)
    assert " --data synthetic --finalists 4 " in commands.let_race(entropy)  # there are four to choose from


def test_epochs_of_a_race():
    assert race_epochs(4, 8) == 4 * 8 + 2 * 16
    assert race_epochs(8, 1) == 24
    assert race_epochs(3, 2) == 3 * 2 + 2 * 4
    assert race_epochs(8, 1, workers=3) == 3 + 2 * 2 + 4
    assert race_epochs(0, 8) == race_epochs(1, 8) == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "24 trainings of 12 epochs take about 49 min 20 s, and the race of the best 2 at most 4 min 00 s"),
        ({"pruner": "asha", "finalists": 4}, "take about 33 min 55 s, and the race of the best 4 at most 16 min 00 s"),
        ({"workers": 2, "finalists": 0}, "24 trainings of 12 epochs take about 24 min 40 s, by the first steps of 3"),
        ({"workers": 8, "finalists": 0, "trials": 3}, "3 trainings of 12 epochs take about 2 min 03 s, by"),
        ({"workers": 8, "finalists": 0, "trials": 9}, "9 trainings of 12 epochs take about 4 min 06 s, by"),
        ({"evaluator": "curve", "finalists": 0}, "24 trainings of 12 epochs take about 48 min 00 s, by"),
        ({"pruner": "hyperband", "finalists": 0}, "24 trainings of 12 epochs take at most 1 h 04 min, by"),
        (
            {"trials": 1, "epochs": 1, "finalists": 0},
            "1 training of 1 epoch takes about 13.3 s, by the first steps of 1 network (",
        ),
        ({"budget": "4ms,5ms"}, "the race of the best 2 within each of 2 budgets at most 8 min 00 s"),
        ({"trials": 3, "finalists": 8}, "and the race of the best 3 at most 14 min 00 s, by the first steps of 3"),
        ({"trials": 1}, "1 training of 12 epochs takes about 2 min 03 s, by the first steps of 1 network ("),
        ({"finalist_score": "int8"}, "at most 4 min 00 s, and the int8 files of 2 finalists besides, by the first"),
        ({"resolution_share": 0.5, "finalists": 2}, "and the race of the best 2 at most 16 min 00 s"),
    ],
)
def test_the_forecast_is_of_what_is_asked(make_search, workspace, trained, options, told):
    request = SearchRequest(**{"budget": "5ms", "data": "clips"} | options)
    data = StudyData(workspace, "clips", request.fidelity)
    forecast = TrainingForecast.of(request, data, make_search().feasible, 8, races=len(request.front_s))
    keeper = Keeper()
    forecast.tell(request.plan.trials, keeper)
    assert told in keeper.lines[0]
    forecast.tell(request.plan.trials, keeper)
    assert len(keeper.lines) == 1


def test_what_is_not_trained_here_has_no_forecast(make_search, workspace):
    data = StudyData(workspace, "clips", Fidelity(2))
    for request in (SearchRequest(budget="5ms"), SearchRequest(budget="5ms", data="clips", ray="local")):
        assert TrainingForecast.of(request, data, make_search().feasible, 8, races=1) is None


def test_steps_are_timed_until_they_tell(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("hwbench.api.study_data.time", SimpleNamespace(monotonic=lambda: now[0]))

    def watched(step_s, steps):
        watch = _StepWatch()
        now[0] += 100.0  # the start of a training is not timed
        for step in range(1, steps + 1):
            now[0] += step_s
            at = SimpleNamespace(step=step, steps=60, epochs=3)
            try:
                watch(at)
                watch(at)  # the end of an epoch is heard of once more
            except _TimedEnough:
                return watch.epoch_s, step
        return watch.epoch_s, steps

    assert watched(0.25, 60) == (5.0, 9)
    assert watched(4.0, 60) == (80.0, 3)
    assert watched(0.25, 4) == (5.0, 4)
    assert watched(1.0, 1) == (20 * 101.0, 1)


def test_timing_an_epoch_changes_no_score(workspace, make_search):
    source = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    feasible = make_search().feasible
    network = feasible.space.network(feasible.smallest()[1], 8)
    data = StudyData(workspace, source, Fidelity(1, 0.25, 0.25))
    before = data.top1(network, 0)
    assert 0 < data.epoch_s(network, 0, threads=1) < 60
    assert data.top1(network, 0) == before
    assert data.test_share(network, 0) == 0.5


def test_the_help_says_the_defaults(capsys):
    from hwbench.cli.main import main

    with pytest.raises(SystemExit):
        main(["search", "--help"])
    words = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert (
        "default: short-train with --data; else fitted where there are trainings (--learn-from, or those that come "
        "with the space), else entropy; a study that exists goes on with its own"
    ) in words
    assert "default: as many as fit into --time, else 24 with curve and short-train, else 64" in words
