"""Device files: ``profiles/<name>/device.toml`` says what a device is and how it is reached.

schema = 1
name = "pi5"                  # the folder's name
description = "Raspberry Pi 5, 8 GB, active cooler"
transport = "ssh"             # local, ssh or adb
threads = 1                   # default number of threads
cpus = [2, 3]                 # processors to pin to, best first; without it: the fastest cores, chosen by a probe
model = ["Raspberry Pi 5*"]   # what its model may be, * for anything; another one is refused
conditions = "stock"          # stock: left as it is; controlled: clocks, screen, ... are held while it is measured
emulated = false              # true: timings are stamped and never used as latencies
work_dir = "/tmp/hwbench"     # where files go on the device; "~/hwbench" is in its home folder
runner = "python"             # instead of the first that works: native, native-loader, native-board, python, or the
                              # path of a Python there, or of your own executor_runner, there or here
fingerprint = "0123456789abcdef"  # of its probe, and
unit = "0123456789abcdef"     # of its serial number: a device that answers with others is refused

[ssh]                         # options of the transport
host = "pi5.local"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

# Each of these registers its transports.
from hwbench.devices import adb, local, ssh  # noqa: F401
from hwbench.devices.base import Address, Option, Transport, transports
from hwbench.devices.control import Conditions, Report, put_back_left_over
from hwbench.devices.probe import Probe, probe_device
from hwbench.documents import read_toml
from hwbench.errors import DeviceError, InvalidFile, InvalidValue
from hwbench.printable import printable, shown
from hwbench.registry import suggest
from hwbench.workspace import Workspace

SCHEMA = 1
KEYS: Mapping[str, type] = {
    "schema": int,
    "name": str,
    "description": str,
    "transport": str,
    "threads": int,
    "cpus": list,
    "model": list,
    "conditions": str,
    "emulated": bool,
    "work_dir": str,
    "fingerprint": str,
    "unit": str,
    "runner": str,
}
REQUIRED = ("schema", "name", "transport")
# Devices whose files come with hwbench.
SHIPPED = ("local", "s9")
# A name is a folder, a word of a command line and a part of a target's key; nothing in it may mean something to one.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Device:
    """One device. ``cpus`` are the processors to pin to, best first; empty: chosen by ``Probe.fastest``.

    ``runner`` is a kind of runner or a path, see the top of this file; empty: the first that works.
    ``model`` are the names that its model may have, with or without the manufacturer's in front and ``*`` for anything;
    ``fingerprint`` and ``unit`` are those of the probe it was added with; empty: any is taken.
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

    @property
    def address(self) -> Address:
        """What its transport needs to know."""
        return Address(self.name, self.options, self.work_dir, self.workspace)

    def transport(self, report: Report | None = None) -> Transport:
        """Opens the way to the device; the caller closes it.

        What a process that was killed has left changed on the device is put back now, if this is the unit on which it
        was changed; ``report`` is told.

        Raises:
            DeviceUnreachable: It does not answer.
            DeviceError: It is of another model than its file says.
        """
        transport = transports.get(self.transport_name).connect(self.address)
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
        if self.fingerprint not in ("", probe.fingerprint):
            wrong = f"expected fingerprint {self.fingerprint}, got {probe.fingerprint} ({found}): it was updated, or"
        elif self.unit and probe.unit and self.unit != probe.unit:
            wrong = f"expected unit {self.unit}, got {probe.unit} ({found}): one of the same kind, but"
        else:
            return
        raise DeviceError(
            f"device {self.name!r}: {wrong} it is another one. To go on with it as it is now, with new rows: "
            f"hwbench devices add {self.name} --force. To keep both: hwbench devices add ANOTHER_NAME"
        )

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
            raise InvalidValue(f"device {self.name!r}: cpus = {list(self.cpus)}: no {missing[0]}; usable: {known}")
        if threads > len(self.cpus):
            raise InvalidValue(
                f"device {self.name!r}: {threads} threads were asked for, but cpus = {list(self.cpus)} names "
                f"{len(self.cpus)}; ask for fewer threads, or name more processors in its device.toml"
            )
        return self.cpus[:threads]


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
    try:
        values = read_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: expected a TOML file: {error}") from error
    transport = values.get("transport")
    if isinstance(transport, str) and transport not in transports:
        raise InvalidFile(f"{path}: unknown transport {shown(transport)}; {suggest(transport, transports.names())}")
    tables = (transport,) if isinstance(transport, str) else ()
    options = values.pop(transport, {}) if isinstance(transport, str) else {}
    _check(path, values, KEYS, REQUIRED, tables)
    if not isinstance(options, dict):
        raise InvalidFile(f"{path}: {transport}: expected a table [{transport}], got {shown(options)}")
    kind = transports.get(values["transport"])
    _check(path, options, kind.options, kind.required, (), where=f"[{transport}] ")
    return _device(path, values, options)


def _check(
    path: Path,
    values: Mapping[str, Any],
    known: Mapping[str, type],
    required: tuple[str, ...],
    tables: tuple[str, ...],
    where: str = "",
) -> None:
    for key, value in values.items():
        if key not in known:
            raise InvalidFile(f"{path}: {where}unknown key {shown(key)}; {suggest(key, [*known, *tables])}")
        if type(value) is not known[key]:
            expected = {"int": "a whole number", "str": "a text", "bool": "true or false", "list": "a list"}
            raise InvalidFile(f"{path}: {where}{key}: expected {expected[known[key].__name__]}, got {shown(value)}")
    for key in required:
        if key not in values:
            raise InvalidFile(f"{path}: {where}the key {key!r} is missing")


def _device(path: Path, values: Mapping[str, Any], options: Mapping[str, Option]) -> Device:
    if values["schema"] != SCHEMA:
        raise InvalidFile(f"{path}: schema: expected {SCHEMA}, got {values['schema']}; update hwbench")
    if values["name"] != path.parent.name:
        raise InvalidFile(f"{path}: name: expected {path.parent.name!r} as the folder, got {shown(values['name'])}")
    cpus = values.get("cpus", [])
    if any(type(cpu) is not int or cpu < 0 for cpu in cpus) or len(set(cpus)) != len(cpus):
        raise InvalidFile(f"{path}: cpus: expected different processor numbers from 0, got {shown(cpus)}")
    if values.get("threads", 1) < 1:
        raise InvalidFile(f"{path}: threads: expected at least 1, got {values['threads']}")
    model = values.get("model", [])
    if any(type(name) is not str or not name.strip() for name in model):
        raise InvalidFile(f"{path}: model: expected names such as ['SM-G960F', 'Pixel 7*'], got {shown(model)}")
    for key in ("fingerprint", "unit"):
        if not re.fullmatch(r"([0-9a-f]{16})?", values.get(key, "")):
            raise InvalidFile(
                f"{path}: {key}: expected 16 hexadecimal digits, got {shown(values[key])}; "
                f"hwbench devices add {values['name']} --force writes it anew"
            )
    profiles = tuple(one.value for one in Conditions)
    if (conditions := values.get("conditions", Conditions.STOCK)) not in profiles:
        raise InvalidFile(f"{path}: conditions: unknown {shown(conditions)}; {suggest(conditions, profiles)}")
    known = ("description", "threads", "emulated", "work_dir", "runner", "fingerprint", "unit")
    rest: dict[str, Any] = {"work_dir": transports.get(values["transport"]).work_dir}
    rest |= {key: values[key] for key in known if key in values}
    rest["conditions"] = Conditions(conditions)
    if rest.get("runner", "").startswith(("./", "../", "~")):  # a file here, beside the device file
        rest["runner"] = str(path.parent / Path(rest["runner"]).expanduser())
    name, transport = values["name"], values["transport"]
    return Device(name, transport, cpus=tuple(cpus), options=dict(options), model=tuple(model), **rest)
