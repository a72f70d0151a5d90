"""Learning rates over the steps of a run, as shares of the peak rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwbench.training.recipe import Recipe

SCHEDULES = ("constant", "cosine", "linear", "step")


def rate(recipe: Recipe, step: int, total: int) -> float:
    """Learning rate of step ``step`` of ``total``, counted from 0.

    The warm-up is linear from ``warmup_start`` of the peak to the peak. The schedule takes the steps behind it; the
    places of ``step`` are shares of the whole run, warm-up included.
    """
    warmup = max(1, round(recipe.warmup_share * total))
    if step < warmup:
        risen = recipe.learning_rate * (step + 1) / warmup
        return recipe.warmup_start * recipe.learning_rate + (1 - recipe.warmup_start) * risen
    if recipe.schedule == "step":
        passed = sum(step >= round(place * total) for place in recipe.decay_at)
        return recipe.learning_rate * recipe.decay_factor**passed
    share = (step - warmup) / max(1, total - warmup)
    final = recipe.final_share
    return recipe.learning_rate * (final + (1 - final) * _SHAPES[recipe.schedule](share))


# Share of the steps behind the warm-up -> share of the rate between its peak and its final value.
_SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),
    "linear": lambda share: 1 - share,
}
