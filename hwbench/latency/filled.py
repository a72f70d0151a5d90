"""A latency table with numbers for rows that were not measured: they predict, and are never taken for measurements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from hwbench.errors import NotMeasured
from hwbench.latency.table import LatencyTable
from hwbench.specs import LatencyStats, Workload

# Quantiles of a normal variable: 90 and 95 %. An interval of a filled row holds 90 % of such rows.
_TENTH, _TWENTIETH = 1.2816, 1.6449


class FilledTable(LatencyTable):
    """The measured rows of a table, and seconds for single blocks that it lacks.

    Iterating, ``rows``, ``nearest`` and ``text`` know the measured rows only: nothing filled in is ever written. A
    filled row has zero sessions and samples; its 90 % interval is its own.

    Args:
        measured: The table that is filled up.
        seconds: Of single blocks; those that the table has are left out.
        spread: ``nominal`` of all blocks lie between ``seconds / spread`` and ``seconds * spread``: one factor for all.
        how: What the numbers are, in words.
        boundary_rows: Whose chains say what a boundary costs; default: those of the table.
        deviations: Standard deviation of the logarithm of each of ``seconds``; default: by ``spread``, all the same.
        common_share: Correlation of the errors of two filled rows; 1: all are off to the same side.
        refused: Why a block that is neither measured nor filled could not be filled, in words.
    """

    def __init__(
        self,
        measured: LatencyTable,
        seconds: Mapping[Workload, float],
        spread: float,
        how: str,
        boundary_rows: LatencyTable | None = None,
        *,
        deviations: Mapping[Workload, float] | None = None,
        common_share: float = 1.0,
        refused: Mapping[Workload, str] | None = None,
    ) -> None:
        super().__init__(
            measured.target, measured.precision, measured,
            emulated=measured.emulated, aa=measured.aa, between_runs=measured.between_runs, scale=measured.scale,
            adaptive=measured.adaptive,
        )  # fmt: skip
        self.filled_spread = spread
        self.how = how
        self.common_share = common_share
        self._boundary_rows = boundary_rows
        usual = math.log(spread) / _TWENTIETH
        self._filled = {
            workload.key: (value, usual if deviations is None else deviations[workload])
            for workload, value in seconds.items()
            if super(FilledTable, self).latency(workload) is None
        }
        self.largest_deviation = max((deviation for _, deviation in self._filled.values()), default=0.0)
        self._refused = {workload.key: why for workload, why in (refused or {}).items()}

    @property
    def boundary_rows(self) -> LatencyTable:
        """The table whose chains say what a boundary costs."""
        return self._boundary_rows or self

    def latency(self, workload: Workload) -> LatencyStats | None:
        """What was measured, else what is filled in, else None."""
        stats = super().latency(workload)
        filled = self._filled.get(workload.key)
        if stats is not None or filled is None:
            return stats
        seconds, deviation = filled
        p90, high = math.exp(_TENTH * deviation), math.exp(_TWENTIETH * deviation)
        return LatencyStats(seconds, seconds / p90, seconds * p90, seconds / high, seconds * high, 0, 0)

    def is_measured(self, workload: Workload) -> bool:
        """Whether the latency of a workload was measured."""
        return super().latency(workload) is not None

    def deviation(self, part: Workload) -> float:
        """Standard deviation of the logarithm of a filled row; 0 for a measured one and one without a number."""
        return 0.0 if self.is_measured(part) else self._filled.get(part.key, (0.0, 0.0))[1]

    def filled_variance(self, parts: Iterable[Workload]) -> float:
        """Relative variance of a network by those of its rows that are filled in.

        Copies of a block are off alike, other rows by ``common_share`` together and otherwise each by itself:
        variance = share * (sum of cost * deviation)^2 + (1 - share) * sum of (cost * deviation)^2, in parts of the
        squared sum of all rows; the cost of a block is its row times its number of copies.

        Args:
            parts: All blocks of a network, copies included.

        Raises:
            NotMeasured: A block has neither a measured nor a filled row.
        """
        total, off = 0.0, []
        for part, copies in Counter(parts).items():
            stats = self.latency(part)
            if stats is None:
                raise NotMeasured(self.explain(part))
            total += copies * stats.median_s
            off.append(copies * stats.median_s * self.deviation(part))
        together, apart = sum(off) ** 2, sum(value**2 for value in off)
        return (self.common_share * together + (1 - self.common_share) * apart) / total**2 if total else 0.0

    def explain(self, workload: Workload, space: str | None = None, classes: int | None = None) -> str:
        """Why there is no latency for a workload, and what to type."""
        why = self._refused.get(workload.key)
        if why is None:
            return super().explain(workload, space, classes)
        return (
            f"{workload.key} was not measured on {self.target} and is too unlike what was: {why}; "
            f"measure it: {self.command(space, workload, classes)}"
        )
