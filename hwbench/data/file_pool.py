"""Work on files in processes of their own, with a time limit for each file.

A decoder that hangs or crashes costs one file: its process is ended, and another one goes on with the next file.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from hwbench.data.socket_folder import shorten_socket_paths
from hwbench.errors import HwbenchError, VideoError

Task = TypeVar("Task")
Value = TypeVar("Value")

# Importing torch on a busy machine takes some ten seconds.
_START_S = 120
# A process whose connection is closed ends at once, or hangs.
_END_S = 2


@dataclass(frozen=True)
class FileFailure:
    """Why the work on one file has no value, in one line.

    ``lost``: the process hung or died, or the system could not give the file, which another run need not meet.
    """

    cause: str
    lost: bool = False


class FilePool(Generic[Task, Value]):
    """Calls a function for many files in several processes.

    Args:
        work: A function of a module; its argument and its value travel between processes. A VideoError costs the file,
            any other HwbenchError ends everything; an error that nobody foresaw costs the file, too.
        processes: How many; 0: this one, in which nothing can be ended.
        time_limit_s: Seconds for one file.
    """

    def __init__(self, work: Callable[[Task], Value], processes: int, *, time_limit_s: float) -> None:
        self._work, self._processes, self._time_limit_s = work, processes, time_limit_s

    def map(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Value | FileFailure]]:
        """The tasks with their values, as they get ready.

        Closing the iterator ends the work under way.

        Raises:
            HwbenchError: The work raised one that is no VideoError, or no process can be started.
            WorkspaceError: There is no folder for the sockets of processes.
        """
        waiting = deque(tasks)
        if not self._processes:
            yield from ((task, _answer_of(self._work, task)) for task in waiting)
            return
        shorten_socket_paths()
        workers = [_PoolWorker(self._work) for _ in range(min(self._processes, len(waiting)))]
        try:
            while waiting or any(worker.task is not None for worker in workers):
                for worker in workers:
                    if worker.ready and worker.task is None and waiting:
                        worker.send(waiting.popleft(), self._time_limit_s)
                yield from self._ready(workers)
        finally:
            for worker in workers:
                worker.end(_END_S if worker.task is None else 0)

    def _ready(self, workers: list[_PoolWorker]) -> Iterator[tuple[Task, Value | FileFailure]]:
        """Waits for answers; replaces processes that hang or died."""
        left = min(worker.deadline for worker in workers) - time.monotonic()
        answering = wait([worker.connection for worker in workers], max(0.0, min(left, _START_S)))
        for index, worker in enumerate(workers):
            lost = ""
            if worker.connection in answering:
                try:
                    answer = worker.receive()
                except (EOFError, OSError):
                    lost = f"its decoder crashed ({worker.end(_END_S)})"
                else:
                    if answer is not None:
                        yield answer
            elif worker.deadline <= time.monotonic():
                worker.end(0)
                lost = f"no result after {self._time_limit_s:g} s"
            if lost:
                if not worker.ready:
                    raise HwbenchError(
                        "a process that reads videos could not be started; the machine may be busy: run the command "
                        "again. A script of your own calls hwbench below 'if __name__ == \"__main__\":', or with jobs=0"
                    )
                workers[index] = _PoolWorker(self._work)
                if worker.task is not None:
                    yield worker.task, FileFailure(lost, lost=True)


class _PoolWorker:
    """A process with the task that it works on."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        methods = multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            context.set_forkserver_preload([work.__module__])
        self.connection, other = context.Pipe()
        self.task: Any = None
        self.ready = False
        self.deadline = time.monotonic() + _START_S
        self._process: BaseProcess = context.Process(target=_serve, args=(other, work), daemon=True)
        self._process.start()
        other.close()  # its end is read as the death of the process

    def send(self, task: Any, time_limit_s: float) -> None:
        """Hands over a task; a process that is gone is met when its answer is read."""
        self.task, self.deadline = task, time.monotonic() + time_limit_s
        with contextlib.suppress(OSError):
            self.connection.send(task)

    def receive(self) -> tuple[Any, Any] | None:
        """The task with its value; None: the process says that it is ready.

        Raises:
            EOFError: The process is gone.
        """
        answer = self.connection.recv()
        self.deadline = float("inf")
        if not self.ready:
            self.ready = True
            return None
        if isinstance(answer, HwbenchError):
            raise answer
        task, self.task = self.task, None
        return task, answer

    def end(self, patience_s: float) -> str:
        """Ends the process, which has so many seconds to end by itself; how it ended, in words."""
        self.connection.close()
        self._process.join(patience_s)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
        return _ending(self._process.exitcode or 0)


def _ending(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


def _answer_of(work: Callable[[Task], Value], task: Task) -> Value | FileFailure:
    try:
        return work(task)
    except VideoError as error:
        return FileFailure(str(error), lost=isinstance(error.__cause__ or error.__context__, OSError))
    except HwbenchError:
        raise
    except Exception as error:
        cause = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return FileFailure(cause, lost=isinstance(error, OSError))


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """What a process does: one task after the other, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)  # decoders print where they like
        os.dup2(nowhere.fileno(), 2)
    with contextlib.suppress(EOFError, OSError):
        connection.send("ready")
        while True:
            task = connection.recv()
            try:
                answer = _answer_of(work, task)
            except HwbenchError as error:
                answer = error
            connection.send(answer)
