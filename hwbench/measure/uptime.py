"""Time that no clock step moves: since the machine started, and which start that was."""

from __future__ import annotations

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """What tells this start of the machine from others; empty where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def since_boot_s() -> float:
    """Seconds since the machine started, those that it slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
