"""JSON and TOML from files of others: whatever the text is, it reads, or it is a ``ValueError`` and no other error.

Python's readers also raise ``RecursionError`` (nesting) and give values that fail later: whole numbers that become no
float and no text, objects too deep to be shown.
"""

from __future__ import annotations

import json
import tomllib
from typing import Any

# The deepest file of ours has 5 levels; a study's result, with what is in it, 8.
MAX_DEPTH = 50
# Seeds of torch have 64 bits; nothing else in our files is larger.
MAX_NUMBER = 1 << 64


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: It is none, nested too deep, or has a whole number of more than 64 bits.
    """
    try:
        return _bounded(json.loads(text))
    except RecursionError:
        raise ValueError(_too_deep()) from None


def read_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text; errors as ``read_json``."""
    try:
        values = tomllib.loads(text)
        _bounded(values)
    except RecursionError:
        raise ValueError(_too_deep()) from None
    return values


def _bounded(value: Any) -> Any:
    """The same value, after a look at all of it, level by level."""
    level = [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return value
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below += one.values()
            elif isinstance(one, list):
                below += one
            elif isinstance(one, int) and abs(one) > MAX_NUMBER:
                raise ValueError("a whole number of more than 64 bits")
        level = below
    raise ValueError(_too_deep())


def _too_deep() -> str:
    return f"nested deeper than {MAX_DEPTH} levels"
