"""Values as a pandas frame. Pandas is loaded when a frame is asked for, and not before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

# A whole number that may be missing.
WHOLE = "Int64"
NUMBER = "float64"


def frame(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str | None]) -> pandas.DataFrame:
    """Rows as a frame, also where there are none.

    Args:
        rows: One mapping a row, with a value or None for each column.
        columns: Name -> type in pandas' words; None: as the values are.
    """
    import pandas

    made = pandas.DataFrame([[row[name] for name in columns] for row in rows], columns=list(columns))
    return made.astype({name: kind for name, kind in columns.items() if kind is not None})
