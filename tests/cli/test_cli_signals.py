"""Point 29: how a command ends by a signal, also where what started it ignores some, as a script or nohup does."""

import importlib
import os
import signal
import subprocess
import sys

import pytest
from devices.waiting import alive, heeding, in_the_background, wait_for

from hwbench.cli.main import main

# A command that waits, and that has something to put in order at its end.
PROGRAM = """
import os, sys, time
from pathlib import Path
from hwbench.api.requests import option, request
from hwbench.cli import main as program
from hwbench.cli.generated import add_command
from hwbench.cli.signals import ANEW, GOES_ON
@request
class Hold:
    path: Path = option(argument=True, help="Where to write at the end.")
def hold(request, as_json):
    try:
        child = os.fork() if os.environ.get("FORKED") else None
        if child == 0:
            print(os.getpid(), flush=True)  # a signal before this would be lost: Python forgets it at the fork
            os.closerange(0, 3)
        elif child is None:
            print("up", flush=True)
        time.sleep(100)
    finally:
        with request.path.open("a") as mark:
            mark.write("in order ")
add_command(program.app, "hold", Hold, hold, after=GOES_ON if "KEEPS" in os.environ else ANEW)
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


@pytest.mark.parametrize(
    ("number", "keeps", "after"),
    [
        *((number, {"KEEPS": "1"}, "the same command goes on where it stopped") for number in ENDS),
        (signal.SIGINT, {}, "the same command begins anew"),
        (signal.SIGTERM, {}, "the same command begins anew"),
    ],
)
def test_19_29_every_signal_that_ends_a_command_lets_it_put_things_in_order(start, tmp_path, number, keeps, after):
    process = start(heeding, **keeps)
    assert process.stdout.readline() == "up\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    status, how = ENDS[number]
    assert process.returncode == status
    assert err.splitlines() == [f"hwbench: {how}; {after}"]
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
    assert "terminated; the same command begins anew" in err
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


# A command that fails, and a stderr that Ctrl-C reaches as the error is told.
FAILING = """
import os, signal, sys
from hwbench.api.requests import request
from hwbench.cli import main as program
from hwbench.cli.generated import add_command
from hwbench.errors import VideoError
@request
class Fail:
    "Fail."
def fail(request, as_json):
    raise VideoError("clip.mp4: no video")
class Telling:
    told = False
    def write(self, text):
        sys.__stderr__.write(text)
        if text.endswith("\\n") and not self.told:
            self.told = True
            os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    def flush(self):
        sys.__stderr__.flush()
add_command(program.app, "fail", Fail, fail)
sys.stderr = Telling()
program.main(["fail"])
"""


@pytest.mark.parametrize("number", ENDS)
def test_19_29_a_signal_as_an_error_is_told_is_told_too(number):
    command = [sys.executable, "-c", FAILING, number.name]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=heeding)
    status, how = ENDS[number]
    assert done.returncode == status
    assert done.stderr.splitlines() == ["hwbench: clip.mp4: no video", f"hwbench: {how}"]


# A command that tells its result, and a library that Ctrl-C reaches as the process exits.
EXITING = """
import atexit, os, signal
from hwbench.api.requests import request
from hwbench.cli import main as program
from hwbench.cli.generated import add_command
@request
class Tell:
    "Tell."
def in_order():
    os.kill(os.getpid(), signal.SIGINT)
    print("in order", flush=True)
def tell(request, as_json):
    atexit.register(in_order)
    print("told", flush=True)
add_command(program.app, "tell", Tell, tell)
program.main(["tell"])
"""


def test_19_29_ctrl_c_after_the_result_leaves_the_exit_as_it_is():
    done = subprocess.run([sys.executable, "-c", EXITING], capture_output=True, text=True, preexec_fn=heeding)
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, ["told", "in order"], "")


# Words of commands that keep what they have done, and of those that do not.
KEEPING = (
    "profile",
    "search --budget 9ms",
    "train zoo:x3d-xs",
    "quickstart",
    "data check clips",
    "data prepare clips out",
    "zoo get x3d-xs",
)
BEGINNING = (
    "bench zoo:x3d-xs",
    "verify model",
    "export zoo:x3d-xs --out out",
    "report mine",
    "validate",
    "test checkpoint.pt",
    "data bench clips",
    "doctor",
)
# The function of the API that a command calls, where it is not named as the command.
FUNCTIONS = {
    "data check": "check_data",
    "data prepare": "prepare_data",
    "data bench": "bench_data",
    "zoo get": "get_weights",
}


@pytest.mark.parametrize(
    ("words", "after"),
    [
        *((words.split(), "the same command goes on where it stopped") for words in KEEPING),
        (["train", "zoo:x3d-xs", "--fresh"], "without --fresh the same command goes on where it stopped"),
        (["profile", "--remeasure"], "without --remeasure the same command goes on where it stopped"),
        (["bench", "zoo:x3d-xs", "--sustained"], "the same command begins anew, but for windows that are kept"),
        *((words.split(), "the same command begins anew") for words in BEGINNING),
    ],
    ids=str,
)
def test_19_only_a_command_that_keeps_what_it_did_is_said_to_go_on(monkeypatch, capsys, words, after):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    name = words[1] if words[0] in ("data", "zoo") else words[0]
    module = importlib.import_module(f"hwbench.cli.{'train' if name == 'test' else words[0]}")
    monkeypatch.setattr(module, FUNCTIONS.get(" ".join(words[:2]), name), interrupted)
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 130
    assert capsys.readouterr().err.splitlines() == [f"hwbench: interrupted; {after}"]
