import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from waiting import heeding

from hwbench.devices.base import Address, transports
from hwbench.devices.local import LocalTransport
from hwbench.testing.evaluations import gone
from hwbench.testing.transports import TransportConformance


class TestLocalTransport(TransportConformance):
    @pytest.fixture
    def transport(self):
        with LocalTransport() as transport:
            yield transport


def test_the_local_transport_is_registered():
    assert isinstance(transports.get("local").connect(Address("local")), LocalTransport)


def test_files_are_used_where_they_lie(tmp_path):
    path = tmp_path / "model.pte"
    path.write_bytes(b"x")
    with LocalTransport() as transport:
        assert transport.push(path) == str(path)


def test_temporary_files_are_removed():
    with LocalTransport() as transport:
        path = transport.temporary("x")
        assert transport.run(["touch", path], timeout_s=20).ok
        assert os.path.exists(path)
    assert not os.path.exists(path)
    assert not os.path.exists(os.path.dirname(path))


def test_a_program_without_rights_is_a_result(tmp_path):
    path = tmp_path / "program"
    path.write_text("#!/bin/sh\n")
    with LocalTransport() as transport:
        assert transport.run([str(path)], timeout_s=20).status == 126


def test_an_interrupt_does_not_leave_the_command_running(tmp_path):
    code = """
    import sys
    from hwbench.devices.local import LocalTransport
    script = 'echo $$ > "$1"; sleep 60'
    LocalTransport().run(["sh", "-c", script, "sh", sys.argv[1]], timeout_s=60)
    """
    mark = tmp_path / "pid"
    argv = [sys.executable, "-c", textwrap.dedent(code), str(mark)]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL, preexec_fn=heeding)
    deadline = time.monotonic() + 30
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.wait(30)
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_before_the_number_of_a_command_is_known_ends_it(tmp_path, number):
    """The program may run before the process that started it goes on."""
    code = """
    import os, signal, subprocess, sys
    from hwbench.devices.local import LocalTransport
    number, mark, real = int(sys.argv[1]), sys.argv[2], subprocess._fork_exec
    signal.signal(number, signal.default_int_handler)

    def interrupted(*arguments):
        pid = real(*arguments)
        with open(mark, "w") as file:
            file.write(str(pid))
        os.kill(os.getpid(), number)
        return pid

    subprocess._fork_exec = interrupted
    try:
        LocalTransport().run(["sleep", "60"], timeout_s=60)
    except KeyboardInterrupt:
        print("interrupted", signal.getsignal(number) is signal.default_int_handler)
    """
    mark = tmp_path / "pid"
    argv = [sys.executable, "-c", textwrap.dedent(code), str(int(number)), str(mark)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50, preexec_fn=heeding)
    assert (done.stdout, done.stderr) == ("interrupted True\n", "")
    assert gone([int(mark.read_text())])


def test_19_29_an_interrupt_while_a_command_starts_ends_it(monkeypatch):
    """A busy machine takes long from the fork to the program; Ctrl-C in between."""
    started, real = [], subprocess.Popen._execute_child

    def interrupted(self, *arguments):
        real(self, *arguments)
        started.append(self.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "_execute_child", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LocalTransport().run(["sleep", "60"], timeout_s=60)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)
