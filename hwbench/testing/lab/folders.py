"""Folders of laboratories below the temporary folder: made, removed, and swept once their owner is gone.

Others write to the temporary folder too. What lies there is believed where only we can have put it there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from hwbench.testing.lab.processes import LaboratoryProcess, end_recorded, end_watched, is_private, process_numbers
from hwbench.testing.lab.root import user_id

PREFIX = "hwbench-lab-"
# What is mounted in a folder has this source.
DISK = PREFIX + "disk"
OWNER = "owner"
# As ``tempfile.mkdtemp`` names them.
_NAME = re.compile(re.escape(PREFIX) + "[a-z0-9_]{8}")


def make_folder() -> Path:
    """A new folder of the laboratory, which belongs to this process: ``sweep`` removes it once that is gone."""
    # Not below the workspace: others than its owner must be able to enter, and socket paths are short.
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o711)
    (folder / OWNER).touch(mode=0o600)  # whatever the umask says: what a group may write to is not believed later
    (folder / OWNER).write_text(str(LaboratoryProcess.of(os.getpid())))
    return folder


def remove_folder(folder: Path) -> None:
    """Removes a folder of the laboratory, also what may not be written in it; one with a mount in it is left."""
    if mounts_in(folder):
        return
    with contextlib.suppress(FileNotFoundError):
        for _, _, _, inner in os.fwalk(folder):  # by descriptor: a link in the place of a folder leads nowhere
            with contextlib.suppress(OSError):
                os.fchmod(inner, 0o755)
    shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Removes what laboratories of ours left behind whose owner is gone: folders, processes, mounts.

    Only folders of our own name that belong to us and that nobody else may write to; others' are not looked into.
    """
    parent = Path(tempfile.gettempdir())
    if not _keeps_names(parent):
        return
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            if _NAME.fullmatch(folder.name) and folder.is_dir() and is_private(folder) and _is_left(folder):
                _remove(folder)


def mounts_in(folder: Path) -> list[tuple[str, ...]]:
    """Mount point, type and source of everything that is mounted below a folder, the innermost first."""
    inside = os.path.realpath(folder)
    found: list[tuple[str, ...]] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words, _, kind = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words.split()[4])
        if Path(point).is_relative_to(inside):
            found.append((point, *kind.split()[:2]))
    return found[::-1]


def _keeps_names(parent: Path) -> bool:
    """Nobody else can put something in the place of a folder of ours between two looks at it."""
    state = parent.stat()
    shared = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not state.st_mode & stat.S_ISVTX
    return state.st_uid in (0, os.geteuid()) and not shared


def _is_left(folder: Path) -> bool:
    """The process that made it is gone."""
    record = folder / OWNER
    if not is_private(record):
        return False
    text = record.read_text()
    owner = LaboratoryProcess.read(text)
    # Older laboratories wrote the number alone.
    return not (owner.lives if owner is not None else Path(f"/proc/{int(text)}").exists())


def _remove(folder: Path) -> None:
    end_recorded(folder)
    mark = os.fsencode(folder / "root")
    for pid in process_numbers():
        with contextlib.suppress(OSError):
            process = LaboratoryProcess.of(pid)
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            ours = Path(f"/proc/{pid}").stat().st_uid in (os.geteuid(), user_id())
            if process is not None and ours and words[0].endswith(b"proot") and mark in words:
                end_watched(pid)
                process.kill()
    for point, kind, source in mounts_in(folder):
        if (kind, source) == ("tmpfs", DISK):
            argv = ["umount", "--lazy", "--no-canonicalize", "--types", kind, point]
            subprocess.run(argv, check=False, capture_output=True)
    remove_folder(folder)
