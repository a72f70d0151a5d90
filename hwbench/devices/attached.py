"""Phones that adb sees, beside the device files that mean them."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.errors import DeviceError, InvalidValue

if TYPE_CHECKING:
    from hwbench.devices import Device
    from hwbench.devices.adb_program import Attached

# What the interface of a phone with USB debugging says of itself: class, subclass.
_DEBUGGING = ("ff", "42")


def strangers(devices: Iterable[Device]) -> tuple[Attached, ...]:
    """What is attached and that no device file names.

    adb's server is started only where a phone with USB debugging hangs on this machine.
    """
    from hwbench.devices.adb_program import attached

    if shutil.which("adb") is None or not (server_runs() or _plugged_in()):
        return ()
    try:
        found = attached()
    except DeviceError:
        return ()
    named = {serial for device in devices if (serial := serial_of(device))}
    return tuple(one for one in found if one.serial not in named)


def serial_of(device: Device) -> str | None:
    """What adb calls a device by its file; None where the file leaves it open, or it is none of adb's."""
    from hwbench.devices.adb_program import DEFAULT_PORT, place_of

    if device.transport_name != "adb":
        return None
    if host := device.options.get("host"):
        try:
            return place_of(str(host), int(device.options.get("port", DEFAULT_PORT)))
        except InvalidValue:
            return None
    return str(device.options.get("serial", "")) or None


def server_runs() -> bool:
    """Whether a server of adb answers where the adb program would look for one; it is not started."""
    if "ADB_SERVER_SOCKET" in os.environ:
        return True  # only adb knows where that is
    port = os.environ.get("ANDROID_ADB_SERVER_PORT", "5037")
    try:
        with socket.create_connection(("127.0.0.1", int(port)), timeout=0.5):
            return True
    except (OSError, ValueError, OverflowError):
        return False


def _plugged_in(root: Path = Path("/sys/bus/usb/devices")) -> bool:
    if not root.is_dir():
        return True  # another system: only adb knows
    for interface in root.glob("*:*"):
        try:
            said = [(interface / f"bInterface{name}").read_text().strip() for name in ("Class", "SubClass")]
        except OSError:
            continue
        if tuple(said) == _DEBUGGING:
            return True
    return False
