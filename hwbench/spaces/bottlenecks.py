"""What families of bottleneck networks share: how cards tell their stages, and what every stage is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwbench.spaces.axes import depth_series
from hwbench.spaces.family import Family, only
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.specs.widths import inner_width
from hwbench.toml_fields import Fields


def inner(choice: StageChoice) -> int:
    """Channels inside the blocks of a stage."""
    return inner_width(choice["width"], choice["expansion"])


def check_inner(stage: Stage) -> tuple[str, str] | None:
    """As ``Family.check``: an expansion that leaves no channel inside a block."""
    if any(inner(choice) < 1 for choice in stage.choices):
        return "expansion", "expected at least one channel inside a block"
    return None


def stages_alike(
    family: Family, fields: Fields, alike: Mapping[str, Any], by_stage: Sequence[str]
) -> tuple[StageChoice, ...]:
    """The stages of a card.

    Args:
        family: Whose they are.
        fields: The table of the card; it has a list for each name of ``by_stage``, called by the plural: ``depths``.
        alike: Values that all stages share, by name.
        by_stage: What differs from stage to stage; ``depth`` is the first.

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
    return tuple(only(family, {**alike, **dict(zip(by_stage, values))}) for values in zip(*series))
