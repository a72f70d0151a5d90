"""The file of the measurement store: opened, migrated and checked; every write is whole or not there.

A transaction that has ended is on the disk. The journal is SQLite's rollback journal and not its write-ahead log, which
needs memory that all processes share: it fails on network disks, and between containers that share a folder.
"""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hwbench.durable import make_folder
from hwbench.errors import InvalidFile, WorkspaceError
from hwbench.measure.checked import StoreChecks
from hwbench.measure.migrations import ForeignDatabase, NewerSchema, migrate
from hwbench.workspace import writing

# Another writer holds the file for one small commit; half a minute means that it is stuck.
BUSY_TIMEOUT_S = 30.0

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_REFUSED = {
    sqlite3.SQLITE_READONLY: "it is not writable",
    sqlite3.SQLITE_PERM: "it is not writable",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened or created",
    sqlite3.SQLITE_FULL: "no space is left on the disk",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write (full, or over a size limit)",
    sqlite3.SQLITE_BUSY: f"another process has held it for more than {BUSY_TIMEOUT_S:.0f} s",
    sqlite3.SQLITE_LOCKED: "another process holds it",
}

# FULL does not sync the folder after it has removed the journal of a transaction: after a power cut the journal may be
# there again, and takes the last transaction back.
SYNCHRONOUS = "EXTRA"


class Database:
    """A SQLite file of the schema in ``migrations``; opened on construction, made and migrated when needed.

    Opening it costs by the size of the file at most once a day (``checked``). Use from one thread. ``connection`` is
    for what only SQLite itself can do, such as interrupting it in a test.

    Raises:
        InvalidFile: The file is damaged, of another program, or of a newer version of hwbench.
        WorkspaceError: The file cannot be made, read or written; so from every method.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            make_folder(path.parent)
        self._checked = StoreChecks(path)
        try:
            with self._guard():
                self.connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            with self._guard():
                self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file; everything written is already in it."""
        if hasattr(self, "connection"):
            self.connection.close()
        self._checked.close()

    def select(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """All rows that a query finds."""
        with self._guard():
            return self.connection.execute(query, tuple(values)).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One write: takes the lock at once (so that waiting works) and leaves nothing half done."""
        with self._guard():
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def attached(self, other: Database) -> Iterator[None]:
        """Has statements of this one see the tables of another, as those of ``other``."""
        with self._guard():
            self.connection.execute("ATTACH ? AS other", (str(other.path),))
        try:
            yield
        finally:
            with self._guard():
                self.connection.execute("DETACH other")

    def _prepare(self) -> None:
        db = self.connection
        db.execute("PRAGMA foreign_keys = ON")
        db.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
        try:
            migrate(db)
        except NewerSchema as error:
            raise InvalidFile(
                f"{self.path} is a measurement store of a newer version of hwbench: {error}; update hwbench"
            ) from error
        except ForeignDatabase as error:
            raise InvalidFile(self._advice(str(error))) from error
        if self._checked.due:
            (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise InvalidFile(self._advice(f"it is damaged: {verdict}"))
            self._checked.passed()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Says in words what SQLite says in codes."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGED:
                raise InvalidFile(self._advice(f"it is not a readable SQLite database: {error}")) from error
            if code in _REFUSED:
                raise WorkspaceError(
                    f"cannot use {self.path}: {_REFUSED[code]} ({error}); nothing already stored was lost. "
                    "Free the file, the space or the rights, then run the same command again"
                ) from error
            raise

    def _advice(self, problem: str) -> str:
        old, new = shlex.quote(str(self.path)), shlex.quote(f"{self.path}.old")
        return (
            f"{self.path} is not a measurement store of this version: {problem}. Move it away and run the command "
            f"again: mv {old} {new} (published tables in profiles/ are separate files)"
        )


class StorePart:
    """A share of what a measurement store does; all shares of one store have one database."""

    def __init__(self, database: Database) -> None:
        self.database = database
