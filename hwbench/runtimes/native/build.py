"""Builds the C++ runner on first use, against the headers and libraries of the installed executorch wheel.

The wheel is all that is needed: no source tree of ExecuTorch, no CMake, no NDK. The binary lies in a cache under a name
made of everything it depends on, so it is built once per compiler and wheel, and a stale one is never used; nor is one
whose content is not the one that was built (``kept``).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwbench.errors import MissingDependency
from hwbench.locks import try_flock
from hwbench.runtimes.native import kept
from hwbench.workspace import writing

SOURCES = Path(__file__).parent
INSTALL_COMPILER = "apt-get install g++"
# A build takes 5 to 15 s; ten times that means that it hangs.
TIME_LIMIT_S = 300.0

# Backends and kernels register themselves when they are loaded: they are linked although nothing calls them.
LIBRARIES = (
    "executorch",
    "executorch_threadpool",
    "executorch_backend_xnnpack",
    "executorch_kernels_optimized",
    "executorch_kernels_quantized",
)
FLAGS = ("-std=c++20", "-O2", "-fvisibility=hidden", "-DC10_USING_CUSTOM_GENERATED_MACROS", "-DET_USE_THREADPOOL")


@dataclass(frozen=True)
class Wheel:
    """An unpacked executorch wheel: the folder ``executorch`` with ``lib`` and ``include`` in it."""

    root: Path
    version: str

    @classmethod
    def installed(cls) -> Wheel:
        """The one of this interpreter; found without importing it.

        Raises:
            MissingDependency: Not installed, or without the C++ libraries (before 1.5, or not for Linux).
        """
        spec = importlib.util.find_spec("executorch")
        roots = list(spec.submodule_search_locations or ()) if spec else []
        for root in map(Path, roots):
            wheel = cls(root, importlib.metadata.version("executorch"))
            if wheel.complete:
                return wheel
        raise MissingDependency(
            "the C++ runner needs the libraries and headers of the executorch wheel, 1.5.1 or newer, for Linux; "
            f"{'they are not in ' + str(roots[0]) if roots else 'it is not installed'}: "
            "python -m pip install 'executorch>=1.5.1,<1.6'"
        )

    @property
    def complete(self) -> bool:
        """It has the headers and the libraries."""
        return (self.root / "include").is_dir() and all(path.is_file() for path in self.libraries)

    @property
    def libraries(self) -> tuple[Path, ...]:
        """The shared libraries that a runner needs beside it."""
        return tuple(self.root / "lib" / f"lib{name}.so" for name in LIBRARIES)

    def command(self, compiler: Sequence[str], output: Path) -> list[str]:
        """The compiler call that makes ``output``, which looks for its libraries beside itself, then in the wheel."""
        include, lib = self.root / "include", self.root / "lib"
        return [
            *compiler,
            *FLAGS,
            f'-DHWBENCH_EXECUTORCH_VERSION="{self.version}"',
            *("-isystem", str(include)),
            *("-isystem", str(include / "executorch" / "runtime" / "core" / "portable_type" / "c10")),
            str(SOURCES / "runner.cpp"),
            *("-o", str(output)),
            f"-L{lib}",
            *("-Xlinker", "-rpath", "-Xlinker", f"$ORIGIN:{lib}"),  # -Wl splits a path with a comma
            "-Wl,--no-as-needed",
            *(f"-l{name}" for name in LIBRARIES),
        ]


def find_compiler() -> tuple[str, ...]:
    """The C++ compiler: ``$CXX``, else c++, g++ or clang++.

    Raises:
        MissingDependency: There is none.
    """
    asked = tuple(shlex.split(os.environ.get("CXX", "")))
    for words in ((asked,) if asked else ()) + (("c++",), ("g++",), ("clang++",)):
        path = shutil.which(words[0])
        if path:
            return (path, *words[1:])
    raise MissingDependency(f"no C++ compiler found (c++, g++, clang++ or $CXX); install one: {INSTALL_COMPILER}")


def build_runner(
    cache_dir: Path,
    *,
    wheel: Wheel | None = None,
    compiler: Sequence[str] | None = None,
    install: str = INSTALL_COMPILER,
    report: Callable[[str], None] | None = None,
) -> Path:
    """The runner's binary: from ``cache_dir``, or built now (5 to 15 s). Safe when several processes ask at once.

    Args:
        cache_dir: Made when needed; holds the binary and a lock file.
        wheel: What to link against; default: the installed one.
        compiler: The command; default: ``find_compiler()``.
        install: The command that installs a compiler, for messages.
        report: Told in words when a build begins.

    Raises:
        MissingDependency: No compiler, one that cannot compile the runner, or no wheel; says what to install.
        WorkspaceError: The cache cannot be written, or somebody else can write it.
    """
    wheel = wheel or Wheel.installed()
    compiler = tuple(compiler or find_compiler())
    stem = f"runner-{_key(wheel, compiler)[:16]}"
    binary = kept.taken(cache_dir, stem)
    if binary is not None:
        return binary
    kept.own_folder(cache_dir)
    with writing(cache_dir), lock(cache_dir / "runner.lock"):
        binary = kept.taken(cache_dir, stem)
        if binary is None:
            if report is not None:
                report(f"building the C++ runner with {compiler[0]} (once, about 10 s)")
            binary = _compile(wheel, compiler, cache_dir, stem, install)
    return binary


def sources() -> tuple[Path, ...]:
    """The files of the runner; the first is the one to compile."""
    return (SOURCES / "runner.cpp", *sorted(SOURCES.glob("*.h")))


def _key(wheel: Wheel, compiler: Sequence[str]) -> str:
    """Digest of all that decides about the binary: sources, wheel, place of the wheel, compiler, flags."""
    version = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    contents = [path.read_text() for path in sources()]
    parts = (*contents, version.stdout, *wheel.command(compiler, Path("runner")))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _compile(wheel: Wheel, compiler: Sequence[str], cache_dir: Path, stem: str, install: str) -> Path:
    with tempfile.TemporaryDirectory(prefix=".runner-", dir=cache_dir) as folder:
        output = Path(folder, "runner")
        try:
            done = subprocess.run(
                wheel.command(compiler, output),
                env={**os.environ, "TMPDIR": folder},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIME_LIMIT_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise MissingDependency(
                f"{compiler[0]} did not compile the C++ runner within {TIME_LIMIT_S:.0f} s; "
                f"install another compiler: {install}"
            ) from error
        if done.returncode != 0 or not output.is_file():
            if "No space left on device" in done.stderr:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(cache_dir))
            lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
            said = next((line for line in lines if "error" in line), lines[-1])
            of_source = re.search(r"\.(cpp|h):\d|c\+\+20", said)  # an old compiler does not know -std=c++20
            wanted = (" (C++20 is needed)", "a newer") if of_source else ("", "another")
            raise MissingDependency(
                f"{compiler[0]} cannot compile the C++ runner{wanted[0]}: {said.strip()}; "
                f"install {wanted[1]} compiler: {install}"
            )
        return kept.keep(output, cache_dir, stem)


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; freed by the kernel also when its holder is killed.

    Without locks nobody is waited for: two may make the same, in folders of their own.
    """
    with path.open("w") as file:
        if try_flock(file) is False:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
