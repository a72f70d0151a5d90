"""Predicted against measured, by where the networks come from: each group says how its predictions were made."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from hwbench.latency import AdditivePredictor, Comparison, Validation
from hwbench.latency.calibration import NOMINAL
from hwbench.latency.own_networks import is_whole
from hwbench.measure.store_types import StoredRow, fingerprint
from hwbench.reports.result import StoredResult
from hwbench.specs import Estimate, Outcome, Workload
from hwbench.studies.candidates import Candidate


@dataclass(frozen=True)
class Group:
    """Networks of one origin, ``note`` says which and how they were predicted. ``summary`` needs two networks.

    ``workloads`` are what was compared, in the same order; empty where that is not known. ``held_out`` says that the
    intervals knew nothing of these networks, so that their share in them is a coverage.
    """

    name: str
    note: str
    comparisons: tuple[Comparison, ...]
    workloads: tuple[Workload, ...] = ()
    held_out: bool = True

    @property
    def summary(self) -> Validation | None:
        """Errors and coverage over the group, or None where there are too few networks."""
        return Validation.of(self.comparisons, NOMINAL) if len(self.comparisons) >= 2 else None


def calibration_group(predictor: AdditivePredictor, candidates: Collection[Workload]) -> Group:
    """The calibration networks of a table, each predicted by a fit to the others; candidates are left out."""
    table = predictor.table
    usable = [
        row
        for row in table
        if is_whole(row) and row.stats is not None and all(p in table for p in row.workload.parts())
    ]
    spread = predictor.calibration.spread
    comparisons, workloads = [], []
    for row, error in zip(usable, predictor.calibration.errors, strict=True):
        if row.stats is not None and row.workload not in candidates:
            seconds = row.stats.median_s / math.exp(error)
            comparisons.append(Comparison(_name(row.workload), interval(seconds, spread), row.stats.median_s))
            workloads.append(row.workload)
    note = "networks that calibrate the table, each predicted by a fit to the others; the interval is made from them"
    return Group("calibration", note, tuple(comparisons), tuple(workloads), held_out=False)


def candidate_group(result: StoredResult, spread: Callable[[Candidate], float]) -> Group:
    """The measured candidates of a study, as they were predicted when the study ended.

    Args:
        result: Of the study.
        spread: Factor of the prediction interval of a candidate.
    """
    note = "candidates of the study, chosen for their score and not at random"
    return Group(
        "candidates",
        note,
        tuple(
            Comparison(c.architecture, interval(c.predicted_s, spread(c)), c.measured_s)
            for c in result.measured
            if c.measured_s is not None
        ),
    )


def held_out_group(
    predictor: AdditivePredictor, rows: Iterable[StoredRow], candidates: Collection[Workload], variant: str
) -> Group:
    """Whole networks which the store has and the table has not, measured under the table's conditions."""
    table = predictor.table
    conditions = {row.conditions for row in table if row.stats is not None}
    found: dict[Workload, Comparison] = {}
    for row in rows:
        one = row.measurement
        if one.outcome is not Outcome.OK or one.emulated or fingerprint(one.conditions) not in conditions:
            continue
        workload = one.workload
        fresh = workload not in table and workload not in candidates
        if fresh and _is_network(workload, table.precision, variant) and all(p in table for p in workload.parts()):
            found[workload] = Comparison(_name(workload), predictor.predict(workload), one.stats.median_s)
    note = "networks that the store has and no calibration has seen, such as those of hwbench validate"
    return Group("held out", note, tuple(found.values()), tuple(found))


def interval(seconds: float, spread: float) -> Estimate:
    """A prediction with its interval."""
    return Estimate(seconds, seconds / spread, seconds * spread)


def _is_network(workload: Workload, precision: str, variant: str) -> bool:
    return workload.is_network and workload.precision == precision and workload.variant == variant


def _name(workload: Workload) -> str:
    return f"{len(workload.blocks)} blocks on {workload.input}"
