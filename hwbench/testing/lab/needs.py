"""What the laboratory needs, for its tests and its devices, and the one file that it fetches itself.

``python3 -m hwbench.testing.lab`` fetches it; CI does so before its tests. What is needed stands in
``hwbench.devices.laboratory``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hwbench.devices.laboratory import busybox_path, install_command, program_path, requirements
from hwbench.errors import MissingDependency
from hwbench.workspace import temporary_beside

SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")
REQUIRED = "HWBENCH_LAB_REQUIRED"
"""Name of the variable that is set where tests of the laboratory may not be skipped."""
# The lists of packages are 10 MB, the package 1 MB.
FETCH_LIMIT_S = 120.0


def skip_if_missing() -> None:
    """For tests: skips and says what to install; fails where the laboratory is required."""
    import pytest

    missing = "; ".join(requirements())
    if missing and os.environ.get(REQUIRED):
        pytest.fail(f"{missing} ({REQUIRED} is set)")
    if missing:
        pytest.skip(missing)


def require(name: str) -> str:
    """Path of a program of ``hwbench.devices.laboratory.PROGRAMS``.

    Raises:
        MissingDependency: It is not installed.
    """
    path = program_path(name)
    if path is None:
        raise MissingDependency(f"the laboratory needs {name}: {install_command([name])}")
    return path


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
