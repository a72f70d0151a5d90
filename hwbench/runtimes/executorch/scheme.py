"""How a network becomes int8, as a value. Loads neither torch nor an engine."""

from __future__ import annotations

from dataclasses import dataclass

from hwbench.errors import UnknownName
from hwbench.registry import suggest

HISTOGRAM = "histogram"
OBSERVERS = (HISTOGRAM, "minmax", "moving-average")


@dataclass(frozen=True)
class Scheme:
    """What is quantised, and how the ranges of activations are found. Weights are symmetric per output channel.

    Attributes:
        observer: ``histogram`` (the range with the least error of rounding and clipping), ``minmax`` (all values ever
            seen) or ``moving-average`` (mean of the clips' extremes, the latest weighing most).
        fp32_blocks: Names of modules that stay in fp32, with all that is inside them.
    """

    observer: str = HISTOGRAM
    fp32_blocks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.observer not in OBSERVERS:
            raise UnknownName(f"unknown observer {self.observer!r}; {suggest(self.observer, OBSERVERS)}")
