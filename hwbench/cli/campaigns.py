"""What commands that measure share: the campaign on a device, bars and failures on stderr, a store read by no other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from rich.progress import Progress, TaskID

from hwbench.cli.output import progress, say
from hwbench.devices import Device
from hwbench.measure.builder import Builder, BuildFailure
from hwbench.measure.campaign import Campaign, Watch
from hwbench.measure.on_device import campaign_on
from hwbench.measure.room import trim_verified
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Artifact, Measurement, Outcome, Timing, Workload
from hwbench.units import format_duration
from hwbench.workspace import Workspace

# More failures than this are summed up by outcome; all of them stand in the store.
SHOWN_FAILURES = 10


class Bars(Watch):
    """One bar counts the files built, one the rows measured; both with rate and time left."""

    def __init__(self, display: Progress) -> None:
        self._display = display
        self._build = _Bar(display, "build")
        self._measure = _Bar(display, "measure")
        self._failed = 0
        self._sessions = self._turn = 0

    def planned(self, missing: int, stored: int) -> None:
        note = f"{stored} already measured" if stored else ""
        self._build.start(missing, "")
        self._measure.start(missing, note)

    def built(self, result: Artifact | BuildFailure) -> None:
        self._build.step()

    def turn(self, sessions: int) -> None:
        self._sessions, self._turn = 0, sessions

    def visited(self, workload: Workload) -> None:
        self._sessions += 1
        self._measure.note(f"session {self._sessions} of {self._turn}" + self._failures())

    def measured(self, measurement: Measurement) -> None:
        if measurement.outcome is Outcome.OK:
            latency = format_duration(measurement.stats.median_s)
            self._measure.step(f"last {latency}" + self._failures())
        else:
            self._failed += 1
            self._measure.step(f"last {measurement.outcome}" + self._failures())

    def _failures(self) -> str:
        return f", {self._failed} failed" if self._failed else ""


class _Bar:
    """A bar with its rate since the campaign began, waiting for the other bar included: what is left takes as long."""

    def __init__(self, display: Progress, name: str) -> None:
        self._display = display
        self._task: TaskID = display.add_task(name, total=None, start=False, visible=False, rate="", note="")
        self._done = 0
        self._started = time.monotonic()

    def start(self, total: int, note: str) -> None:
        self._started = time.monotonic()
        self._display.start_task(self._task)
        self._display.update(self._task, total=total, note=note, visible=total > 0)

    def step(self, note: str = "") -> None:
        self._done += 1
        rate = self._done / max(time.monotonic() - self._started, 1e-3)
        text = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.0f}/min"
        self._display.update(self._task, advance=1, rate=text, note=note)

    def note(self, note: str) -> None:
        self._display.update(self._task, note=note)


@contextmanager
def bars() -> Iterator[Watch]:
    """Shows a campaign on stderr while the block runs."""
    with progress() as display:
        yield Bars(display)


@contextmanager
def building(name: str, *, cached: bool = False) -> Iterator[None]:
    """Shows that one network is being built while the block runs; shows nothing where it comes from the cache."""
    if cached:
        yield
        return
    with progress() as display:
        task = display.add_task("build", total=1, rate="", note=name)
        yield
        display.update(task, completed=1)


def say_failures(failed: Sequence[Measurement]) -> None:
    """Lists failed rows on stderr: which workload, how it ended and why."""
    if not failed:
        return
    say(f"{len(failed)} failed:")
    for row in failed[:SHOWN_FAILURES]:
        say(f"  {row.workload.key}: {row.outcome}: {row.reason}")
    rest = Counter(str(row.outcome) for row in failed[SHOWN_FAILURES:])
    if rest:
        say("  and " + ", ".join(f"{count} more ended as {outcome}" for outcome, count in sorted(rest.items())))


@contextmanager
def store_aside(workspace: Workspace, name: str) -> Iterator[MeasurementStore]:
    """A new store below ``.hwbench/verified``, which no other command reads; tables and predictions stay.

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
    builder: Builder | None = None,
) -> Iterator[Campaign]:
    """A campaign on a device of a workspace; talk about long steps goes to stderr.

    Args:
        store: Where the sessions go.
        workspace: Holds the build cache.
        device: Where to measure.
        runtime: Name of the runtime.
        threads: Threads of the engine; default: what the device file says.
        processes: Build processes; default: what fits.
        retry: Failed rows are measured again, all of them and not only those of a lost device.
        timing: Protocol of the rows; default: ``Timing()``.
        builder: Builds, and goes on living; default: one of its own.
    """
    again = [outcome for outcome in Outcome if outcome is not Outcome.OK] if retry else [Outcome.LOST]
    with campaign_on(
        device,
        store=store,
        cache_dir=workspace.cache,
        runtime=runtime,
        threads=threads,
        timing=timing,
        processes=processes,
        builder=builder,
        retry=again,
        report=say,
    ) as campaign:
        yield campaign
