"""Signals that end a command: what Ctrl-C lets run at the end also runs on SIGTERM and when the terminal is closed."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

_ENDING = (signal.SIGTERM, signal.SIGHUP)
# As a shell reports a process that Ctrl-C ended.
INTERRUPTED = 128 + signal.SIGINT
# By exit status, as a shell reports a process that the signal ended.
ENDINGS = {
    INTERRUPTED: "interrupted",
    128 + signal.SIGTERM: "terminated",
    128 + signal.SIGHUP: "the terminal was closed",
}


# What the same command does when it is given again.
GOES_ON = "the same command goes on where it stopped"
ANEW = "the same command begins anew"


class Ended(SystemExit):
    """A command that a signal ended, with the exit status of a shell; ``after`` is what the same command does next."""

    def __init__(self, status: int, after: str) -> None:
        super().__init__(status)
        self.after = after


@contextmanager
def saying_after(after: str) -> Iterator[None]:
    """Makes ``Ended`` of what a signal raises in a command, and of the exit status of a process that a signal ended."""
    try:
        yield
    except KeyboardInterrupt:
        raise Ended(INTERRUPTED, after) from None
    except (SystemExit, typer.Exit) as end:
        status = end.code if isinstance(end, SystemExit) else end.exit_code
        if isinstance(status, int) and status in ENDINGS:
            raise Ended(status, after) from None
        raise


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Makes an exception of SIGTERM and SIGHUP: ``SystemExit`` with 128 and the number.

    A signal that is ignored stays ignored: SIGHUP under nohup, SIGINT in the background of a script. One that somebody
    else handles is left to them. Only the main thread of a process gets signals; elsewhere this does nothing. After the
    block the result is told, and the process that exits puts its libraries in order without heeding Ctrl-C, which would
    end none of it and print a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            raise SystemExit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # a child that was forked has nothing to put in order
        os.kill(os.getpid(), number)

    taken = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        atexit.unregister(_ignore_interrupt)
        atexit.register(_ignore_interrupt)  # what is registered last runs first, ahead of what libraries registered


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
