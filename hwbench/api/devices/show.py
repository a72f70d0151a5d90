"""``hwbench.show_device``: a device as its file says and as it describes itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request
from hwbench.errors import DeviceError

if TYPE_CHECKING:
    from hwbench.devices import Device, DeviceState, Probe
    from hwbench.workspace import Workspace


@request
class ShowDeviceRequest:
    """Show a device: what its file says, what it is, and how it is doing now.

    One that does not answer is shown as its file says, with the reason on stderr.
    """

    name: str = option(argument=True, metavar="NAME", names="device", help="Device: a folder of profiles/.")


@dataclass(frozen=True)
class DeviceAnswer:
    """What a device said of itself: what it is, how it is doing, and who measures on it."""

    probe: Probe
    state: DeviceState
    holder: str | None


@dataclass(frozen=True)
class ShowDeviceResult:
    """A device as its file says, its tables, and what it answered; ``reason``: why it did not."""

    device: Device
    file: Path
    tables: tuple[str, ...]
    answer: DeviceAnswer | None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench devices show --json`` prints."""
        device, answer = self.device, self.answer
        return {
            "device": device.name,
            "file": str(self.file),
            "description": device.description,
            "transport": device.transport_name,
            "options": dict(device.options),
            "threads": device.threads,
            "cpus": list(device.cpus),
            "emulated": device.emulated,
            "work_dir": device.work_dir,
            "fingerprint": device.fingerprint,
            "tables": list(self.tables),
            "online": answer is not None,
            "reason": self.reason,
            "holder": answer and answer.holder,
            "probe": answer and _probe_json(answer.probe),
            "state": answer and answer.state.as_json(),
        }

    def rows(self) -> list[tuple[str, str]]:
        """The same in words for a person, as pairs of a word and a line; an empty line: nothing to tell."""
        device = self.device
        options = ", ".join(f"{key} {value}" for key, value in device.options.items())
        return [
            ("device", device.name),
            ("file", str(self.file)),
            ("description", device.description),
            ("transport", f"{device.transport_name} {options}".strip()),
            ("threads", str(device.threads)),
            ("pinned to", ", ".join(map(str, device.cpus)) or "the fastest cores"),
            ("emulated", "yes: its timings are never latencies" if device.emulated else ""),
            ("tables", ", ".join(self.tables)),
            ("added as", device.fingerprint),
            *self._answered(),
        ]

    def _answered(self) -> list[tuple[str, str]]:
        from hwbench.devices.description import describe, describe_state

        if self.answer is None:
            return [("online", "no")]
        answer = self.answer
        return [*describe(answer.probe), *describe_state(answer.state), ("in use by", answer.holder or "")]


def show_device(
    request: ShowDeviceRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> ShowDeviceResult:
    """Reads the file of a device and asks the device; one that does not answer is no error.

    Raises:
        UnknownName: No such device.
        InvalidFile: Its file does not validate.
    """
    from hwbench.api.devices.listing import table_names
    from hwbench.devices import load_device
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    device = load_device(workspace, request.name)
    path, tables = workspace.device(request.name), table_names(workspace, request.name)
    try:
        answer = _ask(device, listener)
    except DeviceError as error:
        listener.say(f"offline: {error}")
        return ShowDeviceResult(device, path, tables, None, str(error))
    try:
        device.recognise(answer.probe)
    except DeviceError as error:  # another one under this name is shown as what it is
        listener.say(str(error))
    return ShowDeviceResult(device, path, tables, answer)


def _probe_json(probe: Probe) -> dict[str, Any]:
    values = asdict(probe) | {"fingerprint": probe.fingerprint}
    del values["offline"], values["turbo_on"], values["turbo_off"]  # not among the keys that are documented
    return values


def _ask(device: Device, listener: Listener) -> DeviceAnswer:
    from hwbench.devices import occupant, probe_device, read_state

    with device.transport(listener.say) as transport:
        probe = probe_device(transport)
        user = occupant(transport, probe)
        return DeviceAnswer(probe, read_state(transport, device.files_dir), str(user) if user else None)
