"""``hwbench devices add``: asks a device what it is and writes its file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hwbench.cli.devices import virtual as virtual_devices
from hwbench.cli.devices.group import app
from hwbench.cli.devices.places import adb_options, ssh_options
from hwbench.cli.devices.trust import Fingerprint, trust_first
from hwbench.cli.output import Json, emit, print_table, say
from hwbench.errors import InvalidValue

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


class _AdbAlone(TyperCommand):
    """``--adb`` may stand without a value: the only phone that is attached."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for index, word in enumerate(args):
            if word == "--":
                break
            if word == "--adb" and (index + 1 == len(args) or args[index + 1].startswith("-")):
                args[index] = "--adb="
        return list(super().parse_args(ctx, args))


@app.command(cls=_AdbAlone)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it: a new folder of profiles/.")],
    ssh: Annotated[str | None, typer.Option(metavar="[USER@]HOST[:PORT]", help="Reach it through SSH.")] = None,
    adb: Annotated[
        str | None, typer.Option(metavar="[SERIAL]", help="Reach it through adb; alone: the only one attached.")
    ] = None,
    identity: Annotated[str | None, typer.Option(metavar="FILE", help="With --ssh: the private key to use.")] = None,
    agent: Annotated[bool, typer.Option("--agent", help="With --ssh: use the keys of the SSH agent.")] = False,
    fingerprint: Fingerprint = None,
    local: Annotated[bool, typer.Option("--local", help="It is this machine.")] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="An emulated 64-bit ARM device, to try things out; it needs no hardware.")
    ] = False,
    over: Annotated[str, typer.Option(metavar="ssh|adb", help="With --virtual: how it is reached.")] = "ssh",
    description: Annotated[str | None, typer.Option(help="One line about it; default: its model.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write the file of a device anew as it is now.")] = False,
    as_json: Json = False,
) -> None:
    """Add a device: ask it what it is, and write its device.toml."""
    from hwbench.devices.description import describe
    from hwbench.devices.device_file import write_device
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    ways = {"ssh": ssh, "adb": adb, "local": "" if local else None, "virtual": over if virtual else None}
    given = {way: value for way, value in ways.items() if value is not None}
    options: dict[str, Option] = {"identity": identity} if identity else {}
    options |= {"agent": True} if agent else {}
    _check_request(workspace, name, given, options, force)
    with _asked(workspace, name, given, options) as asked:
        if asked.transport_name == "ssh":
            words = ["hwbench", "devices", "add", name, *(["--ssh", ssh] if ssh else [])]
            words += (["--identity", identity] if identity else []) + ["--agent"] * agent + ["--force"] * force
            trust_first(asked.address, fingerprint, shlex.join(words))
        reached, probe = _reach(asked)
        replace(asked, fingerprint="", unit="").recognise(probe)  # the model that its file asks for is not given up
        device = _as_found(reached, probe, description)
        path = write_device(workspace, device, _notes(probe))
    if not as_json:
        print_table(("", ""), describe(probe), header=False)
    else:
        emit(_values(device, probe, path), as_json=True)
    say(f"wrote {path}; next: hwbench devices check {device.name}")


def _check_request(
    workspace: Workspace, name: str, ways: Mapping[str, str], options: Mapping[str, Option], force: bool
) -> None:
    """Refuses what cannot be meant, before anything is reached.

    Raises:
        InvalidValue: A name that is none, one that is taken, or not exactly one way to reach it.
    """
    from hwbench.devices.device import check_name

    check_name(name)
    known = name in workspace.names("profiles")
    if known and not force:
        raise InvalidValue(
            f"device {name!r} is there already: {workspace.device(name)}; choose another name, or write its file anew "
            f"as the device is now: hwbench devices add {name} --force"
        )
    if len(ways) > 1:
        given = " and ".join(f"--{way}" for way in ways)
        raise InvalidValue(f"expected one way to the device, got {given}; give one of {WAYS}")
    if options and "ssh" not in ways:
        raise InvalidValue(f"--identity and --agent belong to --ssh: hwbench devices add {name} --ssh HOST --agent")
    if not ways and not known:
        raise InvalidValue(f"expected a way to the device: hwbench devices add {name} with {WAYS}")
    if ways.get("virtual", "ssh") not in virtual_devices.OVER:
        raise InvalidValue(f"--over: expected {' or '.join(virtual_devices.OVER)}, got {ways['virtual']!r}")


@contextmanager
def _asked(workspace: Workspace, name: str, ways: Mapping[str, str], options: Mapping[str, Option]) -> Iterator[Device]:
    """The device as the command line says it; where that says nothing, as its file does.

    A virtual one is started, and ended again if the block fails.
    """
    from hwbench.devices import Device, load_device, transports

    if not ways:
        yield load_device(workspace, name)
        return
    ((way, value),) = ways.items()
    if way == "virtual":
        try:
            yield virtual_devices.start(workspace, name, value)
        except BaseException:
            virtual_devices.stop(workspace, name)
            raise
        return
    read = {"ssh": ssh_options, "adb": adb_options}
    found = read[way](value) if way in read else {}
    folder = transports.get(way).work_dir
    yield Device(name, way, work_dir=folder, options=found | dict(options), workspace=workspace)


def _reach(asked: Device) -> tuple[Device, Probe]:
    """Asks a device what it is; files go into the first folder where they can be started."""
    from hwbench.devices import probe_device
    from hwbench.devices.workplace import work_dir_fault

    folders = (asked.work_dir, HOME_DIR) if asked.transport_name == "ssh" else (asked.work_dir,)
    for folder in dict.fromkeys(folders):
        device = replace(asked, work_dir=folder)
        with device.transport(say) as transport:
            probe = probe_device(transport)
            fault = work_dir_fault(transport)
        if not fault:
            return device, probe
        say(f"work_dir {folder}: {fault}")
    return asked, probe


def _as_found(asked: Device, probe: Probe, description: str | None) -> Device:
    """The device with what the probe says: processors, description, fingerprint."""
    from hwbench.devices.description import big_cores
    from hwbench.printable import printable

    model = "" if probe.model == UNKNOWN else printable(probe.model, 100)
    said = description if description is not None else asked.description or model
    emulated = asked.emulated or LAB_KERNEL in probe.kernel
    known = replace(asked, fingerprint=probe.fingerprint, unit=probe.unit)
    return replace(known, description=said, cpus=big_cores(probe), emulated=emulated)


def _notes(probe: Probe) -> Sequence[str]:
    """Comments for the top of the file."""
    from hwbench.devices.description import describe

    today = datetime.now(UTC).date().isoformat()
    return [f"Written by hwbench devices add on {today}. What was found:", *(f"  {n}: {v}" for n, v in describe(probe))]


def _values(device: Device, probe: Probe, path: Path) -> dict[str, Any]:
    return {
        "device": device.name,
        "file": str(path),
        "transport": device.transport_name,
        "model": probe.model,
        "abi": probe.abi,
        "cpus": list(device.cpus),
        "fingerprint": probe.fingerprint,
        "emulated": device.emulated,
    }
