"""What the boundary between two blocks costs when each is timed alone, and does not cost inside a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from hwbench.latency.table import LatencyTable, Role
from hwbench.specs import TensorSpec, Workload

# A row never loses more than this share of its isolated time to its boundaries: no block is only conversion.
MAX_SHARE = 0.8


@dataclass(frozen=True)
class BoundaryModel:
    """Seconds per activation that lies between blocks: converting it once on the way out and once on the way in.

    ``measured`` holds the activations that a chain was timed for; the others cost ``fixed_s`` plus ``per_value_s`` for
    each value, fitted over the measured ones.
    """

    measured: Mapping[TensorSpec, float] = field(default_factory=dict)
    fixed_s: float = 0.0
    per_value_s: float = 0.0

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
        return cls(measured, *_line(measured))

    def __call__(self, x: TensorSpec) -> float:
        """Seconds for one activation."""
        if x in self.measured:
            return self.measured[x]
        return max(self.fixed_s + self.per_value_s * x.numel, 0.0)

    def in_context(self, part: Workload, alone_s: float, *, first: bool, last: bool) -> float:
        """What a block costs inside a network, from what it costs alone.

        Half a boundary is taken off on each side; the first block of a network keeps its input side and the last one
        its output side, because there the network converts, too.
        """
        saved = (0.0 if first else self(part.input) / 2) + (0.0 if last else self(part.output) / 2)
        return max(alone_s - saved, (1 - MAX_SHARE) * alone_s)


def _line(measured: Mapping[TensorSpec, float]) -> tuple[float, float]:
    """Intercept and slope over the number of values, neither below zero."""
    if not measured:
        return 0.0, 0.0
    sizes = np.array([x.numel for x in measured], dtype=float)
    costs = np.array(list(measured.values()))
    if len(set(sizes.tolist())) >= 2:
        slope, intercept = np.polyfit(sizes, costs, 1)
        if slope >= 0 and intercept >= 0:
            return float(intercept), float(slope)
    # through the origin: one size only, or a line that would make small or large activations free
    return 0.0, float(np.sum(sizes * costs) / np.sum(sizes**2))
