"""The host side of a runner: starts it on the device, reads its lines, and makes sessions and failures of them.

One file that crashes, hangs or cannot be loaded costs that file: the runner is started again with the others, for the
visits they still lack.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hwbench.devices import Process
from hwbench.errors import DeviceError, DeviceLost, WorkspaceError
from hwbench.measure.bench import Bench
from hwbench.measure.campaign import Failure
from hwbench.measure.drift import Drift, Pauses, Undisturbed, between
from hwbench.measure.quality import doubt
from hwbench.measure.reference import Reference, median_s
from hwbench.printable import printable
from hwbench.runtimes import protocol
from hwbench.runtimes.runners import STARTUP_S, describe_end
from hwbench.specs import Artifact, Outcome, Session, Timing

# The runner keeps the time limit of a visit itself; whoever waits allows for the way.
GRACE_S = 5.0
# Deaths of the runner in a row that tell nothing about any file; after them it is the device's fault.
MAX_IDLE_STARTS = 3
# A file during which the device goes away, or the runner is killed for memory, may be innocent; so often it is not.
MAX_STRIKES = 3
# A runner that talks and comes to no end of a visit: so many times what the longest visit may take, with the sentinel.
MAX_IDLE_VISITS = 3
# Exit status of a runner that was called wrongly.
_USAGE = 2
# What became of a file by the stage at which it failed.
_OUTCOMES = {"load": Outcome.LOAD, "parse": Outcome.PARSE}


def measure_sessions(
    artifacts: Sequence[Artifact],
    /,
    *,
    rounds: int,
    seed: int,
    on_session: Callable[[Artifact, Session], None],
    bench: Bench,
    timing: Timing,
    on_drift: Callable[[Artifact, Session, float], None] | None = None,
    sentinel: Path | None = None,
    drift: Drift | None = None,
    pauses: Pauses | None = None,
    undisturbed: Undisturbed | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> list[Failure]:
    """Visits every artifact once per round, in fresh random order, and hands each session over when it comes.

    A session is handed over at once with the drift of the sentinel before it, so that a kill costs no more than the one
    in progress; after the next visit to the sentinel its drift is known from both sides. When the sentinel has become
    too slow the runner is ended and started again once the machine has recovered.

    A device that goes away costs the session under way: the transport reaches it again, and the runner goes on with the
    visits that are left. A file at which it goes away again and again is taken out.

    Args:
        artifacts: Files of one runtime.
        rounds: Number of rounds.
        seed: Of the orders.
        on_session: Called with the artifact and its session; an exception ends the runner and passes through.
        bench: Where and with what.
        timing: Warm-up, samples and time limit of a visit; its stop rule is the caller's.
        on_drift: Called with an artifact, a session that was handed over, and the drift that it is now known to have;
            more than once where a later visit to the sentinel tells more.
        sentinel: A file whose time tells how fast the machine is at present; None: no drift is known.
        drift: What the sentinel and the clock said so far; pass the same object to all calls that are to share a
            reference. None: no drift is known.
        pauses: How long to wait for a slow machine; pass the same object to all calls of a campaign.
        undisturbed: What is known of core and memory while nothing else uses them, and becomes known here; default:
            what ``drift`` knows.
        wait: Lets so many seconds pass.

    Returns:
        The artifacts that gave no further session, with the outcome and the reason in words.

    Raises:
        InvalidFile: The sentinel cannot be run.
        DeviceError: The runner cannot be started, dies again and again without a word about any file, or the device
            refuses a file.
        DeviceLost: The device went away and did not come back, or goes away again and again.
    """
    drift = Drift() if sentinel and drift is None else drift
    reference = Reference(bench, timing, sentinel, drift, pauses or Pauses(), wait) if sentinel and drift else None
    known = undisturbed or (drift.undisturbed if drift else Undisturbed())
    turn = _Turn(artifacts, rounds, on_session, bench, timing, reference, drift, known, on_drift or _ignore)
    try:
        _finish(turn, seed)
    finally:
        if drift is not None and turn.progress:
            drift.keep()
    return turn.failures


def _finish(turn: _Turn, seed: int) -> None:
    """Starts the runner until all is visited."""
    idle = 0
    while turn.unfinished:
        progress = turn.progress
        try:
            turn.go_on(seed)
        except DeviceLost as error:
            turn.lost(error)
        idle = 0 if turn.progress > progress else idle + 1
        if idle >= MAX_IDLE_STARTS:
            raise DeviceLost(f"the runner was started {idle} times and ended before it reached a file: {turn.last_end}")
        seed += 1


def _ignore(artifact: Artifact, session: Session, drift: float) -> None:
    pass


def _session(visit: protocol.Visit, load: protocol.Load | None, drift: float) -> Session:
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
    )


class _Stopped(Exception):
    """The runner was ended from here."""


@dataclass
class _Handed:
    """A session that was handed over: the time at its middle, and what its drift is known to be by now."""

    artifact: Artifact
    session: Session
    at_ns: int
    drift: float


@dataclass
class _Turn:
    """One call of ``measure_sessions``: what is still to visit, and what came of the rest."""

    artifacts: Sequence[Artifact]
    rounds: int
    on_session: Callable[[Artifact, Session], None]
    bench: Bench
    timing: Timing
    reference: Reference | None
    drift: Drift | None
    undisturbed: Undisturbed
    on_drift: Callable[[Artifact, Session, float], None]
    failures: list[Failure] = field(default_factory=list)
    progress: int = 0
    last_end: str = ""

    def __post_init__(self) -> None:
        self._left = {str(index): self.rounds for index in range(len(self.artifacts))}
        self._loads: dict[str, protocol.Load] = {}
        self._strikes: Counter[str] = Counter()
        self._gone = False
        self._current = ""
        self.stopped = False
        # The sentinel was visited alone since the runner was ended: the first visit after that does not end it again.
        self._checked = False
        self._handed: list[_Handed] = []
        # What the last two visits to the sentinel said, and when; how many sessions were handed over before the last.
        self._told = 0
        self._before = 1.0
        self._after = 1.0
        self._from_ns: int | None = None
        self._to_ns: int | None = None

    @property
    def unfinished(self) -> bool:
        """There are visits left."""
        return any(self._left.values())

    def go_on(self, seed: int) -> None:
        """Makes the visits left, as far as the runner and the heat let it."""
        if self.reference is None:
            return self.run_once(seed)
        self._current = protocol.SENTINEL
        self.reference.settle()
        self.run_once(seed)
        if self.stopped:
            self.judge(self.reference.still_slow())
            self.reference.wait_until_recovered()
            self._checked = True

    def run_once(self, seed: int) -> None:
        """Starts the runner for the visits left, and reads until it ends, or until the machine has become hot."""
        bench, timing = self.bench, self.timing
        if self._gone:
            self.bench.again()
            self._gone = False
        with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
            listing = Path(folder, "list.tsv")
            listing.write_text("".join(self._list_lines()))
            if not self.unfinished:
                return
            options = bench.options(
                timing,
                self.undisturbed,
                list=bench.push(listing),
                seed=seed,
                sentinel=bench.push(self.reference.path) if self.reference else "",
                sentinel_every=timing.sentinel_every,
            )
            self._current = ""
            self.stopped = False
            self._told = len(self._handed)
            process = bench.spawn(options)
            try:
                for line in self._lines(process):
                    self._take(line)
                    if self.stopped:
                        break
            finally:
                process.kill()

    def _list_lines(self) -> Iterator[str]:
        for id, visits in self._left.items():
            if visits:
                try:
                    path = self.bench.push(self.artifacts[int(id)].path)
                except WorkspaceError as error:  # of this file; what the device refuses would hold for all
                    self._fail(id, Outcome.PUSH, str(error))
                else:
                    yield f"{id}\t{path}\t{visits}\n"

    def _lines(self, process: Process) -> Iterator[str]:
        """The lines of the runner; at its end, what its end means."""
        limit = STARTUP_S
        longest = MAX_IDLE_VISITS * (STARTUP_S + self.timing.timeout_s + GRACE_S)
        visits_left, since = -1, 0.0
        try:
            while (line := self._read(process, limit, heard=visits_left >= 0)) is not None:
                if visits_left != (visits_left := sum(self._left.values())):
                    since = time.monotonic()
                elif time.monotonic() - since > longest:
                    process.kill()
                    self._timed_out(f"talked for {longest:.0f} s without the end of a visit")
                    return
                yield line
                limit = self.timing.timeout_s + GRACE_S + (0 if self._loads else STARTUP_S)
        except _Stopped:
            return
        self._ended(process)

    def _read(self, process: Process, limit: float, *, heard: bool) -> str | None:
        """The next line, None at the end; ``_Stopped`` where the runner had to be ended and what that means is said."""
        try:
            return process.read_line(limit)
        except TimeoutError:
            process.kill()
            # A device out of reach says nothing either; asking it raises then.
            self.bench.transport.run(["true"], timeout_s=STARTUP_S)
            self._timed_out(f"said nothing for {limit:.0f} s")
        except DeviceError as error:
            # More in one line than memory is for, or its shell there was ended; closer words are about the device, and
            # so are any before the first line.
            if type(error) is not DeviceError or not heard:
                raise
            process.kill()
            self.last_end = str(error)
            self._strike(Outcome.PARSE, str(error))
        raise _Stopped

    def _take(self, line: str) -> None:
        try:
            message = protocol.parse_line(line)
        except protocol.MalformedLine as error:
            self._fail(self._current, Outcome.PARSE, str(error))
            return
        match message:
            case protocol.Start():
                self._check_start(message)
            case protocol.Begin():
                self._current = message.id
            case protocol.Load():
                self._loads[message.id] = message
            case protocol.Visit(id=protocol.SENTINEL):
                self._sentinel(message)
            case protocol.Visit():
                self._session(message)
            case protocol.Error(id=protocol.SENTINEL):
                if self.reference is not None:  # one that nobody asked for says nothing
                    raise self.reference.broken(message)
            case protocol.Error():
                self._fail(message.id, _OUTCOMES.get(message.stage, Outcome.CRASH), message.reason)
            case protocol.End():
                self._current = ""

    def _sentinel(self, visit: protocol.Visit) -> None:
        """Notes what the sentinel says; one that was disturbed itself, or that nobody asked for, says nothing."""
        if self.reference is None:
            return
        drift = self.reference.drift
        self.progress += 1
        if self._to_ns is not None and doubt(_session(visit, None, 1.0)):
            return
        before, self._from_ns = drift.ratio, self._to_ns
        drift.add(median_s(visit))
        factor = drift.anew()
        if factor != 1.0 and not visit.probe_ns:
            for handed in self._handed:
                self._correct(handed, handed.drift * factor)
        self._before, self._after, self._to_ns = before * factor, drift.ratio, visit.at_ns
        # A device whose first visit in a process is always slow (a governor's ramp) would otherwise never get further.
        self.stopped = self.reference.waits(visit) and not self._checked
        self._checked = False
        if not self.stopped:
            self.judge(True)

    def judge(self, believed: bool) -> None:
        """Corrects the sessions since the visit before by what the last one said, if that is believed."""
        start, end = self._from_ns, self._to_ns
        if believed and start is not None and end is not None:
            for handed in self._handed[self._told :]:
                if handed.session.probe_s:
                    continue  # its own clock says more
                share = (handed.at_ns - start) / max(end - start, 1)
                self._correct(handed, between(self._before, self._after, share))
        self._told = len(self._handed)

    def _correct(self, handed: _Handed, drift: float) -> None:
        handed.drift = drift
        self.on_drift(handed.artifact, handed.session, drift)

    def _check_start(self, message: protocol.Start) -> None:
        """A number taken with other threads or on other processors than asked for is no number."""
        wanted = (self.bench.threads, tuple(sorted(self.bench.cpus)) or message.cpus)
        if (message.threads, message.cpus) != wanted:
            raise DeviceError(
                f"the runner should have {wanted[0]} threads on processors {wanted[1]}, "
                f"it has {message.threads} on {message.cpus}"
            )

    def _session(self, visit: protocol.Visit) -> None:
        self._current = ""
        # A file that failed before is out, whatever still comes about it.
        if not self._left.get(visit.id):
            return
        session = _session(visit, self._loads.get(visit.id), self._drift(visit))
        self.undisturbed.add(session)
        self._left[visit.id] -= 1
        self.progress += 1
        artifact = self.artifacts[int(visit.id)]
        if self.reference is not None:
            self.reference.pauses.measured_s += session.wall_s
        self.on_session(artifact, session)
        self._handed.append(_Handed(artifact, session, visit.at_ns, session.drift))

    def _drift(self, visit: protocol.Visit) -> float:
        """How slow the machine was, as far as it is known by now."""
        if self.drift is None:
            return 1.0
        return self.drift.by_clock(visit.probe_ns * 1e-9) if visit.probe_ns else self.drift.ratio

    def _ended(self, process: Process) -> None:
        try:
            result = process.wait(GRACE_S)
        except TimeoutError:
            process.kill()
            self._timed_out(f"closed its output and did not end within {GRACE_S:.0f} s")
            return
        self.last_end = describe_end(result.status, result.stderr)
        if result.status in (_USAGE, 126, 127):
            raise DeviceError(f"the runner does not start: {self.last_end}; see: hwbench doctor")
        if result.status == -signal.SIGALRM:
            self._timed_out(f"took longer than {self.timing.timeout_s:.0f} s")
        elif result.status == -signal.SIGKILL:
            self._strike(Outcome.CRASH, f"the runner was {describe_end(result.status, '')} while it ran this file")
        elif result.status != 0:
            self._fail(self._current, Outcome.CRASH, f"the runner ended while it ran this file: {self.last_end}")

    def _timed_out(self, reason: str) -> None:
        self.last_end = f"the runner {reason}"
        self._fail(self._current, Outcome.TIMEOUT, reason)

    def lost(self, error: DeviceLost) -> None:
        """The device went away; which file was under way is remembered."""
        self._gone = True
        self.last_end = str(error)
        if self.bench.report is not None:
            self.bench.report(f"{error}; the session under way is lost, trying again ...")
        self._strike(Outcome.LOST, f"the device went away while it ran this file: {error}")

    def _strike(self, outcome: Outcome, reason: str) -> None:
        """Something ended the session under way that need not be the fault of the file; again and again it is."""
        self._strikes[self._current] += 1
        if self._strikes[self._current] >= MAX_STRIKES:
            self._fail(self._current, outcome, f"{MAX_STRIKES} times: {reason}")

    def _fail(self, id: str, outcome: Outcome, reason: str) -> None:
        """Takes a file out. The end of a runner between two files, or in the sentinel, is nobody's failure."""
        if self._left.get(id):
            self._left[id] = 0
            self.progress += 1
            workload = self.artifacts[int(id)].workload
            words = printable(reason, protocol.MAX_REASON) or "no reason was given"
            self.failures.append(Failure(workload, outcome, words))
