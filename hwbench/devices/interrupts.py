"""Signals that end this process, held back or made exceptions of while something must be put in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

# Signals that end a process without a word unless they are caught; a terminal that is closed sends the second.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Makes exceptions of the signals that would end the process without running what is to run at the end."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handlers({number: end for number in _ENDING if _default(number)}):
        yield


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keeps the first signal that would end the process until the block is done, or has failed; a second one counts at
    once.

    One that is ignored stays so, as SIGINT in the background of a script and SIGHUP under nohup.
    """
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    heeded = [number for number in (signal.SIGINT, *_ENDING) if signal.getsignal(number) is not signal.SIG_IGN]
    try:
        with _handlers(dict.fromkeys(heeded, keep)):
            yield
    except Exception:  # whoever sent the signal is not answered by an error, which may be taken for one to go on from
        if came:
            signal.raise_signal(came[0])
        raise
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _handlers(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    """Only the main thread may set them; another one is ended by it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _default(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL
