"""Predicts the latency of a network from the rows of its blocks, with an interval that says how far off it may be."""

from __future__ import annotations

import enum
import functools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import fmean

import numpy as np

from hwbench.errors import InvalidValue, NotMeasured
from hwbench.latency.boundary import BoundaryModel
from hwbench.latency.calibration import NOMINAL, Calibration, Observation, Piece
from hwbench.latency.occasions import Scale, occasion_uncertainty
from hwbench.latency.significance import Floats
from hwbench.latency.table import LatencyTable, Role
from hwbench.latency.uncertainty import CERTAIN, Uncertainty, student_t
from hwbench.specs import BlockRole, Estimate, Workload

# Fewer say nothing about the spread.
MIN_NETWORKS = 3
# Standard deviations on either side that hold nine in ten of a normal distribution.
NINE_IN_TEN = 1.645


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
class PredictionInterval:
    """How far off predictions may be: calibration, occasion and filling independently of each other.

    Attributes:
        quantile: Scales on either side that hold the promised share.
        variance: Of the logarithm of a network whose rows were all measured.
        together: What is left of the variance of rows that are filled in, in parts of what it would be if all of them
            were off to the same side.
    """

    quantile: float
    variance: float
    together: float

    def spread(self, off: Floats | float) -> Floats:
        """Factors of the intervals of networks. ``off`` is a standard deviation: what the filled rows of each are off
        by, all to the same side, in parts of its latency."""
        variances = self.variance + np.square(off) * self.together
        return np.asarray(np.exp(self.quantile * np.sqrt(variances)))


@dataclass(frozen=True)
class LatencyDifference:
    """How much longer one network takes than another, in seconds; below zero: it is the faster one.

    Attributes:
        seconds: Predicted.
        low_s: Lower end of the interval.
        high_s: Upper end.
        chance: The probability that the first network takes no longer than the second.
    """

    seconds: float
    low_s: float
    high_s: float
    chance: float


@dataclass(frozen=True)
class AdditivePredictor:
    """The prediction of a network is what its blocks cost in context, calibrated (``Calibration``), on the scale of the
    day that the table speaks of (``Scale``).

    Made by ``fit``; ``space`` and ``classes`` only serve the command in messages. ``occasion`` is the uncertainty that
    all networks share: that of the scale, and of what another occasion changes where networks are to run on another.
    ``day`` is the scale; None: that of the rows.
    """

    table: LatencyTable
    boundary: BoundaryModel
    calibration: Calibration
    space: str | None = None
    occasion: Uncertainty = CERTAIN
    day: Scale | None = None
    classes: int | None = None

    @classmethod
    def fit(
        cls,
        table: LatencyTable,
        *,
        space: str | None = None,
        nominal: float = NOMINAL,
        emulated: bool = False,
        members: int | None = None,
        left_out: Collection[Workload] = (),
        moment: datetime | None = None,
        classes: int | None = None,
    ) -> AdditivePredictor:
        """Learns boundaries from the chains of a table and the calibration from its networks.

        Args:
            table: Rows of one target; networks whose blocks have no rows are passed over.
            space: The space that is predicted for, named in messages.
            nominal: Share of networks that the interval is to hold.
            emulated: Accept a table that was taken under emulation.
            members: Number of networks of the space; of fewer than three no more can be asked for.
            left_out: Networks that take no part, so that they can be predicted like any other.
            moment: When networks are to run, which may be another occasion than that of the table; None: the same one.
            classes: Of the networks that are predicted, named in messages; None: those of the table.

        Raises:
            NotMeasured: Fewer than three calibration networks, or fewer than the space has, have a latency and rows for
                all their blocks.
            InvalidValue: The table was taken under emulation.
        """
        if table.emulated and not emulated:
            raise InvalidValue(
                f"the table of {table.target} was taken under emulation; it predicts no real latency. "
                "Only hwbench search takes it, to be tried out: with --allow-emulated"
            )
        boundary = BoundaryModel.fit(table.boundary_rows)
        measured = [
            (row.workload, row.stats.median_s)
            for row in table
            if row.role is Role.NETWORK or row.workload.blocks[0].role is BlockRole.NETWORK
            if row.stats is not None and row.workload not in left_out
        ]
        networks = [
            Observation(seconds, pieces)
            for workload, seconds in measured
            if (pieces := _pieces(table, boundary, workload)) is not None
        ]
        least = min(MIN_NETWORKS, members or MIN_NETWORKS)
        if len(networks) < least:
            plain = (row.workload for row in table if row.workload.variant == table.variant)
            head = next((workload for workload in plain if workload.blocks[-1].role.gives_logits), None)
            failed = any(row.role is Role.NETWORK and row.stats is None for row in table)
            command = table.command(space, None if classes else head, classes) + (" --retry" if failed else "")
            without = len(measured) - len(networks)
            more = f" and {without} whose blocks have no rows" if without else ""
            raise NotMeasured(
                f"the table of {table.target} in {table.precision} has {len(networks)} calibration networks{more}, at "
                f"least {least} are needed; measure them: {command}"
            )
        calibration = Calibration.of(networks, nominal) if len(networks) > 1 else Calibration.alone(networks[0])
        occasion = occasion_uncertainty(table.scale, moment)
        return cls(table, boundary, calibration, space, occasion, table.scale, classes)

    def on_day(self, day: Scale) -> AdditivePredictor:
        """The same rows and calibration on another scale, for networks that run on its occasion."""
        return replace(self, occasion=day.uncertainty, day=day)

    @property
    def scale(self) -> float:
        """How many times slower the device is on the day that predictions speak of than the rows say."""
        return self.day.factor if self.day else 1.0

    @property
    def spread(self) -> float:
        """Factor of the interval of any network, filled rows or not; ``predict`` gives narrower ones for each."""
        return float(self.interval.spread(self.table.largest_deviation))

    @property
    def uncertainty(self) -> Uncertainty:
        """Of log(latency / prediction) of a network whose rows were all measured: calibration and occasion."""
        return self.calibration.uncertainty + self.occasion

    @functools.cached_property
    def together(self) -> float:
        """How far rows that are filled in are off together in a network: its variance by ``FilledTable``, in parts of
        that of rows which are all off to the same side. The mean of the calibration networks, so that predictions stay
        sums over blocks; 1 where none of them has a filled row."""
        shares = []
        for row in self.table.rows(Role.NETWORK):
            costs = [(part, stats.median_s) for part in row.workload.parts() if (stats := self.table.latency(part))]
            seconds = sum(cost for _, cost in costs)
            if len(costs) == len(row.workload.blocks) and (off := self._off(costs) / seconds):
                shares.append(self.table.filled_variance(part for part, _ in costs) / off**2)
        return fmean(shares) if shares else 1.0

    @functools.cached_property
    def interval(self) -> PredictionInterval:
        """How wide intervals are; of one network that calibrates for itself, as wide as its filled rows make them."""
        if not self.calibration.promised:
            return PredictionInterval(NINE_IN_TEN, 0.0, self.together)
        known = self.uncertainty
        quantile = student_t((1 + self.calibration.promised) / 2, known.degrees)
        return PredictionInterval(quantile, known.variance, self.together)

    def margin(self, confidence: float) -> float:
        """Factor on a prediction below which a network with measured rows is with this probability; at least 1."""
        return self.uncertainty.margin(confidence)

    @property
    def constant_s(self) -> float:
        """What every network costs on top of its blocks."""
        return self.scale * self.calibration.constant_s

    def row_cost(self, part: Workload, position: Position) -> float:
        """What a block adds to the predicted latency of a network, in seconds.

        Raises:
            NotMeasured: The block has no row. The message does not look for near rows: this is asked for very often.
        """
        stats = self.table.latency(part)
        if stats is None:
            command = self.table.command(self.space, part, self.classes)
            raise NotMeasured(f"{part.key} was not measured on {self.table.target}: {command}")
        return self.scale * self.calibration.cost(part, _in_context(self.boundary, part, stats.median_s, position))

    def predict(self, network: Workload) -> Estimate:
        """The latency of a whole network.

        The interval holds what the calibration leaves over, what another occasion changes, and what each row that is
        filled in (``FilledTable``) may be off.

        Raises:
            NotMeasured: Blocks have no rows; all are named, with the nearest rows of the first and the command.
        """
        costs = self._costs(network)
        seconds = sum(cost for _, cost in costs) + self.constant_s
        filled = sum(cost for part, cost in costs if not self.table.is_measured(part)) / seconds
        spread = float(self.interval.spread(self._off(costs) / seconds))
        return Estimate(seconds, seconds / spread, seconds * spread, 1 - filled)

    def difference(self, first: Workload, second: Workload) -> LatencyDifference:
        """How much longer one network takes than another on the same occasion.

        What all networks share cancels: the occasion, and the error of the calibration's gain. What a single network is
        off is taken to be independent of the other. A filled row cancels for as many copies of its block as both
        networks have; further copies count.

        Raises:
            NotMeasured: As ``predict``.
        """
        sides = [self._costs(network) for network in (first, second)]
        seconds = [sum(cost for _, cost in costs) + self.constant_s for costs in sides]
        surplus: defaultdict[Workload, float] = defaultdict(float)
        for sign, costs in zip((1, -1), sides):
            for part, cost in costs:
                surplus[part] += sign * cost
        beside = [[(part, sign * cost) for part, cost in surplus.items() if sign * cost > 0] for sign in (1, -1)]
        off = [self._off(costs) / s for costs, s in zip(beside, seconds)]
        # The error of a new network holds that of the gain, one in ``count`` of its own; this is left out here.
        own = self.calibration.uncertainty.times(2 * self.calibration.count / (self.calibration.count + 1))
        variance = own.variance + self.together * math.fsum(share**2 for share in off)
        log, total = math.log(seconds[0] / seconds[1]), Uncertainty(variance, own.degrees)
        spread = total.spread(self.calibration.promised or NOMINAL)
        low, high = (seconds[1] * (math.exp(log) * factor - 1) for factor in (1 / spread, spread))
        return LatencyDifference(seconds[0] - seconds[1], low, high, total.chance(-log))

    def row_off(self, part: Workload, cost: float) -> float:
        """Standard deviation of what a block adds, in seconds: 0 unless its row is filled in."""
        return cost * self.table.deviation(part)

    def row_margin(self, part: Workload, confidence: float) -> float:
        """Factor on what a block adds whose row is filled in, so that the networks that have it are below their
        prediction with this probability; 1 for a measured row."""
        deviation = math.sqrt(self.together) * self.table.deviation(part)
        return Uncertainty.of_deviation(deviation).margin(confidence) if deviation else 1.0

    def _off(self, costs: Iterable[tuple[Workload, float]]) -> float:
        """What the filled rows among blocks are off by, all to the same side: a standard deviation, in seconds."""
        return math.fsum(self.row_off(part, cost) for part, cost in costs)

    def _costs(self, network: Workload) -> list[tuple[Workload, float]]:
        """The blocks of a network with what each adds, in seconds."""
        parts = list(network.parts())
        missing = list(dict.fromkeys(part for part in parts if part not in self.table))
        if missing:
            others = "".join(f", {part.key}" for part in missing[1:])
            raise NotMeasured(
                f"{len(missing)} of {len(parts)} rows are missing: "
                f"{self.table.explain(missing[0], self.space, self.classes)}"
                f"{'; also missing: ' + others[2:] if others else ''}"
            )
        return [(part, self.row_cost(part, Position.of(at, len(parts)))) for at, part in enumerate(parts)]


def _pieces(table: LatencyTable, boundary: BoundaryModel, network: Workload) -> tuple[Piece, ...] | None:
    """The blocks of a network with their rows in context; None where one has no row."""
    parts = list(network.parts())
    found = []
    for index, part in enumerate(parts):
        stats = table.latency(part)
        if stats is None:
            return None
        found.append(Piece.of(part, _in_context(boundary, part, stats.median_s, Position.of(index, len(parts)))))
    return tuple(found)


def _in_context(boundary: BoundaryModel, part: Workload, alone_s: float, position: Position) -> float:
    return boundary.in_context(part, alone_s, first=position is Position.FIRST, last=position is Position.LAST)
