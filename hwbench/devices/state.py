"""What changes on a device from minute to minute: heat, clocks, battery, load, space. Read before and after measuring.

One round trip; what a device does not say is None, 0 or empty. A service of Android that hangs costs its own value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hwbench.devices.base import Transport
from hwbench.devices.device_text import MAX_CPUS, clean, decimal, fields, number, sections

TIME_LIMIT_S = 60.0

# Portable as the script of ``probe.py``. Its argument is the folder whose free space counts, or will be made there.
SCRIPT = r"""
for file in /proc/sys/kernel/random/boot_id /proc/uptime /proc/loadavg /proc/meminfo; do
  if [ -r "$file" ]; then echo; echo "== $file"; cat "$file" 2>/dev/null; fi
done
folder=$1
while [ -n "$folder" ] && [ "$folder" != / ] && [ ! -d "$folder" ]; do folder=$(dirname -- "$folder"); done
echo; echo "== df"; df -Pk -- "$folder" 2>/dev/null || df -k "$folder" 2>/dev/null
echo; echo "== blocks"; stat -f -c '%a %S' "$folder" 2>/dev/null
for name in scaling_cur_freq scaling_governor scaling_min_freq scaling_max_freq; do
  echo; echo "== $name"
  for file in /sys/devices/system/cpu/cpu[0-9]*/cpufreq/$name; do
    if [ -r "$file" ]; then value=; read -r value <"$file"; echo "$file: $value"; fi
  done
done
echo; echo "== zones"
for zone in /sys/class/thermal/thermal_zone*; do
  if [ -r "$zone/temp" ]; then
    value= kind=
    read -r value <"$zone/temp"; read -r kind <"$zone/type"
    echo "${zone##*/thermal_zone}:$value:$kind"
  fi
done
for supply in /sys/class/power_supply/*; do
  kind= scope=
  if [ -r "$supply/type" ]; then read -r kind <"$supply/type"; fi
  # That of a mouse or a headset has the scope Device.
  if [ -r "$supply/scope" ]; then read -r scope <"$supply/scope"; fi
  if [ "$kind" = Battery ] && [ "$scope" != Device ]; then
    echo; echo "== supply"
    for name in capacity status temp; do
      value=
      if [ -r "$supply/$name" ]; then read -r value <"$supply/$name"; fi
      echo "$name: $value"
    done
    break
  fi
done
if command -v dumpsys >/dev/null 2>&1; then
  echo; echo "== battery"; dumpsys battery 2>/dev/null
  echo; echo "== thermal"; dumpsys thermalservice 2>/dev/null
  echo; echo "== power"; dumpsys power 2>/dev/null | grep -E "^ *(mWakefulness=|Display Power: state=)"
  echo; echo "== saver"; settings get global low_power 2>/dev/null
fi
"""

_CHARGING = {2: "charging", 3: "discharging", 4: "not charging", 5: "full"}
# Android's kinds of temperatures that are no limit of current or charge.
_KINDS = {0: "cpu", 1: "gpu", 2: "battery", 3: "skin", 9: "npu"}
_HAL = re.compile(r"Temperature\{mValue=(-?[0-9.]{1,20}), mType=([0-9]{1,3}), mName=([^,}]{1,100}), mStatus=[0-9]")
_FREQUENCY = re.compile(r"/sys/devices/system/cpu/cpu([0-9]{1,4})/cpufreq/\w+")
# Qualcomm's zones of the state of charge, in percent: "soc" of kernels 4.x, and "socd", which is 100 minus it.
_CHARGE = ("soc", "socd")
# Sensors beyond this number are not kept.
MAX_ZONES = 200


@dataclass(frozen=True)
class Temperature:
    """One sensor, by the name that the device gives it."""

    name: str
    celsius: float


@dataclass(frozen=True)
class Battery:
    """Charge in percent; ``status`` is charging, discharging, not charging, full or unknown."""

    level: int | None
    status: str
    celsius: float | None = None


@dataclass(frozen=True)
class DeviceState:
    """A device at one moment.

    ``load`` is the mean number of runnable tasks over a minute (on Linux, waiting ones count too), ``free_bytes`` is
    the space where files go, ``thermal_status`` Android's own word from 0 (none) to 6 (shutdown).
    """

    boot: str = ""
    uptime_s: float | None = None
    load: float | None = None
    memory_available_bytes: int | None = None
    free_bytes: int | None = None
    governors: Mapping[int, str] | None = None
    clocks_khz: Mapping[int, int] | None = None
    clock_limits_khz: Mapping[int, tuple[int, int]] | None = None
    temperatures: tuple[Temperature, ...] = ()
    thermal_status: int | None = None
    battery: Battery | None = None
    screen_on: bool | None = None
    battery_saver: bool | None = None

    @property
    def hottest(self) -> Temperature | None:
        """The hottest sensor of the chip; of all, where none is known to be one of the chip."""
        chip = re.compile(r"cpu|soc|big|little|mid|cluster|core|apc|x86_pkg|acpitz|tsens", re.IGNORECASE)
        known = [t for t in self.temperatures if chip.search(t.name)] or list(self.temperatures)
        return max(known, key=lambda t: t.celsius, default=None)

    def as_json(self) -> dict[str, Any]:
        """For records; what is not known is left out."""
        return {name: value for name, value in asdict(self).items() if value not in (None, "", (), {})}


def read_state(transport: Transport, work_dir: str = "/tmp") -> DeviceState:
    """Asks a device how it is; ``work_dir`` is where its files go.

    Raises:
        DeviceLost: It went away.
    """
    return parse(transport.run(["sh", "-c", SCRIPT, "hwbench", work_dir], timeout_s=TIME_LIMIT_S).stdout)


def parse(text: str) -> DeviceState:
    """Reads what ``SCRIPT`` prints, also the first half of it."""
    parts = sections(text)
    hal = parts.get("thermal", "")
    status = re.search(r"^Thermal Status: ([0-6])\s*$", hal, re.MULTILINE)
    limits = (_by_cpu(parts.get(f"scaling_{end}_freq", "")) for end in ("min", "max"))
    low, high = ({cpu: number(value) for cpu, value in values.items()} for values in limits)
    return DeviceState(
        boot=clean(parts.get("/proc/sys/kernel/random/boot_id", ""), 36),
        uptime_s=decimal(_word(parts.get("/proc/uptime", "")), 0, 1e10),
        load=decimal(_word(parts.get("/proc/loadavg", "")), 0, 1e6),
        memory_available_bytes=_available(fields(parts.get("/proc/meminfo", ""))),
        free_bytes=_free(parts.get("df", ""), parts.get("blocks", "")),
        governors={cpu: clean(value, 32) for cpu, value in _by_cpu(parts.get("scaling_governor", "")).items()},
        clocks_khz={cpu: number(value) for cpu, value in _by_cpu(parts.get("scaling_cur_freq", "")).items()},
        clock_limits_khz={cpu: (low[cpu], high[cpu]) for cpu in low if cpu in high},
        temperatures=_zones(parts.get("zones", "")) or _hal(hal),
        thermal_status=int(status[1]) if status else None,
        battery=_battery(fields(parts.get("battery", ""))) or _supply(parts),
        screen_on=_screen(parts.get("power", "")),
        battery_saver={"0": False, "1": True}.get(parts.get("saver", "")),
    )


def _word(text: str) -> str:
    return (text.split() or [""])[0]


def _available(memory: Mapping[str, str]) -> int | None:
    """Kernels before 3.14 do not say what is available; what is free is less."""
    found = memory.get("MemAvailable") or memory.get("MemFree")
    return number(found.removesuffix("kB")) * 1024 if found else None


def _free(table: str, blocks: str) -> int | None:
    """Of ``df`` the number before the percentage, in kilobytes; a long name of a disk may have a line of its own.

    Where it finds no disk, as in a changed root, the number and size of free blocks.
    """
    found = re.search(r"\s([0-9]{1,15})\s+[0-9]{1,3}%(\s|$)", "\n".join(table.splitlines()[1:]))
    if found:
        return int(found[1]) * 1024
    pair = re.fullmatch(r"([0-9]{1,15}) ([0-9]{1,7})", blocks)
    return int(pair[1]) * int(pair[2]) if pair else None


def _by_cpu(text: str) -> dict[int, str]:
    found = {}
    for name, value in fields(text).items():
        match = _FREQUENCY.fullmatch(name)
        if match and int(match[1]) < MAX_CPUS and value:
            found[int(match[1])] = value
    return found


def _zones(text: str) -> tuple[Temperature, ...]:
    """Lines ``number:reading:type``; dead sensors say impossible values."""
    found = []
    for line in text.splitlines()[:MAX_ZONES]:
        index, _, rest = line.partition(":")
        value, _, kind = rest.partition(":")
        raw = decimal(value, -60_000, 200_000)
        if raw is not None and not (kind.strip().lower() in _CHARGE and raw <= 100):
            celsius = _celsius(raw)
            if 0 < celsius < 150:
                found.append(Temperature(clean(kind, 40) or f"zone {clean(index, 4)}", celsius))
    return tuple(found)


def _celsius(reading: float) -> float:
    """Zones tell millidegrees, some old phones' tenths or whole degrees; told apart as the runners do."""
    return reading if reading < 150 else reading / 10 if reading < 1500 else reading / 1000


def _hal(text: str) -> tuple[Temperature, ...]:
    """What Android's service says, where the files are not for us; its cache, which may be old, does not count."""
    current = text.partition("Current temperatures from HAL:")[2].partition("Current cooling devices")[0]
    found = []
    for value, kind, name in _HAL.findall(current)[:MAX_ZONES]:
        celsius = decimal(value, 0.1, 150)
        if celsius is not None and int(kind) in _KINDS:
            found.append(Temperature(f"{_KINDS[int(kind)]} {clean(name, 40)}", celsius))
    return tuple(found)


def _battery(said: Mapping[str, str]) -> Battery | None:
    """Of ``dumpsys battery``; temperatures are in tenths of a degree."""
    if "level" not in said or said.get("present") == "false":
        return None
    scale = number(said.get("scale", "100"), 100_000) or 100
    level = _share(said["level"], scale)
    tenths = decimal(said.get("temperature", ""), -600, 1500)
    status = _CHARGING.get(number(said.get("status", "")), "unknown")
    return Battery(level, status, tenths / 10 if tenths is not None else None)


def _supply(parts: Mapping[str, str]) -> Battery | None:
    """Of /sys/class/power_supply."""
    if "supply" not in parts:
        return None
    said = fields(parts["supply"])
    status = clean(said.get("status", ""), 20).lower()
    tenths = decimal(said.get("temp", ""), -600, 1500)
    known = status if status in _CHARGING.values() else "unknown"
    return Battery(_share(said.get("capacity", ""), 100), known, tenths / 10 if tenths is not None else None)


def _share(level: str, scale: int) -> int | None:
    value = decimal(level, 0, scale)
    return round(100 * value / scale) if value is not None else None


def _screen(text: str) -> bool | None:
    """A phone may be awake with its screen off for an instant only; what it says of itself first counts."""
    found = re.search(r"mWakefulness=(\w{1,20})", text)
    if found:
        return found[1] == "Awake"
    shown = re.search(r"Display Power: state=(\w{1,20})", text)
    return shown[1] == "ON" if shown else None
