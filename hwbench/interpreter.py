"""How a process of Python is started: by this interpreter, with no folder on its path that nobody has put there.

Python itself looks for modules in the current folder first (``-m``, ``-c``), where a ``pip`` or an ``hwbench`` may lie
that somebody else has written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from hwbench.control_group import OWN, ControlGroup

_PACKAGE = Path(__file__).resolve().parent
_SAFE_PATH = "PYTHONSAFEPATH"
# Of libgomp: how often a thread looks before it sleeps; by itself 300,000 times, where it has a core of its own.
SPINS, FEW_SPINS = "GOMP_SPINCOUNT", "10000"
# By these a user says how threads wait.
_WAITING = frozenset((SPINS, "OMP_WAIT_POLICY"))


def cores(group: ControlGroup = OWN) -> int:
    """Processors that this process may use: by its affinity, and by the limits of its container."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, group.cores() or usable)


def last_words(process: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """How a process ended, and the last line that it wrote to its log; waits for its end."""
    status = process.wait()
    log.seek(0)
    lines = log.read().decode(errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    how = f"exit status {status}"
    if status < 0:
        how = f"killed by {signal.Signals(-status).name}"
        how += " (out of memory?)" if -status == signal.SIGKILL else ""
    return how + (f"; it last said: {said[:300]}" if said else "")


def python_command(module: str, *words: str) -> tuple[str, ...]:
    """The command that runs a module of Python in a process of its own, ``words`` being its arguments."""
    return (sys.executable, "-P", "-m", module, *words)


def python_program(code: str, *words: str) -> tuple[str, ...]:
    """The command that runs code of Python in a process of its own, ``words`` being its arguments."""
    return (sys.executable, "-P", "-c", code, *words)


def python_path() -> str:
    """A ``PYTHONPATH`` under which this very package is imported wherever it lies, then ``inherited_path``."""
    return os.pathsep.join(filter(None, [str(_PACKAGE.parent), inherited_path()]))


def inherited_path() -> str:
    """Our own ``PYTHONPATH`` without empty parts: Python takes one for the current folder, and ``$PYTHONPATH:/x`` has
    one where the variable was not set. Relative parts are made absolute, for processes in other folders.
    """
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(os.path.abspath(part) for part in parts if part)


def import_path() -> list[str]:
    """The folders in which this process finds modules, absolute, for a process that shall find the same ones."""
    return [os.path.abspath(folder) for folder in sys.path if folder]


def added_folders() -> list[str]:
    """Those of ``import_path`` that somebody has added to those of every process of this interpreter.

    The current folder is none of them: ``python -m`` adds it by itself. Nor is one inside of the installed packages,
    such as that of vendored ones which setuptools adds: a process that shall find the same modules adds it as well.
    """
    paths = sysconfig.get_paths()
    installed = [*site.getsitepackages(), *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))]
    usual = {*paths.values(), str(_PACKAGE.parent), os.getcwd()}
    return [
        folder
        for folder in import_path()
        if folder not in usual and os.path.exists(folder) and not any(Path(folder).is_relative_to(x) for x in installed)
    ]


def python_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for ``python_command`` of a module of ours: ours with ``python_path``, and ``more``."""
    return {**os.environ, _SAFE_PATH: "1", "PYTHONPATH": python_path(), **(more or {})}


@contextlib.contextmanager
def safe_children() -> Iterator[None]:
    """While the block runs, processes that libraries start with ``-c`` leave the current folder alone, too."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE_PATH, None)
        else:
            os.environ[_SAFE_PATH] = before


@contextlib.contextmanager
def sharing_cores() -> Iterator[None]:
    """While the block runs, libgomp that is loaded anew sleeps soon where a thread waits for the others.

    By default a thread looks for a millisecond, and holds a core meanwhile. Where another program has one of the cores,
    a training step waits for it again and again; it then takes three and a half times as long as one thread alone
    (``experiments/037-waiting-threads``). Measured processes wait as their engine does. What the user says of
    waiting stands.
    """
    if not _WAITING.isdisjoint(os.environ):
        yield
        return
    os.environ[SPINS] = FEW_SPINS
    try:
        yield
    finally:
        os.environ.pop(SPINS, None)
