"""Kills a process that measures, again and again, and looks at what it leaves: ``python -m hwbench.testing.crash``.

A campaign on a simulated phone writes into a store. It is ended by SIGKILL at a random point: after a random number of
sessions and a moment, which is mostly inside a commit, or inside a statement of SQLite. After each kill the store must
open, its file must be intact, every session that was acknowledged must be in it, and at most one more; rows that were
finished stay finished. The next process goes on; when all rows are done, each has exactly the sessions that it needs.

A kill leaves what the process had handed to the system; what a power cut leaves is ``hwbench.testing.power``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from hwbench.measure.bench import Bench
from hwbench.measure.campaign import Campaign, CampaignResult, CampaignWatch
from hwbench.measure.drift import Drift, Pauses
from hwbench.measure.runner import measure_sessions
from hwbench.measure.store import MeasurementStore
from hwbench.runtimes.runners import Runner
from hwbench.specs import Measurement, Outcome, Target, Timing, Workload
from hwbench.testing.simulated_phone import (
    BIG,
    QUIET,
    Cost,
    PhoneBuilder,
    PhoneMachine,
    PhoneTransport,
    write_simulated,
)

TIMING = Timing(sentinel_every=5)
WORKLOADS = tuple(
    Workload.parse(f"x3d_i24_m54_o24_k3x3x3_swish@1x24x4x{14 + index}x14/fp32/auto") for index in range(20)
)
# Sessions that a process may take before it is killed, and how long it may go on after the last of them.
_SESSIONS, _MOMENT_S = 12, 0.01
# Instructions of SQLite's machine that a session costs, roughly.
_INSTRUCTIONS = 1500


class Speaker(CampaignWatch):
    """Says on a stream what is stored: ``s`` and a workload for a session, ``r`` for a finished row."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def visited(self, workload: Workload) -> None:
        self._say(f"s {workload.key}\n")

    def measured(self, measurement: Measurement) -> None:
        self._say(f"r {measurement.workload.key}\n")


def target(phone: str) -> Target:
    """A simulated phone by its name."""
    return Target(phone, "simulated", "1")


def profile(
    store: MeasurementStore,
    folder: Path,
    generation: int = 0,
    *,
    phone: str = "phone",
    watch: CampaignWatch | None = None,
) -> CampaignResult:
    """Measures all ``WORKLOADS`` on a quiet simulated phone; each generation has rows of its own."""
    machine = PhoneMachine(QUIET)
    measure = partial(
        measure_sessions,
        bench=Bench(PhoneTransport(machine), Runner("simulated", ("runner",)), 1, BIG[-1:]),
        timing=TIMING,
        sentinel=write_simulated(folder / f"{phone}.simulated", Cost(1.8e-3, 0.2e-3)),
        drift=Drift(),
        pauses=Pauses(),
        wait=machine.idle,
    )
    campaign = Campaign(
        store, target(phone), {"generation": str(generation)}, PhoneBuilder(folder), measure, timing=TIMING, batch=8
    )
    return campaign.run(WORKLOADS, watch)


@dataclass
class CrashReport:
    """What came of it; ``problems`` is empty where everything held."""

    kills: int = 0
    before_first_session: int = 0
    inside_a_statement: int = 0
    generations: int = 0
    sessions: int = 0
    unacknowledged: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass
class Crasher:
    """Runs campaigns in processes of their own and kills them.

    Args:
        folder: Where the store and the files go.
        seed: Of the points at which it kills.
    """

    folder: Path
    seed: int = 0
    report: CrashReport = field(default_factory=CrashReport)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._path = self.folder / "measurements.sqlite"
        self._said: Counter[str] = Counter()
        self._finished: set[str] = set()

    def run(self, kills: int) -> CrashReport:
        """Kills so many times, then lets the last campaign finish; ends at the first problem."""
        started = time.monotonic()
        while self.report.kills < kills and not self.report.problems:
            self._one(self._chance.random() < 0.5)
        if not self.report.problems:
            self._end_generation(self._fork(None))
        self.report.seconds = round(time.monotonic() - started, 1)
        return self.report

    def _one(self, in_statement: bool) -> None:
        sessions = self._chance.randrange(_SESSIONS)
        if in_statement:
            ended = self._fork(int(self._chance.uniform(0, sessions + 1) * _INSTRUCTIONS))
        else:
            ended = self._fork(None, sessions, self._chance.uniform(0, _MOMENT_S))
        if self._end_generation(ended):
            return
        self.report.kills += 1
        self.report.inside_a_statement += in_statement
        self.report.before_first_session += not self._new
        self._check(allowed=1)

    def _fork(self, instructions: int | None, sessions: int | None = None, moment_s: float = 0.0) -> int:
        """A process that measures; its exit status, below zero where a signal ended it."""
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            self._measure(writing, instructions)
        os.close(writing)
        self._new = 0
        with os.fdopen(reading) as lines:
            if sessions is not None and self._listen(lines, sessions):
                time.sleep(moment_s)
                os.kill(process, signal.SIGKILL)
            self._listen(lines, None)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def _measure(self, writing: int, instructions: int | None) -> None:
        """The child: never returns."""
        status = 1
        try:
            with MeasurementStore(self._path) as store:
                if instructions is not None:
                    store.database.connection.set_progress_handler(
                        lambda: os.kill(os.getpid(), signal.SIGKILL), max(instructions, 1)
                    )
                say = partial(_write, writing)
                profile(store, self.folder, self.report.generations, watch=Speaker(say))
            status = 0
        except BaseException as error:  # a child that returned would be a second test run
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(status)

    def _listen(self, lines: Iterator[str], sessions: int | None) -> bool:
        """Notes what the child says, up to so many sessions or to its end; False where it ended before."""
        heard = 0
        while sessions is None or heard < sessions:
            line = next(lines, None)
            if line is None:
                return False
            if not line.endswith("\n"):
                continue
            kind, _, key = line.strip().partition(" ")
            if kind == "s":
                self._said[key] += 1
                heard += 1
                self._new += 1
            else:
                self._finished.add(key)
        return True

    def _end_generation(self, status: int) -> bool:
        """True where the campaign came to its end; then the next one begins."""
        if status == -signal.SIGKILL:
            return False
        if status != 0:
            self.report.problems.append(f"a process ended with status {status} in generation {self.report.generations}")
            return True
        self._check(allowed=0)
        counts = self._stored()
        for workload in WORKLOADS:
            if counts[workload.key] != TIMING.min_rounds:
                self.report.problems.append(f"{workload.key} was measured {counts[workload.key]} times")
        self.report.sessions += counts.total()
        self.report.generations += 1
        self._said.clear()
        self._finished.clear()
        return True

    def _check(self, *, allowed: int) -> None:
        """Looks at the store; ``allowed`` is how many sessions it may have beyond those it acknowledged."""
        problems = self.report.problems
        try:
            with MeasurementStore(self._path) as store:
                conditions = {"generation": str(self.report.generations)}
                rows = {row.workload.key: row for row in store.measurements(target("phone"), conditions)}
            for key in self._finished:
                if key not in rows or rows[key].outcome is not Outcome.OK:
                    problems.append(f"{key} was finished and is not")
        except Exception as error:  # whatever it is, it is what this looks for
            problems.append(f"the store does not open: {type(error).__name__}: {error}")
            return
        with sqlite3.connect(self._path) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        connection.close()
        if verdict != "ok" or broken:
            problems.append(f"integrity: {verdict} {broken}")
        stored = self._stored()
        more = stored - self._said
        if self._said - stored:
            problems.append(f"lost: {dict(self._said - stored)}")
        if more.total() > allowed:
            problems.append(f"never acknowledged: {dict(more)}")
        self.report.unacknowledged += more.total()
        self._said += more

    def _stored(self) -> Counter[str]:
        with sqlite3.connect(self._path) as connection:
            rows = connection.execute(
                "SELECT m.workload, count(*) FROM sessions AS s JOIN measurements AS m ON m.id = s.measurement "
                "JOIN conditions AS c ON c.fingerprint = m.conditions WHERE c.json = ? GROUP BY 1",
                (json.dumps({"generation": str(self.report.generations)}, separators=(",", ":")),),
            ).fetchall()
        connection.close()
        return Counter(dict(rows))


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode())


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the report as JSON; exit status 1 where something did not hold."""
    parser = argparse.ArgumentParser(prog="hwbench.testing.crash")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
        report = Crasher(Path(folder), options.seed).run(options.kills)
    print(json.dumps(asdict(report), indent=2))
    return int(bool(report.problems))


if __name__ == "__main__":
    sys.exit(main())
