"""``hwbench.prepare_device``: the runner is made for a device, carried there and proven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request

if TYPE_CHECKING:
    from pathlib import Path

    from hwbench.measure.prepare import Prepared
    from hwbench.workspace import Workspace


@request
class PrepareDeviceRequest:
    """Make the runner that fits a device, carry it there, and prove on two small files that it computes as here.

    What lies there already is not sent again. Measuring does the same when it is needed, without the proof.
    """

    name: str = option(argument=True, metavar="NAME", names="device", help="Device: a folder of profiles/.")


@dataclass(frozen=True)
class PrepareDeviceResult:
    """The runner that lies on a device now, and how exactly it computes what is computed here."""

    device: str
    prepared: Prepared

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench devices prepare --json`` prints."""
        installed = self.prepared.installed
        return {
            "device": self.device,
            "runner": installed.runner.kind,
            "folder": installed.folder,
            "bytes": installed.size_bytes,
            "seconds": round(installed.seconds, 1),
            "note": installed.note,
            **{f"error_{parity.precision.value}": parity.max_abs_error for parity in self.prepared.parities},
        }


def prepare_device(
    request: PrepareDeviceRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> PrepareDeviceResult:
    """Installs the runner of a device and proves it.

    Raises:
        UnknownName: No such device.
        DeviceError: The device does not answer, or another one answers.
        ParityFailed: It computes something else there.
    """
    from hwbench.devices import load_device, occupied
    from hwbench.measure import prepare
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    device = load_device(workspace, request.name)
    with device.transport(listener.say) as transport, occupied(transport, listener.say) as probe:
        device.recognise(probe)
        prepared = prepare.prepare_device(device, transport, probe, cache_dir=workspace.cache, report=listener.say)
    return PrepareDeviceResult(request.name, prepared)
