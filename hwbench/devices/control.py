"""Conditions of a measurement: ``stock`` leaves a device as it is, ``controlled`` turns every knob that it lets turn.

What was turned is put back when the block ends, in whatever way it ends: normally, by an exception, by Ctrl-C, or by a
signal that ends the process. After ``kill -9``, or when the device was lost, the next command that reaches it does it.
What could not be controlled is part of the conditions, so such rows are not mixed with others.
"""

from __future__ import annotations

import contextlib
import enum
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hwbench.devices.base import NoAnswer, Transport
from hwbench.devices.interrupts import ending_on_signals, uninterrupted
from hwbench.devices.journal import Change, Journal, belongs, journal_key, journals, waiting
from hwbench.devices.knobs import Knob, knobs
from hwbench.devices.lease import leased
from hwbench.devices.probe import Probe, conditions, probe_device
from hwbench.devices.unit import boot_of, unit_leased
from hwbench.errors import DeviceBusy, DeviceError, DeviceLost, HwbenchError, WorkspaceError

Report = Callable[[str], None]


class Conditions(enum.StrEnum):
    """What is done to a device before it is measured."""

    STOCK = "stock"
    CONTROLLED = "controlled"


# Conditions of a row that ``Control.row`` sets: the same machine has others of these when it is left as it is.
SET_BY_CONTROL = frozenset({"conditions", "governor", "held", "free"})


@dataclass(frozen=True)
class Control:
    """What came of the knobs: ``held`` are values by knob, ``free`` the reasons of those that could not be held.

    ``again`` turns them once more where the device was started anew since; see ``_Held.again``.
    """

    conditions: Conditions = Conditions.STOCK
    held: Mapping[str, str] = field(default_factory=dict)
    free: Mapping[str, str] = field(default_factory=dict)
    again: Callable[[], None] = field(default=lambda: None, compare=False, repr=False)

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

    What was turned on one unit is put back on that unit alone: where another one answers at the end, as after a
    cable was moved, the changes stay in the journal until theirs answers.

    Args:
        wanted: ``stock`` does nothing.
        probe: Of the device.
        transport: The way to it.
        report: Told what was turned, what could not be, and what could not be put back.

    Raises:
        WorkspaceError: The journal cannot be written; nothing was turned then.
        DeviceBusy: Another process holds the unit, by another address.
        DeviceLost: The device went away; what was turned is put back when it is reached again.
    """
    if wanted is Conditions.STOCK:
        yield Control()
        return
    tell = report or _silent
    key = journal_key(probe.unit, transport.identity)
    if key in _controls:
        yield _controls[key]  # whoever turned them puts them back
        return
    journal = Journal.of(key)
    with unit_leased(probe, transport.identity), ending_on_signals():
        _controls[key] = Control(Conditions.CONTROLLED)
        try:
            control = _turn(journal, probe, transport)
            _controls[key] = control = replace(control, again=_Held(control, journal, probe, transport).again)
            tell(f"held: {', '.join(f'{k}={v}' for k, v in control.held.items()) or 'nothing'}")
            for name, reason in control.free.items():
                tell(f"not controlled: {name}: {reason}")
            yield control
        finally:
            try:
                with uninterrupted():
                    _end(journal, probe, transport, tell)
            finally:
                del _controls[key]


class _Held:
    """The knobs of a block while it runs, which a start of the device undoes."""

    def __init__(self, control: Control, journal: Journal, probe: Probe, transport: Transport) -> None:
        self.control = control
        self.journal = journal
        self.probe = probe
        self.transport = transport

    def again(self) -> None:
        """Turns them as they were turned at first, where the device was started anew since.

        Raises:
            DeviceError: It is another device by now, or does not hold the same any more: what is measured from then on
                would be mixed with rows of other conditions.
            DeviceLost: It went away.
        """
        boot = boot_of(self.transport)
        if not boot or boot == self.probe.boot:
            return
        probe = probe_device(self.transport)
        if (probe.unit, probe.fingerprint) != (self.probe.unit, self.probe.fingerprint):
            raise DeviceError("another device answers since the device was started anew; the same command goes on")
        for change in self.journal.changes():
            if change.boot != probe.boot and _ends_at_start(change):
                self.journal.drop(change)
        turned = _turn(self.journal, probe, self.transport)
        for name, value in self.control.held.items():
            if turned.held.get(name) != value:
                now = turned.free.get(name) or turned.held.get(name, "nothing")
                raise DeviceError(
                    f"the device was started anew, and {name}={value} cannot be held any more ({now}); the same "
                    "command goes on with what it holds then"
                )
        if new := turned.held.keys() - self.control.held.keys():
            raise DeviceError(
                f"the device was started anew, and {min(new)} can be held now; the same command goes on with it"
            )
        self.probe = probe


def put_back_left_over(transport: Transport, report: Report | None = None, expected: str = "") -> None:
    """Puts back what a process that did not come to it has left turned on this device.

    Nothing is done while another process measures on it. The device is recognised by what ``journal.belongs`` says, by
    whatever address it was reached. Changes of another unit that was behind the same address stay in the journal, and
    are told.

    Args:
        transport: The way to the device.
        report: Told what was put back, and what waits for another device.
        expected: The fingerprint in the device file, empty if it has none.

    Raises:
        DeviceLost: The device went away.
    """
    tell = report or _silent
    _tell_foreign(tell)
    if not any(_may_be_of(change, transport.identity) for journal in waiting() for change in journal.changes()):
        return
    probe = probe_device(transport)
    ours, others = _left_over(transport.identity, probe, expected)
    if ours:
        addresses = sorted({transport.identity, *(change.identity for _, change in ours)})
        with contextlib.suppress(DeviceBusy), contextlib.ExitStack() as stack:
            for address in addresses:
                stack.enter_context(leased(address))
            stack.enter_context(unit_leased(probe, transport.identity))
            stack.enter_context(uninterrupted())
            ours, others = _left_over(transport.identity, probe, expected)  # as it is now that nobody else is there
            _put_back(ours, transport, tell, left_over=True)
    _tell_others(others, transport.identity, tell)


_Noted = tuple[Journal, Change]


def _left_over(identity: str, probe: Probe, expected: str) -> tuple[list[_Noted], list[_Noted]]:
    """Changes in all journals: those of the unit that answers, and those of others that were at this address."""
    noted = [(journal, change) for journal in waiting() for change in journal.changes()]
    free = [one for one in noted if _may_be_of(one[1], identity)]
    ours = [one for one in free if belongs(one[1], probe, identity, expected)]
    return ours, [one for one in free if one not in ours and one[1].identity == identity]


def _may_be_of(change: Change, identity: str) -> bool:
    """Whether it is worth asking a device who it is: a board need not be asked about a phone."""
    if change.key in _controls:
        return False
    adb = identity.startswith("adb:") == change.identity.startswith("adb:")
    return change.identity == identity or (adb and bool(change.unit or change.boot))


def _tell_others(noted: Iterable[_Noted], identity: str, tell: Report) -> None:
    """One line for each other unit that was at this address, once in a process."""
    by_unit: dict[tuple[Journal, str, str], list[Change]] = {}
    for journal, change in noted:
        by_unit.setdefault((journal, change.unit, change.boot), []).append(change)
    for (journal, unit, _), changes in by_unit.items():
        names = ", ".join(change.knob for change in changes)
        who = f"another device (unit {unit})" if unit else "another device"
        _tell_once(
            f"{names} of {who} at {identity}: still turned, since {changes[0].at}; expected that device, which is put "
            f"back when it answers. If it never will: rm {shlex.quote(str(journal.path))}",
            tell,
        )


def _tell_foreign(tell: Report) -> None:
    """Journals with lines that are left as they are, since nobody here knows what they say; once in a process."""
    for journal in journals():
        try:
            count = journal.foreign()
        except WorkspaceError as error:
            _tell_once(str(error), tell)
            continue
        if count:
            lines = "line" if count == 1 else "lines"
            _tell_once(
                f"{journal.path}: {count} {lines} damaged or of a newer hwbench: kept as they are, and what they say "
                "of a device is not put back; expected changes of this version. Update hwbench, or, if nothing was "
                f"left turned: rm {shlex.quote(str(journal.path))}",
                tell,
            )


def _tell_once(text: str, tell: Report) -> None:
    if tell is not _silent and text not in _told:
        _told.add(text)
        tell(text)


def _turn(journal: Journal, probe: Probe, transport: Transport) -> Control:
    """Every knob in turn; one that the device refuses is put back at once."""
    held: dict[str, str] = {}
    free: dict[str, str] = {}
    for name in knobs.names():
        knob = knobs.get(name)()
        better = [other for other in knob.yields_to if other in held]
        try:
            if not knob.exists(probe, transport):
                continue
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
    turned = Change(transport.identity, probe.unit, name, before, ours, boot=probe.boot, fingerprint=probe.fingerprint)
    change = journal.add(turned)
    try:
        # What shows the wanted value is not set: a limit lowered by another knob would stay there after both are back.
        knob.set(transport, {item: value for item, value in ours.items() if before.get(item) != value})
        after = knob.show(transport) if knob.tells else ours
        if after != ours:
            item = next(item for item in ours if after.get(item) != ours[item])
            raise DeviceError(f"{item}: set to {ours[item]!r}, it is {after.get(item, 'gone')!r}")
    except DeviceLost:
        raise
    except DeviceError as refused:
        try:
            knob.undo(transport, before)
        except DeviceLost:
            raise
        except DeviceError as again:
            if knob.tells:
                raise
            # A mode that is not told is one command: a device that refuses it both ways has not turned it. Without an
            # answer it may have.
            if isinstance(refused, NoAnswer) or isinstance(again, NoAnswer):
                raise refused from again
        journal.drop(change)
        raise
    return _words(knob, ours)


def _end(journal: Journal, probe: Probe, transport: Transport, tell: Report) -> None:
    """At the end of a block: puts back what stands in the journal of the unit, if that unit still answers."""
    noted: list[_Noted] = []
    try:
        noted += ((journal, change) for change in journal.changes() if belongs(change, probe, transport.identity))
        if not noted:
            return
        # The same kernel, without a start in between: the same unit. Else it is asked again what it is.
        now = probe if probe.boot and boot_of(transport) == probe.boot else probe_device(transport)
    except HwbenchError as error:
        names = ", ".join(change.knob for _, change in reversed(noted)) or "what was turned"
        tell(f"{names} could not be put back ({error}); the next command that reaches the device does it")
        return
    ours = [one for one in noted if belongs(one[1], now, transport.identity)]
    _put_back(ours, transport, tell)
    _tell_others((one for one in noted if one not in ours), transport.identity, tell)


def _put_back(noted: Sequence[_Noted], transport: Transport, tell: Report, left_over: bool = False) -> None:
    """The last change first. What the device refuses stays in the journal, for the next time."""
    for journal, change in reversed(noted):
        try:
            notes = knobs.get(change.knob)().restore(transport, change.before, change.ours)
            journal.drop(change)
        except DeviceLost as error:
            tell(f"{change.knob} could not be put back ({error}); the next command that reaches the device does it")
            return
        except HwbenchError as error:
            if _started_since(change, transport):
                journal.drop(change)
            else:
                tell(f"{change.knob} could not be put back: {error}; the next command tries again")
        else:
            if left_over:
                tell(f"{change.knob} was left turned by a process that was ended (since {change.at}); it was put back")
            for note in notes:
                tell(f"{change.knob}: {note}")


def _started_since(change: Change, transport: Transport) -> bool:
    """Whether a start of the device has undone a change, so that what it does not show will not come back."""
    if not _ends_at_start(change):
        return False
    try:
        return boot_of(transport) not in ("", change.boot)
    except HwbenchError:
        return False


def _ends_at_start(change: Change) -> bool:
    return bool(change.boot) and change.knob in knobs and knobs.get(change.knob).ends_at_start


def _words(knob: Knob, values: Mapping[str, str]) -> str:
    return knob.label or "/".join(dict.fromkeys(values.values()))


def _silent(text: str) -> None:
    """For callers who do not want to know."""


# Devices that this process has under control, by the key of their journals: what stands there is not left over.
_controls: dict[str, Control] = {}
# What this process has told once.
_told: set[str] = set()
