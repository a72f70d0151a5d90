"""Which program runs the files of a runtime, and the check that a file loads and runs at all."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwbench.errors import CheckFailed, InvalidFile, MissingDependency, WorkspaceError
from hwbench.interpreter import python_command, python_path
from hwbench.runtimes import get, of_file, protocol
from hwbench.runtimes.capabilities import NATIVE, PYTHON
from hwbench.runtimes.native.build import build_runner
from hwbench.scratch import scratch_folder
from hwbench.workspace import writing

FloatArray = npt.NDArray[np.float32]

# Importing torch and executorch on a slow, busy machine.
STARTUP_S = 120.0


@dataclass(frozen=True)
class Runner:
    """A program that keeps to ``hwbench.runtimes.protocol``. ``kind`` is part of the conditions of every row.

    ``libraries`` is the digest of what executes the models, where they were carried to the device; it is, too.
    ``build`` tells builds of a program of ours apart: the loops of their probes lie at other places, which takes a
    processor more or less time. Of the Python here, which has no probe, and of programs of the user it is empty.
    """

    kind: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    libraries: str = ""
    build: str = ""

    @property
    def label(self) -> str:
        """Kind and version of the protocol: two rows with different labels are not comparable."""
        return f"{self.kind}/{protocol.VERSION}"


def python_runner() -> Runner:
    """``hwbench.runtimes.python_runner`` of this installation, in this interpreter."""
    return Runner(PYTHON, python_command("hwbench.runtimes.python_runner"), {"PYTHONPATH": python_path()})


def choose_runner(runtime: str, cache_dir: Path, report: Callable[[str], None] | None = None) -> Runner:
    """The runner for files of a runtime on this machine: C++ where it runs them and can be built, else Python.

    Args:
        runtime: Name of the runtime.
        cache_dir: Where the binary of the C++ runner is kept.
        report: Told that a build begins, or why the Python runner is taken instead.

    Raises:
        WorkspaceError: The cache cannot be written.
    """
    if NATIVE not in get(runtime).capabilities.runners:
        return python_runner()
    try:
        binary = build_runner(cache_dir, report=report)
        return Runner(NATIVE, (str(binary),), build=binary.name)
    except MissingDependency as error:
        if report is not None:
            report(f"{error}; until then the Python runner is used, which adds a few microseconds to each sample")
        return python_runner()


@dataclass(frozen=True)
class CheckResult:
    """What came out of a file that was run once; ``output`` is float32 in the order of its axes."""

    output: FloatArray
    load_s: float
    first_s: float


def check_file(
    path: Path,
    input: FloatArray | None = None,
    *,
    runner: Runner | None = None,
    threads: int = 1,
    timeout_s: float = 120.0,
) -> CheckResult:
    """Loads a file and runs it once, in a process of its own on this machine: a bad file can abort its process.

    Args:
        path: A file of any runtime.
        input: Values of its one input, in the order of its axes; default: the seeded values that timing uses.
        runner: Default: the Python runner.
        threads: Threads of the engine.
        timeout_s: Limit for loading and running; starting the runner is not counted.

    Raises:
        InvalidFile: It does not load, or no runtime has files with the ending of its name.
        CheckFailed: It loads, but does not run, kills its process, or takes too long.
        WorkspaceError: Its input or output cannot be written.
    """
    runner = runner or python_runner()
    if path.suffix and of_file(path) is None:
        raise InvalidFile(
            f"{path}: no runtime that is installed has files called *{path.suffix}; install the package of the one "
            "that it was made for"
        )
    with scratch_folder() as folder:
        answer, given = Path(folder, "output.raw"), Path(folder, "input.raw")
        if input is not None:
            with writing(given):  # not by numpy, which loses what does not fit on the disk
                given.write_bytes(np.ascontiguousarray(input, dtype=np.float32).tobytes())
        options = protocol.Options(
            check=str(path.resolve()),
            output=str(answer),
            input=str(given) if input is not None else "",
            threads=threads,
            timeout_s=max(1, round(timeout_s)),
        )
        try:
            done = subprocess.run(
                [*runner.command, *options.argv()],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s + STARTUP_S,
                check=False,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **runner.env},
                start_new_session=True,
            )
        except subprocess.TimeoutExpired as error:
            raise CheckFailed(f"{path}: no result after {timeout_s:.0f} s") from error
        return read_check(str(path), done.returncode, done.stdout, done.stderr, answer)


def read_check(name: str, status: int, stdout: str, stderr: str, answer: Path) -> CheckResult:
    """What a runner that was called with ``--check`` says about the file called ``name``; errors as ``check_file``."""
    messages = []
    for line in stdout.splitlines():
        try:
            messages.append(protocol.parse_line(line))
        except protocol.MalformedLine as error:
            raise CheckFailed(f"{name}: the runner answered something else than expected: {error}") from error
    for message in messages:
        if isinstance(message, protocol.Error):
            if message.stage == "load":
                raise InvalidFile(f"{name}: expected a model that can be loaded: {message.reason}")
            if message.stage == "write":
                raise WorkspaceError(
                    f"{name}: the runner cannot write its output to {message.reason}; mend that, then run the same "
                    "command again"
                )
            raise CheckFailed(f"{name}: loads, but does not run: {message.reason}")
    if status == -signal.SIGALRM:
        raise CheckFailed(f"{name}: neither result nor error within the time limit")
    checked = [message for message in messages if isinstance(message, protocol.FileChecked)]
    if status != 0 or not checked:
        raise CheckFailed(f"{name}: the process that ran it ended: {describe_end(status, stderr)}")
    shape = checked[0].shape
    try:
        values = np.fromfile(answer, dtype=np.float32)
    except OSError as error:
        raise CheckFailed(f"{name}: the runner says {shape} and left no output: {error.strerror}") from error
    # Not by numpy, whose products wrap around; an axis of 0 would hide any other.
    if min(shape, default=1) < 1 or values.size != math.prod(shape):
        raise CheckFailed(f"{name}: the runner says {shape}, its output has {values.size} values")
    return CheckResult(values.reshape(shape), checked[0].load_ns * 1e-9, checked[0].first_ns * 1e-9)


def describe_end(status: int, stderr: str) -> str:
    """How a process ended, and the last line that it wrote."""
    if status == -signal.SIGKILL:  # what it said before has nothing to do with it
        return "killed by SIGKILL (out of memory?)"
    how = f"killed by {signal_name(-status)}" if status < 0 else f"exit status {status}"
    said = next((line.strip() for line in reversed(stderr.splitlines()) if line.strip()), "")
    return how + (f"; it last said: {said[:300]}" if said else "")


def signal_name(number: int) -> str:
    """SIGSEGV and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
