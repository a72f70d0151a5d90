"""What tests of the store ask it for."""

from collections.abc import Mapping

from hwbench.measure.store import MeasurementStore
from hwbench.specs import Measurement, Outcome, Target


def latencies(store: MeasurementStore, target: Target, conditions: Mapping[str, str]) -> list[Measurement]:
    """The rows which are latencies of a real device: ended as ``ok`` and not taken under emulation."""
    rows = store.measurements(target, conditions)
    return [row for row in rows if row.outcome is Outcome.OK and not row.emulated]
