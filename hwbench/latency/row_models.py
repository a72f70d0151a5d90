"""Models of single blocks that fill rows which were not measured; the one that leaves out best is taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import NotMeasured
from hwbench.latency.block_features import BlockColumns, Blocks, Floats
from hwbench.latency.boosted import MIN_ROWS, BoostedTrees
from hwbench.latency.calibration import NOMINAL
from hwbench.latency.gaussian import GaussianProcess, Structure
from hwbench.latency.table import LatencyTable, Role
from hwbench.latency.work_law import WorkLaw
from hwbench.specs import LatencyStats, Workload

_FOLDS = 5
# Half of the width of a 90 % interval of a normal variable, in standard deviations.
NORMAL_90 = 1.6449
# A row that is off from the others by so many of its standard deviations and by this factor is no measurement of its
# block: one in a million would be, and none of experiment 006 is off by a third.
_FAULT_DEVIATIONS = 8.0
_FAULT_FACTOR = 2.0
# Of so many rows at most one is set aside: where more are odd, the model is.
_ROWS_PER_FAULT = 20
# No interval of a row is narrower than what the measurement of a row is known to.
_LEAST_DEVIATION = 0.002

Guess = tuple[Floats, Floats]
"""Logarithm of seconds, and its standard deviation; of each block."""


class RowModel(Protocol):
    """A model of the seconds of single blocks, made for the blocks that it learns from."""

    name: str

    def encode(self, parts: Sequence[Workload]) -> Any:
        """Blocks as the model sees them; ``[mask]`` of it takes some."""
        ...

    def fit(self, rows: Any, seconds: Floats, noise: Floats) -> Callable[[Any], Guess]:
        """Learns from encoded rows; ``noise`` is the relative variance of each by its measurement."""
        ...


class OperatorRows:
    """The law of work alone (``WorkLaw``)."""

    name = "a law of operators"

    def __init__(self, parts: Sequence[Workload]) -> None:
        self._columns = BlockColumns.of(parts)

    def encode(self, parts: Sequence[Workload]) -> Blocks:
        """By the columns of the measured blocks."""
        return self._columns(parts)

    def fit(self, rows: Blocks, seconds: Floats, noise: Floats) -> Callable[[Blocks], Guess]:
        """The law, and one standard deviation for all blocks."""
        law = WorkLaw.fit(rows, seconds)
        deviation = float(np.std(np.log(seconds / law(rows))))
        return lambda blocks: (np.log(law(blocks)), np.full(len(blocks), max(deviation, _LEAST_DEVIATION)))


class GaussianRows:
    """The law of work, times the exponential of a Gaussian process over what it leaves."""

    def __init__(self, parts: Sequence[Workload], structure: Structure = Structure.TOGETHER) -> None:
        self.name = "a Gaussian process" if structure is Structure.TOGETHER else "an additive model for each kind"
        self._structure = structure
        self._columns = BlockColumns.of(parts)

    def encode(self, parts: Sequence[Workload]) -> Blocks:
        """By the columns of the measured blocks."""
        return self._columns(parts)

    def fit(self, rows: Blocks, seconds: Floats, noise: Floats) -> Callable[[Blocks], Guess]:
        """The law, the kernel and the process by these rows."""
        law = WorkLaw.fit(rows, seconds)
        process = GaussianProcess.fit(self._structure, rows, np.log(seconds / law(rows)), noise)

        def guess(blocks: Blocks) -> Guess:
            means, variances = process.predict(blocks)
            return np.log(law(blocks)) + means, np.sqrt(variances)

        return guess


class TreeRows:
    """Boosted trees on what a law of work leaves over (``BoostedTrees``)."""

    name = "boosted trees"

    def __init__(self, parts: Sequence[Workload]) -> None:
        self._trees = BoostedTrees.of(parts)

    def encode(self, parts: Sequence[Workload]) -> Floats:
        """Work and features of each block side by side."""
        return self._trees.encode(parts)

    def fit(self, rows: Floats, seconds: Floats, noise: Floats) -> Callable[[Floats], Guess]:
        """Trees say nothing of how sure they are: one standard deviation for all."""
        predict = self._trees.fit(rows, seconds)
        return lambda blocks: (np.log(predict(blocks)), np.ones(len(blocks)))


def default_models(parts: Sequence[Workload]) -> list[RowModel]:
    """The models that are held against each other, the simplest first."""
    added = GaussianRows(parts, Structure.ADDED)
    return [OperatorRows(parts), added, TreeRows(parts), GaussianRows(parts)]


@dataclass(frozen=True)
class FilledRows:
    """The best of several models, and how far off it was of rows that were left out.

    Attributes:
        name: What the model is, in words.
        count: Number of rows that it learnt from.
        median_error: Median |log(measured / predicted)| of rows that were left out.
        spread: Factor within which the share ``nominal`` of them were (Barber et al. 2021, CV+).
        common_share: Mean correlation of the errors of two rows on clips of the same length: what of their errors adds
            up in a network; the rest is independent.
        errors: Median error of each model that was tried, by its name.
        faults: Keys of rows that were set aside since they cannot be of their block, each with its factor.
        predict: Seconds of blocks, and the standard deviation of their logarithms, widened or narrowed so that rows
            that were left out are inside 90 % intervals as often as they should.
        beyond: Why a block is too unlike the measured ones; None where it is not.
    """

    name: str
    count: int
    median_error: float
    spread: float
    common_share: float
    errors: dict[str, float]
    faults: dict[str, float]
    predict: Callable[[Sequence[Workload]], tuple[Floats, Floats]]
    beyond: Callable[[Workload], str | None]

    @classmethod
    def fit(
        cls,
        table: LatencyTable,
        nominal: float = NOMINAL,
        models: Callable[[Sequence[Workload]], Sequence[RowModel]] = default_models,
    ) -> FilledRows:
        """Learns from the measured blocks of a table; the same for the same table.

        Raises:
            NotMeasured: There are fewer than 20.
            InvalidValue: The arithmetic of a kind is not described.
        """
        rows = [(row.workload, row.stats) for row in table.rows(Role.BLOCK) if row.stats is not None]
        if len(rows) < MIN_ROWS:
            raise NotMeasured(
                f"the table of {table.target} in {table.precision} has {len(rows)} blocks, at least {MIN_ROWS} are "
                f"needed to interpolate; measure them: {table.command()}"
            )
        learnt = _Rows.of([part for part, _ in rows], [stats for _, stats in rows])
        faults = learnt.faults()
        kept = learnt.without(faults)
        trials = [_CrossValidated.of(model, kept) for model in models(kept.parts)]
        best = min(trials, key=lambda trial: trial.mean_error)
        off = np.abs(best.errors)
        rank = min(math.ceil((len(off) + 1) * nominal), len(off)) - 1
        factor = float(np.sort(off / best.deviations)[rank]) / NORMAL_90
        columns = BlockColumns.of(kept.parts)
        guess = best.model.fit(best.rows, kept.seconds, kept.noise)

        def predict(parts: Sequence[Workload]) -> tuple[Floats, Floats]:
            if not parts:
                return np.empty(0), np.empty(0)
            logs, deviations = guess(best.model.encode(parts))
            return np.exp(logs), np.maximum(deviations * factor, _LEAST_DEVIATION)

        return cls(
            name=best.model.name,
            count=len(kept.parts),
            median_error=float(np.median(off)),
            spread=math.exp(np.sort(off)[rank]),
            common_share=best.common_share(kept),
            errors={trial.model.name: float(np.median(np.abs(trial.errors))) for trial in trials},
            faults=faults,
            predict=predict,
            beyond=columns.beyond,
        )

    @property
    def how(self) -> str:
        """How rows are filled and how sure that is, in words."""
        odd = ", ".join(f"{key} at {factor:.2g} times what rows like it take" for key, factor in self.faults.items())
        return (
            f"interpolated from {self.count} measured blocks by {self.name} (cross-validated error: median "
            f"{self.median_error:.1%}, 90 % within a factor of {self.spread:.3f})"
            f"{f'; not learnt from: {odd}' if odd else ''}"
        )


@dataclass(frozen=True)
class _Rows:
    parts: tuple[Workload, ...]
    seconds: Floats
    noise: Floats

    @classmethod
    def of(cls, parts: Sequence[Workload], stats: Sequence[LatencyStats]) -> _Rows:
        noise = [((s.ci_high_s - s.ci_low_s) / (2 * NORMAL_90 * s.median_s)) ** 2 for s in stats]
        return cls(tuple(parts), np.array([s.median_s for s in stats]), np.maximum(noise, 1e-6))

    def without(self, faults: dict[str, float]) -> _Rows:
        kept = np.array([part.key not in faults for part in self.parts])
        parts = tuple(part for part, keep in zip(self.parts, kept) if keep)
        return _Rows(parts, self.seconds[kept], self.noise[kept])

    def faults(self) -> dict[str, float]:
        """Rows that cannot be of their block, by all the others; none where there are too many of them."""
        blocks = BlockColumns.of(self.parts)(self.parts)
        left_over = np.log(self.seconds / WorkLaw.fit(blocks, self.seconds)(blocks))
        centre = float(np.median(left_over))
        scale = max(1.4826 * float(np.median(np.abs(left_over - centre))), 0.02)
        odd = np.abs(left_over - centre) > max(math.log(_FAULT_FACTOR), _FAULT_DEVIATIONS * scale)
        if not odd.any() or odd.sum() > max(1, len(self.parts) // _ROWS_PER_FAULT):
            return {}
        return {self.parts[at].key: math.exp(left_over[at] - centre) for at in np.flatnonzero(odd)}


@dataclass(frozen=True)
class _CrossValidated:
    """One model by fivefold cross-validation: errors log(measured / predicted) and their standard deviations.

    All that a model finds it finds without the rows that are left out, the parameters of its kernel too: with those of
    all of 20 to 60 rows the median error was told 5 to 13 % too low, and 90 % intervals had 86 to 89 % of other blocks.
    """

    model: RowModel
    rows: Any
    errors: Floats
    deviations: Floats
    folds: NDArray[np.int64]

    @classmethod
    def of(cls, model: RowModel, rows: _Rows) -> _CrossValidated:
        encoded = model.encode(rows.parts)
        folds = np.random.default_rng(0xB005).permutation(len(rows.parts)) % _FOLDS
        errors, deviations = np.empty(len(folds)), np.empty(len(folds))
        for number in range(_FOLDS):
            kept, left = folds != number, folds == number
            guess = model.fit(encoded[kept], rows.seconds[kept], rows.noise[kept])
            logs, deviations[left] = guess(encoded[left])
            errors[left] = np.log(rows.seconds[left]) - logs
        return cls(model, encoded, errors, deviations, folds)

    @property
    def mean_error(self) -> float:
        return float(np.mean(np.abs(self.errors)))

    def common_share(self, rows: _Rows) -> float:
        """Mean product of the scaled errors of two rows that were left out together and may stand in one network."""
        scaled = self.errors / self.deviations
        scaled = np.clip(scaled / max(float(np.sqrt(np.mean(scaled**2))), 1e-12), -3, 3)
        together, pairs = 0.0, 0
        for fold in range(_FOLDS):
            for frames in {part.input.t for part in rows.parts}:
                alike = np.array([part.input.t == frames for part in rows.parts]) & (self.folds == fold)
                own, count = scaled[alike], int(alike.sum())
                together += float(own.sum() ** 2 - (own**2).sum())
                pairs += count * (count - 1)
        return min(max(together / pairs, 0.0), 1.0) if pairs else 1.0
