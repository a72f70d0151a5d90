"""Whether labels tell directions: left and right, or up and down. Clips are not flipped then.

* ``hwbench data prepare`` keeps ``"directional": true`` in ``prepared.json`` beside the videos;
* a list file, also one of mmaction2, has a comment before its first video that begins with ``# directional``;
* a table has the column ``directional`` with ``yes`` in it;
* readers of layouts that have no place for it take the option ``directional=yes``.
"""

from __future__ import annotations

import re
from pathlib import Path

from hwbench.data.readers.annotations import read_text
from hwbench.data.readers.frame_rates import prepared_values, roots_of
from hwbench.errors import InvalidValue
from hwbench.printable import shown

DIRECTIONAL = "directional"
COMMENT = f"# {DIRECTIONAL}: left and right, or up and down, are labels; clips are not flipped"
_COMMENT = re.compile(rf"#\s*{DIRECTIONAL}\b", re.IGNORECASE)
# By what a column may hold, in small letters; pandas makes 1.0 of 1 where other rows have none.
ANSWERS = {"yes": True, "true": True, "1": True, "1.0": True, "no": False, "false": False, "0": False, "0.0": False}


def is_directional(value: str) -> bool:
    """The value of an option ``directional``.

    Raises:
        InvalidValue: Neither yes nor no.
    """
    if value.lower() not in ANSWERS:
        raise InvalidValue(f"option {DIRECTIONAL}: expected yes or no, got {shown(value, 80)}")
    return ANSWERS[value.lower()]


def is_prepared_directional(path: Path) -> bool:
    """Whether ``path``, one side of it or an archive in it, was prepared from data whose labels tell directions."""
    folder = path.parent if path.is_file() else path
    return any(prepared_values(root).get(DIRECTIONAL) is True for root in roots_of(folder))


def is_list_directional(file: Path) -> bool:
    """Whether a comment before the first video of a list says that labels tell directions."""
    for line in map(str.strip, read_text(file).splitlines()):
        if _COMMENT.match(line):
            return True
        if line and not line.startswith("#"):
            return False
    return False
