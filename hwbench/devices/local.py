"""This machine as a device: subprocesses in process groups of their own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from hwbench.devices.base import MOST_PULL_BYTES, Address, CommandResult, TransportKind, transports
from hwbench.devices.interrupts import uninterrupted
from hwbench.errors import DeviceError, InvalidValue, WorkspaceError
from hwbench.scratch import scratch_folder
from hwbench.workspace import temporary_beside, writing

# The runner reads paths from a list of lines.
_NOT_LISTED = re.compile(r"[\t\n]")
# As a shell says it.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
# The end of what a process wrote to stderr; enough for a message, not for a log.
TAIL_BYTES = 4096
# Between SIGKILL to a group and the end of its members and pipes.
KILL_S = 5.0


class LocalTransport:
    """Runs commands here. Files are used where they lie: nothing is copied by ``push``."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._scratch = contextlib.ExitStack()
        self._processes: set[LocalProcess] = set()

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
                group = _Group(argv, env, given, subprocess.PIPE)
            except OSError as error:
                return _not_started(argv, error)
            deadline = time.monotonic() + timeout_s
            try:
                group.read(deadline)
                group.wait(deadline)
            except TimeoutError:
                return CommandResult(group.end(), _text(group.out), _text(group.err), timed_out=True)
            except BaseException:
                group.end()
                raise
            return CommandResult(group.end(), _text(group.out), _text(group.err))

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> LocalProcess:
        process = LocalProcess(argv, env, self._processes.discard)
        self._processes.add(process)
        return process

    def push(self, source: Path) -> str:
        if not os.access(source, os.R_OK) or not source.is_file():
            raise WorkspaceError(f"cannot read {source}; build it again: run the same command once more")
        path = str(source.resolve())
        if _NOT_LISTED.search(path):
            raise InvalidValue(f"expected a path without tabs and ends of lines, got {path!r}; rename its folder")
        return path

    def push_all(self, sources: Sequence[Path]) -> str:
        there = {source.name: self.push(source) for source in sources}
        if len(there) < len(sources):
            raise InvalidValue(f"expected different file names, got {sorted(source.name for source in sources)}")
        digest = hashlib.sha256(os.fsencode("\n".join(sorted(there.values())))).hexdigest()
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
        part = temporary_beside(target)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(source, part)
                os.replace(part, target)
            finally:
                part.unlink(missing_ok=True)

    def temporary(self, name: str) -> str:
        if self._folder is None:
            self._folder = self._scratch.enter_context(scratch_folder())
        return os.path.join(self._folder, name)

    def close(self) -> None:
        for process in list(self._processes):
            process.close()
        self._scratch.close()
        self._folder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalProcess:
    """A process here whose lines are read while it runs; its stderr goes to a file, of which the end is kept.

    Args:
        argv: The command.
        env: What is added to our own environment.
        freed: Told when the process holds nothing any more.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str] | None, freed: Callable[[LocalProcess], None]
    ) -> None:
        self._freed = freed
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close
        self._buffer = b""
        self._ended = False
        self._closing = threading.Lock()
        self._result: CommandResult | None = None
        self._process: _Group | None = None
        try:
            self._process = _Group(argv, env, subprocess.DEVNULL, self._stderr)
        except OSError as error:
            self._result = _not_started(argv, error)

    def read_line(self, timeout_s: float) -> str | None:
        if self._process is None:
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
        self.close()

    def wait(self, timeout_s: float) -> CommandResult:
        if self._process is None:
            assert self._result is not None
            return self._result
        try:
            status = self._process.wait(time.monotonic() + timeout_s)
        except TimeoutError:
            raise TimeoutError(f"the process has not ended after {timeout_s:g} s") from None
        with self._closing:
            return self._judged(status)

    def close(self) -> None:
        """Ends the process and frees what it held; how it ended is kept, and lines that were not read."""
        with self._closing:
            if self._stderr.closed:
                return
            if self._process is not None:
                self._judged(self._process.end())
                self._buffer += self._process.out
                self._ended = True
            self._stderr.close()
        self._freed(self)

    def _judged(self, status: int) -> CommandResult:
        if self._result is None:
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - TAIL_BYTES))
            self._result = CommandResult(status, "", _text(self._stderr.read()))
        return self._result


class _Leader(subprocess.Popen[bytes]):
    """A process that does not outlive an interrupt of its start: from the fork to the program takes long where the
    machine is busy, and nobody has the process yet.
    """

    def __init__(self, argv: Sequence[str], **options: Any) -> None:
        try:
            with uninterrupted():  # until its number is known the process is nobody's, and may run by then
                super().__init__(argv, **options)
        except Exception:
            raise  # it did not start, and was waited for
        except BaseException:
            pid: int | None = getattr(self, "pid", None)
            if pid is not None and self.returncode is None:
                with contextlib.suppress(ProcessLookupError):  # it may not lead its group yet
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
                self.wait()
            raise


class _Group:
    """A command and what it starts: the process group that the command leads.

    The number of the group is that of its leader, and somebody else's soon after the leader was waited for. So the
    group is signalled before, never after: its leader is waited for here alone, and the group killed just before.
    ``out`` and ``err`` are what ``read`` has read.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str] | None, stdin: int | IO[bytes], stderr: int | IO[bytes]
    ) -> None:
        # A session of its own: Ctrl-C at the terminal reaches only us, and its children are found by its group.
        self._leader = _Leader(
            list(argv),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self._signalling = threading.Lock()
        self.out, self.err = bytearray(), bytearray()

    @property
    def pid(self) -> int:
        """The number of the leader, and of the group; only until ``wait`` has returned."""
        return self._leader.pid

    @property
    def stdout(self) -> IO[bytes]:
        """What the leader and its children write."""
        assert self._leader.stdout is not None
        return self._leader.stdout

    def read(self, deadline: float) -> None:
        """Reads the pipes to their ends.

        Raises:
            TimeoutError: Someone still holds them open at the deadline.
        """
        with selectors.DefaultSelector() as selector:
            for pipe, target in ((self._leader.stdout, self.out), (self._leader.stderr, self.err)):
                if pipe is not None and not pipe.closed:
                    selector.register(pipe, selectors.EVENT_READ, target)
            while selector.get_map():
                left = deadline - time.monotonic()
                ready = selector.select(left) if left > 0 else []
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    key.data.extend(data)
                    if not data:
                        selector.unregister(key.fileobj)

    def kill(self) -> None:
        """Kills every member; does nothing once the leader was waited for."""
        with self._signalling:
            self._kill()

    def wait(self, deadline: float) -> int:
        """Waits for the leader, kills what it leaves in its group, and gives its status.

        Raises:
            TimeoutError: It runs on at the deadline.
        """
        pause_s = 0.0005
        while not self._ended():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            time.sleep(min(pause_s, left))
            pause_s = min(2 * pause_s, 0.05)
        with self._signalling:
            self._kill()
            return self._leader.wait()

    def end(self) -> int:
        """Kills every member, reads what is left in the pipes, and closes them; gives the status of the leader."""
        self.kill()
        deadline = time.monotonic() + KILL_S
        with contextlib.suppress(TimeoutError):
            self.wait(deadline)
        with contextlib.suppress(TimeoutError):  # someone outside the group may still hold them open
            self.read(deadline)
        for pipe in (self._leader.stdout, self._leader.stderr):
            if pipe is not None:
                pipe.close()
        return self._leader.returncode if self._leader.returncode is not None else -signal.SIGKILL

    def _ended(self) -> bool:
        """The leader has ended; its number stays its own until ``wait`` frees it."""
        if self._leader.returncode is not None:
            return True
        if not hasattr(os, "waitid"):  # macOS: nothing looks without waiting, so what it leaves there runs on
            return self._leader.poll() is not None
        try:
            return os.waitid(os.P_PID, self._leader.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # where SIGCHLD is ignored, the system has waited for it
            return self._leader.poll() is not None

    def _kill(self) -> None:
        if self._leader.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader.pid, signal.SIGKILL)


def _not_started(argv: Sequence[str], error: OSError) -> CommandResult:
    missing = isinstance(error, FileNotFoundError)
    return CommandResult(NOT_FOUND if missing else NOT_EXECUTABLE, "", f"{argv[0]}: {error.strerror}")


def _text(value: bytes | bytearray) -> str:
    return value.decode(errors="replace")


def _connect(address: Address) -> LocalTransport:
    return LocalTransport()


transports.register("local")(TransportKind(_connect))
