"""In how many ways a network may go on within the steps that are left, by dynamic programming over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.spaces.walk import Floats, Integers, StageSums


@dataclass(frozen=True)
class Completions:
    """The ways on from every step of one input size; of those within a band, see ``of``, alone.

    Activations from which everything costs the same share a row: those of the blocks of a stage that have equally many
    blocks behind them do.

    Attributes:
        ways: The rows one behind the other: the ways on within at most so many steps of the grid, from the first
            number of steps within which there is a way.
        least: By row: that number.
        starts: By row: where it begins in ``ways``.
        numbers: By step and one past the last: for each activation that reaches it the number of its row. There is
            none for the first step, of which only one number is ever asked for.
    """

    ways: Floats
    least: Integers
    starts: Integers
    numbers: tuple[Integers, ...]

    @classmethod
    def of(
        cls, stages: Sequence[StageSums], costs: Sequence[Integers], grid: int, width: int | None = None
    ) -> Completions:
        """Counts from the last step on.

        Args:
            stages: The steps.
            costs: By step, shape (activations, choices): steps of the grid, more than ``grid`` where there is no way.
            grid: The most that may be left.
            width: Steps that may be left over in the end are fewer than these: ways of a band are counted themselves,
                for the difference of two totals loses what is below their rounding. None: any number.
        """
        table = _RowTable(grid, width)
        numbers = [np.array([table.number(np.zeros(1, np.int64), np.full(1, _END))])]
        for stage, steps in zip(stages[:0:-1], costs[:0:-1]):
            after = numbers[-1]
            numbers.append(np.array([table.number(row, after[outs]) for row, outs in zip(steps, stage.out)]))
        starts = np.cumsum([0, *(len(ways) for _, ways in table.rows)])[:-1]
        ways = np.concatenate([*(ways for _, ways in table.rows), np.zeros(1)])  # where an empty row is looked up
        least = np.array([least for least, _ in table.rows])
        return cls(ways, least, starts, (np.empty(0, np.int64), *numbers[::-1]))

    def at_most(self, step: int, out: Integers, left: Integers) -> Floats:
        """The ways on from a step, for each of several activations and of what is left; 0 where steps are short."""
        rows = self.numbers[step][out]
        beyond = left - self.least[rows]
        found: Floats = np.where(beyond >= 0, self.ways[self.starts[rows] + np.maximum(beyond, 0)], 0.0)
        return found


# In the place of a row: the network ends there.
_END = -1


class _RowTable:
    """Rows, each made once."""

    def __init__(self, grid: int, width: int | None) -> None:
        self._grid, self._width = grid, width
        self._known: dict[bytes, int] = {}
        self.rows: list[tuple[int, Floats]] = []

    def number(self, costs: Integers, after: Integers) -> int:
        """The number of the row of an activation.

        Args:
            costs: By choice, in steps.
            after: By choice: the number of the row that the choice leads to.
        """
        within = costs <= self._grid
        alike, counts = np.unique(np.stack([costs[within], after[within]]), axis=1, return_counts=True)
        if len(counts) == 1 and counts[0] == 1 and alike[0, 0] == 0 and alike[1, 0] != _END:
            return int(alike[1, 0])  # nothing to choose and nothing to pay
        key = alike.tobytes() + b"|" + counts.tobytes()
        if key not in self._known:
            self._known[key] = len(self.rows)
            self.rows.append(self._row(alike, counts))
        return self._known[key]

    def _row(self, alike: Integers, counts: Integers) -> tuple[int, Floats]:
        """The steps within which there is a way, and the ways from there to the end of the grid."""
        grid = self._grid
        row = np.zeros(grid + 1)
        for (cost, after), number in zip(alike.T.tolist(), counts.tolist()):
            least, ways = self.rows[after] if after != _END else (0, None)
            if ways is None:
                row[cost : None if self._width is None else cost + self._width] += number
            elif cost + least <= grid:
                row[cost + least :] += number * ways[: grid + 1 - cost - least]
        least = int(np.argmax(row > 0)) if row.any() else grid + 1
        return least, row[least:].copy()
