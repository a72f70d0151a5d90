"""Families beside X3D through the whole loop as it is typed: profile, search, train, export, bench; only small."""

import json
import shutil

import pytest

from hwbench.cli.main import main
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.measure import campaign, quality
from hwbench.measure.bench import Bench
from hwbench.workspace import Workspace

SPACE = """
schema = 1
name = "micro-r2plus1d"
family = "r2plus1d"
description = "a handful of blocks"
[input]
frames = 4
resolution = 32
[stem]
width = 8
kernel = "1x3x3"
stride = 2
act = "relu"
[[stages]]
depth = [1, 2]
width = 16
expansion = 0.5
temporal_stride = [1, 2]
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, runner_cache):
    made = Workspace.create(tmp_path_factory.mktemp("families"))
    made.cache.symlink_to(runner_cache)
    (made.root / "search_spaces" / "micro-r2plus1d.toml").write_text(SPACE)
    videos = prepare(made, SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=16))
    shutil.move(videos, made.root / "videos")
    return made


@pytest.fixture
def run(workspace, monkeypatch, capfd):
    """A command that ends well, as the object that it prints."""
    monkeypatch.chdir(workspace.root)
    # other tests use the processors meanwhile: what is looked at is the loop, and not how quiet the machine is
    monkeypatch.setattr(quality, "NOISY_RATIO", 1e9)
    monkeypatch.setattr(campaign, "doubt", lambda *_: "")
    options = Bench.options
    monkeypatch.setattr(Bench, "options", lambda *args, **rest: options(*args, **rest, probe=False))

    def _run(*arguments: str) -> dict[str, object]:
        status = 0
        try:
            main([*arguments, "--json"])
        except SystemExit as end:
            status = end.code or 0
        out, err = capfd.readouterr()
        assert status == 0, err
        return json.loads(out)

    return _run


@pytest.mark.slow
def test_r2plus1d_goes_through_the_whole_loop(run, workspace):
    profiled = run("profile", "--space", "micro-r2plus1d", "--precision", "int8", "--calibrate", "3", "--no-aa")
    assert profiled["failed"] == 0
    found = run(
        *("search", "--space", "micro-r2plus1d", "--precision", "int8", "--budget", "1s"),
        *("--trials", "4", "--study", "micro"),
    )
    best = found["best"]
    assert best["architecture"].startswith("micro-r2plus1d:frames=4,resolution=32,s1.depth=")
    assert "s1.temporal_stride=" in best["architecture"]
    trained = run("train", "micro:best", "--data", "videos", "--epochs", "2", "--out", "runs/micro")
    assert trained["epochs"] == 2
    exported = run("export", "runs/micro/checkpoint.pt", "--precision", "int8", "--out", "runs/micro/int8")
    assert (exported["delegates"], exported["undelegated"]) == (1, {})
    timed = run("bench", "runs/micro/int8/model.pte", "--threads", "1")
    assert timed["median_ms"] > 0
    assert timed["precision"] == "int8"
