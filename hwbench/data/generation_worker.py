"""One process that encodes a share of a generated set, started by ``generation``; ends when its stdin closes.

Run as ``python -m hwbench.data.generation_worker KIND SPEC FOLDER SHARE SHARES``; ``SPEC`` is a JSON object.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from hwbench.data.builtin import spec_of
from hwbench.data.generation import encode_share
from hwbench.errors import HwbenchError


def main() -> int:
    """Encodes the share that the arguments name; the exit status."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    kind, values, folder, share, shares = sys.argv[1:]
    try:
        encode_share(Path(folder), spec_of(kind, json.loads(values)), int(share), int(shares))
    except HwbenchError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


def _end_with_stdin() -> None:
    # Not sys.stdin: its lock would be held when the interpreter shuts down.
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
