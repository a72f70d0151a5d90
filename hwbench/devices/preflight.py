"""What speaks against measuring on a device now, or at all: one finding each, with the command that mends it."""

from __future__ import annotations

import enum
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from hwbench.devices.base import Transport
from hwbench.devices.control import Conditions
from hwbench.devices.device import Device
from hwbench.devices.device_text import clean, sections
from hwbench.devices.probe import Probe, probe_device
from hwbench.devices.quota import quota
from hwbench.devices.state import DeviceState, read_state
from hwbench.units import format_bytes

# Below the first nothing is measured, below the second it may end before a campaign does.
BATTERY_REFUSED, BATTERY_LOW = 10, 30
# Batteries charge slower and phones throttle from about 40 degrees on; at 45 most stop charging.
BATTERY_WARM, BATTERY_HOT = 40.0, 45.0
# Chips throttle between 80 and 105 degrees, phones earlier by their skin.
CHIP_WARM, CHIP_HOT = 75.0, 95.0
# Android's words: from light on it has begun to throttle; severe is felt by whoever holds it.
THERMAL_LIGHT, THERMAL_SEVERE = 1, 3
# The runner with its libraries has some 20 MB, the files of a space some hundreds.
SPACE_REFUSED_BYTES, SPACE_LOW_BYTES = 50 << 20, 500 << 20
MEMORY_REFUSED_BYTES, MEMORY_LOW_BYTES = 100 << 20, 500 << 20
# Of a core's time; a core that is shared gives times of the other's making.
BUSY_SHARE = 0.1
# Runnable tasks per usable core, over a minute. Android counts ones that wait, so it says nothing there.
LOAD_PER_CORE = 0.5

COOLING_S, COOLING_PAUSE_S = 180.0, 10.0
TIME_LIMIT_S = 30.0

_BUSY = r"""
for turn in 1 2; do
  echo "== cores $turn"; cat /proc/stat 2>/dev/null
  echo "== tasks $turn"; cat /proc/[0-9]*/stat 2>/dev/null
  if [ $turn = 1 ]; then sleep 1; fi
done
"""


class Level(enum.StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, as a sentence; ``command`` mends it, where a command can."""

    name: str
    level: Level
    sentence: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}{f'; {self.command}' if self.command else ''}"


@dataclass(frozen=True)
class Busy:
    """Shares of the time of each processor that others used during a second, and who used most of all (of one core)."""

    cores: Mapping[int, float]
    name: str = ""
    share: float = 0.0


def examine(device: Device, transport: Transport) -> list[Finding]:
    """Looks at everything; takes a little more than a second.

    Raises:
        DeviceError: The device does not describe itself.
        DeviceLost: It went away.
    """
    probe = probe_device(transport)
    busy = read_busy(transport)
    state = read_state(transport, device.files_dir)
    return [*lasting(device, probe), *passing(device, probe, state, busy)]


def lasting(device: Device, probe: Probe) -> Iterator[Finding]:
    """What stays as it is: the kind of machine, the limits of a container, and the rule for its clocks."""
    if probe.virtualised:
        advice = "prefer real hardware for numbers that are published"
        yield Finding("hardware", Level.WARNING, "a virtual machine: neighbours disturb timings", advice)
    else:
        yield Finding("hardware", Level.OK, "no sign of a virtual machine")
    if probe.narrow:
        sentence = f"its programs have 32 bits ({probe.abi}) on a kernel of 64: the runner needs a system of 64 bits"
        yield Finding("ABI", Level.REFUSE, sentence)
    share = quota(device)
    if share is not None and share < len(probe.allowed):
        sentence = f"the container leaves {share:.3g} of {len(probe.allowed)} processors"
        if device.threads <= share:
            yield Finding("quota", Level.OK, sentence)
        else:
            advice = "start it with more, such as docker run --cpus"
            yield Finding("quota", Level.WARNING, f"{sentence}: times include throttling", advice)
    slow = {"powersave", "conservative"} & set(probe.governor.split(","))
    if slow and not probe.android:
        advice = f'conditions = "controlled" in the device.toml of {device.name} holds the highest clock'
        yield Finding("governor", Level.WARNING, f"{probe.governor}: the clock follows the load slowly", advice)
    else:
        yield Finding("governor", Level.OK, probe.governor)
    if device.conditions is Conditions.STOCK and (switched := turbo_switched(device, probe)):
        yield switched


def turbo_switched(device: Device, probe: Probe) -> Finding | None:
    """That turbo is on and was off when the device was added, or the other way; None: it is as it was, or not known."""
    if device.turbo in ("", probe.turbo) or not probe.turbo:
        return None
    sentence = f"{probe.turbo} now, {device.turbo} when the device was added: times differ from those of before"
    back = f"switch it {device.turbo}, there as root: {probe.turbo_on or probe.turbo_off}"
    advice = f"{back}; to measure with it as it is now: hwbench devices add {device.name} --force"
    return Finding("turbo", Level.WARNING, sentence, advice)


def passing(device: Device, probe: Probe, state: DeviceState, busy: Busy | None = None) -> Iterator[Finding]:
    """What may be another way in a minute. What a device does not tell gives no finding."""
    yield from _battery(state)
    if (warmth := heat(state)) is not None:
        yield warmth
    yield from _load(probe, state, busy)
    yield from _room(state)
    if state.screen_on is False:
        advice = on_device(device, "input keyevent KEYCODE_WAKEUP")
        yield Finding("screen", Level.WARNING, "off: phones slow down or stop what runs while they sleep", advice)
    elif state.screen_on:
        yield Finding("screen", Level.OK, "on")
    if state.battery_saver:
        advice = on_device(device, "settings put global low_power 0")
        yield Finding("battery saver", Level.WARNING, "on: it limits the clocks", advice)


def heat(state: DeviceState) -> Finding | None:
    """Whether it is too warm for steady clocks; None where the device does not tell."""
    battery = state.battery.celsius if state.battery else None
    chip = state.hottest
    known = [f"thermal status {state.thermal_status}"] if state.thermal_status is not None else []
    known += [f"{chip.name} {chip.celsius:.0f} °C"] if chip else []
    known += [f"battery {battery:.0f} °C"] if battery is not None else []
    if not known:
        return None
    readings = (
        (state.thermal_status, THERMAL_LIGHT, THERMAL_SEVERE),
        (battery, BATTERY_WARM, BATTERY_HOT),
        (chip.celsius if chip else None, CHIP_WARM, CHIP_HOT),
    )
    level = max(_level(*reading) for reading in readings)
    advice = "" if level == 0 else "let it lie for some minutes, out of its case and off its charger"
    return Finding("heat", (Level.OK, Level.WARNING, Level.REFUSE)[level], ", ".join(known), advice)


def _level(value: float | None, warm: float, hot: float) -> int:
    return 0 if value is None or value < warm else 1 if value < hot else 2


def wait_until_cool(
    device: Device,
    transport: Transport,
    state: DeviceState,
    report: Callable[[str], None],
    *,
    limit_s: float = COOLING_S,
    pause_s: float = COOLING_PAUSE_S,
    sleep: Callable[[float], None] = time.sleep,
) -> DeviceState:
    """Waits while a device is too warm, at most ``limit_s``; says so. Returns its state then.

    Raises:
        DeviceLost: It went away.
    """
    waited = 0.0
    warm = _warm(state)
    if warm:
        report(f"the device is warm ({warm}): waiting up to {limit_s:.0f} s for it to cool ...")
    while warm and waited < limit_s:
        sleep(pause_s)
        waited += pause_s
        state = read_state(transport, device.files_dir)
        warm = _warm(state)
    if warm:
        report(f"still warm after {waited:.0f} s ({warm}): measuring all the same; clocks may be held down")
    elif waited:
        report(f"cool enough after {waited:.0f} s")
    return state


def _warm(state: DeviceState) -> str:
    finding = heat(state)
    return finding.sentence if finding and finding.level is not Level.OK else ""


def _battery(state: DeviceState) -> Iterator[Finding]:
    if state.battery is None or state.battery.level is None:
        return
    level, status = state.battery.level, state.battery.status
    sentence = f"{level} %, {status}"
    if level < BATTERY_LOW and status != "charging":
        refused = Level.REFUSE if level < BATTERY_REFUSED else Level.WARNING
        yield Finding("battery", refused, f"{sentence}: it may end before the run does", "plug it in")
    elif status == "charging" and level < BATTERY_LOW:
        advice = f"wait until it has {BATTERY_LOW} %"
        yield Finding("battery", Level.WARNING, f"{sentence}: charging an empty battery heats the chip", advice)
    else:
        yield Finding("battery", Level.OK, sentence)


def _load(probe: Probe, state: DeviceState, busy: Busy | None) -> Iterator[Finding]:
    if busy is not None and busy.cores:
        if shared := _shared(probe, busy):
            cores = ", ".join(f"{cpu} for {share:.0%}" for cpu, share in sorted(shared.items()))
            most = f"; most of it by {busy.name!r} ({busy.share:.0%} of a core)" if busy.share > BUSY_SHARE else ""
            yield Finding("cores", Level.WARNING, f"in use by others: {cores} of the time{most}", "end what runs there")
        else:
            yield Finding("cores", Level.OK, "nobody else uses them")
    if state.load is None or probe.android:
        return
    free_now = busy is not None and bool(busy.cores) and not _shared(probe, busy)
    if not crowded(probe, state):
        yield Finding("load", Level.OK, f"{state.load:.2f}")
    elif free_now:  # such as what was built for this very measurement
        yield Finding("load", Level.OK, f"{state.load:.1f} over the last minute, of programs that rest now")
    else:
        sentence = f"{state.load:.1f} over the last minute on {_count(probe)} cores: others use them too"
        yield Finding("load", Level.WARNING, sentence, "end what runs there, or wait")


def crowded(probe: Probe, state: DeviceState) -> bool:
    """Whether the load of the last minute was more than the usable cores carry unnoticed; ``read_busy`` says what is
    so now.
    """
    return state.load is not None and not probe.android and state.load > LOAD_PER_CORE * _count(probe)


def _count(probe: Probe) -> int:
    return max(1, len(probe.allowed))


def _shared(probe: Probe, busy: Busy) -> dict[int, float]:
    """The usable cores that others use, and for what share of the time."""
    return {cpu: share for cpu, share in busy.cores.items() if cpu in probe.allowed and share > BUSY_SHARE}


def _room(state: DeviceState) -> Iterator[Finding]:
    limits = (
        ("space", state.free_bytes, SPACE_REFUSED_BYTES, SPACE_LOW_BYTES, "for files"),
        ("memory", state.memory_available_bytes, MEMORY_REFUSED_BYTES, MEMORY_LOW_BYTES, "of memory"),
    )
    for name, free, refused, low, purpose in limits:
        if free is None:
            continue
        sentence = f"{format_bytes(free)} {purpose}"
        if free >= low:
            yield Finding(name, Level.OK, sentence)
        else:
            level = Level.REFUSE if free < refused else Level.WARNING
            yield Finding(name, level, sentence, f"free some: {format_bytes(low)} are enough for most")


def on_device(device: Device, command: str) -> str:
    """The command line that runs a command on a device from here."""
    if device.transport_name == "adb":
        serial = device.options.get("serial") or device.options.get("host")
        return f"adb{f' -s {shlex.quote(str(serial))}' if serial else ''} shell {command}"
    if device.transport_name == "ssh":
        return f"ssh {shlex.quote(str(device.options.get('host', device.name)))} {command}"
    return command


def read_busy(transport: Transport) -> Busy:
    """Watches the processors for a second.

    Raises:
        DeviceLost: The device went away.
    """
    return parse_busy(transport.run(["sh", "-c", _BUSY], timeout_s=TIME_LIMIT_S).stdout)


def parse_busy(text: str) -> Busy:
    """Reads two copies of /proc/stat and of /proc/*/stat, as ``sections`` takes them apart."""
    parts = sections(text)
    first, second = (_cores(parts.get(f"cores {turn}", "")) for turn in (1, 2))
    shares = {}
    for cpu, (busy, total) in second.items():
        if cpu in first and total > first[cpu][1]:
            used = (busy - first[cpu][0]) / (total - first[cpu][1])
            shares[cpu] = min(max(used, 0.0), 1.0)
    ticks = max((total - first[cpu][1] for cpu, (_, total) in second.items() if cpu in first), default=0)
    before, after = (_tasks(parts.get(f"tasks {turn}", "")) for turn in (1, 2))
    used_by = {task: ticks_used - before[task] for task, ticks_used in after.items() if task in before}
    most = max(used_by, key=lambda task: used_by[task], default=None)
    if most is None or ticks <= 0:
        return Busy(shares)
    return Busy(shares, most[1], min(max(used_by[most] / ticks, 0.0), float(max(1, len(shares)))))


def _cores(text: str) -> dict[int, tuple[int, int]]:
    """Busy and all ticks by processor; waiting for a disk is no use of a processor."""
    found = {}
    for match in re.finditer(r"^cpu([0-9]{1,4}) ([0-9 ]{1,300})$", text, re.MULTILINE):
        ticks = [int(word[:18]) for word in match[2].split()][:8]
        if len(ticks) >= 4:
            idle = sum(ticks[3:5])
            found[int(match[1])] = (sum(ticks) - idle, sum(ticks))
    return found


def _tasks(text: str) -> dict[tuple[int, str], int]:
    """Ticks by number and name of a process; a name may have any character, parentheses too."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"([0-9]{1,10}) \((.{0,64})\) . (.*)", line)
        rest = match[3].split() if match else []
        if match and len(rest) > 11 and all(re.fullmatch("[0-9]{1,18}", word) for word in rest[10:12]):
            found[int(match[1]), clean(match[2], 64)] = int(rest[10]) + int(rest[11])
    return found
