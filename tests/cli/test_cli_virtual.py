"""Point 7: the laboratory that is ended is the one that was started, not who has its number now."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hwbench.devices import Device, virtual
from hwbench.workspace import Workspace


@pytest.fixture
def serving():
    """The laboratory of somebody else, as far as its command line tells."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", virtual.PROGRAM])
    yield process
    process.kill()
    process.wait()


def began(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def record(workspace, **values):
    path = workspace.root / ".hwbench" / "labs" / "lab.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(values))
    return path


def test_19_07_another_laboratory_with_the_number_of_ours_lives(tmp_path, serving):
    workspace = Workspace.create(tmp_path / "bench")
    path = record(workspace, pid=serving.pid, started="1", adb=None)
    assert not virtual.stop(workspace, "lab")
    assert not path.exists()
    time.sleep(0.1)
    assert serving.poll() is None


@pytest.mark.parametrize(("over", "option"), [("ssh", ""), ("adb", " --over adb")])
def test_a_laboratory_that_has_ended_is_started_again_as_it_was_reached(tmp_path, over, option):
    workspace = Workspace.create(tmp_path / "bench")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    record(workspace, pid=ended.pid, adb=None)
    device = Device("lab", over, emulated=True, workspace=workspace)
    assert virtual.advice(device).endswith(f": hwbench devices add lab --virtual{option} --force")


@pytest.mark.parametrize("new", [True, False], ids=["with its start", "as older versions wrote it"])
def test_19_07_our_laboratory_is_ended(tmp_path, serving, new):
    workspace = Workspace.create(tmp_path / "bench")
    record(workspace, pid=serving.pid, adb=None, **({"started": began(serving.pid)} if new else {}))
    assert virtual.stop(workspace, "lab")
    assert serving.wait(20) == -15
