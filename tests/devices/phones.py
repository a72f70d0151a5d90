"""Devices made of real files and shell scripts, from the recordings; a real shell runs what is sent to them."""

import os
import re
from pathlib import Path

from hwbench.devices import CommandResult
from hwbench.devices.device_text import fields, sections
from hwbench.devices.local import LocalTransport
from hwbench.testing.phone import install

RECORDINGS = Path(__file__).parent / "recordings"
NEW = '"$1.new"'
# What the kernel lists of each cluster beside what the recordings have: first processor -> clocks in kHz.
STEPS = {
    "s9": {0: "455000 715000 1053000 1456000 1794000", 4: "650000 858000 1469000 1924000 2106000 2704000"},
    "pixel": {0: "300000 1328000 1803000", 4: "400000 1491000 2253000", 6: "500000 1826000 2048000 2802000"},
    "pi5": {0: "1500000 1600000 1700000 2400000"},
}


class Phone(LocalTransport):
    """A device in a folder: /sys, /proc and the programs of an Android lie there."""

    def __init__(self, root: Path, *, over_usb: bool = True, name: str = "phone") -> None:
        super().__init__()
        self.root = root
        self.over_usb = over_usb
        self.name = name
        self.commands: list[list[str]] = []

    @property
    def identity(self) -> str:
        return f"adb:{self.name}"

    def run(self, argv, *, timeout_s, env=None, stdin=""):
        self.commands.append(list(argv))
        moved = [re.sub(r"(?<!\w)/(?=(sys|proc)/)", f"{self.root}/", word) for word in argv]
        # The kernel takes a value as a whole; a shell that is killed would leave a file cut to nothing.
        moved = [word.replace('>"$1" || bad=1', f'>{NEW} && mv -f {NEW} "$1" || bad=1') for word in moved]
        there = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "PHONE": str(self.root / "data"), **(env or {})}
        result = super().run(moved, timeout_s=timeout_s, env=there, stdin=stdin)
        out, err = (text.replace(f"{self.root}/", "/") for text in (result.stdout, result.stderr))
        return CommandResult(result.status, out, err, result.timed_out)

    def file(self, path: str) -> Path:
        """A file of the device."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        return self.file(path).read_text().strip()

    def setting(self, key: str, space: str = "global") -> str:
        path = self.root / "data" / "settings" / f"{space}.{key}"
        return path.read_text().strip() if path.exists() else "null"

    def put(self, key: str, value: str, space: str = "global") -> None:
        _write(self.root / "data" / "settings" / f"{space}.{key}", value)

    def rooted(self) -> "Phone":
        """One that gives root to whom asks."""
        for name in ("root", "sudoer"):
            (self.root / "data" / name).touch()
        return self

    def snapshot(self) -> dict[str, str]:
        """All that a knob may turn."""
        folders = (self.root / "sys", self.root / "data")
        files = (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
        files = (path for path in files if path.name != "log" and path.suffix != ".new")
        return {str(path.relative_to(self.root)): path.read_text().strip() for path in files}


class Intel(Phone):
    """A board under intel_pstate: without turbo its clocks end at ``BASE``, whatever was asked for.

    The limits shown are the lower of what was asked for and of what is there. ``cpuinfo_max_freq`` follows turbo, as
    since Linux 6.10, or stays as it is. With HWP the kernel tells the base clock.
    """

    BASE, HIGHEST = 1_700_000, 2_400_000

    def __init__(self, root: Path, *, follows: bool = True, hwp: bool = True, asked: int = HIGHEST) -> None:
        super().__init__(root)
        self._follows = follows
        self._policy = self.file("sys/devices/system/cpu/cpufreq/policy0")
        self._policy.joinpath("scaling_available_frequencies").unlink()
        self.file("sys/devices/system/cpu/cpufreq/boost").unlink()
        _write(self.file("sys/devices/system/cpu/intel_pstate/no_turbo"), "0")
        if hwp:
            _write(self._policy / "base_frequency", str(self.BASE))
        self._asked = {"min": int(self._policy.joinpath("scaling_min_freq").read_text()), "max": asked}
        self._show()

    def run(self, argv, **options):
        result = super().run(argv, **options)
        for end in self._asked:
            file = self._policy / f"scaling_{end}_freq"
            if file.stat().st_mtime_ns:  # written by somebody else, perhaps to the value that it showed
                self._asked[end] = int(file.read_text())
        self._show()
        return result

    def _show(self) -> None:
        turbo = self.read("sys/devices/system/cpu/intel_pstate/no_turbo") == "0"
        highest = self.HIGHEST if turbo else self.BASE
        _write(self._policy / "cpuinfo_max_freq", str(highest if self._follows else self.HIGHEST))
        for end, asked in self._asked.items():
            file = self._policy / f"scaling_{end}_freq"
            _write(file, str(min(asked, highest)))
            os.utime(file, ns=(0, 0))


def make(root: Path, name: str, **options) -> Phone:
    """The device of a recording, as files."""
    install(root / "bin")
    parts = sections((RECORDINGS / f"{name}.probe.txt").read_text())
    for path, body in parts.items():
        if path.startswith("ro."):
            _write(root / "data" / "props" / path, body)
        elif path.startswith("/"):
            _write(root / path.lstrip("/"), body)
    now = sections((RECORDINGS / f"{name}.state.txt").read_text())
    for kind in ("scaling_cur_freq", "scaling_governor", "scaling_min_freq", "scaling_max_freq"):
        for path, value in fields(now.get(kind, "")).items():
            _write(root / path.lstrip("/"), value)
    for kind in ("/proc/loadavg", "/proc/uptime", "/proc/meminfo"):
        _write(root / kind.lstrip("/"), now.get(kind, ""))
    for line in now.get("zones", "").splitlines():
        index, value, zone = line.split(":")
        _write(root / f"sys/class/thermal/thermal_zone{index}/temp", value)
        _write(root / f"sys/class/thermal/thermal_zone{index}/type", zone)
    _write(root / "data" / "battery", now.get("battery", ""))
    _write(root / "data" / "thermal", now.get("thermal", ""))
    _write(root / "data" / "wakefulness", "Asleep" if "Asleep" in now.get("power", "") else "Awake")
    cpus = root / "sys/devices/system/cpu"
    for first, steps in STEPS.get(name, {}).items():
        policy = cpus / "cpufreq" / f"policy{first}"
        _write(policy / "scaling_available_frequencies", steps)
        _write(policy / "scaling_available_governors", "schedutil ondemand powersave performance")
        for kind in ("cpuinfo_max_freq", "scaling_governor", "scaling_min_freq", "scaling_max_freq"):
            _write(policy / kind, (cpus / f"cpu{first}" / "cpufreq" / kind).read_text())
    phone = Phone(root, **options)
    if "ro.product.model" in parts:
        phone.put("stay_on_while_plugged_in", "0")
        phone.put("airplane_mode_on", "0")
        phone.put("screen_brightness", "102", "system")
        phone.put("screen_brightness_mode", "1", "system")
    else:
        for script in ("getprop", "settings", "cmd", "dumpsys", "input", "am", "su"):
            (root / "bin" / script).unlink()
        _write(cpus / "cpufreq" / "boost", "1")
    return phone


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.strip() + "\n")
