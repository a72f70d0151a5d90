"""Point 9: process groups are signalled while their number is theirs."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from waiting import alive, wait_for

from hwbench.devices.local import LocalTransport

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def is_ours(group):
    """The leader of the group is a child of ours that nobody has waited for."""
    try:
        words = Path(f"/proc/{group}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(words[1]) == os.getpid()


@pytest.fixture
def signalled(monkeypatch):
    """The groups that were signalled, and whether each was ours at that moment."""
    groups, killpg = [], os.killpg

    def watched(group, number):
        groups.append((group, is_ours(group)))
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", watched)
    return groups


def run(transport):
    transport.run(["true"], timeout_s=60)


def run_to_its_limit(transport):
    transport.run(["sleep", "600"], timeout_s=0.2)


def spawn(transport):
    process = transport.spawn(["true"])
    process.wait(60)
    process.wait(60)
    process.kill()
    process.close()


def spawn_and_kill(transport):
    process = transport.spawn(["sleep", "600"])
    process.kill()
    process.kill()
    process.wait(60)
    process.kill()


@pytest.mark.parametrize("use", [run, run_to_its_limit, spawn, spawn_and_kill])
def test_19_09_no_group_is_signalled_after_its_leader_was_waited_for(signalled, use):
    with LocalTransport() as transport:
        use(transport)
    assert signalled
    assert all(ours for _, ours in signalled)


@pytest.mark.skipif(not os.access(LAST_PID, os.W_OK), reason="run it as root: it chooses the number of a process")
def test_19_09_who_gets_the_number_of_a_group_that_ended_lives():
    with LocalTransport() as transport:
        for _ in range(50):  # what else runs on this machine may take the number first, and keep it
            process = transport.spawn(["true"])
            process.wait(60)
            number = process._process.pid
            LAST_PID.write_text(str(number - 1))
            other = subprocess.Popen(["sleep", "600"], start_new_session=True)
            if other.pid == number:
                break
            other.kill()
            other.wait()
        try:
            assert other.pid == number
            process.kill()
            transport.close()
            assert alive(number)
            with pytest.raises(subprocess.TimeoutExpired):
                other.wait(0.2)
        finally:
            other.kill()
            other.wait()


def test_19_09_what_a_command_leaves_in_its_group_ends_with_it(tmp_path):
    script = 'sleep 600 > /dev/null 2>&1 & echo $! > "$1"'
    with LocalTransport() as transport:
        assert transport.run(["sh", "-c", script, "sh", str(tmp_path / "run")], timeout_s=60).ok
        process = transport.spawn(["sh", "-c", script, "sh", str(tmp_path / "spawn")])
        assert process.wait(60).ok
        for name in ("run", "spawn"):
            pid = int((tmp_path / name).read_text())
            wait_for(lambda pid=pid: not alive(pid))


def test_a_killed_process_is_waited_for_and_holds_no_file():
    held = len(os.listdir("/proc/self/fd"))
    with LocalTransport() as transport:
        ended = [transport.spawn(["sh", "-c", "echo one; echo two; echo bad >&2; exit 3"]) for _ in range(4)]
        for process in ended:
            assert process.read_line(60) == "one"
            assert process.wait(60).status == 3
            process.kill()
        killed = [transport.spawn(["sleep", "600"]) for _ in range(4)]
        for process in (*killed, transport.spawn(["hwbench-no-such-program"])):
            process.kill()
        assert len(os.listdir("/proc/self/fd")) == held
        assert not any(alive(process._process.pid) for process in (*ended, *killed))
        assert [(process.wait(60).status, process.wait(60).stderr) for process in ended] == [(3, "bad\n")] * 4
        assert [process.read_line(60) for process in ended] == ["two"] * 4
        assert [process.read_line(60) for process in (*ended, *killed)] == [None] * 8
        assert {process.wait(60).status for process in killed} == {-signal.SIGKILL}


def test_19_09_one_thread_waits_while_another_kills(signalled):
    with LocalTransport() as transport:
        for _ in range(20):
            process = transport.spawn(["sleep", "600"])
            threads = [threading.Thread(target=process.kill) for _ in range(4)]
            for thread in threads:
                thread.start()
            assert process.wait(60).status == -signal.SIGKILL
            for thread in threads:
                thread.join()
    assert all(ours for _, ours in signalled)


def test_19_09_where_the_system_waits_for_children_commands_run_all_the_same():
    code = """
    import signal
    from hwbench.devices.local import LocalTransport
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with LocalTransport() as transport:
        assert transport.run(["echo", "said"], timeout_s=60).stdout == "said\\n"
        assert transport.run(["sleep", "600"], timeout_s=0.2).timed_out
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)
