"""Folders of the user: those of hwbench, by the XDG Base Directory Specification, and what ``~`` stands for."""

from __future__ import annotations

import os
from pathlib import Path


def user_folder(variable: str, default: str) -> Path:
    """The folder of hwbench in the one that a variable of the environment names.

    A relative folder counts as none, as the specification says: it is another one in each current folder.

    Args:
        variable: Such as ``XDG_STATE_HOME``.
        default: Below the home of the user, such as ``.local/state``.

    Raises:
        RuntimeError: The variable names none, and the user has no home.
    """
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / default) / "hwbench"


def with_home(path: str) -> Path:
    """A path with the home of a user in place of ``~`` or ``~NAME``; where there is no such user or home, as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
