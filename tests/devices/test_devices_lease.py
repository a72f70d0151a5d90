import errno
import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
from waiting import heeding

from hwbench.devices import holder, leased
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


def test_a_process_may_take_its_lease_again():
    with leased("ssh:a:22"):
        with leased("ssh:a:22"):
            pass
        assert holder("ssh:a:22").pid == os.getpid()
        kept = leased("ssh:a:22")
        thread = threading.Thread(target=kept.__enter__)
        thread.start()
        thread.join()
    assert holder("ssh:a:22") is not None  # the thread's
    kept.__exit__(None, None, None)
    assert holder("ssh:a:22") is None


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
