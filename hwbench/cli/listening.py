"""The listener of the command line: talk, bars and questions on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.progress import Progress, TaskID

from hwbench.api.listener import Listener, StageProgress
from hwbench.cli.output import draws_bars, progress, say
from hwbench.printable import printable

# Of a stage, in a log: an hour is a page.
_EVERY_S = 60.0


class TerminalListener(Listener):
    """One bar for each stage of a request; when all stages ended, or one begins again, later bars stand below.

    In a log bars are drawn when they end; until then a line a minute tells where a stage is.

    Args:
        clock: Seconds since any moment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}
        self._display: Progress | None = None
        self._opened = progress()
        self._tasks: dict[str, TaskID] = {}
        self._last: dict[str, StageProgress] = {}

    def say(self, message: str) -> None:
        say(message)

    def progress(self, at: StageProgress) -> None:
        if at.stage in self._last and at.done < self._last[at.stage].done:
            self.close()
        if at.total == 0 and at.stage not in self._tasks:
            return
        if self._display is None:
            self._display = self._opened.__enter__()
        task = self._tasks.get(at.stage)
        if task is None:
            task = self._tasks[at.stage] = self._display.add_task(printable(at.stage), total=at.total, rate="", note="")
        rate, note = printable(at.rate), printable(at.note)  # one line: a second would displace the bars
        self._display.update(task, completed=at.done, total=at.total, rate=rate, note=note)
        self._last[at.stage] = at
        if all(one.done == one.total for one in self._last.values()):
            self.close()
        elif not draws_bars():
            self._log(at)

    def _log(self, at: StageProgress) -> None:
        """Tells where a stage is, a minute after it began or was told of last."""
        now_s = self._clock()
        if now_s - self._told_s.setdefault(at.stage, now_s) >= _EVERY_S:
            self._told_s[at.stage] = now_s
            total = "?" if at.total is None else at.total
            say(printable(", ".join(filter(None, (f"{at.stage} {at.done}/{total}", at.rate, at.note)))))

    def confirm(self, question: str) -> bool | None:
        if sys.stdin is None or not sys.stdin.isatty():  # None: closed, as by <&-
            return None
        # The end of the input is a no. ``err`` alone leaves a blank of the question on stdout.
        with contextlib.suppress(typer.Abort), contextlib.redirect_stdout(sys.stderr):
            return bool(typer.confirm(question, err=True))
        return False

    def close(self) -> None:
        """Takes the bars down; what was drawn last stays on the terminal."""
        if self._display is not None:
            self._opened.__exit__(None, None, None)
            self._display, self._opened, self._tasks, self._last = None, progress(), {}, {}
            self._told_s = {}


@contextmanager
def listening(listener: TerminalListener | None = None) -> Iterator[TerminalListener]:
    """Shows what a request tells while the block runs; a command may bring a listener that shows more.

    stdout is for the result: what is printed inside, as by an evaluator of another package or a model of the user's
    own, goes to stderr.
    """
    listener = listener or TerminalListener()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            yield listener
        finally:
            listener.close()
