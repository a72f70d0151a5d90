"""Files and folders that are made once and taken again: only as they were made, and only where nobody else can write.

The digest of the contents is a part of the name, so it is there as soon as the thing itself, and neither is without the
other after a crash. What was damaged, cut short or exchanged is removed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

from hwbench.ownership import check_own, is_own, keep_to_us, make_own_folder
from hwbench.workspace import writing

# 128 bits: nobody finds another content for one of these, and names stay short enough for any file system.
_LETTERS = 32
_HOLDS = "what lies there is run"

# (path, size, time, number) of every file of what was looked at in this process, and its digest. The libraries and
# headers of a wheel are 40 MB: they are read once in a process, and again only when one of them was written.
_Stamp = tuple[tuple[str, int, int, int], ...]
_digests: dict[_Stamp, str] = {}


def own_folder(path: Path) -> None:
    """Makes the folder of such files, or checks the one that is there.

    Raises:
        WorkspaceError: Somebody else can change it, or it cannot be made.
    """
    with writing(path):
        make_own_folder(path, _HOLDS)


def taken(folder: Path, stem: str, ending: str = "") -> Path | None:
    """The whole one of that name; None where there is none. One that is not whole is removed where that is possible.

    Raises:
        WorkspaceError: Somebody else can change the folder.
    """
    if not folder.is_dir():
        return None
    check_own(folder, _HOLDS)
    for path in sorted(folder.glob(f"{stem}-{'[0-9a-f]' * _LETTERS}{ending}")):
        if path.name == _name(stem, path, ending) and all(map(is_own, _parts(path))):
            return path
        _remove(path)
    return None


def keep(made: Path, folder: Path, stem: str, ending: str = "") -> Path:
    """Gives a file or folder on the same file system its name in ``folder``; from now on it is ``taken``.

    Raises:
        OSError: It cannot be moved there.
    """
    for path in _parts(made):
        keep_to_us(path)
    final = folder / _name(stem, made, ending)
    if made.is_dir():
        _remove(final)
    os.replace(made, final)
    return final


def content_digest(path: Path) -> str:
    """Of a file's bytes, or of the names and bytes of all files in a folder."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    files = [file for file in _parts(path) if file.is_file()]
    stamp = tuple((str(file), s.st_size, s.st_mtime_ns, s.st_ino) for file in files for s in [file.stat()])
    if stamp not in _digests:
        lines = (f"{file.relative_to(path)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n" for file in files)
        _digests[stamp] = hashlib.sha256("".join(lines).encode()).hexdigest()
    return _digests[stamp]


def _name(stem: str, path: Path, ending: str) -> str:
    return f"{stem}-{content_digest(path)[:_LETTERS]}{ending}"


def _parts(path: Path) -> list[Path]:
    return [path, *sorted(path.rglob("*"))] if path.is_dir() else [path]


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
