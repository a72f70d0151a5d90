"""Whether files can be put on a device and started there: a folder may be read-only, full, or mounted noexec."""

from __future__ import annotations

from hwbench.devices.base import Transport
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable
from hwbench.printable import printable

TIME_LIMIT_S = 30.0

# Writes a program that the device's own shell runs, and starts it; the status of the last step tells which one failed.
SCRIPT = r"""
shell=$(command -v sh)
case $shell in /*) ;; *) shell=/bin/sh; [ -x $shell ] || shell=/system/bin/sh ;; esac
printf '#!%s\nexit 42\n' "$shell" > "$1" || exit 43
chmod 700 "$1" || exit 43
"$1"
status=$?
rm -f "$1"
exit $status
"""
_STARTED, _NOT_WRITTEN = 42, 43


def work_dir_fault(transport: Transport, path: str = "") -> str:
    """Why the work folder of a device does not do, in words; empty where a program written there starts.

    Args:
        transport: To the device.
        path: Of the program that is written, started and removed; default: one among the temporary files.

    Raises:
        DeviceLost: It went away.
        DeviceUnreachable: It went away before, and does not answer.
    """
    try:
        path = path or transport.temporary("start.sh")
        result = transport.run(["sh", "-c", SCRIPT, "sh", path], timeout_s=TIME_LIMIT_S)
    except (DeviceLost, DeviceUnreachable):
        raise
    except DeviceError as error:
        return printable(str(error))
    said = printable(result.stderr, 200)
    if result.timed_out:
        return f"no answer after {TIME_LIMIT_S:g} s"
    if result.status == _STARTED:
        return ""
    if result.status == _NOT_WRITTEN:
        return f"it cannot be written: {said}"
    return f"a program there does not start, as where a disk is mounted noexec: {said or f'status {result.status}'}"
