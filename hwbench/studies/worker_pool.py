"""Worker processes of a search on this machine: each makes the evaluator once and scores one network after the other.

A worker that is killed, aborts or runs out of memory costs the score under way, which is reported as ``Died``; a new
worker takes its place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from hwbench.errors import HwbenchError
from hwbench.interpreter import cores, import_path, last_words, python_command, python_environment
from hwbench.studies.evaluation_worker import GREETING, READY
from hwbench.studies.evaluations import Assignment, Died, Failed, GaveUp, Outcome, Reported, Scored, WorkerSetup
from hwbench.studies.pruning import Judge

# So many workers in a row that end before they are ready are no accident.
STARTS = 3
# The end of a worker shows at once, unless processes that it forked still hold its socket: then after so long.
_LOOK_S = 1.0


@dataclass(frozen=True)
class Workers:
    """Processes on this machine that score networks: ``hwbench search --workers``.

    Args:
        count: Of processes.
    """

    count: int

    def open(self, setup: WorkerSetup, networks: int, /) -> WorkerPool:
        """The pool for so many networks; its processes start when it is entered."""
        return WorkerPool(setup, min(self.count, networks))


class WorkerPool:
    """``Evaluations`` in processes of their own, each with its share of the processors as threads.

    Args:
        setup: Makes the evaluator, in each process once.
        count: Number of processes.
    """

    def __init__(self, setup: WorkerSetup, count: int) -> None:
        self._setup = setup
        self._count = count
        self._workers: list[_Scorer] = []
        self._failed_starts = 0
        self.judge: Judge | None = None

    @property
    def free(self) -> int:
        return sum(worker.is_free for worker in self._workers)

    def assign(self, assignment: Assignment, /) -> None:
        next(worker for worker in self._workers if worker.is_free).assign(assignment)

    def outcomes(self) -> Iterator[Outcome]:
        answering = {worker.connection: worker for worker in self._workers}
        for connection in self._ready(list(answering)):
            outcome = self._take(answering[connection])
            if outcome is not None:
                yield outcome

    def __enter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._end()

    def _start(self) -> None:
        self._workers.append(_Scorer(max(1, cores() // self._count)))

    def _end(self) -> None:
        while self._workers:
            self._workers.pop().end()

    def _ready(self, connections: Sequence[Connection[Any, Any]]) -> Sequence[Connection[Any, Any]]:
        """Waits for a message or an end; the connections that have one."""
        while True:
            for worker in self._workers:
                worker.hang_up_if_ended()
            if ready := wait(connections, _LOOK_S):
                return ready  # type: ignore[return-value]

    def _take(self, worker: _Scorer) -> Outcome | None:
        """Handles one message of a worker, or its end."""
        try:
            message = worker.connection.recv()
            if message == GREETING:
                worker.set_up(self._setup)
                return None
        except (EOFError, OSError):
            return self._replace(worker)
        if message == READY:
            worker.ready, self._failed_starts = True, 0
        elif isinstance(message, Failed):
            raise message.error()
        elif isinstance(message, Reported):
            worker.reply(self.judge is not None and self.judge(message.trial, message.epoch, message.score))
        elif isinstance(message, Scored | GaveUp):
            worker.assigned = None
            return message
        return None

    def _replace(self, worker: _Scorer) -> Died | None:
        """A new worker for one that died; what that one was scoring."""
        self._workers.remove(worker)
        reason = worker.last_words()
        worker.end()
        self._failed_starts += not worker.ready
        if self._failed_starts == STARTS:
            raise HwbenchError(f"workers do not start: {reason}; search without --workers to see why")
        self._start()
        return Died(worker.assigned.trial, reason) if worker.assigned is not None else None


class _Scorer:
    """One process of ``evaluation_worker``."""

    def __init__(self, threads: int) -> None:
        self.ready = False
        self.assigned: Assignment | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed by end
        self._socket, theirs = socket.socketpair()
        with theirs:
            # A session of its own: Ctrl-C at the terminal reaches only us, and we end it and what it started.
            self._process = subprocess.Popen(
                python_command("hwbench.studies.evaluation_worker", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=python_environment(thread_variables(threads)),
            )
        self.connection: Connection[Any, Any] = Connection(os.dup(self._socket.fileno()))

    @property
    def is_free(self) -> bool:
        return self.ready and self.assigned is None

    def set_up(self, setup: WorkerSetup) -> None:
        """Sends what the evaluator is made from, and the path under which its modules are found.

        Raises:
            InvalidValue: The setup cannot be sent.
            OSError: The worker is dead.
        """
        self.connection.send(import_path())
        try:
            self.connection.send(setup)
        except OSError:
            raise
        except Exception as error:  # pickling raises what the objects raise
            raise setup.refusal(error) from None

    def assign(self, assignment: Assignment) -> None:
        """Sends a network; that the worker is dead already shows when its answer is waited for."""
        self.assigned = assignment
        with contextlib.suppress(OSError):
            self.connection.send(assignment)

    def reply(self, gives_up: bool) -> None:
        """Says whether the network is to be given up of which a score was reported."""
        with contextlib.suppress(OSError):
            self.connection.send(gives_up)

    def hang_up_if_ended(self) -> None:
        """Of a process that ended, nothing more is waited for than what it had sent, whoever inherited its socket."""
        if self._process.poll() is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    def last_words(self) -> str:
        """How a worker ended, and the last line that it wrote."""
        return f"the worker ended: {last_words(self._process, self._log)}"

    def end(self) -> None:
        """Ends the process and those that it started, also in the middle of a score, and frees what it held."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.connection.close()
        self._socket.close()
        self._log.close()


def thread_variables(threads: int) -> dict[str, str]:
    """Environment in which numerics take so many threads; read by torch and by numerical libraries when they load."""
    return {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
