"""A space seen through a latency table: what its networks are predicted to take, and which fit a budget.

Loads neither torch nor Optuna: an impossible budget is answered before either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hwbench.latency import AdditivePredictor, Position
from hwbench.latency.footprint import activation_bytes, file_bytes
from hwbench.latency.predictor import PredictionInterval
from hwbench.spaces import StagedSpace
from hwbench.spaces.budgets import Budget, PeakLimit
from hwbench.spaces.digest import choices_digest as choices_digest
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.joint import JointSet
from hwbench.spaces.limits import Limits
from hwbench.spaces.protocols import NetworkSet, NetworkSums
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.union_set import UnionSet
from hwbench.specs import Architecture, BlockRole, BlockSpec, Precision, TensorSpec
from hwbench.studies.settings import EVEN, Settings
from hwbench.units import typed_bytes, typed_duration

_FILE_SIZE, _ACTIVATIONS = "file size", "activations"
_ENDS = {BlockRole.STEM: Position.FIRST, BlockRole.HEAD: Position.LAST, BlockRole.NETWORK: Position.FIRST}


def row_positions(space: StagedSpace) -> Callable[[BlockSpec, TensorSpec], Position]:
    """Tells where a block on its input stands in the networks of a space: of several stems only one is the first."""
    first = {before[0].located(cell.clip) for cell in space.cells if (before := space.ends.on(cell.clip).before())}

    def position(block: BlockSpec, x: TensorSpec) -> Position:
        if block.role is BlockRole.STEM and block.located(x) not in first:
            return Position.INNER
        return _ENDS.get(block.role, Position.INNER)

    return position


def feasible_set(space: StagedSpace, predictor: AdditivePredictor, settings: Settings) -> FeasibleSet:
    """The networks of a space that are within the budget of a study, each with the confidence that it asks for.

    ``sums`` of the set are what a network takes at most with that confidence; at 1/2, what it is predicted to take.

    Raises:
        InfeasibleBudget: There is none.
        NotMeasured: The table has no rows for any whole network.
    """
    precision = Precision.parse(settings.precision)
    latencies = space_latencies(space, predictor, precision, settings.num_classes, settings.confidence)
    return FeasibleSet(latencies, settings.budget_s)


def space_limits(space: StagedSpace, predictors: Sequence[AdditivePredictor], settings: Settings) -> Limits:
    """The limits of the networks of one space in a study: each latency with the confidence that it asks for, the size
    of the file, and the activations.

    Args:
        space: The space.
        predictors: By device, in the order of ``settings.budgets_ms``, for this space.
        settings: What the study searches for.
    """
    precision, classes = Precision.parse(settings.precision), settings.num_classes
    budgets = [
        Budget(
            f"latency on {device}", limit_ms / 1e3,
            space_latencies(space, predictor, precision, classes, settings.confidence), "--budget", typed_duration,
        )
        for predictor, (device, limit_ms) in zip(predictors, settings.budgets_ms.items(), strict=True)
    ]  # fmt: skip
    if settings.max_file_bytes:
        sums = SpaceSums.of(space, lambda block, x: file_bytes(block, x, precision), num_classes=classes)
        budgets.append(Budget(_FILE_SIZE, settings.max_file_bytes, sums, "--max-file-size", typed_bytes))
    peaks = []
    if settings.max_activation_bytes:
        sums = SpaceSums.of_peaks(space, lambda block, x: activation_bytes(block, x, precision), num_classes=classes)
        peaks.append(PeakLimit(_ACTIVATIONS, settings.max_activation_bytes, sums, "--max-activations", typed_bytes))
    return Limits(tuple(budgets), tuple(peaks))


def joint_set(space: StagedSpace, predictors: Sequence[AdditivePredictor], settings: Settings) -> JointSet:
    """The networks of a space that are within all limits of a study, as ``space_limits`` has them.

    Raises:
        InfeasibleBudget: There is none; the nearest budgets are named.
        NotMeasured: No whole network has rows in all tables.
    """
    limits = space_limits(space, predictors, settings)
    return JointSet(limits.budgets, limits.peaks)


def sizes(feasible: NetworkSet) -> dict[str, Callable[[Architecture], float]]:
    """The bytes of networks that have a budget, by the key that ``--json`` prints."""
    if isinstance(feasible, UnionSet):
        by_space = {one.budgets[0].sums.space.name: _sizes(one.budgets, one.peaks) for one in feasible.limits}
        keys = next(iter(by_space.values()))
        return {key: partial(_size_by_space, by_space, key) for key in keys}
    return _sizes(feasible.budgets, feasible.peaks) if isinstance(feasible, JointSet) else {}


def _sizes(budgets: Sequence[Budget], peaks: Sequence[PeakLimit]) -> dict[str, Callable[[Architecture], float]]:
    keys = {_FILE_SIZE: "file_size_bytes", _ACTIVATIONS: "activation_bytes"}
    by_name = {budget.name: budget.sums.total for budget in budgets}
    by_name |= {peak.name: peak.peaks.peak for peak in peaks}
    return {key: by_name[name] for name, key in keys.items() if name in by_name}


def _size_by_space(
    sizes: Mapping[str, Mapping[str, Callable[[Architecture], float]]], key: str, architecture: Architecture
) -> float:
    return sizes[architecture.space][key](architecture)


@dataclass(frozen=True)
class WorstLatency:
    """The latency that is the largest share of its budget, in seconds of the first budget.

    Args:
        latencies: By device.
        budgets_s: Upper limits of them.
    """

    latencies: Sequence[NetworkSums]
    budgets_s: Sequence[float]

    def total(self, architecture: Architecture) -> float:
        """Of one network."""
        shares = [sums.total(architecture) / limit for sums, limit in zip(self.latencies, self.budgets_s, strict=True)]
        return max(shares) * self.budgets_s[0]


def space_latencies(
    space: StagedSpace,
    predictor: AdditivePredictor,
    precision: Precision,
    num_classes: int,
    confidence: float = EVEN,
) -> SpaceSums:
    """The predicted latencies of all networks of a space.

    Args:
        space: The space.
        predictor: Of the device.
        precision: Of the networks.
        num_classes: Width of the heads.
        confidence: Above 1/2 what a network takes at most with this probability: a margin on all of it, by the
            calibration networks, and on rows that were filled in the end of their interval.
    """
    margin = predictor.margin(confidence) if confidence > EVEN else 1.0

    position = row_positions(space)

    def latency(block: BlockSpec, x: TensorSpec) -> float:
        part = space.part(block, x, precision)
        cost = margin * predictor.row_cost(part, position(block, x))
        return cost if confidence <= EVEN else cost * predictor.row_margin(part, confidence)

    return SpaceSums.of(space, latency, num_classes=num_classes, constant=margin * predictor.constant_s)


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
    interval: PredictionInterval
    off: SpaceSums | None = None

    def predict_many(self, codes: NDArray[np.int64]) -> Predictions:
        """The latencies of networks given as ``StagedSpace.encode`` writes them.

        Equal to ``AdditivePredictor.predict`` of each network up to rounding (1e-12), and to ``sums.total`` to the bit.

        Raises:
            InvalidValue: The codes are not of this space.
        """
        seconds = self.sums.totals(codes)
        off = 0.0 if self.off is None else np.where(np.isinf(seconds), 0.0, self.off.totals(codes)) / seconds
        spread = self.interval.spread(off)
        return Predictions(seconds, seconds / spread, seconds * spread)


def compile_predictor(
    space: StagedSpace, predictor: AdditivePredictor, precision: Precision, num_classes: int
) -> SpacePredictor:
    """Asks the predictor for every block of a space once, so that whole networks are sums of table entries."""
    sums = space_latencies(space, predictor, precision, num_classes)
    if predictor.table.filled_spread == 1.0:
        return SpacePredictor(sums, predictor.interval)

    position = row_positions(space)

    def off(block: BlockSpec, x: TensorSpec) -> float:
        part = space.part(block, x, precision)
        return predictor.row_off(part, predictor.row_cost(part, position(block, x)))

    return SpacePredictor(sums, predictor.interval, SpaceSums.of(space, off, num_classes=num_classes))
