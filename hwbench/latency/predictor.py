"""Predicts the latency of a network from the rows of its blocks, with an interval that says how far off it may be."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass

from hwbench.errors import InvalidValue, NotMeasured
from hwbench.latency.boundary import BoundaryModel
from hwbench.latency.calibration import NOMINAL, Calibration, Observation, Piece
from hwbench.latency.table import LatencyTable, Role
from hwbench.specs import AUTO, BlockRole, Estimate, Workload

# Fewer say nothing about the spread.
MIN_NETWORKS = 3


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
class AdditivePredictor:
    """The prediction of a network is what its blocks cost in context, calibrated (``Calibration``).

    Made by ``fit``; ``space`` only serves the command in messages.
    """

    table: LatencyTable
    boundary: BoundaryModel
    calibration: Calibration
    space: str | None = None

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
    ) -> AdditivePredictor:
        """Learns boundaries from the chains of a table and the calibration from its networks.

        Args:
            table: Rows of one target; networks whose blocks have no rows are passed over.
            space: The space that is predicted for, named in messages.
            nominal: Share of networks that the interval is to hold.
            emulated: Accept a table that was taken under emulation.
            members: Number of networks of the space; of fewer than three no more can be asked for.
            left_out: Networks that take no part, so that they can be predicted like any other.

        Raises:
            NotMeasured: Fewer than three calibration networks, or fewer than the space has, have a latency and rows for
                all their blocks.
            InvalidValue: The table was taken under emulation.
        """
        if table.emulated and not emulated:
            raise InvalidValue(
                f"the table of {table.target} was taken under emulation; it predicts no real latency. "
                "To try the search out with it: hwbench search --allow-emulated"
            )
        boundary = BoundaryModel.fit(table.boundary_rows)
        networks = [
            Observation(row.stats.median_s, pieces)
            for row in table
            if row.role is Role.NETWORK or row.workload.blocks[0].role is BlockRole.NETWORK
            if row.stats is not None and row.workload not in left_out
            if (pieces := _pieces(table, boundary, row.workload)) is not None
        ]
        least = min(MIN_NETWORKS, members or MIN_NETWORKS)
        if len(networks) < least:
            plain = (row.workload for row in table if row.workload.variant == AUTO)
            head = next((workload for workload in plain if workload.blocks[-1].role.gives_logits), None)
            raise NotMeasured(
                f"the table of {table.target} in {table.precision} has {len(networks)} calibration networks, at least "
                f"{least} are needed; measure them: {table.command(space, head)}"
            )
        calibration = Calibration.of(networks, nominal) if len(networks) > 1 else Calibration.alone(networks[0])
        return cls(table, boundary, calibration, space)

    @property
    def spread(self) -> float:
        """Factor of the interval of any network, filled rows or not; ``predict`` gives narrower ones for each."""
        return self.calibration.spread * self.table.filled_spread

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
            command = self.table.command(self.space, part)
            raise NotMeasured(f"{part.key} was not measured on {self.table.target}: {command}")
        return self.calibration.cost(part, _in_context(self.boundary, part, stats.median_s, position))

    def predict(self, network: Workload) -> Estimate:
        """The latency of a whole network.

        Rows that are filled in (``FilledTable``) widen the interval by what each may be off, all to the same side.

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
        filled = sum(cost for cost, part in zip(costs, parts) if not self.table.is_measured(part))
        spread, row_spread = self.calibration.spread, self.table.filled_spread
        low, high = seconds - filled * (1 - 1 / row_spread), seconds + filled * (row_spread - 1)
        return Estimate(seconds, low / spread, high * spread, 1 - filled / seconds)


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
