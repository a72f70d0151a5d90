"""What is carried to a device so that a runner runs there: files that lie in one folder, and the command."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hwbench.runtimes.base import installed_version
from hwbench.runtimes.capabilities import NATIVE, NATIVE_BOARD, NATIVE_LOADER, PYTHON
from hwbench.runtimes.native import kept
from hwbench.runtimes.native.build import SOURCES, Wheel, sources
from hwbench.runtimes.native.cross import LOADERS, build_for, libc_files, wheel_for
from hwbench.runtimes.runners import Runner
from hwbench.workspace import writing

_HWBENCH = Path(__file__).resolve().parents[1]
# Modules of ours that the Python runner imports for .pte and .tflite files, on a device that has no hwbench: its own,
# and those that say what runtimes there are.
_PYTHON_FILES = (
    "__init__.py",
    "api/__init__.py",
    "durable.py",
    "errors.py",
    "locks.py",
    "lookup.py",
    "ownership.py",
    "printable.py",
    "registry.py",
    "scratch.py",
    "units.py",
    "workspace.py",
    "specs/*.py",
    "specs/kinds/*.py",
    "runtimes/__init__.py",
    "runtimes/base.py",
    "runtimes/calibration.py",
    "runtimes/capabilities.py",
    "runtimes/eager.py",
    "runtimes/executorch/__init__.py",
    "runtimes/executorch/quiet.py",
    "runtimes/executorch/runtime.py",
    "runtimes/executorch/scheme.py",
    "runtimes/litert.py",
    "runtimes/litert_model.py",
    "runtimes/machine.py",
    "runtimes/onnx/__init__.py",
    "runtimes/onnx/runtime.py",
    "runtimes/openvino.py",
    "runtimes/protocol.py",
    "runtimes/pte_model.py",
    "runtimes/python_models.py",
    "runtimes/python_runner.py",
    "runtimes/torchscript.py",
)
_MAIN = "import sys\nfrom hwbench.runtimes.python_runner import main\nsys.exit(main())\n"
# So that the same content is always the same archive.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Kit:
    """Files of one runner for one kind of machine.

    Args:
        kind: As ``Runner.kind``.
        files: They must lie in one folder, under their own names; the program, or what it is built from, is the first.
        words: The command; ``{}`` stands for that folder.
        engine: The files that decide about the time of an execution.
        env: Added to the environment there.
    """

    kind: str
    files: tuple[Path, ...]
    words: tuple[str, ...]
    engine: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(path.stat().st_size for path in self.files)

    def runner(self, folder: str) -> Runner:
        """The runner, where the files lie in ``folder`` on the device."""
        command = tuple(word.replace("{}", folder) for word in self.words)
        return Runner(self.kind, command, self.env, digest(self.engine), self.files[0].name)


def native_kit(machine: str, cache_dir: Path, report: Callable[[str], None] | None = None) -> Kit:
    """The C++ runner and the libraries of the wheel, for a Linux with a libc like ours; errors as ``build_for``."""
    binary, wheel, _ = build_for(machine, cache_dir, report)
    return Kit(NATIVE, (binary, *wheel.libraries), (f"{{}}/{binary.name}",), wheel.libraries)


def loader_kit(machine: str, cache_dir: Path, report: Callable[[str], None] | None = None) -> Kit:
    """The C++ runner with a libc of its own, for a Linux with another libc, an older one, or none: Android.

    Raises:
        MissingDependency: As ``build_for``, or the compiler has no libc.
    """
    binary, wheel, compiler = build_for(machine, cache_dir, report)
    libc = libc_files(machine, compiler)
    words = (f"{{}}/{LOADERS[machine]}", "--inhibit-cache", "--library-path", "{}", f"{{}}/{binary.name}")
    # What is preloaded there is made for the libc that is there.
    env = {"LD_PRELOAD": ""}
    return Kit(NATIVE_LOADER, (binary, *wheel.libraries, *libc), words, (*wheel.libraries, *libc), env)


def sources_kit(machine: str, cache_dir: Path, report: Callable[[str], None] | None = None) -> Kit:
    """An archive to compile on the device: sources, headers and libraries; errors as ``wheel_for``.

    The archive holds ``sh build.sh COMPILER...``, which makes ``runner`` beside it.
    """
    wheel = wheel_for(machine, cache_dir, report)
    stem, ending = f"runner-sources-{machine}-{digest((*sources(), *wheel.libraries))[:16]}", ".tar.gz"
    archive = kept.taken(cache_dir, stem, ending) or _kept(_tar(wheel), cache_dir, stem, ending)
    return Kit(NATIVE_BOARD, (archive,), ("{}/runner",), wheel.libraries)


def python_kit(python: str, cache_dir: Path) -> Kit:
    """The Python runner as one file, for a device with an engine in that Python of it.

    Raises:
        WorkspaceError: The cache cannot be written.
    """
    data = _zip()
    stem, ending = f"runner-{hashlib.sha256(data).hexdigest()[:16]}", ".pyz"
    archive = kept.taken(cache_dir, stem, ending) or _kept(data, cache_dir, stem, ending)
    return Kit(PYTHON, (archive,), (python, "-P", f"{{}}/{archive.name}"))


def _kept(data: bytes, cache_dir: Path, stem: str, ending: str) -> Path:
    kept.own_folder(cache_dir)
    with writing(cache_dir), tempfile.TemporaryDirectory(prefix=".kit-", dir=cache_dir) as folder:
        made = Path(folder, "archive")
        made.write_bytes(data)
        return kept.keep(made, cache_dir, stem, ending)


def digest(files: Sequence[Path]) -> str:
    """Of names and contents; empty for no files."""
    if not files:
        return ""
    parts = sorted(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _tar(wheel: Wheel) -> bytes:
    headers = sorted(path for path in (wheel.root / "include").rglob("*") if path.is_file())
    wanted = {f"wheel/{path.relative_to(wheel.root)}": path for path in headers}
    wanted |= {f"sources/{path.name}": path for path in sources()}
    wanted |= {path.name: path for path in wheel.libraries}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        _add(archive, "build.sh", _build_script(wheel).encode())
        for name, path in wanted.items():
            _add(archive, name, path.read_bytes())
    return gzip.compress(raw.getvalue(), compresslevel=6, mtime=0)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    archive.addfile(entry, io.BytesIO(data))


def _build_script(wheel: Wheel) -> str:
    """The compiler call of ``Wheel.command``, in the folder where the archive was unpacked."""
    there = Wheel(Path("wheel"), wheel.version)
    words = there.command(['"$@"'], Path("runner"))
    replaced = {
        "-Lwheel/lib": "-L.",
        "$ORIGIN:wheel/lib": "$ORIGIN",
        str(SOURCES / "runner.cpp"): "sources/runner.cpp",
    }
    quoted = [word if word == '"$@"' else "'" + replaced.get(word, word) + "'" for word in words]
    return "set -e\n" + " ".join(quoted) + "\n"


def _zip() -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for pattern in _PYTHON_FILES:
            for path in sorted(_HWBENCH.glob(pattern)):
                name = f"hwbench/{path.relative_to(_HWBENCH)}"
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes())
    return raw.getvalue()


def engine_version(distribution: str) -> str:
    """Of an installed engine, without what follows ``+``: what a Python on a device must have."""
    return installed_version(distribution).partition("+")[0]
