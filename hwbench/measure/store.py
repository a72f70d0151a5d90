"""The working truth about latencies: every sample and every failure, in one SQLite file.

A row (``measurements``) is one workload on one target under one ``Timing`` and one set of conditions, made from one
build. Rows that differ in any of these are never pooled. Sessions are committed one by one as they come, so a process
that is killed, or a machine that loses its power, loses the session under way and nothing else. The file uses SQLite's
rollback journal: after a crash the next reader restores it, and it stays a single file which may be copied or lie on a
network disk. Several processes may write at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from hwbench.measure.database import Database
from hwbench.measure.store_clock import ClockMemory
from hwbench.measure.store_merge import copy_rows
from hwbench.measure.store_occasions import Occasions
from hwbench.measure.store_reading import RowReader
from hwbench.measure.store_rows import RowLedger
from hwbench.specs import Workload


class MeasurementStore(ClockMemory, RowLedger, RowReader, Occasions):
    """All measurements of a workspace; opened on construction, made and migrated when needed.

    Each base is one share of the work, and works alone on a ``Database``. Use from one thread; other threads and
    processes open their own.

    Args:
        path: The file.
        beside: What that store knows of clocks and of the quietest sessions holds here as well, so that sessions of
            both are corrected and doubted alike; it stays as it is, and open as long as this one.

    Raises:
        InvalidFile: The file is damaged, of another program, or of a newer version of hwbench.
        WorkspaceError: The file cannot be made, read or written.
    """

    def __init__(self, path: str | Path, *, beside: MeasurementStore | None = None) -> None:
        super().__init__(Database(Path(path)), beside)

    def __enter__(self) -> MeasurementStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; everything added is already in it."""
        self.database.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self.database.path

    def take_over(self, other: MeasurementStore, workloads: Iterable[Workload]) -> int:
        """Copies rows of another store, with their sessions and runs, where this one has none; returns how many.

        All of them or, where that fails, none; the other store stays as it is.
        """
        with self.database.attached(other.database), self.database.transaction() as db:
            return copy_rows(db, [workload.key for workload in dict.fromkeys(workloads)])
