"""The blocks that occur in members within a limit of a sum: exact, without any grid."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hwbench.spaces.sums import CellSums, SpaceSums
from hwbench.spaces.walk import after, on_inputs
from hwbench.specs import BlockSpec, TensorSpec


def parts_within(sums: SpaceSums, limit: float) -> Iterator[tuple[BlockSpec, TensorSpec]]:
    """The blocks, on their inputs, that occur in at least one member whose sum is at most ``limit``; each once."""
    seen: set[tuple[BlockSpec, TensorSpec]] = set()
    for cell in sums.cells:
        for part in _parts_in(sums, cell, limit):
            if part not in seen:
                seen.add(part)
                yield part


def _parts_in(sums: SpaceSums, cell: CellSums, limit: float) -> Iterator[tuple[BlockSpec, TensorSpec]]:
    ahead, behind, ends = sums.ahead(cell), sums.behind(cell), sums.space.ends.on(cell.cell.clip)
    if behind[0][0] + ahead[0][0] <= limit:
        yield from on_inputs(ends.before(), cell.cell.clip)
    for index, (axis, stage) in enumerate(zip(sums.axes, cell.stages)):
        least = behind[index][:, None] + stage.seconds + ahead[index + 1][stage.out]
        for row, number in np.argwhere(least <= limit).tolist():
            x, carried = stage.at(row)
            move = axis.follow(sums.space.family, axis.choices[number], x, carried)
            if move is None:
                continue
            blocks, carried = move
            yield from on_inputs(blocks, x)
            if index == len(sums.axes) - 1:
                x = after(blocks, x)
                yield from on_inputs(ends.behind(carried.choice, x, sums.num_classes), x)
