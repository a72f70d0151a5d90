"""One worker of a search: makes the evaluator once, then scores the networks that it is sent.

Run as ``python -m hwbench.studies.evaluation_worker DESCRIPTOR`` by ``worker_pool``, which may lose it at any time.
Messages are those of ``multiprocessing``, over a pair of sockets that nobody else has an end of: to the worker the
import path, the ``EvaluatorSetup``, then ``Assignment``s; from it ``GREETING``, ``READY``, then a ``Scored`` or
``Failed`` for each. A worker that reports a score on the way waits for whether it shall give the network up.

The worker ends with the search, however that ends, and takes the processes along that its evaluator started.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

GREETING, READY = "started", "ready"


def main() -> None:
    """Serves assignments until the other end of the socket is closed."""
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    os.dup2(2, 1)  # what an evaluator prints is talk
    connection.send(GREETING)
    sys.path[:] = connection.recv()
    assignments: queue.SimpleQueue[Any] = queue.SimpleQueue()
    from hwbench.studies.evaluations import Failed, answer

    made = "the evaluator"
    try:
        setup = connection.recv()
        made = setup.name
        threading.Thread(target=_receive, args=(connection, assignments), daemon=True).start()
        evaluator = setup.evaluator()
    except (Exception, SystemExit) as error:
        connection.send(Failed.of(error, f"{made} cannot be made in a worker"))
        return
    connection.send(READY)

    def reported(report: Any) -> bool:
        connection.send(report)
        return bool(assignments.get())

    while True:
        connection.send(answer(evaluator, assignments.get(), reported))


def _receive(connection: Connection[Any, Any], assignments: queue.SimpleQueue[Any]) -> None:
    try:
        while True:
            assignments.put(connection.recv())
    except (EOFError, OSError):
        _end()


def _end() -> None:
    """The search is gone: ends at once, also in the middle of a score."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()
