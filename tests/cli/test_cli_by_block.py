"""Members of x3d-fine go the way of every network: trained for an epoch, exported to int8, measured."""

import json

import numpy as np
import pytest

from hwbench.cli.main import main
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.measure.bench import Bench
from hwbench.spaces import load_space
from hwbench.specs import Architecture


def said(capfd, *arguments) -> dict:
    with pytest.raises(SystemExit) as end:
        main(tuple(str(argument) for argument in arguments))
    out, err = capfd.readouterr()
    assert not end.value.code, err
    return json.loads(out)


def member(space, rng: np.random.Generator, **fixed: str) -> Architecture:
    """The smallest input and depths, everything else drawn."""
    smallest = {n: v[0] for n, v in space.choices.items() if n in ("frames", "resolution") or n.endswith(".depth")}
    return space.of_params({**space.params(space.random(rng)), **smallest, **fixed})


@pytest.mark.long
@pytest.mark.parametrize(("step", "kernel"), [("2", "3x3x3"), ("2", "1x3x3"), ("1", "1x3x3+3x1x1")])
def test_a_member_is_trained_exported_and_measured(workspace, runner_cache, monkeypatch, capfd, step, kernel):
    workspace.cache.symlink_to(runner_cache)
    options = Bench.options
    monkeypatch.setattr(Bench, "options", lambda *args, **rest: options(*args, **rest, probe=False))
    videos = prepare(workspace, SyntheticSpec(train_per_class=2, val_per_class=1, size=24, frames=8))
    fixed = {"s3.temporal_stride": step, "s3.b1.kernel": kernel, "s3.b1.se": "0.0625"}
    chosen = member(load_space(workspace, "x3d-fine"), np.random.default_rng(0), **fixed)
    run, model = workspace.root / "run", workspace.root / "model"
    trained = said(capfd, "train", chosen.key, "--data", videos, "--epochs", 1, "--out", run, "--json")
    assert trained["architecture"] == chosen.key
    exported = said(capfd, "export", trained["checkpoint"], "--precision", "int8", "--out", model, "--json")
    assert exported["undelegated"] == {}
    measured = said(capfd, "bench", exported["model"], "--device", "local", "--json")
    assert measured["median_ms"] > 0
