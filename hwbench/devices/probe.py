"""What a device is, read from /proc and /sys through its transport: the part of a row's conditions that identifies it.

One shell script prints the files; ``parse`` is a pure function of its output, so a recording of a device is a fixture.
What changes from minute to minute is in ``state.py``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hwbench.devices.base import Transport
from hwbench.devices.device_text import MAX_CPUS, clean, fields, number, parse_cpu_list, sections
from hwbench.errors import DeviceError, InvalidValue

# An emulated device on a busy machine takes some ten seconds.
TIME_LIMIT_S = 60.0
# What is said in place of a kernel that a device does not tell.
UNKNOWN = "unknown"

# Portable to dash, busybox and toybox. Each part begins with a line "== NAME".
SCRIPT = r"""
echo "== uname"; uname -srm
for file in /proc/cpuinfo /proc/meminfo /proc/self/status; do
  if [ -r "$file" ]; then echo; echo "== $file"; cat "$file" 2>/dev/null; fi
done
# One line each, read without starting a program: there are dozens of them, and phones are slow at it.
for file in /sys/class/dmi/id/product_name /sys/hypervisor/type /sys/devices/system/cpu/online \
    /sys/devices/system/cpu/present /sys/devices/system/cpu/cpu*/cpu_capacity \
    /sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_min_freq \
    /sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq \
    /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor \
    /sys/devices/system/cpu/intel_pstate/no_turbo /sys/devices/system/cpu/cpufreq/boost \
    /proc/sys/kernel/random/boot_id /etc/machine-id; do
  if [ -r "$file" ]; then value=; read -r value <"$file"; echo; echo "== $file"; echo "$value"; fi
done
for file in /proc/device-tree/model /proc/device-tree/serial-number; do
  if [ -r "$file" ]; then echo; echo "== $file"; cat "$file" 2>/dev/null; fi
done
if [ -r /proc/device-tree/compatible ]; then
  echo; echo "== compatible"; tr '\000' '\n' < /proc/device-tree/compatible
fi
echo; echo "== page"
getconf PAGESIZE 2>/dev/null || sed -n "s/^KernelPageSize: *//p" /proc/self/smaps 2>/dev/null | head -1
echo; echo "== libc"; getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -2
echo; echo "== shell"; od -An -tx1 -N20 "$(command -v sh)" 2>/dev/null
if command -v getprop >/dev/null 2>&1; then
  for name in ro.product.manufacturer ro.product.model ro.soc.manufacturer ro.soc.model ro.board.platform ro.hardware \
      ro.product.cpu.abi ro.build.version.sdk ro.build.fingerprint ro.serialno; do
    echo; echo "== $name"; getprop $name
  done
fi
"""

# Features that decide which kernels an engine takes; the rest of the flags would only blur the fingerprint.
_X86 = (
    "sse4_1 avx f16c fma avx2 avx512f avx512bw avx512vl avx512_vnni avx_vnni avx512_bf16 avx512_fp16 amx_int8 amx_bf16"
)
_ARM = "neon vfpv4 asimd asimdhp fphp asimddp asimdrdm i8mm bf16 sve sve2 sme"
FEATURES = frozenset(f"{_X86} {_ARM}".split())
_ARM_PARTS = {
    "0x41/0xd03": "Cortex-A53",
    "0x41/0xd04": "Cortex-A35",
    "0x41/0xd05": "Cortex-A55",
    "0x41/0xd07": "Cortex-A57",
    "0x41/0xd08": "Cortex-A72",
    "0x41/0xd09": "Cortex-A73",
    "0x41/0xd0a": "Cortex-A75",
    "0x41/0xd0b": "Cortex-A76",
    "0x41/0xd0c": "Neoverse-N1",
    "0x41/0xd0d": "Cortex-A77",
    "0x41/0xd40": "Neoverse-V1",
    "0x41/0xd41": "Cortex-A78",
    "0x41/0xd44": "Cortex-X1",
    "0x41/0xd46": "Cortex-A510",
    "0x41/0xd47": "Cortex-A710",
    "0x41/0xd49": "Neoverse-N2",
    "0x53/0x001": "Exynos-M1",
    "0x53/0x002": "Exynos-M3",
}
# The machine that the device's own shell was made for: the second half of bytes 16-19 of an ELF file, by its number.
_MACHINES = {0x03: "i686", 0x28: "armv7l", 0x3E: "x86_64", 0xB7: "aarch64", 0xF3: "riscv64"}
_WIDE = frozenset({"aarch64", "armv8l", "x86_64"})
_NARROW = frozenset({"armeabi-v7a", "armeabi", "armv7l", "x86", "i686"})
# What devices say that have no number of their own: of phones without one, of emulators, of images not yet started.
_NO_SERIAL = re.compile(r"unknown|uninitialized|0+|0123456789abcdef|EMULATOR\w*", re.IGNORECASE)
_CPU_FILE = re.compile(r"/sys/devices/system/cpu/cpu(\d+)/(?:cpufreq/)?(\w+)")


@dataclass(frozen=True)
class Cpu:
    """A processor. ``core`` tells hardware threads of one core; capacity and clock are 0 where unknown."""

    index: int
    part: str
    core: str
    capacity: int = 0
    max_khz: int = 0
    min_khz: int = 0


@dataclass(frozen=True)
class Cluster:
    """Processors of one kind; capacity (of 1024) and clocks are 0 where unknown."""

    cpus: tuple[int, ...]
    part: str
    capacity: int
    min_khz: int
    max_khz: int


@dataclass(frozen=True)
class Probe:
    """A device as it describes itself. ``allowed`` are the numbers of the processors that a command there may use.

    ``offline`` are the numbers of those that are there, but switched off; they are not among ``cpus``.
    ``turbo_on`` is the command that switches on the clocks above the nominal one where they are off, ``turbo_off`` the
    one that switches them off where they are on, else empty; the kernel may tell another ``max_khz`` without them.
    What a device does not say is empty or 0. ``abi`` is what its programs are made for (``arm64-v8a``, ``aarch64``,
    ``armv7l``, ``x86_64``), which a 64-bit kernel (``arch``) does not tell. ``libc`` is ``glibc 2.36``, ``musl 1.2.3``
    or ``bionic``. ``unit`` tells two devices of one kind apart: a digest of the serial number, which itself is not
    kept. ``boot`` is another one after each start.
    """

    model: str
    arch: str
    kernel: str
    cpus: tuple[Cpu, ...]
    allowed: tuple[int, ...]
    features: tuple[str, ...]
    memory_bytes: int
    governor: str
    virtualised: bool
    build: str = ""
    soc: str = ""
    abi: str = ""
    api_level: int = 0
    page_bytes: int = 0
    libc: str = ""
    unit: str = ""
    boot: str = ""
    offline: tuple[int, ...] = ()
    turbo_on: str = ""
    turbo_off: str = ""

    @property
    def android(self) -> bool:
        """It is an Android, with its settings and services."""
        return self.api_level > 0

    @property
    def turbo(self) -> str:
        """Whether clocks above the nominal one are ``on`` or ``off``; empty where there is no switch for them."""
        return "off" if self.turbo_on else "on" if self.turbo_off else ""

    @property
    def narrow(self) -> bool:
        """Its programs are 32-bit ones although its kernel is not."""
        return self.arch in _WIDE and self.abi in _NARROW

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The processors by kind, from big to little."""
        kinds: dict[tuple[int, int, int, str], list[int]] = {}
        for cpu in self.cpus:
            kinds.setdefault((cpu.capacity, cpu.max_khz, cpu.min_khz, cpu.part), []).append(cpu.index)
        found = [Cluster(tuple(cpus), part, capacity, low, high) for (capacity, high, low, part), cpus in kinds.items()]
        return tuple(sorted(found, key=lambda c: (c.capacity, c.max_khz, c.cpus), reverse=True))

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of what does not change while the device is the same: hardware, kernel, firmware."""
        cpus = [f"{c.index}:{c.part}:{c.core}:{c.capacity}:{c.max_khz}" for c in self.cpus]
        parts = [self.model, self.arch, self.kernel, self.build, str(self.virtualised), *cpus, *self.features]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def fastest(self, count: int) -> tuple[int, ...]:
        """The ``count`` fastest processors we may use, one per core.

        Of equal ones the last is taken, since interrupts land on the first.

        Raises:
            InvalidValue: There are not so many cores.
        """
        usable = [cpu for cpu in self.cpus if cpu.index in self.allowed]
        ranked = sorted(usable, key=lambda cpu: (cpu.capacity, cpu.max_khz, cpu.index), reverse=True)
        cores = {cpu.core: cpu.index for cpu in reversed(ranked)}
        order = [cpu.index for cpu in ranked if cores[cpu.core] == cpu.index]
        if count > len(order):
            raise InvalidValue(f"{count} threads were asked for, the device has {len(order)} usable cores")
        return tuple(order[:count])


def probe_device(transport: Transport) -> Probe:
    """Asks a device what it is.

    Raises:
        DeviceError: It does not answer as a Linux or Android does.
    """
    result = transport.run(["sh", "-c", SCRIPT], timeout_s=TIME_LIMIT_S)
    if "== uname" not in result.stdout:
        raise DeviceError(f"the device does not describe itself: expected a Linux shell, got: {result.stderr[:200]!r}")
    if result.timed_out:  # what it had said by then would be another device
        raise DeviceError(
            f"the device did not describe itself within {TIME_LIMIT_S:.0f} s: something keeps it busy, or a file of "
            "/proc or /sys hangs there; run the same command once more, or start it anew"
        )
    probe = parse(result.stdout)
    if probe.kernel != UNKNOWN and not probe.kernel.startswith("Linux"):
        raise DeviceError(
            f"the device runs {probe.kernel}: hwbench measures on Linux and Android alone; add one that runs these: "
            "hwbench devices add NAME"
        )
    return probe


def conditions(probe: Probe, cpus: Sequence[int], runner: str) -> dict[str, str]:
    """What must be equal for two rows to be comparable, beside target and timing, of a device that is left as it is.

    Args:
        probe: Of the device.
        cpus: Processors that the run is bound to.
        runner: Label of the runner, such as ``native/1``.
    """
    return {
        "device": probe.fingerprint,
        "model": probe.model,
        "kernel": probe.kernel,
        "governor": probe.governor,
        "virtualised": "yes" if probe.virtualised else "no",
        "cpus": ",".join(map(str, cpus)),
        "runner": runner,
    }


def parse(text: str) -> Probe:
    """Reads what ``SCRIPT`` prints."""
    parts = sections(text)
    kernel, arch = _uname(parts.get("uname", ""))
    described = processors(parts.get("/proc/cpuinfo", ""))
    status = fields(parts.get("/proc/self/status", ""))
    online, plugged = (
        parse_cpu_list(parts.get(f"/sys/devices/system/cpu/{name}", "")) for name in ("online", "present")
    )
    allowed = _usable(parse_cpu_list(status.get("Cpus_allowed_list", "")), online) or tuple(sorted(described))
    files = {name: body for name, body in parts.items() if _CPU_FILE.fullmatch(name)}
    present = sorted({*described, *allowed})
    cpus = tuple(_cpu(index, described.get(index, {}), files) for index in present)
    governors = {body for name, body in files.items() if name.endswith("scaling_governor") and body}
    features = {word for cpu in described.values() for word in _flags(cpu)}
    return Probe(
        model=_model(parts, described.values()),
        arch=arch,
        kernel=kernel,
        cpus=cpus,
        allowed=allowed,
        features=tuple(sorted(features & FEATURES)),
        memory_bytes=number(fields(parts.get("/proc/meminfo", "")).get("MemTotal", "").removesuffix("kB")) * 1024,
        governor=clean(",".join(sorted(governors))) or "unknown",
        virtualised=_virtualised(parts, features),
        build=clean(parts.get("ro.build.fingerprint", "")),
        soc=_soc(parts),
        abi=_abi(parts, arch),
        api_level=number(parts.get("ro.build.version.sdk", ""), 1000),
        page_bytes=_page(parts.get("page", "")),
        libc=_libc(parts),
        unit=_unit(parts),
        boot=clean(parts.get("/proc/sys/kernel/random/boot_id", ""), 36),
        offline=tuple(sorted(set(plugged) - set(online) - {*present})) if online else (),
        turbo_on=_turbo(parts, "on"),
        turbo_off=_turbo(parts, "off"),
    )


def _usable(allowed: Sequence[int], online: Sequence[int]) -> tuple[int, ...]:
    """The processors that we may use and that are online; all that we may use where it is not said which are online.

    ``Cpus_allowed_list`` also names those that are switched off, and those that could be plugged in: on VMware, 128. In
    a container the two lists may count differently, so that they have nothing in common.
    """
    return tuple(index for index in allowed if index in online) or tuple(allowed)


def processors(cpuinfo: str) -> dict[int, dict[str, str]]:
    """The blocks of /proc/cpuinfo, by processor number."""
    found: dict[int, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", cpuinfo):
        values = fields(block)
        index = values.get("processor", "")
        if re.fullmatch(r"[0-9]{1,4}", index) and int(index) < MAX_CPUS:
            found[int(index)] = values
    return found


def _turbo(parts: Mapping[str, str], wanted: str) -> str:
    """The command that switches turbo ``on`` or ``off``; empty where it is so, or no switch tells."""
    switches = (("intel_pstate/no_turbo", {"off": "1", "on": "0"}), ("cpufreq/boost", {"off": "0", "on": "1"}))
    for name, values in switches:
        value = parts.get(path := f"/sys/devices/system/cpu/{name}")
        if value in values.values() and value != values[wanted]:
            return f"echo {values[wanted]} > {path}"
    return ""


def _uname(line: str) -> tuple[str, str]:
    words = clean(line).split()
    return (" ".join(words[:-1]), words[-1]) if len(words) >= 3 else (UNKNOWN, UNKNOWN)


def _cpu(index: int, values: Mapping[str, str], files: Mapping[str, str]) -> Cpu:
    folder = f"/sys/devices/system/cpu/cpu{index}"
    arm = f"{values.get('CPU implementer', '')}/{values.get('CPU part', '')}"
    core = f"{values.get('physical id', '')}/{values['core id']}" if "core id" in values else str(index)
    frequency = f"{folder}/cpufreq/cpuinfo"
    return Cpu(
        index=index,
        part=clean(_ARM_PARTS.get(arm, arm) if "CPU part" in values else values.get("model name", "unknown")),
        core=clean(core),
        capacity=number(files.get(f"{folder}/cpu_capacity", "")),
        max_khz=number(files.get(f"{frequency}_max_freq", "")),
        min_khz=number(files.get(f"{frequency}_min_freq", "")),
    )


def _model(parts: Mapping[str, str], described: Iterable[Mapping[str, str]]) -> str:
    """Name of the device: what a phone or a board calls itself, else its processor."""
    phone = f"{parts.get('ro.product.manufacturer', '')} {parts.get('ro.product.model', '')}".strip()
    board = parts.get("/proc/device-tree/model", "") or parts.get("/sys/class/dmi/id/product_name", "")
    names = [values["model name"] for values in described if "model name" in values]
    return clean(phone or ", ".join(filter(None, (board, names[0] if names else "")))) or "unknown"


def _soc(parts: Mapping[str, str]) -> str:
    """Name of the chip: Android's properties, the plainest where it is there, or the device tree's last entry."""
    maker, chip = (clean(parts.get(f"ro.soc.{name}", "")) for name in ("manufacturer", "model"))
    if chip:
        return f"{maker} {chip}".strip()
    names = dict.fromkeys(clean(parts.get(f"ro.{name}", "")) for name in ("board.platform", "hardware"))
    if any(names):
        return ", ".join(filter(None, names))
    return clean((parts.get("compatible", "").splitlines() or [""])[-1])


def _abi(parts: Mapping[str, str], arch: str) -> str:
    header = re.findall(r"\b[0-9a-f]{2}\b", parts.get("shell", ""))
    if parts.get("ro.product.cpu.abi"):
        return clean(parts["ro.product.cpu.abi"], 32)
    if header[:4] == ["7f", "45", "4c", "46"] and len(header) >= 20:
        return _MACHINES.get(int(header[18], 16), arch)
    return arch


def _page(text: str) -> int:
    """In bytes; ``getconf`` prints a number of them, ``smaps`` one of kilobytes."""
    return number(text.removesuffix("kB")) * 1024 if text.endswith("kB") else number(text)


def _libc(parts: Mapping[str, str]) -> str:
    if parts.get("ro.build.version.sdk"):
        return "bionic"
    text = clean(parts.get("libc", ""))
    version = re.search(r"[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,3})?", text)
    name = "musl" if "musl" in text else "glibc" if re.search("glibc|gnu libc", text, re.IGNORECASE) else ""
    return f"{name} {version[0]}" if name and version else ""


def _unit(parts: Mapping[str, str]) -> str:
    for name in ("ro.serialno", "/proc/device-tree/serial-number", "/etc/machine-id"):
        if _NO_SERIAL.fullmatch(parts.get(name, "")):
            return ""  # of all devices that were given none; the next source would make another unit of those added
        if parts.get(name):
            return hashlib.sha256(parts[name].encode(errors="surrogatepass")).hexdigest()[:16]
    return ""


def _flags(cpu: Mapping[str, str]) -> list[str]:
    return (cpu.get("flags") or cpu.get("Features") or "").split()


def _virtualised(parts: Mapping[str, str], features: set[str]) -> bool:
    product = parts.get("/sys/class/dmi/id/product_name", "")
    known = ("KVM", "Virtual", "VMware", "HVM", "QEMU", "Compute Engine", "Droplet")
    return "hypervisor" in features or "/sys/hypervisor/type" in parts or any(name in product for name in known)
