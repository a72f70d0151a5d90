"""What a device has that a runner may need: a libc, a compiler, a Python with an engine. Asked in POSIX shell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from hwbench.devices import Probe, Transport
from hwbench.devices.device_text import clean, sections
from hwbench.errors import DeviceError
from hwbench.runtimes.native.cross import ALIASES, LOADERS

# Python on a slow board takes a few seconds to start.
TIME_LIMIT_S = 60.0
COMPILE_LIMIT_S = 900.0

_SCRIPT = r"""
echo "== loader"; for f in "/lib/$1" "/lib64/$1"; do [ -e "$f" ] && echo "$f"; done
echo "== compilers"; for c in c++ g++ clang++; do command -v "$c"; done
echo "== programs"; for c in tar gzip taskset logcat; do command -v "$c" >/dev/null 2>&1 && echo "$c"; done
echo "== end"
"""
# Nor is anything taken from the folder where it is asked, which ``-c`` puts first; ``-P`` came with Python 3.11.
_PYTHON = """
import sys
sys.path = [folder for folder in sys.path if folder]
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"
print("hwbench", "%d.%d" % sys.version_info[:2], *map(version, sys.argv[1:]))
"""
# Unpacks and compiles, once: the folder appears when it is complete. Arguments: archive, folder, a folder for the way.
_BUILD = r"""
archive=$1; target=$2; part=$3; shift 3
[ -x "$target/runner" ] && exit 0
set -e
rm -rf "$part" "$target"
mkdir -p "$part/temporary"
cd "$part"
tar xzf "$archive"
TMPDIR="$part/temporary" sh build.sh "$@"
rm -rf wheel sources temporary
mv "$part" "$target"
"""


@dataclass(frozen=True)
class BoardTools:
    """What there is. ``loader``: the path of the glibc loader of the machine's kind; empty: another libc, or none."""

    loader: str
    compilers: tuple[str, ...]
    programs: frozenset[str]


@dataclass(frozen=True)
class BoardPython:
    """A Python there; ``packages`` has versions by distribution, ``-`` for what is not installed."""

    command: str
    version: tuple[int, int]
    packages: Mapping[str, str]


def machine_of(probe: Probe) -> str:
    """The kind of machine, as the wheels name it.

    Raises:
        DeviceError: ExecuTorch has no libraries for it; says what can be done.
    """
    machine = ALIASES.get(probe.arch, probe.arch)
    # A 32-bit Linux on a 64-bit kernel runs 64-bit programs that bring their libc; a 32-bit Android may not.
    unfit = machine not in LOADERS or (probe.android and (probe.narrow or machine != "aarch64"))
    if unfit:
        system = "Android" if probe.android else "Linux"
        raise DeviceError(
            f"{probe.model} runs {system} for {probe.abi or probe.arch}, for which executorch has no libraries (it has "
            "them for 64-bit ARM, and for Linux on x86_64); install a 64-bit system on it, or name your own build in "
            'its device.toml: runner = "/path/executor_runner"'
        )
    return machine


def ask_board(transport: Transport, machine: str) -> BoardTools:
    """Asks a device what it has.

    Raises:
        DeviceError: It does not answer as a POSIX shell does.
    """
    result = transport.run(["sh", "-c", _SCRIPT, "sh", LOADERS[machine]], timeout_s=TIME_LIMIT_S)
    found = sections(result.stdout)
    if "end" not in found:
        raise DeviceError(f"the device does not say what it has: expected a shell, got: {result.stderr[:200]!r}")
    return BoardTools(
        loader=found.get("loader", "").partition("\n")[0],
        compilers=tuple(clean(line) for line in found.get("compilers", "").splitlines() if line.startswith("/")),
        programs=frozenset(found.get("programs", "").split()),
    )


def ask_python(transport: Transport, command: str, distributions: Sequence[str]) -> BoardPython | None:
    """Which of the distributions a Python there has; None where there is no such Python."""
    result = transport.run([command, "-c", _PYTHON, *distributions], timeout_s=TIME_LIMIT_S)
    words = result.stdout.split()
    if not result.ok or len(words) != 2 + len(distributions) or words[0] != "hwbench":
        return None
    major, _, minor = words[1].partition(".")
    if not (re.fullmatch(r"[0-9]{1,3}", major) and re.fullmatch(r"[0-9]{1,3}", minor)):
        return None
    versions = (clean(word, 40).partition("+")[0] for word in words[2:])
    return BoardPython(command, (int(major), int(minor)), dict(zip(distributions, versions)))


def compile_there(transport: Transport, archive: str, compiler: str) -> str:
    """Compiles a sources kit that lies on the device, once; returns the folder of the runner.

    Raises:
        DeviceError: It does not compile; says what the compiler said.
    """
    path = PurePosixPath(archive)
    folder = str(path.with_name(path.name.partition(".")[0] + ".built"))
    argv = ["sh", "-c", _BUILD, "sh", archive, folder, transport.temporary("build"), compiler]
    result = transport.run(argv, timeout_s=COMPILE_LIMIT_S)
    if not result.ok:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.status}"]
        said = "it took too long" if result.timed_out else next((x for x in lines if "error" in x), lines[-1])
        raise DeviceError(f"{compiler} on the device does not compile the runner (C++20 is needed): {said[:300]}")
    return folder
