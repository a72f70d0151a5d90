"""``hwbench.doctor``: what is installed, what is missing, and the command that installs it; and making room."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request
from hwbench.errors import HwbenchError, MissingDependency
from hwbench.interpreter import cores
from hwbench.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd
    from packaging.specifiers import SpecifierSet

    from hwbench.room import Room
    from hwbench.workspace import Workspace

# Distribution -> what it is for, of those that hwbench needs. The versions that are tested together stand in
# constraints.txt, the bounds in pyproject.toml.
PACKAGES = {
    "torch": "models and training",
    "torchvision": "transforms",
    "executorch": "the .pte files",
    "torchao": "int8",
    "av": "video decoding",
    "optuna": "search",
    "plotly": "reports",
}
# What may be absent, and the command that installs it.
EXTRAS = {
    "onnxruntime": ("the .onnx files", "python -m pip install 'hwbench[onnx]'"),
    "openvino": ("the .ovz files", "python -m pip install 'hwbench[openvino]'"),
    "ai-edge-litert": ("the .tflite files", "python -m pip install 'hwbench[litert]'"),
}
# The machine of phones and boards.
ARM = "aarch64"
# Less than this does not hold the build cache of one space.
ENOUGH_DISK_BYTES = 1024**3


@dataclass(frozen=True)
class InstallationFinding:
    """One thing that was looked at. ``advice`` is the command that mends it; ``needed`` ones decide the exit status."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    needed: bool = True


@request
class DoctorRequest:
    """Say what is installed, what is missing, and the command that installs it; exit status 5 if it is needed.

    Each package that hwbench needs is held against the versions that hwbench declares.

    Entry points of installed packages are listed, with what keeps one from being used; none is loaded.

    Built files take at most 10 GiB (HWBENCH_CACHE_LIMIT=20GiB or none changes that), samples of verified tables 1 GiB:
    what was used least recently goes first.
    """

    clean: bool = option(
        default=False,
        flags=("--clean/--no-clean",),
        help="First remove from .hwbench what can be made again and no running process uses: built files, runners, "
        "what was fetched to make them, decoded videos, computed optical flow, what data check found out, samples of "
        "verified tables. Measurements, tables, studies and trained supernets stay. With --json: cleaned, with "
        "removed_bytes, removed_files, kept_bytes (in use) for cache and verified.",
    )


@dataclass(frozen=True)
class DoctorResult:
    """What was looked at. ``cleaned``: what was removed from each folder; None where that was not asked for."""

    cpus: int
    findings: tuple[InstallationFinding, ...]
    cleaned: dict[str, Room] | None

    @property
    def ok(self) -> bool:
        """Whether nothing is missing that is needed."""
        return all(finding.ok or not finding.needed for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench doctor --json`` prints."""
        values: dict[str, Any] = {
            "ok": self.ok,
            "cpus": self.cpus,
            "findings": [asdict(one) for one in self.findings],
        }
        if self.cleaned is not None:
            values["cleaned"] = {name: asdict(room) for name, room in self.cleaned.items()}
        return values

    def to_frame(self) -> pd.DataFrame:
        """One row a finding."""
        import pandas as pd

        return pd.DataFrame([asdict(one) for one in self.findings])


def doctor(
    request: DoctorRequest | None = None,
    listener: Listener = SILENT,
    *,
    workspace: Workspace | str | Path | None = None,
) -> DoctorResult:
    """Looks at the installation, this machine and the workspace; a workspace that is missing is a finding, too.

    Raises:
        WorkspaceError: There is nothing to clean, because there is no workspace, or it cannot be written.
    """
    request = request or DoctorRequest(clean=False)
    cleaned = _clean(workspace, listener) if request.clean else None
    findings = (*_machine(listener), *_packages(), *_plugins(), *_programs(), *_workspace(workspace))
    return DoctorResult(cores(), findings, cleaned)


def _machine(listener: Listener) -> Iterator[InstallationFinding]:
    yield InstallationFinding(
        "python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer"
    )
    from hwbench.devices import Device, probe_device
    from hwbench.devices.preflight import Level, examine
    from hwbench.specs import LOCAL

    device = Device(LOCAL, LOCAL)
    try:
        with device.transport(listener.say) as transport:
            probe = probe_device(transport)
            looked_at = examine(device, transport)
    except HwbenchError as error:
        yield InstallationFinding("local device", False, "cannot be measured", str(error), needed=False)
        return
    yield InstallationFinding(
        "processors", True, f"{cores()} usable, {probe.arch}, {probe.model}, governor {probe.governor}"
    )
    for one in looked_at:
        if one.name not in ("space", "governor"):  # told of the workspace, and above
            fine = one.level is Level.OK
            advice = f"{one.sentence}; {one.command}" if one.command else one.sentence
            yield InstallationFinding(one.name, fine, one.sentence, "" if fine else advice, needed=False)


def _packages() -> Iterator[InstallationFinding]:
    for name, versions in _declared().items():
        purpose = f" ({PACKAGES[name]})" if name in PACKAGES else ""
        advice = f"python -m pip install '{name}{versions}'" if versions else f"python -m pip install {name}"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield InstallationFinding(name, False, f"not installed{purpose}", advice)
            continue
        if not versions or versions.contains(version, prereleases=True):  # nightly builds of torch are prereleases
            yield InstallationFinding(name, True, f"{version}{purpose}")
        else:
            yield InstallationFinding(name, False, f"{version}{purpose}; hwbench needs {versions}", advice)
    for name, (purpose, advice) in EXTRAS.items():
        try:
            yield InstallationFinding(name, True, f"{importlib.metadata.version(name)} ({purpose})")
        except importlib.metadata.PackageNotFoundError:
            yield InstallationFinding(name, False, f"not installed; only for {purpose}", advice, needed=False)


def _declared() -> Mapping[str, SpecifierSet | None]:
    """The distributions that hwbench needs, and their versions, as the metadata of the installed hwbench declare them.

    Where hwbench is not installed, or ``packaging`` is not, which reads the metadata: PACKAGES in any version.
    """
    try:
        from packaging.requirements import Requirement

        requirements = [Requirement(line) for line in importlib.metadata.requires("hwbench") or ()]
    except ImportError:  # PackageNotFoundError is one
        return dict.fromkeys((*PACKAGES, "packaging"))
    return {one.name: one.specifier for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})}


def _plugins() -> Iterator[InstallationFinding]:
    from hwbench.api.doctor_plugins import installed_plugins

    for one in installed_plugins():
        found = f"of the package {one.package} ({one.point.value})"
        yield InstallationFinding(
            f"plugin {one.point.group}:{one.point.name}",
            not one.problem,
            f"{found}; {one.problem}" if one.problem else found,
            one.advice,
            needed=False,
        )


def _programs() -> Iterator[InstallationFinding]:
    from hwbench.runtimes.native.build import INSTALL_COMPILER, find_compiler

    try:
        yield InstallationFinding("C++ compiler", True, " ".join(find_compiler()))
    except MissingDependency:
        found = "none; the slower Python runner is used"
        yield InstallationFinding("C++ compiler", False, found, INSTALL_COMPILER, needed=False)
    yield from _for_devices()


def _for_devices() -> Iterator[InstallationFinding]:
    """What other devices than this machine need here."""
    from hwbench.devices.laboratory import FETCH, busybox_path, missing_programs
    from hwbench.devices.laboratory import install_command as install_for_laboratory
    from hwbench.runtimes.native.cross import find_compiler_for, install_command

    adb = shutil.which("adb")
    yield InstallationFinding(
        "adb", adb is not None, adb or "none; only for phones", "apt-get install adb", needed=False
    )
    try:
        yield InstallationFinding("ARM compiler", True, " ".join(find_compiler_for(ARM)))
    except MissingDependency:
        found = "none; only for phones, and for boards without a compiler and without executorch"
        yield InstallationFinding("ARM compiler", False, found, install_command(ARM), needed=False)
    missing, commands = missing_programs("ssh"), []  # as `devices add --virtual` reaches one by default
    if missing:
        commands.append(install_for_laboratory(missing))
    if not busybox_path().is_file():
        missing, commands = [*missing, "busybox for aarch64"], [*commands, FETCH]
    found = f"no {', '.join(missing)}; only for devices that are emulated" if missing else "complete"
    yield InstallationFinding("ARM emulation", not missing, found, "; ".join(commands), needed=False)


def _workspace(workspace: Workspace | str | Path | None) -> Iterator[InstallationFinding]:
    from hwbench.measure.store import MeasurementStore
    from hwbench.workspace import Workspace

    try:
        workspace = Workspace.at(workspace)
        store = workspace.store
        free = shutil.disk_usage(workspace.root).free
    except HwbenchError as error:
        yield InstallationFinding("workspace", False, str(Path.cwd()), str(error))
        return
    yield InstallationFinding("workspace", True, f"{workspace.root}, writable")
    advice = "free some space; built files go with: hwbench doctor --clean"
    yield InstallationFinding("disk", free >= ENOUGH_DISK_BYTES, f"{format_bytes(free)} free", advice, needed=False)
    yield _built_programs(workspace)
    yield _taken(workspace)
    yield from _beside_builds(workspace)
    if not store.exists():
        yield InstallationFinding("measurements", True, "none yet; make some: hwbench profile --device local")
        return
    try:
        with MeasurementStore(store) as opened:
            counts = opened.counts()
        yield InstallationFinding(
            "measurements", True, ", ".join(f"{n} {outcome}" for outcome, n in counts.items()) or "none"
        )
    except HwbenchError as error:
        yield InstallationFinding("measurements", False, str(store), str(error))


def _built_programs(workspace: Workspace) -> InstallationFinding:
    """Whether a runner that is built in the workspace starts there."""
    from hwbench.devices.local import LocalTransport
    from hwbench.devices.workplace import work_dir_fault
    from hwbench.workspace import temporary_beside

    folder = workspace.cache if workspace.cache.is_dir() else workspace.state
    with LocalTransport() as transport:
        fault = work_dir_fault(transport, str(temporary_beside(folder / "start")))
    advice = "mend that, or make a workspace on another disk: hwbench init DIR"
    found = fault or "programs start there"
    return InstallationFinding("built programs", not fault, f"{folder}: {found}", advice if fault else "", needed=False)


def _taken(workspace: Workspace) -> InstallationFinding:
    """What built files take, and may take."""
    from hwbench.room import LIMIT_VARIABLE, limit_bytes, size_of_builds

    taken = format_bytes(size_of_builds(workspace.cache))
    try:
        limit = limit_bytes()
    except HwbenchError as error:
        return InstallationFinding(
            "build cache", False, f"{taken}, its limit is no size", f"{error}; set or unset {LIMIT_VARIABLE}"
        )
    return InstallationFinding(
        "build cache", True, taken + (f" of at most {format_bytes(limit)}" if limit < math.inf else "")
    )


def _beside_builds(workspace: Workspace) -> Iterator[InstallationFinding]:
    """What else lies in the cache, where there is any; the limit of built files is not one of it."""
    from hwbench.room import DECODED, FLOW, SUPERNETS, size, size_of_builds

    kinds = {
        DECODED: ("decoded videos", "kept by --decoded-cache"),
        FLOW: ("optical flow", "computed for --modality"),
        SUPERNETS: ("supernets", "trained for --evaluator supernet; doctor --clean leaves them"),
    }
    sizes = {folder: size(workspace.cache / folder) for folder in kinds}
    for folder, (name, why) in kinds.items():
        if num_bytes := sizes[folder]:
            yield InstallationFinding(name, True, f"{format_bytes(num_bytes)}, {why}")
    if num_bytes := size(workspace.cache) - size_of_builds(workspace.cache) - sum(sizes.values()):
        why = "runners, what was fetched to make them, and what data check found out"
        yield InstallationFinding("rest of the cache", True, f"{format_bytes(num_bytes)}, {why}")


def _clean(workspace: Workspace | str | Path | None, listener: Listener) -> dict[str, Room]:
    """Removes what can be made again, and says how much."""
    from hwbench.room import clean_cache, clean_verified
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    rooms = {"cache": clean_cache(workspace.cache), "verified": clean_verified(workspace.verified)}
    for folder, room in zip((workspace.cache, workspace.verified), rooms.values(), strict=True):
        kept = f", {format_bytes(room.kept_bytes)} is in use and stays" if room.kept_bytes else ""
        listener.say(f"{folder}: {format_bytes(room.removed_bytes)} removed{kept}")
    return rooms
