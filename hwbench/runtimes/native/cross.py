"""Building the C++ runner for machines of another kind than this one, with the compiler and libc of a distribution."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hwbench.errors import MissingDependency
from hwbench.runtimes.native.build import INSTALL_COMPILER, Wheel, build_runner, find_compiler
from hwbench.runtimes.native.wheels import fetch_wheel

# Kinds of machines that the executorch wheel has libraries for, and the loader that glibc has there.
LOADERS = {"aarch64": "ld-linux-aarch64.so.1", "x86_64": "ld-linux-x86-64.so.2"}
# Other names of the same.
ALIASES = {"arm64": "aarch64", "arm64-v8a": "aarch64", "amd64": "x86_64"}
# What the runner and the libraries of the wheel need, beside each other.
_LIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libstdc++.so.6", "libgcc_s.so.1")


def same_machine(machine: str) -> bool:
    """What is built here for ourselves runs there."""
    return sys.platform == "linux" and ALIASES.get(platform.machine(), platform.machine()) == machine


def install_command(machine: str) -> str:
    """What installs a compiler for that kind of machine, on Debian and Ubuntu."""
    return INSTALL_COMPILER if same_machine(machine) else f"apt-get install g++-{machine.replace('_', '-')}-linux-gnu"


def find_compiler_for(machine: str) -> tuple[str, ...]:
    """The C++ compiler that makes programs for that kind of machine.

    Raises:
        MissingDependency: There is none.
    """
    if same_machine(machine):
        return find_compiler()
    for name in (f"{machine}-linux-gnu-g++", f"{machine}-none-linux-gnu-g++", f"{machine}-unknown-linux-gnu-g++"):
        path = shutil.which(name)
        if path:
            return (path,)
    raise MissingDependency(
        f"no C++ compiler for {machine} found ({machine}-linux-gnu-g++); install one: {install_command(machine)}"
    )


def wheel_for(machine: str, cache_dir: Path, report: Callable[[str], None] | None = None) -> Wheel:
    """Headers and libraries for that kind of machine, of the installed version; errors as ``fetch_wheel``."""
    return Wheel.installed() if same_machine(machine) else fetch_wheel(machine, cache_dir, report=report)


def build_for(
    machine: str, cache_dir: Path, report: Callable[[str], None] | None = None
) -> tuple[Path, Wheel, tuple[str, ...]]:
    """The runner for that kind of machine, the wheel that it was linked against, and the compiler that made it.

    Raises:
        MissingDependency: No compiler or no wheel; says what to install.
        InvalidFile: The wheel is another one than expected.
        WorkspaceError: The cache cannot be written.
    """
    compiler = find_compiler_for(machine)
    wheel = wheel_for(machine, cache_dir, report)
    binary = build_runner(cache_dir, wheel=wheel, compiler=compiler, install=install_command(machine), report=report)
    return binary, wheel, compiler


def libc_files(machine: str, compiler: Sequence[str]) -> tuple[Path, ...]:
    """The loader, libc and C++ library that belong to a compiler, the loader first.

    They are taken from the distribution's packages when they are needed, and shipped with nothing.

    Raises:
        MissingDependency: The compiler has none.
    """
    found = [_file(compiler, name) for name in (LOADERS[machine], *_LIBC)]
    if found[0] is None or found[1] is None:
        raise MissingDependency(
            f"{compiler[0]} has no {LOADERS[machine]} and libc.so.6 beside it; install them: {install_command(machine)}"
        )
    return tuple(path for path in found if path is not None)


def _file(compiler: Sequence[str], name: str) -> Path | None:
    said = subprocess.run(
        [*compiler, f"-print-file-name={name}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    path = Path(said.stdout.strip())
    return path if path.is_absolute() and path.is_file() else None
