"""What the boundary between two blocks costs when each is timed alone, and does not cost inside a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, median

import numpy as np

from hwbench.latency.table import LatencyTable, Role
from hwbench.specs import TensorSpec, Workload

# A row never loses more than this share of its isolated time to its boundaries: no block is only conversion.
MAX_SHARE = 0.8


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

        A chain whose blocks have no rows, or whose boundaries are of different activations, says nothing and is passed
        over. A difference below zero is noise and counts as zero.
        """
        found: dict[TensorSpec, list[float]] = {}
        for row in table.rows(Role.CHAIN):
            parts = list(row.workload.parts())
            alone = [stats.median_s for part in parts if (stats := table.latency(part)) is not None]
            inside = {part.input for part in parts[1:]}
            if len(alone) == len(parts) and len(inside) == 1 and row.stats is not None:
                cost = (sum(alone) - row.stats.median_s) / (len(parts) - 1)
                found.setdefault(inside.pop(), []).append(max(cost, 0.0))
        measured = {x: median(costs) for x, costs in found.items()}
        return cls(measured, _by_size(measured))

    def __call__(self, x: TensorSpec) -> float:
        """Seconds for one activation."""
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


def _by_size(measured: Mapping[TensorSpec, float]) -> tuple[tuple[int, float], ...]:
    """What a boundary costs by its number of values: no less for more of them, and as near as that allows.

    Isotonic regression (Barlow et al. 1972), by relative errors: a boundary of twice the size is off by twice as much.
    """
    if not measured:
        return ()
    from scipy.optimize import isotonic_regression

    found: dict[int, list[float]] = {}
    for x, seconds in measured.items():
        found.setdefault(x.numel, []).append(seconds)
    sizes = sorted(found)
    weights = [len(found[size]) / size**2 for size in sizes]
    fitted = isotonic_regression([fmean(found[size]) for size in sizes], weights=weights).x
    return tuple(zip(sizes, fitted.tolist()))
