"""Programs for 64-bit ARM on this machine: the runner, cross-compiled, under an emulator of the processor."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hwbench.runtimes.runner_bundle import Kit, loader_kit, native_kit
from hwbench.runtimes.runners import Runner
from hwbench.testing.lab import REQUIRED

PROGRAMS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64-static": "qemu-user-static"}
# The default processor of the emulator computes wrong results in int8.
EMULATOR = ("qemu-aarch64-static", "-cpu", "cortex-a76")


def need(*programs: str) -> None:
    """Leaves a test out where a program is missing, and says what installs it; where ``REQUIRED`` is set, it fails."""
    missing = [PROGRAMS.get(program, program) for program in programs if shutil.which(program) is None]
    if missing:
        reason = f"needs: apt-get install {' '.join(missing)}"
        pytest.fail(reason) if os.environ.get(REQUIRED) else pytest.skip(reason)


def kits(cache_dir: Path) -> dict[str, Kit]:
    """Both kits for ``aarch64``, by kind; made once per folder (about 10 s and a download of 18 MB)."""
    need(*PROGRAMS)
    return {kit.kind: kit for kit in (native_kit("aarch64", cache_dir), loader_kit("aarch64", cache_dir))}


def unpacked(kit: Kit, folder: Path) -> Runner:
    """The runner of a kit whose files are copied to a folder here, in the emulator."""
    folder.mkdir()
    for path in kit.files:
        shutil.copy(path, folder)
    runner = kit.runner(str(folder))
    system = () if runner.command[0].endswith(".so.1") else ("-L", "/usr/aarch64-linux-gnu")
    return Runner(runner.kind, (*EMULATOR, *system, *runner.command), runner.env, runner.libraries, runner.build)


def machine_of_file(path: Path) -> str:
    """What ``readelf`` says a program is made for."""
    said = subprocess.run(["readelf", "-h", str(path)], capture_output=True, text=True, check=True).stdout
    return next(line.partition(":")[2].strip() for line in said.splitlines() if "Machine" in line)
