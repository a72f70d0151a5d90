"""Whether there is what a text names that may be a path or something else, such as a printed architecture.

Nothing has a name that is longer than file systems take, at which ``Path.is_file`` and its like raise.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path


def is_file(path: Path) -> bool:
    """Whether there is such a file.

    Raises:
        OSError: As ``Path.is_file``, but for the length of a name.
    """
    return _look(path.is_file)


def is_folder(path: Path) -> bool:
    """Whether there is such a folder.

    Raises:
        OSError: As ``is_file``.
    """
    return _look(path.is_dir)


def exists(path: Path) -> bool:
    """Whether there is anything of that name.

    Raises:
        OSError: As ``is_file``.
    """
    return _look(path.exists)


def _look(look: Callable[[], bool]) -> bool:
    try:
        return look()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise
