"""The file tree of a lab device: busybox and its applets, the C++ runtime of aarch64, accounts, /sys, scripts."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from enum import Enum
from functools import lru_cache
from pathlib import Path

from hwbench.devices.laboratory import cache
from hwbench.errors import MissingDependency
from hwbench.testing.lab import android, hardware
from hwbench.testing.lab.needs import fetch_busybox, require
from hwbench.workspace import temporary_beside

CROSS_LIBRARIES = Path("/usr/aarch64-linux-gnu/lib")
# Loader and libraries that a C++ program for glibc asks for.
LIBRARIES = (
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
)
INIT = "/sbin/hwbench-init"
SFTP_PRELOAD = "/sbin/hwbench-sftp.so"
SFTP_FAULTS = "/sbin/hwbench-faults"
# Applets that would shadow the scripts of a phone, or reach for the host.
LEFT_OUT = {
    "busybox",
    "svc",
    "init",
    "reboot",
    "halt",
    "poweroff",
    "mount",
    "umount",
    "chroot",
    "switch_root",
    "pivot_root",
}
COMPILE_LIMIT_S = 120.0
# Of C++ it needs no library, so that the C library is all that is shown to sftp-server.
SFTP_FLAGS = ("-shared", "-fPIC", "-fno-threadsafe-statics", "-Wl,--as-needed", "-ldl")


class Flavour(Enum):
    """What kind of device: its folders and programs differ."""

    BOARD = "board"
    PHONE = "phone"

    @property
    def temporary(self) -> str:
        """The folder that everyone there may write to."""
        return "/data/local/tmp" if self is Flavour.PHONE else "/tmp"

    @property
    def programs(self) -> str:
        """The folder of its programs."""
        return "/system/bin" if self is Flavour.PHONE else "/bin"


def make_root(root: Path, flavour: Flavour, processor: hardware.Processor) -> None:
    """Writes the tree of a device that is off.

    Raises:
        MissingDependency: busybox, a compiler or its libraries for aarch64 are missing.
    """
    for folder in ("dev", "etc", "proc", "sbin", "sys", flavour.temporary[1:], flavour.programs[1:]):
        (root / folder).mkdir(parents=True, exist_ok=True)
    if flavour is Flavour.PHONE:
        (root / "bin").symlink_to("system/bin")
    _programs(root / flavour.programs[1:])
    if flavour is Flavour.BOARD:  # a phone has no glibc
        _libraries(root / "lib")
    shutil.copy(compiled("init", require("aarch64-linux-gnu-g++"), ("-static",)), root / INIT[1:])
    shutil.copy(compiled("sftp", require("c++"), SFTP_FLAGS), root / SFTP_PRELOAD[1:])
    (root / "etc/passwd").write_text(
        f"root:x:0:0:root:/root:/bin/sh\nshell:x:{user_id()}:{user_id()}:shell:{flavour.temporary}:/bin/sh\n"
    )
    (root / "etc/group").write_text(f"root:x:0:\nshell:x:{user_id()}:\n")
    hardware.write_sys(root, processor)
    if flavour is Flavour.PHONE:
        android.write_scripts(root)
    else:
        hardware.write(root / "etc/os-release", 'ID=debian\nPRETTY_NAME="hwbench lab board"')
        (root / "sys/firmware/devicetree/base").mkdir(parents=True)
        (root / "sys/firmware/devicetree/base/model").write_text("hwbench lab board\0")


def user_id() -> int:
    """Who a lab device's commands run as: ourselves, or, if that is root, a number that nobody has.

    So permissions hold inside, and nothing in there can end a process of the host.
    """
    return os.geteuid() or 52077


def _programs(folder: Path) -> None:
    program = folder / "busybox"
    # Its shell runs an applet before a program of that name; a phone has a svc of its own.
    program.write_bytes(fetch_busybox().read_bytes().replace(b"\0svc\0", b"\0svb\0"))
    program.chmod(0o755)
    for name in _applets():
        link = folder / name
        if name not in LEFT_OUT and not link.exists():
            link.symlink_to("busybox")


@lru_cache(maxsize=1)
def _applets() -> tuple[str, ...]:
    argv = [require("qemu-aarch64-static"), str(fetch_busybox()), "--list"]
    return tuple(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.split())


def _libraries(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in LIBRARIES:
        source = CROSS_LIBRARIES / name
        if not source.is_file():
            raise MissingDependency(f"the laboratory needs {source}: apt-get install g++-aarch64-linux-gnu")
        shutil.copy(source, folder / name)


def compiled(name: str, compiler: str, flags: tuple[str, ...]) -> Path:
    """A program or library of this folder's ``NAME.cpp``, built once for each state of its source.

    Raises:
        MissingDependency: It does not build.
    """
    source = Path(__file__).with_name(f"{name}.cpp")
    target = cache() / f"{name}-{hashlib.sha256(source.read_bytes() + repr(flags).encode()).hexdigest()[:16]}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = temporary_beside(target)
        argv = [compiler, "-std=c++17", "-O1", *flags, "-o", str(part), str(source)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False)
            if done.returncode:
                raise MissingDependency(f"{compiler} does not build {source.name}: {done.stderr[-500:]}")
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    return target
