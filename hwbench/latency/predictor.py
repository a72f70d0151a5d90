"""Predicts the latency of a network from the rows of its blocks, with an interval that says how far off it may be."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from hwbench.errors import InvalidValue, NotMeasured
from hwbench.latency.boundary import BoundaryModel
from hwbench.latency.table import LatencyTable, Role
from hwbench.specs import Estimate, Workload

NOMINAL = 0.9
# Fewer say nothing about the spread.
MIN_NETWORKS = 3
# A second parameter is only tried from here on (reference: ratio beats affine until about 20 networks) ...
_AFFINE_NETWORKS = 20
# ... and only kept if it lowers the leave-one-out error by this share.
_GAIN = 0.05

Pairs = Sequence[tuple[float, float]]
"""(sum of rows, measured) in seconds, one for each calibration network."""


class Position(enum.Enum):
    """Where a block stands in a network; the ends keep the conversion on their outer side."""

    FIRST = "first"
    INNER = "inner"
    LAST = "last"

    @classmethod
    def of(cls, index: int, length: int) -> Position:
        """The position of block ``index`` of ``length``."""
        return cls.FIRST if index == 0 else cls.LAST if index == length - 1 else cls.INNER


@dataclass(frozen=True)
class Calibration:
    """``seconds = gain * sum of rows + constant_s``, and how far a network that was left out fell from it.

    ``spread`` is a factor: ``nominal`` of all networks lie between ``seconds / spread`` and ``seconds * spread``. It is
    the split-conformal quantile of |log(measured / predicted)| over leave-one-out predictions (Vovk et al. 2005;
    Barber et al. 2021, jackknife+); with too few networks for that quantile (fewer than 9 for 90 %) it is the largest
    of them, which promises less: ``count / (count + 1)``.
    """

    form: str
    gain: float
    constant_s: float
    spread: float
    count: int
    errors: tuple[float, ...]

    @classmethod
    def fit(cls, pairs: Pairs, nominal: float = NOMINAL) -> Calibration:
        """Chooses the form by leave-one-out error, from the simplest up, and fits it to all pairs."""
        form, errors = "ratio", _left_out(pairs, _ratio)
        fit = _ratio
        if len(pairs) >= _AFFINE_NETWORKS:
            affine = _left_out(pairs, _affine)
            if fmean(map(abs, affine)) < (1 - _GAIN) * fmean(map(abs, errors)):
                form, errors, fit = "affine", affine, _affine
        gain, constant = fit(pairs)
        ordered = sorted(abs(e) for e in errors)
        rank = min(math.ceil((len(ordered) + 1) * nominal), len(ordered))
        return cls(form, gain, constant, math.exp(ordered[rank - 1]), len(pairs), tuple(errors))


@dataclass(frozen=True)
class AdditivePredictor:
    """``T = a * sum of in-context rows (+ c)``: the prediction of a network is what its blocks cost.

    Made by ``fit``; ``space`` only serves the command in messages.
    """

    table: LatencyTable
    boundary: BoundaryModel
    calibration: Calibration
    space: str | None = None

    @classmethod
    def fit(
        cls, table: LatencyTable, *, space: str | None = None, nominal: float = NOMINAL, emulated: bool = False
    ) -> AdditivePredictor:
        """Learns boundaries from the chains of a table and the calibration from its networks.

        Args:
            table: Rows of one target; networks whose blocks have no rows are passed over.
            space: The space that is predicted for, named in messages.
            nominal: Share of networks that the interval is to hold.
            emulated: Accept a table that was taken under emulation.

        Raises:
            NotMeasured: Fewer than three calibration networks have a latency and rows for all their blocks.
            InvalidValue: The table was taken under emulation.
        """
        if table.emulated and not emulated:
            raise InvalidValue(
                f"the table of {table.target} was taken under emulation; it predicts no real latency. "
                "To try the search out with it: hwbench search --allow-emulated"
            )
        boundary = BoundaryModel.fit(table)
        pairs = []
        for row in table.rows(Role.NETWORK):
            costs = _rows_in_context(table, boundary, row.workload)
            if row.stats is not None and None not in costs:
                pairs.append((sum(c for c in costs if c is not None), row.stats.median_s))
        if len(pairs) < MIN_NETWORKS:
            raise NotMeasured(
                f"the table of {table.target} in {table.precision} has {len(pairs)} calibration networks, at least "
                f"{MIN_NETWORKS} are needed; measure them: {table.command(space)}"
            )
        return cls(table, boundary, Calibration.fit(pairs, nominal), space)

    @property
    def constant_s(self) -> float:
        """What every network costs on top of its blocks."""
        return self.calibration.constant_s

    def row_cost(self, part: Workload, position: Position) -> float:
        """What a block adds to the predicted latency of a network, in seconds.

        Raises:
            NotMeasured: The block has no row. The message does not look for near rows: this is asked for very often.
        """
        stats = self.table.latency(part)
        if stats is None:
            raise NotMeasured(f"{part.key} was not measured on {self.table.target}: {self.table.command(self.space)}")
        return self.calibration.gain * _in_context(self.boundary, part, stats.median_s, position)

    def predict(self, network: Workload) -> Estimate:
        """The latency of a whole network.

        Raises:
            NotMeasured: Blocks have no rows; all are named, with the nearest rows of the first and the command.
        """
        parts = list(network.parts())
        missing = list(dict.fromkeys(part for part in parts if part not in self.table))
        if missing:
            others = "".join(f", {part.key}" for part in missing[1:])
            raise NotMeasured(
                f"{len(missing)} of {len(parts)} rows are missing: {self.table.explain(missing[0], self.space)}"
                f"{'; also missing: ' + others[2:] if others else ''}"
            )
        costs = [self.row_cost(part, Position.of(index, len(parts))) for index, part in enumerate(parts)]
        seconds = sum(costs) + self.constant_s
        return Estimate(seconds, seconds / self.calibration.spread, seconds * self.calibration.spread)


def _rows_in_context(table: LatencyTable, boundary: BoundaryModel, network: Workload) -> list[float | None]:
    parts = list(network.parts())
    costs: list[float | None] = []
    for index, part in enumerate(parts):
        stats = table.latency(part)
        position = Position.of(index, len(parts))
        costs.append(None if stats is None else _in_context(boundary, part, stats.median_s, position))
    return costs


def _in_context(boundary: BoundaryModel, part: Workload, alone_s: float, position: Position) -> float:
    return boundary.in_context(part, alone_s, first=position is Position.FIRST, last=position is Position.LAST)


def _ratio(pairs: Pairs) -> tuple[float, float]:
    return median(measured / rows for rows, measured in pairs), 0.0


def _affine(pairs: Pairs) -> tuple[float, float]:
    """Least squares of the relative error; a constant below zero is no cost of anything and falls back to the ratio."""
    rows, measured = np.array(pairs).T
    design = np.stack([rows / measured, 1 / measured], axis=1)
    (gain, constant), *_ = np.linalg.lstsq(design, np.ones(len(rows)), rcond=None)
    return (float(gain), float(constant)) if constant >= 0 and gain > 0 else _ratio(pairs)


def _left_out(pairs: Pairs, fit: Callable[[Pairs], tuple[float, float]]) -> list[float]:
    """log(measured / predicted) of each pair, by a model fitted to the others."""
    errors = []
    for index, (rows, measured) in enumerate(pairs):
        gain, constant = fit([*pairs[:index], *pairs[index + 1 :]])
        errors.append(math.log(measured / (gain * rows + constant)))
    return errors
