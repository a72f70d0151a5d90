"""``hwbench search`` and ``hwbench validate`` as they are typed; only the measuring is on the fake device."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from optuna.study import Study

import hwbench
import hwbench.api.prediction
import hwbench.api.search
import hwbench.testing.tables
from hwbench.cli.main import main
from hwbench.errors import UnknownName
from hwbench.latency import LatencyTable, Role, table_path
from hwbench.measure.sustained import CoursePoint
from hwbench.measure.sustained_log import CourseFacts, CourseLog
from hwbench.spaces.resolve import resolve
from hwbench.specs import Precision
from hwbench.studies.evaluators import evaluators
from hwbench.studies.sampler import FeasibleSampler
from hwbench.testing.tables import installed_target, space_table
from hwbench.workspace import Workspace, shipped


def run_python(workspace: Workspace, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh process in the workspace, with the package that is tested here."""
    environment = os.environ | {"PYTHONPATH": str(Path(hwbench.__file__).parents[1])}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, cwd=workspace.root, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def interrupted(*_):
    raise KeyboardInterrupt


def keep_course(workspace: Workspace, ratio: float = 1.2824, day: int = 25) -> None:
    """A course that has settled at so many times the latency of the cool device."""
    target = installed_target()
    facts = CourseFacts(target.key, "net", "ab" * 32, "int8", f"2026-11-{day}T02:00:00+00:00", 0.01, 0.0099, 0.0101)
    log = CourseLog.begin(workspace.sustained / target.device, facts)
    for number in range(40):
        log.add(CoursePoint(10.0 * (number + 0.5), 10.0, 0.01 * ratio, 780))
    log.end("settled")


@pytest.fixture
def table_file(workspace):
    (path,) = (workspace.root / "profiles" / "local").glob("executorch-*.int8.t1.csv")
    return path


@pytest.fixture
def run(workspace, make_search, monkeypatch, capsys):
    """Runs a command line in the workspace; returns exit status, stdout, stderr."""
    measure = make_search().measure
    monkeypatch.chdir(workspace.root)
    monkeypatch.setattr(hwbench.api.search, "measuring", lambda *_, **__: measure)
    monkeypatch.setattr(hwbench.api.prediction, "measuring", lambda *_, **__: measure)

    def _run(*arguments: str) -> tuple[int, str, str]:
        try:
            main(arguments)
            status = 0
        except SystemExit as end:
            status = end.code or 0
        return (status, *capsys.readouterr())

    return _run


def test_search_prints_one_json_object_on_stdout(run, workspace):
    status, out, err = run("search", "--budget", "4.2 ms", "--trials", "12", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert list(found) == ["study", "space", "budget_ms", "trials", "feasible", "best", "pareto", "learned"]
    assert found["best"]["measured_ms"]["local"] <= 4.2
    assert found["trials"] == 12
    assert found["feasible"] > 12
    assert found["study"] == "x3d-tiny_local_int8_4.2ms_fitted"
    assert (workspace.studies / found["study"] / "journal.log").is_file()
    assert "networks" in err
    assert f"hwbench train {found['study']}:best" in err


@evaluators.register("talkative")
class Talkative:
    """As one of another package, or a model of the user's own, that prints."""

    name, unit = "talkative", "points"

    def __init__(self, context):
        print("made")

    def score(self, network):
        print("scored", network.name)
        return float(len(network.blocks))


def test_what_an_evaluator_prints_is_no_json(run):
    status, out, err = run("search", "--budget", "4.2 ms", "--trials", "2", "--evaluator", "talkative", "--json")
    assert status == 0, err
    assert json.loads(out)["trials"] == 2
    assert "made\n" in err
    assert "scored x3d-tiny:" in err


def test_search_for_people_shows_the_front(run):
    status, out, _ = run("search", "--budget", "4.2ms", "--trials", "12", "--study", "mine")
    assert status == 0
    assert "predicted" in out.splitlines()[1]
    assert sum("best" in line for line in out.splitlines()) == 1
    assert "x3d-tiny:frames=8" in out


def test_a_table_taken_under_emulation_is_searched_only_when_it_is_said(run, table_file):
    table_file.write_text(table_file.read_text().replace("emulated=no", "emulated=yes", 1))
    command = ("search", "--budget", "4.2ms", "--trials", "4", "--json")
    status, out, err = run(*command)
    assert (status, out) == (2, "")
    assert "taken under emulation" in err
    assert "--allow-emulated" in err
    status, out, err = run(*command, "--allow-emulated")
    assert status == 0
    assert json.loads(out)["emulated"]
    assert "says nothing about a device" in err


def test_an_emulated_table_gives_no_rows_to_a_real_one(run, table_file):
    of_two = table_file.with_name(table_file.name.replace(".t1.", ".t2."))
    of_two.write_text(table_file.read_text().replace("emulated=no", "emulated=yes", 1).replace("/t1", "/t2", 1))
    for more in ((), ("--allow-emulated",)):
        status, out, err = run("search", "--budget", "4.2ms", "--trials", "4", "--transfer-from", "t2", *more)
        assert (status, out) == (2, "")
        assert "taken under emulation, which says nothing of 'local'" in err


def test_the_same_command_goes_on(run):
    first = json.loads(run("search", "--budget", "4.2ms", "--trials", "8", "--study", "mine", "--json")[1])
    again = json.loads(run("search", "--budget", "4.2ms", "--trials", "8", "--study", "mine", "--json")[1])
    assert again == first
    status, _, err = run("search", "--budget", "5ms", "--trials", "8", "--study", "mine")
    assert status == 2
    assert "budget_ms was 4.2, now 5.0" in err


def choose_rows_of_two_heads(space, table_file, monkeypatch):
    """A table with heads of 5 and 8 classes that lacks some rows, as profile chooses them."""
    rows = {row.workload: row for row in LatencyTable.read(table_file)}
    with monkeypatch.context() as patch:
        patch.setattr(hwbench.testing.tables, "CLASSES", 5)
        rows |= {row.workload: row for row in space_table(space, Precision.INT8)}
    kept = [row for row in rows.values() if "i32_m256_o64_k3x3x3" not in row.workload.key]
    assert len(kept) < len(rows)
    LatencyTable(installed_target(), Precision.INT8, kept, adaptive=True).write(table_file)


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (
            (),
            "--space x3d-tiny --device local --precision int8 --classes 8 --budget 4.2ms {usual} --no-interpolate "
            "--seed 0 {learned} --trials 2 --study half",
        ),
        (
            ("--budget", "4ms,4.2ms"),
            "--budget 4ms,4.2ms {usual} --no-interpolate --seed 0 {learned} --trials 2 --study half",
        ),
        (
            ("--sampler", "tpe", "--objective", "score,latency", "--seed", "3"),
            "--sampler tpe --objective score,latency --no-interpolate --seed 3 {learned} --trials 2 --study half",
        ),
        (
            ("--storage", "sqlite:///half.db"),
            "{usual} --no-interpolate --seed 0 {learned} --trials 2 --storage sqlite:///{root}/half.db --study half",
        ),
        (
            ("--confidence", "0.9", "--max-file-size", "2MB", "--max-activations", "8MiB"),
            "--confidence 0.9 --max-file-size 2000000B --max-activations 8388608B {learned} --trials 2 --study half",
        ),
        (
            ("--sustained", "--budget", "4.2ms,5ms"),
            "--budget 4.2ms,5ms {usual} --no-interpolate --seed 0 --sustained {learned} --trials 2 --study half",
        ),
        (
            ("--learn-from", "some.csv", "--learn-from", "other trainings.csv", "--evaluator", "fitted"),
            "--seed 0 --learn-from some.csv --learn-from 'other trainings.csv' --trials 2 --study half",
        ),
        (("--interpolate",), "--budget 4.2ms {usual} --interpolate --seed 0 {learned} --trials 2 --study half"),
        (
            ("--no-interpolate", "--classes", "5"),
            "--classes 5 --budget 4.2ms {usual} --no-interpolate --seed 0 {learned} --trials 2 --study half",
        ),
        (
            ("--measure", "5", "--measure-rows", "0", "--startup", "1"),
            "--seed 0 {learned} --trials 2 --startup 1 --measure 5 --measure-rows 0 --study half",
        ),
    ],
)
@pytest.mark.parametrize("command", [("report", "half"), ("train", "half:best"), ("bench", "half:best")])
def test_a_study_that_was_interrupted_goes_on(
    run, workspace, space, table_file, monkeypatch, command, options, written
):
    if "--classes" in options:
        choose_rows_of_two_heads(space, table_file, monkeypatch)
    if "--sustained" in options:
        keep_course(workspace)
    if "--learn-from" in options:
        for name in ("some.csv", "other trainings.csv"):
            shutil.copy(shipped() / "search_spaces" / "x3d-tiny.trained.csv", name)
    search = ("search", "--budget", "4.2 ms", "--trials", "2", *options, "--study", "half")
    with monkeypatch.context() as patch:
        patch.setattr(FeasibleSampler, "before_trial", interrupted)
        assert run(*search)[0] == 130
    status, out, err = run(*command)
    assert (status, out) == (2, "")
    assert "study 'half' has no result: its search has not finished" in err
    usual = "--evaluator fitted --sampler thompson --objective score"
    learned = "--learn-from x3d-tiny.trained.csv"  # which comes with the space
    assert err.rstrip().endswith(written.format(root=workspace.root, usual=usual, learned=learned))
    words = shlex.split(err.strip().partition("hwbench search")[2])
    status, out, err = run("search", *words)
    assert status == 0, err


def test_a_study_that_has_just_begun_goes_on_with_as_many_trials(run, workspace, monkeypatch):
    store = Study.set_user_attr

    def ends(study, name, value):
        store(study, name, value)
        if name == "settings":
            raise KeyboardInterrupt

    search = ("search", "--budget", "4.2ms", "--evaluator", "entropy", "--study", "half", "--trials")
    with monkeypatch.context() as patch:
        patch.setattr(Study, "set_user_attr", ends)
        assert run(*search, "6")[0] == 130
    assert " --trials 6 --study half" in run("report", "half")[2]
    assert run(*search, "7", "--seed", "1")[0] == 2  # another study, which leaves that one alone
    assert " --trials 6 --study half" in run("report", "half")[2]


def test_a_predicted_top1_is_shown_as_1_at_most(run, workspace, space):
    rng = np.random.default_rng(0)
    drawn = dict.fromkeys(space.random(rng) for _ in range(60))
    depths = {one: sum(int(one[f"s{n}.depth"]) for n in (1, 2, 3)) for one in drawn}
    rows = [f'"{one.key}",12,{min(1.0, 0.5 + depth / 12)}' for one, depth in depths.items()]
    Path("trained.csv").write_text("\n".join(["architecture,epochs,top1", *rows]) + "\n")
    asked = ("search", "--budget", "6ms", "--trials", "4", "--learn-from", "trained.csv", "--evaluator", "fitted")
    scores = [one["score"] for one in json.loads(run(*asked, "--study", "high", "--json")[1])["pareto"]]
    assert max(scores) > 1.001  # as it is, for what reads it and for the order
    status, out, err = run(*asked, "--study", "high")
    assert status == 0, err
    best = next(line for line in out.splitlines() if line.split()[:1] == ["best"])
    assert best.split()[1] == "1"
    assert run("report", "high", "--out", "page.html")[0] == 0
    shown = re.findall(r"score ([0-9.]+), predicted", Path("page.html").read_text())
    assert shown
    assert max(map(float, shown)) == 1


def test_what_comes_next_trains_on_what_the_study_learned_from(run):
    command = ("search", "--budget", "4.2ms", "--trials", "2")
    following = "next: hwbench train {}:best --data synthetic"
    assert following.format("coming") in run(*command, "--study", "coming")[2].splitlines()
    shutil.copy(shipped() / "search_spaces" / "x3d-tiny.trained.csv", "mine.csv")
    learning = (*command, "--learn-from", "mine.csv", "--study", "mine")
    assert following.format("mine") in run(*learning)[2].splitlines()
    assert following.format("mine") in run(*command, "--evaluator", "fitted", "--study", "mine")[2].splitlines()
    Path("mine.csv").unlink()
    status, out, err = run(*learning)
    assert status == 0, err
    assert "predicted" in out
    assert err.rstrip().endswith(following.format("mine"))


def test_the_same_trainings_under_another_name_are_those_of_the_study(run, workspace, monkeypatch):
    """A path is another one in another folder, and so were those of `quickstart`, which named its table by its path."""
    command = ("search", "--budget", "4.2ms", "--evaluator", "fitted", "--study", "mine", "--learn-from")
    by_path = "search_spaces/x3d-tiny.trained.csv"
    assert run(*command, by_path, "--trials", "2")[0] == 0
    begun_from = workspace.studies / "mine" / "begun_from.json"
    began = json.loads(begun_from.read_text())
    begun_from.unlink()
    monkeypatch.chdir(workspace.root / "experiments")
    for trials, name in (("3", "x3d-tiny.trained.csv"), ("4", f"../{by_path}")):
        status, _, err = run(*command, name, "--trials", trials)
        assert status == 0, err
    assert json.loads(begun_from.read_text()) | {"data": "synthetic"} == began
    table = workspace.root / by_path
    *rows, last = table.read_text().splitlines()
    table.write_text("\n".join([*rows, last, last.replace("s1.depth=3", "s1.depth=2")]) + "\n")
    for trials, name in (("5", "x3d-tiny.trained.csv"), ("6", f"../{by_path}"), ("7", str(table))):
        status, _, err = run(*command, name, "--trials", trials)
        assert status == 0, err
        told = " ".join(err.split())
        assert f"--learn-from {name} has changed since study mine began; it goes on with what it began from" in told
    assert json.loads(begun_from.read_text())["trainings"] == began["trainings"]
    (other := workspace.root / table.name).write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(workspace.root)
    status, _, err = run(*command, f"./{other.name}", "--trials", "8")
    assert status == 2
    assert "exists with other settings: effort was 'learned from 15 networks of search_spaces/" in err


def test_a_study_kept_elsewhere_without_a_copy_of_its_settings_goes_on_with_a_budget(run, workspace):
    folder = workspace.studies / "half"
    folder.mkdir(parents=True)
    (folder / "storage.txt").write_text("sqlite:///half.db\n")
    for copy in (None, "{", "3"):
        if copy is not None:
            (folder / "settings.json").write_text(copy)
        status, _, err = run("report", "half")
        assert status == 2
        assert err.rstrip().endswith(f"--budget BUDGET --storage sqlite:///{workspace.root}/half.db --study half")
    (folder / "settings.json").write_text('{"budget_ms": 5, "evaluator": "short-train", "data": "my clips"}')
    _, _, err = run("report", "half")
    assert " --budget 5ms --evaluator short-train --data 'my clips' --storage " in err


def test_a_study_goes_on_with_the_engine_and_the_form_that_it_began_with(run, workspace):
    folder = workspace.studies / "half"
    folder.mkdir(parents=True)
    stored = {
        "target": "pi5/onnx-1.24.0/t2",
        "budget_ms": 5,
        "variant": "stream",
        "missing_rows": "transferred from s9",
    }
    stored["effort"] = "3 epochs, frames-share 0.5, resolution-share 0.75"
    settings = {"settings": {**stored, "emulated": True, "data": "clips", "modality": "rgb+flow"}}
    settings["settings"]["on_error"] = "skip"
    (folder / "journal.log").write_text(json.dumps({"op_code": 2, "study_id": 0, "user_attr": settings}))
    assert run("report", "half")[2].rstrip().endswith(
        "--device pi5 --runtime onnx --threads 2 --budget 5ms --data clips --modality rgb+flow --on-error skip "
        "--frames-share 0.5 --resolution-share 0.75 --streaming --allow-emulated --transfer-from s9 --study half"
    )  # fmt: skip


@pytest.mark.parametrize(("named", "option"), [("zoo-e3d-s", "zoo-e3d-s"), ("x3d-tiny", "my.x3d:tiny")])
def test_a_study_goes_on_in_the_space_of_a_card_or_of_a_model_of_the_users_own(run, workspace, named, option):
    folder = workspace.studies / "half"
    folder.mkdir(parents=True)
    settings = {"settings": {"space": named, "budget_ms": 5}}
    (folder / "journal.log").write_text(json.dumps({"op_code": 2, "study_id": 0, "user_attr": settings}))
    request = hwbench.SearchRequest(budget="5ms", space=option, decoder="torchcodec")
    (folder / "asked.json").write_text(json.dumps(request.asked))
    words = shlex.split(run("report", "half")[2].partition("hwbench search ")[2])
    told = dict(zip(words[::2], words[1::2], strict=True))
    assert (told["--space"], told["--decoder"], told["--budget"]) == (option, "torchcodec", "5ms")


@pytest.mark.parametrize(
    "text", ["", "{", '{"op_code": 2, "user_attr": {"settings": {"budget_ms": [1], "target": 3}}}']
)
def test_a_study_whose_settings_cannot_be_read_goes_on_too(run, workspace, text):
    folder = workspace.studies / "half"
    folder.mkdir(parents=True)
    (folder / "journal.log").write_text(text)
    status, _, err = run("report", "half")
    assert status == 2
    assert err.rstrip().endswith(": hwbench search --budget BUDGET --study half")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--budget", "12"], 2, "has no unit"),
        (["--budget", "-3ms"], 2, "positive number"),
        (["--budget", "3 lightyears"], 2, "unknown unit"),
        (["--budget", "0.01ms"], 4, "smallest reachable latency is"),
        (["--budget", "5ms", "--space", "x3d-tinny"], 2, "did you mean 'x3d-tiny'"),
        (["--budget", "5ms", "--device", "lokal"], 2, "did you mean 'local'"),
        (["--budget", "5ms", "--precision", "int4"], 2, "expected fp32, fp16, bf16 or int8"),
        (["--budget", "5ms", "--precision", "fp32"], 2, "hwbench profile --device local --space x3d-tiny"),
        (["--budget", "5ms", "--precision", "bf16"], 2, "the executorch runtime builds"),
        (["--budget", "5ms", "--threads", "2"], 2, "--threads 2"),
        (["--budget", "5ms", "--evaluator", "entrpy"], 2, "did you mean 'entropy'"),
        (["--budget", "5ms", "--sampler", "tpee"], 2, "did you mean 'tpe'"),
        (["--budget", "5ms", "--objective", "speed"], 2, "expected score or score,latency"),
        (["--budget", "5ms", "--study", "a/b"], 2, "expected a name"),
        (["--budget", "5ms", "--runtime", "executorchh"], 2, "did you mean 'executorch'"),
        (["--budget", "5ms", "--classes", "10"], 2, "no network of space 'x3d-tiny' has all its rows"),
        (["--budget", "5ms", "--space", "x3d-mobile"], 2, "hwbench profile --device local --space x3d-mobile"),
    ],
)
def test_a_wrong_request_is_one_clear_error(run, arguments, status, said):
    found, out, err = run("search", *arguments)
    assert (found, out) == (status, "")
    assert said in " ".join(err.split())
    assert "Traceback" not in err


def test_over_the_budget_is_exit_status_5(run, device):
    quick = device.law
    device.law = lambda workload: 10 * quick(workload)
    status, out, err = run("search", "--budget", "4.2ms", "--trials", "5")
    assert (status, out) == (5, "")
    assert "the fastest takes" in err


def test_a_damaged_table_is_named(run, table_file):
    table_file.write_text(table_file.read_text().replace(",ok,", ",okay,", 1))
    status, _, err = run("search", "--budget", "5ms")
    assert status == 2
    assert str(table_file) in err.replace("\n", "")


@pytest.mark.parametrize("budget", ["6ms", "4.2ms,6ms"])
def test_a_search_for_minutes_goes_on_after_another_course(run, workspace, budget):
    keep_course(workspace)
    search = ("search", "--budget", budget, "--sustained", "--evaluator", "entropy", "--json")
    begun = [run(*search, "--trials", "4", *study) for study in ((), ("--study", "hot"))]
    assert [one[0] for one in begun] == [0, 0], begun
    keep_course(workspace, 1.2871, 26)
    for (_, before, _), study in zip(begun, ((), ("--study", "hot")), strict=True):
        status, out, err = run(*search, "--trials", "6", *study)
        assert status == 0, err
        old, new = json.loads(before), json.loads(out)
        for key in ("study", "budget_ms", "sustained"):
            assert new[key] == old[key]
        assert new["trials"] == 6
        assert new["sustained"] == {"local": 1.2824}
        assert f"study {new['study']} goes on with the ratio it began with, 1.2824; today's is 1.2871" in err
    name = "-".join(budget.split(","))
    assert json.loads(begun[0][1])["study"] == f"x3d-tiny_local_int8_{name}_entropy_sustained"
    best = resolve(workspace, "hot:best", 8)
    assert resolve(workspace, "hot:6ms", 8) == resolve(workspace, "hot:4.67873ms", 8) == best
    with pytest.raises(UnknownName, match=r"7 ms is no budget of study 'hot'; it has .*hot:6ms$"):
        resolve(workspace, "hot:7ms", 8)
    # Another budget is another study.
    status, _, err = run("search", "--budget", "5ms", "--sustained", "--evaluator", "entropy", "--study", "hot")
    assert status == 2
    assert "sustained was {'local': 1.2824}, now {'local': 1.2871}" in err.replace("\n", " ")


def test_a_study_for_minutes_that_was_named_by_its_cool_budget_goes_on(run, workspace):
    keep_course(workspace)
    search = ("search", "--budget", "6ms", "--sustained", "--evaluator", "entropy", "--json")
    old = "x3d-tiny_local_int8_4.67873ms_entropy_sustained"
    assert run(*search, "--trials", "4", "--study", old)[0] == 0
    keep_course(workspace, 1.2871, 26)
    status, out, err = run(*search, "--trials", "6")
    assert status == 0, err
    assert (json.loads(out)["study"], json.loads(out)["trials"]) == (old, 6)
    other = run("search", "--budget", "5ms", "--sustained", "--evaluator", "entropy", "--trials", "4", "--json")
    assert json.loads(other[1])["study"] == "x3d-tiny_local_int8_5ms_entropy_sustained"


def test_a_time_that_is_a_budget_for_minutes_and_one_of_the_cool_device_is_refused(workspace):
    folder, best = workspace.studies / "hot", {"architecture": "x3d-tiny:frames=8"}
    folder.mkdir(parents=True)
    front = [{"budget_ms": 4.0, "best": best}, {"budget_ms": 5.0, "best": best}]
    (folder / "result.json").write_text(json.dumps({"front": front, "sustained": {"local": 1.25}}))
    with pytest.raises(UnknownName, match=r"5 ms is two budgets .* name hot:6\.25ms or hot:4ms$"):
        resolve(workspace, "hot:5ms", 8)


def test_an_impossible_budget_is_answered_in_no_time_and_without_torch(workspace):
    code = (
        "import sys, hwbench.cli.main\n"
        "try:\n    hwbench.cli.main.main(['search', '--budget', '0.01ms'])\n"
        "except SystemExit as end:\n    status = end.code\n"
        "assert not {'torch', 'optuna'} & set(sys.modules)\nsys.exit(status)"
    )
    done = run_python(workspace, code)
    assert done.returncode == 4, done.stderr
    assert "smallest reachable latency" in done.stderr


def test_validate_prints_how_good_the_predictions_are(run):
    status, out, err = run("validate", "--device", "local", "--networks", "6", "--json")
    assert status == 0, err
    found = json.loads(out)
    keys = ["device", "networks", "median_error", "mape", "within_5", "within_10", "spearman", "coverage", "nominal"]
    assert list(found)[:9] == keys
    assert found["networks"] == 6
    assert found["median_error"] < 0.01
    assert found["within_5"] == 1.0
    assert found["spearman"] > 0.9
    assert found["nominal"] == 0.9
    assert len({r["architecture"] for r in found["results"]}) == 6
    people = run("validate", "--networks", "3")[1]
    assert "median_error" in people
    assert "%" in people


def test_validation_never_uses_a_calibration_network(workspace, table_file, space, predictor):
    from hwbench.api.validate import fresh_networks
    from hwbench.studies.latencies import space_latencies

    table = LatencyTable.read(table_file)
    sums = space_latencies(space, predictor, Precision.INT8, 8)
    drawn = {n.workload(Precision.INT8) for n in fresh_networks(sums, table, 300, 0)}
    assert len(drawn) == 300
    assert not drawn & {row.workload for row in table.rows(Role.NETWORK)}
    assert fresh_networks(sums, table, 5, 1) == fresh_networks(sums, table, 5, 1) != fresh_networks(sums, table, 5, 2)


def test_validation_of_a_device_that_measures_nothing_fails_its_check(run, monkeypatch):
    monkeypatch.setattr(hwbench.api.prediction, "measuring", lambda *_, **__: lambda workloads: [])
    status, out, err = run("validate", "--networks", "3")
    assert (status, out) == (5, "")
    assert "only 0 of 3 networks could be measured" in err


def test_a_partly_measured_space_is_searched_and_it_is_said(run, workspace, table_file):
    table = LatencyTable.read(table_file)
    kept = [row for row in table if "i32_m256_o64_k3x3x3" not in row.workload.key]
    LatencyTable(table.target, table.precision, kept).write(table_file)
    status, out, err = run("search", "--budget", "4.2ms", "--trials", "6", "--json")
    assert status == 0, err
    assert "of the space is measured; the rest is left out" in err
    assert "s2.expansion=4,s2.kernel=3x3x3" not in out


def test_a_table_of_another_engine_version_is_not_used(run, workspace, table_file):
    table = LatencyTable.read(table_file)
    other = table_file.with_name("executorch-0.9.0.int8.t1.csv")
    table_file.rename(other)
    status, _, err = run("search", "--budget", "5ms")
    assert status == 2
    assert "no latency table of" in err
    assert table_path(Workspace.find().root, table.target, Precision.INT8).name in err.replace("\n", "")


def test_a_read_only_workspace_is_one_clear_error(run, workspace, monkeypatch):
    workspace.studies.mkdir(exist_ok=True)
    (workspace.studies / "mine").write_text("a file where the study should go")
    status, _, err = run("search", "--budget", "4.2ms", "--study", "mine")
    assert status == 2
    assert "cannot write" in err


def test_draws_of_validation_are_the_same_in_every_process(workspace, table_file):
    code = (
        "import sys; from pathlib import Path; from hwbench.api.validate import fresh_networks\n"
        "from hwbench.latency import AdditivePredictor, LatencyTable; from hwbench.spaces import load_space\n"
        "from hwbench.studies.latencies import space_latencies; from hwbench.specs import Precision\n"
        "from hwbench.workspace import Workspace\n"
        "table = LatencyTable.read(Path(sys.argv[1])); space = load_space(Workspace.find(), 'x3d-tiny')\n"
        "sums = space_latencies(space, AdditivePredictor.fit(table), Precision.INT8, 8)\n"
        "print([n.name for n in fresh_networks(sums, table, 4, 0)])"
    )
    outs = [run_python(workspace, code, str(table_file)).stdout for _ in range(2)]
    assert outs[0] == outs[1]
    assert np.char.count(outs[0], "x3d-tiny:") == 4
