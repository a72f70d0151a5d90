"""Who trains in the folder of a run: one thread of one process at a time, and others can ask whether there is one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from hwbench.durable import make_folder
from hwbench.errors import InvalidValue
from hwbench.locks import try_lockf
from hwbench.workspace import writing

_LOCK = ".lock"
# struct flock of Linux with 64-bit offsets: type, whence, start, length, process.
_FLOCK = "hhqqi4x"
# Folders that this process trains in, or waits to train in. A POSIX lock is of the process: it keeps no other thread
# out, and closing any file of the lock gives it up. So none is opened while the folder stands here.
_held: set[Path] = set()
_turns = threading.Condition()


@contextlib.contextmanager
def training_alone(run_dir: Path) -> Iterator[None]:
    """Keeps a second process or thread out of the folder, which is made; a killed process holds nothing.

    Where the file system has no locks, no other process is kept out.

    Raises:
        InvalidValue: Another process or thread trains here.
    """
    if not _take(run_dir):
        raise InvalidValue(
            f"{run_dir}: another thread of this process trains here; wait for it or choose another --out"
        )
    with _holding(run_dir), _lock_file(run_dir) as file:
        if try_lockf(file) is False:
            raise InvalidValue(f"{run_dir}: another process trains here; wait for it or choose another --out")
        yield


@contextlib.contextmanager
def training_in_turn(run_dir: Path, waits: Callable[[], None]) -> Iterator[None]:
    """``training_alone`` for what several processes or threads want: where another one trains, its end is awaited.

    Args:
        run_dir: The folder.
        waits: Called before the wait.
    """
    if not _take(run_dir):
        waits()
        with _turns:
            _turns.wait_for(lambda: _take(run_dir))
    with _holding(run_dir), _lock_file(run_dir) as file:
        if try_lockf(file) is False:
            waits()
            with writing(run_dir):
                fcntl.lockf(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _lock_file(run_dir: Path) -> Iterator[IO[str]]:
    with writing(run_dir):
        make_folder(run_dir)
        file = (run_dir / _LOCK).open("w")
    with file:
        yield file


def _take(run_dir: Path) -> bool:
    """Whether no thread of this process has the folder; this one has it from then on."""
    with _turns:
        is_free = run_dir.resolve() not in _held
        _held.add(run_dir.resolve())
    return is_free


@contextlib.contextmanager
def _holding(run_dir: Path) -> Iterator[None]:
    """Gives the folder that was taken to others at the end."""
    folder = run_dir.resolve()
    try:
        yield
    finally:
        with _turns:
            _held.discard(folder)
            _turns.notify_all()


def is_trained_now(run_dir: Path) -> bool:
    """Whether a process trains in the folder; of processes of other machines a shared file system may not tell."""
    with _turns:  # so that no thread locks the file before it is closed here
        if run_dir.resolve() in _held:
            return True
        try:
            file = os.open(run_dir / _LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            return _is_locked(file)
        finally:
            os.close(file)


def _is_locked(file: int) -> bool:
    if platform.system() == "Linux":
        asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        try:
            kind, *_ = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        except OSError:  # no locks there
            return False
        return bool(kind != fcntl.F_UNLCK)
    try:  # without the layout of the question, by trying: given up at once, when the file is closed
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except OSError:
        return False
    return False


def _forget() -> None:
    """A forked process trains in no folder: the locks of its parent are not its own."""
    global _turns
    _turns = threading.Condition()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
