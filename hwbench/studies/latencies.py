"""A space seen through a latency table: what its networks are predicted to take, and which fit a budget.

Loads neither torch nor Optuna: an impossible budget is answered before either.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwbench.latency import AdditivePredictor, Position
from hwbench.spaces import StagedSpace
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import BlockRole, BlockSpec, Precision, TensorSpec, Workload
from hwbench.studies.settings import Settings

_ENDS = {BlockRole.STEM: Position.FIRST, BlockRole.HEAD: Position.LAST, BlockRole.NETWORK: Position.FIRST}


def row_position(block: BlockSpec) -> Position:
    """Where a block stands in a network of a space."""
    return _ENDS.get(block.role, Position.INNER)


def feasible_set(space: StagedSpace, predictor: AdditivePredictor, settings: Settings) -> FeasibleSet:
    """The networks of a space whose predicted latency is within the budget of a study.

    Raises:
        InfeasibleBudget: There is none.
        NotMeasured: The table has no rows for any whole network.
    """
    precision = Precision.parse(settings.precision)
    return FeasibleSet(space_latencies(space, predictor, precision, settings.num_classes), settings.budget_s)


def space_latencies(
    space: StagedSpace, predictor: AdditivePredictor, precision: Precision, num_classes: int
) -> SpaceSums:
    """The predicted latencies of all networks of a space."""

    def latency(block: BlockSpec, x: TensorSpec) -> float:
        return predictor.row_cost(Workload((block,), x, precision), row_position(block))

    return SpaceSums.of(space, latency, num_classes=num_classes, constant=predictor.constant_s)


@dataclass(frozen=True)
class Predictions:
    """Latencies of many networks in seconds, each with its interval; infinity where rows are missing."""

    seconds: NDArray[np.float64]
    low_s: NDArray[np.float64]
    high_s: NDArray[np.float64]


@dataclass(frozen=True)
class SpacePredictor:
    """A predictor compiled for one space: a million networks a second. Made by ``compile_predictor``."""

    sums: SpaceSums
    spread: float
    filled: SpaceSums | None = None
    row_spread: float = 1.0

    def predict_many(self, codes: NDArray[np.int64]) -> Predictions:
        """The latencies of networks given as ``StagedSpace.encode`` writes them.

        Equal to ``AdditivePredictor.predict`` of each network up to rounding (1e-12), and to ``sums.total`` to the bit.

        Raises:
            InvalidValue: The codes are not of this space.
        """
        seconds = self.sums.totals(codes)
        if self.filled is None:
            return Predictions(seconds, seconds / self.spread, seconds * self.spread)
        filled = np.where(np.isinf(seconds), 0.0, self.filled.totals(codes))
        low, high = seconds - filled * (1 - 1 / self.row_spread), seconds + filled * (self.row_spread - 1)
        return Predictions(seconds, low / self.spread, high * self.spread)


def compile_predictor(
    space: StagedSpace, predictor: AdditivePredictor, precision: Precision, num_classes: int
) -> SpacePredictor:
    """Asks the predictor for every block of a space once, so that whole networks are sums of table entries."""
    sums = space_latencies(space, predictor, precision, num_classes)
    spread, row_spread = predictor.calibration.spread, predictor.table.filled_spread
    if row_spread == 1.0:
        return SpacePredictor(sums, spread)

    def filled(block: BlockSpec, x: TensorSpec) -> float:
        part = Workload((block,), x, precision)
        cost = predictor.row_cost(part, row_position(block))
        return 0.0 if predictor.table.is_measured(part) else cost

    return SpacePredictor(sums, spread, SpaceSums.of(space, filled, num_classes=num_classes), row_spread)


def choices_digest(space: StagedSpace) -> str:
    """Changes when what may be chosen in a space changes, or its stem, head or strides."""
    return hashlib.sha256(repr(space).encode()).hexdigest()[:16]
