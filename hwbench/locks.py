"""Locks on files, and file systems without them: Lustre without ``-o flock``, NFS without lockd, some of FUSE.

A lock ends with the process that holds it, however that ends; that of ``try_flock`` with the last of those, too, that
are forked from it meanwhile, unless it is ``kept_from_children``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from hwbench.errors import WorkspaceError

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
# Files that a process closes when it is forked from this one.
_closed_in_children: set[IO[str]] = set()


def try_flock(file: int | IO[str]) -> bool | None:
    """Locks a whole file as opened here, without waiting.

    Returns:
        Whether it was free, and is ours now; None where the file system has no locks.

    Raises:
        OSError: The file system fails in another way.
    """
    return _tried(fcntl.flock, file)


@contextlib.contextmanager
def kept_from_children(file: IO[str]) -> Iterator[None]:
    """Lets no process that is forked while the block runs share the lock of a file, which it would hold on to.

    Processes that read videos are forked, and see the end of a killed one that needs them seconds later.
    """
    _closed_in_children.add(file)
    try:
        yield
    finally:
        _closed_in_children.discard(file)


def _close() -> None:
    """The lock stays with the parent, which has the file open."""
    for file in _closed_in_children:
        file.close()
    _closed_in_children.clear()


os.register_at_fork(after_in_child=_close)


def try_lockf(file: int | IO[str]) -> bool | None:
    """``try_flock`` with a POSIX lock, which belongs to the process and of which another one can be told."""
    return _tried(fcntl.lockf, file)


def has_no_locks(error: OSError) -> bool:
    """Whether a lock failed because the file system has none."""
    return error.errno in _NO_LOCKS


def _tried(lock: Callable[[int | IO[str], int], object], file: int | IO[str]) -> bool | None:
    try:
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # POSIX allows EACCES for what is held
        return False
    except OSError as error:
        if not has_no_locks(error):
            raise
        return None
    return True


def without_locks(folder: Path, doing: str, way_out: str) -> WorkspaceError:
    """What is said where two processes would disturb each other.

    Args:
        folder: Where the locks were to lie.
        doing: What one process at a time may do, such as "writing one study".
        way_out: What to type or to do next.
    """
    return WorkspaceError(f"{folder}: its file system has no locks, which keep two processes from {doing}; {way_out}")
