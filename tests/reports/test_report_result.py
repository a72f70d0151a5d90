"""``result.json``: what is written is read back, and what is damaged is told."""

import json

import pytest

from hwbench.errors import InvalidFile
from hwbench.reports import gather
from hwbench.reports.result import read_result


def test_a_result_is_read_as_it_was_written(workspace):
    result = read_result(workspace, "mine")
    values = json.loads(result.path.read_text())
    device = {"local": 1e3 * result.best.predicted_s}
    assert values["best"]["predicted_ms"]["local"] == pytest.approx(device["local"])
    assert [c.to_json("local")["architecture"] for c in result.history] == [
        c["architecture"] for c in values["history"]
    ]
    assert [c.trial for c in result.history] == [c["trial"] for c in values["history"]]
    assert result.settings.as_dict() == values["settings"]
    assert result.target.key == values["settings"]["target"]


def remove(*path):
    def edit(values):
        for key in path[:-1]:
            values = values[key]
        del values[path[-1]]

    return edit


def put(value, *path):
    def edit(values):
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (remove("best"), "best: expected an object, got nothing"),
        (remove("history"), "history: expected a list"),
        (remove("settings"), "settings: expected an object"),
        (remove("settings", "budget_ms"), "settings: budget_ms is missing"),
        (put("5", "settings", "budget_ms"), "settings.budget_ms: expected float, got '5'"),
        (put(True, "settings", "seed"), "settings.seed: expected int, got True"),
        (put("int4", "settings", "precision"), "expected fp32, fp16, bf16 or int8"),
        (put("here", "settings", "target"), "expected DEVICE/RUNTIME-VERSION/tTHREADS"),
        (put("speed", "settings", "objective"), "expected one of score"),
        (put(None, "trials"), "trials: expected a number"),
        (put("much", "best", "score"), "best.score: expected a number, got 'much'"),
        (put(float("nan"), "best", "score"), "best.score: expected a number"),
        (put({"s9": 1.0}, "best", "predicted_ms"), "best.predicted_ms: expected milliseconds for 'local'"),
        (put({"local": 0}, "best", "measured_ms"), "expected more than zero"),
        (put(None, "best", "predicted_ms"), "expected a latency"),
        (put(7, "history", 3, "architecture"), "history[3]: expected an architecture"),
        (put("x", "measured", 0), "measured[0]: expected an object"),
    ],
)
def test_damage_is_named_with_its_place(workspace, stored, edit, said):
    stored(edit)
    with pytest.raises(InvalidFile, match="damaged") as caught:
        read_result(workspace, "mine")
    assert said in str(caught.value)
    assert "run the search again" in str(caught.value)


def test_keys_of_another_version_are_passed_over(workspace, stored):
    def edit(values):
        del values["settings"]["variant"]
        values["settings"]["new"] = 1
        values["new"] = []

    stored(edit)
    assert read_result(workspace, "mine").settings.variant == "auto"


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00"])
def test_a_file_that_is_no_result_is_damaged(workspace, content):
    (workspace.studies / "mine" / "result.json").write_text(content)
    with pytest.raises(InvalidFile, match=r"result\.json"):
        read_result(workspace, "mine")


def test_the_frame_of_a_study_has_a_row_for_each_trial(workspace, int8_table):
    report = gather(workspace, "mine")
    frame = report.to_frame()
    assert list(frame["architecture"]) == [c.architecture for c in report.result.history]
    assert frame["measured_ms"].notna().sum() == len(report.result.measured)
    assert frame["high_ms"][0] == pytest.approx(frame["predicted_ms"][0] * report.spread, rel=1e-5)
    int8_table.unlink()
    assert gather(workspace, "mine").to_frame()[["low_ms", "high_ms"]].isna().all(axis=None)
