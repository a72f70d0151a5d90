import subprocess

import pytest

from hwbench.devices import CommandResult
from hwbench.devices.local import LocalTransport
from hwbench.devices.workplace import work_dir_fault
from hwbench.errors import DeviceError, DeviceLost


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
