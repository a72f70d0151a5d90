"""A predicted latency."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """Seconds, with the interval that holds ``nominal`` of all measured networks, and the share of the predicted time
    that comes from rows measured directly (1.0 = every row was measured)."""

    seconds: float
    low_s: float
    high_s: float
    measured_share: float = 1.0
