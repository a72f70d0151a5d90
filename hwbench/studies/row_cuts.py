"""Which filled rows stand between a search and its answer, and what their measurement changed.

The optimum of predictions is where they err towards too fast (the optimiser's curse; Smith and Winkler, The Optimizer's
Curse, Management Science 2006). Rows of the best networks that were filled in are therefore measured, and what is
searched is solved again, until the best networks stand on measured rows alone: lazy cuts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from hwbench.latency import LatencyTable
from hwbench.specs import Workload
from hwbench.units import milliseconds

# Rows that are measured for a search unless it is told otherwise: what a profile measures in one of its batches.
ROWS = 48
# Rounds of measuring and searching: experiments/025-lazy-cuts needed four at most.
ROUNDS = 6


@dataclass(frozen=True)
class MovedPrediction:
    """A network whose filled rows were measured: its latency on the first device as predicted before and after."""

    architecture: str
    before_s: float
    after_s: float

    @property
    def share(self) -> float:
        """How much longer it takes by the measured rows, as a fraction; below 0: shorter."""
        return self.after_s / self.before_s - 1

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "architecture": self.architecture,
            "before_ms": milliseconds(self.before_s),
            "after_ms": milliseconds(self.after_s),
        }


@dataclass(frozen=True)
class CutRows:
    """The filled rows that a search measured, and what came of it.

    Attributes:
        limit: Rows that it could measure at most.
        rows: Rows that it measured.
        failed: Those of them without a latency.
        missing: Rows of the best networks that are still filled in, failed ones left out.
        rounds: How often rows were measured and the space was searched again.
        seconds: Time that building and measuring took.
        networks: The best networks of each round; one of several rounds with its first and its last prediction.
        replaced: Scored networks that are no longer within the budget.
    """

    limit: int
    rows: int = 0
    failed: int = 0
    missing: int = 0
    rounds: int = 0
    seconds: float = 0.0
    networks: tuple[MovedPrediction, ...] = ()
    replaced: int = 0

    @property
    def moved(self) -> float | None:
        """Median of how much longer these networks take by measured rows, as a fraction; None: nothing was measured."""
        return median(one.share for one in self.networks) if self.networks else None

    def to_json(self) -> dict[str, object]:
        """The keys of ``measured_rows``."""
        return {
            "limit": self.limit,
            "rows": self.rows,
            "failed": self.failed,
            "missing": self.missing,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 1),
            "moved": None if self.moved is None else round(self.moved, 4),
            "replaced": self.replaced,
            "networks": [one.to_json() for one in self.networks],
        }


def filled_rows(table: LatencyTable, networks: Iterable[Workload]) -> list[Workload]:
    """The blocks of networks whose rows are filled in: network by network, those first that make it most unsure.

    Args:
        table: Measured and filled rows of a target.
        networks: Whole networks, the best first.
    """
    rows: dict[Workload, None] = {}
    for network in networks:
        filled = [part for part in dict.fromkeys(network.parts()) if part in table and not table.is_measured(part)]
        rows.update(dict.fromkeys(sorted(filled, key=lambda part: (-_off_s(table, part), part.key))))
    return list(rows)


def _off_s(table: LatencyTable, part: Workload) -> float:
    stats = table.latency(part)
    return 0.0 if stats is None else stats.median_s * table.deviation(part)


def moved_predictions(before: Mapping[str, float], after: Callable[[str], float]) -> tuple[MovedPrediction, ...]:
    """Networks with what they were predicted to take, in seconds, and are now."""
    pairs = [(key, seconds, after(key)) for key, seconds in before.items()]
    return tuple(MovedPrediction(*pair) for pair in pairs if math.isfinite(pair[2]))
