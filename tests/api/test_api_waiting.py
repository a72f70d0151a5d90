"""A device that another process holds: a search waits for it, what begins by measuring does not."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from hwbench.api import campaigns
from hwbench.devices import leased, load_device
from hwbench.errors import DeviceBusy
from hwbench.measure.store import MeasurementStore
from hwbench.testing.listeners import Keeper
from hwbench.workspace import Workspace

HOLD = """
import sys
from hwbench.devices import leased
with leased(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


class Releasing(Keeper):
    """Lets go of the device when it hears that somebody waits for it."""

    def __init__(self, holder):
        super().__init__()
        self.holder = holder

    def say(self, message):
        super().say(message)
        if "this command waits" in message:
            self.holder.stdin.close()


@pytest.fixture
def workspace(tmp_path, runner_cache, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(campaigns, "_LOOK_S", 0.1)
    made = Workspace.create(tmp_path / "bench")
    made.cache.symlink_to(runner_cache)
    return made


@pytest.fixture
def identity(workspace):
    with load_device(workspace, "local").transport() as transport:
        return transport.identity


@pytest.fixture
def holder(workspace, identity):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, identity], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def opened(workspace, listener, **options):
    with (
        MeasurementStore(workspace.store) as store,
        campaigns.place_campaign(
            store, workspace, load_device(workspace, "local"), listener=listener, **options
        ) as campaign,
    ):
        return campaign.target.device


def test_who_waits_begins_once_the_other_has_ended(workspace, holder):
    ears = Releasing(holder)
    assert opened(workspace, ears, waits=True) == "local"
    (line,) = [line for line in ears.lines if "is in use by" in line]
    assert f"process {holder.pid}" in line
    assert line.endswith("; this command waits, and goes on then")


def test_others_are_refused(workspace, holder):
    with pytest.raises(DeviceBusy, match=f"process {holder.pid}"):
        opened(workspace, Keeper())


def test_nobody_waits_for_another_thread_of_the_same_process(workspace, identity):
    with leased(identity), ThreadPoolExecutor(1) as pool, pytest.raises(DeviceBusy, match="another thread"):
        pool.submit(opened, workspace, Keeper(), waits=True).result()
