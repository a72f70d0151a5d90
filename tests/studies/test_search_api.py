"""``hwbench.search`` as a function, and what a study's settings hold; only the measuring is on the fake device."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import optuna
import pytest

import hwbench
import hwbench.api.search
from hwbench import Listener, SearchRequest
from hwbench.api.search_effects import check_effects
from hwbench.api.search_talk import tell_feasible
from hwbench.cli.main import main
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import InvalidValue, VideoError
from hwbench.latency import LatencyTable
from hwbench.reports import commands
from hwbench.reports.result import read_result
from hwbench.reports.study import gather
from hwbench.specs import Precision
from hwbench.studies.candidates import Candidate, candidates_frame
from hwbench.studies.evaluators import describe, get, judgement, zero_cost
from hwbench.studies.evaluators.entropy import Entropy
from hwbench.studies.latencies import choices_digest
from hwbench.studies.optuna_log import quiet_optuna
from hwbench.studies.score_data import note_videos
from hwbench.studies.settings import Settings
from hwbench.testing.listeners import Keeper
from hwbench.testing.tables import installed_target
from hwbench.units import format_share

GOLDEN = Path(__file__).parents[1] / "golden" / "study"


@pytest.fixture(autouse=True)
def measured_on_the_fake(make_search, monkeypatch):
    measure = make_search().measure
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: measure)


def ask(workspace, listener=None, **changes):
    request = SearchRequest(**{"budget": "4.2 ms", "trials": 8} | changes)
    return hwbench.search(request, listener or Listener(), workspace=workspace)


@pytest.fixture
def few_rows(workspace):
    """The table without the rows of one block; ``twin`` is a device that has them all."""
    (path,) = (workspace.root / "profiles" / "local").glob("executorch-*.int8.t1.csv")
    table = LatencyTable.read(path)
    whole = workspace.root / "profiles" / "twin" / path.name
    whole.parent.mkdir()
    LatencyTable(replace(table.target, device="twin"), table.precision, list(table)).write(whole)
    kept = [row for row in table if "i32_m256_o64_k3x3x3" not in row.workload.key]
    LatencyTable(table.target, table.precision, kept).write(path)
    return workspace


def test_the_result_is_what_the_command_prints_and_the_api_prints_nothing(workspace, monkeypatch, capfd):
    result = ask(workspace, seed=3, study="mine")
    assert capfd.readouterr() == ("", "")
    monkeypatch.chdir(workspace.root)
    with pytest.raises(SystemExit) as end:
        main(["search", "--budget", "4.2ms", "--trials", "8", "--seed", "3", "--study", "mine", "--json"])
    assert not end.value.code
    printed = json.loads(capfd.readouterr().out)
    assert printed == json.loads(json.dumps(result.to_json()))
    assert {**printed, "study": "x3d-tiny_local_int8_4.2ms_fitted"} == json.loads(
        json.dumps(ask(workspace, seed=3).to_json())
    )


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((0.0, "0.0%"), (1e-9, "less than 0.1%"), (0.001, "0.1%"), (0.0826, "8.3%")),
        *((0.999, "99.9%"), (1 - 1e-9, "more than 99.9%"), (1.0, "100.0%")),
    ],
)
def test_no_part_is_told_as_nothing_and_none_but_all_as_everything(share, text):
    assert format_share(share) == text


@pytest.mark.parametrize(
    ("count", "share", "told"),
    [
        (1, 1 / 4096, "1 network (less than 0.1% of the space) is"),
        (412, 412 / 4096, "412 networks (10.1% of the space) are"),
        (4096, 1.0, "4096 networks (100.0% of the space) are"),
        (7e12, 2e-5, "7.00e+12 networks (less than 0.1% of the space) are"),
    ],
)
def test_the_size_of_the_feasible_set_is_told(workspace, make_search, count, share, told):
    search, keeper = make_search(), Keeper()
    found = SimpleNamespace(count=count, share=lambda: share, counts={"x3d-tiny": count}, sums=search.feasible.sums)
    tell_feasible([found], search.settings, keeper)
    assert keeper.lines[0].startswith(f"{told} within ")


def test_the_listener_hears_of_every_trial(workspace):
    keeper = Keeper()
    result = ask(workspace, keeper)
    assert [c.architecture for c in keeper.candidates] == [c.architecture for c in result.history]
    assert [(at.stage, at.done, at.total) for at in keeper.stages] == [("trials", n, 8) for n in range(9)]
    assert keeper.stages[-1].note == f"best {min(1.0, max(c.score for c in result.history)):.4g}"
    assert any(line.startswith("calibration: ") for line in keeper.lines)
    assert any("are within 4.2 ms" in line for line in keeper.lines)
    keeper = Keeper()
    longer = ask(workspace, keeper, trials=10)
    assert [at.done for at in keeper.stages] == [8, 9, 10]
    assert keeper.stages[0].note == "8 from before"
    best = [min(1.0, max(c.score for c in longer.history[:n])) for n in (9, 10)]
    assert [at.note for at in keeper.stages[1:]] == [f"best {score:.4g}" for score in best]
    assert best[0] > longer.history[8].score


def test_the_frame_has_a_row_for_each_trial(workspace):
    result = ask(workspace)
    frame = result.to_frame()
    assert list(frame.columns[:4]) == ["trial", "architecture", "frames", "resolution"]
    numbers = ["score", "predicted_ms", "low_ms", "high_ms", "measured_ms", "failure"]
    assert list(frame.columns[-6:]) == numbers
    assert list(frame["trial"]) == list(range(8))
    assert list(frame["architecture"]) == [c.architecture for c in result.history]
    assert (frame["frames"] == "8").all()
    assert (frame["low_ms"] < frame["predicted_ms"]).all()
    assert (frame["predicted_ms"] < frame["high_ms"]).all()
    assert frame["high_ms"][0] == pytest.approx(frame["predicted_ms"][0] * result.spread, rel=1e-5)
    assert frame["measured_ms"].notna().sum() == len(result.measured) == 3
    best = frame.set_index("architecture").loc[result.best.architecture]
    assert best["measured_ms"] == pytest.approx(1e3 * result.best.measured_s, rel=1e-6)


def test_a_frame_of_nothing_has_its_columns_and_an_unknown_interval_is_no_number():
    assert list(candidates_frame([], 1.1).columns)[:3] == ["trial", "architecture", "score"]
    (row,) = candidates_frame([Candidate("s:a=1", 2.0, 3e-3)], math.nan).to_dict("records")
    assert (row["a"], row["predicted_ms"]) == ("1", 3.0)
    assert all(math.isnan(row[name]) for name in ("low_ms", "high_ms", "measured_ms"))


def test_a_study_keeps_to_one_way_of_filling_rows_in(few_rows):
    whole = ask(few_rows, study="mine")
    assert whole.settings.missing_rows == "left out"
    with pytest.raises(InvalidValue, match=r"missing_rows was 'left out', now 'interpolated'; .*--study mine-2"):
        ask(few_rows, study="mine", interpolate=True)
    with pytest.raises(InvalidValue, match="missing_rows was 'left out', now 'transferred from twin'"):
        ask(few_rows, study="mine", transfer_from="twin")
    filled = ask(few_rows, interpolate=True)
    assert filled.study == "x3d-tiny_local_int8_4.2ms_fitted_interpolated"
    assert filled.settings.missing_rows == "interpolated"
    assert read_result(few_rows, filled.study).settings == filled.settings
    with pytest.raises(InvalidValue, match="missing_rows was 'interpolated', now 'left out'"):
        ask(few_rows, study=filled.study)
    moved = ask(few_rows, transfer_from="twin")
    assert moved.study == "x3d-tiny_local_int8_4.2ms_fitted_from-twin"
    for one, how in ((filled, "interpolated"), (moved, "transferred from twin")):  # the report predicts as the search
        report = gather(few_rows, one.study)
        assert report.predictor.table.how.startswith(how)
        assert report.winner.whole[Precision.INT8].predicted.seconds == pytest.approx(one.best.predicted_s, rel=1e-6)


SETTINGS = Settings("x3d-tiny", "6e40444ce4b531f8", "local/executorch-1.5.1/t1", "int8", 4.2, 8, sampler="tpe")
# As every version up to 0.1 stored them.
STORED = {
    name: value for name, value in SETTINGS.as_dict().items() if name not in ("missing_rows", "emulated", "confidence")
}


def test_settings_of_before_are_equal_and_a_filling_differs():
    assert SETTINGS.differences(STORED, "mine") == []
    filled = replace(SETTINGS, missing_rows="interpolated")
    assert filled.differences(STORED, "mine") == ["missing_rows was 'left out', now 'interpolated'"]
    # the name says what such a study was made with
    assert filled.differences(STORED, "x3d-tiny_local_int8_4.2ms_entropy_interpolated") == []
    assert SETTINGS.differences(STORED, "x3d-tiny_local_int8_4.2ms_entropy_interpolated") == [
        "missing_rows was 'interpolated', now 'left out'"
    ]
    assert filled.differences(STORED, "x3d-tiny_local_int8_4.2ms_entropy_from-s9") == [
        "missing_rows was 'transferred from s9', now 'interpolated'"
    ]
    assert replace(SETTINGS, emulated=True).differences(STORED, "mine") == []
    emulated = SETTINGS.differences({**STORED, "emulated": True}, "mine")
    assert emulated == ["emulated was True, now False"]


def test_what_happens_with_unreadable_videos_is_a_setting_of_studies_that_read_some(space):
    def settings(**options):
        return SearchRequest(budget="5ms", **options).settings(space, installed_target(), 8)

    skipping = {"data": "clips", "on_error": "skip"}
    assert settings(**skipping).as_dict()["on_error"] == "skip"
    assert settings(evaluator="entropy", finalists=2, **skipping).on_error == "skip"
    assert settings(evaluator="entropy", **skipping).on_error == "raise"
    assert "on_error" not in settings(data="clips").as_dict()
    assert "on_error" not in settings(evaluator="entropy", **skipping).as_dict()


def test_a_study_whose_videos_could_be_read_goes_on_without_those_that_cannot():
    raising = replace(SETTINGS, evaluator="short-train", data="clips")
    skipping = replace(raising, on_error="skip")
    assert skipping.differences(raising.as_dict(), "mine") == []
    assert raising.differences(skipping.as_dict(), "mine") == [
        "on_error was 'skip', now 'raise': go on with --on-error skip"
    ]
    # finalists of a race are trained anew under another policy; scores of the study rest on no data
    assert SETTINGS.differences(replace(SETTINGS, on_error="skip").as_dict(), "mine") == []


def test_a_confident_study_is_another_one_and_tries_only_what_leaves_room(workspace):
    plain, sure = ask(workspace, trials=8), ask(workspace, trials=8, confidence=0.9)
    assert plain.study + "_sure-0.9" == sure.study
    assert read_result(workspace, sure.study).settings.confidence == 0.9
    assert sure.feasible <= plain.feasible
    with pytest.raises(InvalidValue, match=r"confidence was 0\.5, now 0\.9"):
        ask(workspace, trials=8, confidence=0.9, study=plain.study)
    assert "--confidence 0.9" in commands.search(read_result(workspace, sure.study))
    assert "--confidence" not in commands.search(read_result(workspace, plain.study))


def test_a_study_of_before_goes_on_unchanged_and_keeps_to_its_filling_from_then_on(workspace, space, monkeypatch):
    monkeypatch.setattr(Entropy, "scoring", 1)  # as where the evaluator still gives the scores of then
    if choices_digest(space) != SETTINGS.choices:
        pytest.fail("the golden study is of another space: make it again")
    shutil.copytree(GOLDEN, workspace.studies / "mine")
    before = json.loads((GOLDEN / "result.json").read_text())
    assert "missing_rows" not in before["settings"]
    assert read_result(workspace, "mine").settings == SETTINGS
    with pytest.raises(InvalidValue, match="sampler was 'tpe', now 'thompson'; repeat it as it was, or"):
        ask(workspace, study="mine", trials=8)  # the default of then
    result = ask(workspace, study="mine", trials=8, sampler="tpe")
    assert result.trials == 8
    assert [c.architecture for c in result.history[:6]] == [c["architecture"] for c in before["history"]]
    # its table has every row of the space, so that nothing is filled in whatever is said
    assert ask(workspace, study="mine", trials=8, sampler="tpe", interpolate=True).trials == 8
    stored = json.loads((workspace.studies / "mine" / "result.json").read_text())
    assert stored["settings"] == SETTINGS.as_dict()
    assert '"missing_rows":"left out"' in (workspace.studies / "mine" / "journal.log").read_text()


def test_the_command_repeats_how_short_a_training_is(workspace):
    shutil.copytree(GOLDEN, workspace.studies / "mine")
    effort = "3 epochs, frames-share 0.5, resolution-share 0.75"
    settings = replace(SETTINGS, evaluator="curve", data="synthetic", effort=effort)
    command = commands.search(replace(read_result(workspace, "mine"), settings=settings))
    assert "--data synthetic --epochs 3 --frames-share 0.5 --resolution-share 0.75 " in command


@pytest.mark.parametrize("evaluator", ["zero-cost", "curve"])
def test_a_search_looks_at_its_data(workspace, evaluator, monkeypatch):
    monkeypatch.setattr(zero_cost, "REFERENCE", 1)
    data = str(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)))
    listener = Keeper()
    shorter = {"epochs": 1, "frames_share": 0.25, "resolution_share": 0.25}
    how = {"trials": 2, "finalists": 0} | (shorter if evaluator == "curve" else {})
    result = ask(workspace, listener, evaluator=evaluator, data=data, **how)
    assert len({candidate.score for candidate in result.history}) == 2
    assert result.settings.data == data
    assert f"score: {describe(get(evaluator))}" in listener.lines
    doubt = judgement(get(evaluator))
    assert [line for line in listener.lines if "no better than by chance" in line] == [doubt] * (evaluator != "curve")
    with pytest.raises(InvalidValue, match=r"data was .*, now 'synthetic'"):
        ask(workspace, evaluator=evaluator, study=result.study, data="synthetic", **how)
    again = Keeper()
    assert ask(workspace, again, evaluator=evaluator, study=result.study, **how).settings.data == data
    assert f"study {result.study} goes on as it began, with --data {data}" in again.lines


@pytest.mark.parametrize("evaluator", ["zero-cost", "short-train"])
def test_a_search_leaves_out_videos_that_cannot_be_read(workspace, evaluator, monkeypatch, tmp_path):
    monkeypatch.setattr(zero_cost, "REFERENCE", 1)
    data = tmp_path / "clips"
    source = prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8))
    shutil.copytree(source, data)
    for file in sorted((data / "train").rglob("*.mp4"))[::2]:
        file.write_text("no video")
    shorter = {"epochs": 1, "frames_share": 0.25, "resolution_share": 0.25}
    how = {"trials": 2, "finalists": 0} | (shorter if evaluator == "short-train" else {})
    asked = {"evaluator": evaluator, "data": str(data), **how}
    with pytest.raises(VideoError, match="damaged"):
        ask(workspace, **asked)
    listener = Keeper()
    result = ask(workspace, listener, **asked, on_error="replace")  # the study goes on
    assert all(math.isfinite(candidate.score) for candidate in result.history)
    assert [line for line in listener.lines if "--on-error replace" in line] == [
        f"unreadable videos are no error (--on-error replace); hwbench data check {data} names them"
    ]
    stored = read_result(workspace, result.study)
    assert stored.settings.on_error == "replace"
    for command in (commands.search(stored), commands.train(stored), commands.export(stored, Precision.INT8)):
        assert "--on-error replace" in command
    for other in ("raise", "skip"):  # scores of other training sets
        with pytest.raises(InvalidValue, match=f"on_error was 'replace', now '{other}': go on with --on-error replace"):
            ask(workspace, **asked, on_error=other)
    assert ask(workspace, **asked, on_error="replace").history == result.history


def test_a_study_that_goes_on_with_other_videos_says_how_many_scores_are_of_others(workspace, monkeypatch, tmp_path):
    monkeypatch.setattr(zero_cost, "REFERENCE", 1)
    data = tmp_path / "clips"
    shutil.copytree(prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8)), data)
    video = min((data / "train").rglob("*.mp4"))
    more = video.with_name("more.mp4")

    def said(trials):
        listener = Keeper()
        asked = {"evaluator": "zero-cost", "data": str(data), "study": "grown", "finalists": 0}
        ask(workspace, listener, trials=trials, **asked)
        return [line for line in listener.lines if "other videos" in line]

    def words(count):
        return [
            f"study grown: {data} has other videos by now: {count} of before cannot be compared with those to come; "
            "--study grown-2 begins anew"
        ]

    assert said(1) == said(2) == []
    shutil.copy(video, more)
    assert said(2) == []  # nothing is scored
    assert said(3) == said(4) == words("2 scores")
    more.unlink()
    assert said(5) == words("2 scores")  # those of the other videos
    shutil.move(video, data / "val" / video.parent.name / "moved.mp4")
    assert said(6) == words("5 scores")


def test_videos_of_a_study_of_before_are_those_that_it_goes_on_with():
    with quiet_optuna():
        study = optuna.create_study()
    assert note_videos(study, "these", 3) == 0
    assert note_videos(study, "those", 4) == 4
    assert note_videos(study, "others", 4) == 4  # nothing was scored by those
    assert note_videos(study, "others", 5) == 4


def test_a_study_whose_evaluator_scores_otherwise_since_is_not_mixed_with(workspace):
    shutil.copytree(GOLDEN, workspace.studies / "mine")
    with pytest.raises(InvalidValue, match="scoring was 1, now 2: scores of entropy are computed otherwise since"):
        ask(workspace, study="mine", trials=8, sampler="tpe")
    assert read_result(workspace, "mine").settings == SETTINGS  # it can still be read
    assert ask(workspace, study="mine-2", evaluator="entropy", trials=8, sampler="tpe").settings.scoring == 2


def test_the_budget_stands_once(make_search):
    search = make_search()
    assert search.feasible.budget_s == search.settings.budget_s
    with pytest.raises(ValueError, match="settings of"):
        replace(search, settings=replace(search.settings, budget_ms=5.0))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"budget": "12"}, "has no unit"),
        ({"budget": "4ms", "confidence": 0.4}, "--confidence: expected a probability from 0.5 to below 1, got 0.4"),
        ({"budget": "4ms", "confidence": 1.0}, "--confidence: expected a probability"),
        ({"budget": "4ms", "confidence": float("nan")}, "--confidence: expected a finite number, got nan"),
        ({"budget": "4ms", "trials": 0}, "--trials: expected at least 1"),
        ({"budget": "4ms", "frames_share": 0.0}, "--frames-share: expected more than 0, at most 1, got 0"),
        ({"budget": "4ms", "resolution_share": 1.5}, "--resolution-share: expected more than 0, at most 1, got 1.5"),
        ({"budget": "4ms", "seed": "1"}, "--seed: expected int, got '1'"),
    ],
)
def test_a_wrong_request_is_refused_when_it_is_made(fields, said):
    with pytest.raises(InvalidValue, match=said):
        SearchRequest(**fields)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": 3}, "--epochs: evaluator 'fitted' trains nothing; leave it out, or take --evaluator short-train"),
        ({"epochs": 12, "evaluator": "zero-cost"}, "--epochs: evaluator 'zero-cost' trains nothing"),
        (
            {"epochs": 3, "frames_share": 0.5, "resolution_share": 0.5, "evaluator": "supernet", "data": "synthetic"},
            "--epochs, --frames-share, --resolution-share: evaluator 'supernet' trains all networks at once, for "
            "--supernet-epochs; leave them out",
        ),
        ({"frames_share": 0.5, "finalists": 2}, "--frames-share: evaluator 'fitted' trains nothing"),
        ({"supernet_epochs": 5}, "--supernet-epochs goes with --evaluator supernet, got --evaluator fitted"),
        ({"supernet_epochs": 5, "evaluator": "curve", "data": "synthetic"}, "--supernet-epochs goes with"),
        ({"finalist_epochs": 5}, "--finalist-epochs: no networks race; leave it out, or give --finalists 2"),
        ({"finalist_epochs": 5, "finalist_score": "int8"}, "--finalist-epochs, --finalist-score: no networks race"),
        ({"evaluator": "curve", "finalist_epochs": 12, "finalists": 0}, "--finalist-epochs: no networks race"),
    ],
)
def test_an_option_that_changes_nothing_is_refused(workspace, options, said):
    with pytest.raises(InvalidValue, match=f"^{said}"):
        ask(workspace, **options)
    assert not workspace.studies.exists()


def test_an_option_has_an_effect_by_the_evaluator_of_the_study_that_goes_on(workspace):
    ask(workspace, study="mine", evaluator="entropy")
    with pytest.raises(InvalidValue, match="--epochs: evaluator 'entropy' trains nothing"):
        ask(workspace, study="mine", data="synthetic", epochs=3)


@pytest.mark.parametrize(
    "options",
    [
        {"evaluator": "curve", "epochs": 3, "frames_share": 0.5, "resolution_share": 0.5},
        {"data": "synthetic", "epochs": 3, "finalist_epochs": 5, "finalist_score": "int8"},
        {"finalists": 2, "finalist_epochs": 5},
        {"evaluator": "supernet", "supernet_epochs": 5},
        {"evaluator": "of-another-package", "epochs": 3},
        {"epochs": None, "finalist_epochs": None, "supernet_epochs": None},
    ],
)
def test_an_option_with_an_effect_is_taken(options):
    check_effects(SearchRequest(budget="5ms", **options))


def test_what_a_request_says_of_the_trials(space):
    request = SearchRequest(budget="0.0042 s", evaluator="short-train", epochs=3, transfer_from="s9", precision="int8")
    settings = request.settings(space, installed_target(), 8)
    assert (settings.budget_ms, settings.data, settings.effort) == (4.2, "synthetic", "3 epochs")
    assert settings.missing_rows == "transferred from s9"
    assert settings.precision == Precision.INT8
    assert replace(request, evaluator="entropy").settings(space, installed_target(), 8).data == ""
    zero_cost = replace(request, evaluator="zero-cost").settings(space, installed_target(), 8)
    assert (zero_cost.data, zero_cost.effort) == ("synthetic", "")
    reduced = replace(request, evaluator="curve", frames_share=0.5, resolution_share=0.75)
    assert reduced.settings(space, installed_target(), 8).effort == "3 epochs, frames-share 0.5, resolution-share 0.75"
