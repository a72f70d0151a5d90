"""Every reader, all the way: ``hwbench train --data READER:PATH`` and ``hwbench test`` on its small copy."""

import json
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

import pytest

from hwbench.cli.main import main
from hwbench.data import open_splits
from hwbench.testing.datasets import COPIES
from hwbench.workspace import Workspace

LITTLE = "little_reader_network:network@1x3x4x32x32"
NETWORK = """from torch import nn


def network(num_classes: int = 2) -> nn.Module:
    layers = nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2)), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, num_classes))
"""


def named(name: str) -> object:
    copy = COPIES[name]
    missing = bool(copy.needs) and not find_spec(copy.needs)
    skip = pytest.mark.skipif(missing, reason=f"needs {copy.needs}: pip install hwbench[huggingface]")
    return pytest.param(name, marks=[skip])


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict, str]:
    """What ``hwbench ... --json`` prints, and what it says."""
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--device", "cpu", "--threads", "1", "--workers", "0", "--json"])
    printed = capsys.readouterr()
    assert not end.value.code, printed.err
    return json.loads(printed.out), printed.err


@pytest.mark.parametrize("name", [named(name) for name in sorted(COPIES)])
def test_a_network_is_trained_and_tested_on_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Workspace.create(tmp_path)
    (tmp_path / "data").mkdir()
    data = COPIES[name].make(tmp_path / "data")
    (tmp_path / "little_reader_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    how = "--epochs", "1", "--batch-size", "2"
    trained, said = run(capsys, "train", LITTLE, "--data", f"{name}:{data}", "--out", "run", *how)
    assert trained["epochs"] == 1
    assert trained["unreadable"] == []
    assert ("2 of 8 listed videos are not there" in said) == (name == "kinetics")
    tested, _ = run(capsys, "test", "run/checkpoint.pt", "--made-by", LITTLE, "--clips", "2", "--crops", "1")
    splits = open_splits(Workspace.find(), f"{name}:{data}")
    assert tested["videos"] == len(splits.val)
    shown = [len(labels) if isinstance(labels, tuple) else 1 for labels in splits.val.labels]
    chance = fmean(shown) / len(splits.val.classes)
    assert trained["chance"] == tested["chance"] == pytest.approx(chance)
    assert ("mean_ap" in trained) == ("mean_ap" in tested) == any(isinstance(one, tuple) for one in splits.val.labels)
