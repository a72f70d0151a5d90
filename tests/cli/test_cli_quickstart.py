"""The whole loop as it is typed, on a space of a few blocks: everything real, only small."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
from documented_files import undocumented

import hwbench.cli.commands  # noqa: F401  # registers the commands
from hwbench.api import quickstart as loop
from hwbench.cli.main import app, main
from hwbench.cli.quickstart import _print
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import InfeasibleBudget
from hwbench.measure import cache, judge, quality
from hwbench.measure.bench import Bench
from hwbench.measure.builder import Builder
from hwbench.spaces import load_space
from hwbench.specs import Precision
from hwbench.studies.settings import check_name
from hwbench.testing.listeners import Keeper
from hwbench.workspace import Workspace, shipped

SPACE = """
schema = 1
name = "micro"
description = "a handful of blocks"
[input]
frames = 4
resolution = 32
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
depth = [1, 2]
width = [8, 16]
expansion = 2.0
kernel = "1x3x3+3x1x1"
se = 0
act = "relu"
stride = 2
[head]
hidden = 32
act = "relu"
"""
TRAINED = "micro.trained.csv"
KEYS = {
    "architecture", "device", "budget_ms", "predicted_ms", "measured_ms", "fp32_ms", "top1_fp32", "top1_int8", "chance",
    "model", "report", "seconds",
}  # fmt: skip


@pytest.fixture(scope="module")
def small():
    """The loop with a small space, few videos and one epoch."""
    values = {"SPACE": "micro", "DATA": "videos", "EPOCHS": 1, "TRIALS": 4, "CANDIDATES": 1, "PAUSE_S": 0.0}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(loop, name, value)
        # other tests use the processors meanwhile: what is looked at is the loop, and not how quiet the machine is
        patch.setattr(quality, "NOISY_RATIO", 1e9)
        patch.setattr(judge, "doubt", lambda *_: "")
        options = Bench.options
        patch.setattr(Bench, "options", lambda *args, **rest: options(*args, **rest, probe=False))
        yield


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, runner_cache):
    made = Workspace.create(tmp_path_factory.mktemp("quickstart"))
    made.cache.symlink_to(runner_cache)
    (made.root / "search_spaces" / "micro.toml").write_text(SPACE)
    space, rng = load_space(made, "micro"), np.random.default_rng(0)
    trained = [f'"{space.random(rng).key}",1,{top1}' for top1 in (0.5, 0.25, 0.75, 0.5, 0.625)]
    (made.root / "search_spaces" / TRAINED).write_text("\n".join(["architecture,epochs,top1", *trained]) + "\n")
    videos = prepare(made, SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=16))
    shutil.move(videos, made.root / "videos")
    return made


@pytest.fixture
def run(small, workspace, monkeypatch, capfd):
    monkeypatch.chdir(workspace.root)

    def _run(*arguments: str) -> tuple[int, str, str]:
        status = 0
        try:
            main(["quickstart", *arguments])
        except SystemExit as end:
            status = end.code or 0
        return (status, *capfd.readouterr())

    return _run


def test_the_loop_and_the_loop_again(run, workspace):
    # a budget that no network of this space misses: what is tested here is the loop and not this machine's speed
    status, out, err = run("--budget", "1s", "--json")
    assert status == 0, err
    values = json.loads(out)
    assert set(values) == KEYS
    assert values["budget_ms"] == 1000
    assert 0 < values["measured_ms"] < 1000
    assert values["chance"] == 1 / 8
    model = workspace.root / values["model"]
    manifest = json.loads(model.with_name("manifest.json").read_text())
    assert manifest["precision"] == "int8"
    assert manifest["sha256"] == hashlib.sha256(model.read_bytes()).hexdigest()
    assert (workspace.root / values["report"]).read_text().startswith("<!doctype html>")
    commands = [line.strip() for line in err.splitlines() if line.strip().startswith("hwbench ")]
    assert [command.split()[1] for command in commands] == [
        "profile", "search", "train", "export", "export", "bench", "report",
    ]  # fmt: skip

    assert f"--learn-from {TRAINED}" in commands[1]
    assert "learned from" in err

    before = {path: path.stat().st_mtime_ns for path in (workspace.root / "runs").rglob("*.p*t*")}
    assert {path.name for path in before} == {"checkpoint.pt", "model.pte"}
    status, out, err = run("--budget", "1s", "--json")
    assert status == 0, err
    again = json.loads(out)
    volatile = {"measured_ms", "seconds"}
    assert {k: v for k, v in again.items() if k not in volatile} == {
        k: v for k, v in values.items() if k not in volatile
    }
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "int8, " in err
    assert "fp32: exported before" in err

    assert undocumented(workspace.root) == []

    fp32 = model.parents[1] / "fp32" / "model.pte"
    fp32.unlink()
    status, out, err = run("--budget", "1s", "--json")
    assert status == 0, err
    assert "fp32: exported before" not in err
    assert fp32.is_file()
    assert model.stat().st_mtime_ns == before[model]


def test_the_search_goes_on_from_another_folder_of_the_workspace(small, workspace, monkeypatch):
    found = []
    for folder in (workspace.root, workspace.root / "experiments"):
        monkeypatch.chdir(folder)
        with Builder(loop.RUNTIME, workspace.cache) as builder:
            finding = loop._Finding(loop.QuickstartRequest(), Keeper(), Workspace.find(), builder)
            finding.profile()
            found.append(finding.search(1.0))
    assert found[0].study == found[1].study
    assert found[0].history == found[1].history


def test_it_learns_from_trainings_of_its_space_alone(small, workspace, monkeypatch):
    monkeypatch.chdir(workspace.root)
    keeper = Keeper()
    finding = loop._Finding(loop.QuickstartRequest(), keeper, workspace, None)
    assert finding.trainings() == (TRAINED,)
    space = workspace.root / "search_spaces" / "micro.toml"
    space.write_text(SPACE.replace("width = 8\n", "width = 16\n").replace("[8, 16]", "[8, 24]"))  # by its user
    assert finding.trainings() == ()
    assert keeper.lines[-1].endswith("so the search scores networks without trainings")
    monkeypatch.setattr(loop, "SPACE", "x3d-tiny")
    (workspace.root / "search_spaces" / "x3d-tiny.trained.csv").unlink()  # a workspace of an earlier version
    assert finding.trainings() == ("x3d-tiny.trained.csv",)
    assert workspace.trainings("x3d-tiny.trained.csv") == shipped() / "search_spaces" / "x3d-tiny.trained.csv"
    space.write_text(SPACE)


def test_a_study_is_of_one_device_and_one_engine(workspace, monkeypatch):
    def study(device, version):
        monkeypatch.setattr(cache, "engine_version", lambda runtime: version)
        return loop._Finding(loop.QuickstartRequest(device=device, seed=3), Keeper(), workspace, None).study(
            3.4, trainings
        )

    trainings = ()
    assert study("local", "1.5.1+cpu") == "quickstart-3.4ms-3-local-1.5.1-cpu"
    studies = [study("local", "1.5.1+cpu"), study("local", "1.6.0"), study("s9", "1.6.0")]
    trainings = ("t.csv",)  # a study keeps its kind of score
    studies.append(study("s9", "1.6.0"))
    assert len(set(studies)) == 4
    for one in studies:
        check_name(one)


def test_what_is_typed_to_export_has_the_seed_and_paths_of_the_export(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "quickstart"
    making = loop._Making(loop.QuickstartRequest(seed=3), Keeper(), Workspace.create(tmp_path), "study", folder)
    folder.mkdir(parents=True)
    (folder / "checkpoint.pt").touch()
    wanted = making._export_request(Precision.INT8)
    command = typer.main.get_command(app).commands["export"]
    typed = command.make_context("export", loop._words(wanted, loop.shown)[1:]).params
    assert (typed["seed"], typed["precision"]) == (wanted.seed, "int8") == (3, wanted.precision)
    assert typed["out"] == Path(loop.shown(wanted.out))


def test_a_budget_that_nothing_meets_names_the_smallest(run):
    status, out, err = run("--budget", "0.01ms")
    assert (status, out) == (InfeasibleBudget.exit_status, "")
    assert "the smallest reachable latency is" in err


def test_a_budget_without_a_unit_is_told_at_once(run):
    status, out, err = run("--budget", "5")
    assert (status, out) == (2, "")
    assert "unit" in err
    assert "[1/7]" not in err


def test_the_table_for_people_has_every_number(capsys):
    values = {
        "architecture": "micro:a=1", "device": "local", "budget_ms": 4.2, "predicted_ms": 3.1234, "measured_ms": 3.2,
        "fp32_ms": 2.9, "top1_fp32": 0.9, "top1_int8": 0.875, "chance": 0.125, "model": "m.pte", "report": "r.html",
        "seconds": 301.0,
    }  # fmt: skip
    _print(values)
    out = capsys.readouterr().out
    for text in ("micro:a=1", "4.2 ms", "3.123 ms", "3.2 ms", "90.0%", "87.5%", "12.5%", "m.pte", "r.html", "5 min"):
        assert text in out


def test_shown_paths_can_be_typed_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loop.shown(tmp_path / "runs" / "x.pte") == str(Path("runs") / "x.pte")
