"""When a measurement store was last looked through, so that opening it does not cost by its size every time.

``.NAME.checked`` beside the store says when that was, and what the file was when the last process closed it. Whoever
has the store open holds a shared lock on it. A store is looked through again when a day has passed, and at once

* after a start of the machine, which may have been a power cut,
* where a transaction was left open (a journal lies beside the store),
* where the file is not as it was left: a process was killed, or something else has written it.

The file may be removed at any time; then the store is looked through.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hwbench.measure.uptime import boot_id, since_boot_s

# A bad disk is to be found before the copies of yesterday are gone; a check of 1 GB takes seconds.
AGAIN_S = 24 * 3600


@dataclass(frozen=True)
class _Record:
    """Start of the machine and seconds after it when the store was looked through, and what the file was then."""

    boot: str
    at: float
    file: tuple[int, ...]  # device, inode, size, time of the last write in ns


class StoreChecks:
    """What is known of one store; opened before the store, closed after it. Nothing here fails: then a check is due."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._record = store.with_name(f".{store.name}.checked")
        self._descriptor: int | None = None
        self.due = True
        journal = store.with_name(f"{store.name}-journal")
        try:
            left_open = journal.exists() and journal.stat().st_size > 0
            self._descriptor = os.open(self._record, os.O_RDWR)
            alone = self._locked(fcntl.LOCK_EX)
            known, file = self._read(), self._file()
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return
        if known is None or left_open or not known.boot or known.boot != boot_id():
            return
        # others that have it open write it
        same = known.file == file if alone else known.file[:2] == file[:2]
        self.due = not same or not 0 <= since_boot_s() - known.at < AGAIN_S

    def passed(self) -> None:
        """Notes that the store was looked through just now, and is sound."""
        self.due = False
        if self._descriptor is None and self._store.exists():  # a store in memory is no file, and leaves none
            with contextlib.suppress(OSError):
                self._descriptor = os.open(self._record, os.O_RDWR | os.O_CREAT, 0o644)
                fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        self._write(_Record(boot_id(), since_boot_s(), self._file()))

    def close(self) -> None:
        """Notes how the store was left, unless it is not sound or somebody else has it open."""
        if self._descriptor is None:
            return
        known = self._read() if not self.due and self._locked(fcntl.LOCK_EX) else None
        if known is not None:
            self._write(replace(known, file=self._file()))
        os.close(self._descriptor)
        self._descriptor = None

    def _locked(self, how: int) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _file(self) -> tuple[int, ...]:
        try:
            stat = self._store.stat()
        except OSError:
            return ()
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _read(self) -> _Record | None:
        assert self._descriptor is not None
        try:
            values = json.loads(os.pread(self._descriptor, 4096, 0))
            return _Record(str(values["boot"]), float(values["at"]), tuple(values["file"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, record: _Record) -> None:
        if self._descriptor is not None:
            text = json.dumps(asdict(record)).encode()
            with contextlib.suppress(OSError):  # a record that is torn is none
                os.pwrite(self._descriptor, text, 0)
                os.ftruncate(self._descriptor, len(text))
