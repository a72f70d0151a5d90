"""PostgreSQL's advisory lock of a study: held by a connection, which is asked whether it still is there."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakSet

from sqlalchemy import event, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

# Below the idle time-outs of servers, firewalls and address translation, which are minutes.
PING_EVERY_S = 30.0
# A server that works answers a ping within milliseconds.
ANSWER_S = 60.0
# How long the end of a search waits for a ping under way.
_LAST_PING_S = 1.0


class LockLost(SQLAlchemyError):
    """The connection that held the lock has ended; another search may hold the lock by now."""


@contextmanager
def advisory_lock(
    engine: Engine, study: str, every_s: float = PING_EVERY_S, answer_s: float = ANSWER_S
) -> Iterator[bool]:
    """Takes the lock of a study for as long as the block runs; False where another connection holds the lock.

    The lock ends with its connection. So the connection is pinged while nothing happens, and before the engine hands
    out any other connection: then ``LockLost`` is raised where it has ended. A ping without an answer cuts all
    connections of the engine, which ends whatever waits for the server.

    Args:
        engine: Of PostgreSQL, by psycopg.
        study: Its name.
        every_s: Between two pings in the background.
        answer_s: The longest that a ping may take.
    """
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        lock = text("SELECT pg_try_advisory_lock(hashtextextended(:study, 0))")
        connection.detach()  # a pool would keep the connection, and the lock with it
        is_taken = bool(connection.execute(lock, {"study": f"hwbench {study}"}).scalar())
    except BaseException:
        connection.close()
        raise
    if not is_taken:
        connection.close()
        yield False
        return
    holder = _Holder(connection, every_s, answer_s)
    event.listen(engine, "checkout", holder.before_use)
    holder.start()
    try:
        yield True
    finally:
        event.remove(engine, "checkout", holder.before_use)
        if holder.stop():
            connection.close()


class _Holder:
    """The connection that holds a lock. Two threads ask it: the search, and one in the background."""

    def __init__(self, connection: Connection, every_s: float, answer_s: float) -> None:
        self._connection, self._every_s, self._answer_s = connection, every_s, answer_s
        self._used: WeakSet[Any] = WeakSet([connection.connection.dbapi_connection])
        self._turn = threading.Lock()
        self._end = threading.Event()
        self._lost: str | None = None
        self._thread = threading.Thread(target=self._keep, name="hwbench-lock", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Ends the pings; False where one of them still waits for the server."""
        self._end.set()
        self._thread.join(_LAST_PING_S)
        return not self._thread.is_alive()

    def before_use(self, connection: Any, *_: object) -> None:
        """What SQLAlchemy calls with every connection that is about to be used.

        Raises:
            LockLost: The lock is.
        """
        self._used.add(connection)
        self._ping()
        if self._lost is not None:
            raise LockLost(f"the lock of the study is lost, and another search may have it: {self._lost}")

    def _keep(self) -> None:
        while self._lost is None and not self._end.wait(self._every_s):
            self._ping()

    def _ping(self) -> None:
        with self._turn:
            if self._lost is not None:
                return
            timer = threading.Timer(self._answer_s, self._cut)
            timer.daemon = True
            timer.start()
            try:
                self._connection.execute(text("SELECT 1"))
            except SQLAlchemyError as error:
                cause = error.orig if isinstance(error, DBAPIError) else error
                self._lost = self._lost or str(cause).strip().partition("\n")[0]
            finally:
                timer.cancel()

    def _cut(self) -> None:
        """Ends all connections: libpq itself waits for an answer for ever."""
        self._lost = f"no answer within {self._answer_s:g} s"
        cut(self._used)


def cut(connections: Iterable[Any]) -> None:
    """Ends connections of psycopg, and whatever waits on them."""
    for connection in list(connections):
        with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as one:  # may be closed
            one.shutdown(socket.SHUT_RDWR)
