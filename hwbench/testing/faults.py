"""What may befall a device while a campaign runs on it, and what must be true afterwards.

A case is one fault at one moment (while files go there, while the runner runs, while a file comes back) on one lab
device. Every case does the same: a first row is measured; then more rows, and in the middle of that the fault; if the
campaign ends, the device is mended and the same campaign begins again, as the user would type the same command again.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from hwbench.devices import Device, load_device
from hwbench.errors import DeviceError, HwbenchError
from hwbench.measure.campaign import Campaign, CampaignWatch
from hwbench.measure.on_device import campaign_on
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Measurement, Outcome, Timing, Workload
from hwbench.testing.lab import Direction, LabDevice
from hwbench.workspace import Workspace

# Sessions as short as they can be: what is proved here is what is kept, not how fast anything is.
TIMING = Timing(
    warmup_s=0.001,
    min_samples=3,
    min_session_s=0.002,
    max_session_s=0.05,
    min_rounds=3,
    max_rounds=3,
    timeout_s=60.0,
)
WORKLOADS = tuple(
    Workload.parse(f"x3d_i8_m16_o8_k{kernel}_relu@1x8x2x8x8/fp32/auto") for kernel in ("1x3x3", "3x3x3", "1x3x3+3x1x1")
)
# A transfer that takes long enough to be cut in the middle.
FILE_BYTES = 4 << 20
ACTIONS = ("push", "run", "pull")
AWAY_S = 2.0
CONTACT_S = 60.0


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong, and its end.

    Args:
        name: For tables.
        strike: Makes it happen.
        mend: Ends it; called ``after_s`` later, or only after the campaign has ended where that is None.
        after_s: See ``mend``.
    """

    name: str
    strike: Callable[[LabDevice], object]
    mend: Callable[[LabDevice], object] = lambda device: None
    after_s: float | None = 0.0


def _truncate(device: LabDevice) -> None:
    """The newest file of the depot loses its end, as after a power cut before the disk was written."""
    files = [path for path in device.machine.path(device.work_dir).rglob("*.pte") if path.is_file()]
    if files:
        newest = max(files, key=lambda path: path.stat().st_mtime_ns)
        with newest.open("r+b") as file:
            file.truncate(newest.stat().st_size // 2)
    device.network.drop()


def _cut(device: LabDevice) -> None:
    for direction in Direction:
        device.network.drop_after(2000, direction)


FAULTS = (
    Fault("connection dropped", lambda device: device.network.drop()),
    Fault("connection cut in a transfer", _cut),
    Fault("cable out for 2 s", LabDevice.pull_cable, LabDevice.plug_in, AWAY_S),
    Fault("cable out for good", LabDevice.pull_cable, LabDevice.plug_in, None),
    Fault("Wi-Fi stalls for 2 s", lambda d: d.network.stall(), lambda d: d.network.resume(), AWAY_S),
    Fault("server killed", LabDevice.kill_server, LabDevice.start_server, AWAY_S),
    Fault("reboot", lambda device: device.reboot(down_s=1.0)),
    Fault("disk full", LabDevice.fill_disk, LabDevice.free_disk, None),
    Fault("permission denied", LabDevice.deny_writes, LabDevice.allow_writes, None),
    Fault("killed for memory", lambda device: device.kill_for_memory("runner")),
    Fault("file on the device truncated", _truncate),
)


@dataclass(frozen=True)
class Case:
    """What came of one fault.

    ``rows_before`` and ``sessions_before`` were stored when it struck, ``sessions_after`` at the end;
    ``sessions_wanted`` is what the protocol asks for. ``kept`` says that everything stored before is stored unchanged.
    ``ended`` is the message with which the first campaign ended, empty where it went on by itself. ``left`` are
    processes of ours that still ran on the device, and unfinished files, after the next contact with it.
    """

    transport: str
    action: str
    fault: str
    struck: bool
    rows_before: int
    rows_after: int
    sessions_before: int
    sessions_after: int
    sessions_wanted: int
    kept: bool
    ended: str
    left: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Nothing was lost but the session under way, nothing was measured twice, and nothing is left behind."""
        return (
            self.struck
            and self.kept
            and self.rows_after == len(WORKLOADS)
            and self.sessions_after == self.sessions_wanted
            and not self.left
        )


def run_case(
    device: LabDevice, fault: Fault, action: str, *, workspace: Workspace, report: Callable[[str], None] | None = None
) -> Case:
    """Runs one case on a lab device that is up; afterwards it is up and mended again.

    Args:
        device: Of the laboratory.
        fault: What goes wrong.
        action: ``push``, ``run`` or ``pull``: what is under way at that moment.
        workspace: Its cache holds the built files and runners.
        report: Told what commands would say on stderr.
    """
    for sent in device.machine.path(device.work_dir).glob("files/**/*.pte"):
        sent.unlink()  # what lies there is not sent again, and cannot be interrupted
    device.write_device_file(workspace.root, "lab")
    place = load_device(workspace, "lab")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        path = Path(folder, "measurements.sqlite")
        before: dict[int, str] = {}
        strike = _Strike(device, fault, lambda: before.update(_sessions(path)))
        stack.callback(strike.finish)
        ended = ""
        rows: tuple[Measurement, ...] = ()
        try:
            with _campaign(place, path, workspace, report) as campaign:
                campaign.run(WORKLOADS[:1])
                if action == "pull":
                    ended = _pulled(place, strike, Path(folder))
                    rows = campaign.run(WORKLOADS).measurements
                else:
                    with _Push(strike) if action == "push" else _FaultRun(strike) as watch:
                        rows = campaign.run(WORKLOADS, watch).measurements
        except DeviceError as error:
            ended = str(error)
        strike.finish()
        if len(rows) < len(WORKLOADS):
            with _campaign(place, path, workspace, report) as campaign:
                rows = campaign.run(WORKLOADS).measurements
        after = _sessions(path)
        with place.transport() as transport:  # whoever comes next finds a device without leftovers
            transport.run(["true"], timeout_s=CONTACT_S)
        finished = [row for row in rows if row.outcome is Outcome.OK]
        return Case(
            transport=device.transport_name,
            action=action,
            fault=fault.name,
            struck=strike.done,
            rows_before=1,
            rows_after=len(finished),
            sessions_before=len(before),
            sessions_after=len(after),
            sessions_wanted=TIMING.min_rounds * len(WORKLOADS),
            kept=before.items() <= after.items(),
            ended=ended,
            left=tuple(_left(device)),
            seconds=round(time.monotonic() - start, 1),
        )


class _Strike:
    """The fault, once, and its end."""

    def __init__(self, device: LabDevice, fault: Fault, before: Callable[[], object]) -> None:
        self._device = device
        self._fault = fault
        self._before = before
        self._mender: threading.Timer | None = None
        self._mended = False
        self.done = False

    def __call__(self) -> None:
        if self.done:
            return
        self.done = True
        self._before()
        self._fault.strike(self._device)
        if self._fault.after_s is not None:
            self._mender = threading.Timer(self._fault.after_s, self._mend)
            self._mender.start()

    def finish(self) -> None:
        """Mends what is not mended yet."""
        if self._mender is not None:
            self._mender.join()
        elif self.done:
            self._mend()

    def _mend(self) -> None:
        if not self._mended:
            self._mended = True
            self._fault.mend(self._device)

    @contextlib.contextmanager
    def in_transfer(self, direction: Direction, count: int) -> Iterator[None]:
        """Strikes as soon as so many more bytes went that way."""
        network, stop = self._device.network, threading.Event()
        limit = network.passed[direction] + count

        def watch() -> None:
            while not stop.wait(0.002):
                if network.passed[direction] >= limit:
                    return self()

        thread = threading.Thread(target=watch)
        network.delay(0.003)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            network.delay(0.0)


class _Striking(CampaignWatch):
    """A watch that strikes once; at the end of its block it no longer does."""

    def __init__(self, strike: _Strike) -> None:
        self._strike = strike
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ended: object) -> None:
        self._stack.close()


class _FaultRun(_Striking):
    """Strikes after the second session, when the runner is at the third."""

    visits = 0

    def visited(self, workload: Workload) -> None:
        self.visits += 1
        if self.visits == 2:
            self._strike()


class _Push(_Striking):
    """Strikes when the files that were built go to the device."""

    left = 0

    def planned(self, missing: int, stored: int) -> None:
        self.left = missing

    def built(self, result: object) -> None:
        self.left -= 1
        if self.left == 0:
            self._stack.enter_context(self._strike.in_transfer(Direction.TO_DEVICE, 3000))

    def visited(self, workload: Workload) -> None:
        self._stack.close()


@contextlib.contextmanager
def _campaign(
    place: Device, store: Path, workspace: Workspace, report: Callable[[str], None] | None
) -> Iterator[Campaign]:
    with (
        MeasurementStore(store) as opened,
        campaign_on(
            place, store=opened, cache_dir=workspace.cache, timing=TIMING, processes=1, report=report
        ) as campaign,
    ):
        yield campaign


def _pulled(place: Device, strike: _Strike, folder: Path) -> str:
    """Fetches a large file while the fault strikes; a second time where the first failed. How the first one ended."""
    source = folder / "large.bin"
    source.write_bytes(hashlib.sha256(b"0").digest() * (FILE_BYTES // 32))
    target = folder / "back.bin"
    ended = ""
    with place.transport() as transport:
        there = transport.push(source)
        try:
            with strike.in_transfer(Direction.FROM_DEVICE, 100_000):
                transport.pull(there, target)
        except HwbenchError as error:
            ended = str(error)
            if target.exists():
                raise AssertionError("a part of the file lies there as if it were all of it") from error
        strike.finish()
        if ended:
            transport.pull(transport.push(source), target)
    if target.read_bytes() != source.read_bytes():
        raise AssertionError("the file that came back is another one")
    return ended


def _sessions(path: Path) -> Mapping[int, str]:
    """The sessions of a store by number, as text."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        return {row[0]: repr(row[1:]) for row in database.execute("SELECT * FROM sessions")}


def _left(device: LabDevice) -> Iterator[str]:
    """Processes of ours on the device, and files that were not finished or belong to a client that has gone."""
    deadline = time.monotonic() + 10
    while (
        running := [line for line in device.processes().values() if "runner" in line]
    ) and time.monotonic() < deadline:
        time.sleep(0.1)
    yield from running
    work = device.machine.path(device.work_dir)
    for part in ("run", "tmp"):
        yield from (str(path.relative_to(work)) for path in (work / part).rglob("*") if path.is_file())
