"""What families of bottleneck networks share: how cards tell their stages, and what every stage is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from hwbench.spaces.axes import depth_series, read_kernel
from hwbench.spaces.family import Family, only
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs import Kernel
from hwbench.specs.widths import inner_width
from hwbench.toml_fields import Fields

_Value = TypeVar("_Value")


def inner(choice: StageChoice) -> int:
    """Channels inside the blocks of a stage."""
    return inner_width(choice["width"], choice["expansion"])


def check_inner(stage: Stage) -> tuple[str, str] | None:
    """As ``Family.check``: an expansion that leaves no channel inside a block."""
    if any(inner(choice) < 1 for choice in stage.choices):
        return "expansion", "expected at least one channel inside a block"
    return None


def stages_alike(
    family: Family,
    fields: Fields,
    alike: Mapping[str, Any],
    by_stage: Sequence[str],
    kernels: Sequence[str] = (),
    factors: Sequence[str] = (),
) -> tuple[StageChoice, ...]:
    """The stages of a card.

    Args:
        family: Whose they are.
        fields: The table of the card; it has a list for each name of ``by_stage``, called by the plural: ``depths``.
        alike: Values that all stages share, by name.
        by_stage: What differs from stage to stage; ``depth`` is the first.
        kernels: Axes of kernels that differ from stage to stage; their lists are called by the plural, too.
        factors: The same of axes of numbers that need not be whole.

    Raises:
        InvalidFile: Lists of different lengths, or values that no stage can have.
    """
    names = [f"{name}s" for name in by_stage]
    depths = depth_series(fields, names[0])
    series = [depths, *(fields.series(name) for name in names[1:])]
    for name, plural, values in zip(by_stage, names, series):
        if len(values) != len(depths):
            raise fields.error(plural, f"expected one {name} for each of {len(depths)} depths", list(values))
        if min(values) < 1:
            raise fields.error(plural, "expected whole numbers, at least 1", list(values))
    texts = [_kernel_series(fields, f"{name}s", len(depths)) for name in kernels]
    numbers = [_of_each(fields, f"{name}s", fields.number_series(f"{name}s"), len(depths)) for name in factors]
    everything = (*by_stage, *kernels, *factors)
    return tuple(only(family, {**alike, **dict(zip(everything, values))}) for values in zip(*series, *texts, *numbers))


def check_pairs(stage: Stage, axis: str = "kernel") -> tuple[str, str] | None:
    """As ``Family.check``: kernels that are no pairs of one over time (or pointwise) and any other."""
    if any(len(one) % 2 or not one or any(first[1:] != (1, 1) for first in one[::2]) for one in stage[axis]):
        return axis, "expected pairs of a kernel over time (or 1x1x1) and another, as 3x1x1+1x3x3"
    return None


def _kernel_series(fields: Fields, name: str, number: int) -> tuple[Kernel, ...]:
    """A kernel for each stage."""
    texts = _of_each(fields, name, fields.words(name), number)
    return tuple(read_kernel(fields, name, text) for text in texts)


def _of_each(fields: Fields, name: str, values: tuple[_Value, ...], number: int) -> tuple[_Value, ...]:
    """The values, one for each stage."""
    if len(values) != number:
        raise fields.error(name, f"expected one {name.removesuffix('s')} for each of {number} depths", list(values))
    return values
