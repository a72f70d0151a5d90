"""Marks around a command: found wherever the stream is cut, and taken out of it."""

import re
import subprocess

import pytest

from hwbench.devices.adb_channel import Marks


def marked(command):
    """What a shell writes to stderr for a framed command, and the marks."""
    marks = Marks()
    result = subprocess.run(["sh", "-c", marks.frame(command)], capture_output=True, timeout=20)
    return marks, result.stderr


@pytest.mark.parametrize("talk", [b"", b"* daemon started successfully\n", b"error: closed"])
@pytest.mark.parametrize("late", [b"", b"late\n"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_commands_own_bytes_are_left(talk, late, size):
    marks, written = marked("echo one >&2; printf two >&2; exit 7")
    stream = talk + written + late
    given = b"".join(marks.feed(stream[at : at + size]) for at in range(0, len(stream), size)) + marks.feed(b"")
    assert given == b"one\ntwo" + late
    assert (marks.talk, marks.begun, marks.status) == (talk, True, 7)


def test_nothing_is_held_back_for_long():
    marks, written = marked("echo question >&2")
    end = written.rindex(b"question\n") + len(b"question\n")
    assert marks.feed(written[:end]) == b"question\n"


def test_a_command_that_did_not_end_has_no_status():
    marks, written = marked("echo one >&2; kill -9 $$")
    assert marks.feed(written) + marks.feed(b"") == b"one\n"
    assert (marks.begun, marks.status) == (True, None)
    talk = Marks()
    assert talk.feed(b"error: device 'x' not found\n") + talk.feed(b"") == b""
    assert (talk.begun, talk.talk) == (False, b"error: device 'x' not found\n")


def test_a_mark_that_is_cut_off_is_given_as_it_is():
    marks, written = marked("echo one >&2")
    cut = written[:-4]
    given = marks.feed(cut) + marks.feed(b"")
    assert given.startswith(b"one\n")
    assert marks.status is None


def test_the_command_cannot_know_the_marks():
    first, second = (re.findall(r"[0-9a-f]{32}", Marks().frame("true")) for _ in range(2))
    assert len(set(first)) == len(set(second)) == 1
    assert set(first) != set(second)


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 3", 3), ("false # a comment", 1), ("exec sh -c 'exit 5'", 5), ("no-such-program", 127), ("true &", 0)],
)
def test_any_line_of_shell_can_be_framed(command, status):
    marks, written = marked(command)
    marks.feed(written)
    assert marks.status == status
