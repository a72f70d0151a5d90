"""Models that a user wrote through the whole loop as it is typed: profile, search, train, export, bench; only small."""

import json
import shutil
import sys

import pytest

from hwbench.cli.main import main
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.measure import judge, quality
from hwbench.measure.bench import Bench
from hwbench.models import by_hand
from hwbench.workspace import Workspace

PACKAGE = """
import torch
from torch import nn

from mine.parts import Residual


def conv(i, o, stride):
    layer = nn.Conv3d(i, o, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False)
    return nn.Sequential(layer, nn.BatchNorm3d(o), nn.ReLU())


class Head(nn.Module):
    def __init__(self, width, num_classes):
        super().__init__()
        self.drop, self.last = nn.Dropout(0.1), nn.Linear(width, num_classes)

    def forward(self, x):
        return self.last(self.drop(x.mean((2, 3, 4))))


class Small(nn.Module):
    input_shape = (1, 3, 4, 48, 48)

    def __init__(self, num_classes):
        super().__init__()
        self.stem, self.middle, self.head = conv(3, 8, 4), Residual(8), Head(8, num_classes)

    @property
    def blocks(self):
        return {"stem": self.stem, "middle": self.middle, "head": self.head}

    def forward(self, x):
        return self.head(self.middle(self.stem(x)))


def small(num_classes=8):
    return Small(num_classes)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv3d(3, 8, 3, 2, 1), nn.Linear(8, 8)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)).mean((2, 3, 4)))


def whole():
    return Whole()


whole.input_shape = (1, 3, 4, 32, 32)
"""
PARTS = """
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time = nn.Conv3d(width, width, (3, 1, 1), padding=(1, 0, 0), groups=width, bias=False)
        self.norm, self.act = nn.BatchNorm3d(width), nn.Hardswish()
        self.point = nn.Conv3d(width, width, 1)

    def forward(self, x):
        return x + self.point(self.act(self.norm(self.time(x))))
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, runner_cache):
    made = Workspace.create(tmp_path_factory.mktemp("by_hand"))
    made.cache.symlink_to(runner_cache)
    (made.root / "mine").mkdir()
    (made.root / "mine" / "__init__.py").write_text("")
    (made.root / "mine" / "nets.py").write_text(PACKAGE)
    (made.root / "mine" / "parts.py").write_text(PARTS)
    videos = prepare(made, SyntheticSpec(train_per_class=2, val_per_class=1, size=48, frames=16))
    shutil.move(videos, made.root / "videos")
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


@pytest.fixture
def call(workspace, monkeypatch, capfd):
    """A command as its exit status, what it prints, and what it says."""
    monkeypatch.chdir(workspace.root)
    # other tests use the processors meanwhile: what is looked at is the loop, and not how quiet the machine is
    monkeypatch.setattr(quality, "NOISY_RATIO", 1e9)
    monkeypatch.setattr(judge, "doubt", lambda *_: "")
    options = Bench.options
    monkeypatch.setattr(Bench, "options", lambda *args, **rest: options(*args, **rest, probe=False))

    def _call(*arguments):
        status = 0
        try:
            main(arguments)
        except SystemExit as end:
            status = end.code or 0
        out, err = capfd.readouterr()
        return status, out, err

    return _call


@pytest.fixture
def run(call):
    """A command that ends well, as the object that it prints."""

    def _run(*arguments):
        status, out, err = call(*arguments, "--json")
        assert status == 0, err
        return json.loads(out)

    return _run


@pytest.mark.slow
def test_a_model_by_hand_goes_through_the_whole_loop(run, call, workspace, monkeypatch):
    name = "mine.nets:small"
    profiled = run("profile", "--space", name, "--precision", "int8", "--no-aa")
    assert profiled["failed"] == 0
    table = (workspace.root / profiled["table"]).read_text()
    for part in ("hand-stem", "0-mine.nets.small.stem", "1-mine.nets.small.middle", "2-mine.nets.small.head"):
        assert part in table
    found = run("search", "--space", name, "--precision", "int8", "--budget", "1s", "--trials", "4", "--study", "own")
    assert found["best"]["architecture"] == "mine.nets.small:frames=4,resolution=48"
    assert found["feasible"] == 1
    assert found["best"]["measured_ms"]["local"] > 0
    stored = json.loads((workspace.studies / "own" / "result.json").read_text())
    assert stored["named"] == {"mine.nets.small": name}  # by which a report names it
    assert stored["course"]["measure"] == 3
    budgets = ("--budget", "1s,2s", "--trials", "4", "--study", "front")
    status, _, said = call("search", "--space", name, "--precision", "int8", *budgets)
    assert (status, said.splitlines()[-1]) == (0, f"next: hwbench train {name}"), said
    trained = run("train", name, "--data", "videos", "--epochs", "2", "--out", "runs/own")
    assert trained["architecture"] == name
    assert trained["epochs"] == 2
    for names in ("_loaded", "_makers"):  # as in another process, which was told no name
        monkeypatch.setattr(by_hand, names, {})
    export = ("export", "runs/own/checkpoint.pt", "--precision", "int8", "--out", "runs/own/int8")
    status, _, said = call(*export)
    assert status == 2
    assert "no file names code to run" in said
    assert "--made-by package.module:function" in said
    for option, words in (
        ("--blocks", f"{export[1]} is one graph"),
        ("--keep-accuracy=1", "are for networks of a space"),
    ):
        status, _, said = call(*export, "--made-by", name, option)
        assert (status, words in said) == (2, True), said
    status, _, said = call(*export, "--made-by", name, "--device", "local")
    assert (status, "has none of them: give --variant" in said) == (2, True), said
    page = workspace.root / "runs" / "own" / "int8" / "RUN.md"
    page.parent.mkdir()
    page.write_text("mine")
    status, out, said = call(*export, "--made-by", name, "--json")
    assert (status, page.read_text()) == (0, "mine"), said
    assert "RUN.md is none of hwbench and stays as it is" in said
    exported = json.loads(out)
    assert (exported["delegates"], exported["undelegated"]) == (1, {})
    assert exported["architecture"] == name
    timed = run("bench", "runs/own/int8/model.pte", "--threads", "1")
    assert timed["median_ms"] > 0
    assert timed["precision"] == "int8"


@pytest.mark.slow
def test_a_model_that_names_no_blocks_is_one_row(run, workspace):
    name = "mine.nets:whole"
    profiled = run("profile", "--space", name, "--precision", "fp32", "--no-aa")
    assert (profiled["ok"], profiled["failed"]) == (1, 0)
    assert "hand-network_i3_o8" in (workspace.root / profiled["table"]).read_text()
    trained = run("train", name, "--data", "videos", "--epochs", "1", "--out", "runs/whole")
    assert trained["epochs"] == 1
    exported = run(*("export", "runs/whole", "--made-by", name), *("--precision", "fp32", "--out", "runs/whole/fp32"))
    assert exported["top1_before"] == exported["top1_after"]
    tested = run("test", "runs/whole/checkpoint.pt", "--made-by", name, "--clips", "1", "--crops", "1")
    assert tested["top1"] == trained["top1"]
