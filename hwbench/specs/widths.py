"""Numbers of channels that follow from others."""

from __future__ import annotations


def round_width(width: int, multiplier: float, minimum: int = 8, divisor: int = 8) -> int:
    """``width * multiplier`` as a multiple of ``divisor``, never more than 10 % below it, as PySlowFast has it.

    A multiplier of 0 leaves the width as it is.
    """
    scaled = width * multiplier
    if not scaled:
        return width
    rounded = max(minimum, int(scaled + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * scaled else rounded


def squeezed(channels: int, ratio: float) -> int:
    """Reduced channels of a squeeze-excite; a ratio of 0 means none, and gives 0."""
    return round_width(channels, ratio) if ratio else 0


def nearest_width(width: int, multiplier: float, divisor: int = 8) -> int:
    """``width * multiplier`` as the nearest multiple of ``divisor``, at least the first.

    Halfway between two it is the even one, as E3D has it: 1.5 x 120 gives 176.
    """
    return max(1, round(width * multiplier / divisor)) * divisor


def inner_width(width: int, expansion: float) -> int:
    """Channels inside a bottleneck; cut off, not rounded, as X3D and ResNets do: 2.25 x 24 = 54."""
    return int(expansion * width)
