"""A device in words, for people: what a probe found, and which of its processors are worth pinning to."""

from __future__ import annotations

from collections.abc import Mapping

from hwbench.devices.device_text import format_cpu_list
from hwbench.devices.probe import Cluster, Cpu, Probe
from hwbench.devices.state import Battery, DeviceState
from hwbench.printable import printable
from hwbench.units import format_bytes

# A line of a table or a comment; getprop may say anything.
MAX_VALUE = 300


def big_cores(probe: Probe) -> tuple[int, ...]:
    """The processors that are worth pinning to, best first, one per core: all but those of the slowest kind.

    Where all are of one kind, it is all of them.
    """
    usable = {cpu.index: cpu for cpu in probe.cpus if cpu.index in probe.allowed}
    ranked = probe.fastest(len({cpu.core for cpu in usable.values()}))
    slowest = min((_speed(cpu) for cpu in usable.values()), default=None)
    return tuple(index for index in ranked if _speed(usable[index]) != slowest) or ranked


def _speed(cpu: Cpu) -> tuple[int, int]:
    return cpu.capacity, cpu.max_khz


def describe(probe: Probe) -> list[tuple[str, str]]:
    """What a device is, as pairs of a word and a line; nothing in it moves a cursor or ends a line."""
    facts = [
        ("model", probe.model),
        ("chip", probe.soc),
        ("build", probe.build),
        ("kernel", probe.kernel),
        ("ABI", f"{probe.abi}, of a {probe.arch} kernel" if probe.abi != probe.arch else probe.abi),
        ("API level", str(probe.api_level or "")),
        ("libc", probe.libc),
        ("features", " ".join(probe.features)),
        *(("processors", _cluster(cluster)) for cluster in probe.clusters),
        ("memory", format_bytes(probe.memory_bytes) if probe.memory_bytes else ""),
        ("governor", probe.governor),
        ("virtual", "yes: neighbours disturb timings" if probe.virtualised else ""),
        ("fingerprint", probe.fingerprint),
    ]
    return [(name, printable(value, MAX_VALUE)) for name, value in facts if value]


def describe_state(state: DeviceState) -> list[tuple[str, str]]:
    """How a device is doing, as ``describe``."""
    facts = [
        ("temperature", _hottest(state)),
        ("battery", _battery(state.battery)),
        ("load", "" if state.load is None else f"{state.load:.2f}"),
        ("clocks", _clocks(state.clocks_khz or {})),
        ("free space", "" if state.free_bytes is None else format_bytes(state.free_bytes)),
        ("up since", "" if state.uptime_s is None else f"{state.uptime_s / 3600:.1f} h"),
        ("screen", {True: "on", False: "off", None: ""}[state.screen_on]),
        ("battery saver", "on: it slows the processors down" if state.battery_saver else ""),
    ]
    return [(name, printable(value, MAX_VALUE)) for name, value in facts if value]


def _cluster(cluster: Cluster) -> str:
    clock = f"up to {cluster.max_khz / 1e6:.2f} GHz" if cluster.max_khz else "clock unknown"
    size = f", capacity {cluster.capacity}" if cluster.capacity else ""
    return f"{format_cpu_list(cluster.cpus)}: {len(cluster.cpus)} x {cluster.part}, {clock}{size}"


def _hottest(state: DeviceState) -> str:
    hottest = state.hottest
    return f"{hottest.celsius:.1f} °C ({hottest.name}), {len(state.temperatures)} sensors" if hottest else ""


def _battery(battery: Battery | None) -> str:
    if battery is None:
        return ""
    level = "level unknown" if battery.level is None else f"{battery.level} %"
    heat = "" if battery.celsius is None else f", {battery.celsius:.1f} °C"
    return f"{level}, {battery.status}{heat}"


def _clocks(clocks_khz: Mapping[int, int]) -> str:
    return ", ".join(f"{cpu}: {khz / 1e6:.2f} GHz" for cpu, khz in sorted(clocks_khz.items()))
