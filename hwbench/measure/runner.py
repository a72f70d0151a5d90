"""The host side of a runner: starts it on the device, reads its lines, and makes sessions and failures of them.

One file that crashes, hangs or cannot be loaded costs that file: the runner is started again with the others, for the
visits they still lack.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hwbench.errors import DeviceError, DeviceLost
from hwbench.measure.bench import Bench
from hwbench.measure.corrections import DriftCorrections
from hwbench.measure.drift import Drift, OnDrift, Pauses, Undisturbed
from hwbench.measure.failures import MeasurementFailure
from hwbench.measure.reference import Reference
from hwbench.measure.runner_output import RunnerOutput
from hwbench.measure.visits import RemainingVisits, session_of
from hwbench.runtimes import protocol
from hwbench.scratch import scratch_folder
from hwbench.specs import Artifact, Outcome, Session, Timing

# Deaths of the runner in a row that tell nothing about any file; after them it is the device's fault.
MAX_IDLE_STARTS = 3
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
    on_drift: OnDrift | None = None,
    sentinel: Path | None = None,
    drift: Drift | None = None,
    pauses: Pauses | None = None,
    undisturbed: Undisturbed | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> list[MeasurementFailure]:
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
        on_drift: Called with an artifact, the number of its session (from 0, in the order in which this call handed
            sessions of the artifact over), and the drift that the session is now known to have; more than once where
            a later visit to the sentinel tells more.
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
    visits = RemainingVisits(artifacts, rounds)
    corrections = DriftCorrections(drift, on_drift or _ignore)
    try:
        _finish(_Turn(visits, corrections, on_session, bench, timing, reference, known), seed)
    finally:
        if drift is not None and visits.progress:
            drift.keep()
    return visits.failures


def _finish(turn: _Turn, seed: int) -> None:
    """Starts the runner until all is visited."""
    idle = 0
    while turn.visits.total:
        progress = turn.visits.progress
        try:
            turn.go_on(seed)
        except DeviceLost as error:
            turn.lost(error)
        idle = 0 if turn.visits.progress > progress else idle + 1
        if idle >= MAX_IDLE_STARTS:
            raise DeviceLost(f"the runner was started {idle} times and ended before it reached a file: {turn.last_end}")
        seed += 1


def _ignore(artifact: Artifact, number: int, drift: float) -> None:
    pass


class _Turn:
    """One call of ``measure_sessions``: starts the runner for the visits left, and takes its messages."""

    def __init__(
        self,
        visits: RemainingVisits,
        corrections: DriftCorrections,
        on_session: Callable[[Artifact, Session], None],
        bench: Bench,
        timing: Timing,
        reference: Reference | None,
        undisturbed: Undisturbed,
    ) -> None:
        self.visits = visits
        self.corrections = corrections
        self.on_session = on_session
        self.bench = bench
        self.timing = timing
        self.reference = reference
        self.undisturbed = undisturbed
        self.last_end = ""
        # The runner was ended because the sentinel is slow.
        self._stopped = False
        # The sentinel was visited alone since the runner was ended: the first visit after that does not end it again.
        self._checked = False

    def go_on(self, seed: int) -> None:
        """Makes the visits left, as far as the runner and the heat let it."""
        if self.reference is None:
            return self._run_once(seed)
        self.visits.current = protocol.SENTINEL
        self.reference.warm_up()
        self._run_once(seed)
        if self._stopped:
            self.corrections.judge(self.reference.still_slow())
            self.reference.wait_until_recovered()
            self._checked = True

    def lost(self, error: DeviceLost) -> None:
        """The device went away; which file was under way is remembered."""
        self.last_end = str(error)
        if self.bench.report is not None:
            self.bench.report(f"{error}; the session under way is lost, trying again ...")
        self.visits.strike(Outcome.LOST, f"the device went away while it ran this file: {error}")

    def _run_once(self, seed: int) -> None:
        """Starts the runner for the visits left, and reads until it ends, or until the machine has become hot."""
        self.bench.again()  # nothing to do but where the device was started anew, which nobody may have noticed
        with scratch_folder() as folder:
            listing = Path(folder, "list.tsv")
            listing.write_bytes(os.fsencode("".join(self.visits.lines(self.bench.push))))
            if not self.visits.total:
                return
            options = self._options(listing, seed)
            self.visits.current = ""
            self._stopped = False
            self.corrections.restart()
            process = self.bench.spawn(options)
            output = RunnerOutput(process, self.bench.transport, self.visits, self.timing.timeout_s, self.last_end)
            try:
                for line in output.lines():
                    self._take(line)
                    if self._stopped:
                        break
            finally:
                self.last_end = output.last_end
                process.kill()

    def _options(self, listing: Path, seed: int) -> protocol.Options:
        bench = self.bench
        return bench.options(
            self.timing,
            self.undisturbed,
            list=bench.push(listing),
            seed=seed,
            sentinel=bench.push(self.reference.path) if self.reference else "",
            sentinel_every=self.timing.sentinel_every,
        )

    def _take(self, line: str) -> None:
        visits = self.visits
        try:
            message = protocol.parse_line(line)
        except protocol.MalformedLine as error:
            visits.fail(visits.current, Outcome.PARSE, str(error))
            return
        match message:
            case protocol.Start():
                self._check_start(message)
            case protocol.Begin():
                visits.current = message.id
            case protocol.Load():
                visits.loads[message.id] = message
            case protocol.Visit(id=protocol.SENTINEL):
                self._sentinel(message)
            case protocol.Visit():
                self._session(message)
            case protocol.Error(id=protocol.SENTINEL):
                if self.reference is not None:  # one that nobody asked for says nothing
                    raise self.reference.broken(message)
            case protocol.Error():
                visits.fail(message.id, _OUTCOMES.get(message.stage, Outcome.CRASH), message.reason)
            case protocol.End():
                visits.current = ""

    def _check_start(self, message: protocol.Start) -> None:
        """A number taken with other threads or on other processors than asked for is no number."""
        wanted = (self.bench.threads, tuple(sorted(self.bench.cpus)) or message.cpus)
        if (message.threads, message.cpus) != wanted:
            raise DeviceError(
                f"the runner should have {wanted[0]} threads on processors {wanted[1]}, "
                f"it has {message.threads} on {message.cpus}"
            )

    def _sentinel(self, visit: protocol.Visit) -> None:
        """Notes what the sentinel says; one that nobody asked for says nothing."""
        if self.reference is None:
            return
        self.visits.progress += 1
        if not self.corrections.heard(visit, self.reference.drift):
            return
        # A device whose first visit in a process is always slow (a governor's ramp) would otherwise never get further.
        self._stopped = self.reference.waits(visit) and not self._checked
        self._checked = False
        if not self._stopped:
            self.corrections.judge(True)

    def _session(self, visit: protocol.Visit) -> None:
        artifact = self.visits.take(visit.id)
        if artifact is None:
            return
        session = session_of(visit, self.visits.loads.get(visit.id), self.corrections.known(visit))
        self.undisturbed.add(session)
        if self.reference is not None:
            self.reference.pauses.measured_s += session.wall_s
        self.on_session(artifact, session)
        self.corrections.hand_over(artifact, session, visit)
