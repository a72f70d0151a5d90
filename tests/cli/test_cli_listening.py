"""The listener of the command line: bars and questions on stderr."""

import os
import pty
import re
import subprocess
import sys

import pytest

from hwbench.api.listener import SILENT, StageProgress
from hwbench.cli.listening import TerminalListener, listening


@pytest.mark.parametrize(("typed", "answer"), [(b"y\n", True), (b"n\n", False), (b"\n", False), (b"\x04", False)])
def test_a_question_is_asked_on_the_terminal(monkeypatch, capsys, typed, answer):
    person, keyboard = pty.openpty()
    os.write(person, typed)
    with os.fdopen(keyboard) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert TerminalListener().confirm("delete it?") is answer
    os.close(person)
    out, err = capsys.readouterr()
    assert out == ""
    assert "delete it? [y/N]" in err


def test_without_a_terminal_there_is_nobody_to_ask(monkeypatch, capsys):
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert TerminalListener().confirm("delete it?") is None
    assert capsys.readouterr() == ("", "")
    assert SILENT.confirm("delete it?") is None


@pytest.mark.parametrize(
    ("program", "closed", "said"),
    [
        ("from hwbench.cli.listening import TerminalListener; print(TerminalListener().confirm('?'))", "<&-", "None\n"),
        ("from hwbench.cli.output import print_table; print_table(('a',), [('b',)])", ">&-", ""),
    ],
)
def test_stdin_and_stdout_may_be_closed(program, closed, said):
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_a_command_may_bring_a_listener_and_its_bars_are_taken_down():
    class Counting(TerminalListener):
        closed = 0

        def close(self):
            super().close()
            self.closed += 1

    mine = Counting()
    with listening(mine) as listener:
        listener.progress(StageProgress("build", 0, 2))
        listener.progress(StageProgress("build", 1, 2))
    assert listener is mine
    assert mine.closed == 1
    with pytest.raises(KeyboardInterrupt), listening(mine):
        raise KeyboardInterrupt
    assert mine.closed == 2


@pytest.mark.parametrize("bars", [False, True])
def test_what_is_printed_meanwhile_is_talk(monkeypatch, capsys, bars):
    """As by an evaluator of another package, while a bar is shown or not."""
    monkeypatch.setattr("hwbench.cli.output.talk._force_terminal", bars)
    with listening() as listener:
        listener.progress(StageProgress("score", 0, 2))
        print("loading the weights")
    print("the result")

    def interrupted():
        with listening() as listener:
            listener.progress(StageProgress("score", 0, 2))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    print("and more")
    out, err = capsys.readouterr()
    assert out == "the result\nand more\n"
    assert "loading the weights" in err


TEXTS = ["a video [v.mp4] failed", "[/data/v.mp4]", "[bold]loud", "the :100: best :warning: [/]"]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_bars_are_shown_as_they_are(monkeypatch, capsys, text):
    monkeypatch.setattr("hwbench.cli.output.talk._force_terminal", True)
    monkeypatch.setattr("hwbench.cli.output.talk._width", 300)
    with listening() as listener:
        listener.progress(StageProgress(f"stage {text}", 0, 2))
        listener.progress(StageProgress(f"stage {text}", 2, 2, rate=f"rate {text}", note=f"note {text}"))
    _, err = capsys.readouterr()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err)
    assert all(f"{field} {text}" in shown for field in ("stage", "rate", "note"))


def test_texts_of_bars_are_one_line_and_move_no_cursor(monkeypatch, capsys):
    monkeypatch.setattr("hwbench.cli.output.talk._force_terminal", True)
    with listening() as listener:
        listener.progress(StageProgress("race", 0, 2))
        listener.progress(StageProgress("race", 2, 2, note="not decoded:\nv\x1b[9Aw.mp4"))
    assert "not decoded: v[9Aw.mp4" in capsys.readouterr().err


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("bars", [False, True])
def test_lines_of_talk_are_shown_as_they_are(monkeypatch, capsys, text, bars):
    monkeypatch.setattr("hwbench.cli.output.talk._force_terminal", bars)
    with listening() as listener:
        listener.progress(StageProgress("score", 0, 2))
        listener.say(f"said {text}")
        print(f"printed {text}")
        print(f"flushed {text}", end="", flush=True)
    _, err = capsys.readouterr()
    assert all(f"{how} {text}" in err for how in ("said", "printed", "flushed"))


class Clock:
    """Seconds that the test moves."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


def course(clock, capsys, seconds):
    """What is told after each of so many steps of two stages, a step each so many seconds; then their bars."""
    told = []
    with listening(TerminalListener(clock)) as listener:
        listener.progress(StageProgress("build", 0, 2))
        for done in range(5):
            listener.progress(StageProgress("measure", done, 9, rate="2/min" if done else "", note="s9\nhot"))
            told.append(capsys.readouterr().err)
            clock.now_s += seconds
    return told, capsys.readouterr().err


def test_in_a_log_a_line_a_minute_tells_where_a_stage_is(capsys):
    told, bars = course(Clock(), capsys, 30)
    assert told == ["", "", "measure 2/9, 2/min, s9 hot\n", "", "measure 4/9, 2/min, s9 hot\n"]
    assert [line.split()[0] for line in bars.splitlines()] == ["build", "measure"]


def test_in_a_log_stages_of_less_than_a_minute_are_their_bars(capsys):
    told, bars = course(Clock(), capsys, 14)
    assert told == [""] * 5
    assert "4/9" in bars


def test_a_stage_that_begins_again_has_its_own_minute_and_its_length_may_be_unknown(capsys):
    clock = Clock()
    with listening(TerminalListener(clock)) as listener:
        for done in (0, 1, 0, 1):
            listener.progress(StageProgress("score", done, None))
            clock.now_s += 40
        capsys.readouterr()
        clock.now_s += 1
        listener.progress(StageProgress("score", 2, None))
        assert capsys.readouterr().err == "score 2/?\n"


@pytest.mark.parametrize(("terminal", "lines"), [("xterm", False), ("dumb", True)])
def test_a_terminal_that_draws_bars_is_told_no_lines(monkeypatch, capsys, terminal, lines):
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr("hwbench.cli.output.talk._force_terminal", True)
    told, _ = course(Clock(), capsys, 61)
    assert any("measure 4/9, 2/min, s9 hot\n" in text for text in told) == lines


# A command while which C, a process and Python print; with --interrupted a SIGINT comes before its result.
NOISY = """
import ctypes, os, signal, subprocess, sys
from hwbench.api.requests import option, request
from hwbench.cli import main as program
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit
@request
class Noisy:
    interrupted: bool = option(default=False, help="Ends in the middle.")
def noisy(request, as_json):
    c = ctypes.CDLL(None)
    with listening():
        c.printf(b"C\\n")
        os.write(1, b"descriptor\\n")
        subprocess.run(["echo", "process"], check=True)
        print("Python")
        if request.interrupted:
            os.kill(os.getpid(), signal.SIGINT)
    emit({"result": 1}, as_json=as_json)
    c.printf(b"C at the end\\n")
add_command(program.app, "noisy", Noisy, noisy)
signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background, it is ignored
program.main(["noisy", *sys.argv[1:]])
"""


def noisy(*words, stderr=subprocess.PIPE):
    command = [sys.executable, "-c", NOISY, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("words", "status", "result"),
    [(["--json"], 0, '{\n  "result": 1\n}\n'), ([], 0, "result  1\n"), (["--json", "--interrupted"], 130, "")],
)
def test_what_is_not_printed_by_python_is_talk_too(words, status, result):
    done = noisy(*words)
    assert (done.returncode, done.stdout.replace(" \n", "\n")) == (status, result)
    printed = ["C", "descriptor", "process", "Python", *([] if status else ["C at the end"])]
    assert sorted({*printed} & {*done.stderr.splitlines()}) == sorted(printed)


def test_with_stdout_and_stderr_in_one_file_nothing_is_lost():
    lines = noisy("--json", stderr=subprocess.STDOUT).stdout.splitlines()
    assert sorted(lines) == sorted(["C", "descriptor", "process", "Python", "{", '  "result": 1', "}", "C at the end"])
