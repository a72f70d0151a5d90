"""The raw data of experiment 006 as arrays, so that thousands of tables with few rows are evaluated in minutes."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
RAW = HERE.parent / "006-latency-accuracy"
sys.path.insert(0, str(RAW))

from data import Data  # noqa: E402
from networks import BLOCKS, CALIBRATION, HELD_OUT  # noqa: E402

from hwbench.latency import BoundaryModel, Calibration, LatencyRow, LatencyTable, Role  # noqa: E402
from hwbench.latency.pieces import Observation, Piece  # noqa: E402
from hwbench.specs import Outcome, Precision, Workload  # noqa: E402

Floats = NDArray[np.float64]
NORMAL_90 = 1.6449
# Of a block that no boundary is a large share of.
_LONG_S = 1e3


@dataclass(frozen=True)
class Machine:
    """What one machine measured in one precision.

    Attributes:
        data: The raw data.
        parts: All blocks that were measured, and ``seconds`` of each.
        networks: All whole networks, and ``bands`` their places by band.
        measured_s: Of each network.
        saved_s: What the boundaries of each block are worth in each network, (networks, positions), by ``places`` of
            the blocks; positions beyond the end of a network have the place -1.
        pieces: The blocks of each network, for the calibration; their seconds are not used.
    """

    data: Data
    parts: list[Workload]
    seconds: Floats
    networks: list[Workload]
    bands: list[list[int]]
    measured_s: Floats
    saved_s: Floats
    places: NDArray[np.int64]
    pieces: list[list[Piece]]

    @classmethod
    def read(cls, name: str, precision: Precision) -> "Machine":
        """All blocks, networks and boundaries of a folder of experiment 006. Boundaries come from its probes."""
        data = Data.read(RAW / name, precision)
        boundary = BoundaryModel.fit(data.table())
        alone, networks = data.role(*BLOCKS), data.role(*CALIBRATION, *HELD_OUT)
        parts, row_s = list(alone), np.array([stats.median_s for stats in alone.values()])
        at = {part: place for place, part in enumerate(parts)}
        blocks = [list(network.parts()) for network in networks]
        shape = (len(blocks), max(map(len, blocks)))
        saved, places = np.zeros(shape), np.full(shape, -1)
        for row, several in enumerate(blocks):
            for column, part in enumerate(several):
                ends = column == 0, column == len(several) - 1
                places[row, column] = at[part]
                saved[row, column] = _LONG_S - boundary.in_context(part, _LONG_S, first=ends[0], last=ends[1])
        pieces = [[Piece.of(part, 1.0) for part in several] for several in blocks]
        order = {network: place for place, network in enumerate(networks)}
        bands = [[order[network] for network in band] for band in data.bands(*CALIBRATION, *HELD_OUT)]
        seconds = np.array([stats.median_s for stats in networks.values()])
        return cls(data, parts, row_s, list(networks), bands, seconds, saved, places, pieces)

    def table(self, rows: Sequence[int]) -> LatencyTable:
        """A table with some of the blocks, by their places, and no networks."""
        blocks = self.data.role(*BLOCKS)
        found = [LatencyRow(Role.BLOCK, p, Outcome.OK, blocks[p], "2026-11-21") for p in (self.parts[r] for r in rows)]
        return LatencyTable(self.data.target, self.data.precision, found)

    def dealt(self, rng: np.random.Generator) -> list[int]:
        """The networks in one random order in which every band comes equally often."""
        ranks = [
            (rank + rng.random(), place) for band in self.bands for rank, place in enumerate(rng.permutation(band))
        ]
        return [int(place) for _, place in sorted(ranks)]

    def in_context(self, seconds: Floats) -> Floats:
        """What each block of each network is worth there, from what blocks take alone; (networks, positions)."""
        alone = np.where(self.places < 0, 0.0, seconds[self.places])
        return np.where(self.places < 0, 0.0, np.maximum(alone - self.saved_s, 0.2 * alone))


@dataclass(frozen=True)
class Filling:
    """Seconds of all blocks of a machine, the standard deviations of the logarithms of those that are filled, and how
    far the errors of two of them are the same."""

    seconds: Floats
    deviations: Floats
    common_share: float

    def variances(self, machine: Machine) -> Floats:
        """Relative variance of each network by what is filled, as ``FilledTable.filled_variance`` has it."""
        found = np.empty(len(machine.networks))
        for row, places in enumerate(machine.places):
            blocks, copies = np.unique(places[places >= 0], return_counts=True)
            cost = copies * self.seconds[blocks]
            off = cost * self.deviations[blocks] / cost.sum()
            found[row] = self.common_share * off.sum() ** 2 + (1 - self.common_share) * (off**2).sum()
        return found


def held_out_errors(machine: Machine, filling: Filling, calibrated: Sequence[int], held_out: Sequence[int]) -> Floats:
    """Relative errors of networks that were held out, and whether each is inside its interval; shape (2, networks).

    The interval has the calibration's and that of the filled rows, as independent of each other.
    """
    context = machine.in_context(filling.seconds)
    networks = [Observation(float(machine.measured_s[row]), _pieces(machine, context, row)) for row in calibrated]
    calibration = Calibration.of(networks)
    predicted = np.array([_predicted(calibration, machine, context, row) for row in held_out])
    measured = machine.measured_s[list(held_out)]
    filled = filling.variances(machine)[list(held_out)]
    half = np.sqrt(math.log(calibration.spread) ** 2 + NORMAL_90**2 * filled)
    return np.stack([predicted / measured - 1, np.abs(np.log(measured / predicted)) <= half])


def _pieces(machine: Machine, context: Floats, row: int) -> tuple[Piece, ...]:
    return tuple(replace(piece, seconds=float(s)) for piece, s in zip(machine.pieces[row], context[row]))


def _predicted(calibration: Calibration, machine: Machine, context: Floats, row: int) -> float:
    if not calibration.terms and not calibration.gains:
        return calibration.gain * float(context[row].sum()) + calibration.constant_s
    parts = machine.networks[row].parts()
    return sum(calibration.cost(part, float(s)) for part, s in zip(parts, context[row])) + calibration.constant_s
