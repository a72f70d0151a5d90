"""What the laboratory needs on this machine, and the one file that it fetches itself.

``python3 -m hwbench.testing.lab`` fetches it; CI does so before its tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hwbench.errors import MissingDependency
from hwbench.user_folders import user_folder
from hwbench.workspace import temporary_beside

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
SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")
FETCH = "python3 -m hwbench.testing.lab"
REQUIRED = "HWBENCH_LAB_REQUIRED"
"""Name of the variable that is set where tests of the laboratory may not be skipped."""
# The lists of packages are 10 MB, the package 1 MB.
FETCH_LIMIT_S = 120.0


def requirements() -> list[str]:
    """One sentence for each thing that is missing, with the command that installs it; empty: all is there."""
    packages = sorted({package for program, package in PROGRAMS.items() if program_path(program) is None})
    missing = []
    if packages:
        missing.append(f"the laboratory needs {', '.join(packages)}: apt-get install {' '.join(packages)}")
    if not busybox_path().is_file():
        missing.append(f"the laboratory needs an aarch64 busybox: {FETCH}")
    return missing


def skip_if_missing() -> None:
    """For tests: skips and says what to install; fails where the laboratory is required."""
    import pytest

    missing = "; ".join(requirements())
    if missing and os.environ.get(REQUIRED):
        pytest.fail(f"{missing} ({REQUIRED} is set)")
    if missing:
        pytest.skip(missing)


def program_path(name: str) -> str | None:
    """Where a program lies, also where only root looks for programs."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")))


def require(name: str) -> str:
    """Path of a program of ``PROGRAMS``.

    Raises:
        MissingDependency: It is not installed.
    """
    path = program_path(name)
    if path is None:
        raise MissingDependency(f"the laboratory needs {name}: apt-get install {PROGRAMS[name]}")
    return path


def cache() -> Path:
    """Folder of what is made once: the fetched busybox and the compiled first process."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "lab"


def busybox_path() -> Path:
    """Where the aarch64 busybox lies once ``fetch_busybox`` ran."""
    return cache() / "busybox-aarch64"


def fetch_busybox() -> Path:
    """Fetches Debian's static busybox for arm64 through apt, unless it is here; returns its path.

    Lists and package go to a folder of their own: neither root nor a foreign architecture in dpkg is needed, and apt
    checks the signatures.

    Raises:
        MissingDependency: apt is not here, or cannot reach such a package.
    """
    target = busybox_path()
    if target.is_file():
        return target
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise MissingDependency(f"put a static aarch64 busybox at {target}: there is no apt-get to fetch it with")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hwbench-lab-") as folder:
        made = _unpacked(Path(folder))
        part = temporary_beside(target)
        try:
            shutil.copyfile(made, part)
            part.chmod(0o755)
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
    return target


def _unpacked(folder: Path) -> Path:
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",  # the folder belongs to us
        "Dir::State::Lists": str(folder / "lists"),
        "Dir::Cache": str(folder / "cache"),
    }
    apt = ["apt-get", "-q", *(word for item in settings.items() for word in ("-o", "=".join(item)))]
    for step in (["update"], ["download", "busybox-static"]):
        _run([*apt, *step], folder)
    packages = list(folder.glob("busybox-static_*.deb"))
    if len(packages) != 1:
        raise MissingDependency("apt-get download busybox-static left no package for arm64")
    _run(["dpkg-deb", "-x", str(packages[0]), str(folder / "busybox")], folder)
    return folder / "busybox" / "bin" / "busybox"


def _run(argv: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingDependency(f"cannot fetch an aarch64 busybox: {error}") from error
    if done.returncode:
        raise MissingDependency(f"cannot fetch an aarch64 busybox: {' '.join(argv[-2:])}: {done.stderr.strip()[-500:]}")
