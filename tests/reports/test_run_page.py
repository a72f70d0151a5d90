"""A page about training runs: of a tiny network that was trained, of a run under way, of damaged files."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from api.micro_workspace import NETWORK, VIDEOS, make

import hwbench
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, UnknownName
from hwbench.reports import Missing, gather_runs, runs_page
from hwbench.reports.run import FinalScores
from hwbench.reports.run_figures import LABELLED, MAX_BARS, MAX_STEPS, smoothed
from hwbench.reports.run_log import read_log
from hwbench.testing.listeners import Keeper
from hwbench.training.description import read_description
from hwbench.training.run_lock import training_alone
from hwbench.workspace import Workspace

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & <b>"
CURVES = ["loss", "rate", "accuracy", "calibration"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A workspace with a run of two epochs whose data has a video that cannot be read; not to be changed."""
    workspace = make(tmp_path_factory.mktemp("report-run") / "bench")
    bad = next((workspace.root / VIDEOS / "train" / "grow").glob("*.mp4"))
    bad.write_text("text")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workspace.root)
        request = hwbench.TrainRequest(
            architecture=NETWORK, data=VIDEOS, epochs=2, batch_size=4, threads=1, workers=0, on_error="skip",
            out=Path("runs/tiny"),
        )  # fmt: skip
        return workspace, hwbench.train(request, workspace=workspace)


@pytest.fixture
def root(trained, tmp_path, monkeypatch):
    """The workspace, to be changed; it is the current folder."""
    copied = shutil.copytree(trained[0].root, tmp_path / "work")
    monkeypatch.chdir(copied)
    return copied


@pytest.fixture
def run(root):
    return root / "runs" / "tiny"


@pytest.fixture
def under_way(run):
    """The same run in the middle of its second epoch: a half-written line, no scores, no checkpoint."""
    for name in ("checkpoint.pt", "scores.json", "scores.npz"):
        (run / name).unlink()
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:6]) + lines[6][:20])
    return run


def places(shown) -> list[str]:
    return [attributes["id"] for _, attributes in shown.elements if attributes.get("class") == "plot"]


def test_a_run_says_what_it_is_when_it_begins(trained, run):
    description = read_description(run)
    assert (description.network, description.data, description.classes) == (NETWORK, VIDEOS, 8)
    assert description.videos == {"train": 16, "val": 8}
    assert (description.recipe["epochs"], description.recipe["batch_size"]) == (2, 4)


def test_the_page_of_a_run_that_ended(trained, run, parse):
    result = hwbench.report(hwbench.ReportRequest(study="runs/tiny", out="page.html"))
    assert result.to_json() == {"report": "page.html", "runs": ["runs/tiny"], "seconds": result.seconds, "missing": []}
    shown = parse(Path("page.html").read_text(encoding="utf-8"))
    assert places(shown) == [*CURVES, "classes-1", "confusion-1", "reliability-1"]
    assert "Ended after 8 steps" in shown.text
    assert NETWORK in shown.text
    assert "label_smoothing" in shown.text
    (name,) = trained[1].unreadable
    assert Path(name).name in shown.text
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["event"] == "step"]
    assert shown.trace("loss", "loss of a step")["y"] == pytest.approx(losses)
    assert shown.trace("accuracy", "top-1")["y"][-1] == trained[1].top1
    assert shown.trace("accuracy", "top-1")["x"] == [1, 2]
    scores = json.loads((run / "scores.json").read_text())
    (classes,) = shown.figure("classes-1")["data"]
    assert classes["x"] == sorted(scores["class_accuracy"].values())
    (matrix,) = shown.figure("confusion-1")["data"]
    assert [[int(cell or 0) for cell in row] for row in matrix["text"]] == scores["confusion"]
    assert shown.commands == ["hwbench report runs/tiny"]


def test_a_folder_whose_name_is_no_text_has_a_page(run, parse):
    odd = os.fsdecode(b"runs/\xff<z")
    shutil.copytree(run, odd)
    hwbench.report(hwbench.ReportRequest(study=odd, runs=("runs/tiny",), out="page.html"))
    shown = parse(Path("page.html").read_text(encoding="utf-8"))
    own = [f"{name}-{place}" for place in (1, 2) for name in ("classes", "confusion", "reliability")]
    assert places(shown) == [*CURVES, *own]
    assert shown.raw.keys() >= {f"{name}-data" for name in own} | {"class-rows-1-rows", "class-rows-2-rows"}
    assert r"\xff<z, tiny" in shown.text


def test_the_page_loads_nothing_and_does_not_reload_itself(run, parse):
    shown = parse(runs_page(gather_runs([run])))
    assert not [1 for _, attributes in shown.elements if {"src", "href"} & set(attributes)]
    assert "refresh" not in [attributes.get("http-equiv") for _, attributes in shown.elements]


def test_a_run_under_way_is_shown_up_to_its_last_whole_line(under_way, parse):
    result = hwbench.report(hwbench.ReportRequest(study="runs/tiny", out="page.html"), heard := Keeper())
    (reason,) = result.missing
    assert "scores.json comes at the end of the run" in reason
    assert heard.lines == [f"not in the report: {reason}"]
    shown = parse(Path("page.html").read_text(encoding="utf-8"))
    assert places(shown) == CURVES
    written = read_log(under_way).written_at
    assert f"step 5 of 8, epoch 2 of 2. The last line was written {written} (UTC)" in shown.text
    assert len(shown.trace("loss", "loss of a step")["x"]) == 5


def test_a_run_of_one_step_is_drawn_as_marks(under_way, parse):
    lines = (under_way / "metrics.jsonl").read_text().splitlines(keepends=True)[:6]
    for count, mode in ((1, "lines+markers"), (2, "lines")):
        steps = [line for line in lines if json.loads(line)["event"] == "step"][:count]
        (under_way / "metrics.jsonl").write_text("".join(steps))
        shown = parse(runs_page(gather_runs([under_way])))
        drawn = [trace for name in ("loss", "rate") for trace in shown.figure(name)["data"]]
        assert [(len(trace["x"]), trace["mode"]) for trace in drawn] == [(count, mode)] * 3


@pytest.mark.parametrize("text", ["", '{"event": "st', "\0" * 200])
def test_a_run_without_a_line_has_a_page(under_way, text, parse):
    (under_way / "metrics.jsonl").write_text(text)
    shown = parse(runs_page(gather_runs([under_way])))
    assert places(shown) == []
    assert "no step is logged yet" in shown.text


def test_the_page_of_a_run_under_way_reloads_itself_when_asked(under_way, parse):
    report = gather_runs([under_way])
    shown = parse(runs_page(report, 2.5))
    (content,) = [a["content"] for _, a in shown.elements if a.get("http-equiv") == "refresh"]
    assert content == "3"
    assert "reloads itself every 2.5 s" in shown.text


HOLDING = """
import sys, time
from pathlib import Path
from hwbench.training.run_lock import training_alone
with training_alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_is_under_way_as_long_as_a_process_trains_it(under_way, parse):
    def lead() -> str:
        return parse(runs_page(gather_runs([under_way]))).text

    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDING, str(under_way)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert gather_runs([under_way]).runs[0].state == "under way"
        assert "Under way: step 5 of 8" in lead()
        with pytest.raises(InvalidValue, match="another process trains here"), training_alone(under_way):
            pass
        holder.kill()
    assert gather_runs([under_way]).runs[0].state == "interrupted"
    assert "Interrupted (no process of this machine trains it): step 5 of 8" in lead()
    with training_alone(under_way):
        assert gather_runs([under_way]).runs[0].state == "under way"
        assert is_locked_for_others(under_way)  # asking has not given up the lock


def is_locked_for_others(folder) -> bool:
    code = f"from hwbench.training.run_lock import *; print(is_trained_now(Path({str(folder)!r})))"
    asked = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return asked.stdout == "True\n"


def test_watching_ends_with_the_run(under_way, trained, monkeypatch):
    """The page is written while the run is under way, and once more when it has ended."""
    pages = []

    def end(seconds: float) -> None:
        pages.append((seconds, Path("page.html").read_text(encoding="utf-8")))
        if len(pages) == 2:
            for path in (trained[0].root / "runs" / "tiny").iterdir():
                shutil.copy(path, under_way / path.name)

    monkeypatch.setattr("hwbench.api.report.time.sleep", end)
    heard = Keeper()
    result = hwbench.report(hwbench.ReportRequest(runs=["runs/tiny"], watch=7, out="page.html"), heard)
    assert [(seconds, 'http-equiv="refresh"' in text) for seconds, text in pages] == [(7, True)] * 2
    assert 'http-equiv="refresh"' not in Path("page.html").read_text(encoding="utf-8")
    assert result.missing == ()
    assert heard.lines == ["watching runs/tiny; open page.html in a browser; Ctrl-C ends"]
    assert [(at.done, at.total) for at in heard.stages] == [(5, 8), (5, 8), (8, 8)]


def test_an_interrupted_watch_leaves_a_page_that_does_not_reload_itself(under_way, monkeypatch):
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hwbench.api.report.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        hwbench.report(hwbench.ReportRequest(runs=["runs/tiny"], watch=1, out="page.html"))
    assert 'http-equiv="refresh"' not in Path("page.html").read_text(encoding="utf-8")


def test_several_runs_share_their_curves(root, run, parse):
    other = shutil.copytree(run, root / "runs" / "other")
    values = json.loads((other / "run.json").read_text())
    values["recipe"]["learning_rate"] = 0.025
    (other / "run.json").write_text(json.dumps(values))
    request = hwbench.ReportRequest(study="runs/tiny", runs=("runs/other", "runs/tiny/../tiny"), out="page.html")
    hwbench.report(request)
    shown = parse(Path("page.html").read_text(encoding="utf-8"))
    ids = [f"{figure}-{place}" for place in (1, 2) for figure in ("classes", "confusion", "reliability")]
    assert places(shown) == [*CURVES, *ids]
    for name in ("tiny", "other"):
        assert shown.trace("loss", name)["x"] == list(range(8))
        assert shown.trace("accuracy", f"{name}, top-1")
    assert re.search(r"learning_rate\s+0\.02\s+0\.025", shown.text)
    assert "label_smoothing 0.05 0.05" not in shown.text


def test_a_run_of_before_says_in_its_checkpoint_what_it_is(run):
    (run / "run.json").unlink()
    (report,) = gather_runs([run]).runs
    assert report.description.network == NETWORK
    assert report.description.recipe["epochs"] == 2
    (run / "checkpoint.pt").unlink()
    (report,) = gather_runs([run]).runs
    assert "run.json: No such file" in report.description.reason


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"event": "step", "st', ":3: damaged line: "),
        ("[1]", ":3: damaged line: expected an object"),
        ('{"event": "step", "step": 2, "epoch": 0, "loss": "low", "learning_rate": 0.1}', "loss: expected a number"),
        ('{"event": "step", "step": 2, "epoch": 0, "loss": NaN, "learning_rate": 0.1}', "loss: expected a number"),
        ('{"event": "step", "step": -2, "epoch": 0, "loss": 1, "learning_rate": 0.1}', "step: expected a whole number"),
        ('{"event": "epoch", "epoch": 0, "step": 1, "top1": 0.5}', "top5: expected a number, got None"),
        ('{"event": "epoch", "epoch": 0, "step": 1, "unreadable": [1]}', "unreadable: expected an object"),
        ('{"step": 1}', "event: expected text"),
    ],
)
def test_a_damaged_line_is_an_error_with_its_number(run, line, said):
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], line, *lines[3:]]) + "\n")
    with pytest.raises(InvalidFile) as error:
        hwbench.report(hwbench.ReportRequest(study="runs/tiny"))
    assert "metrics.jsonl:3: damaged line: " in str(error.value)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_line_of_a_later_version_is_passed_over(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"event": "memory", "gib": 3}\n')
    assert len(read_log(run).steps) == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n"top1": ', r"scores\.json:2: damaged"),
        ("[]", r"scores\.json: damaged: TypeError"),
        ('{"classes": ["a"], "confusion": [[1, 2]], "class_accuracy": {}}', "a row and a column for each class"),
    ],
)
def test_damaged_scores_are_an_error(run, text, said):
    (run / "scores.json").write_text(text)
    with pytest.raises(InvalidFile, match=said):
        gather_runs([run])


def test_a_damaged_archive_of_scores_is_said_on_the_page(run, parse):
    (run / "scores.npz").write_bytes(b"text")
    report = gather_runs([run])
    assert "scores.npz: cannot be read as scores" in report.missing()[0]
    assert "scores.npz: cannot be read as scores" in parse(runs_page(report)).text


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({"study": "videos"}, InvalidFile, "videos: it holds no metrics.jsonl; expected the folder of a run"),
        ({"runs": ["runs/tiny", "runs/none"]}, InvalidFile, "runs/none: there is no such folder"),
        ({"study": "tny"}, UnknownName, "no finished study 'tny'.*; or name the folder of a run: hwbench report runs/"),
        ({"study": "runs/none"}, InvalidFile, "^runs/none: there is no such folder; expected the folder of a run"),
        ({"study": "no name"}, InvalidValue, "expected a name of .*; or name the folder of a run"),
        ({"study": "pixel"}, UnknownName, "'pixel' is a device: hwbench report --device pixel"),
        ({"study": "runs/tiny", "model": ["x"]}, InvalidValue, "--model is about a study"),
        ({"runs": ["runs/tiny"], "model": ["x"]}, InvalidValue, "--model is about a study"),
        ({"study": "runs/tiny", "truth": "x"}, InvalidValue, "runs/tiny is a run; --truth is about a study"),
        ({"runs": ["runs/tiny"], "space": ["x"]}, InvalidValue, "--space is about a device"),
        ({"runs": ["runs/tiny"], "device": "x"}, InvalidValue, "one of a study, a device and a run"),
        ({"device": "x", "watch": 3}, InvalidValue, "--watch is about a training run"),
        ({"study": "done", "watch": 3}, InvalidValue, "done is a study; --watch is about a training run"),
        ({"study": "runs/tiny", "watch": 0.5}, InvalidValue, "--watch: expected 1 to 86400"),
    ],
)
def test_wrong_input_is_one_line(root, values, error, said):
    (root / "profiles" / "pixel").mkdir(parents=True)
    (root / "profiles" / "pixel" / "device.toml").write_text("")
    study = Workspace(root).studies / "done"
    study.mkdir(parents=True)
    (study / "result.json").write_text("{}")
    with pytest.raises(error, match=said) as raised:
        hwbench.report(hwbench.ReportRequest(**values))
    assert isinstance(raised.value, HwbenchError)
    assert "\n" not in str(raised.value)


def test_many_steps_are_thinned_and_many_classes_stay_readable(run, parse):
    steps = "".join(
        json.dumps({"event": "step", "step": i, "epoch": 0, "loss": 1 + i % 2, "learning_rate": 0.1}) + "\n"
        for i in range(2 * MAX_STEPS + 2)
    )
    (run / "metrics.jsonl").write_text(steps)
    names = [f"{i} {HOSTILE}" for i in range(LABELLED + 40)]
    confusion = [
        [2 if i == j else int(j == (i + 1) % len(names)) for j in range(len(names))] for i in range(len(names))
    ]
    scores = {
        "videos": 3 * len(names), "top1": 2 / 3, "top5": 1.0, "class_top1": 2 / 3, "calibration_error": 0.1,
        "class_accuracy": dict.fromkeys(names, 2 / 3), "classes": names, "confusion": confusion,
    }  # fmt: skip
    (run / "scores.json").write_text(json.dumps(scores))
    text = runs_page(gather_runs([run]))
    assert "<img" not in text
    shown = parse(text)
    x = shown.trace("loss", "loss of a step")["x"]
    assert (x[0], x[-1]) == (0, 2 * MAX_STEPS + 1)
    assert len(x) <= MAX_STEPS + 1
    (classes,) = shown.figure("classes-1")["data"]
    assert len(classes["x"]) == MAX_BARS
    figure = shown.figure("confusion-1")
    assert figure["layout"]["height"] < 1000
    assert "ticktext" not in figure["layout"]["xaxis"]
    pairs = json.loads(shown.raw["pairs-1-rows"])
    assert len(pairs["rows"]) == len(names)
    assert pairs["rows"][0][2:5] == [1, 3, 0.3333]


def test_videos_of_several_classes_have_no_confusion(run, parse):
    scores = json.loads((run / "scores.json").read_text())
    del scores["calibration_error"]
    (run / "scores.json").write_text(json.dumps({**scores, "confusion": None, "mean_ap": 0.25}))
    (report,) = gather_runs([run]).runs
    assert isinstance(report.scores, FinalScores)
    assert not isinstance(report.description, Missing)
    shown = parse(runs_page(gather_runs([run])))
    assert places(shown) == [*CURVES, "classes-1"]
    assert "mAP 0.2500" in shown.text


def test_the_moving_average_has_no_bias():
    assert smoothed([2.0] * 5, 9) == pytest.approx([2.0] * 5)
    assert smoothed([1.0, 3.0], 3) == pytest.approx([1.0, (0.5 * 1 + 1 * 3) / 1.5])
