"""Virtual devices: a process of the laboratory for each, which stays until the device is removed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.devices.attached import server_runs
from hwbench.documents import read_json
from hwbench.errors import DeviceError, MissingDependency
from hwbench.interpreter import python_command, python_environment
from hwbench.ownership import make_closed_folder

if TYPE_CHECKING:
    from hwbench.devices import Device
    from hwbench.workspace import Workspace

# A program of its own: only it loads what tests are made of.
PROGRAM = "hwbench.testing.lab.serve"
# The first start compiles two small programs and makes keys.
START_S = 120.0
END_S = 15.0
OVER = ("ssh", "adb")
# Those that this process has started, by number: their ends are to be noticed.
_started: dict[int, subprocess.Popen[bytes]] = {}


def start(workspace: Workspace, name: str, over: str) -> Device:
    """Starts the laboratory of a device, in place of one that runs under that name; it goes on after this process.

    Raises:
        MissingDependency: What it needs is not installed; says what to install.
        DeviceError: It does not come up.
    """
    from hwbench.devices import Device
    from hwbench.workspace import write_text, writing

    stop(workspace, name)
    for process in [*_started.values()]:
        if process.poll() is not None:
            del _started[process.pid]
    folder = _record(workspace, name).parent
    with writing(folder):
        make_closed_folder(folder)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            python_command(PROGRAM, over, _serial(workspace, name)),
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    _started[process.pid] = process
    try:
        said = _first_line(process)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if "missing" in said:
        raise MissingDependency(str(said["missing"]))
    if "options" not in said:
        end = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        raise DeviceError(f"the laboratory does not come up: {end[-1] if end else 'it said nothing'}")
    options, work_dir = said["options"], str(said["work_dir"])
    place = f"{options['host']}:{options['port']}" if over == "adb" else None
    values = {"pid": process.pid, "started": _began(process.pid), "adb": place}
    write_text(_record(workspace, name), json.dumps(values) + "\n")
    told = f"laboratory, emulated, over {over}"
    return Device(name, over, told, emulated=True, work_dir=work_dir, options=options, workspace=workspace, typed=True)


def stop(workspace: Workspace, name: str) -> bool:
    """Ends the laboratory of a device; False if none runs."""
    record = _record(workspace, name)
    pid = _running(record)
    if pid is not None:
        _end(pid, record)
    _forget(record)
    for path in (record, record.with_suffix(".log")):
        path.unlink(missing_ok=True)
    return pid is not None


def advice(device: Device) -> str:
    """What starts the laboratory of a device again; empty where it has none, or it runs."""
    if device.workspace is None or not device.emulated:
        return ""
    record = _record(device.workspace, device.name)
    if not record.is_file() or _running(record) is not None:
        return ""
    over = "" if device.transport_name == "ssh" else f" --over {device.transport_name}"
    return f"its laboratory has ended; start it again: hwbench devices add {device.name} --virtual{over} --force"


def _forget(record: Path) -> None:
    """Adb's server keeps what it was once connected to, as offline."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if (place := read_json(record.read_text())["adb"]) and server_runs():
            from hwbench.devices.adb_program import AdbProgram

            with contextlib.suppress(DeviceError):
                AdbProgram().call("disconnect", str(place))


def _serial(workspace: Workspace, name: str) -> str:
    """The same for the same device each time, another one for every other: leases go by it."""
    return f"HWLAB{hashlib.sha256(f'{workspace.root}/{name}'.encode()).hexdigest()[:8].upper()}"


def _record(workspace: Workspace, name: str) -> Path:
    return workspace.root / ".hwbench" / "labs" / f"{name}.json"


def _running(record: Path) -> int | None:
    """The number of its process, where that is still the one that was started; another one may have it by now."""
    try:
        values = read_json(record.read_text())
        pid = int(values["pid"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        same = values.get("started") in (None, _began(pid))  # older records do not say it
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    return pid if same and PROGRAM.encode() in words else None


def _began(pid: int) -> str:
    """When a process was started, in ticks since the machine was."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _end(pid: int, record: Path) -> None:
    with contextlib.suppress(ProcessLookupError):
        held = os.pidfd_open(pid)  # stays with this process, whoever gets its number
        try:
            if _running(record) == pid:
                signal.pidfd_send_signal(held, signal.SIGTERM)  # it takes down what it has started
                if not _ends(held, END_S):
                    signal.pidfd_send_signal(held, signal.SIGKILL)
                    _ends(held, END_S)
        finally:
            os.close(held)
    if (process := _started.pop(pid, None)) is not None:
        process.wait(END_S)


def _ends(held: int, limit_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(held, selectors.EVENT_READ)
        return bool(selector.select(limit_s))


def _first_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What it says when it is up, or why it is not."""
    assert process.stdout is not None
    said = b""
    deadline = time.monotonic() + START_S
    with process.stdout as output, selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while not said.endswith(b"\n"):
            if not selector.select(deadline - time.monotonic()):
                raise DeviceError(f"the laboratory does not come up within {START_S:g} s")
            if not (data := os.read(output.fileno(), 1 << 16)):
                break
            said += data
    try:
        return dict(json.loads(said))
    except ValueError:
        return {}
