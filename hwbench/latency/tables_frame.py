"""The rows of several latency tables as one frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hwbench.frames import frame
from hwbench.latency.table import FRAME, LatencyTable

if TYPE_CHECKING:
    import pandas

_TABLE = ("device", "target", "precision")


def tables_frame(tables: Iterable[LatencyTable]) -> pandas.DataFrame:
    """One row for each row of each table: ``device``, ``target``, ``precision``, then the columns of a table."""
    rows = (
        dict(zip(_TABLE, (table.target.device, table.target.key, table.precision.value), strict=True)) | row.values()
        for table in tables
        for row in table
    )
    return frame(rows, dict.fromkeys(_TABLE) | FRAME)
