"""``hwbench devices list``: what can be measured on, and which tables there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hwbench.cli.devices.group import app
from hwbench.cli.output import Json, emit, print_table
from hwbench.errors import HwbenchError

if TYPE_CHECKING:
    from hwbench.workspace import Workspace


@app.command("list")
def list_devices(as_json: Json = False) -> None:
    """List the devices of the workspace, how each is reached, and its latency tables."""
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    found = [_describe(workspace, name) for name in workspace.names("profiles")]
    if as_json:
        emit({"devices": found}, as_json=True)
        return
    rows = [(d["name"], d["transport"], d["description"], ", ".join(d["tables"]) or "-") for d in found]
    print_table(("device", "transport", "description", "tables"), rows)


def _describe(workspace: Workspace, name: str) -> dict[str, Any]:
    """One device; one whose file does not validate is listed with what is wrong."""
    from hwbench.devices import load_device

    tables = table_names(workspace, name)
    values: dict[str, Any] = {"name": name, "transport": "-", "description": "", "emulated": False, "tables": tables}
    try:
        device = load_device(workspace, name)
    except HwbenchError as error:
        return values | {"description": str(error)}
    return values | {
        "transport": device.transport_name,
        "description": device.description,
        "emulated": device.emulated,
    }


def table_names(workspace: Workspace, name: str) -> list[str]:
    """The latency tables of a device, without the ending of their files; those of ``local`` never come shipped."""
    from hwbench.specs import LOCAL
    from hwbench.workspace import shipped

    roots = (workspace.root,) if name == LOCAL else (workspace.root, shipped())
    return sorted({path.stem for root in roots for path in (root / "profiles" / name).glob("*.csv")})
