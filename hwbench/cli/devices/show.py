"""``hwbench devices show``: a device as its file says and as it describes itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli.devices.group import app
from hwbench.cli.output import Json, emit, print_table, say
from hwbench.errors import DeviceError

if TYPE_CHECKING:
    from hwbench.devices import Device, DeviceState, Probe

Name = Annotated[str, typer.Argument(metavar="NAME", help="Device: a folder of profiles/.")]


@app.command()
def show(name: Name, as_json: Json = False) -> None:
    """Show a device: what its file says, what it is, and how it is doing now.

    One that does not answer is shown as its file says, with the reason on stderr.
    """
    from hwbench.cli.devices.listing import table_names
    from hwbench.devices import load_device
    from hwbench.devices.description import describe, describe_state
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    device = load_device(workspace, name)
    path = workspace.device(name)
    values = {"device": name, "file": str(path)} | _file(device) | {"tables": table_names(workspace, name)}
    rows = _file_rows(values)
    try:
        probe, state, user = _ask(device)
    except DeviceError as error:
        values |= {"online": False, "reason": str(error), "holder": None, "probe": None, "state": None}
        rows.append(("online", "no"))
        say(f"offline: {error}")
    else:
        said = asdict(probe) | {"fingerprint": probe.fingerprint}
        values |= {"online": True, "reason": "", "holder": user, "probe": said, "state": state.as_json()}
        rows += [*describe(probe), *describe_state(state), ("in use by", user or "")]
        _tell_another(device, probe)
    if as_json:
        emit(values, as_json=True)
    else:
        print_table(("", ""), [row for row in rows if row[1]], header=False)


def _tell_another(device: Device, probe: Probe) -> None:
    try:
        device.recognise(probe)
    except DeviceError as error:
        say(str(error))


def _ask(device: Device) -> tuple[Probe, DeviceState, str | None]:
    """What it is, how it is, and who measures on it."""
    from hwbench.devices import occupant, probe_device, read_state

    with device.transport(say) as transport:
        probe = probe_device(transport)
        user = occupant(transport, probe)
        return probe, read_state(transport, device.work_dir), str(user) if user else None


def _file(device: Device) -> dict[str, Any]:
    """What the file says, in its own words."""
    return {
        "description": device.description,
        "transport": device.transport_name,
        "options": dict(device.options),
        "threads": device.threads,
        "cpus": list(device.cpus),
        "emulated": device.emulated,
        "work_dir": device.work_dir,
        "fingerprint": device.fingerprint,
    }


def _file_rows(values: dict[str, Any]) -> list[tuple[str, str]]:
    options = ", ".join(f"{key} {value}" for key, value in values["options"].items())
    return [
        ("device", values["device"]),
        ("file", values["file"]),
        ("description", values["description"]),
        ("transport", f"{values['transport']} {options}".strip()),
        ("threads", str(values["threads"])),
        ("pinned to", ", ".join(map(str, values["cpus"])) or "the fastest cores"),
        ("emulated", "yes: its timings are never latencies" if values["emulated"] else ""),
        ("tables", ", ".join(values["tables"])),
        ("added as", values["fingerprint"]),
    ]
