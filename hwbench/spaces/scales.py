"""How far the values of a choice are apart: numbers by their order, other values as they are listed. Loads no torch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hwbench.spaces.walk import Integers


def is_numeric(scale: tuple[str, ...]) -> bool:
    """Whether all values of a scale are finite numbers."""
    try:
        return bool(np.isfinite([float(value) for value in scale]).all())
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def steps_along(scale: tuple[str, ...]) -> Integers:
    """By value of a scale: its steps from the smallest number, however they are listed; else from the first value."""
    if not is_numeric(scale):
        return np.arange(len(scale))
    steps: Integers = np.argsort(np.argsort([float(value) for value in scale], kind="stable"))
    return steps
