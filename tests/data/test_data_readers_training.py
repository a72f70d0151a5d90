"""Every reader, all the way: ``hwbench train --data READER:PATH`` and ``hwbench test`` on its small copy."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from hwbench.cli.main import main
from hwbench.testing.datasets import COPIES

LITTLE = "little_reader_network:network@1x3x4x32x32"
NETWORK = """from torch import nn


def network(num_classes: int = 2) -> nn.Module:
    layers = nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2)), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, num_classes))
"""
SEVERAL = "no loss for videos that show several classes yet"


def named(name: str) -> object:
    copy = COPIES[name]
    missing = bool(copy.needs) and not find_spec(copy.needs)
    skip = pytest.mark.skipif(missing, reason=f"needs {copy.needs}: pip install hwbench[huggingface]")
    several = [pytest.mark.xfail(strict=True, reason=SEVERAL)] if copy.multi_label else []
    return pytest.param(name, marks=[skip, *several])


@pytest.mark.parametrize("name", [named(name) for name in sorted(COPIES)])
def test_a_network_is_trained_and_tested_on_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    data = COPIES[name].make(tmp_path / "data")
    (tmp_path / "little_reader_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    few = ["--threads", "1", "--device", "cpu"]
    where = ["--data", f"{name}:{data}", "--out", "run", "--epochs", "1", "--batch-size", "2", "--workers", "0"]
    assert main(["init", "."]) in (0, None)
    assert main(["train", LITTLE, *where, *few, "--json"]) in (0, None)
    trained = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert trained["unreadable"] == []
    assert main(["test", "run/checkpoint.pt", "--made-by", LITTLE, *few, "--json"]) in (0, None)
    tested = json.loads(capsys.readouterr().out)
    assert tested["videos"] == trained["videos"] if "videos" in trained else tested["videos"] > 0


def test_small_copies_can_be_told_apart() -> None:
    assert isinstance(nn.Identity()(torch.zeros(1)), torch.Tensor)
