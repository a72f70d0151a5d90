"""What the boundary between two blocks costs when each is timed alone, and does not cost inside a network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hwbench.latency.table import LatencyRow, LatencyTable, Role
from hwbench.specs import LatencyStats, Pathways, TensorSpec, Workload

# A row never loses more than this share of its isolated time to its boundaries: no block is only conversion.
MAX_SHARE = 0.8
# What a row is off by in any case, relative, however well its sessions agree; by judgement.
_ROW_ERROR = 0.005
# How far boundaries of the same number of values are from each other, relative, as they differ in their shapes. By
# judgement: 0.3 and 0.6 give about the same errors in the data of experiment 006.
_SHAPE_SPREAD = 0.5
# What a value costs about, in seconds, which keeps a chain that is exact by luck from standing for all.
_VALUE_S = 1e-10


@dataclass(frozen=True)
class BoundaryModel:
    """Seconds per activation that lies between blocks: converting it once on the way out and once on the way in.

    ``measured`` holds the activations that a chain was timed for. The others cost what ``by_size`` says, (number of
    values, seconds) in ascending order, interpolated; beyond its ends, as much for each value as there. No straight
    line would do: each value costs three times as much where they do not fit into the caches (experiment 006).
    """

    measured: Mapping[TensorSpec, float] = field(default_factory=dict)
    by_size: tuple[tuple[int, float], ...] = ()

    @classmethod
    def fit(cls, table: LatencyTable) -> BoundaryModel:
        """Reads the chains of a table: (sum of the blocks alone - the chain) / number of boundaries inside it.

        The blocks are those of ``boundary_probes``, in older tables blocks of the space. It is a difference of larger
        numbers, so it is believed as far as they are exact, and drawn towards what boundaries of its size cost
        otherwise. A chain whose blocks have no rows, or whose boundaries are of different activations, says nothing and
        is passed over. No boundary costs less than nothing.
        """
        found: dict[TensorSpec, list[_Difference]] = {}
        for row in table.rows(Role.CHAIN):
            if (difference := _Difference.of(table, row)) is not None:
                found.setdefault(list(row.workload.parts())[1].input, []).append(difference)
        differences = {x: min(several, key=lambda one: one.error_s) for x, several in found.items()}
        by_size = _by_size(differences)
        usual = dict(by_size)
        return cls({x: one.drawn_to(usual[x.numel]) for x, one in differences.items()}, by_size)

    def __call__(self, x: TensorSpec) -> float:
        """Seconds for one activation, all its pathways."""
        if isinstance(x, Pathways):
            return sum(self(one) for one in x.pathways)
        if x in self.measured:
            return self.measured[x]
        if not self.by_size:
            return 0.0
        (least, first_s), (most, last_s) = self.by_size[0], self.by_size[-1]
        if x.numel <= least:
            return first_s * x.numel / least
        if x.numel >= most:
            return last_s * x.numel / most
        sizes, seconds = zip(*self.by_size)
        return float(np.interp(x.numel, sizes, seconds))

    def in_context(self, part: Workload, alone_s: float, *, first: bool, last: bool) -> float:
        """What a block costs inside a network, from what it costs alone.

        Half a boundary is taken off on each side; the first block of a network keeps its input side and the last one
        its output side, because there the network converts, too.
        """
        saved = (0.0 if first else self(part.input) / 2) + (0.0 if last else self(part.output) / 2)
        return max(alone_s - saved, (1 - MAX_SHARE) * alone_s)


@dataclass(frozen=True)
class _Difference:
    """What a chain says of one boundary, in seconds, and its standard error."""

    seconds: float
    error_s: float

    @classmethod
    def of(cls, table: LatencyTable, row: LatencyRow) -> _Difference | None:
        parts = list(row.workload.parts())
        alone = {part: stats for part in parts if (stats := table.latency(part)) is not None}
        if row.stats is None or not all(part in alone for part in parts) or len({p.input for p in parts[1:]}) != 1:
            return None
        seconds = sum(alone[part].median_s for part in parts) - row.stats.median_s
        # Copies of one block have one row, whose error counts as often.
        errors = [parts.count(part) * _error_s(stats) for part, stats in alone.items()]
        return cls(seconds / (len(parts) - 1), math.hypot(*errors, _error_s(row.stats)) / (len(parts) - 1))

    def drawn_to(self, usual_s: float) -> float:
        """The mean of this and what is usual, each by what it is known to; not below zero."""
        spread_s = _SHAPE_SPREAD * usual_s
        if not spread_s:
            return 0.0
        share = 1 / (1 + (self.error_s / spread_s) ** 2)
        return max(usual_s + share * (self.seconds - usual_s), 0.0)


def _error_s(stats: LatencyStats) -> float:
    return max((stats.ci_high_s - stats.ci_low_s) / 4, _ROW_ERROR * stats.median_s)


def _by_size(differences: Mapping[TensorSpec, _Difference]) -> tuple[tuple[int, float], ...]:
    """What a boundary costs by its number of values: no less for more of them, and as near as that allows.

    Isotonic regression (Barlow et al. 1972), weighted by what each is known to.
    """
    if not differences:
        return ()
    from scipy.optimize import isotonic_regression

    ordered = sorted(differences.items(), key=lambda item: item[0].numel)
    seconds: dict[int, float] = {}
    weights: dict[int, float] = {}
    for x, one in ordered:
        weight = 1 / (one.error_s**2 + (_VALUE_S * x.numel) ** 2)
        weights[x.numel] = weights.get(x.numel, 0.0) + weight
        seconds[x.numel] = seconds.get(x.numel, 0.0) + weight * one.seconds
    means = [seconds[size] / weights[size] for size in weights]
    fitted = isotonic_regression(means, weights=list(weights.values())).x
    return tuple(zip(weights, np.maximum(fitted, 0.0).tolist()))
