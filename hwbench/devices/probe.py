"""What a device is, read from /proc and /sys through its transport: the part of a row's conditions that identifies it.

One shell script prints the files; ``parse`` is a pure function of its output, so a recording of a device is a fixture.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hwbench.devices.base import Transport
from hwbench.errors import DeviceError, InvalidValue

TIME_LIMIT_S = 30.0

# Portable to dash, busybox and toybox. Each part begins with a line "== NAME".
SCRIPT = r"""
echo "== uname"; uname -srm
for file in /proc/cpuinfo /proc/meminfo /proc/self/status /proc/device-tree/model /sys/class/dmi/id/product_name \
    /sys/hypervisor/type /sys/devices/system/cpu/cpu*/cpu_capacity \
    /sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq \
    /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do
  if [ -r "$file" ]; then echo; echo "== $file"; cat "$file" 2>/dev/null; fi
done
if command -v getprop >/dev/null 2>&1; then
  for name in ro.product.manufacturer ro.product.model ro.board.platform ro.build.fingerprint; do
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
_CPU_FILE = re.compile(r"/sys/devices/system/cpu/cpu(\d+)/(?:cpufreq/)?(\w+)")


@dataclass(frozen=True)
class Cpu:
    """A processor. ``core`` tells hardware threads of one core; capacity and clock are 0 where unknown."""

    index: int
    part: str
    core: str
    capacity: int = 0
    max_khz: int = 0


@dataclass(frozen=True)
class Probe:
    """A device as it describes itself. ``allowed`` are the numbers of the processors that a command there may use."""

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
    return parse(result.stdout)


def conditions(probe: Probe, cpus: Sequence[int], runner: str) -> dict[str, str]:
    """What must be equal for two rows to be comparable, beside target and timing.

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
    allowed = parse_cpu_list(status.get("Cpus_allowed_list", "")) or tuple(sorted(described))
    files = {name: body for name, body in parts.items() if _CPU_FILE.fullmatch(name)}
    present = sorted({*described, *allowed})
    cpus = tuple(_cpu(index, described.get(index, {}), files) for index in present)
    governors = {body for name, body in files.items() if name.endswith("scaling_governor") and body}
    features = {word for cpu in described.values() for word in _flags(cpu)}
    memory = fields(parts.get("/proc/meminfo", "")).get("MemTotal", "0 kB").split()[0]
    return Probe(
        model=_model(parts, described.values()),
        arch=arch,
        kernel=kernel,
        cpus=cpus,
        allowed=allowed,
        features=tuple(sorted(features & FEATURES)),
        memory_bytes=_number(memory) * 1024,
        governor=",".join(sorted(governors)) or "unknown",
        virtualised=_virtualised(parts, features),
        build=parts.get("ro.build.fingerprint", ""),
    )


def sections(text: str) -> dict[str, str]:
    """Splits at the lines ``== NAME``."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.replace("\0", "").splitlines():
        if line.startswith("== "):
            current = found.setdefault(line[3:].strip(), [])
        else:
            current.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def fields(text: str) -> dict[str, str]:
    """Lines ``name : value``; of a name that comes twice the first counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def processors(cpuinfo: str) -> dict[int, dict[str, str]]:
    """The blocks of /proc/cpuinfo, by processor number."""
    found: dict[int, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", cpuinfo):
        values = fields(block)
        if values.get("processor", "").isdecimal():
            found[int(values["processor"])] = values
    return found


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Reads ``0-3,8``; empty for what is none."""
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        return ()
    cpus: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def _uname(line: str) -> tuple[str, str]:
    words = line.split()
    return (" ".join(words[:-1]), words[-1]) if len(words) >= 3 else ("unknown", "unknown")


def _cpu(index: int, values: Mapping[str, str], files: Mapping[str, str]) -> Cpu:
    folder = f"/sys/devices/system/cpu/cpu{index}"
    arm = f"{values.get('CPU implementer', '')}/{values.get('CPU part', '')}"
    core = f"{values.get('physical id', '')}/{values['core id']}" if "core id" in values else str(index)
    return Cpu(
        index=index,
        part=_ARM_PARTS.get(arm, arm) if "CPU part" in values else values.get("model name", "unknown"),
        core=core,
        capacity=_number(files.get(f"{folder}/cpu_capacity", "")),
        max_khz=_number(files.get(f"{folder}/cpufreq/cpuinfo_max_freq", "")),
    )


def _model(parts: Mapping[str, str], described: Iterable[Mapping[str, str]]) -> str:
    """Name of the device: what a phone or a board calls itself, else its processor."""
    phone = f"{parts.get('ro.product.manufacturer', '')} {parts.get('ro.product.model', '')}".strip()
    board = parts.get("/proc/device-tree/model", "") or parts.get("/sys/class/dmi/id/product_name", "")
    names = [values["model name"] for values in described if "model name" in values]
    return phone or ", ".join(filter(None, (board, names[0] if names else ""))) or "unknown"


def _flags(cpu: Mapping[str, str]) -> list[str]:
    return (cpu.get("flags") or cpu.get("Features") or "").split()


def _virtualised(parts: Mapping[str, str], features: set[str]) -> bool:
    product = parts.get("/sys/class/dmi/id/product_name", "")
    known = ("KVM", "Virtual", "VMware", "HVM", "QEMU", "Compute Engine", "Droplet")
    return "hypervisor" in features or "/sys/hypervisor/type" in parts or any(name in product for name in known)


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0
