"""The executorch wheel of another kind of machine: fetched through pip, of the version that is installed here."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from hwbench.errors import InvalidFile, MissingDependency
from hwbench.interpreter import inherited_path, python_command, python_environment
from hwbench.runtimes.base import installed_version
from hwbench.runtimes.native import kept
from hwbench.runtimes.native.build import Wheel, lock
from hwbench.workspace import writing

# 18 MB; a slow connection takes a few minutes.
DOWNLOAD_LIMIT_S = 900.0
# What the wheels of 1.5 are tagged with: glibc 2.28.
_PLATFORM = "manylinux_2_28"
DIGESTS = Path(__file__).with_name("wheels.sha256")


def fetch_wheel(
    machine: str, cache_dir: Path, *, version: str | None = None, report: Callable[[str], None] | None = None
) -> Wheel:
    """Headers and libraries for another kind of machine: from ``cache_dir``, from a file there, or through pip.

    A wheel of a version that ``wheels.sha256`` names is taken only with the digest that stands there, or with one that
    somebody wrote beside it (``sha256sum X.whl > X.whl.sha256``), for builds of one's own.

    Args:
        machine: As ``uname -m`` says it, such as ``aarch64``.
        cache_dir: The wheel is kept unpacked in its folder ``wheels``; a ``.whl`` that lies there is taken before one
            is fetched.
        version: Of executorch; default: the installed one, which is the one that made the files to be run.
        report: Told in words when a download begins, and where no digest is known.

    Raises:
        MissingDependency: executorch is not installed, or pip cannot fetch it: says what to do.
        InvalidFile: The wheel has another digest, is of another version or kind of machine, or holds no C++ libraries.
        WorkspaceError: The cache cannot be written, or somebody else can write it.
    """
    version = (version or installed_version("executorch")).partition("+")[0]
    folder, stem = cache_dir / "wheels", f"executorch-{version}-{machine}"
    unpacked = kept.taken(folder, stem)
    if unpacked is None:
        kept.own_folder(folder)
        with (
            writing(folder),
            lock(folder / "wheels.lock"),
            tempfile.TemporaryDirectory(prefix=".wheel-", dir=folder) as made,
        ):
            unpacked = kept.taken(folder, stem)
            if unpacked is None:
                wheel = _given(folder, machine) or _download(version, machine, Path(made), report)
                _check_digest(wheel, version, folder, report)
                unpacked = kept.keep(_unpack(wheel, version, machine, Path(made), folder), folder, stem)
    return Wheel(unpacked / "executorch", version)


def _given(folder: Path, machine: str) -> Path | None:
    """A wheel that someone put there."""
    return max(folder.glob(f"executorch-*_{machine}.whl"), default=None)


def published_digests() -> dict[str, str]:
    """SHA-256 by name of wheel."""
    lines = DIGESTS.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if line and not line.startswith("#"))}


def _check_digest(wheel: Path, version: str, folder: Path, report: Callable[[str], None] | None) -> None:
    """Refuses a wheel that is not the one that was published, or that somebody vouched for."""
    published, beside = published_digests(), wheel.with_name(wheel.name + ".sha256")
    expected = published.get(wheel.name)
    if beside.is_file():
        expected = (beside.read_text(errors="replace").split() or [""])[0].lower()
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if expected is None and not any(name.startswith(f"executorch-{version}-") for name in published):
        if report is not None:
            report(f"no digest of executorch {version} is known here: {wheel.name} is taken as it came ({found})")
        return
    if found != expected:
        came = f"remove it from {folder}" if wheel.parent == folder else "see: python -m pip config list"
        wanted = expected or f"one of {DIGESTS.name}"
        raise InvalidFile(
            f"{wheel.name}: expected sha256 {wanted}, this one has {found}; {came}; "
            f"or, if it is a build of your own, put it into {folder} and write its digest beside it: "
            f"sha256sum {wheel.name} > {beside.name}"
        )


def _download(version: str, machine: str, folder: Path, report: Callable[[str], None] | None) -> Path:
    if report is not None:
        report(f"fetching executorch {version} for {machine} with pip (once, 18 MB)")
    python = f"{sys.version_info.major}{sys.version_info.minor}"
    command = [
        *python_command("pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--only-binary=:all:", "--platform", f"{_PLATFORM}_{machine}"),
        *("--implementation", "cp", "--python-version", python, "--dest", str(folder), f"executorch=={version}"),
    ]
    try:
        done = subprocess.run(
            command,
            # Not the folder of this package, which may be a checkout with anything in it.
            env=python_environment({"PYTHONPATH": inherited_path()}),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        said = done.stderr
    except subprocess.TimeoutExpired:
        said = f"nothing within {DOWNLOAD_LIMIT_S:.0f} s"
    found = list(folder.glob("executorch-*.whl"))
    if found:
        return found[0]
    lines = [line for line in said.splitlines() if line.strip()] or ["nothing"]
    told = next((line for line in lines if line.startswith("ERROR")), lines[-1])
    raise MissingDependency(
        f"pip did not fetch executorch {version} for {machine} (it said: {told.strip()[:200]}); run this again with a "
        f"network, or put executorch-{version}-cp{python}-cp{python}-{_PLATFORM}_{machine}.whl into {folder.parent}"
    )


def _unpack(wheel: Path, version: str, machine: str, made: Path, folder: Path) -> Path:
    """Takes the libraries and headers out of a wheel, to ``made``; returns the folder that holds ``executorch``."""
    wrong = f"{wheel.name}: expected executorch {version} for {machine} with C++ libraries"
    advice = f"remove it from {folder}" if wheel.parent == folder else "see: python -m pip config list"
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = _version(archive)
            if found != version or not wheel.name.endswith(f"_{machine}.whl"):
                raise InvalidFile(f"{wrong}, this is {found or 'something else'}; {advice}")
            target = made / "unpacked"
            for name in archive.namelist():
                parts = PurePosixPath(name).parts
                if ".." not in parts and (parts[:2] == ("executorch", "include") or _library(parts)):
                    archive.extract(name, target)
    except zipfile.BadZipFile as error:
        raise InvalidFile(f"{wrong}: {error}; {advice}") from error
    if not Wheel(target / "executorch", version).complete:
        raise InvalidFile(f"{wrong}, it has none; {advice}")
    return target


def _library(parts: tuple[str, ...]) -> bool:
    return len(parts) == 3 and parts[:2] == ("executorch", "lib") and parts[2].endswith(".so")


def _version(archive: zipfile.ZipFile) -> str:
    """As the metadata say it; empty where there are none."""
    for name in archive.namelist():
        if re.fullmatch(r"executorch-[^/]+\.dist-info/METADATA", name):
            found = re.search(r"^Version: (\S+)$", archive.read(name).decode(errors="replace"), re.MULTILINE)
            return found[1].partition("+")[0] if found else ""
    return ""
