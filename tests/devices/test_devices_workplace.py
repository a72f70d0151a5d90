import os
import subprocess
from dataclasses import replace

import pytest

from hwbench.api.devices.check import Check
from hwbench.devices import CommandResult, Device, probe_device
from hwbench.devices.base import Address
from hwbench.devices.device import read_device
from hwbench.devices.local import LocalTransport
from hwbench.devices.remote import RemoteTransport
from hwbench.devices.workplace import work_dir_fault
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable
from hwbench.testing.links import ShellLink
from hwbench.workspace import Workspace


def test_this_machine_runs_what_is_written():
    with LocalTransport() as transport:
        assert work_dir_fault(transport) == ""


class Elsewhere(LocalTransport):
    """This machine with another work folder."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def temporary(self, name):
        return str(self.folder / name)


def test_a_folder_that_cannot_be_written(tmp_path):
    with Elsewhere(tmp_path / "none") as transport:
        assert work_dir_fault(transport).startswith("it cannot be written: ")


def test_a_disk_mounted_noexec(tmp_path):
    mount = f"mount -t tmpfs -o noexec none {tmp_path}"
    inside = ["unshare", "-Urm", "sh", "-c", f"{mount} && sleep 0"]
    if subprocess.run(inside, capture_output=True, timeout=30).returncode:
        pytest.skip("no name spaces here: sysctl kernel.unprivileged_userns_clone=1")

    class Noexec(Elsewhere):
        def run(self, argv, **options):
            return super().run(["unshare", "-Urm", "sh", "-c", f'{mount} && exec "$@"', "sh", *argv], **options)

    with Noexec(tmp_path) as transport:
        assert "mounted noexec" in work_dir_fault(transport)


def test_what_refuses_is_said_and_what_is_lost_is_raised():
    class Refuses(LocalTransport):
        def temporary(self, name):
            raise DeviceError("no\nspace")

    class Lost(LocalTransport):
        def run(self, argv, **options):
            raise DeviceLost("gone")

    class Slow(LocalTransport):
        def run(self, argv, **options):
            return CommandResult(-9, timed_out=True)

    assert work_dir_fault(Refuses()) == "no space"
    assert work_dir_fault(Slow()) == "no answer after 30 s"
    with pytest.raises(DeviceLost):
        work_dir_fault(Lost())


def test_the_local_device_is_examined_where_its_programs_lie(tmp_path, monkeypatch):
    """Nothing is copied to it: neither the folder of temporary files nor ``work_dir`` matters."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace = Workspace.create(tmp_path / "bench")
    local = read_device(workspace.device("local"))
    assert replace(local, workspace=workspace).files_dir == str(workspace.cache)
    check = Check(workspace, replace(local, workspace=workspace), 0)
    step = next(step for step in check.steps() if step.name == "work_dir")
    assert (step.state, step.found) == ("ok", f"{workspace.cache}: programs start there")
    assert os.listdir(workspace.cache) == []


def test_a_check_blames_a_lost_connection_on_no_runner(tmp_path):
    workspace, link = Workspace.create(tmp_path / "bench"), ShellLink()
    check = Check(workspace, Device("board", "ssh", workspace=workspace), 0)
    with RemoteTransport(link, Address("board", work_dir=str(tmp_path / "there")), pauses_s=[0.0]) as transport:
        probe = probe_device(transport)
        link.cut()
        link.refusals = 1
        with pytest.raises(DeviceLost):
            check._runner(transport, probe)
        with pytest.raises(DeviceUnreachable):
            work_dir_fault(transport)
        assert work_dir_fault(transport) == ""


def test_a_program_is_started_where_it_is_said(tmp_path):
    with Elsewhere(tmp_path / "none") as transport:
        assert work_dir_fault(transport, str(tmp_path / "start")) == ""
        assert work_dir_fault(transport, str(tmp_path / "none" / "start")).startswith("it cannot be written: ")
