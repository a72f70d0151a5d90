"""Finished rows of a measurement store as measurements, and what a store has rows of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hwbench.measure.store_frame import measurements_frame
from hwbench.measure.store_sessions import SessionLog
from hwbench.measure.store_types import (
    IDENTITY,
    RowPurpose,
    StoredRow,
    fingerprint,
    row_identity,
    timing_key,
    trusted,
)
from hwbench.specs import Measurement, Outcome, Session, Target, Timing, Workload

if TYPE_CHECKING:
    import pandas


class RowReader(SessionLog):
    """Reads rows with their sessions; writes none."""

    def rows(self, target: Target, conditions: Mapping[str, str] | None = None) -> Iterator[StoredRow]:
        """All finished rows of a target (of one set of conditions, or of all), sorted by workload and then by age.

        The sessions of a measurement are the ones that nothing speaks against, where there are at least ``min_rounds``
        of them, else all; suspect ones stay in the file.
        """
        if conditions is None:
            return self._read("target = ? AND outcome IS NOT NULL", (target.key,))
        return self._read(
            "target = ? AND conditions = ? AND outcome IS NOT NULL", (target.key, fingerprint(conditions))
        )

    def measurements(self, target: Target, conditions: Mapping[str, str] | None = None) -> Iterator[Measurement]:
        """The measurements of ``rows``."""
        return (row.measurement for row in self.rows(target, conditions))

    def measurement(
        self, workload: Workload, target: Target, timing: Timing, conditions: Mapping[str, str], *, build: str = ""
    ) -> Measurement | None:
        """What a finished row says, or None; see ``measurements``."""
        identity = row_identity(workload, target, timing, conditions, build)
        found = next(self._read(f"{IDENTITY} AND outcome IS NOT NULL", identity), None)
        return found.measurement if found else None

    def sessions(
        self, workload: Workload, target: Target, timing: Timing, conditions: Mapping[str, str], *, build: str = ""
    ) -> tuple[Session, ...]:
        """The sessions of a row's latest attempt, suspect ones too, in the order taken; empty where there is no row."""
        identity = row_identity(workload, target, timing, conditions, build)
        rows = self.database.select(f"SELECT id FROM measurements WHERE {IDENTITY}", identity)
        return tuple(session for row in rows for session, _ in self.row_sessions(row[0]))

    def targets(self, device: str) -> list[Target]:
        """The targets of a device with a row of any kind."""
        rows = self.database.select("SELECT DISTINCT target FROM measurements ORDER BY 1")
        return [target for (key,) in rows if (target := Target.parse(key)).device == device]

    def to_frame(self, device: str | None = None) -> pandas.DataFrame:
        """All finished rows of a device (None: of every device) as a frame; see ``measurements_frame``."""
        if device is None:
            return measurements_frame(self._read("outcome IS NOT NULL", ()))
        return measurements_frame(row for target in self.targets(device) for row in self.rows(target))

    def workloads(self, target: Target) -> Iterator[Workload]:
        """Every workload with a row of any kind on a target."""
        rows = self.database.select(
            "SELECT DISTINCT workload FROM measurements WHERE target = ? ORDER BY 1", (target.key,)
        )
        return (Workload.parse(key) for (key,) in rows)

    def measured(self, target: Target) -> Iterator[Workload]:
        """The workloads with a latency on a target, under whichever conditions."""
        rows = self.database.select(
            "SELECT DISTINCT workload FROM measurements WHERE target = ? AND outcome = ? ORDER BY 1",
            (target.key, Outcome.OK.value),
        )
        return (Workload.parse(key) for (key,) in rows)

    def reopened(self, target: Target, conditions: Mapping[str, str]) -> Iterator[Workload]:
        """The workloads that are measured anew under these conditions and have no latency of that yet: not finished, or
        failed; and those that have none of before either and are not finished."""
        ok = f"outcome IS '{Outcome.OK}'"
        rows = self.database.select(
            "SELECT workload FROM measurements WHERE target = ? AND conditions = ? GROUP BY workload "
            f"HAVING max(attempt > 1 AND NOT {ok}) OR (max(outcome IS NULL) AND NOT max({ok})) ORDER BY 1",
            (target.key, fingerprint(conditions)),
        )
        return (Workload.parse(key) for (key,) in rows)

    def ended_at(self, target: Target, timing: Timing | None, conditions: Mapping[str, str]) -> dict[Workload, str]:
        """When the latest row of each workload ended (UTC, ISO 8601); empty where none has ended since it was begun.

        ``timing`` None: rows of every protocol.
        """
        protocol = None if timing is None else timing_key(timing)
        rows = self.database.select(
            "SELECT workload, coalesce(max(finished_at), '') FROM measurements "
            "WHERE target = ? AND timing = coalesce(?, timing) AND conditions = ? GROUP BY workload",
            (target.key, protocol, fingerprint(conditions)),
        )
        return {Workload.parse(key): moment for key, moment in rows}

    def timings(self, target: Target, digest: str) -> list[Timing]:
        """The protocols of the latencies of a target under the conditions with this ``fingerprint``."""
        rows = self.database.select(
            "SELECT DISTINCT timing FROM measurements "
            "WHERE target = ? AND conditions = ? AND outcome = 'ok' ORDER BY 1",
            (target.key, digest),
        )
        return [Timing(**json.loads(timing)) for (timing,) in rows]

    def counts(self, target: Target | None = None) -> dict[str, int]:
        """Number of rows by outcome; rows with sessions still to come count as ``unfinished``."""
        where, values = ("WHERE target = ?", (target.key,)) if target else ("", ())
        rows = self.database.select(
            f"SELECT coalesce(outcome, 'unfinished'), count(*) FROM measurements {where} GROUP BY 1 ORDER BY 1", values
        )
        return dict(rows)

    def _read(self, where: str, values: Sequence[object]) -> Iterator[StoredRow]:
        rows = self.database.select(
            "SELECT m.id, m.workload, m.target, m.timing, m.outcome, m.reason, m.artifact_sha256, m.emulated, c.json, "
            "m.build, m.finished_at, m.purpose "
            "FROM measurements AS m JOIN conditions AS c ON c.fingerprint = m.conditions "
            f"WHERE {where} ORDER BY m.workload, m.id",
            values,
        )
        for (
            row,
            workload,
            target,
            timing,
            outcome,
            reason,
            artifact,
            emulated,
            conditions,
            build,
            finished,
            why,
        ) in rows:
            protocol = Timing(**json.loads(timing))
            measurement = Measurement(
                workload=Workload.parse(workload),
                target=Target.parse(target),
                timing=protocol,
                outcome=Outcome(outcome),
                sessions=trusted(self.row_sessions(row), protocol),
                reason=reason,
                artifact_sha256=artifact,
                conditions=json.loads(conditions),
                emulated=bool(emulated),
            )
            yield StoredRow(measurement, build, finished, RowPurpose(why))
