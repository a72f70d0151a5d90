"""The table of one device on another: what both have measured says how much faster which blocks are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean, median

from hwbench.latency.calibration import NOMINAL, family
from hwbench.latency.filled import FilledTable
from hwbench.latency.table import LatencyRow, LatencyTable, Role
from hwbench.specs import LatencyStats, Workload

# With so many rows of its own, a family goes half the way from the common ratio to what its rows say.
_SHRINK = 1


@dataclass(frozen=True)
class DeviceRatio:
    """Seconds on one device per second on another: ``common`` for any block, ``families`` where rows say more.

    The ratio of a family is the mean of its logarithms, shrunk to the common one (the median) by one row. ``spread``
    is the conformal quantile of what each shared row is off by when it is left out; 1 where nothing is shared: then
    only the calibration by whole networks of the new device says how good the transfer is.
    """

    common: float = 1.0
    families: Mapping[str, float] | None = None
    spread: float = 1.0
    count: int = 0

    @classmethod
    def fit(cls, known: LatencyTable, new: LatencyTable, nominal: float = NOMINAL) -> DeviceRatio:
        """Learns from the blocks that both tables have."""
        logs = [
            (family(row.workload), math.log(row.stats.median_s / stats.median_s))
            for row in new.rows(Role.BLOCK)
            if row.stats is not None and (stats := known.latency(row.workload)) is not None
        ]
        if not logs:
            return cls()
        errors = [abs(log - _log_ratio(logs[:i] + logs[i + 1 :], name)) for i, (name, log) in enumerate(logs)]
        rank = min(math.ceil((len(errors) + 1) * nominal), len(errors))
        families = {name: math.exp(_log_ratio(logs, name)) for name in sorted({name for name, _ in logs})}
        common = math.exp(_log_ratio(logs, ""))
        return cls(common, families, math.exp(sorted(errors)[rank - 1]), len(logs))

    def __call__(self, part: Workload) -> float:
        """The factor for a single block."""
        return (self.families or {}).get(family(part), self.common)


def transferred(known: LatencyTable, new: LatencyTable) -> FilledTable:
    """The table of a new device, filled up with the blocks of a known one.

    Boundaries are the known device's, by the common ratio, until the new one has chains of its own.
    """
    ratio = DeviceRatio.fit(known, new)
    seconds = {
        row.workload: row.stats.median_s * ratio(row.workload)
        for row in known.rows(Role.BLOCK)
        if row.stats is not None
    }
    learned = f"{ratio.count} blocks measured on both" if ratio.count else "no block measured on both"
    how = f"transferred from {known.target} by {learned} (ratio {ratio.common:.3g}, 90 % within a factor of "
    how += f"{ratio.spread:.3f})" if ratio.count else "what the calibration says)"
    scaled = [_scaled(row, ratio.common) for row in known if row.stats is not None]
    chains = new if new.rows(Role.CHAIN) else LatencyTable(new.target, new.precision, scaled, emulated=new.emulated)
    return FilledTable(new, seconds, ratio.spread, how, chains)


def _log_ratio(logs: list[tuple[str, float]], name: str) -> float:
    common = median(log for _, log in logs) if logs else 0.0
    own = [log for other, log in logs if other == name]
    return common + (fmean(own) - common) * len(own) / (len(own) + _SHRINK) if own else common


def _scaled(row: LatencyRow, ratio: float) -> LatencyRow:
    stats = row.stats
    assert stats is not None
    median_s, p10_s, p90_s = stats.median_s * ratio, stats.p10_s * ratio, stats.p90_s * ratio
    return replace(
        row, stats=LatencyStats(median_s, p10_s, p90_s, stats.ci_low_s * ratio, stats.ci_high_s * ratio, 0, 0)
    )
