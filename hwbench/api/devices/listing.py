"""``hwbench.list_devices``: what can be measured on, which tables there are, and what is attached but not added."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import request
from hwbench.errors import HwbenchError

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from hwbench.devices import Device, Holder
    from hwbench.devices.adb_program import Attached
    from hwbench.workspace import Workspace


@request
class ListDevicesRequest:
    """List the devices of the workspace, how each is reached, its latency tables, and who measures on it.

    Phones that are attached and that no device file names are told on stderr, with the command that adds them.
    """


@dataclass(frozen=True)
class ListedDevice:
    """A device of a workspace; one whose file does not validate has what is wrong as its description.

    ``holder``: who measures on it, as far as that can be told without asking it; None: nobody.
    """

    name: str
    transport: str
    description: str
    emulated: bool
    tables: tuple[str, ...]
    holder: str | None


@dataclass(frozen=True)
class AttachedPhone:
    """A phone that adb sees and no device file names; ``add`` or ``mend``: what to type next."""

    serial: str
    state: str
    model: str
    add: str
    mend: str


@dataclass(frozen=True)
class ListDevicesResult:
    """The devices of a workspace, and the phones that could be added."""

    devices: tuple[ListedDevice, ...]
    attached: tuple[AttachedPhone, ...]

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench devices list --json`` prints."""
        devices = [asdict(one) | {"tables": list(one.tables)} for one in self.devices]
        return {"devices": devices, "attached": [asdict(one) for one in self.attached]}

    def to_frame(self) -> pd.DataFrame:
        """One row a device."""
        import pandas as pd

        return pd.DataFrame(self.to_json()["devices"], columns=list(ListedDevice.__dataclass_fields__))


def list_devices(
    request: ListDevicesRequest | None = None,
    listener: Listener = SILENT,
    *,
    workspace: Workspace | str | Path | None = None,
) -> ListDevicesResult:
    """Lists the devices of a workspace without asking any of them."""
    from hwbench.devices import holders
    from hwbench.devices.attached import strangers
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    names = workspace.names("profiles")
    devices = {name: _load(workspace, name) for name in names}
    users = holders()
    listed = tuple(_describe(workspace, name, devices[name], users) for name in names)
    known = [device for device in devices.values() if not isinstance(device, str)]
    phones = tuple(_stranger(one, names) for one in strangers(known))
    for one in phones:
        listener.say(f"attached: {one.serial} ({one.model or 'model unknown'}): {one.mend or one.add}")
    return ListDevicesResult(listed, phones)


def table_names(workspace: Workspace, name: str) -> tuple[str, ...]:
    """The latency tables of a device, without the ending of their files; those of ``local`` never come shipped."""
    from hwbench.specs import LOCAL
    from hwbench.workspace import shipped

    roots = (workspace.root,) if name == LOCAL else (workspace.root, shipped())
    return tuple(sorted({path.stem for root in roots for path in (root / "profiles" / name).glob("*.csv")}))


def _load(workspace: Workspace, name: str) -> Device | str:
    """A device, or what is wrong with its file."""
    from hwbench.devices import load_device

    try:
        return load_device(workspace, name)
    except HwbenchError as error:
        return str(error)


def _describe(workspace: Workspace, name: str, device: Device | str, users: Iterable[Holder]) -> ListedDevice:
    tables = table_names(workspace, name)
    if isinstance(device, str):
        return ListedDevice(name, "-", device, emulated=False, tables=tables, holder=None)
    holder = next((str(one) for one in users if _is(device, one.identity)), None)
    return ListedDevice(name, device.transport_name, device.description, device.emulated, tables, holder)


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
    if way != "ssh":  # of another package, which only its transport tells
        return False
    from hwbench.devices.route import route

    with contextlib.suppress(HwbenchError):
        return place == str(route(device.address)[-1])
    return False


def _stranger(one: Attached, taken: tuple[str, ...]) -> AttachedPhone:
    """A phone that is attached: how it is, and what to type to add it or to mend it."""
    base = re.sub(r"[^a-z0-9]+", "-", one.model.lower()).strip("-")[:40] or "phone"
    name = next(name for name in (base, *(f"{base}-{n}" for n in range(2, len(taken) + 3))) if name not in taken)
    command = f"hwbench devices add {name} --adb {shlex.quote(one.serial)}" if one.usable_serial else ""
    return AttachedPhone(one.serial, one.state, one.model, command, one.mend)
