"""The sessions of a measurement store, and the runs in which they were taken."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hwbench.errors import InvalidValue
from hwbench.measure.database import StorePart
from hwbench.measure.store_types import (
    ATTEMPT,
    SESSION_NUMBERS,
    Run,
    TakenSession,
    canonical,
    fingerprint,
    now,
    read_session,
    write_samples,
)
from hwbench.measure.uptime import boot_id, since_boot_s
from hwbench.specs import Session, Target, Workload


class SessionLog(StorePart):
    """Writes and reads sessions one by one; each is on the disk when the method that adds it returns."""

    def begin_run(self, target: Target, conditions: Mapping[str, str], before: Mapping[str, Any]) -> int:
        """Notes that sessions are about to be taken, and the state of the device then; returns the run's number."""
        with self.database.transaction() as db:
            added = db.execute(
                "INSERT INTO runs (target, conditions, before, started_at) VALUES (?, ?, ?, ?)",
                (target.key, fingerprint(conditions), canonical(before), now()),
            )
            return int(added.lastrowid or 0)

    def end_run(self, run: int, after: Mapping[str, Any]) -> None:
        """Notes the state of the device when its sessions were taken."""
        with self.database.transaction() as db:
            db.execute("UPDATE runs SET after = ?, ended_at = ? WHERE id = ?", (canonical(after), now(), run))

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
                (row, row, write_samples(session), *numbers, suspect, now(), run, boot_id(), since_boot_s()),
            )
            return int(added.lastrowid or 0)

    def correct_session(self, number: int, drift: float, *, suspect: str = "") -> None:
        """Notes a better drift of a session, and what that says about it; its samples stay as they were taken."""
        with self.database.transaction() as db:
            db.execute("UPDATE sessions SET drift = ?, suspect = ? WHERE id = ?", (drift, suspect, number))

    def row_sessions(self, row: int) -> list[tuple[Session, str]]:
        """Sessions of a row's latest attempt, each with the reason for which it is suspect (empty: it is not)."""
        rows = self.database.select(
            f"SELECT samples_ns, suspect, {', '.join(SESSION_NUMBERS)} FROM sessions WHERE {ATTEMPT} ORDER BY id",
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
