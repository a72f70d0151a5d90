"""Point 29: how a command ends by a signal, also where what started it ignores some, as a script or nohup does."""

import os
import signal
import subprocess
import sys

import pytest
from devices.waiting import alive, heeding, in_the_background, wait_for

# A command that waits, and that has something to put in order at its end.
PROGRAM = """
import os, sys, time
from pathlib import Path
from hwbench.cli import main as program
@program.app.command("hold")
def hold(path: Path) -> None:
    try:
        child = os.fork() if os.environ.get("FORKED") else None
        if child == 0:
            print(os.getpid(), flush=True)  # a signal before this would be lost: Python forgets it at the fork
            os.closerange(0, 3)
        elif child is None:
            print("up", flush=True)
        time.sleep(100)
    finally:
        with path.open("a") as mark:
            mark.write("in order ")
program.main(["hold", *sys.argv[1:]])
"""
ENDS = {
    signal.SIGINT: (130, "interrupted"),
    signal.SIGTERM: (143, "terminated"),
    signal.SIGHUP: (129, "the terminal was closed"),
}


@pytest.fixture
def start(tmp_path):
    """Starts the command; gives its process once it waits."""
    started = []

    def start(signals, **env):
        argv = [sys.executable, "-c", PROGRAM, str(tmp_path / "mark")]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            argv, stdout=pipe, stderr=pipe, text=True, preexec_fn=signals, env={**os.environ, **env}
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", ENDS)
def test_19_29_every_signal_that_ends_a_command_lets_it_put_things_in_order(start, tmp_path, number):
    process = start(heeding)
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    status, how = ENDS[number]
    assert process.returncode == status
    assert err.splitlines() == [f"hwbench: {how}; the same command goes on where it stopped"]
    assert (tmp_path / "mark").read_text() == "in order "


def test_19_29_in_the_background_a_command_ends_by_sigterm_and_heeds_nothing_else(start, tmp_path):
    process = start(in_the_background)
    assert process.stdout.readline() == "up\n"
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "terminated; the same command goes on" in err
    assert (tmp_path / "mark").read_text() == "in order "


def test_19_29_a_child_that_was_forked_ends_as_it_always_did(start, tmp_path):
    process = start(heeding, FORKED="1")
    child = int(process.stdout.readline())
    os.kill(child, signal.SIGTERM)
    wait_for(lambda: not alive(child))
    assert not (tmp_path / "mark").exists()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert (tmp_path / "mark").read_text() == "in order "
