"""A workspace with a space of a few blocks and few synthetic videos, and a listener that keeps what it hears."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hwbench.cli.main import main
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.workspace import Workspace

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
NETWORK = "micro:frames=4,resolution=32,s1.depth=1,s1.width=8,s1.expansion=2,s1.kernel=1x3x3+3x1x1,s1.se=0,s1.act=relu"
VIDEOS = "videos"


def make(root: Path) -> Workspace:
    """The workspace below ``root``; data lies in ``videos``, with two videos to train on and one to validate on."""
    made = Workspace.create(root)
    (made.root / "search_spaces" / "micro.toml").write_text(SPACE)
    shutil.move(prepare(made, SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=16)), root / VIDEOS)
    return made


def printed(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], str]:
    """The object that a command prints, and its talk; the command ends well."""
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--json"])
    out, err = capfd.readouterr()
    assert end.value.code == 0, err
    values: dict[str, Any] = json.loads(out)
    return values, err
