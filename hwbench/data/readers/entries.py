"""What lies in the folders of a data set: one that cannot be read is no empty one."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import NoReturn

from hwbench.errors import InvalidFile


def refuse(error: OSError) -> NoReturn:
    """Raises InvalidFile for a folder that the system does not let be read."""
    raise InvalidFile(f"{error.filename}: cannot be read ({error.strerror})") from error


def matching(folder: Path, pattern: str) -> list[Path]:
    """The entries of a folder whose names fit a pattern, sorted.

    Raises:
        InvalidFile: The folder cannot be read; ``Path.glob`` takes it for an empty one.
    """
    try:
        names = os.listdir(folder)
    except OSError as error:
        refuse(error)
    return sorted(folder / name for name in fnmatch.filter(names, pattern))


def matching_where_there(folder: Path, pattern: str) -> list[Path]:
    """As ``matching``; none where there is no such folder. For a pattern without wildcards the folder is not listed."""
    try:
        if set(pattern).isdisjoint("*?["):
            os.lstat(folder / pattern)
            return [folder / pattern]
        os.stat(os.path.join(folder, "."))  # one that may be listed and not entered, too
        return matching(folder, pattern)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        error.filename = str(folder)
        refuse(error)
