"""The raw data of experiment 006: a line for each session."""

import csv
import io
import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from networks import BANDS, BLOCKS, CALIBRATION, planned

from hwbench.latency import LatencyRow, LatencyTable, Role
from hwbench.measure.drift import by_clock, clock_sensitivity
from hwbench.specs import LatencyStats, Measurement, Outcome, Precision, Session, Target, Workload

# A workload is told by the beginning of its digest, of which older files have more; plan.json has it whole.
DIGEST = 10
COLUMNS = ("role", "workload", "outcome", "drift", "samples", "median_ns", "p10_ns", "p90_ns")


def as_csv(rows: list[tuple[str, Measurement]], clock_s: float) -> str:
    """A line for each session of rows with their roles, or one for a row without."""
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(COLUMNS)
    for role, row in rows:
        first = (role, row.workload.sha256[:DIGEST], row.outcome)
        lines.writerows((*first, *numbers(session, clock_s)) for session in row.sessions)
        if not row.sessions:
            lines.writerow((*first, "", "", "", "", ""))
    return file.getvalue()


def numbers(session: Session, clock_s: float) -> tuple[object, ...]:
    """Under ``drift`` stands the clock: how far latencies follow it is told from the data, when they are read."""
    low, centre, high = (round(1e9 * float(q)) for q in np.quantile(session.samples_s, (0.1, 0.5, 0.9)))
    return f"{session.probe_s / clock_s:.5f}", len(session.samples_s), centre, low, high


@dataclass(frozen=True)
class Data:
    """The raw data of one precision on one machine: statistics by role and workload.

    ``clock_sensitivity`` is how far its latencies follow the clock.
    """

    target: Target
    precision: Precision
    rows: dict[tuple[str, Workload], LatencyStats]
    clock_sensitivity: float

    @classmethod
    def read(cls, folder: Path, precision: Precision) -> "Data":
        """What was drawn late is read, too, where it was measured; networks with a block that was not are left out."""
        paths = [p for name in (f"{precision}.csv", f"{precision}-late.csv") if (p := folder / name).exists()]
        lines = [path.read_text().splitlines() for path in paths]
        known = {(role, w.sha256[:DIGEST]): w for role, those in planned(precision).items() for w in those}
        sessions: dict[tuple[str, Workload], list[Session]] = {}
        for line in itertools.chain.from_iterable(csv.DictReader(those[1:]) for those in lines):
            if line["outcome"] == Outcome.OK:
                samples = tuple(int(line[name]) / 1e9 for name in ("p10_ns", "median_ns", "p90_ns"))
                place = line["role"], known[line["role"], line["workload"][:DIGEST]]
                sessions.setdefault(place, []).append(Session(samples, probe_s=float(line["drift"])))
        follow = clock_sensitivity(sessions.values())
        rows = {
            place: LatencyStats.of([replace(s, drift=by_clock(s.probe_s, 1.0, follow)) for s in found])
            for place, found in sessions.items()
        }
        blocks = {workload for role, workload in rows if role in BLOCKS}
        alone = (*BLOCKS, "boundary", "chain", "kernel")
        rows = {(role, w): s for (role, w), s in rows.items() if role in alone or blocks.issuperset(w.parts())}
        return cls(Target.parse(json.loads(lines[0][0][2:])["target"]), precision, rows, follow)

    def without(self, *roles: str) -> "Data":
        """As if workloads had not been measured in these roles."""
        return replace(self, rows={place: stats for place, stats in self.rows.items() if place[0] not in roles})

    def role(self, *roles: str) -> dict[Workload, LatencyStats]:
        """What was measured in one of these roles."""
        return {workload: stats for (its, workload), stats in self.rows.items() if its in roles}

    def bands(self, *roles: str) -> list[list[Workload]]:
        """The measured networks of these roles, by band."""
        wanted, measured = planned(self.precision), self.role(*roles)
        found: list[list[Workload]] = [[] for _ in BANDS]
        for role in roles:
            for band, part in zip(found, np.array_split(np.arange(len(wanted[role])), len(BANDS))):
                band += [wanted[role][at] for at in part if wanted[role][at] in measured]
        return found

    def table(self, chains: str = "boundary") -> LatencyTable:
        """The table as ``hwbench profile`` makes it.

        ``chains`` is the role that tells of boundaries; without rows of it, chains of blocks do.
        """
        return self.table_with(self.role(*CALIBRATION), chains)

    def table_with(self, networks: dict[Workload, LatencyStats], chains: str = "boundary") -> LatencyTable:
        """Likewise, with these calibration networks."""
        roles = (
            (Role.BLOCK, self.role(*BLOCKS)),
            (Role.CHAIN, self.role(chains) or self.role("chain")),
            (Role.NETWORK, networks),
        )
        rows = [LatencyRow(role, w, Outcome.OK, s, "2026-11-21") for role, those in roles for w, s in those.items()]
        return LatencyTable(self.target, self.precision, rows)
