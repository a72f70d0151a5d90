"""This machine as a device: subprocesses in process groups of their own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from hwbench.devices.base import MOST_PULL_BYTES, Address, CommandResult, TransportKind, transports
from hwbench.errors import DeviceError, InvalidValue, WorkspaceError
from hwbench.workspace import writing

# As a shell says it.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
# The end of what a process wrote to stderr; enough for a message, not for a log.
TAIL_BYTES = 4096
# Between SIGKILL to a group and the end of its members.
KILL_S = 5.0


class LocalTransport:
    """Runs commands here. Files are used where they lie: nothing is copied by ``push``."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._processes: list[LocalProcess] = []

    @property
    def identity(self) -> str:
        return f"local:{platform.node()}"

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> CommandResult:
        with tempfile.TemporaryFile() as given:
            given.write(stdin.encode())
            given.seek(0)
            try:
                process = _start(argv, env, given, subprocess.PIPE)
            except OSError as error:
                return _not_started(argv, error)
            try:
                out, err = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                _kill_group(process)
                out, err = _rest(process)
                return CommandResult(process.returncode, _text(out), _text(err), timed_out=True)
            except BaseException:
                _kill_group(process)
                _rest(process)
                raise
            _kill_group(process)
            return CommandResult(process.returncode, _text(out), _text(err))

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> LocalProcess:
        process = LocalProcess(argv, env)
        self._processes.append(process)
        return process

    def push(self, source: Path) -> str:
        if not os.access(source, os.R_OK) or not source.is_file():
            raise WorkspaceError(f"cannot read {source}; build it again: run the same command once more")
        return str(source.resolve())

    def push_all(self, sources: Sequence[Path]) -> str:
        there = {source.name: self.push(source) for source in sources}
        if len(there) < len(sources):
            raise InvalidValue(f"expected different file names, got {sorted(source.name for source in sources)}")
        digest = hashlib.sha256("\n".join(sorted(there.values())).encode()).hexdigest()
        folder = self.temporary(digest[:16])
        if not os.path.isdir(folder):
            os.mkdir(folder)
            for name, path in there.items():
                os.symlink(path, os.path.join(folder, name))
        return folder

    def pull(self, source: str, target: Path, *, most_bytes: int = MOST_PULL_BYTES) -> None:
        if not os.path.isfile(source):
            raise DeviceError(f"the local device has no file {source}")
        if (size := os.path.getsize(source)) > most_bytes:
            raise DeviceError(f"the local device: {source} has {size} bytes; expected at most {most_bytes}")
        part = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(source, part)
                os.replace(part, target)
            finally:
                part.unlink(missing_ok=True)

    def temporary(self, name: str) -> str:
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="hwbench-")
        return os.path.join(self._folder, name)

    def close(self) -> None:
        for process in self._processes:
            process.close()
        self._processes.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalProcess:
    """A process here whose lines are read while it runs; its stderr goes to a file, of which the end is kept."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close
        self._buffer = b""
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._failed: CommandResult | None = None
        try:
            self._process = _start(argv, env, subprocess.DEVNULL, self._stderr)
        except OSError as error:
            self._failed = _not_started(argv, error)

    def read_line(self, timeout_s: float) -> str | None:
        if self._process is None or self._process.stdout is None:
            return None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            if not self._ended:
                selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer and not self._ended:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError(f"no line in {timeout_s:g} s")
                chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                self._buffer += chunk
                self._ended = not chunk
        line, end, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace") if end else None

    def kill(self) -> None:
        if self._process is not None:
            _kill_group(self._process)

    def wait(self, timeout_s: float) -> CommandResult:
        if self._process is None:
            assert self._failed is not None
            return self._failed
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the process has not ended after {timeout_s:g} s") from None
        _kill_group(self._process)
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - TAIL_BYTES))
        return CommandResult(status, "", _text(self._stderr.read()))

    def close(self) -> None:
        """Ends the process and frees what it held."""
        if self._process is not None:
            _kill_group(self._process)
            _rest(self._process)
        self._stderr.close()


def _start(
    argv: Sequence[str], env: Mapping[str, str] | None, stdin: int | IO[bytes], stderr: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C at the terminal reaches only us, and its children are found by its group.
    return subprocess.Popen(
        list(argv),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **(env or {})},
        start_new_session=True,
    )


def _not_started(argv: Sequence[str], error: OSError) -> CommandResult:
    missing = isinstance(error, FileNotFoundError)
    return CommandResult(NOT_FOUND if missing else NOT_EXECUTABLE, "", f"{argv[0]}: {error.strerror}")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _rest(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What is left in the pipes of a killed process; someone outside its group may still hold them open."""
    try:
        return process.communicate(timeout=KILL_S)
    except subprocess.TimeoutExpired as error:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        return error.stdout or b"", error.stderr or b""


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _connect(address: Address) -> LocalTransport:
    return LocalTransport()


transports.register("local")(TransportKind(_connect))
