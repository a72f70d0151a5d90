"""Device files: ``profiles/<name>/device.toml`` says what a device is and how it is reached.

schema = 1
name = "pi5"                  # the folder's name
description = "Raspberry Pi 5, 8 GB, active cooler"
transport = "ssh"             # local, ssh or adb
threads = 1                   # of "hwbench devices check"; what measures takes --threads, 1 by default
cpus = [2, 3]                 # processors to pin to, best first; without it: the fastest cores, chosen by a probe
model = ["Raspberry Pi 5*"]   # what its model may be, * for anything; another one is refused
conditions = "stock"          # stock: left as it is; controlled: clocks, screen, ... are held while it is measured
emulated = false              # true: timings are stamped and never used as latencies
work_dir = "/tmp/hwbench"     # where files go on the device; "~/hwbench" is in its home folder
runner = "python"             # instead of the first that works: native, native-loader, native-board, python, or the
                              # path of a Python there, or of your own executor_runner, there or here
fingerprint = "0123456789abcdef"  # of its probe, and
unit = "0123456789abcdef"     # of its serial number: a device that answers with others is refused
turbo = "on"                  # whether clocks above the nominal one were on then, or off: told where it has changed

[ssh]                         # options of the transport
host = "pi5.local"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

# Each of these registers its transports.
from hwbench.devices import adb, local, ssh  # noqa: F401
from hwbench.devices.base import Address, Option, Transport, transports
from hwbench.devices.control import Conditions, Report, put_back_left_over
from hwbench.devices.device_text import format_cpu_list
from hwbench.devices.named import NamedTransport
from hwbench.devices.probe import Probe, probe_device
from hwbench.errors import DeviceError, InvalidValue
from hwbench.printable import printable
from hwbench.registry import suggest
from hwbench.specs import LOCAL
from hwbench.toml_fields import Fields
from hwbench.user_folders import with_home
from hwbench.workspace import STATE, Workspace

# Devices whose files come with hwbench.
SHIPPED = ("local", "s9")
# A name is a folder, a word of a command line and a part of a target's key; nothing in it may mean something to one.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Device:
    """One device. ``cpus`` are the processors to pin to, best first; empty: chosen by ``Probe.fastest``.

    ``runner`` is a kind of runner or a path, see the top of this file; empty: the first that works.
    ``model`` are the names that its model may have, with or without the manufacturer's in front and ``*`` for anything;
    ``fingerprint`` and ``unit`` are those of the probe it was added with; empty: any is taken. ``turbo`` is that of the
    same probe, ``on`` or ``off``; empty: not known.
    """

    name: str
    transport_name: str
    description: str = ""
    threads: int = 1
    cpus: tuple[int, ...] = ()
    emulated: bool = False
    work_dir: str = "/tmp/hwbench"  # on the device
    options: Mapping[str, Option] = field(default_factory=dict)
    workspace: Workspace | None = None  # where what is known about the device is kept
    fingerprint: str = ""
    unit: str = ""
    runner: str = ""
    model: tuple[str, ...] = ()
    conditions: Conditions = Conditions.STOCK
    typed: bool = False  # its options are those of ``hwbench devices add``
    turbo: str = ""

    @property
    def address(self) -> Address:
        """What its transport needs to know."""
        return Address(self.name, self.options, self.work_dir, self.workspace, self.typed)

    @property
    def files_dir(self) -> str:
        """Where the files lie that are run: ``work_dir``, or on this machine the build cache of the workspace."""
        if self.transport_name == LOCAL and self.workspace is not None:
            return str(self.workspace.root / STATE / "cache")
        return self.work_dir

    def transport(self, report: Report | None = None) -> Transport:
        """Opens the way to the device; the caller closes it.

        What a process that was killed has left changed on the device is put back now, if this is the unit on which it
        was changed; ``report`` is told.

        Raises:
            DeviceUnreachable: It does not answer.
            DeviceError: It is of another model than its file says.
        """
        kind = transports.get(self.transport_name)
        with transports.blaming(kind, on=self.name):
            transport = kind.connect(self.address)
        if title := transports.origin(kind):
            transport = NamedTransport(transport, title, self.name)
        try:
            if self.model:  # before anything is written to it
                self._check_model(probe_device(transport))
            put_back_left_over(transport, report, self.fingerprint)
        except BaseException:
            transport.close()
            raise
        return transport

    def recognise(self, probe: Probe) -> None:
        """Makes sure that what answered is the device that was added under this name, in the state it was in.

        Raises:
            DeviceError: It is another one, or it was updated; its rows would be mixed with those that are there.
        """
        self._check_model(probe)
        found = printable(f"{probe.model}, {probe.kernel}, {probe.build}", 200).strip(", ")
        off = mend = ""
        # Where most are off, they were off when the device was added.
        if probe.offline and len(probe.offline) <= len(probe.cpus):
            off, mend = f"{_switched_off(probe.offline)} now, ", f"{_switch_on(probe.offline)}. "
        if then := self.turbo_then(probe):
            was = f"turbo was {then} when the device was added"
            advice = f"{was.capitalize()}: switch it {then}" if self.turbo else f"If {was}, switch it {then}"
            off = f"{off}turbo is {probe.turbo} now, "
            mend = f"{mend}{advice}, there as root: {probe.turbo_on or probe.turbo_off}. "
        if self.fingerprint not in ("", probe.fingerprint):
            wrong = (
                f"expected fingerprint {self.fingerprint}, got {probe.fingerprint} ({found}): {off}it was updated, or"
            )
        elif self.unit and probe.unit and self.unit != probe.unit:
            wrong = f"expected unit {self.unit}, got {probe.unit} ({found}): one of the same kind, but"
        else:
            return
        raise DeviceError(
            f"device {self.name!r}: {wrong} it is another one. {mend}To go on with it as it is now, with new rows: "
            f"hwbench devices add {self.name} --force. To keep both: hwbench devices add ANOTHER_NAME"
        )

    def turbo_then(self, probe: Probe) -> str:
        """What turbo was, or may have been, when the device was added that has another fingerprint now.

        Returns:
            ``on`` or ``off``; empty: as it is now, or nothing tells.
        """
        if self.fingerprint in ("", probe.fingerprint) or probe.turbo in ("", self.turbo):
            return ""
        return "off" if probe.turbo == "on" else "on"

    def _check_model(self, probe: Probe) -> None:
        if self.model and not any(fnmatchcase(f" {probe.model}", f"* {name}") for name in self.model):
            raise DeviceError(
                f"device {self.name!r}: expected model {' or '.join(self.model)}, got {printable(probe.model, 100)!r}: "
                "connect the right one, or give this one a name of its own: hwbench devices add NAME"
            )

    def pinned(self, threads: int, probe: Probe) -> tuple[int, ...]:
        """The processors that a run with so many threads is bound to, one each.

        Raises:
            InvalidValue: There are not so many, or the device file names one that is not there.
        """
        if not self.cpus:
            return probe.fastest(threads)
        missing = sorted(set(self.cpus) - set(probe.allowed))
        if missing:
            known = ", ".join(map(str, probe.allowed))
            asked = f"device {self.name!r}: cpus = {list(self.cpus)}"
            if off := sorted(set(missing) & set(probe.offline)):
                raise InvalidValue(f"{asked}: {_switched_off(off)} now; usable: {known}. {_switch_on(off)}")
            raise InvalidValue(f"{asked}: no {missing[0]}; usable: {known}")
        if threads > len(self.cpus):
            raise InvalidValue(
                f"device {self.name!r}: {threads} threads were asked for, but cpus = {list(self.cpus)} names "
                f"{len(self.cpus)}; ask for fewer threads, or name more processors in its device.toml"
            )
        return self.cpus[:threads]


def _switched_off(cpus: Sequence[int]) -> str:
    return f"processor {cpus[0]} is offline" if len(cpus) == 1 else f"processors {format_cpu_list(cpus)} are offline"


def _switch_on(cpus: Sequence[int]) -> str:
    return f"To switch one on, there as root: echo 1 > /sys/devices/system/cpu/cpu{cpus[0]}/online"


def check_name(name: str) -> str:
    """Returns a name that a new device may have.

    Raises:
        InvalidValue: It is none; says what it may consist of.
    """
    if _NAME.fullmatch(name):
        return name
    raise InvalidValue(
        f"device name: expected letters, digits, '.', '_' and '-', at most 64, beginning with a letter or a digit, "
        f"got {name!r}; for example: hwbench devices add board"
    )


def load_device(workspace: Workspace, name: str) -> Device:
    """Reads the device file of that name.

    Raises:
        UnknownName: There is no such device; lists the known ones.
        InvalidFile: The file does not validate; names the file and the nearest known key.
    """
    return replace(read_device(workspace.device(name)), workspace=workspace)


def read_device(path: Path) -> Device:
    """Reads one ``device.toml``; errors as ``load_device``."""
    fields = Fields.read(path)
    name = fields.text("name")
    if name != path.parent.name:
        raise fields.error("name", f"expected the name of the folder, {path.parent.name!r}", name)
    transport = fields.text("transport")
    if transport not in transports:
        known = suggest(transport, transports.names())
        raise fields.error("transport", f"expected a known transport ({known})", transport)
    threads = fields.integer("threads", 1)
    if threads < 1:
        raise fields.error("threads", "expected at least 1", threads)
    conditions = fields.text("conditions", Conditions.STOCK.value)
    profiles = tuple(one.value for one in Conditions)
    if conditions not in profiles:
        raise fields.error("conditions", f"expected a known one ({suggest(conditions, profiles)})", conditions)
    device = Device(
        name,
        transport,
        description=fields.text("description", ""),
        threads=threads,
        cpus=fields.integers("cpus", ()),
        emulated=fields.flag("emulated", False),
        work_dir=fields.text("work_dir", transports.get(transport).work_dir),
        options=_options(fields, transport),
        fingerprint=_digest(fields, "fingerprint", name),
        unit=_digest(fields, "unit", name),
        runner=_runner(fields),
        model=fields.texts("model", ()),
        conditions=Conditions(conditions),
        turbo=_turbo(fields),
    )
    fields.done()
    return device


def _options(fields: Fields, transport: str) -> dict[str, Option]:
    """The table that is named as the transport is."""
    kind = transports.get(transport)
    table = fields.table(transport, required=False)
    values = {key: table.value(key, of, required=key in kind.required) for key, of in kind.options.items()}
    table.done()
    return {key: value for key, value in values.items() if value is not None}


def _digest(fields: Fields, key: str, name: str) -> str:
    text = fields.text(key, "")
    if not re.fullmatch(r"([0-9a-f]{16})?", text):
        mend = f"hwbench devices add {name} --force writes it anew"
        raise fields.error(key, "expected 16 hexadecimal digits", text, mend)
    return text


def _turbo(fields: Fields) -> str:
    text = fields.text("turbo", "")
    if text not in ("", "on", "off"):
        raise fields.error("turbo", 'expected "on" or "off"', text)
    return text


def _runner(fields: Fields) -> str:
    """The runner; a path that is relative to the file or to a home folder is one here."""
    runner = fields.text("runner", "")
    if runner.startswith(("./", "../", "~")):
        return str(fields.path.parent / with_home(runner))
    return runner
