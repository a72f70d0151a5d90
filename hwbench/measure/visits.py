"""The visits that a runner still has to make, and what became of the files that get none any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hwbench.errors import WorkspaceError
from hwbench.measure.failures import MeasurementFailure
from hwbench.printable import printable
from hwbench.runtimes import protocol
from hwbench.specs import Artifact, Outcome, Session

# A file during which the device goes away, or the runner is killed for memory, may be innocent; so often it is not.
MAX_STRIKES = 3


class RemainingVisits:
    """What is left of so many rounds over some files. The runner knows a file by its place in the list, as text.

    Attributes:
        artifacts: The files.
        loads: What the runner said of loading a file, by the file's name in the list.
        failures: The files that were taken out.
        current: Name of the file under way; empty between two files.
        progress: Counts what brings the turn forward: visits, also to the sentinel, and failures.
    """

    def __init__(self, artifacts: Sequence[Artifact], rounds: int) -> None:
        self.artifacts = artifacts
        self.loads: dict[str, protocol.Load] = {}
        self.failures: list[MeasurementFailure] = []
        self.current = ""
        self.progress = 0
        self._left = {str(index): rounds for index in range(len(artifacts))}
        self._strikes: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Number of visits left."""
        return sum(self._left.values())

    def lines(self, push: Callable[[Path], str]) -> Iterator[str]:
        """The runner's list: name, path on the device and visits left; a file that cannot be pushed is taken out."""
        for id, visits in self._left.items():
            if visits:
                try:
                    path = push(self.artifacts[int(id)].path)
                except WorkspaceError as error:  # of this file; what the device refuses would hold for all
                    self.fail(id, Outcome.PUSH, str(error))
                else:
                    yield f"{id}\t{path}\t{visits}\n"

    def take(self, id: str) -> Artifact | None:
        """Counts a visit that was made; None for a file that was taken out, whatever still comes about it."""
        self.current = ""
        if not self._left.get(id):
            return None
        self._left[id] -= 1
        self.progress += 1
        return self.artifacts[int(id)]

    def strike(self, outcome: Outcome, reason: str) -> None:
        """Something ended the visit under way that need not be the fault of the file; again and again it is."""
        self._strikes[self.current] += 1
        if self._strikes[self.current] >= MAX_STRIKES:
            self.fail(self.current, outcome, f"{MAX_STRIKES} times: {reason}")

    def fail(self, id: str, outcome: Outcome, reason: str) -> None:
        """Takes a file out. The end of a runner between two files, or in the sentinel, is nobody's failure."""
        if self._left.get(id):
            self._left[id] = 0
            self.progress += 1
            workload = self.artifacts[int(id)].workload
            words = printable(reason, protocol.MAX_REASON) or "no reason was given"
            self.failures.append(MeasurementFailure(workload, outcome, words))


def session_of(visit: protocol.Visit, load: protocol.Load | None, drift: float) -> Session:
    """A visit as a session; ``load`` is what the runner said of loading the file."""
    return Session(
        samples_s=tuple(ns * 1e-9 for ns in visit.samples_ns),
        cpu_s=visit.cpu_ns * 1e-9,
        wall_s=visit.wall_ns * 1e-9,
        involuntary_switches=visit.nivcsw,
        load_s=load.load_ns * 1e-9 if load else 0.0,
        first_s=load.first_ns * 1e-9 if load else 0.0,
        clock_hz=visit.clock_khz * 1e3,
        temperature_celsius=visit.temp_mc * 1e-3,
        drift=drift,
        probe_s=visit.probe_ns * 1e-9,
        crowding=visit.crowding_ppm * 1e-6,
        memory=visit.memory_ppm * 1e-6,
        disturbed=visit.disturbed,
        peak_memory_bytes=1024 * visit.maxrss_kb,
    )
