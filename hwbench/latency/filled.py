"""A latency table with numbers for rows that were not measured: they predict, and are never taken for measurements."""

from __future__ import annotations

from collections.abc import Mapping

from hwbench.latency.table import LatencyTable
from hwbench.specs import LatencyStats, Workload


class FilledTable(LatencyTable):
    """The measured rows of a table, and seconds for single blocks that it lacks.

    Iterating, ``rows``, ``nearest`` and ``text`` know the measured rows only: nothing filled in is ever written. A
    filled row has zero sessions and samples.

    Args:
        measured: The table that is filled up.
        seconds: Of single blocks; those that the table has are left out.
        spread: ``nominal`` of all blocks lie between ``seconds / spread`` and ``seconds * spread``.
        how: What the numbers are, in words.
        boundary_rows: Whose chains say what a boundary costs; default: those of the table.
    """

    def __init__(
        self,
        measured: LatencyTable,
        seconds: Mapping[Workload, float],
        spread: float,
        how: str,
        boundary_rows: LatencyTable | None = None,
    ) -> None:
        super().__init__(
            measured.target,
            measured.precision,
            measured,
            emulated=measured.emulated,
            aa=measured.aa,
            scale=measured.scale,
        )
        self.filled_spread = spread
        self.how = how
        self._boundary_rows = boundary_rows
        self._seconds = {
            workload.key: value
            for workload, value in seconds.items()
            if super(FilledTable, self).latency(workload) is None
        }

    @property
    def boundary_rows(self) -> LatencyTable:
        """The table whose chains say what a boundary costs."""
        return self._boundary_rows or self

    def latency(self, workload: Workload) -> LatencyStats | None:
        """What was measured, else what is filled in, else None."""
        found = super().latency(workload)
        seconds = self._seconds.get(workload.key)
        if found is not None or seconds is None:
            return found
        low, high = seconds / self.filled_spread, seconds * self.filled_spread
        return LatencyStats(seconds, low, high, low, high, 0, 0)

    def is_measured(self, workload: Workload) -> bool:
        """Whether the latency of a workload was measured."""
        return super().latency(workload) is not None
