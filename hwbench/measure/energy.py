"""What a device takes from its supply, where it tells: the energy counter of a processor, or the gauge of a battery.

RAPL (``/sys/class/powercap``, Intel and AMD) counts the joules of whole processor packages. Laptops have the same
counter a second time (``intel-rapl-mmio``), and one of the platform (``psys``) that has the package in it: each package
counts once. A battery's driver tells current and voltage (``/sys/class/power_supply``); of a battery that is being
charged they say nothing about the load. The kernel's unit of current is the microampere; some drivers, of Samsung and
others, tell milliampere.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hwbench.devices import Transport
from hwbench.devices.device_text import decimal, fields, number, sections

TIME_LIMIT_S = 20.0
# Energy status unit of Intel's processors, 2^-14 J (SDM volume 4, MSR_RAPL_POWER_UNIT); AMD's are as fine or finer.
RAPL_UNIT_J = 2.0**-14
_SCRIPT = r"""
for zone in /sys/class/powercap/*:[0-9]*; do
  case ${zone##*/} in *:*:*) continue;; esac
  if [ -r "$zone/energy_uj" ]; then
    echo; echo "== rapl ${zone##*/}"
    for name in name energy_uj max_energy_range_uj; do
      value=
      if [ -r "$zone/$name" ]; then read -r value <"$zone/$name"; fi
      echo "$name: $value"
    done
  fi
done
for supply in /sys/class/power_supply/*; do
  kind= scope=
  if [ -r "$supply/type" ]; then read -r kind <"$supply/type"; fi
  # That of a mouse or a headset has the scope Device.
  if [ -r "$supply/scope" ]; then read -r scope <"$supply/scope"; fi
  if [ "$kind" = Battery ] && [ "$scope" != Device ]; then
    echo; echo "== battery"
    for name in current_now voltage_now status; do
      value=
      if [ -r "$supply/$name" ]; then read -r value <"$supply/$name"; fi
      echo "$name: $value"
    done
    break
  fi
done
"""
# No device under load takes less than 10 mA: a smaller number is in milliampere.
LEAST_UA = 10_000.0
RAPL, FUEL_GAUGE = "rapl", "fuel gauge"


@dataclass(frozen=True)
class EnergyReading:
    """What was read at one moment.

    Attributes:
        packages: Microjoules of each processor package so far, and the number at which its counter starts again.
        current_ua: Out of the battery, in microampere or, by some drivers, milliampere (see ``power``); None: not told.
        voltage_uv: Microvolt of the battery; None: not told.
        charging: The battery is not the supply alone.
    """

    packages: tuple[tuple[int, int], ...] = ()
    current_ua: float | None = None
    voltage_uv: float | None = None
    charging: bool = False

    @property
    def watts(self) -> float | None:
        """Of the battery, where current and voltage are told, with the current in microampere."""
        if self.current_ua is None or self.voltage_uv is None:
            return None
        return abs(self.current_ua) * self.voltage_uv * 1e-12


@dataclass(frozen=True)
class Energy:
    """Mean power over a while, and what it rests on.

    Attributes:
        source: ``rapl`` (processor packages as a whole) or ``fuel gauge`` (the device as a whole); empty: not readable.
        watts: Mean power.
        resolution_watts: What one step of the source is worth: of a fuel gauge the smallest step of its current, at the
            mean voltage, and the whole power where the current never changed.
        readings: Readings that were used.
        reason: Why it is not readable, in words.
    """

    source: str = ""
    watts: float = 0.0
    resolution_watts: float = 0.0
    readings: int = 0
    reason: str = ""


def read_energy(transport: Transport) -> EnergyReading:
    """Asks a device once; what it does not tell is empty.

    Raises:
        DeviceLost: It went away.
    """
    return parse(transport.run(["sh", "-c", _SCRIPT], timeout_s=TIME_LIMIT_S).stdout)


def parse(text: str) -> EnergyReading:
    """Reads what the script prints."""
    parts = sections(text)
    zones = [fields(parts[name]) for name in sorted(parts, key=_mmio_last) if name.startswith("rapl ")]
    packages = [
        (number(zone["energy_uj"], 1 << 62), number(zone.get("max_energy_range_uj", ""), 1 << 62))
        for zone in _packages([zone for zone in zones if zone.get("energy_uj", "").isdigit()])
    ]
    battery = fields(parts.get("battery", ""))
    return EnergyReading(
        tuple(packages),
        decimal(battery.get("current_now", ""), -1e8, 1e8),
        decimal(battery.get("voltage_now", ""), 1e5, 1e8),
        bool(battery) and battery.get("status", "").strip().lower() != "discharging",
    )


def _mmio_last(section: str) -> tuple[bool, str]:
    return "-mmio" in section, section


def _packages(zones: Sequence[dict[str, str]]) -> Sequence[dict[str, str]]:
    """The first zone of each package; all zones where none is called so."""
    by_name: dict[str, dict[str, str]] = {}
    for zone in zones:
        if (name := zone.get("name", "")).startswith("package-"):
            by_name.setdefault(name, zone)
    return list(by_name.values()) or zones


def power(readings: Sequence[tuple[float, EnergyReading]]) -> Energy:
    """Mean power over some readings, each with the second at which it was taken, ascending.

    Currents of a battery are in milliampere where the largest is below 10 000: no device under load takes less than
    10 mA.
    """
    if len(readings) < 2:
        return Energy(reason="fewer than two readings")
    (start, first), (end, last) = readings[0], readings[-1]
    if first.packages and len(first.packages) == len(last.packages) and end > start:
        joules = sum(_counted(readings, index) for index in range(len(first.packages)))
        return Energy(RAPL, joules / (end - start), RAPL_UNIT_J / (end - start), len(readings))
    known = [one for _, one in readings if one.watts is not None]
    if not known:
        return Energy(reason="no energy counter of the processor (RAPL) and no current of a battery can be read")
    if any(one.charging for one in known):
        return Energy(reason="the battery is not discharging: unplug the device, and reach it over Wi-Fi")
    unit = 1e3 if 0 < max(abs(one.current_ua or 0.0) for one in known) < LEAST_UA else 1.0
    watts = statistics.fmean(unit * (one.watts or 0.0) for one in known)
    # The current alone: its step is worth the most, and two products may be as near each other as they like.
    currents = sorted({abs(one.current_ua or 0.0) for one in known})
    step_ua = min((b - a for a, b in pairwise(currents)), default=currents[0])
    volts = statistics.fmean(one.voltage_uv or 0.0 for one in known) * 1e-6
    return Energy(FUEL_GAUGE, watts, unit * step_ua * 1e-6 * volts, len(known))


def _counted(readings: Sequence[tuple[float, EnergyReading]], index: int) -> float:
    """Joules of one package over all readings; a counter that went back has started again."""
    counts = [one.packages[index] for _, one in readings if index < len(one.packages)]
    micro = 0
    for (before, limit), (after, _) in pairwise(counts):
        micro += after - before if after >= before else after - before + limit
    return micro * 1e-6
