"""Upper limits of what a network costs: of sums over its blocks, such as latency, and of the largest of its blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hwbench.errors import InvalidValue
from hwbench.spaces.sums import SpaceSums
from hwbench.spaces.walk import Floats
from hwbench.units import rounded_up

Mask = NDArray[np.bool_]


def checked_share(share: float) -> float:
    """A share of budgets that stand in their place.

    Raises:
        InvalidValue: It is not a finite number of 0 or more.
    """
    if not 0 <= share < math.inf:
        raise InvalidValue(f"share of the budget: expected a finite number of 0 or more, such as 0.9, got {share:g}")
    return share


def written(value: float) -> str:
    """A number as text, rounded up."""
    return f"{rounded_up(value, 7):.7g}"


@dataclass(frozen=True)
class Budget:
    """An upper limit of a sum over the blocks of a network.

    Args:
        name: What messages call the sum, such as ``latency on s9``.
        limit: The most that a network may have, above zero.
        sums: What the networks of a space have.
        option: The option that sets the limit.
        write: A value as it is typed behind the option, rounded up.
        unit: All numbers of ``sums`` are whole multiples of it; None: they are any numbers.
    """

    name: str
    limit: float
    sums: SpaceSums
    option: str = "--budget"
    write: Callable[[float], str] = written
    unit: float | None = None

    def __post_init__(self) -> None:
        if not self.limit > 0:
            raise InvalidValue(f"{self.name}: expected a budget above zero, got {self.limit:g}")

    def scaled(self, share: float) -> Budget:
        """The same with a share of the limit.

        Raises:
            InvalidValue: The share is not a finite number above 0.
        """
        return replace(self, limit=checked_share(share) * self.limit)


def typed(budgets: Sequence[Budget], limits: Sequence[float]) -> str:
    """Options that set budgets to these limits."""
    values: dict[str, list[str]] = {}
    for budget, limit in zip(budgets, limits, strict=True):
        values.setdefault(budget.option, []).append(budget.write(limit))
    return " ".join(f"{option} {','.join(texts)}" for option, texts in values.items())


def jointly_known(sums: Sequence[SpaceSums]) -> list[SpaceSums]:
    """Sums over one space, in each of which a block has a number only where it has one in all.

    Raises:
        ValueError: They are not sums over the same space.
    """
    first = sums[0]
    if any((o.space.choices, o.num_classes) != (first.space.choices, first.num_classes) for o in sums):
        raise ValueError("sums are over different spaces")
    missing = tuple(dict.fromkeys(part for one in sums for part in one.missing))
    reason = next((one.reason for one in sums if one.reason), "")
    masks = [
        [_all_finite([one.cells[at].stages[n].seconds for one in sums]) for n in range(len(first.axes))]
        for at in range(len(first.cells))
    ]
    bases = [all(np.isfinite(one.cells[at].base) for one in sums) for at in range(len(first.cells))]
    return [replace(masked(one, bases, masks), missing=missing, reason=reason) for one in sums]


def _all_finite(numbers: Sequence[Floats]) -> Mask:
    """By place: whether it is finite in all arrays."""
    return np.asarray(np.isfinite(numbers).all(axis=0))


def masked(sums: SpaceSums, bases: Sequence[bool], stages: Sequence[Sequence[Mask]]) -> SpaceSums:
    """Sums with infinity where a mask says no.

    Args:
        sums: Any sums over a space.
        bases: By input size.
        stages: By input size and stage: shape (activations that reach the stage, choices).
    """
    cells = tuple(
        replace(
            cell,
            base=cell.base if base else np.inf,
            stages=tuple(
                replace(stage, seconds=np.where(mask, stage.seconds, np.inf))
                for stage, mask in zip(cell.stages, masks, strict=True)
            ),
        )
        for cell, base, masks in zip(sums.cells, bases, stages, strict=True)
    )
    return replace(sums, cells=cells)


@dataclass(frozen=True)
class PeakLimit:
    """An upper limit of the largest number that any block of a network has: exact, it leaves choices out.

    Args:
        name: What messages call the number, such as ``activations``.
        limit: The most that a block may have.
        peaks: The largest number of each stage (``SpaceSums.of_peaks``).
        option: The option that sets the limit.
        write: A value as it is typed behind the option, rounded up.
    """

    name: str
    limit: float
    peaks: SpaceSums
    option: str
    write: Callable[[float], str] = written

    def apply(self, sums: SpaceSums, limit: float | None = None) -> SpaceSums:
        """Sums with infinity wherever a block is above the limit, or above another one."""
        most = self.limit if limit is None else limit
        bases = [cell.base <= most for cell in self.peaks.cells]
        stages: list[list[Mask]] = [[stage.seconds <= most for stage in cell.stages] for cell in self.peaks.cells]
        return masked(sums, bases, stages)

    def levels(self) -> Floats:
        """All numbers that occur, ascending: a limit between two of them does what the lower one does."""
        cells = self.peaks.cells
        numbers = [stage.seconds.ravel() for cell in cells for stage in cell.stages]
        values: Floats = np.unique(np.concatenate([*numbers, [cell.base for cell in cells]]))
        return values[np.isfinite(values)]


def peaks_applied(budget: Budget, peaks: Sequence[PeakLimit]) -> Budget:
    """A budget whose sums leave out what is above a peak."""
    sums = budget.sums
    for peak in peaks:
        sums = peak.apply(sums)
    return replace(budget, sums=sums)
