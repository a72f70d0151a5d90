"""What may be the name of a study: its folder, and the first half of ``STUDY:best``."""

from __future__ import annotations

import re

from hwbench.errors import InvalidValue

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED = ("zoo",)
# Names of files have 255 bytes; temporary ones and pages add to the name of a study.
_LONGEST_NAME = 230


def check_name(study: str) -> None:
    """A study's name is a folder and the first half of ``STUDY:best``.

    Raises:
        InvalidValue: It cannot be both.
    """
    if _NAME.fullmatch(study) is None or study in _RESERVED:
        raise InvalidValue(f"study: expected a name of letters, digits, '.', '_' and '-', got {study!r}")
    if len(study) > _LONGEST_NAME:
        raise InvalidValue(
            f"study: expected a name of at most {_LONGEST_NAME} letters, got {len(study)}: {study[:40]}...; "
            "choose another one with --study"
        )
