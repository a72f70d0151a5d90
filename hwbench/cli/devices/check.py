"""``hwbench devices check``: step by step what is missing or wrong on a device, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from hwbench.cli.devices.group import app
from hwbench.cli.devices.show import Name
from hwbench.cli.output import Json, emit, say
from hwbench.errors import DeviceError, HwbenchError
from hwbench.printable import printable
from hwbench.units import format_bytes

if TYPE_CHECKING:
    from hwbench.devices import Device, DeviceState, Probe, Transport
    from hwbench.workspace import Workspace

OK, WARNING, FAILED = "ok", "warning", "failed"
# The runner with its libraries is some 20 MB, the files of a space some 100 MB.
ENOUGH_BYTES, NEEDED_BYTES = 500 << 20, 50 << 20


@dataclass(frozen=True)
class Step:
    """One thing that was looked at: ``state`` is ok, warning or failed; ``advice`` mends it."""

    name: str
    state: str
    found: str
    advice: str = ""


@app.command()
def check(name: Name, as_json: Json = False) -> None:
    """Check a device step by step and say what mends it: from reaching it to a test of two equal models (A/A).

    Exit status 3 when something is wrong that keeps it from being measured.
    """
    from hwbench.devices import load_device
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    device = load_device(workspace, name)
    steps = []
    for step in check_device(workspace, device):
        steps.append(step)
        line = f"{step.state:8}{step.name:14}{step.found}"
        say(line) if as_json else print(printable(line), flush=True)
        if step.advice:
            say(f"{step.name}: {step.advice}")
    wrong = [step for step in steps if step.state == FAILED]
    if as_json:
        emit({"device": name, "ok": not wrong, "steps": [asdict(step) for step in steps]}, as_json=True)
    if wrong:
        raise typer.Exit(DeviceError.exit_status)
    say(f"next: hwbench profile --device {name}")
