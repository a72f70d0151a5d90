"""Scratch folders below the temporary folder. One that ``kill -9`` leaves behind goes when the next one is made.

A process holds a lock in its folder while it lives, and the lock ends with it, whatever namespace its number is of: a
folder whose lock is free was left behind. Folders without a lock, of another user, or open to others are not touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hwbench.locks import try_flock

_PREFIX = "hwbench-"
# As ``tempfile.mkdtemp`` names them.
_NAME = re.compile(re.escape(_PREFIX) + "[a-z0-9_]{8}")
_LOCK = ".lock"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that goes with the block, with all in it. The first one of a process sweeps."""
    parent = tempfile.gettempdir()
    _sweep_once(parent)
    with contextlib.ExitStack() as stack:
        yield _made(parent, stack)


def _made(parent: str, stack: contextlib.ExitStack) -> Path:
    while True:
        with contextlib.ExitStack() as made:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            made.callback(shutil.rmtree, folder, ignore_errors=True)
            lock = made.enter_context((folder / _LOCK).open("x"))
            # A sweep may come between the making of the file and its lock.
            if try_flock(lock) is not False and (folder / _LOCK).exists():
                stack.enter_context(made.pop_all())
                return folder


@cache
def _sweep_once(parent: str) -> None:
    with contextlib.suppress(OSError):
        for entry in os.scandir(parent):
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):  # another sweep is faster
                    _remove_left(Path(entry.path))


def _remove_left(folder: Path) -> None:
    """Removes a folder of this user whose process is gone."""
    state = folder.lstat()
    open_to_others = state.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    if state.st_uid != os.geteuid() or not stat.S_ISDIR(state.st_mode) or open_to_others:
        return
    with (folder / _LOCK).open("r+") as lock:
        if try_flock(lock):
            shutil.rmtree(folder, ignore_errors=True)
