"""The listener of the command line: bars and questions on stderr."""

import os
import pty
import re
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
