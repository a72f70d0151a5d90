"""What a measurement store knows of a device beyond its rows: its clock, and how quiet core and memory can be."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hwbench.measure.database import Database, StorePart
from hwbench.measure.drift import QUIETEST, Lowest, Undisturbed, clock_sensitivity
from hwbench.measure.store_types import RUNNER_BUILD, SESSION_NUMBERS, fingerprint, read_session
from hwbench.specs import Session

# So many sessions tell how far latencies follow the clock: those of a batch, and about as many milliseconds to read.
LATEST = 1000


class ClockMemory(StorePart):
    """What sessions under the same conditions told together.

    Args:
        database: The file.
        beside: What that store knows holds here as well; it stays as it is.
    """

    def __init__(self, database: Database, beside: ClockMemory | None = None) -> None:
        super().__init__(database)
        self._beside = beside

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

    def conditions_of(self, digest: str) -> dict[str, str] | None:
        """The conditions with this ``fingerprint``, or None."""
        rows = self.database.select("SELECT json FROM conditions WHERE fingerprint = ?", (digest,))
        if rows:
            return dict(json.loads(rows[0][0]))
        return self._beside.conditions_of(digest) if self._beside else None

    def undisturbed(self, conditions: Mapping[str, str], runner_build: str = "") -> Undisturbed:
        """What the quietest sessions under these conditions told of core and memory.

        Args:
            conditions: Of the rows.
            runner_build: ``Runner.build`` of the runner that is to be used: what other builds told is on another scale
                (experiment 013).
        """
        names = ("crowding", "memory")
        return Undisturbed(*(Lowest(self._lowest(name, conditions, runner_build)) for name in names))

    def clock_sensitivity(self, conditions: Mapping[str, str]) -> float:
        """How far latencies under these conditions follow the clock, by the latest sessions that are not doubted."""
        return clock_sensitivity(self._latest(conditions))

    def _lowest(self, name: str, conditions: Mapping[str, str], runner_build: str) -> list[float]:
        beside = self._beside._lowest(name, conditions, runner_build) if self._beside else []
        rows = self.database.select(
            f"SELECT s.{name} FROM sessions AS s JOIN measurements AS m ON m.id = s.measurement "
            "LEFT JOIN runs AS r ON r.id = s.run "
            f"WHERE m.conditions = ? AND s.{name} > 0 AND coalesce(json_extract(r.before, '$.{RUNNER_BUILD}'), '') = ? "
            "ORDER BY 1 LIMIT ?",
            (fingerprint(conditions), runner_build, QUIETEST),
        )
        return [*beside, *(figure for (figure,) in rows)]

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
