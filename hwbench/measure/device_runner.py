"""Which runner a device gets, and how it comes there.

The device file decides, if it does. Else the first that works of: the C++ runner built here (with the libc that is
there, or with its own), the C++ runner built by the device's compiler, the Python runner in a Python there that has
the engine. A runner works when it was started there and said how it wants to be called.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hwbench.devices import Device, Probe, Transport
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, HwbenchError, MissingDependency
from hwbench.measure.carried import check_runtime
from hwbench.measure.remote_toolchain import (
    BoardTools,
    ask_board,
    ask_python,
    compile_there,
    machine_of,
)
from hwbench.room import use
from hwbench.runtimes import DEFAULT, get
from hwbench.runtimes.capabilities import EXECUTOR_RUNNER, NATIVE, NATIVE_BOARD, NATIVE_LOADER, PYTHON, Capabilities
from hwbench.runtimes.native.cross import install_command
from hwbench.runtimes.runner_bundle import Kit, engine_version, loader_kit, native_kit, python_kit, sources_kit
from hwbench.runtimes.runners import Runner, choose_runner, describe_end, python_runner
from hwbench.specs import LOCAL  # its transport is called so, too

Report = Callable[[str], None]

# Loading 12 MB of libraries on a slow card, or numpy and torch in Python there.
START_LIMIT_S = 120.0
# What a runner says that was called without a word.
_CALLED_WRONGLY, _USAGE = 2, "--list FILE"
KINDS = (NATIVE, NATIVE_LOADER, NATIVE_BOARD, PYTHON)
# These say nothing of a runner: the next one would be taken because of the network.
_AWAY = (DeviceLost, DeviceUnreachable)
# What is carried to a device to see whether a runner works there.
RUNTIME = DEFAULT


@dataclass(frozen=True)
class Installed:
    """A runner on a device.

    Args:
        runner: Its command there.
        folder: Where it lies there.
        size_bytes: Of the files that it is made of.
        seconds: What it took to make it, carry it there and start it; 0 bytes may have been sent.
        note: What is not certain about it; empty where nothing is.
        again: Brings the same files to the same place, where they may have gone: after a restart of the device.
    """

    runner: Runner
    folder: str
    size_bytes: int
    seconds: float
    note: str = ""
    again: Callable[[], object] = lambda: None


class _Unfit(Exception):
    """This runner does not work there; the text says why."""


def install_runner(
    device: Device,
    transport: Transport,
    probe: Probe,
    runtime: str,
    *,
    cache_dir: Path,
    report: Report | None = None,
) -> Installed:
    """Gets the runner of a device ready: makes it, carries it there, and starts it once.

    Args:
        device: Its file may say which runner.
        transport: Open, to that device.
        probe: Of that device.
        runtime: Name of the runtime whose files are to be run.
        cache_dir: Where what was made or fetched is kept.
        report: Told what takes long, and why another runner is taken than the first.

    Raises:
        DeviceError: No runner works there; says what to install, and on which side.
        InvalidValue: The device runs no files of that runtime.
        WorkspaceError: The cache cannot be written.
    """
    check_runtime(device, runtime)
    use(cache_dir)
    say = report or (lambda _: None)
    start = time.monotonic()
    if device.transport_name == LOCAL and device.runner in ("", NATIVE, PYTHON):
        runner = python_runner() if device.runner == PYTHON else choose_runner(runtime, cache_dir, report)
        return Installed(runner, str(cache_dir), 0, time.monotonic() - start)
    way = _Way(device, transport, probe, cache_dir, say, runtime)
    found = way.named() if device.runner not in ("", *KINDS) else way.first()
    note = ""
    if found.runner.kind == NATIVE_LOADER and probe.android:
        note = "experimental: glibc's loader on Android works under emulation and is not confirmed on a phone yet"
        say(f"{note}; please tell whether it works on {probe.model}")
    return Installed(found.runner, found.folder, found.size_bytes, time.monotonic() - start, note, found.again)


class _Found(NamedTuple):
    runner: Runner
    folder: str
    size_bytes: int
    again: Callable[[], object]


@dataclass(frozen=True)
class _Way:
    device: Device
    transport: Transport
    probe: Probe
    cache_dir: Path
    say: Report
    runtime: str = RUNTIME

    @property
    def capabilities(self) -> Capabilities:
        return get(self.runtime).capabilities

    def first(self) -> _Found:
        """The first runner that works, of those that may be taken."""
        kinds = self.capabilities.remote_runners
        if kinds == (PYTHON,):  # asks for no libraries of ours, and no compiler
            return self._only_python()
        machine = machine_of(self.probe)
        board = ask_board(self.transport, machine)
        ways = {
            NATIVE: lambda: self._native(machine, board),
            NATIVE_LOADER: lambda: self._loader(machine),
            NATIVE_BOARD: lambda: self._board(machine, board),
            PYTHON: lambda: self._python("python3"),
        }
        wanted = self.device.runner
        reasons = []
        for kind in (wanted,) if wanted else ways:
            try:
                return ways[kind]()
            except (_Unfit, MissingDependency) as error:
                reasons.append(f"{kind}: {error}")
                self.say(f"device {self.device.name!r}: no {kind} runner: {error}")
        raise DeviceError(self._nothing(machine, reasons))

    def _only_python(self) -> _Found:
        try:
            return self._python("python3")
        except _Unfit as error:
            raise DeviceError(f"no runner of {self.runtime} works on device {self.device.name!r}: {error}") from None

    def _nothing(self, machine: str, reasons: list[str]) -> str:
        there = "" if self.probe.android else " or on the device a compiler: apt-get install g++,"
        version = engine_version(self.capabilities.packages[0])
        return (
            f"no runner works on device {self.device.name!r} ({'; '.join(reasons)}); install on this machine: "
            f"{install_command(machine)},{there} or there: python3 -m pip install executorch=={version} torch"
        )

    def named(self) -> _Found:
        """The program that the device file names: a Python there, or the user's own executor_runner."""
        path = self.device.runner
        if PurePosixPath(path).name.startswith("python"):
            try:
                return self._python(path)
            except _Unfit as error:
                raise DeviceError(f"device {self.device.name!r}: runner = {path!r}: {error}") from None
        if self.runtime != RUNTIME:
            raise DeviceError(
                f"device {self.device.name!r}: runner = {path!r} runs no files of {self.runtime}; name a Python there: "
                'runner = "/path/python3"'
            )
        there = self.transport.run(["test", "-f", path], timeout_s=START_LIMIT_S).ok
        if not there and not Path(path).is_file():
            raise DeviceError(
                f"device {self.device.name!r}: runner = {path!r}: there is no such file, neither there nor here; "
                f"expected a path, or one of {', '.join(KINDS)}"
            )
        runner = Runner(EXECUTOR_RUNNER, (path if there else self.transport.push(Path(path)),))
        folder = str(PurePosixPath(runner.command[0]).parent)
        if there:
            return _Found(runner, folder, 0, lambda: None)
        return _Found(runner, folder, Path(path).stat().st_size, lambda: self.transport.push(Path(path)))

    def _native(self, machine: str, board: BoardTools) -> _Found:
        if not board.loader:
            raise _Unfit("it has no glibc of its kind")
        return self._carry(native_kit(machine, self.cache_dir, self.say))

    def _loader(self, machine: str) -> _Found:
        return self._carry(loader_kit(machine, self.cache_dir, self.say))

    def _carry(self, kit: Kit) -> _Found:
        folder = self.transport.push_all(kit.files)
        again = functools.partial(self.transport.push_all, kit.files)
        return _Found(self._started(kit.runner(folder)), folder, kit.size_bytes, again)

    def _board(self, machine: str, board: BoardTools) -> _Found:
        if not board.compilers or not {"tar", "gzip"} <= board.programs:
            raise _Unfit("it has no C++ compiler" if not board.compilers else "it has no tar and gzip")
        kit = sources_kit(machine, self.cache_dir, self.say)
        self.say(f"building the C++ runner on {self.device.name} with {board.compilers[0]} (once, up to some minutes)")

        def build() -> str:
            return compile_there(self.transport, self.transport.push(kit.files[0]), board.compilers[0])

        try:
            folder = build()
        except _AWAY:
            raise
        except DeviceError as error:
            raise _Unfit(str(error)) from None
        return _Found(self._started(kit.runner(folder)), folder, kit.size_bytes, build)

    def _python(self, command: str) -> _Found:
        engine, *others = self.capabilities.remote_packages
        version = engine_version(engine)
        found = ask_python(self.transport, command, [engine, *others])
        if found is None:
            raise _Unfit(f"there is no {command}")
        if found.version < (3, 11) or "-" in found.packages.values() or found.packages[engine] != version:
            has = ", ".join(f"{name} {installed}" for name, installed in found.packages.items())
            raise _Unfit(
                f"{command} needs Python 3.11, {engine} {version} and {' and '.join(others)}, it has "
                f"Python {found.version[0]}.{found.version[1]}, {has}; install there: "
                f"{command} -m pip install {engine}=={version} {' '.join(others)}"
            )
        return self._carry(python_kit(command, self.cache_dir))

    def _started(self, runner: Runner) -> Runner:
        """The same runner, after it was started without arguments and said what it expects."""
        try:
            result = self.transport.run(runner.command, timeout_s=START_LIMIT_S, env=runner.env)
        except _AWAY:
            raise
        except HwbenchError as error:
            raise _Unfit(str(error)) from None
        if result.status != _CALLED_WRONGLY or _USAGE not in result.stderr:
            ended = "no answer" if result.timed_out else describe_end(result.status, result.stderr)
            raise _Unfit(f"it does not start there: {ended}")
        return runner
