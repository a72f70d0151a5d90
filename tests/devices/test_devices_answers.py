"""Numbers and lists that no device means, where they are read."""

import pytest

from hwbench.devices.base import Address, CommandResult
from hwbench.devices.depot import Depot
from hwbench.devices.device_text import MAX_CPUS, number, parse_cpu_list
from hwbench.devices.lease import Holder
from hwbench.measure.remote_toolchain import ask_board, ask_python
from hwbench.runtimes.machine import hottest


class Saying:
    """A device that says one thing."""

    def __init__(self, text):
        self.text = text

    def run(self, argv, *, timeout_s, env=None, stdin=""):
        return CommandResult(0, self.text)


@pytest.mark.parametrize(
    "text",
    [
        "0-99999999999",
        4096 * "0," + "0-99999999999",
        4096 * "0," + "x",
        4096 * "0," + "\u00b2",
        "\u00b2",
        "1-",
        "-1",
        "",
    ],
)
def test_19_13_a_list_of_processors_that_is_none(text):
    assert parse_cpu_list(text) == ()


def test_a_list_of_processors_has_an_end():
    assert parse_cpu_list("0-3,8") == (0, 1, 2, 3, 8)
    assert parse_cpu_list("0-99999") == tuple(range(MAX_CPUS))


@pytest.mark.parametrize("text", ["\u00b2", "1.2.3", 5000 * "9", "1e400", "NaN", "-1", "0x10", "\u0663"])
def test_19_13_a_number_that_is_none(text):
    assert number(text) == 0
    assert hottest([("cpu", text)]) in (0, 3000)  # a decimal of another script is one


@pytest.mark.parametrize("size", ["\u00b2", 5000 * "9", "-1"])
def test_19_13_sizes_that_do_not_read_are_none(size):
    name = 64 * "a" + ".pte"
    said = CommandResult(0, f"{name}\n/\n{size} {name}\n")
    depot = Depot(Address("board", {}), "owner", None, lambda *_, **__: said)
    depot._work = "/tmp/hwbench"
    assert depot._list() == {name: 0}


@pytest.mark.parametrize("version", [f"3.{5000 * '9'}", "\u00b2.1", "3", "3.x", "-3.1"])
def test_19_13_a_python_of_no_version(version):
    assert ask_python(Saying(f"hwbench {version} 1.5.1 2.11 2.0"), "python3", ("executorch", "torch", "numpy")) is None


def test_19_13_a_board_that_says_half():
    board = ask_board(Saying("== end\n"), "aarch64")
    assert (board.loader, board.compilers, board.programs) == ("", (), frozenset())


def test_19_13_who_holds_a_device_is_one_line():
    assert str(Holder("adb:1", 7, "\x1b[2J\ud800", "a\nb", "now")) == "process 7 on [2J (a b) since now"
