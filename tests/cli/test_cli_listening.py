"""The listener of the command line: bars and questions on stderr."""

import os
import pty
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
