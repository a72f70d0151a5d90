"""A table filled from another one, of another device, precision or number of threads: what both have measured says how
much faster which blocks are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

import numpy as np

from hwbench.latency.block_features import Blocks, Floats, Integers
from hwbench.latency.boosted import MIN_ROWS
from hwbench.latency.calibration import NOMINAL, family
from hwbench.latency.filled import FilledTable
from hwbench.latency.gaussian import GaussianProcess, Kernel, Structure
from hwbench.latency.row_models import FilledRows, GaussianRows, Guess, RowModel
from hwbench.latency.table import LatencyRow, LatencyTable, Role
from hwbench.latency.work_law import WorkLaw
from hwbench.specs import LatencyStats, Precision, Workload

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


@dataclass(frozen=True)
class Beside:
    """Blocks and the logarithm of what each takes by another table."""

    blocks: Blocks
    log_known: Floats

    def __getitem__(self, which: Integers) -> Beside:
        """Some of them."""
        return Beside(self.blocks[which], self.log_known[which])


class TransferredRows:
    """Rows from those of another table: a mean that follows them, times the exponential of a Gaussian process.

    The mean is what the other table has, times one ratio; or, with ``own_law``, a law of work of the new table times
    what the other table has beyond its own law, to a power that is fitted (autoregressive co-kriging: Kennedy &
    O'Hagan 2000).
    """

    def __init__(
        self, parts: Sequence[Workload], known: Callable[[Sequence[Workload]], Floats], own_law: bool = False
    ) -> None:
        self.name = "co-kriging" if own_law else "ratios that vary smoothly"
        self._rows = GaussianRows(parts)
        self._known = known
        self._own_law = own_law
        # A law of the other table, by its seconds of the same blocks.
        self._law_known = WorkLaw.fit(self._rows.encode(parts), known(parts)) if own_law else None

    def encode(self, parts: Sequence[Workload]) -> Beside:
        """By the columns of the measured blocks, with what the other table has."""
        return Beside(self._rows.encode(parts), np.log(self._known(parts)))

    def start(self, rows: Beside, seconds: Floats, noise: Floats) -> Kernel:
        """The parameters of the kernel."""
        left_over = np.log(seconds) - self._mean(rows, seconds)(rows)
        return GaussianProcess.fit(Structure.TOGETHER, rows.blocks, left_over, noise).kernel

    def fit(self, state: Kernel, rows: Beside, seconds: Floats, noise: Floats) -> Callable[[Beside], Guess]:
        """The mean and the process by these rows."""
        mean = self._mean(rows, seconds)
        process = GaussianProcess.conditioned(state, rows.blocks, np.log(seconds) - mean(rows), noise)

        def guess(wanted: Beside) -> Guess:
            means, variances = process.predict(wanted.blocks)
            return mean(wanted) + means, np.sqrt(variances)

        return guess

    def _mean(self, rows: Beside, seconds: Floats) -> Callable[[Beside], Floats]:
        if self._law_known is None:
            ratio = float(np.median(np.log(seconds) - rows.log_known))
            return lambda wanted: wanted.log_known + ratio
        law, other = WorkLaw.fit(rows.blocks, seconds), self._law_known
        beyond = rows.log_known - np.log(other(rows.blocks))
        left_over = np.log(seconds / law(rows.blocks))
        power = float(beyond @ left_over) / max(float(beyond @ beyond), 1e-12)
        return lambda wanted: np.asarray(
            np.log(law(wanted.blocks)) + power * (wanted.log_known - np.log(other(wanted.blocks))), dtype=float
        )


def transferred(known: LatencyTable, new: LatencyTable, parts: Iterable[Workload] = ()) -> FilledTable:
    """A table filled up with the blocks of another one.

    With 20 blocks in each, the best of several models by cross-validation is taken: ratios that vary smoothly,
    co-kriging, or the rows of ``new`` alone; with fewer, one ratio for each family. Boundaries are those of ``known``,
    by the common ratio, until ``new`` has chains of its own.

    Args:
        known: Of another device, precision or number of threads.
        new: The table that is filled up.
        parts: Blocks that are filled as well where ``known`` lacks them, by interpolation of its rows; not with fewer
            than 20 blocks in each.

    Raises:
        InvalidValue: The arithmetic of a kind is not described.
    """
    source = _in_precision(known, new.precision)
    blocks = [row.workload for row in source.rows(Role.BLOCK)]
    own = [row.workload for row in new.rows(Role.BLOCK)]
    ratio = DeviceRatio.fit(source, new)
    of = f"{known.target}{f' in {known.precision}' if known.precision is not new.precision else ''}"
    scaled = [_scaled(row, ratio.common) for row in source if row.stats is not None]
    chains = new if new.rows(Role.CHAIN) else LatencyTable(new.target, new.precision, scaled, emulated=new.emulated)
    wanted = [part for part in dict.fromkeys([*blocks, *parts]) if part not in new]
    if min(len(own), len(blocks)) < MIN_ROWS:
        seconds = {part: source[part].median_s * ratio(part) for part in wanted if part in source}
        learned = f"{ratio.count} blocks measured on both" if ratio.count else "no block measured on both"
        how = f"transferred from {of} by {learned} (ratio {ratio.common:.3g}, 90 % within a factor of "
        how += f"{ratio.spread:.3f})" if ratio.count else "what the calibration says)"
        return FilledTable(new, seconds, ratio.spread, how, chains)
    seconds_of = _KnownSeconds.of(source, [*wanted, *own])
    model = FilledRows.fit(new, models=lambda rows: _models(rows, seconds_of))
    refused = {part: why for part in wanted if part not in source and (why := model.beyond(part))}
    filled = [part for part in wanted if part not in refused]
    values, deviations = model.predict(filled)
    how = (
        f"transferred from {of} by {len(own)} blocks, {ratio.count} of them measured on both ({model.name}, "
        f"cross-validated error: median {model.median_error:.1%}, 90 % within a factor of {model.spread:.3f})"
    )
    return FilledTable(
        new, dict(zip(filled, values.tolist())), model.spread, how, chains,
        deviations=dict(zip(filled, deviations.tolist())), common_share=model.common_share, refused=refused,
    )  # fmt: skip


def _models(parts: Sequence[Workload], known: _KnownSeconds) -> list[RowModel]:
    return [TransferredRows(parts, known), TransferredRows(parts, known, own_law=True), GaussianRows(parts)]


@dataclass(frozen=True)
class _KnownSeconds:
    """What blocks take by another table: measured, or filled from its own rows."""

    table: LatencyTable
    model: FilledRows | None

    @classmethod
    def of(cls, table: LatencyTable, parts: Sequence[Workload]) -> _KnownSeconds:
        lacking = any(part not in table for part in parts)
        return cls(table, FilledRows.fit(table, models=lambda rows: [GaussianRows(rows)]) if lacking else None)

    def __call__(self, parts: Sequence[Workload]) -> Floats:
        seconds = np.zeros(len(parts))
        if self.model is not None:
            seconds, _ = self.model.predict(parts)
        for at, part in enumerate(parts):
            if (stats := self.table.latency(part)) is not None:
                seconds[at] = stats.median_s
        return seconds


def _in_precision(table: LatencyTable, precision: Precision) -> LatencyTable:
    """The rows of a table as if they were of another precision."""
    if table.precision is precision:
        return table
    rows = [replace(row, workload=replace(row.workload, precision=precision)) for row in table]
    return LatencyTable(table.target, precision, rows, emulated=table.emulated)


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
