"""What of a device can be held still while it is measured: one class per knob.

Order of calls: ``available``; ``show`` for what is there and ``wanted`` for what it should be; ``set``; at the end
``restore`` with both. ``control.py`` does that for all of them, and writes each change into a journal before it is
made. A knob keeps nothing in itself, so that any process can undo what another one did.

Values are texts by item: a knob such as the governor has one item for each cluster. An item that is, when it is to be
restored, neither what was there before nor what we made of it was changed by somebody else, and is left alone. An item
that cannot be read then, as that of a cluster that the kernel has put to sleep, waits until it can. An item that shows
what is wanted is not set: the kernel shows limits as other knobs and heat allow them, and keeps what it was asked for.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from hwbench.devices.base import CommandResult, NoAnswer, Transport
from hwbench.devices.device_text import clean, number
from hwbench.devices.probe import Probe
from hwbench.errors import DeviceError
from hwbench.registry import Registry

# Asking for root may put a question on a phone's screen, which goes away after some seconds.
TIME_LIMIT_S = 30.0
# Of the highest clock: a phone in the hand holds this for minutes, boards with a cooler hold the highest.
SUSTAINED = 0.75
FIXED_PERFORMANCE_API = 30
AIRPLANE_COMMAND_API = 30

# Runs its arguments as root by what the device has: root itself, sudo without a password, and the two kinds of su.
_AS_ROOT = r"""
if [ "$(id -u)" = 0 ]; then exec "$@"; fi
if command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then exec sudo -n "$@"; fi
if command -v getprop >/dev/null 2>&1 && command -v su >/dev/null 2>&1; then
  if [ "$(su 0 id -u </dev/null 2>/dev/null)" = 0 ]; then exec su 0 "$@"; fi
  if [ "$(su -c 'id -u' </dev/null 2>/dev/null)" = 0 ]; then
    line=
    for word; do line="$line '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"; done
    exec su -c "$line"
  fi
fi
echo "needs root: not root, sudo asks for a password, and there is no su for us" >&2
exit 126
"""
_READ = r"""for file; do if [ -r "$file" ]; then value=; read -r value <"$file"; echo "$file: $value"; fi; done"""
# Twice: the lowest clock cannot be set above the highest, and the highest not below the lowest.
_WRITE = r"""
write() { while [ $# -gt 1 ]; do printf '%s\n' "$2" >"$1" || bad=1; shift 2; done; }
write "$@" 2>/dev/null
bad=0
write "$@"
exit $bad
"""
# What the kernel does at present against heat: the kind and the state of each part that may slow processors down.
_COOLING = r"""
for part in /sys/class/thermal/cooling_device*; do
  if [ -r "$part/type" ] && [ -r "$part/cur_state" ]; then
    kind= state=
    read -r kind <"$part/type"; read -r state <"$part/cur_state"
    echo "$kind: $state"
  fi
done
"""
_SLOWS = re.compile(r"(thermal-)?cpufreq-.*|Processor")


class Knob(ABC):
    """One thing that can be held still. Knobs are used in the order of their names, and restored in the other."""

    purpose: ClassVar[str]
    """What it is for, in a few words."""
    changes: ClassVar[bool] = True
    """It changes something on the device; one that does not is a choice made here."""
    tells: ClassVar[bool] = True
    """The device says what is there, so that ``show`` can be compared."""
    ends_at_start: ClassVar[bool] = False
    """A start of the device undoes it."""
    yields_to: ClassVar[tuple[str, ...]] = ()
    """Knobs that do the same in a better way: where one of them is set, this one is left alone."""
    label: ClassVar[str] = ""
    """What is recorded where it is set; empty: its values."""

    def exists(self, probe: Probe, transport: Transport) -> bool:
        """Devices of this kind have it; one that has not is not short of it."""
        return True

    @abstractmethod
    def available(self, probe: Probe, transport: Transport) -> str | None:
        """None where it can be set, else the reason, in words."""

    @abstractmethod
    def show(self, transport: Transport) -> dict[str, str]:
        """What is there, by item.

        Raises:
            DeviceError: It says something else than expected.
        """

    @abstractmethod
    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        """What should be there, by item, for the sake of measuring."""

    @abstractmethod
    def set(self, transport: Transport, values: Mapping[str, str]) -> None:
        """Changes the items named; what came of it is what ``show`` says then.

        Raises:
            DeviceError: The device refuses.
        """

    def shows(self, item: str, value: str, now: str) -> bool:
        """Whether an item that shows ``now`` may be one that was set to ``value``."""
        return now == value

    def restore(self, transport: Transport, before: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
        """Puts back ``before`` where ``ours`` still stands; returns what was left as it is, in words.

        Raises:
            DeviceError: The device refuses, or does not show an item that was turned.
        """
        now = self.show(transport)
        turned = {item: value for item, value in before.items() if ours.get(item) != value}
        ours_still = [item for item in turned if item in now and self.shows(item, ours.get(item, ""), now[item])]
        self._put(transport, {item: before[item] for item in ours_still if now[item] != before[item]})
        hidden = [item for item in turned if item not in now]
        if hidden:
            raise DeviceError(f"{hidden[0]} does not show what it is at present; expected {before[hidden[0]]!r}")
        return [
            f"{item} was {value!r}, we made it {ours.get(item)!r}, somebody made it {now[item]!r}: left as it is"
            for item, value in before.items()
            if item in now and item not in ours_still and now[item] not in (value, ours.get(item))
        ]

    def undo(self, transport: Transport, before: Mapping[str, str]) -> None:
        """Puts back ``before``, whatever is there: after ``set`` was refused, which may have changed some of it.

        Raises:
            DeviceError: The device refuses.
        """
        now = self.show(transport)
        self._put(transport, {item: value for item, value in before.items() if now.get(item) != value})

    def _put(self, transport: Transport, back: Mapping[str, str]) -> None:
        if not back:
            return
        self.set(transport, back)
        after = self.show(transport)
        refused = [item for item in back if not self.shows(item, back[item], after.get(item, ""))]
        if refused:
            raise DeviceError(f"{refused[0]} is {after.get(refused[0], 'gone')!r}, expected {back[refused[0]]!r}")


knobs: Registry[type[Knob]] = Registry("knob")
"""A new knob is one class with ``@knobs.register(NAME)``."""


def as_root(transport: Transport, *argv: str) -> CommandResult:
    """Runs a command as root, status 126 where there is no way to be."""
    return transport.run(["sh", "-c", _AS_ROOT, "hwbench", *argv], timeout_s=TIME_LIMIT_S)


def _no_root(transport: Transport) -> str | None:
    result = as_root(transport, "id", "-u")
    return None if result.ok and result.stdout.strip() == "0" else clean(result.stderr) or "needs root"


def _answer(transport: Transport, *argv: str) -> str:
    """What a command prints, as one line.

    Raises:
        DeviceError: It fails; NoAnswer where it does not end.
    """
    result = transport.run(argv, timeout_s=TIME_LIMIT_S)
    if result.timed_out:
        raise NoAnswer(f"{' '.join(argv)}: no answer within {TIME_LIMIT_S:g} s")
    if not result.ok:
        raise DeviceError(f"{' '.join(argv)}: {clean(result.stderr or result.stdout) or f'status {result.status}'}")
    return clean(result.stdout)


class _OnAndroid(Knob):
    """Of Android only."""

    def exists(self, probe: Probe, transport: Transport) -> bool:
        return probe.android

    def available(self, probe: Probe, transport: Transport) -> str | None:
        return None if probe.android else "only Android has it"


class _Files(Knob):
    """Files below /sys/devices/system/cpu, written as root."""

    patterns: ClassVar[tuple[str, ...]]
    ends_at_start = True

    def available(self, probe: Probe, transport: Transport) -> str | None:
        if not self.show(transport):
            return "the kernel does not show it: a virtual machine, or hidden from this user"
        return _no_root(transport)

    def show(self, transport: Transport) -> dict[str, str]:
        return _read(transport, *self.patterns)

    def set(self, transport: Transport, values: Mapping[str, str]) -> None:
        words = [word for item, value in values.items() for word in (item, value)]
        if not all(_file(item) and re.fullmatch(r"[\w-]{1,32}", value) for item, value in values.items()):
            raise DeviceError(f"expected files of /sys/devices/system/cpu and plain values, got {words}")
        result = as_root(transport, "sh", "-c", _WRITE, "hwbench", *words)
        if not result.ok:  # what sudo says of the name of a host is no failure
            raise DeviceError(clean(result.stderr) or f"status {result.status}")


def _file(path: str) -> bool:
    return re.fullmatch(r"/sys/devices/system/cpu(/\w{1,40}){1,4}", path) is not None


def _read(transport: Transport, *patterns: str) -> dict[str, str]:
    """The files that match, by path; those of clusters by processor where the kernel is too old to show clusters."""
    found = _matching(transport, patterns)
    by_cpu = [pattern.replace("cpufreq/policy*/", "cpu[0-9]*/cpufreq/") for pattern in patterns]
    return found or _matching(transport, by_cpu)


def _matching(transport: Transport, patterns: Sequence[str]) -> dict[str, str]:
    script = f"set -- {' '.join(f'/sys/devices/system/cpu/{pattern}' for pattern in patterns)}\n{_READ}"
    result = transport.run(["sh", "-c", script], timeout_s=TIME_LIMIT_S)
    if result.timed_out or not result.ok:
        raise DeviceError(f"cannot read {patterns[0]}: {clean(result.stderr) or f'status {result.status}'}")
    pairs = (line.partition(": ")[::2] for line in result.stdout.splitlines()[:1000])
    return {path: clean(value, 1000) for path, value in pairs if _file(path) and value}


@knobs.register("boost")
class Boost(_Files):
    """Clocks above the nominal one, which depend on heat and neighbours: off."""

    purpose = "no clocks above the nominal one"
    label = "off"
    patterns = ("cpufreq/boost", "intel_pstate/no_turbo")

    def exists(self, probe: Probe, transport: Transport) -> bool:
        return bool(self.show(transport))

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        return {item: "1" if item.endswith("no_turbo") else "0" for item in self.show(transport)}


@knobs.register("governor")
class Governor(_Files):
    """The rule by which the kernel chooses clocks: always the highest allowed one."""

    purpose = "the highest allowed clock at all times"
    yields_to = ("fixed-performance",)
    patterns = ("cpufreq/policy*/scaling_governor",)

    def available(self, probe: Probe, transport: Transport) -> str | None:
        known = _read(transport, "cpufreq/policy*/scaling_available_governors")
        if any("performance" not in governors.split() for governors in known.values()):
            return "the kernel has no governor 'performance'"
        return super().available(probe, transport)

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        return dict.fromkeys(self.show(transport), "performance")


@knobs.register("frequency")
class Frequency(_Files):
    """One clock per cluster: on Android the highest that is at most three quarters of the maximum, else the maximum.

    The kernel shows limits as heat allows them at that moment, below what was set.
    """

    purpose = "one clock, which heat does not change"
    yields_to = ("fixed-performance",)
    patterns = ("cpufreq/policy*/scaling_min_freq", "cpufreq/policy*/scaling_max_freq")

    def available(self, probe: Probe, transport: Transport) -> str | None:
        said = transport.run(["sh", "-c", _COOLING], timeout_s=TIME_LIMIT_S).stdout
        states = (line.rpartition(": ")[::2] for line in said.splitlines())
        slowed = [kind for kind, state in states if _SLOWS.fullmatch(kind) and number(state)]
        if slowed:
            return f"the device is too warm: {clean(slowed[0])} limits the clocks"
        if "0" in self.wanted(probe, transport).values():
            return "the kernel does not tell the highest clock"
        return super().available(probe, transport)

    def shows(self, item: str, value: str, now: str) -> bool:
        return 0 < number(now) <= number(value)

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        steps = _read(transport, "cpufreq/policy*/scaling_available_frequencies", "cpufreq/policy*/cpuinfo_max_freq")
        steps |= _without_turbo(transport)
        return {item: str(_clock(item.rpartition("/")[0], steps, probe.android)) for item in self.show(transport)}


def _without_turbo(transport: Transport) -> dict[str, str]:
    """Limits and base clocks by path, where intel_pstate has turbo off: it takes no clock above the higher one then.

    Before Linux 6.10 ``cpuinfo_max_freq`` stays the turbo clock. Only processors with HWP tell ``base_frequency``.
    """
    off = "1" in _read(transport, "intel_pstate/no_turbo").values()
    return {} if not off else _read(transport, "cpufreq/policy*/scaling_max_freq", "cpufreq/policy*/base_frequency")


def _clock(policy: str, steps: Mapping[str, str], sustained: bool) -> int:
    """The clock in kHz to hold: one that the kernel lists, so that it is taken as it is; else the highest."""
    highest = number(steps.get(f"{policy}/cpuinfo_max_freq", ""))
    ends = (number(steps.get(f"{policy}/{name}", "")) for name in ("scaling_max_freq", "base_frequency"))
    highest = min(highest, max(ends) or highest)
    listed = sorted(filter(None, map(number, steps.get(f"{policy}/scaling_available_frequencies", "").split())))
    listed = listed or [highest]
    within = [step for step in listed if step <= SUSTAINED * listed[-1]]
    return within[-1] if sustained and within else listed[-1]


@knobs.register("fixed-performance")
class FixedPerformance(_OnAndroid):
    """Android's own mode for comparisons: clocks below the point where heat limits them.

    Android does not tell whether it is on; it is off after a start, and so it is put back to off.
    """

    purpose = "Android's mode for steady clocks"
    tells = False
    ends_at_start = True
    label = "on"

    def available(self, probe: Probe, transport: Transport) -> str | None:
        if probe.android and probe.api_level < FIXED_PERFORMANCE_API:
            return f"came with Android 11 (API {FIXED_PERFORMANCE_API}), this device has API {probe.api_level}"
        return super().available(probe, transport)

    def show(self, transport: Transport) -> dict[str, str]:
        return {}

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        return {"mode": "true"}

    def set(self, transport: Transport, values: Mapping[str, str]) -> None:
        _answer(transport, "cmd", "power", "set-fixed-performance-mode-enabled", values["mode"])

    def restore(self, transport: Transport, before: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
        self.undo(transport, before)
        return []

    def undo(self, transport: Transport, before: Mapping[str, str]) -> None:
        self.set(transport, {"mode": "false"})


class _Settings(_OnAndroid):
    """Entries of Android's settings; one that is not there is ``null``."""

    space: ClassVar[str] = "global"
    values: ClassVar[Mapping[str, str]]

    def show(self, transport: Transport) -> dict[str, str]:
        found = {key: _answer(transport, "settings", "get", self.space, key) for key in self.values}
        for key, value in found.items():
            if not re.fullmatch(r"null|-?[0-9]{1,10}", value):
                raise DeviceError(f"settings get {self.space} {key}: expected a number, got {value!r}")
        return found

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        return dict(self.values)

    def set(self, transport: Transport, values: Mapping[str, str]) -> None:
        for key, value in values.items():
            change = ("delete", self.space, key) if value == "null" else ("put", self.space, key, value)
            _answer(transport, "settings", *change)


@knobs.register("stay-awake")
class StayAwake(_Settings):
    """The phone does not go to sleep while it is plugged in, whatever the plug: mains 1, USB 2, wireless 4."""

    purpose = "no sleep while plugged in"
    label = "on"
    values = {"stay_on_while_plugged_in": "7"}


@knobs.register("brightness")
class Brightness(_Settings):
    """The screen as dark as it goes while it is on: it shares its heat with the chip."""

    purpose = "a dark screen, for less heat"
    label = "lowest"
    space = "system"
    values = {"screen_brightness_mode": "0", "screen_brightness": "1"}


@knobs.register("battery-saver")
class BatterySaver(_Settings):
    """Battery saver, which limits clocks: off."""

    purpose = "no limits to save the battery"
    label = "off"
    values = {"low_power": "0"}

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        return {key: "null" if value == "null" else "0" for key, value in self.show(transport).items()}


@knobs.register("screen")
class Screen(_OnAndroid):
    """Awake: in sleep, phones stop what runs or move it to the little cores."""

    purpose = "awake"
    ends_at_start = True

    def show(self, transport: Transport) -> dict[str, str]:
        script = "dumpsys power 2>/dev/null | grep mWakefulness= | head -1"
        said = transport.run(["sh", "-c", script], timeout_s=TIME_LIMIT_S).stdout
        found = re.search(r"mWakefulness=(Awake|Dreaming|Dozing|Asleep)\b", said)
        if not found:
            raise DeviceError(f"dumpsys power: expected mWakefulness=..., got {clean(said)!r}")
        return {"screen": "awake" if found[1] == "Awake" else "asleep"}

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        return {"screen": "awake"}

    def set(self, transport: Transport, values: Mapping[str, str]) -> None:
        # KEYCODE_WAKEUP and KEYCODE_SLEEP, which unlike the power key do not toggle.
        _answer(transport, "input", "keyevent", "224" if values["screen"] == "awake" else "223")


@knobs.register("airplane")
class Airplane(_Settings):
    """Airplane mode: no radio wakes the phone. Over USB only: over a network it would cut the line to the device."""

    purpose = "no radio (over USB only)"
    label = "on"
    values = {"airplane_mode_on": "1"}

    def available(self, probe: Probe, transport: Transport) -> str | None:
        if (reason := super().available(probe, transport)) is not None:
            return reason
        if not getattr(transport, "over_usb", False):
            return "over USB only: here it would cut the line to the device"
        return None if probe.api_level >= AIRPLANE_COMMAND_API else _no_root(transport)

    def set(self, transport: Transport, values: Mapping[str, str]) -> None:
        on = values["airplane_mode_on"] == "1"
        command = ("cmd", "connectivity", "airplane-mode", "enable" if on else "disable")
        if transport.run(command, timeout_s=TIME_LIMIT_S).ok and self.show(transport) == dict(values):
            return
        # Before Android 11 whoever changes the setting must also tell the radios, which only root may.
        super().set(transport, values)
        action = "android.intent.action.AIRPLANE_MODE"
        result = as_root(transport, "am", "broadcast", "-a", action, "--ez", "state", "true" if on else "false")
        if not result.ok:
            raise DeviceError(f"am broadcast: {clean(result.stderr) or f'status {result.status}'}")


@knobs.register("cores")
class Cores(Knob):
    """The choice of the big cores; the runner binds itself to them."""

    purpose = "the big cores"
    changes = False

    def available(self, probe: Probe, transport: Transport) -> str | None:
        usable = [cluster for cluster in probe.clusters if set(cluster.cpus) & set(probe.allowed)]
        if len(usable) > 1 and not any(cluster.capacity or cluster.max_khz for cluster in usable):
            return (
                "the device tells neither capacity nor clock of its cores; name them: cpus = [...] in its device.toml"
            )
        if usable and usable[0] != probe.clusters[0]:
            return f"the biggest cores are not for us: usable are {', '.join(map(str, probe.allowed))}"
        return None

    def show(self, transport: Transport) -> dict[str, str]:
        return {}  # what a run is bound to stands in its conditions

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        return {"cpus": ",".join(map(str, _big(probe)))}

    def set(self, transport: Transport, values: Mapping[str, str]) -> None:
        """Nothing changes on the device."""


@knobs.register("threads")
class Threads(Cores):
    """The number of threads: at most one for each big core, since the slowest core would set the pace."""

    purpose = "at most one thread for each big core"

    def wanted(self, probe: Probe, transport: Transport) -> dict[str, str]:
        return {"at most": str(max(1, len(_big(probe))))}


def _big(probe: Probe) -> tuple[int, ...]:
    for cluster in probe.clusters:
        usable = tuple(cpu for cpu in cluster.cpus if cpu in probe.allowed)
        if usable:
            return usable
    return ()
