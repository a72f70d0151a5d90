"""One lab device as a process: ``python3 -m hwbench.testing.lab.serve ssh|adb SERIAL``, until it is told to end.

When the device is up, one line of JSON on stdout says how it is reached: ``options`` and ``work_dir`` of a device file.
Where something is not installed, the line says what is ``missing``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

from hwbench.errors import MissingDependency
from hwbench.testing.lab.devices import LabDevice, android_phone, ssh_board

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(over: str, serial: str) -> None:
    """Serves until SIGTERM; ``serial`` is the number that a phone says it has."""
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        with contextlib.ExitStack() as stack:
            device = _device(over, serial, stack)
            _say({"options": device.options, "work_dir": device.work_dir})
            os.close(sys.stdout.fileno())  # whoever started this need not wait for more
            while True:
                signal.pause()
    except MissingDependency as error:
        _say({"missing": str(error)})
        sys.exit(1)


def _device(over: str, serial: str, stack: contextlib.ExitStack) -> LabDevice:
    if over == "ssh":
        return stack.enter_context(ssh_board())
    return stack.enter_context(android_phone(serial=serial, connected=False))  # clients have an adb server of their own


def _say(values: dict[str, object]) -> None:
    print(json.dumps(values), flush=True)


def _end(number: int, frame: object) -> None:
    for other in _ENDING:
        signal.signal(other, signal.SIG_IGN)  # once is enough: what was started is taken down now
    raise SystemExit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
