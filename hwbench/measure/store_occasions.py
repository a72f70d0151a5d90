"""Rows that were measured anew, by the occasions on which they were."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from hwbench.measure.database import StorePart
from hwbench.measure.store_types import SESSION_NUMBERS, fingerprint, read_session
from hwbench.specs import Session, Target, Workload


class Occasions(StorePart):
    """Groups the sessions of a row by when they were taken."""

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
