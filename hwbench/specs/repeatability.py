"""What an A/A test found: one file measured as if it were two."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hwbench.errors import CheckFailed
from hwbench.specs.timing import Session, student_t95
from hwbench.units import milliseconds

# A device on which the same file differs by more than this from itself does not tell two files apart by 1 %.
ALLOWED = 0.01


@dataclass(frozen=True)
class Repeatability:
    """What an A/A test found.

    ``difference`` is that of the second from the first, relative (0.01: the second is 1 % slower), with its 95 %
    interval ``low`` to ``high``; ``median_s`` is the median of all session medians.
    """

    difference: float
    low: float
    high: float
    pairs: int
    median_s: float

    @property
    def largest(self) -> float:
        """The A/A figure: how far the same file may differ from itself, either way, with 95 % confidence."""
        return max(abs(self.difference), abs(self.low), abs(self.high))

    @property
    def ok(self) -> bool:
        """The difference is within 1 %, and so is the interval: that is what is claimed of latencies."""
        return self.largest <= ALLOWED

    @classmethod
    def of(cls, first: Sequence[Session], second: Sequence[Session]) -> Repeatability:
        """Compares sessions pair by pair: the two of a round were taken one after the other.

        The difference is the mean of the logarithms of the ratios of session medians, its interval Student's t.

        Raises:
            CheckFailed: There are less than two pairs.
        """
        ratios = [math.log(b.median_s / a.median_s) for a, b in zip(first, second, strict=False)]
        if len(ratios) < 2:
            raise CheckFailed(f"A/A test: expected at least 2 pairs of sessions, got {len(ratios)}")
        centre = statistics.fmean(ratios)
        half = student_t95(len(ratios) - 1) * statistics.stdev(ratios) / math.sqrt(len(ratios))
        median = statistics.median(session.median_s for session in (*first, *second))
        return cls(math.expm1(centre), math.expm1(centre - half), math.expm1(centre + half), len(ratios), median)

    def as_json(self) -> dict[str, Any]:
        """The keys that ``--json`` prints of an A/A test."""
        return {
            "difference": self.difference,
            "low": self.low,
            "high": self.high,
            "pairs": self.pairs,
            "median_ms": milliseconds(self.median_s),
            "ok": self.ok,
        }

    def __str__(self) -> str:
        interval = f"{100 * self.low:+.2f} % to {100 * self.high:+.2f} %"
        times = f"{self.pairs} pairs of sessions, median {1e3 * self.median_s:.3g} ms"
        return f"the same file twice differs by {100 * self.difference:+.2f} % (95 %: {interval}; {times})"
