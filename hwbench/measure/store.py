"""The working truth about latencies: every sample and every failure, in one SQLite file.

A row (``measurements``) is one workload on one target under one ``Timing`` and one set of conditions, made from one
build. Rows that differ in any of these are never pooled. Sessions are committed one by one as they come, so a process
that is killed, or a machine that loses its power, loses the session under way and nothing else. The file uses SQLite's
rollback journal: after a crash the next reader restores it, and it stays a single file which may be copied or lie on a
network disk. Several processes may write at once.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from hwbench.errors import InvalidValue
from hwbench.measure.copying import copy_rows
from hwbench.measure.database import Database
from hwbench.measure.drift import QUIETEST, Lowest, Undisturbed, followed
from hwbench.measure.stored import (
    SESSION_NUMBERS,
    Run,
    StoredRow,
    TakenSession,
    canonical,
    fingerprint,
    no_build,
    read_session,
    timing_key,
    trusted,
    write_samples,
)
from hwbench.measure.uptime import boot_id, since_boot_s
from hwbench.printable import printable_lines
from hwbench.specs import Measurement, Outcome, Session, Target, Timing, Workload

# So many sessions tell how far latencies follow the clock: those of a batch, and about as many milliseconds to read.
LATEST = 1000
# Sessions of these rows say nothing reliable, so a new attempt does not count them.
_DISTRUSTED = (Outcome.NOISY, Outcome.THROTTLED, Outcome.MISMATCH)


class MeasurementStore:
    """All measurements of a workspace; opened on construction, made and migrated when needed.

    Use from one thread; other threads and processes open their own.

    Args:
        path: The file.
        beside: What that store knows of clocks and of the quietest sessions holds here as well, so that sessions of
            both are corrected and doubted alike; it stays as it is, and open as long as this one.

    Raises:
        InvalidFile: The file is damaged, of another program, or of a newer version of hwbench.
        WorkspaceError: The file cannot be made, read or written.
    """

    def __init__(self, path: Path, *, beside: MeasurementStore | None = None) -> None:
        self._beside = beside
        self.database = Database(path)

    def __enter__(self) -> MeasurementStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; everything added is already in it."""
        self.database.close()

    @property
    def path(self) -> Path:
        """The file."""
        return self.database.path

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
    ) -> int:
        """The row to add sessions to: the stored one of this identity, or a new one.

        A row that had ended as a failure is open again afterwards, and goes on with the sessions that it has; one that
        ended as ``noisy``, ``throttled`` or ``mismatch`` starts a new attempt, for which the old sessions do not count.
        """
        identity = (workload.key, target.key, timing_key(timing), fingerprint(conditions), build)
        with self.database.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO conditions VALUES (?, ?)",
                (fingerprint(conditions), canonical(conditions)),
            )
            db.execute(
                "INSERT OR IGNORE INTO measurements (workload, target, timing, conditions, build, artifact_sha256, "
                "reason, attempt, emulated, created_at) VALUES (?, ?, ?, ?, ?, '', '', 1, ?, ?)",
                (*identity, int(emulated), _now()),
            )
            row, outcome = db.execute(f"SELECT id, outcome FROM measurements WHERE {_IDENTITY}", identity).fetchone()
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
        *,
        build: Callable[[Workload], str] = no_build,
    ) -> int:
        """Makes finished rows missing again, so that they are measured anew; returns how many.

        Their sessions stay in the file and do not count.
        """
        protocol, digest = timing_key(timing), fingerprint(conditions)
        with self.database.transaction() as db:
            done = db.executemany(
                "UPDATE measurements SET attempt = attempt + 1, outcome = NULL, reason = '', finished_at = NULL "
                f"WHERE {_IDENTITY} AND outcome IS NOT NULL",
                [(w.key, target.key, protocol, digest, build(w)) for w in dict.fromkeys(workloads)],
            )
            return int(done.rowcount)

    def begin_run(self, target: Target, conditions: Mapping[str, str], before: Mapping[str, Any]) -> int:
        """Notes that sessions are about to be taken, and the state of the device then; returns the run's number."""
        with self.database.transaction() as db:
            added = db.execute(
                "INSERT INTO runs (target, conditions, before, started_at) VALUES (?, ?, ?, ?)",
                (target.key, fingerprint(conditions), canonical(before), _now()),
            )
            return int(added.lastrowid or 0)

    def end_run(self, run: int, after: Mapping[str, Any]) -> None:
        """Notes the state of the device when its sessions were taken."""
        with self.database.transaction() as db:
            db.execute("UPDATE runs SET after = ?, ended_at = ? WHERE id = ?", (canonical(after), _now(), run))

    def clock(self, conditions: Mapping[str, str], probe_s: float = 0.0) -> float:
        """The clock that drifts under these conditions refer to, as ``Session.probe_s`` tells it; 0: none yet.

        Args:
            conditions: Of the rows.
            probe_s: Becomes that clock where there is none and this is above zero.
        """
        key = fingerprint(conditions)
        probe_s = (self._beside.clock(conditions) if self._beside else 0.0) or probe_s
        if probe_s:
            with self.database.transaction() as db:
                db.execute("INSERT OR IGNORE INTO clocks VALUES (?, ?)", (key, probe_s))
        rows = self.database.select("SELECT probe_s FROM clocks WHERE conditions = ?", (key,))
        return float(rows[0][0]) if rows else 0.0

    def undisturbed(self, conditions: Mapping[str, str]) -> Undisturbed:
        """What the quietest sessions under these conditions told of core and memory."""
        return Undisturbed(*(Lowest(self._lowest(name, conditions)) for name in ("crowding", "memory")))

    def _lowest(self, name: str, conditions: Mapping[str, str]) -> list[float]:
        beside = self._beside._lowest(name, conditions) if self._beside else []
        rows = self.database.select(
            f"SELECT s.{name} FROM sessions AS s JOIN measurements AS m ON m.id = s.measurement "
            f"WHERE m.conditions = ? AND s.{name} > 0 ORDER BY 1 LIMIT ?",
            (fingerprint(conditions), QUIETEST),
        )
        return [*beside, *(figure for (figure,) in rows)]

    def followed(self, conditions: Mapping[str, str]) -> float:
        """How far latencies under these conditions follow the clock, by the latest sessions that are not doubted."""
        return followed(self._latest(conditions))

    def _latest(self, conditions: Mapping[str, str]) -> list[list[Session]]:
        """Row by row."""
        found = self._beside._latest(conditions) if self._beside else []
        rows = self.database.select(
            f"SELECT s.measurement, s.attempt, s.samples_ns, {', '.join(f's.{name}' for name in SESSION_NUMBERS)} "
            "FROM sessions AS s JOIN measurements AS m ON m.id = s.measurement "
            "WHERE m.conditions = ? AND s.probe_s > 0 AND s.suspect = '' ORDER BY s.id DESC LIMIT ?",
            (fingerprint(conditions), LATEST),
        )
        by_row: dict[tuple[int, int], list[Session]] = {}
        for row, attempt, samples, *numbers in reversed(rows):
            by_row.setdefault((row, attempt), []).append(read_session(samples, numbers))
        return [*found, *by_row.values()]

    def runs(self, target: Target) -> list[Run]:
        """All runs on a target, in the order in which they began."""
        rows = self.database.select(
            "SELECT id, before, after, started_at, ended_at, (SELECT count(*) FROM sessions WHERE run = runs.id) "
            "FROM runs WHERE target = ? ORDER BY id",
            (target.key,),
        )
        return [
            Run(number, json.loads(before), json.loads(after) if after else None, started, ended or "", sessions)
            for number, before, after, started, ended, sessions in rows
        ]

    def add_session(self, row: int, session: Session, *, suspect: str = "", run: int | None = None) -> int:
        """Keeps the raw samples of one session; they are on the disk when this returns its number.

        Args:
            row: What ``begin`` returned.
            session: One visit; samples are kept as whole nanoseconds.
            suspect: Why the session is doubted, in words; such a session is kept and told apart.
            run: What ``begin_run`` returned; None where the device's state is not known.
        """
        if not session.samples_s:
            raise InvalidValue("a session without samples is a failure, not a measurement")
        numbers = [getattr(session, name) for name in SESSION_NUMBERS]
        with self.database.transaction() as db:
            added = db.execute(
                f"INSERT INTO sessions (measurement, attempt, samples_ns, {', '.join(SESSION_NUMBERS)}, suspect, "
                "taken_at, run, boot, boot_s) VALUES (?, (SELECT attempt FROM measurements WHERE id = ?), ?, "
                f"{', '.join('?' * len(numbers))}, ?, ?, ?, ?, ?)",
                (row, row, write_samples(session), *numbers, suspect, _now(), run, boot_id(), since_boot_s()),
            )
            return int(added.lastrowid or 0)

    def correct_session(self, number: int, drift: float, *, suspect: str = "") -> None:
        """Notes a better drift of a session, and what that says about it; its samples stay as they were taken."""
        with self.database.transaction() as db:
            db.execute("UPDATE sessions SET drift = ?, suspect = ? WHERE id = ?", (drift, suspect, number))

    def finish(self, row: int) -> None:
        """Marks a row as measured.

        Raises:
            InvalidValue: It has no session.
        """
        with self.database.transaction() as db:
            (count,) = db.execute(f"SELECT count(*) FROM sessions WHERE {_ATTEMPT}", (row,)).fetchone()
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

    def take_over(self, other: MeasurementStore, workloads: Iterable[Workload]) -> int:
        """Copies rows of another store, with their sessions and runs, where this one has none; returns how many.

        All of them or, where that fails, none; the other store stays as it is.
        """
        with self.database.attached(other.database), self.database.transaction() as db:
            return copy_rows(db, [workload.key for workload in dict.fromkeys(workloads)])

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

    def sessions(
        self, workload: Workload, target: Target, timing: Timing, conditions: Mapping[str, str], *, build: str = ""
    ) -> tuple[Session, ...]:
        """The sessions of a row's latest attempt, suspect ones too, in the order taken; empty where there is no row."""
        identity = (workload.key, target.key, timing_key(timing), fingerprint(conditions), build)
        rows = self.database.select(f"SELECT id FROM measurements WHERE {_IDENTITY}", identity)
        return tuple(session for row in rows for session, _ in self.row_sessions(row[0]))

    def row_sessions(self, row: int) -> list[tuple[Session, str]]:
        """Sessions of a row's latest attempt, each with the reason for which it is suspect (empty: it is not)."""
        rows = self.database.select(
            f"SELECT samples_ns, suspect, {', '.join(SESSION_NUMBERS)} FROM sessions WHERE {_ATTEMPT} ORDER BY id",
            (row,),
        )
        return [(read_session(samples, numbers), suspect) for samples, suspect, *numbers in rows]

    def taken(self, target: Target) -> Iterator[TakenSession]:
        """Every session on a target, those of unfinished and of failed rows too, in the order in which they came."""
        rows = self.database.select(
            "SELECT m.id, m.workload, m.conditions, s.attempt = m.attempt, s.taken_at, s.run, s.suspect, s.samples_ns, "
            f"{', '.join(f's.{name}' for name in SESSION_NUMBERS)} "
            "FROM sessions AS s JOIN measurements AS m ON m.id = s.measurement WHERE m.target = ? ORDER BY s.id",
            (target.key,),
        )
        known: dict[str, Workload] = {}
        for row, key, conditions, current, taken_at, run, suspect, samples, *numbers in rows:
            if key not in known:
                known[key] = Workload.parse(key)
            session = read_session(samples, numbers)
            yield TakenSession(row, known[key], conditions, session, suspect, taken_at, run, bool(current))

    def repeated(
        self, target: Target, conditions: Mapping[str, str], apart_s: float = 600.0
    ) -> Iterator[tuple[Workload, list[list[Session]]]]:
        """The sessions of every row that was measured anew, those of each occasion together, in the order taken.

        An occasion ends where the next session came more than ``apart_s`` later, by the time since the host started
        where both know it, else by the clock. Rows with one occasion are left out, and so are suspect sessions and
        those taken under emulation.
        """
        rows = self.database.select(
            "SELECT m.id, m.workload, s.taken_at, s.boot, s.boot_s, s.samples_ns, "
            f"{', '.join(f's.{name}' for name in SESSION_NUMBERS)} "
            "FROM measurements AS m JOIN sessions AS s ON s.measurement = m.id "
            "WHERE m.target = ? AND m.conditions = ? AND m.attempt > 1 AND NOT m.emulated AND s.suspect = '' "
            "ORDER BY m.id, s.id",
            (target.key, fingerprint(conditions)),
        )
        for (_, workload), those in itertools.groupby(rows, lambda row: row[:2]):
            occasions: list[list[Session]] = []
            before: _When | None = None
            for _, _, taken_at, boot, boot_s, samples, *numbers in those:
                now = _When(datetime.fromisoformat(taken_at).timestamp(), boot, boot_s)
                if before is None or now.after_s(before) > apart_s:
                    occasions.append([])
                occasions[-1].append(read_session(samples, numbers))
                before = now
            if len(occasions) > 1:
                yield Workload.parse(workload), occasions

    def targets(self, device: str) -> list[Target]:
        """The targets of a device with a row of any kind."""
        rows = self.database.select("SELECT DISTINCT target FROM measurements ORDER BY 1")
        return [target for (key,) in rows if (target := Target.parse(key)).device == device]

    def measurement(
        self, workload: Workload, target: Target, timing: Timing, conditions: Mapping[str, str], *, build: str = ""
    ) -> Measurement | None:
        """What a finished row says, or None; see ``measurements``."""
        identity = (workload.key, target.key, timing_key(timing), fingerprint(conditions), build)
        found = next(self._read(f"{_IDENTITY} AND outcome IS NOT NULL", identity), None)
        return found.measurement if found else None

    def measurements(self, target: Target, conditions: Mapping[str, str] | None = None) -> Iterator[Measurement]:
        """The measurements of ``rows``."""
        return (row.measurement for row in self.rows(target, conditions))

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

    def latencies(self, target: Target, conditions: Mapping[str, str]) -> Iterator[Measurement]:
        """The rows which are latencies of a real device: ended as ``ok`` and not taken under emulation."""
        rows = self.measurements(target, conditions)
        return (row for row in rows if row.outcome is Outcome.OK and not row.emulated)

    def workloads(self, target: Target) -> Iterator[Workload]:
        """Every workload with a row of any kind on a target."""
        rows = self.database.select(
            "SELECT DISTINCT workload FROM measurements WHERE target = ? ORDER BY 1", (target.key,)
        )
        return (Workload.parse(key) for (key,) in rows)

    def conditions_of(self, digest: str) -> dict[str, str] | None:
        """The conditions with this ``fingerprint``, or None."""
        rows = self.database.select("SELECT json FROM conditions WHERE fingerprint = ?", (digest,))
        return dict(json.loads(rows[0][0])) if rows else None

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
            "m.build, m.finished_at "
            "FROM measurements AS m JOIN conditions AS c ON c.fingerprint = m.conditions "
            f"WHERE {where} ORDER BY m.workload, m.id",
            values,
        )
        for row, workload, target, timing, outcome, reason, artifact, emulated, conditions, build, finished in rows:
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
            yield StoredRow(measurement, build, finished)

    def _end(self, db: sqlite3.Connection, row: int, outcome: Outcome, reason: str) -> None:
        db.execute(
            "UPDATE measurements SET outcome = ?, reason = ?, finished_at = ? WHERE id = ?",
            (outcome.value, reason, _now(), row),
        )


_ATTEMPT = "measurement = ? AND attempt = (SELECT attempt FROM measurements AS m WHERE m.id = measurement)"
_IDENTITY = "workload = ? AND target = ? AND timing = ? AND conditions = ? AND build = ?"


class _When(NamedTuple):
    """When a session was taken: by the clock, and since a start of the host."""

    clock_s: float
    boot: str
    boot_s: float

    def after_s(self, before: _When) -> float:
        """Seconds from another session to this one; a clock may have been set in between, a time since a start not."""
        if self.boot and self.boot == before.boot:
            return self.boot_s - before.boot_s
        return self.clock_s - before.clock_s


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
