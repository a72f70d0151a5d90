"""Videos of several classes, from training to an int8 file that says what its logits mean."""

import json
from pathlib import Path

import numpy as np
import pytest
from micro_workspace import NETWORK, SPACE

import hwbench
from hwbench.testing.datasets import COPIES
from hwbench.workspace import Workspace


def test_a_file_is_judged_by_the_precision_and_by_a_right_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.create(tmp_path)
    (tmp_path / "search_spaces" / "micro.toml").write_text(SPACE)
    (tmp_path / "data").mkdir()
    data = f"charades:{COPIES['charades'].make(tmp_path / 'data')}"
    monkeypatch.chdir(tmp_path)
    trained = hwbench.train(
        hwbench.TrainRequest(
            architecture=NETWORK, data=data, epochs=1, batch_size=2, threads=1, workers=0, device="cpu", out="run"
        )
    )
    scores = json.loads((tmp_path / "run" / "scores.json").read_text())
    with np.load(tmp_path / "run" / "scores.npz") as kept:
        chance = kept["targets"].mean()
    assert chance != pytest.approx(1 / len(scores["classes"]))
    told = trained.to_json()
    assert (told["chance"], told["mean_ap"]) == (pytest.approx(chance), pytest.approx(scores["mean_ap"]))
    tested = hwbench.test(
        hwbench.TestRequest(checkpoint=trained.checkpoint, clips=1, crops=1, threads=1, workers=0, device="cpu")
    ).to_json()
    assert (tested["chance"], tested["mean_ap"]) == (pytest.approx(chance), pytest.approx(scores["mean_ap"]))
    request = hwbench.ExportRequest(model="run", out="int8", keep_accuracy=100.0, threads=1)
    exported = hwbench.export(request, workspace=workspace).to_json()
    assert exported["top1_before"] == trained.top1 == scores["top1"]
    assert exported["mean_ap_before"] == pytest.approx(scores["mean_ap"])
    assert 0 < exported["mean_ap_after"] <= 1
    assert exported["top1_int8"] is not None
    manifest = json.loads((tmp_path / "int8" / "manifest.json").read_text())
    assert manifest["accuracy"]["mean_ap_after"] == exported["mean_ap_after"]
    assert "a sigmoid of each is the probability of its class" in (tmp_path / "int8" / "RUN.md").read_text()
