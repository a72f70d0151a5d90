"""What the laboratory of virtual devices needs on this machine: programs, by the transport of a device, and a busybox.

Loads nothing but the standard library and this package: CI asks before anything is installed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hwbench.user_folders import user_folder

# Program, and the Debian package that has it.
PROGRAMS = {
    "adb": "adb",
    "aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu",
    "c++": "g++",
    "proot": "proot",
    "qemu-aarch64-static": "qemu-user-static",
    "setpriv": "util-linux",
    "sftp": "openssh-client",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
}
# The transport that alone needs a program; what is not here, each needs.
_ONLY_OVER = {"adb": "adb", "sftp": "ssh", "ssh": "ssh", "ssh-keygen": "ssh", "sshd": "ssh"}
FETCH = "python3 -m hwbench.testing.lab"


def missing_programs(over: str | None = None) -> list[str]:
    """Programs that are not installed, of those of one transport, or of all."""
    return [name for name in PROGRAMS if over in (None, _ONLY_OVER.get(name, over)) and program_path(name) is None]


def install_command(programs: list[str]) -> str:
    """What installs some of ``PROGRAMS`` on Debian."""
    return f"apt-get install {' '.join(sorted({PROGRAMS[name] for name in programs}))}"


def requirements(over: str | None = None) -> list[str]:
    """One sentence for each thing that is missing, with the command that installs it; empty: all is there.

    Args:
        over: The transport of a device, ``ssh`` or ``adb``; default: what devices of both need.
    """
    missing = []
    if programs := missing_programs(over):
        named = sorted({PROGRAMS[name] for name in programs})
        missing.append(f"the laboratory needs {', '.join(named)}: {install_command(programs)}")
    if not busybox_path().is_file():
        missing.append(f"the laboratory needs an aarch64 busybox: {FETCH}")
    return missing


def program_path(name: str) -> str | None:
    """Where a program lies, also where only root looks for programs."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")))


def cache() -> Path:
    """Folder of what is made once: the fetched busybox and the compiled first process."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "lab"


def busybox_path() -> Path:
    """Where the aarch64 busybox lies once ``FETCH`` ran."""
    return cache() / "busybox-aarch64"
