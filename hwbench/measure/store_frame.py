"""The rows of a measurement store as a frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hwbench.frames import NUMBER, WHOLE, frame
from hwbench.measure.store_types import StoredRow, fingerprint
from hwbench.specs import Outcome

if TYPE_CHECKING:
    import pandas

_NUMBERS = ("median_s", "p10_s", "p90_s", "ci_low_s", "ci_high_s")
COLUMNS: dict[str, str | None] = {
    **dict.fromkeys(("device", "target", "precision", "key", "outcome")),
    **dict.fromkeys(_NUMBERS, NUMBER),
    **dict.fromkeys(("sessions", "samples"), WHOLE),
    **dict.fromkeys(("emulated", "conditions", "build", "artifact_sha256", "finished_at", "reason")),
}


def measurements_frame(rows: Iterable[StoredRow]) -> pandas.DataFrame:
    """One row for each stored row, failures too: ``COLUMNS``; seconds, a digest of the conditions, UTC."""
    return frame(map(_values, rows), COLUMNS)


def _values(row: StoredRow) -> dict[str, Any]:
    one = row.measurement
    stats = one.stats if one.outcome is Outcome.OK else None
    return {
        "device": one.target.device,
        "target": one.target.key,
        "precision": one.workload.precision.value,
        "key": one.workload.key,
        "outcome": one.outcome.value,
        **{name: getattr(stats, name, None) for name in _NUMBERS},
        "sessions": stats and stats.num_sessions,
        "samples": stats and stats.num_samples,
        "emulated": one.emulated,
        "conditions": fingerprint(one.conditions),
        "build": row.build,
        "artifact_sha256": one.artifact_sha256,
        "finished_at": row.finished_at,
        "reason": one.reason,
    }
