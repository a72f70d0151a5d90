"""Rows of one measurement store put into another, each with its sessions and their runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

# What makes a row another row (``UNIQUE`` in the schema).
_IDENTITY = ("workload", "target", "timing", "conditions", "build")


def copy_rows(db: sqlite3.Connection, workloads: Sequence[str]) -> int:
    """Copies the rows of workloads from the database attached as ``other``; returns how many.

    Rows that the main database has already stay as they are. Sessions keep their order. The clock that drifts refer to
    comes along where the main database has none for these conditions. The caller has a transaction open.

    Args:
        db: Both databases have the latest schema.
        workloads: ``Workload.key`` of those whose rows are wanted, of every target, protocol, condition and build.
    """
    same = " AND ".join(f"mine.{name} = theirs.{name}" for name in _IDENTITY)
    found = db.execute(
        "SELECT theirs.id, theirs.conditions FROM other.measurements AS theirs "
        f"WHERE theirs.workload IN ({', '.join('?' * len(workloads))}) "
        f"AND NOT EXISTS (SELECT 1 FROM main.measurements AS mine WHERE {same}) ORDER BY theirs.id",
        tuple(workloads),
    ).fetchall()
    for conditions in {conditions for _, conditions in found}:
        for table, key in (("conditions", "fingerprint"), ("clocks", "conditions")):
            chosen = f"SELECT * FROM other.{table} WHERE {key} = ?"
            db.execute(f"INSERT OR IGNORE INTO main.{table} {chosen}", (conditions,))
    numbers = {row: _copy(db, "measurements", row) for row, _ in found}
    taken = db.execute("SELECT id, measurement, run FROM other.sessions ORDER BY id").fetchall()
    runs: dict[int | None, int | None] = {None: None}
    for session, row, run in taken:
        if row not in numbers:
            continue
        if run not in runs:
            runs[run] = _copy(db, "runs", run)
        _copy(db, "sessions", session, measurement=numbers[row], run=runs[run])
    return len(found)


def _copy(db: sqlite3.Connection, table: str, row: int, **changed: int | None) -> int:
    """One row under a new number, which is returned; ``changed`` are columns with another value."""
    columns = [name for _, name, *_ in db.execute(f"PRAGMA main.table_info({table})") if name != "id"]
    values = ", ".join("?" if name in changed else name for name in columns)
    given = tuple(changed[name] for name in columns if name in changed)
    added = db.execute(
        f"INSERT INTO main.{table} ({', '.join(columns)}) SELECT {values} FROM other.{table} WHERE id = ?",
        (*given, row),
    )
    return int(added.lastrowid or 0)
