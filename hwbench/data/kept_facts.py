"""Values that were found out of files, kept in SQLite; a file that changed has none.

Several processes may read and write at once. Once the file is open, damage, a full disk or a lock costs what was
kept, and nothing else.
"""

from __future__ import annotations

import contextlib
import sqlite3
import weakref
from pathlib import Path

from hwbench.errors import WorkspaceError
from hwbench.printable import is_utf8
from hwbench.workspace import writing

Value = str | bytes

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)


class KeptFacts:
    """An open SQLite file of values by kind and name; each belongs to a file as that was then. Closed with its last
    reference, if not before.

    Raises:
        WorkspaceError: The file cannot be made or opened, or another process holds it. A damaged one is made anew.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = self._connect()
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
                    raise WorkspaceError(f"cannot use {file}: {error}") from error
                file.unlink(missing_ok=True)
                self._connection = self._connect()
        weakref.finalize(self, self._connection.close)

    def _connect(self) -> sqlite3.Connection:
        # Whichever thread drops the last reference closes it.
        connection = sqlite3.connect(self._file, timeout=60, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous=OFF")  # what a power cut takes is found out again
            connection.execute(
                "CREATE TABLE IF NOT EXISTS facts (kind TEXT, name TEXT, bytes INTEGER, changed_ns INTEGER, "
                "facts TEXT, PRIMARY KEY (kind, name)) WITHOUT ROWID"
            )
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def get(self, kind: str, name: str, path: Path) -> Value | None:
        """The value that was kept of ``path`` as it is now."""
        state = file_state(path)
        if state is None:
            return None
        row = None
        with contextlib.suppress(sqlite3.Error):
            row = self._connection.execute(
                "SELECT facts FROM facts WHERE kind = ? AND name = ? AND bytes = ? AND changed_ns = ?",
                (kind, _bound(name), *state),
            ).fetchone()
        return row[0] if row else None

    def put(self, kind: str, name: str, path: Path, value: Value) -> None:
        """Keeps a value; nothing of a folder, whose time of change says little."""
        state = file_state(path)
        if state:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute(
                    "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?)", (kind, _bound(name), *state, value)
                )

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()


def _bound(name: str) -> Value:
    """A name as SQLite takes it: text, or the bytes of a name of a file that is not UTF-8."""
    return name if is_utf8(name) else name.encode(errors="surrogateescape")


def file_state(path: Path) -> tuple[int, int] | None:
    """Size and time of change of a file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if path.is_file() else None
