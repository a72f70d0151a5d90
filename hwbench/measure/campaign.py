"""Many workloads on one target: build what is missing, measure it in interleaved rounds, keep everything, resume.

Workloads go through in batches: a batch is built, then measured, because building on the machine that measures disturbs
the timing; where another machine measures, the next batch is built meanwhile. Inside a batch every round visits every
artifact once in fresh random order, and a row leaves as soon as its interval is narrow enough. Each session is stored
when it comes, so a campaign that was killed goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hwbench.errors import DeviceLost, DeviceUnreachable
from hwbench.measure.build_ahead import BuildAhead, Following, nothing_follows
from hwbench.measure.builder import BuildFailure
from hwbench.measure.drift import OnDrift, by_clock
from hwbench.measure.failures import MeasurementFailure
from hwbench.measure.judge import Judge
from hwbench.measure.quality import sessions_needed, verdict
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import RUNNER_BUILD, RowPurpose, fingerprint, no_build
from hwbench.specs import Artifact, Measurement, Outcome, Repeatability, Session, Target, Timing, Workload

# A row's sessions lie a round of its batch apart, so that what disturbs for some seconds does not disturb all of them:
# three in one second agree with each other to a part of what they differ by from those a minute later.
BATCH = 96
# A drift that is known better by less than this is not worth a write.
SAME_DRIFT = 1e-4
# A file that kills the runner ends the turn for all; the others are visited in the next one.
PATIENCE = 3


class Build(Protocol):
    """Turns workloads into files; ``builder.build_all`` with its engine and cache bound."""

    def __call__(self, workloads: Sequence[Workload], /) -> Iterator[Artifact | BuildFailure]: ...


class Measure(Protocol):
    """Visits artifacts in rounds; ``runner.measure_sessions`` with its device bound."""

    def __call__(
        self,
        artifacts: Sequence[Artifact],
        /,
        *,
        rounds: int,
        seed: int,
        on_session: Callable[[Artifact, Session], None],
        on_drift: OnDrift,
    ) -> Sequence[MeasurementFailure]: ...


def no_state() -> Mapping[str, Any]:
    """The state of a device that is not asked."""
    return {}


class CampaignWatch:
    """What a campaign tells while it runs; override what is of interest."""

    def comparing(self, count: int) -> None:
        """So many workloads with a row of another build are to be built: the row stays where the file is the same."""

    def planned(self, missing: int, stored: int) -> None:
        """``missing`` workloads are to be measured; ``stored`` ones have rows already."""

    def built(self, result: Artifact | BuildFailure) -> None:
        """One workload was built, was in the cache, or failed to build."""

    def turn(self, sessions: int) -> None:
        """So many sessions are to come next, if none fails; rows that need more have them in another turn."""

    def visited(self, workload: Workload) -> None:
        """One session was stored."""

    def measured(self, measurement: Measurement) -> None:
        """One row is finished, as a latency or as a failure."""


@dataclass(frozen=True)
class CampaignResult:
    """The rows of all workloads asked for, in their order.

    ``ok`` were measured by this call, ``skipped`` by an earlier one; ``failed`` has the failures of both. ``tried`` is
    how many this call went for, whatever came of them.
    """

    target: Target
    measurements: tuple[Measurement, ...]
    ok: tuple[Measurement, ...]
    failed: tuple[Measurement, ...]
    skipped: tuple[Measurement, ...]
    seconds: float
    tried: int

    def plus(self, later: CampaignResult) -> CampaignResult:
        """Both results as one; a workload that both have is told as by the first."""
        known = {one.workload for one in self.measurements}

        def more(rows: Sequence[Measurement]) -> tuple[Measurement, ...]:
            return tuple(one for one in rows if one.workload not in known)

        return CampaignResult(
            self.target,
            self.measurements + more(later.measurements),
            self.ok + more(later.ok),
            self.failed + more(later.failed),
            self.skipped + more(later.skipped),
            self.seconds + later.seconds,
            self.tried + later.tried,
        )


@dataclass(frozen=True)
class Campaign:
    """Measures workloads on one target under one set of conditions.

    Args:
        store: Where sessions go and from where a campaign resumes.
        target: Where is measured.
        conditions: What must be equal for rows to be comparable: device fingerprint, runner, cores, ...
        build: Makes the files.
        measure: Times the files.
        timing: The protocol of every row.
        build_key: Name of a workload's build, known before it is built; rows of different builds are different rows.
        retry: Outcomes that are tried again; the others stand.
        emulated: The target runs under emulation: its rows are never latencies.
        seed: Of the random orders.
        state: How the device is at present, for the record; asked before and after each run of sessions.
        purpose: Why rows are measured that the store does not have.
        repeat: The A/A test of the device, under the same conditions; None where its times mean nothing.
        ahead: Builds while the device measures; None where that would disturb it.
        runner_build: ``Runner.build``; what sessions tell of core and memory is compared with those of the same one.
    """

    store: MeasurementStore
    target: Target
    conditions: Mapping[str, str]
    build: Build
    measure: Measure
    timing: Timing = field(default_factory=Timing)
    build_key: Callable[[Workload], str] = no_build
    retry: Collection[Outcome] = (Outcome.LOST,)
    emulated: bool = False
    seed: int = 0
    batch: int = BATCH
    state: Callable[[], Mapping[str, Any]] = no_state
    purpose: RowPurpose = RowPurpose.TABLE
    repeat: Callable[[], Repeatability] | None = None
    ahead: BuildAhead | None = None
    runner_build: str = ""

    @property
    def fingerprint(self) -> str:
        """Digest of the conditions."""
        return fingerprint(self.conditions)

    def run(
        self,
        workloads: Iterable[Workload],
        watch: CampaignWatch | None = None,
        *,
        limit: int | None = None,
        following: Following = nothing_follows,
    ) -> CampaignResult:
        """Builds and measures what the store lacks; returns the rows of all ``workloads``.

        Args:
            workloads: What to have rows of, in the order in which to measure.
            watch: Is told what happens.
            limit: Measure at most so many of those that are missing.
            following: What another call is likely to ask for next; it is built while the last of these are measured.

        Raises:
            DeviceError: The device cannot be reached or went away; what was measured stays, and the rows that were
                under way are ``lost``: the next call goes on with the sessions that they have.
            WorkspaceError: The store or the cache cannot be written; what was measured stays.
        """
        watch = watch or CampaignWatch()
        started = time.monotonic()
        asked = list(dict.fromkeys(workloads))
        lacking = self.missing(asked)
        missing = lacking[:limit]
        watch.planned(len(missing), len(asked) - len(lacking))
        batches = [missing[first : first + self.batch] for first in range(0, len(missing), self.batch)]
        for number, batch in enumerate(batches):
            self._run_batch(batch, watch, _Next(batches[number + 1 : number + 2], following))
        return self._result(asked, set(missing), time.monotonic() - started)

    def take_over(self, workloads: Sequence[Workload], watch: CampaignWatch | None = None) -> list[Workload]:
        """Builds workloads, and takes over rows that another build has of the same bytes; returns what is left."""
        watch = watch or CampaignWatch()
        if workloads:
            watch.comparing(len(workloads))
        for result in self.build(workloads):
            watch.built(result)
            if not isinstance(result, BuildFailure):
                self._adopted(result)
        return self.missing(workloads)

    def reopen(self, workloads: Iterable[Workload]) -> int:
        """Makes the finished rows of these workloads missing again; returns of how many there were rows."""
        return self.store.reopen(workloads, self.target, self.timing, self.conditions)

    def by_age(self, workloads: Iterable[Workload]) -> list[Workload]:
        """Workloads, those first that have no finished row, then those whose rows ended the longest ago."""
        ended_at = self.store.ended_at(self.target, self.timing, self.conditions)
        return sorted(dict.fromkeys(workloads), key=lambda workload: ended_at.get(workload, ""))

    def missing(self, workloads: Iterable[Workload]) -> list[Workload]:
        """The workloads that have no finished row, in their order."""
        return self.store.missing(
            workloads, self.target, self.timing, self.conditions, build=self.build_key, retry=self.retry
        )

    def _result(self, asked: list[Workload], fresh: set[Workload], seconds: float) -> CampaignResult:
        rows = [row for row in map(self.measurement, asked) if row is not None]
        good = [row for row in rows if row.outcome is Outcome.OK]
        return CampaignResult(
            target=self.target,
            measurements=tuple(rows),
            ok=tuple(row for row in good if row.workload in fresh),
            failed=tuple(row for row in rows if row.outcome is not Outcome.OK),
            skipped=tuple(row for row in good if row.workload not in fresh),
            seconds=seconds,
            tried=len(fresh),
        )

    def measurement(self, workload: Workload) -> Measurement | None:
        """The finished row of a workload, or None."""
        return self.store.measurement(
            workload, self.target, self.timing, self.conditions, build=self.build_key(workload)
        )

    def _run_batch(self, workloads: Sequence[Workload], watch: CampaignWatch, following: Following) -> None:
        open_rows: dict[Workload, _Row] = {}
        for result in self.build(workloads):
            watch.built(result)
            if isinstance(result, BuildFailure):
                self._end(self._begin(result.workload), result.workload, result.outcome, result.reason, watch)
            elif self._adopted(result):
                self._tell(result.workload, watch)
            else:
                row = self._begin(result.workload, result.sha256)
                open_rows[result.workload] = _Row(row, result, self.store.row_sessions(row))
        with self.ahead(following) if self.ahead and open_rows else contextlib.nullcontext():
            self._measure_rows(open_rows, watch)

    def _measure_rows(self, rows: dict[Workload, _Row], watch: CampaignWatch) -> None:
        """Rounds over the rows until each is done; ``rows`` is used up."""
        turn = 0
        self._close_done(rows, watch)
        while rows:
            before = {workload: len(row.sessions) for workload, row in rows.items()}
            needed = min(sessions_needed(row.sessions, self.timing) for row in rows.values())
            watch.turn(needed * len(rows))
            try:
                failures = self._visit(rows, needed, turn, watch)
            except (DeviceLost, DeviceUnreachable) as error:
                for workload, row in rows.items():
                    self._end(row.id, workload, Outcome.LOST, str(error), watch)
                raise
            for failure in failures:
                row = rows.pop(failure.workload)
                self._end(row.id, failure.workload, failure.outcome, failure.reason, watch)
            for workload in [w for w, row in rows.items() if row.silent(before[w]) >= PATIENCE]:
                reason = f"the runner was started {PATIENCE} times and said nothing about this file"
                self._end(rows.pop(workload).id, workload, Outcome.PARSE, reason, watch)
            self._close_done(rows, watch)
            turn += 1

    def _visit(
        self, rows: dict[Workload, _Row], rounds: int, turn: int, watch: CampaignWatch
    ) -> Sequence[MeasurementFailure]:
        clocks = [session.clock_hz for row in rows.values() for session, _ in row.sessions]
        known = self.store.undisturbed(self.conditions, self.runner_build)
        judge = Judge(self.target.threads, self.emulated, known, clocks)
        first = {workload: len(row.fresh) for workload, row in rows.items()}

        def keep(artifact: Artifact, session: Session) -> None:
            row = rows[artifact.workload]
            judge.undisturbed.add(session)
            suspect = judge.first(session, row.sessions)
            row.add(session, suspect, self.store.add_session(row.id, session, suspect=suspect, run=run))
            watch.visited(artifact.workload)

        def correct(artifact: Artifact, number: int, drift: float) -> None:
            row = rows[artifact.workload]
            place, stored = row.fresh[first[artifact.workload] + number]
            corrected = replace(row.sessions[place][0], drift=drift)
            suspect = judge.doubt(corrected, row.sessions)
            self.store.correct_session(stored, drift, suspect=suspect)
            row.sessions[place] = (corrected, suspect)

        artifacts = [row.artifact for row in rows.values()]
        # A seed of its own for every batch and turn, and for the turns of a campaign that goes on.
        seed = self.seed + int(artifacts[0].workload.sha256[:6], 16)
        seed += turn + sum(len(row.sessions) for row in rows.values())
        before = {**self.state(), RUNNER_BUILD: self.runner_build}
        run = self.store.begin_run(self.target, self.conditions, before)
        failures = self.measure(artifacts, rounds=rounds, seed=seed, on_session=keep, on_drift=correct)
        self.store.end_run(run, self.state())
        # How quiet core and memory can be, and how far latencies follow the clock, is better known by now.
        clock_s, follow = self.store.clock(self.conditions), self.store.clock_sensitivity(self.conditions)
        for row in rows.values():
            for place, number in row.fresh:
                session, suspect = row.sessions[place]
                drift = by_clock(session.probe_s, clock_s, follow) if session.probe_s and clock_s else session.drift
                moved = abs(drift - session.drift) > SAME_DRIFT
                judged = replace(session, drift=drift) if moved else session
                suspect = suspect or judge.doubt(judged, row.sessions)
                if moved or suspect != row.sessions[place][1]:
                    self.store.correct_session(number, judged.drift, suspect=suspect)
                    row.sessions[place] = (judged, suspect)
        return failures

    def _close_done(self, rows: dict[Workload, _Row], watch: CampaignWatch) -> None:
        for workload in [w for w, row in rows.items() if not sessions_needed(row.sessions, self.timing)]:
            row = rows.pop(workload)
            self._end(row.id, workload, *verdict(row.sessions, self.timing), watch)

    def _begin(self, workload: Workload, artifact_sha256: str = "") -> int:
        return self.store.begin(
            workload,
            self.target,
            self.timing,
            self.conditions,
            build=self.build_key(workload),
            artifact_sha256=artifact_sha256,
            emulated=self.emulated,
            purpose=self.purpose,
        )

    def _adopted(self, artifact: Artifact) -> bool:
        """True when the same bytes were measured already, as another build; looks at the row of this workload only."""
        workload = artifact.workload
        adopted = self.store.adopt(
            workload,
            self.target,
            self.timing,
            self.conditions,
            build=self.build_key(workload),
            artifact_sha256=artifact.sha256,
        )
        row = self.measurement(workload) if adopted else None
        return row is not None and row.outcome not in self.retry

    def _end(self, row: int, workload: Workload, outcome: Outcome, reason: str, watch: CampaignWatch) -> None:
        if outcome is Outcome.OK:
            self.store.finish(row)
        else:
            self.store.fail(row, outcome, reason)
        self._tell(workload, watch)

    def _tell(self, workload: Workload, watch: CampaignWatch) -> None:
        measurement = self.measurement(workload)
        if measurement is not None:
            watch.measured(measurement)


@dataclass(frozen=True)
class _Next:
    """What comes after a batch: those of this call, then those of the next one."""

    batches: Sequence[Sequence[Workload]]
    following: Following

    def __call__(self) -> Iterable[Workload]:
        yield from itertools.chain.from_iterable(self.batches)
        yield from self.following()


@dataclass
class _Row:
    """A row that is being measured: its number in the store, its file, its sessions with their doubts.

    ``fresh`` has an entry for each session of this campaign, in the order taken: its place in ``sessions`` and its
    number in the store.
    """

    id: int
    artifact: Artifact
    sessions: list[tuple[Session, str]]
    fresh: list[tuple[int, int]] = field(default_factory=list)
    turns_without: int = 0

    def add(self, session: Session, suspect: str, number: int) -> None:
        """One more session, under its number in the store."""
        self.fresh.append((len(self.sessions), number))
        self.sessions.append((session, suspect))

    def silent(self, before: int) -> int:
        """Counts the turns in a row without a session; ``before`` is the number of sessions before the last turn."""
        self.turns_without = self.turns_without + 1 if len(self.sessions) == before else 0
        return self.turns_without
