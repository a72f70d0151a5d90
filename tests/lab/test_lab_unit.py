"""A board of the laboratory under two names is one board."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hwbench.devices import occupied
from hwbench.devices.base import Address, transports
from hwbench.devices.unit import BOOT_ID
from hwbench.errors import DeviceBusy
from hwbench.testing.lab import VirtualBoard

HOLD = """
import sys
from hwbench.devices import leased
with leased("ssh:board.local:22"), leased(f"boot:{sys.argv[1]}", "ssh:board.local:22"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_19_14_a_board_of_the_laboratory_is_held_by_what_it_is(
    board: VirtualBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    boot = (board.machine.folder / "proc" / "boot_id").read_text().strip()
    assert boot != Path(BOOT_ID).read_text().strip(), "this machine may be measured beside it"
    other = subprocess.Popen([sys.executable, "-c", HOLD, boot], stdin=-1, stdout=-1, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    try:
        with transports.get("ssh").connect(Address("board", board.options, board.work_dir)) as transport:
            expected = rf"{transport.identity} is in use by process {other.pid} .*, as ssh:board\.local:22, since"
            with pytest.raises(DeviceBusy, match=expected), occupied(transport):
                pass
    finally:
        other.communicate()
