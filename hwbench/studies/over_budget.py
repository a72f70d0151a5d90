"""What is said where no candidate was measured within the budgets."""

from __future__ import annotations

from collections.abc import Sequence

from hwbench.errors import OverBudget
from hwbench.studies.candidates import Candidate
from hwbench.studies.settings import Settings
from hwbench.units import format_duration


def over_budget(study: str, settings: Settings, measured: Sequence[Candidate]) -> OverBudget:
    """Names what the candidates took, or why they could not be measured, and what to do."""
    times = [c.measured_s for c in measured if c.measured_s is not None]
    if not measured:
        return OverBudget(f"study {study!r}: no candidate has a score; evaluator {settings.evaluator!r} gave none")
    if not times:
        reasons = "; ".join(sorted({c.failure for c in measured}))
        return OverBudget(f"study {study!r}: no candidate could be measured on the device: {reasons}")
    if settings.further_budgets_ms:
        return OverBudget(f"study {study!r}: {_on_devices(settings, measured)}")
    return OverBudget(
        f"study {study!r}: none of the {len(times)} candidates that were measured is within "
        f"{format_duration(settings.budget_s)}; the fastest takes {format_duration(min(times))}; give a larger budget "
        f"or more --trials, or check the table: hwbench validate --device {settings.device}"
    )


def _on_devices(settings: Settings, measured: Sequence[Candidate]) -> str:
    times: dict[str, list[float]] = {device: [] for device in settings.budgets_ms}
    for candidate in measured:
        for device, seconds in candidate.measured(settings.device).items():
            times[device].append(seconds)
    fastest = [f"{format_duration(min(seconds))} on {device}" for device, seconds in times.items() if seconds]
    limits = [f"{limit:g} ms on {device}" for device, limit in settings.budgets_ms.items()]
    failures = "".join(f"; {reason}" for reason in sorted({c.failure for c in measured if c.failure}))
    return (
        f"none of the {len(measured)} candidates that were measured is within {' and '.join(limits)}; the fastest take "
        f"{' and '.join(fastest)}{failures}; give larger budgets or more --trials, or check the tables: "
        f"hwbench validate --device {settings.device}"
    )
