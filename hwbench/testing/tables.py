"""A latency table of a whole space by a law, so that what is predicted from it can be checked against the truth."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

from hwbench.latency import LatencyRow, LatencyTable, Role, calibration_networks, context_chains, macs
from hwbench.spaces import StagedSpace
from hwbench.specs import LatencyStats, Outcome, Precision, Target, Workload

CLASSES = 8


def installed_target() -> Target:
    """This machine with the engine that is installed, one thread."""
    return Target("local", "executorch", importlib.metadata.version("executorch"), 1)


def work(workload: Workload, rate: float = 20e9) -> float:
    """A latency law in seconds: start-up, conversion of input and output, and ``rate`` multiply-adds a second."""
    return 2e-5 + 4e-10 * (workload.input.numel + workload.output.numel) + macs(workload) / rate


def stats_of_law(seconds: float) -> LatencyStats:
    """Statistics of a latency that is known to a percent."""
    return LatencyStats(seconds, 0.99 * seconds, 1.01 * seconds, 0.995 * seconds, 1.005 * seconds, 3, 30)


def space_table(
    space: StagedSpace,
    precision: Precision,
    law: Callable[[Workload], float] = work,
    *,
    target: Target | None = None,
    calibration: int = 10,
    conditions: str = "c0ffee",
) -> LatencyTable:
    """Rows of all blocks, chains and calibration networks of a space with heads of ``CLASSES`` classes.

    Args:
        space: Whose blocks.
        precision: Of the rows.
        law: From a workload to its latency in seconds.
        target: Default: ``installed_target()``.
        calibration: Number of whole networks.
        conditions: Digest of the conditions in all rows.
    """
    parts = list(space.parts(precision, num_classes=CLASSES))
    networks = [n.workload(precision, space.variant) for n in calibration_networks(space, calibration, 0, CLASSES)]
    rows = [
        LatencyRow(role, workload, Outcome.OK, stats_of_law(law(workload)), "2026-01-31", conditions)
        for role, workloads in zip(Role, (parts, context_chains(parts), networks), strict=True)
        for workload in workloads
    ]
    return LatencyTable(target or installed_target(), precision, rows)
