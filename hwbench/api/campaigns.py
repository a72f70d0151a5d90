"""What requests that measure share: the campaign on a device, its progress, and a store that no other request reads."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.devices import Device
from hwbench.errors import DeviceBusy
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.measure.campaign import Campaign, CampaignWatch
from hwbench.measure.on_device import campaign_on
from hwbench.measure.store import MeasurementStore
from hwbench.room import trim_verified
from hwbench.specs import Artifact, Measurement, Outcome, Precision, Timing, Workload
from hwbench.units import format_duration, format_rate
from hwbench.workspace import Workspace

# More failures than this are summed up by outcome; all of them stand in the store.
SHOWN_FAILURES = 10
# Between two looks whether a device that another process holds is free: each look logs in anew.
_LOOK_S = 5.0


class CampaignProgress(CampaignWatch):
    """Tells a listener how far a campaign is: stage ``build`` counts files, ``measure`` rows; and every row.

    Several runs of a campaign that one of these watches add up.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._build = _CampaignStage(listener, "build")
        self._measure = _CampaignStage(listener, "measure")
        self._failed = 0
        self._sessions = self._turn = 0

    def comparing(self, count: int) -> None:
        self._build.start(count, "rows of another build")

    def planned(self, missing: int, stored: int) -> None:
        self._build.start(missing, "")
        self._measure.start(missing, f"{stored} already measured" if stored else "")

    def built(self, result: Artifact | BuildFailure) -> None:
        self._build.step("")

    def turn(self, sessions: int) -> None:
        self._sessions, self._turn = 0, sessions

    def visited(self, workload: Workload) -> None:
        self._sessions += 1
        self._measure.note(f"session {self._sessions} of {self._turn}" + self._failures())

    def measured(self, measurement: Measurement) -> None:
        self._listener.measured(measurement)
        ok = measurement.outcome is Outcome.OK
        self._failed += not ok
        last = format_duration(measurement.stats.median_s) if ok else measurement.outcome
        self._measure.step(f"last {last}" + self._failures())

    def _failures(self) -> str:
        return f", {self._failed} failed" if self._failed else ""


class _CampaignStage:
    """A stage with its rate since the campaign began, waiting for the other stage included: the rest takes as long."""

    def __init__(self, listener: Listener, name: str) -> None:
        self._listener = listener
        self._name = name
        self._done = self._total = 0
        self._rate = ""
        self._started = 0.0

    def start(self, total: int, note: str) -> None:
        """So many more are to come."""
        self._started, self._total = self._started or time.monotonic(), self._total + total
        self.note(note)

    def step(self, note: str) -> None:
        self._done += 1
        self._rate = format_rate(self._done, time.monotonic() - self._started)
        self.note(note)

    def note(self, note: str) -> None:
        self._listener.progress(StageProgress(self._name, self._done, self._total, self._rate, note))


def say_failures(failed: Sequence[Measurement], listener: Listener = SILENT) -> None:
    """Lists failed rows: which workload, how it ended and why."""
    if not failed:
        return
    listener.say(f"{len(failed)} failed:")
    for row in failed[:SHOWN_FAILURES]:
        listener.say(f"  {row.workload.key}: {row.outcome}: {row.reason}")
    rest = Counter(str(row.outcome) for row in failed[SHOWN_FAILURES:])
    if rest:
        more = ", ".join(f"{count} more ended as {outcome}" for outcome, count in sorted(rest.items()))
        listener.say(f"  and {more}")


@contextmanager
def store_aside(workspace: Workspace, name: str) -> Iterator[MeasurementStore]:
    """A new store below ``.hwbench/verified``, which no other request reads; tables and predictions stay.

    Its sessions are held against the same clock and the same quiet core as those of the workspace.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    path = workspace.verified / f"{name}-{stamp}.sqlite"
    trim_verified(path.parent)
    with ExitStack() as stack:
        known = stack.enter_context(MeasurementStore(workspace.store)) if workspace.store.is_file() else None
        yield stack.enter_context(MeasurementStore(path, beside=known))


@contextmanager
def place_campaign(
    store: MeasurementStore,
    workspace: Workspace,
    device: Device,
    *,
    runtime: str = "executorch",
    threads: int | None = None,
    processes: int | None = None,
    retry: bool = False,
    timing: Timing | None = None,
    precisions: Collection[Precision] = (),
    builder: Builder | None = None,
    waits: bool = False,
    listener: Listener = SILENT,
) -> Iterator[Campaign]:
    """A campaign on a device of a workspace.

    Args:
        store: Where the sessions go.
        workspace: Holds the build cache.
        device: Where to measure.
        runtime: Name of the runtime.
        threads: Threads of the engine; default: what the device file says.
        processes: Build processes; default: what fits.
        retry: Failed rows are measured again, all of them and not only those that were lost.
        timing: Protocol of the rows; default: ``Timing()``.
        precisions: Of the rows, as far as they are known: a device that does not compute in one is refused.
        builder: Builds, and goes on living; default: one of its own.
        waits: For a device that another process holds, however long; whoever waits may hold no other device. Default:
            an error.
        listener: Hears about long steps, for whom it waits, and what is not as it should be.

    Raises:
        DeviceBusy: Another thread of this process holds the device, or another process and ``waits`` is not set.
    """
    again = [outcome for outcome in Outcome if outcome is not Outcome.OK] if retry else [Outcome.LOST]
    begun = partial(
        campaign_on,
        device,
        store=store,
        cache_dir=workspace.cache,
        runtime=runtime,
        threads=threads,
        timing=timing,
        precisions=precisions,
        processes=processes,
        builder=builder,
        retry=again,
        report=listener.say,
    )
    with ExitStack() as stack:
        yield _once_free(stack, begun, listener) if waits else stack.enter_context(begun())


def _once_free(stack: ExitStack, begun: Callable[[], AbstractContextManager[Campaign]], listener: Listener) -> Campaign:
    """Enters a campaign as soon as no other process holds its device; the listener hears once of who does."""
    told = False
    while True:
        try:
            return stack.enter_context(begun())
        except DeviceBusy as error:
            if error.ours:
                raise
            if not told:
                listener.say(f"{error}; this command waits, and goes on then")
            told = True
            time.sleep(_LOOK_S)
