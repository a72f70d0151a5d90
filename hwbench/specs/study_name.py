"""What may be the name of a study: its folder, and the first half of ``STUDY:best``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hwbench.errors import InvalidValue
from hwbench.printable import shown
from hwbench.registry import suggest

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED = ("zoo",)
# Names of files have 255 bytes; temporary ones and pages add to the name of a study.
_LONGEST_NAME = 230


def check_name(study: str) -> None:
    """A study's name is a folder and the first half of ``STUDY:best``.

    Raises:
        InvalidValue: It cannot be both.
    """
    if _NAME.fullmatch(study) is None:
        raise InvalidValue(
            "study: expected a name of letters, digits, '.', '_' and '-' that begins with a letter or a digit, got "
            f"{shown(study, 80)}"
        )
    if study in _RESERVED:
        raise InvalidValue(f"study: expected a name of its own, got {study!r}, which is the first half of {study}:NAME")
    if len(study) > _LONGEST_NAME:
        raise InvalidValue(
            f"study: expected a name of at most {_LONGEST_NAME} letters, got {len(study)}: {study[:40]}..."
        )


def check_new_name(study: str) -> None:
    """As ``check_name``, of a study that a search is to make: another name is given with ``--study``."""
    try:
        check_name(study)
    except InvalidValue as error:
        raise InvalidValue(f"{error}; choose another one with --study") from None


def check_reference(study: str, known: Iterable[str]) -> None:
    """As ``check_name``, of a study that is to be there; ``known`` are the names of those that are."""
    try:
        check_name(study)
    except InvalidValue as error:
        raise InvalidValue(f"{error}; {suggest(study, known)}") from None
