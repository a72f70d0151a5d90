"""``hwbench devices add``: asks a device what it is and writes its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from hwbench.cli.devices.group import app
from hwbench.cli.devices.places import adb_options, ssh_options
from hwbench.cli.output import Json, emit, print_table, say
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.devices import Device, Probe
    from hwbench.devices.base import Option
    from hwbench.workspace import Workspace

# The only folder of an Android where files can be put and started.
ANDROID_DIR = "/data/local/tmp/hwbench"
# Where that does not do which is the default: Termux has no /tmp, and some boards mount it noexec.
HOME_DIR = "~/hwbench"
WAYS = "--ssh [USER@]HOST[:PORT], --adb [SERIAL] or --local"


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
    local: Annotated[bool, typer.Option("--local", help="It is this machine.")] = False,
    description: Annotated[str | None, typer.Option(help="One line about it; default: its model.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write the file of a device anew as it is now.")] = False,
    as_json: Json = False,
) -> None:
    """Add a device: ask it what it is, and write its device.toml."""
    from hwbench.devices.description import describe
    from hwbench.devices.device_file import write_device
    from hwbench.workspace import Workspace

    ways: dict[str, str | None] = {"ssh": ssh, "adb": adb, "local": "" if local else None}
    workspace = Workspace.find()
    given: dict[str, Option] = {"identity": identity} if identity else {}
    given |= {"agent": True} if agent else {}
    asked = _asked(workspace, name, {way: value for way, value in ways.items() if value is not None}, given, force)
    reached, probe = _reach(asked)
    replace(asked, fingerprint="", unit="").recognise(probe)  # the model that its file asks for is not given up
    device = _as_found(reached, probe, description)
    path = write_device(workspace, device, _notes(probe))
    if not as_json:
        print_table(("", ""), describe(probe), header=False)
    else:
        emit(_values(device, probe, path), as_json=True)
    say(f"wrote {path}; next: hwbench devices check {device.name}")


def _asked(workspace: Workspace, name: str, ways: Mapping[str, str], more: Mapping[str, Option], force: bool) -> Device:
    """What the command line says of the device; where it says nothing, what its file says.

    Raises:
        InvalidValue: A name that is none, one that is taken, or not exactly one way to reach it.
    """
    from hwbench.devices import Device, load_device
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
    if more and "ssh" not in ways:
        raise InvalidValue(f"--identity and --agent belong to --ssh: hwbench devices add {name} --ssh HOST --agent")
    if not ways:
        if not known:
            raise InvalidValue(f"expected a way to the device: hwbench devices add {name} with {WAYS}")
        return load_device(workspace, name)
    ((way, value),) = ways.items()
    read = {"ssh": ssh_options, "adb": adb_options}
    options = read[way](value) if way in read else {}
    folder = ANDROID_DIR if way == "adb" else Device.work_dir
    return Device(name, way, work_dir=folder, options=options | dict(more), workspace=workspace)


def _reach(asked: Device) -> tuple[Device, Probe]:
    """Asks a device what it is; files go into the first folder where they can be started."""
    from hwbench.devices import probe_device
    from hwbench.devices.workplace import work_dir_fault

    folders = (asked.work_dir, HOME_DIR) if asked.transport_name == "ssh" else (asked.work_dir,)
    for folder in dict.fromkeys(folders):
        device = replace(asked, work_dir=folder)
        with device.transport() as transport:
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

    said = description if description is not None else asked.description or printable(probe.model, 100)
    return replace(asked, description=said, cpus=big_cores(probe), fingerprint=probe.fingerprint, unit=probe.unit)


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
