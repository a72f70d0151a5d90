"""The laboratory: devices without hardware, behind a real sshd and behind an adbd of ours for the real adb program.

``ssh_board`` and ``android_phone`` give one that is up, with its options for a device file and its faults; both lead
into an aarch64 root under proot and qemu. Timings taken there are no latencies: such devices are ``emulated``.
"""

from hwbench.devices.laboratory import requirements
from hwbench.testing.lab.devices import (
    LabDevice,
    VirtualBoard,
    VirtualPhone,
    adb_server,
    android_phone,
    jump_host,
    ssh_board,
)
from hwbench.testing.lab.hardware import CORTEX_A53, CORTEX_A76
from hwbench.testing.lab.machine import VirtualMachine
from hwbench.testing.lab.needs import REQUIRED, skip_if_missing
from hwbench.testing.lab.network import Direction, VirtualNetwork

__all__ = [
    "CORTEX_A53",
    "CORTEX_A76",
    "REQUIRED",
    "VirtualBoard",
    "Direction",
    "LabDevice",
    "VirtualMachine",
    "VirtualNetwork",
    "VirtualPhone",
    "adb_server",
    "android_phone",
    "jump_host",
    "requirements",
    "skip_if_missing",
    "ssh_board",
]
