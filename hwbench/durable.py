"""What it takes to have a file on the disk when the power goes: its bytes synced, and each name on the way to it.

``fsync`` of a file writes its bytes; that it is there under its name is written by ``fsync`` of its folder, and that
this folder is there by one of the folder above.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

# What file systems say that cannot sync a folder, and a folder that may be written and not read: nothing can be done.
_CANNOT = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EPERM, errno.EBADF)


def sync_folder(path: Path) -> None:
    """What was made, renamed or removed in a folder until now is so on the disk when this returns."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Makes a folder and those above it that are missing; they are on the disk when this returns.

    Args:
        path: The folder.
        mode: Of the folder, less the umask; those above have that of ``mkdir``.

    Raises:
        OSError: As ``Path.mkdir``; a folder that is there already is none.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync_folder(path.parent)
