"""A table filled from another one, of another device, precision or number of threads: what both have measured says how
much faster which blocks are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwbench.latency.block_features import Blocks, Floats, Integers
from hwbench.latency.boosted import MIN_ROWS
from hwbench.latency.calibration import NOMINAL, family
from hwbench.latency.filled import FilledTable
from hwbench.latency.gaussian import GaussianProcess, Structure
from hwbench.latency.row_models import FilledRows, GaussianRows, Guess, RowModel
from hwbench.latency.table import LatencyRow, LatencyTable, Role
from hwbench.latency.uncertainty import Uncertainty
from hwbench.latency.work_law import WorkLaw
from hwbench.specs import LatencyStats, Precision, Workload

# With so many rows of its own, a family goes half the way from the common ratio to what its rows say.
_SHRINK = 1
# Of log(block / its ratio) before a block was measured on both: between processors and precisions blocks are 11 to 28 %
# off one ratio (experiments 006 and 010). With two degrees of freedom 1 to 8 shared blocks cover 86 to 91 % of the
# others, on average over these.
PRIOR = Uncertainty.of_deviation(0.15, 2.0)


@dataclass(frozen=True)
class DeviceRatio:
    """Seconds on one device per second on another: ``common`` for any block, ``families`` where rows say more.

    The ratio of a family is the mean of its logarithms, shrunk to the common one (the median) by one row. ``spread``
    is the factor, either way, within which a share ``nominal`` of other blocks is: the conformal quantile of what each
    shared row is off by when it is left out, or, where there are too few rows for one (below nine for 90 %), that of
    Student's t by these errors and ``PRIOR``. It is 1 where nothing is shared: then only the calibration by whole
    networks of the new device says how good the transfer is.
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
        ratios = _LogRatios(logs)
        families = {name: math.exp(ratios(name)) for name in sorted(ratios.sums)}
        return cls(math.exp(ratios.common()), families, _spread(ratios.left_out(), nominal), len(logs))

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

    def fit(self, rows: Beside, seconds: Floats, noise: Floats) -> Callable[[Beside], Guess]:
        """The mean, the kernel and the process by these rows."""
        mean = self._mean(rows, seconds)
        process = GaussianProcess.fit(Structure.TOGETHER, rows.blocks, np.log(seconds) - mean(rows), noise)

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


class _LogRatios:
    """Ratios of families by (family, logarithm of the ratio) of blocks, and by all blocks but one."""

    def __init__(self, logs: Sequence[tuple[str, float]]) -> None:
        self.logs = logs
        self.order = sorted(range(len(logs)), key=lambda place: logs[place][1])
        self.counts = Counter(name for name, _ in logs)
        self.sums = {name: math.fsum(log for other, log in logs if other == name) for name in self.counts}

    def common(self, without: int | None = None) -> float:
        """The median of all logarithms, or of all but the one of a rank in ``order``; 0 where there is none."""
        count = len(self.logs) - (without is not None)
        if not count:
            return 0.0
        ranks = ((count - 1) // 2, count // 2)
        low, high = (self.order[rank + (without is not None and rank >= without)] for rank in ranks)
        return (self.logs[low][1] + self.logs[high][1]) / 2

    def __call__(self, name: str) -> float:
        """The ratio of a family."""
        return _shrunk(self.sums[name], self.counts[name], self.common())

    def left_out(self) -> list[float]:
        """What each logarithm differs by from the ratio of its family by all others."""
        errors = []
        for rank, place in enumerate(self.order):
            name, log = self.logs[place]
            errors.append(log - _shrunk(self.sums[name] - log, self.counts[name] - 1, self.common(rank)))
        return errors


def _shrunk(total: float, count: int, common: float) -> float:
    """The mean of so many logarithms that add up to ``total``, drawn towards what all have in common."""
    return (total + _SHRINK * common) / (count + _SHRINK) if count else common


def _spread(errors: Sequence[float], nominal: float) -> float:
    """Factor, either way, within which this share of other rows is, by what shared ones were off when left out."""
    rank = math.ceil((len(errors) + 1) * nominal)
    if rank <= len(errors):
        return math.exp(sorted(abs(error) for error in errors)[rank - 1])
    return PRIOR.updated(errors, len(errors) - 1).spread(nominal)


def _scaled(row: LatencyRow, ratio: float) -> LatencyRow:
    stats = row.stats
    assert stats is not None
    median_s, p10_s, p90_s = stats.median_s * ratio, stats.p10_s * ratio, stats.p90_s * ratio
    return replace(
        row, stats=LatencyStats(median_s, p10_s, p90_s, stats.ci_low_s * ratio, stats.ci_high_s * ratio, 0, 0)
    )
