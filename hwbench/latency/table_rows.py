"""The rows of a latency table: what each is for, its numbers, and the columns in which they stand."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from hwbench.errors import InvalidValue
from hwbench.latency.probes import is_boundary_probe
from hwbench.specs import LatencyStats, Measurement, Outcome, Repeatability, Workload

# Fields of ``LatencyStats``: latencies in seconds, and how many there are.
NUMBERS = ("median_s", "p10_s", "p90_s", "ci_low_s", "ci_high_s")
COUNTS = ("num_sessions", "num_samples")
COLUMNS = ("role", "key", "outcome", *NUMBERS, "sessions", "samples", "measured_on", "conditions", "reason")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


class Role(enum.StrEnum):
    """What a row is for: a block of networks, what their boundaries cost (chains), or the calibration."""

    BLOCK = "block"
    CHAIN = "chain"
    NETWORK = "network"

    @classmethod
    def of(cls, workload: Workload) -> Role:
        """The role of the row of a workload."""
        if is_boundary_probe(workload):
            return cls.CHAIN
        if len(workload.blocks) == 1:
            return cls.BLOCK
        return cls.NETWORK if workload.is_network else cls.CHAIN


@dataclass(frozen=True)
class LatencyRow:
    """One line of a table. ``stats`` is there exactly when the outcome is ``ok``; ``measured_on`` is a date (UTC)."""

    role: Role
    workload: Workload
    outcome: Outcome
    stats: LatencyStats | None
    measured_on: str
    conditions: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.OK) != (self.stats is not None):
            raise InvalidValue(f"latency row: {self.workload.key}: an ok row has numbers, a failed one has none")
        if not _is_date(self.measured_on):
            raise InvalidValue(f"latency row: expected a date such as 2026-01-31, got {self.measured_on!r}")
        if (self.role is Role.BLOCK) != (Role.of(self.workload) is Role.BLOCK):
            raise InvalidValue(f"latency row: {self.workload.key} cannot have the role {self.role}")

    @classmethod
    def of(cls, one: Measurement, measured_on: str, conditions: str = "") -> LatencyRow:
        """A measurement as a row, with its date (UTC) and the digest of its conditions."""
        stats = one.stats if one.outcome is Outcome.OK else None
        return cls(Role.of(one.workload), one.workload, one.outcome, stats, measured_on, conditions, one.reason)

    def times(self, factor: float) -> LatencyRow:
        """The row on a day on which the device takes ``factor`` times as long."""
        if self.stats is None:
            return self
        return replace(
            self, stats=replace(self.stats, **{name: factor * getattr(self.stats, name) for name in NUMBERS})
        )

    def values(self) -> dict[str, Any]:
        """The row by the columns of a table; None for each number of a row that failed."""
        numbers = {name: getattr(self.stats, name, None) for name in (*NUMBERS, *COUNTS)}
        counts = {"sessions": numbers.pop("num_sessions"), "samples": numbers.pop("num_samples")}
        first = {"role": self.role.value, "key": self.workload.key, "outcome": self.outcome.value}
        last = {"measured_on": self.measured_on, "conditions": self.conditions, "reason": self.reason}
        return first | numbers | counts | last


@dataclass(frozen=True)
class SelfCheck:
    """The A/A test that was made when a table was published, and its date (UTC)."""

    found: Repeatability
    made_on: str

    def __post_init__(self) -> None:
        if not _is_date(self.made_on):
            raise InvalidValue(f"A/A test: expected a date such as 2026-01-31, got {self.made_on!r}")


def _is_date(text: str) -> bool:
    """Whether a text is a day of the calendar, as 2026-01-31."""
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False
