"""``hwbench devices prepare``: the runner is made for a device, carried there and proven."""

from __future__ import annotations

from hwbench.cli.devices.group import app
from hwbench.cli.devices.show import Name
from hwbench.cli.output import Json, emit, say


@app.command()
def prepare(name: Name, as_json: Json = False) -> None:
    """Make the runner that fits a device, carry it there, and prove on two small files that it computes as here.

    What lies there already is not sent again. Measuring does the same when it is needed, without the proof.
    """
    from hwbench.devices import load_device, occupied
    from hwbench.measure.prepare import prepare_device
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    device = load_device(workspace, name)
    with device.transport(say) as transport, occupied(transport, say) as probe:
        device.recognise(probe)
        prepared = prepare_device(device, transport, probe, cache_dir=workspace.cache, report=say)
    installed = prepared.installed
    values = {
        "device": name,
        "runner": installed.runner.kind,
        "folder": installed.folder,
        "bytes": installed.size_bytes,
        "seconds": round(installed.seconds, 1),
        "note": installed.note,
        **{f"error_{parity.precision.value}": parity.max_abs_error for parity in prepared.parities},
    }
    emit(values if as_json else {key: value for key, value in values.items() if value != ""}, as_json=as_json)
    say(f"next: hwbench devices check {name}")
