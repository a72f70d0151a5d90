"""Conditions of a measurement: ``stock`` leaves a device as it is, ``controlled`` turns every knob that it lets turn.

What was turned is put back when the block ends, in whatever way it ends: normally, by an exception, by Ctrl-C, or by a
signal that ends the process. After ``kill -9``, or when the device was lost, the next command that reaches it does it.
What could not be controlled is part of the conditions, so such rows are not mixed with others.
"""

from __future__ import annotations

import contextlib
import enum
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from hwbench.devices.base import Transport
from hwbench.devices.journal import Change, Journal, waiting
from hwbench.devices.knobs import Knob, knobs
from hwbench.devices.lease import leased
from hwbench.devices.probe import Probe, conditions, probe_device
from hwbench.errors import DeviceBusy, DeviceError, DeviceLost, HwbenchError

Report = Callable[[str], None]


class Conditions(enum.StrEnum):
    """What is done to a device before it is measured."""

    STOCK = "stock"
    CONTROLLED = "controlled"


@dataclass(frozen=True)
class Control:
    """What came of the knobs: ``held`` are values by knob, ``free`` the reasons of those that could not be held."""

    conditions: Conditions = Conditions.STOCK
    held: Mapping[str, str] = field(default_factory=dict)
    free: Mapping[str, str] = field(default_factory=dict)

    def row(self, probe: Probe, cpus: Sequence[int], runner: str) -> dict[str, str]:
        """The conditions of a row; those of a device left as it is have no more keys than before there were knobs."""
        row = conditions(probe, cpus, runner)
        if self.conditions is Conditions.STOCK:
            return row
        held = {name: value for name, value in self.held.items() if knobs.get(name).changes}
        return row | {
            "conditions": self.conditions.value,
            "governor": self.held.get("governor", row["governor"]),
            "held": ", ".join(f"{name}={held[name]}" for name in sorted(held)),
            "free": ", ".join(sorted(self.free)),
        }


@contextmanager
def controlled(
    wanted: Conditions, probe: Probe, transport: Transport, report: Report | None = None
) -> Iterator[Control]:
    """Turns the knobs for a block, and puts them back. The caller holds the lease of the device.

    Args:
        wanted: ``stock`` does nothing.
        probe: Of the device.
        transport: The way to it.
        report: Told what was turned, what could not be, and what could not be put back.

    Raises:
        WorkspaceError: The journal cannot be written; nothing was turned then.
        DeviceLost: The device went away; what was turned is put back when it is reached again.
    """
    if wanted is Conditions.STOCK:
        yield Control()
        return
    tell = report or _silent
    identity = transport.identity
    if identity in _controls:
        yield _controls[identity]  # whoever turned them puts them back
        return
    journal = Journal.of(identity)
    with _ending_on_signals():
        _controls[identity] = Control(Conditions.CONTROLLED)
        try:
            _controls[identity] = control = _turn(journal, probe, transport)
            tell(f"held: {', '.join(f'{k}={v}' for k, v in control.held.items()) or 'nothing'}")
            for name, reason in control.free.items():
                tell(f"not controlled: {name}: {reason}")
            yield control
        finally:
            with _uninterrupted():
                _put_back(journal, transport, tell)
            del _controls[identity]


def put_back_left_over(transport: Transport, report: Report | None = None) -> None:
    """Puts back what a process that did not come to it has left turned on this device.

    Nothing is done while another process measures on it. The same device reached in another way is recognised by its
    serial number; another device at the same address is left alone.

    Raises:
        DeviceLost: The device went away.
    """
    kind = transport.identity.partition(":")[0]
    unit: str | None = None
    for journal in waiting():
        change = next(iter(journal.changes()), None)
        if change is None or change.identity.partition(":")[0] != kind or change.identity in _controls:
            continue
        if change.identity != transport.identity and not change.unit:
            continue
        unit = probe_device(transport).unit if unit is None else unit
        if change.unit == unit:
            with contextlib.suppress(DeviceBusy), leased(change.identity), _uninterrupted():
                _put_back(journal, transport, report or _silent, since=change.at)
        elif change.identity == transport.identity and report is not None:
            report(f"{change.knob} of another device at {change.identity} is still turned, since {change.at}")


def _turn(journal: Journal, probe: Probe, transport: Transport) -> Control:
    """Every knob in turn; one that the device refuses is put back at once."""
    held: dict[str, str] = {}
    free: dict[str, str] = {}
    for name in knobs.names():
        knob = knobs.get(name)()
        if not knob.exists(probe, transport):
            continue
        better = [other for other in knob.yields_to if other in held]
        try:
            reason = f"left to {better[0]}" if better else knob.available(probe, transport)
            if reason is None:
                held[name] = _hold(knob, name, journal, probe, transport)
            elif not better:
                free[name] = reason
        except DeviceLost:
            raise
        except DeviceError as error:
            free[name] = str(error)
    return Control(Conditions.CONTROLLED, held, free)


def _hold(knob: Knob, name: str, journal: Journal, probe: Probe, transport: Transport) -> str:
    """Turns one knob; returns what it is at then."""
    before, ours = knob.show(transport), knob.wanted(probe, transport)
    if not knob.changes or (knob.tells and before == ours):
        return _words(knob, ours)
    change = journal.add(Change(transport.identity, probe.unit, name, before, ours))
    try:
        knob.set(transport, ours)
        after = knob.show(transport) if knob.tells else ours
        if after != ours:
            item = next(item for item in ours if after.get(item) != ours[item])
            raise DeviceError(f"{item}: set to {ours[item]!r}, it is {after.get(item, 'gone')!r}")
    except DeviceLost:
        raise
    except DeviceError:
        knob.restore(transport, before, ours)
        journal.drop(change)
        raise
    return _words(knob, ours)


def _put_back(journal: Journal, transport: Transport, tell: Report, since: str = "") -> None:
    """The last change first. What the device refuses stays in the journal, for the next time."""
    for change in reversed(journal.changes()):
        try:
            notes = knobs.get(change.knob)().restore(transport, change.before, change.ours)
            journal.drop(change)
        except DeviceLost as error:
            tell(f"{change.knob} could not be put back ({error}); the next command that reaches the device does it")
            return
        except HwbenchError as error:
            tell(f"{change.knob} could not be put back: {error}; the next command tries again")
        else:
            if since:
                tell(f"{change.knob} was left turned by a process that was ended (since {since}); it was put back")
            for note in notes:
                tell(f"{change.knob}: {note}")


def _words(knob: Knob, values: Mapping[str, str]) -> str:
    return knob.label or "/".join(dict.fromkeys(values.values()))


def _silent(text: str) -> None:
    """For callers who do not want to know."""


# Devices that this process has under control, by identity: what stands in their journals is not left over.
_controls: dict[str, Control] = {}


# Signals that end a process without a word unless they are caught; a terminal that is closed sends the second.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Makes exceptions of the signals that would end the process without running what is to run at the end."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with _handlers({number: end for number in _ENDING if _default(number)}):
        yield


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keeps the first signal that would end the process until the block is done; a second one counts at once.

    One that is ignored stays so, as SIGINT in the background of a script and SIGHUP under nohup.
    """
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    heeded = [number for number in (signal.SIGINT, *_ENDING) if signal.getsignal(number) is not signal.SIG_IGN]
    with _handlers(dict.fromkeys(heeded, keep)):
        yield
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _handlers(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], None]]) -> Iterator[None]:
    """Only the main thread may set them; another one is ended by it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _default(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL
