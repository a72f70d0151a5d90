"""``hwbench.add_device``: asks a device what it is and writes its file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.devices.trust import FINGERPRINT_HELP, REPLACE_HELP, HostKeyAnswer, trust_first
from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import changed, option, request
from hwbench.errors import InvalidValue
from hwbench.printable import enumeration

if TYPE_CHECKING:
    from hwbench.devices import Device, Probe
    from hwbench.devices.base import Option
    from hwbench.workspace import Workspace

# Where that does not do which is the default: Termux has no /tmp, and some boards mount it noexec.
HOME_DIR = "~/hwbench"
# What the kernel of a device of the laboratory calls itself, however it was reached.
LAB_KERNEL = "hwbench-lab"
UNKNOWN = "unknown"
WAYS = "--ssh [USER@]HOST[:PORT], --adb [SERIAL], --local or --virtual"


@request
class AddDeviceRequest:
    """Add a device: ask it what it is, and write its device.toml."""

    name: str = option(argument=True, metavar="NAME", blank=True, help="What to call it: a new folder of profiles/.")
    ssh: str | None = option(default=None, metavar="[USER@]HOST[:PORT]", blank=True, help="Reach it through SSH.")
    adb: str | None = option(
        default=None,
        metavar="[SERIAL]",
        alone="",
        blank=True,
        help="Reach it through adb; alone: the only one attached.",
    )
    identity: str | None = option(default=None, metavar="FILE", help="With --ssh: the private key to use.")
    agent: bool = option(default=False, help="With --ssh: use the keys of the SSH agent.")
    fingerprint: str | None = option(default=None, metavar="SHA256:...", help=FINGERPRINT_HELP)
    replace: bool = option(default=False, help=REPLACE_HELP)
    local: bool = option(default=False, help="It is this machine.")
    virtual: bool = option(
        default=False, help="An emulated 64-bit ARM device, to try things out; it needs no hardware."
    )
    over: str = option(
        default="ssh", metavar="ssh|adb", choices=("ssh", "adb"), help="With --virtual: how it is reached."
    )
    description: str | None = option(default=None, blank=True, help="One line about it; default: its model.")
    force: bool = option(default=False, help="Write the file of a device anew as it is now.")

    @property
    def ways(self) -> dict[str, str]:
        """The ways to the device that are given, each with what is typed behind it."""
        given = {
            "ssh": self.ssh,
            "adb": self.adb,
            "local": "" if self.local else None,
            "virtual": self.over if self.virtual else None,
        }
        return {way: value for way, value in given.items() if value is not None}

    @property
    def keys(self) -> dict[str, Option]:
        """The options of the device file that say which key opens the device."""
        identity: dict[str, Option] = {"identity": self.identity} if self.identity else {}
        return identity | ({"agent": True} if self.agent else {})

    def validate(self) -> None:
        """Raises InvalidValue for a name that is none, and for ways to the device that do not go together."""
        from hwbench.devices.device import check_name

        check_name(self.name)
        if len(self.ways) > 1:
            given = enumeration([f"--{way}" for way in self.ways])
            raise InvalidValue(f"expected one way to the device, got {given}; give one of {WAYS}")
        if self.keys and self.ssh is None:
            raise InvalidValue(
                f"--identity and --agent belong to --ssh: hwbench devices add {self.name} --ssh HOST --agent"
            )
        # Without a way the file of the device says it, which may be SSH.
        if self.ways and self.ssh is None:
            self.check_no_host_key("--ssh")
        if not self.virtual and changed(self, "over"):
            raise InvalidValue(f"--over goes with --virtual: hwbench devices add {self.name} --virtual --over adb")

    def check_no_host_key(self, of: str) -> None:
        """Raises InvalidValue where something is said of a host key; the way to the device has none, but ``of`` has."""
        if unread := changed(self, "fingerprint", "replace"):
            raise InvalidValue(f"{unread[0]} is about the host key of {of}; leave it out")

    def command(self) -> str:
        """The command line that adds the device, to be typed once more with a fingerprint."""
        words = ["hwbench", "devices", "add", self.name]
        for way, place in self.ways.items():  # --adb may stand alone, and the place of --virtual is no word of it
            words += [f"--{way}", *([place] if place and way != "virtual" else [])]
        words += ["--over", self.over] if changed(self, "over") else []
        words += ["--identity", self.identity] if self.identity else []
        words += [] if self.description is None else ["--description", self.description]
        return shlex.join([*words, *["--agent"] * self.agent, *["--force"] * self.force])

    def anew(self) -> str:
        """The command line that writes the file of the device anew, where its name is taken."""
        key = [] if self.fingerprint is None else ["--fingerprint", shlex.quote(self.fingerprint)]
        return " ".join([replace(self, force=True).command(), *["--replace"] * self.replace, *key])


@dataclass(frozen=True)
class AddDeviceResult:
    """The device as its file says it now, what it said of itself, and the file."""

    device: Device
    probe: Probe
    file: Path

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench devices add --json`` prints."""
        return {
            "device": self.device.name,
            "file": str(self.file),
            "transport": self.device.transport_name,
            "model": self.probe.model,
            "abi": self.probe.abi,
            "cpus": list(self.device.cpus),
            "fingerprint": self.probe.fingerprint,
            "emulated": self.device.emulated,
        }


def add_device(
    request: AddDeviceRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> AddDeviceResult:
    """Reaches a device, asks it what it is, and writes its file.

    A virtual device is started, and ended again where adding it fails. A host key that is not known is confirmed by
    the fingerprint of the request, or by the listener.

    Raises:
        InvalidValue: The name is taken, no way to the device is given, or another model is behind it.
        DeviceError: The device does not answer, or its host key is not trusted.
        MissingDependency: What a virtual device needs is not installed.
    """
    from hwbench.devices.device_file import write_device
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    _check_place(workspace, request)
    with _asked(workspace, request) as asked:
        if asked.transport_name == "ssh":
            answer = HostKeyAnswer(fingerprint=request.fingerprint, replace=request.replace)
            trust_first(asked.address, answer, request.command(), listener)
        reached, probe = _reach(asked, listener)
        replace(asked, fingerprint="", unit="").recognise(probe)  # the model that its file asks for is not given up
        device = _as_found(reached, probe, request.description, listener)
        path = write_device(workspace, device, _notes(probe))
    return AddDeviceResult(device, probe, path)


def _check_place(workspace: Workspace, request: AddDeviceRequest) -> None:
    """Refuses what cannot be meant in a workspace, before anything is reached.

    Raises:
        InvalidValue: A name that is taken, or a new one without a way to the device.
    """
    name = request.name
    taken = name in workspace.names("profiles")
    if taken and not request.force:
        raise InvalidValue(
            f"device {name!r} is there already: {workspace.device(name)}; choose another name, or write its file anew "
            f"as the device is now: {request.anew()}"
        )
    if not request.ways and not taken:
        raise InvalidValue(f"expected a way to the device: hwbench devices add {name} with {WAYS}")


@contextmanager
def _asked(workspace: Workspace, request: AddDeviceRequest) -> Iterator[Device]:
    """The device as the request says it; where that says nothing, as its file does.

    A virtual one is started, and ended again if the block fails.
    """
    from hwbench.devices import load_device, virtual

    if not request.ways:
        device = load_device(workspace, request.name)
        if device.transport_name != "ssh":
            file = f'the device.toml of {request.name} says transport = "{device.transport_name}"'
            request.check_no_host_key(f"--ssh, and {file}")
        yield device
    elif request.virtual:
        try:
            yield virtual.start(workspace, request.name, request.over)
        except BaseException:
            virtual.stop(workspace, request.name)
            raise
    else:
        yield _named(workspace, request)


def _named(workspace: Workspace, request: AddDeviceRequest) -> Device:
    """The device at the place that is typed."""
    from hwbench.devices import Device, transports
    from hwbench.devices.places import adb_options, ssh_options

    ((way, place),) = request.ways.items()
    read = {"ssh": ssh_options, "adb": adb_options}
    options: Mapping[str, Option] = read[way](place) if way in read else {}
    folder = transports.get(way).work_dir
    options = {**options, **request.keys}
    return Device(request.name, way, work_dir=folder, options=options, workspace=workspace, typed=True)


def _reach(asked: Device, listener: Listener) -> tuple[Device, Probe]:
    """Asks a device what it is; files go into the first folder where they can be started."""
    from hwbench.devices import probe_device
    from hwbench.devices.workplace import work_dir_fault

    folders = (asked.work_dir, HOME_DIR) if asked.transport_name == "ssh" else (asked.work_dir,)
    for folder in dict.fromkeys(folders):
        device = replace(asked, work_dir=folder)
        with device.transport(listener.say) as transport:
            probe = probe_device(transport)
            fault = work_dir_fault(transport)
        if not fault:
            return device, probe
        listener.say(f"work_dir {folder}: {fault}")
    return asked, probe


def _as_found(asked: Device, probe: Probe, description: str | None, listener: Listener) -> Device:
    """The device with what the probe says: processors, description, fingerprint, turbo.

    Processors that its file names stay where they can be used.
    """
    from hwbench.devices.description import big_cores
    from hwbench.printable import printable

    model = "" if probe.model == UNKNOWN else printable(probe.model, 100)
    words = description if description is not None else asked.description or model
    emulated = asked.emulated or LAB_KERNEL in probe.kernel
    cpus = big_cores(probe)
    if asked.cpus and asked.cpus != cpus:
        usable = set(asked.cpus) <= set(probe.allowed)
        stays = f"stays; its big cores are {list(cpus)}" if usable else f"cannot be used there; it is now {list(cpus)}"
        listener.say(f"cpus = {list(asked.cpus)} of its file {stays}")
        cpus = asked.cpus if usable else cpus
    known = replace(asked, fingerprint=probe.fingerprint, unit=probe.unit, turbo=probe.turbo, typed=False)
    return replace(known, description=words, cpus=cpus, emulated=emulated)


def _notes(probe: Probe) -> Sequence[str]:
    """Comments for the top of the file."""
    from hwbench.devices.description import describe

    today = datetime.now(UTC).date().isoformat()
    return [f"Written by hwbench devices add on {today}. What was found:", *(f"  {n}: {v}" for n, v in describe(probe))]
