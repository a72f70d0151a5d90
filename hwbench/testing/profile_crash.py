"""Kills adaptive profiles again and again, and looks at what they leave: ``python -m hwbench.testing.profile_crash``.

Two devices, each a law of its own and always the same latency of a block, are profiled side by side into one workspace,
a process for each. A process is ended by SIGKILL: after a random number of sessions, or at a random moment while it
chooses rows. After each kill the store has every session that was acknowledged, and at most one more. When both
profiles are done, each has the rows that an undisturbed profile chooses, with the same latencies, and each row the
sessions that it needs. The two differ in what they chose.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import hwbench
from hwbench.api import campaigns
from hwbench.devices import Device
from hwbench.latency import LatencyTable, Role, table_path
from hwbench.measure.campaign import Campaign
from hwbench.measure.failures import MeasurementFailure
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Artifact, Precision, Session, Target, Timing, Workload
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import installed_target, work
from hwbench.workspace import Workspace

DEVICES = ("first", "second")
PRECISION, TIMING = Precision.INT8, Timing(min_rounds=3, max_rounds=3)
# The first batch has 96 blocks beside networks and probes; by then the laws of the devices decide what comes next.
LIMIT = 170
# Sessions that a process may take before it is killed; in some it is killed at a moment instead, mostly while it
# chooses.
_SESSIONS, _MOMENT_S, _MOMENTS = 16, 2.0, 0.2


@dataclass
class LawfulDevice(FakeDevice):
    """Always takes the same time for a block, by a law of its own, and says each session that is stored.

    Args:
        name: Decides its law: each block is up to a tenth off the law of work.
        say: Is called after a session is stored.
    """

    name: str = ""
    say: Callable[[Workload], None] = lambda workload: None

    def session(self, workload: Workload, chance: random.Random, number: int = 0) -> Session:
        """The same for the same workload, whatever was measured before."""
        return super().session(workload, random.Random(workload.key), number)

    def seconds(self, workload: Workload) -> float:
        """The latency of a block or of a network, which is the sum of its blocks."""
        parts = list(workload.parts())
        if len(parts) > 1:
            return math.fsum(map(self.seconds, parts))
        digest = hashlib.sha256(f"{self.name} {workload.key}".encode()).digest()
        return work(workload) * math.exp(0.2 * (digest[0] / 255 - 0.5))

    def measure(
        self, artifacts: Sequence[Artifact], /, *, on_session: Callable[[Artifact, Session], None], **options: Any
    ) -> Sequence[MeasurementFailure]:
        """As the device does, and acknowledges what was stored."""

        def stored(artifact: Artifact, session: Session) -> None:
            on_session(artifact, session)
            self.say(artifact.workload)

        return super().measure(artifacts, on_session=stored, **options)


def target(device: str) -> Target:
    """A device by its name."""
    return replace(installed_target(), device=device)


def profile(workspace: Workspace, name: str, say: Callable[[Workload], None] = lambda workload: None) -> None:
    """Profiles a device, as ``hwbench profile`` does; only the device itself is made up."""
    device = LawfulDevice(workspace.root / "files" / name, name=name, say=say)
    device.law = device.seconds
    conditions = {"device": name}

    @contextmanager
    def place(store: MeasurementStore, workspace: Workspace, place: Device, **options: Any) -> Iterator[Campaign]:
        store.clock(conditions)
        yield Campaign(store, target(name), conditions, device.build, device.measure, TIMING)

    request = hwbench.ProfileRequest(
        device=name, space="x3d-mini", precision="int8", classes=8, aa=False, accuracy="0.1%", limit=LIMIT
    )
    with mock.patch.object(campaigns, "place_campaign", place):
        rows = _rows(workspace, name)
        hwbench.profile(replace(request, limit=max(LIMIT - rows, 0)), workspace=workspace)


def _rows(workspace: Workspace, name: str) -> int:
    """Finished rows of a device: the limit of an interrupted profile is that of what is left."""
    if not workspace.store.is_file():
        return 0
    with MeasurementStore(workspace.store) as store:
        return sum(1 for _ in store.rows(target(name), {"device": name}))


def new_workspace(folder: Path) -> Workspace:
    """A workspace with both devices."""
    workspace = Workspace.create(folder)
    for name in DEVICES:
        path = workspace.root / "profiles" / name / "device.toml"
        path.parent.mkdir(parents=True)
        path.write_text(f'schema = 1\nname = "{name}"\ntransport = "local"\n')
    return workspace


def published(workspace: Workspace, name: str) -> dict[Workload, float]:
    """The rows of a device's table."""
    table = LatencyTable.read(table_path(workspace.root, target(name), PRECISION))
    return {row.workload: row.stats.median_s for row in table if row.stats is not None}


@dataclass
class ProfileCrashReport:
    """What came of it; ``problems`` is empty where everything held."""

    kills: int = 0
    while_choosing: int = 0
    profiles: int = 0
    sessions: int = 0
    unacknowledged: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


@dataclass
class _ProfilingProcess:
    """A process that profiles a device: its number, where it acknowledges, and when it is killed."""

    name: str
    pid: int
    acknowledgements: int
    sessions: int | None
    moment: float
    acknowledged: int = 0
    ended: bool = False


class ProfileCrashes:
    """Profiles both devices in processes of their own and kills these.

    Args:
        folder: For the workspaces.
        seed: Of the points at which it kills.
    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self._folder, self._chance = folder, random.Random(seed)
        self.report = ProfileCrashReport()

    def run(self, kills: int) -> ProfileCrashReport:
        """Kills so often; profiles that are done begin anew in another workspace."""
        started = time.monotonic()
        undisturbed = new_workspace(self._folder / "undisturbed")
        for name in DEVICES:
            profile(undisturbed, name)
        wanted = {name: published(undisturbed, name) for name in DEVICES}
        blocks = [{w for w in rows if Role.of(w) is Role.BLOCK} for rows in wanted.values()]
        if blocks[0] == blocks[1]:
            self.report.problems.append("both devices chose the same blocks")
        while self.report.kills < kills and not self.report.problems:
            workspace = new_workspace(self._folder / f"workspace{self.report.profiles}")
            sessions: Counter[str] = Counter()
            left = list(DEVICES)
            while left and not self.report.problems:
                kill = self.report.kills < kills
                left = self._together(workspace, left, sessions, kill=kill)
            for name in DEVICES:
                self._compare(published(workspace, name), wanted[name], name)
            self._count_sessions(workspace)
            self.report.profiles += len(DEVICES)
        self.report.seconds = round(time.monotonic() - started, 1)
        return self.report

    def _together(self, workspace: Workspace, names: Sequence[str], sessions: Counter[str], *, kill: bool) -> list[str]:
        """Starts a process for each device and ends it at its point; returns those that are not done."""
        running = [self._start(workspace, name, kill=kill) for name in names]
        while not all(one.ended for one in running):
            time.sleep(0.001)
            for one in running:
                self._look(one)
        unfinished = []
        for one in running:
            one.acknowledged += len(os.read(one.acknowledgements, 1 << 16))
            os.close(one.acknowledgements)
            _, status = os.waitpid(one.pid, 0)
            sessions[one.name] += one.acknowledged
            if os.WIFSIGNALED(status):
                self.report.kills += 1
                self.report.while_choosing += one.sessions is None
                unfinished.append(one.name)
            elif status:
                self.report.problems.append(f"{one.name}: the process ended with {status}")
            self._check(workspace, one.name, sessions)
        return unfinished

    def _start(self, workspace: Workspace, name: str, *, kill: bool) -> _ProfilingProcess:
        by_moment = self._chance.random() < _MOMENTS
        limit = None if by_moment or not kill else self._chance.randint(1, _SESSIONS)
        moment = self._chance.uniform(0, _MOMENT_S) if by_moment and kill else math.inf
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reading)
            try:
                profile(workspace, name, lambda workload: _acknowledge(writing))
            except BaseException as error:  # whatever it is, the process must not go on as its parent
                sys.stderr.write(f"{name}: {error!r}\n")
                os._exit(1)
            os._exit(0)
        os.close(writing)
        os.set_blocking(reading, False)
        return _ProfilingProcess(name, pid, reading, limit, time.monotonic() + moment)

    def _look(self, one: _ProfilingProcess) -> None:
        """Kills a process that is at its point."""
        if one.ended:
            return
        try:
            data = os.read(one.acknowledgements, 1 << 16)
            one.acknowledged += len(data)
            one.ended = not data
        except BlockingIOError:
            pass
        if (one.sessions is not None and one.acknowledged >= one.sessions) or time.monotonic() >= one.moment:
            time.sleep(self._chance.uniform(0, 0.01))
            os.set_blocking(one.acknowledgements, True)
            os.kill(one.pid, signal.SIGKILL)
            one.ended = True

    def _check(self, workspace: Workspace, name: str, sessions: Counter[str]) -> None:
        """Every acknowledged session is stored, and at most one more, which counts from now on."""
        stored = sum(_sessions(workspace, name).values())
        if not 0 <= stored - sessions[name] <= 1:
            self.report.problems.append(f"{name}: {sessions[name]} sessions acknowledged, {stored} stored")
        self.report.unacknowledged += stored - sessions[name]
        sessions[name] = stored

    def _compare(self, rows: dict[Workload, float], wanted: dict[Workload, float], name: str) -> None:
        if rows.keys() != wanted.keys():
            self.report.problems.append(f"{name}: {len(rows.keys() ^ wanted.keys())} rows are not those undisturbed")
        elif rows != wanted:
            self.report.problems.append(f"{name}: latencies are not those undisturbed")

    def _count_sessions(self, workspace: Workspace) -> None:
        for name in DEVICES:
            counts = _sessions(workspace, name)
            self.report.sessions += sum(counts.values())
            if set(counts.values()) != {TIMING.min_rounds}:
                self.report.problems.append(f"{name}: rows have {sorted(set(counts.values()))} sessions")


def _acknowledge(pipe: int) -> None:
    os.write(pipe, b".")


def _sessions(workspace: Workspace, name: str) -> Counter[int]:
    """Number of sessions of each row of a device that has any."""
    if not workspace.store.is_file():
        return Counter()
    with MeasurementStore(workspace.store) as store, store.database.transaction() as db:
        found = db.execute(
            "SELECT measurement, COUNT(*) FROM sessions JOIN measurements ON measurements.id = measurement "
            "WHERE target = ? GROUP BY measurement",
            (target(name).key,),
        )
        return Counter(dict(found.fetchall()))


def main() -> None:
    """Prints the report; exit status 5 where something did not hold."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = ProfileCrashes(Path(folder), given.seed).run(given.kills)
    print(json.dumps(asdict(report), indent=1))
    raise SystemExit(5 if report.problems else 0)


if __name__ == "__main__":
    main()
