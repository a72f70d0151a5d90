"""Rows that were not measured, from those that were: boosted trees on what a law of work leaves over."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import NotMeasured
from hwbench.latency.arithmetic import Work
from hwbench.latency.calibration import NOMINAL
from hwbench.latency.table import LatencyTable, Role
from hwbench.specs import ACTIVATIONS, Workload
from hwbench.specs.fields import COMMON, FieldType

# Fewer rows leave too little to learn from when a fifth is left out.
MIN_ROWS = 20
_FOLDS = 5
# Of the law.
_TERMS = 5
_NUMBERS = (FieldType.SIZE, FieldType.COUNT)
_COMMON_FIELDS = tuple(field.name for field in COMMON if field.type in _NUMBERS)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class BoostedRows:
    """Latency of single blocks from their features.

    A law first: seconds = a + b * dense multiply-adds + c * depthwise ones + d * values moved + e * weights, nothing
    below zero, fitted to relative errors. Its terms only grow with a block, so that it also holds beyond
    the largest row, where trees are flat. Gradient-boosted trees (Friedman 2001) on the features of a block then learn
    the logarithm of what is left: measured / law. ``spread`` is the conformal quantile of
    |log(measured / predicted)| over a fivefold cross-validation of both steps (Barber et al. 2021, CV+).
    """

    spread: float
    median_error: float
    count: int
    predict: Callable[[Sequence[Workload]], Floats]

    @classmethod
    def fit(cls, table: LatencyTable, nominal: float = NOMINAL) -> BoostedRows:
        """Learns from the measured blocks of a table; the same for the same table.

        Raises:
            NotMeasured: There are fewer than 20.
        """
        rows = [(row.workload, row.stats.median_s) for row in table.rows(Role.BLOCK) if row.stats is not None]
        if len(rows) < MIN_ROWS:
            raise NotMeasured(
                f"the table of {table.target} in {table.precision} has {len(rows)} blocks, at least {MIN_ROWS} are "
                f"needed to interpolate; measure them: {table.command()}"
            )
        parts, seconds = [part for part, _ in rows], np.array([value for _, value in rows])
        trees = BoostedTrees.of(parts)
        encoded = trees.encode(parts)
        fold = np.random.default_rng(0xB005).permutation(len(parts)) % _FOLDS
        errors = np.empty(len(parts))
        for number in range(_FOLDS):
            kept, left = fold != number, fold == number
            model = trees.fit(encoded[kept], seconds[kept])
            errors[left] = np.abs(np.log(seconds[left] / model(encoded[left])))
        whole = trees.fit(encoded, seconds)
        rank = min(math.ceil((len(parts) + 1) * nominal), len(parts))
        return cls(
            spread=math.exp(np.sort(errors)[rank - 1]),
            median_error=float(np.median(errors)),
            count=len(parts),
            predict=lambda wanted: whole(trees.encode(wanted)),
        )


@dataclass(frozen=True)
class BoostedTrees:
    """The law and the trees of ``BoostedRows``, for the blocks that they learn from."""

    columns: _Columns

    @classmethod
    def of(cls, parts: Sequence[Workload]) -> BoostedTrees:
        """For single blocks that were measured."""
        return cls(_Columns.of(parts))

    def encode(self, parts: Sequence[Workload]) -> Floats:
        """Terms of the law and features side by side, shape (parts, terms + features)."""
        return np.concatenate([_works(parts), self.columns(parts)], axis=1)

    def fit(self, encoded: Floats, seconds: Floats) -> Callable[[Floats], Floats]:
        """What predicts the seconds of encoded blocks."""
        model = _Model.fit(encoded[:, :_TERMS], encoded[:, _TERMS:], seconds)
        return lambda wanted: model(wanted[:, :_TERMS], wanted[:, _TERMS:])


@dataclass(frozen=True)
class _Model:
    law: Floats
    trees: Callable[[Floats], Floats]

    @classmethod
    def fit(cls, works: Floats, features: Floats, seconds: Floats) -> _Model:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.linear_model import LinearRegression
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            scale = np.maximum(np.median(works, axis=0), 1e-12)
            design = works / scale / seconds[:, None]
            linear = LinearRegression(positive=True, fit_intercept=False).fit(design, np.ones(len(seconds)))
            law = np.asarray(linear.coef_, dtype=float) / scale
            trees = HistGradientBoostingRegressor(
                max_iter=120, learning_rate=0.1, min_samples_leaf=5, early_stopping=False, random_state=0
            ).fit(features, np.log(seconds / (works @ law)))

        def left_over(rows: Floats) -> Floats:
            with threadpool_limits(1):
                return np.asarray(trees.predict(rows), dtype=float)

        return cls(law, left_over)

    def __call__(self, works: Floats, features: Floats) -> Floats:
        found: Floats = works @ self.law * np.exp(self.trees(features))
        return found


def _works(parts: Sequence[Workload]) -> Floats:
    """Terms of the law, shape (parts, 5): 1, dense and depthwise multiply-adds, values moved, weights."""
    works = [Work.of(part) for part in parts]
    return np.array([[1, w.dense_macs, w.depthwise_macs, w.moved, w.num_weights] for w in works], dtype=float)


@dataclass(frozen=True)
class _Columns:
    """What trees split on: the work, shapes, the numbers among the fields, the kernel, kind, activation and variant.

    ``kinds`` and ``fields`` are those of the blocks that are learnt from: a kind that none of them has, and a field
    that none of their kinds has, can tell nothing.
    """

    kinds: tuple[str, ...]
    fields: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[Workload]) -> _Columns:
        blocks = {part.blocks[0].kind: part.blocks[0] for part in parts}
        further = {f.name for block in blocks.values() for f in block.descriptor.fields if f.type in _NUMBERS}
        return cls(tuple(sorted(blocks)), (*_COMMON_FIELDS, *sorted(further.difference(_COMMON_FIELDS))))

    def __call__(self, parts: Sequence[Workload]) -> Floats:
        """Shape (parts, features)."""
        return np.array([self._row(part) for part in parts], dtype=float)

    def _row(self, part: Workload) -> list[float | bool]:
        (block,), x, work = part.blocks, part.input, Work.of(part)
        kernels = block.kernel or ((x.t, x.h, x.w),)
        sizes = [x.n, x.t, x.h, x.numel, part.output.numel, work.num_operations]
        numbers = [float(block.number(name)) for name in self.fields]
        shape = [len(kernels), max(k[0] for k in kernels), max(k[1] for k in kernels)]
        names = [block.kind == kind for kind in self.kinds] + [block.activation == name for name in ACTIVATIONS]
        # A name, not a place in a list of this call: a variant has the same number in every table.
        variant = int.from_bytes(part.variant.encode()[:6], "big")
        terms = [work.dense_macs, work.depthwise_macs, work.moved, work.num_weights]
        return [*terms, *sizes, *numbers, *shape, *names, variant]
