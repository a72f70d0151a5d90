"""``hwbench devices list``: what can be measured on, which tables there are, and what is attached but not added."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from hwbench.cli.devices.group import app
from hwbench.cli.output import Json, emit, print_table, say
from hwbench.errors import HwbenchError

if TYPE_CHECKING:
    from hwbench.devices import Device, Holder
    from hwbench.devices.adb_program import Attached
    from hwbench.workspace import Workspace


@app.command("list")
def list_devices(as_json: Json = False) -> None:
    """List the devices of the workspace, how each is reached, its latency tables, and who measures on it.

    Phones that are attached and that no device file names are told on stderr, with the command that adds them.
    """
    from hwbench.cli.devices.attached import strangers
    from hwbench.devices import holders
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    names = workspace.names("profiles")
    devices = {name: _load(workspace, name) for name in names}
    users = holders()
    found = [_describe(workspace, name, devices[name], users) for name in names]
    known = [device for device in devices.values() if not isinstance(device, str)]
    new = [_stranger(one, names) for one in strangers(known)]
    if as_json:
        emit({"devices": found, "attached": new}, as_json=True)
    else:
        columns = ("device", "transport", "description", "tables", "in use by")
        rows = [
            (d["name"], d["transport"], _described(d), ", ".join(d["tables"]) or "-", d["holder"] or "") for d in found
        ]
        used = any(d["holder"] for d in found)
        print_table(columns if used else columns[:-1], [row if used else row[:-1] for row in rows])
    for one in new:
        say(f"attached: {one['serial']} ({one['model'] or 'model unknown'}): {one['mend'] or one['add']}")


def _load(workspace: Workspace, name: str) -> Device | str:
    """A device, or what is wrong with its file."""
    from hwbench.devices import load_device

    try:
        return load_device(workspace, name)
    except HwbenchError as error:
        return str(error)


def _describe(workspace: Workspace, name: str, device: Device | str, users: Iterable[Holder]) -> dict[str, Any]:
    """One device; one whose file does not validate is listed with what is wrong."""
    values: dict[str, Any] = {
        "name": name,
        "transport": "-",
        "description": "",
        "emulated": False,
        "tables": table_names(workspace, name),
        "holder": None,
    }
    if isinstance(device, str):
        return values | {"description": device}
    return values | {
        "transport": device.transport_name,
        "description": device.description,
        "emulated": device.emulated,
        "holder": next((str(one) for one in users if _is(device, one.identity)), None),
    }


def _is(device: Device, identity: str) -> bool:
    """Whether what is held is a device, as far as its file tells without asking it: by its address or its unit."""
    from hwbench.devices import transports

    way, _, place = identity.partition(":")
    if way == "unit":
        return place == device.unit != ""
    if way != device.transport_name:
        return False
    if way == "local":
        return identity == transports.get(way).connect(device.address).identity
    if way == "adb":  # by the number of the unit, which the file has as a digest
        return place == device.options.get("serial") or hashlib.sha256(place.encode()).hexdigest()[:16] == device.unit
    from hwbench.devices.route import route

    with contextlib.suppress(HwbenchError):
        return place == str(route(device.address)[-1])
    return False


def _described(values: dict[str, Any]) -> str:
    return f"{values['description']} (emulated)" if values["emulated"] else values["description"]


def _stranger(one: Attached, taken: tuple[str, ...]) -> dict[str, str]:
    """A phone that is attached: how it is, and what to type to add it or to mend it."""
    base = re.sub(r"[^a-z0-9]+", "-", one.model.lower()).strip("-")[:40] or "phone"
    name = next(name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)
    command = f"hwbench devices add {name} --adb {shlex.quote(one.serial)}" if one.usable_serial else ""
    return {"serial": one.serial, "state": one.state, "model": one.model, "add": command, "mend": one.mend}


def table_names(workspace: Workspace, name: str) -> list[str]:
    """The latency tables of a device, without the ending of their files; those of ``local`` never come shipped."""
    from hwbench.specs import LOCAL
    from hwbench.workspace import shipped

    roots = (workspace.root,) if name == LOCAL else (workspace.root, shipped())
    return sorted({path.stem for root in roots for path in (root / "profiles" / name).glob("*.csv")})
