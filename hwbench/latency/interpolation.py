"""A table whose missing rows are filled from its own."""

from __future__ import annotations

from collections.abc import Iterable

from hwbench.latency.filled import FilledTable
from hwbench.latency.row_models import FilledRows
from hwbench.latency.table import LatencyTable
from hwbench.specs import Workload


def interpolated(table: LatencyTable, parts: Iterable[Workload]) -> FilledTable:
    """The table, with a number and an interval for each of the single blocks that it lacks.

    The model is the one of several that predicts best what is left out (``FilledRows``). A block that is further from
    the measured ones than intervals know gets no number: ``explain`` says why.

    Raises:
        NotMeasured: The table has fewer than 20 blocks to learn from.
        InvalidValue: The arithmetic of a kind is not described.
    """
    model = FilledRows.fit(table)
    missing = [part for part in dict.fromkeys(parts) if part not in table]
    refused = {part: why for part in missing if (why := model.beyond(part))}
    wanted = [part for part in missing if part not in refused]
    seconds, deviations = model.predict(wanted)
    return FilledTable(
        table,
        dict(zip(wanted, seconds.tolist())),
        model.spread,
        model.how if wanted else "",
        deviations=dict(zip(wanted, deviations.tolist())),
        common_share=model.common_share,
        refused=refused,
    )
