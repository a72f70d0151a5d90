"""The build cache: ``<key>.pte`` beside ``<key>.json``. Loads no torch and starts no process.

The key is a digest of everything that determines the file: the workload, the engine with the versions of the packages
that lower a graph, the sources of hwbench which make that graph, and the sources of other packages that take part:
blocks, graph rules, the runtime. A changed source or version is another key, so nothing stale is ever measured; a file
whose digest does not match its description is built again, as is one that somebody else can write. A folder that
somebody else can write is refused. What has not been used for longest goes when the cache grows beyond its limit
(``hwbench.room``).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from hwbench.documents import read_json
from hwbench.errors import HwbenchError, MissingDependency
from hwbench.locks import try_flock, without_locks
from hwbench.ownership import check_own, is_own, keep_to_us, make_own_folder
from hwbench.room import limit_bytes, stamp, trim_builds, use
from hwbench.runtimes import get, runtimes
from hwbench.runtimes.base import installed_version, version_of
from hwbench.runtimes.capabilities import ModuleForm
from hwbench.specs import Artifact, DelegationReport, Workload
from hwbench.specs.plugin_sources import package_digest, workload_digest
from hwbench.workspace import write_text, writing

PACKAGE = Path(__file__).resolve().parents[1]
# What decides about the graph of a workload, relative to the package.
SOURCES = (
    "blocks/**/*.py",
    "models/**/*.py",
    "runtimes/**/*.py",
    "specs/block.py",
    "specs/bottlenecks.py",
    "specs/fields.py",
    "specs/kind.py",
    "specs/kinds/**/*.py",
    "specs/tensor.py",
    "specs/widths.py",
    "specs/workload.py",
    "measure/build_worker.py",
)
# What runs files does not make them.
NOT_SOURCES = (
    "runtimes/eager_model.py",
    "runtimes/litert_model.py",
    "runtimes/machine.py",
    "runtimes/model_server.py",
    "runtimes/native/**/*.py",
    "runtimes/onnx_model.py",
    "runtimes/openvino_model.py",
    "runtimes/protocol.py",
    "runtimes/pte_model.py",
    "runtimes/python_models.py",
    "runtimes/python_runner.py",
    "runtimes/runner_bundle.py",
    "runtimes/runners.py",
    "runtimes/script_model.py",
)


# Who has this file locked builds into the folder.
LOCK = "building.lock"
# How often it is tried by who may be told to stop; a build takes seconds.
_PAUSE_S = 0.02
_HOLDS = "what lies there is run"


def engine_version(runtime: str) -> str:
    """Version of an engine as ``Runtime.version`` reports it, also where what builds its files is not installed.

    Raises:
        UnknownName: No such runtime.
        MissingDependency: The engine is not installed.
    """
    packages = get(runtime).capabilities.packages
    return installed_version(packages[0]) if packages else version_of(get(runtime))


def building_version(runtime: str) -> str:
    """``engine_version`` for who builds files too: without the engine, the message names what builds them as well.

    Raises:
        UnknownName: No such runtime.
        MissingDependency: The engine is not installed.
    """
    try:
        return engine_version(runtime)
    except MissingDependency:
        version_of(get(runtime))
        raise


def sources() -> list[Path]:
    """The sources that determine a graph, in a fixed order."""
    left_out = {path for pattern in NOT_SOURCES for path in PACKAGE.glob(pattern)}
    return sorted({path for pattern in SOURCES for path in PACKAGE.glob(pattern)} - left_out)


@functools.cache
def sources_digest() -> str:
    """Digest of the sources that determine a graph; any change of them is a change of every cache key."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@dataclass(frozen=True)
class ArtifactCache:
    """Files built for one runtime, found by workload.

    Args:
        root: Directory of the files; made on the first write.
        runtime: Name of the runtime.
    """

    root: Path
    runtime: str

    @functools.cached_property
    def version(self) -> str:
        """Version of the engine."""
        return building_version(self.runtime)

    @functools.cached_property
    def _engine(self) -> str:
        runtime, version = get(self.runtime), self.version
        packages = [f"{name}={installed_version(name)}" for name in runtime.capabilities.packages]
        other = package_digest(type(runtime).__module__, runtimes.point(self.runtime))
        return "\n".join([self.runtime, version, *packages, sources_digest(), *filter(None, [other])])

    def key(self, workload: Workload) -> str:
        """Name of the workload's files, and of its build in the measurement store."""
        form = get(self.runtime).capabilities.form(workload)
        plugins = workload_digest(workload, rewritten=form is ModuleForm.DEPLOY)
        lines = [workload.key, self._engine, *filter(None, [plugins])]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def load(self, workload: Workload) -> Artifact | None:
        """The built file, or None where there is none, it is damaged, or it is not of this workload.

        Raises:
            WorkspaceError: Somebody else can write the folder.
        """
        check_own(self.root, _HOLDS)
        description = self._description(workload)
        stamp(self.root, description)
        try:
            values = read_json(description.read_text())
            artifact = artifact_from_json(values, self.root)
            whole = artifact.workload == workload and file_sha256(artifact.path) == artifact.sha256
            whole = whole and is_own(description) and is_own(artifact.path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, HwbenchError):
            return None
        return artifact if whole else None

    def save(self, artifact: Artifact) -> None:
        """Describes a file that lies in the cache, which makes it count as built.

        Raises:
            WorkspaceError: The cache cannot be written.
        """
        text = json.dumps(artifact_to_json(artifact), indent=2, sort_keys=True)
        description = self._description(artifact.workload)
        with writing(self.root):
            keep_to_us(artifact.path)
            write_text(description, text + "\n")
            keep_to_us(description)
        stamp(self.root, description)

    @contextmanager
    def building(self, stop: threading.Event | None = None) -> Iterator[bool]:
        """Holds the right to build into this folder while the block runs; other processes wait until it is free.

        Who waited finds in the cache what the other one built. The right ends with the process that holds it, and a
        process that has it may take it again. At its end what is too much for the folder goes.

        Args:
            stop: Ends the wait once it is set.

        Yields:
            Whether the right is held: False where the wait was ended.

        Raises:
            InvalidValue: The limit of the cache is no size.
            WorkspaceError: The cache cannot be written, or has no locks, or somebody else can write it.
        """
        with writing(self.root):
            make_own_folder(self.root, _HOLDS)
        use(self.root)
        limit_bytes()  # one that is no size is told before anything is built
        held = _building.setdefault(self.root.resolve(), _BuildTurn())
        if not self._take(held, stop):
            yield False
            return
        try:
            yield True
        finally:
            with held.guard:
                held.count -= 1
                if held.count == 0 and held.file is not None:
                    try:
                        trim_builds(self.root)
                    finally:
                        held.file.close()

    def _take(self, held: _BuildTurn, stop: threading.Event | None) -> bool:
        """Takes the lock, once for all of this process; False where another one has it until ``stop`` is set."""
        with held.guard:
            if held.count == 0:
                with writing(self.root):
                    file = (self.root / LOCK).open("a")
                try:
                    ours = try_flock(file)
                    if ours is False and stop is None:
                        fcntl.flock(file, fcntl.LOCK_EX)
                        ours = True
                    while ours is False and stop is not None and not stop.wait(_PAUSE_S):
                        ours = try_flock(file)
                    if ours is None:
                        raise without_locks(self.root, "building into one folder", "use a workspace on another disk")
                except BaseException:
                    file.close()
                    raise
                if not ours:
                    file.close()
                    return False
                held.file = file
            held.count += 1
        return True

    def _description(self, workload: Workload) -> Path:
        return self.root / f"{self.key(workload)}.json"


@dataclass
class _BuildTurn:
    """The lock on one cache folder, as this process holds it."""

    guard: threading.RLock = field(default_factory=threading.RLock)
    count: int = 0
    file: IO[str] | None = None


_building: dict[Path, _BuildTurn] = {}


def artifact_to_json(artifact: Artifact) -> dict[str, Any]:
    """An artifact as plain values; its path as a file name."""
    return {
        "file": artifact.path.name,
        "sha256": artifact.sha256,
        "workload": artifact.workload.key,
        "runtime": artifact.runtime,
        "version": artifact.version,
        "delegates": artifact.delegation.delegates,
        "undelegated": dict(artifact.delegation.undelegated),
        **({"states": list(artifact.states)} if artifact.states else {}),
    }


def artifact_from_json(values: dict[str, Any], folder: Path) -> Artifact:
    """Reads what ``artifact_to_json`` writes, for a file in ``folder``."""
    return Artifact(
        path=folder / Path(values["file"]).name,
        sha256=values["sha256"],
        workload=Workload.parse(values["workload"]),
        runtime=values["runtime"],
        version=values["version"],
        delegation=DelegationReport(int(values["delegates"]), dict(values["undelegated"])),
        states=tuple(values.get("states", ())),
    )


def file_sha256(path: Path) -> str:
    """Digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
