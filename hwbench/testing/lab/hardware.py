"""What a lab device says of itself below /sys and /proc: eight cores in two clusters, clocks, heat, battery, memory.

Processor numbers are those of the host, so that pinning is real: a lab device has eight processors, of which its
commands may use those that the host has (as a phone's cpuset keeps apps from some). The first of the usable ones is a
little core, the next four are big ones, so that on two processors there is one of each and taking the wrong one shows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CORES = 8
BIG_CORES = 4


@dataclass(frozen=True)
class VirtualCluster:
    """Equal cores. ``part`` is the number in /proc/cpuinfo; ``capacity`` is relative to 1024."""

    part: str
    capacity: int
    min_khz: int
    max_khz: int


@dataclass(frozen=True)
class Processor:
    """What a lab device executes: the emulator's name of it, the features it tells, and its two clusters."""

    emulated: str
    features: str
    little: VirtualCluster
    big: VirtualCluster


# Of ARMv8.2, with half precision and dot products.
CORTEX_A76 = Processor(
    "cortex-a76",
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp",
    VirtualCluster("0xd05", 430, 300_000, 1_800_000),
    VirtualCluster("0xd0b", 1024, 500_000, 2_400_000),
)
# Of ARMv8.0, as in a Raspberry Pi 3: it has neither; both clusters are of one kind, clocked apart.
CORTEX_A53 = Processor(
    "cortex-a53",
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid",
    VirtualCluster("0xd03", 768, 300_000, 1_200_000),
    VirtualCluster("0xd03", 1024, 500_000, 1_600_000),
)
MEMORY_KB = 3_906_250
GOVERNORS = "schedutil performance powersave userspace"
# Zones: what a phone's kernel calls them, and degrees above the case when idle.
ZONES = {"cpu-little": 2.0, "cpu-big": 4.0, "battery": 0.0}
CASE_CELSIUS = 28.0


def usable() -> tuple[int, ...]:
    """The processors that commands of a lab device run on: at most eight of those that this process may use."""
    return tuple(sorted(os.sched_getaffinity(0))[:CORES])


def clusters(processor: Processor) -> dict[int, VirtualCluster]:
    """The cluster of each processor; see the top of this file."""
    allowed = usable()
    count = max(CORES, allowed[-1] + 1)
    order = [*allowed[1:], *(cpu for cpu in range(count) if cpu not in allowed), allowed[0]]
    return {cpu: processor.big if cpu in order[:BIG_CORES] else processor.little for cpu in range(count)}


def write_sys(root: Path, processor: Processor) -> None:
    """Fills ``root``/sys."""
    cpus = clusters(processor)
    folder = root / "sys/devices/system/cpu"
    everything = f"0-{len(cpus) - 1}"
    for name in ("possible", "present", "online"):
        write(folder / name, everything)
    for index, cluster in cpus.items():
        _write_cpu(folder / f"cpu{index}", index, cluster, [i for i, other in cpus.items() if other is cluster])
    for number, name in enumerate(ZONES):
        write(root / f"sys/class/thermal/thermal_zone{number}/type", name)
    battery = root / "sys/class/power_supply/battery"
    for name, value in {"type": "Battery", "present": "1", "technology": "Li-ion"}.items():
        write(battery / name, value)


def _write_cpu(folder: Path, index: int, cluster: VirtualCluster, siblings: list[int]) -> None:
    listed = ",".join(map(str, siblings))
    values = {
        "online": "1",
        "cpu_capacity": cluster.capacity,
        "topology/core_id": index,
        "topology/physical_package_id": 0,
        "topology/core_siblings_list": listed,
        "topology/cluster_cpus_list": listed,
        "topology/thread_siblings_list": index,
        "cpufreq/cpuinfo_min_freq": cluster.min_khz,
        "cpufreq/cpuinfo_max_freq": cluster.max_khz,
        "cpufreq/scaling_min_freq": cluster.min_khz,
        "cpufreq/scaling_max_freq": cluster.max_khz,
        "cpufreq/scaling_cur_freq": cluster.max_khz,
        "cpufreq/scaling_governor": "schedutil",
        "cpufreq/scaling_available_governors": GOVERNORS,
        "cpufreq/scaling_available_frequencies": f"{cluster.min_khz} {cluster.max_khz}",
        "cpufreq/related_cpus": listed.replace(",", " "),
        "cpufreq/stats/time_in_state": f"{cluster.min_khz} 1000\n{cluster.max_khz} 1000",
        "regs/identification/midr_el1": f"0x00000000414f{cluster.part[2:]}0",
    }
    for name, value in values.items():
        write(folder / name, str(value))


def cpuinfo(processor: Processor) -> str:
    """The text of /proc/cpuinfo."""
    blocks = [
        f"processor\t: {index}\nBogoMIPS\t: 38.40\nFeatures\t: {processor.features}\nCPU implementer\t: 0x41\n"
        f"CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {cluster.part}\nCPU revision\t: 0\n"
        for index, cluster in clusters(processor).items()
    ]
    return "\n".join(blocks) + "\n"


def meminfo() -> str:
    """The text of /proc/meminfo."""
    kilobytes = {"MemTotal": MEMORY_KB, "MemFree": MEMORY_KB // 2, "MemAvailable": MEMORY_KB * 3 // 4, "SwapTotal": 0}
    return "".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in kilobytes.items())


def write(path: Path, text: str) -> None:
    """One value as the kernel shows it, with a line end; the folder is made. Also where the device may not write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    locked = path.exists() and not os.access(path, os.W_OK)
    if locked:
        path.chmod(0o644)
    path.write_text(f"{text}\n")
    if locked:
        path.chmod(0o444)
