import errno
import os
import pathlib
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import heeding

from hwbench.devices import holder, leased
from hwbench.devices.lease import folder
from hwbench.errors import DeviceBusy, WorkspaceError

HOLD = """
import sys, time
from hwbench.devices import leased
with leased(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def other():
    """Starts a process that holds a device."""
    started = []

    def start(identity, *words):
        argv = [sys.executable, "-c", HOLD, identity, *words]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=heeding)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_second_is_told_who_was_first(other):
    process = other("adb:R58")
    with (
        pytest.raises(DeviceBusy, match=rf"adb:R58 .* process {process.pid} on .* since 20\d\d-") as caught,
        leased("adb:R58"),
    ):
        pass
    assert caught.value.exit_status == 3
    assert holder("adb:R58").pid == process.pid
    with leased("adb:R59"):
        pass


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--storage", "postgresql://me:qX7@db/studies"], "--storage 'postgresql://me:***@db/studies'"),
        (["--storage=postgresql://me:qX7/p@qX7@db:54/studies"], "'--storage=postgresql://me:***@db:54/studies'"),
        (["postgresql://db/a?sslmode=no&sslpassword=qX7&x=1"], "'postgresql://db/a?sslmode=no&sslpassword=***&x=1'"),
        (["postgresql://me:qX7\n@db/a?password=qX7"], "'postgresql://me:***@db/a?password=***'"),
        (["postgresql://me@db/a", "grpc://[::1]:5@"], "postgresql://me@db/a"),
        (["--weights", "x:qX8@password=y"], "--weights x:qX8@password=y"),
        (["a" * 180, "postgresql://me:qX7" + "b" * 200 + "@db"], "a" * 180),
    ],
)
def test_19_nobody_reads_the_password_of_a_url_in_a_lease(other, state, words, shown):
    other("adb:R58", *words)
    (path,) = (state / "hwbench" / "leases").iterdir()
    assert "qX7" not in path.read_text()
    with pytest.raises(DeviceBusy) as caught, leased("adb:R58"):
        pass
    assert "qX7" not in str(caught.value)
    assert shown in str(caught.value)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_lease_ends_with_its_process(other, number):
    process = other("adb:R58")
    process.send_signal(number)
    process.wait()
    assert holder("adb:R58") is None
    with leased("adb:R58"):
        assert holder("adb:R58").pid == os.getpid()
    assert holder("adb:R58") is None


def test_a_thread_may_take_its_lease_again():
    with leased("ssh:a:22"):
        with leased("ssh:a:22"):
            pass
        assert holder("ssh:a:22").pid == os.getpid()
    assert holder("ssh:a:22") is None


def test_another_thread_does_not_get_the_lease_of_a_thread():
    def taken_elsewhere(identity, address=""):
        """The lease, which a thread that has ended took."""
        lease = leased(identity, address)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lease.__enter__).result()
        return lease

    expected = "adb:1 is in use by another thread of this process; two at a time would measure each other"
    with leased("adb:1"), leased("unit:a", "adb:1"):
        other = taken_elsewhere("adb:2")
        with pytest.raises(DeviceBusy, match=expected):
            taken_elsewhere("adb:1")
        with pytest.raises(DeviceBusy, match="the device adb:3 is in use by another thread"):
            taken_elsewhere("unit:a", "adb:3")
    other.__exit__(None, None, None)
    kept = taken_elsewhere("adb:1")
    with pytest.raises(DeviceBusy, match=expected), leased("adb:1"):
        pass
    kept.__exit__(None, None, None)
    with leased("adb:1"):
        pass
    assert holder("adb:1") is None


def test_a_lease_survives_an_exception():
    with pytest.raises(ZeroDivisionError), leased("ssh:b:22"):
        raise ZeroDivisionError
    assert holder("ssh:b:22") is None


def test_a_damaged_file_and_one_that_is_not_written_yet(other, state):
    process = other("adb:R58")
    (path,) = (state / "hwbench" / "leases").iterdir()
    for text in ("", "{", '{"pid": 1}', "\x00\xff"):
        path.write_text(text)
        with pytest.raises(DeviceBusy, match="just begun"), leased("adb:R58"):
            pass
    process.kill()
    process.wait()
    with leased("adb:R58"):
        assert holder("adb:R58").pid == os.getpid()


def test_a_lease_of_another_user_is_one_line(state, monkeypatch):
    with leased("adb:R58"):
        pass

    def refused(*arguments):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(pathlib.Path, "open", refused)
    with pytest.raises(WorkspaceError, match=r"leases/.*not writable"):
        holder("adb:R58")


def test_a_state_folder_that_cannot_be_made(state):
    state.write_text("a file")
    with pytest.raises(WorkspaceError, match="hwbench"), leased("adb:R58"):
        pass


def test_a_relative_state_folder_is_none(tmp_path, monkeypatch):
    """It would be another one in each folder, and so be no lock."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", ".state")
    assert folder() == tmp_path / "home" / ".local" / "state" / "hwbench" / "leases"


def test_a_state_folder_that_cannot_be_written_can_be_chosen(state):
    state.write_text("")
    with (
        pytest.raises(WorkspaceError, match=r"choose another directory.*export XDG_STATE_HOME=DIR$"),
        leased("local:x"),
    ):
        pass


# As docker run --user 54321 has it: nothing is known of the user. Modules first: not all may be readable afterwards.
NOBODY = """
import getpass, os, pwd, sys
import paramiko
from hwbench.data.readers import tar_index
from hwbench.devices import lease
from hwbench.devices.base import Address
from hwbench.devices.route import route
from hwbench.errors import HwbenchError
from pathlib import Path
os.setgroups([]); os.setgid(54321); os.setuid(54321)
for key in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
    os.environ.pop(key, None)
address = Address("pi", {"host": "pi.local", "user": "pi"})
for set_variable in ({}, {"USER": "me"}, {"HOME": "/tmp"}):
    os.environ.update(set_variable)
    for call in (lease.folder, lambda: len(route(address)), lambda: len(tar_index._cache_files(Path("a.tar")))):
        try:
            print(call())
        except HwbenchError as error:
            print(type(error).__name__, error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="run as root: a process becomes a user without a name")
def test_a_user_without_a_name_or_a_home_is_told_what_to_set():
    done = subprocess.run([sys.executable, "-c", NOBODY], capture_output=True, text=True)
    assert done.stderr == ""
    no_home = (
        "WorkspaceError this user has no home, where it stands which devices are in use; name a folder that can be "
        "written: export XDG_STATE_HOME=DIR"
    )
    assert done.stdout.splitlines() == [
        *(no_home, "InvalidValue this user (54321) has no name here, which ssh needs: export USER=NAME", "0"),
        *(no_home, "InvalidValue this user (54321) has no home here, which ssh needs: export HOME=DIR", "0"),
        *("/tmp/.local/state/hwbench/leases", "1", "1"),
    ]
