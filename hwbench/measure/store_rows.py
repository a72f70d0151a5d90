"""The rows of a measurement store: how one begins, goes on and ends, and which are missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping

from hwbench.errors import InvalidValue
from hwbench.measure.database import StorePart
from hwbench.measure.store_types import (
    ATTEMPT,
    IDENTITY,
    RowPurpose,
    canonical,
    fingerprint,
    no_build,
    now,
    row_identity,
    timing_key,
)
from hwbench.printable import printable_lines
from hwbench.specs import Outcome, Target, Timing, Workload

# Sessions of these rows say nothing reliable, so a new attempt does not count them.
_DISTRUSTED = (Outcome.NOISY, Outcome.THROTTLED, Outcome.MISMATCH)


class RowLedger(StorePart):
    """Writes the rows of a store; what was measured of each is the ``SessionLog``'s."""

    def begin(
        self,
        workload: Workload,
        target: Target,
        timing: Timing,
        conditions: Mapping[str, str],
        *,
        build: str = "",
        artifact_sha256: str = "",
        emulated: bool = False,
        purpose: RowPurpose = RowPurpose.TABLE,
    ) -> int:
        """The row to add sessions to: the stored one of this identity, or a new one.

        A row that had ended as a failure is open again afterwards, and goes on with the sessions that it has; one that
        ended as ``noisy``, ``throttled`` or ``mismatch`` starts a new attempt, for which the old sessions do not count.
        ``purpose`` is that of a new row; a stored one keeps its own (see ``claim``).
        """
        identity = row_identity(workload, target, timing, conditions, build)
        with self.database.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO conditions VALUES (?, ?)",
                (fingerprint(conditions), canonical(conditions)),
            )
            db.execute(
                "INSERT OR IGNORE INTO measurements (workload, target, timing, conditions, build, artifact_sha256, "
                "reason, attempt, emulated, created_at, purpose) VALUES (?, ?, ?, ?, ?, '', '', 1, ?, ?, ?)",
                (*identity, int(emulated), now(), purpose.value),
            )
            row, outcome = db.execute(f"SELECT id, outcome FROM measurements WHERE {IDENTITY}", identity).fetchone()
            if outcome in _DISTRUSTED:
                db.execute("UPDATE measurements SET attempt = attempt + 1 WHERE id = ?", (row,))
            if outcome != Outcome.OK:
                db.execute(
                    "UPDATE measurements SET outcome = NULL, reason = '', finished_at = NULL WHERE id = ?", (row,)
                )
            if artifact_sha256:
                db.execute("UPDATE measurements SET artifact_sha256 = ? WHERE id = ?", (artifact_sha256, row))
        return int(row)

    def reopen(
        self,
        workloads: Iterable[Workload],
        target: Target,
        timing: Timing,
        conditions: Mapping[str, str],
    ) -> int:
        """Makes the finished rows of workloads missing again, so that they are measured anew.

        Rows of every build are: one that another version made may be adopted by the build of now. Their sessions stay
        in the file and do not count.

        Returns:
            How many of the workloads had a finished row.
        """
        protocol, digest = timing_key(timing), fingerprint(conditions)
        with self.database.transaction() as db:
            done = [
                db.execute(
                    "UPDATE measurements SET attempt = attempt + 1, outcome = NULL, reason = '', finished_at = NULL "
                    "WHERE workload = ? AND target = ? AND timing = ? AND conditions = ? AND outcome IS NOT NULL",
                    (workload.key, target.key, protocol, digest),
                ).rowcount
                for workload in dict.fromkeys(workloads)
            ]
        return sum(count > 0 for count in done)

    def claim(self, workloads: Iterable[Workload], target: Target) -> int:
        """Takes rows for a table that were measured for another purpose, before a table asked for them; how many."""
        with self.database.transaction() as db:
            done = db.executemany(
                "UPDATE measurements SET purpose = ? WHERE workload = ? AND target = ? AND purpose != ?",
                [(RowPurpose.TABLE, w.key, target.key, RowPurpose.TABLE) for w in dict.fromkeys(workloads)],
            )
            return int(done.rowcount)

    def finish(self, row: int) -> None:
        """Marks a row as measured.

        Raises:
            InvalidValue: It has no session.
        """
        with self.database.transaction() as db:
            (count,) = db.execute(f"SELECT count(*) FROM sessions WHERE {ATTEMPT}", (row,)).fetchone()
            if not count:
                raise InvalidValue("a measurement without sessions cannot end as ok")
            self._end(db, row, Outcome.OK, "")

    def fail(self, row: int, outcome: Outcome, reason: str) -> None:
        """Marks a row as failed; its sessions stay, but it has no latency."""
        if outcome is Outcome.OK or not reason:
            raise InvalidValue("a failure needs an outcome other than ok and a reason in words")
        with self.database.transaction() as db:
            self._end(db, row, outcome, printable_lines(reason) or "the reason has no character that can be shown")

    def adopt(
        self,
        workload: Workload,
        target: Target,
        timing: Timing,
        conditions: Mapping[str, str],
        *,
        build: str,
        artifact_sha256: str,
    ) -> bool:
        """Lets a row stand for a new build that came out byte for byte the same; False where there is no such row."""
        identity = (workload.key, target.key, timing_key(timing), fingerprint(conditions))
        with self.database.transaction() as db:
            done = db.execute(
                "UPDATE OR IGNORE measurements SET build = ? WHERE id = (SELECT id FROM measurements WHERE "
                "workload = ? AND target = ? AND timing = ? AND conditions = ? AND artifact_sha256 = ? AND build != ? "
                "ORDER BY outcome = 'ok' DESC, id DESC LIMIT 1)",
                (build, *identity, artifact_sha256, build),
            )
            return bool(done.rowcount)

    def missing(
        self,
        workloads: Iterable[Workload],
        target: Target,
        timing: Timing,
        conditions: Mapping[str, str],
        *,
        build: Callable[[Workload], str] = no_build,
        retry: Collection[Outcome] = (Outcome.LOST,),
    ) -> list[Workload]:
        """The workloads, in the order given, without a finished row (one that ended as one of ``retry`` is none)."""
        rows = self.database.select(
            "SELECT workload, build, outcome FROM measurements WHERE target = ? AND timing = ? AND conditions = ? "
            "AND outcome IS NOT NULL",
            (target.key, timing_key(timing), fingerprint(conditions)),
        )
        done = {(workload, made) for workload, made, outcome in rows if outcome not in retry}
        return [w for w in dict.fromkeys(workloads) if (w.key, build(w)) not in done]

    def _end(self, db: sqlite3.Connection, row: int, outcome: Outcome, reason: str) -> None:
        db.execute(
            "UPDATE measurements SET outcome = ?, reason = ?, finished_at = ? WHERE id = ?",
            (outcome.value, reason, now(), row),
        )
