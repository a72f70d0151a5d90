"""A link without a network: a shell of this machine, for tests of what stands above links."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hwbench.devices.link import Chunk, Stream
from hwbench.errors import DeviceError, DeviceLost, DeviceUnreachable, WorkspaceError


class ShellLink:
    """Hands lines of shell to a shell of this machine; files are copied.

    Args:
        shell: The device's login shell, such as ``["busybox", "sh"]``.
        env: Added to its environment.

    Attributes:
        refusals: How many attempts to connect again fail before one succeeds.
        lines: The lines of shell that were opened.
        puts: The files that were sent.
    """

    def __init__(self, shell: Sequence[str] = ("sh",), env: Mapping[str, str] | None = None) -> None:
        self._shell = list(shell)
        self._env = {**os.environ, **(env or {})}
        self._channels: list[ShellChannel] = []
        self._connected = True
        self.refusals = 0
        self.lines: list[str] = []
        self.puts: list[str] = []

    @property
    def identity(self) -> str:
        return f"shell:{' '.join(self._shell)}"

    def open(self, command: str) -> ShellChannel:
        self._check()
        self.lines.append(command)
        channel = ShellChannel([*self._shell, "-c", command], self._env)
        self._channels.append(channel)
        return channel

    def put(self, source: Path, target: str) -> None:
        self._check()
        self.puts.append(target)
        try:
            data = source.read_bytes()
        except OSError as error:
            raise WorkspaceError(f"cannot read {source}: {error.strerror}") from error
        try:
            Path(target).write_bytes(data)
        except OSError as error:
            # As little as sftp says.
            raise DeviceError("Failure") from error

    def get(self, source: str, target: Path, most_bytes: int) -> None:
        self._check()
        try:
            shutil.copyfile(source, target)
        except FileNotFoundError as error:
            raise DeviceError(f"there is no file {source}") from error

    def cut(self) -> None:
        """The connection ends, as when a cable is pulled: the device sees its channels end, and so do we."""
        self._connected = False
        for channel in self._channels:
            channel.cut()

    def reconnect(self) -> None:
        if self.refusals > 0:
            self.refusals -= 1
            raise DeviceUnreachable("the shell link was cut")
        self._connected = True

    def close(self) -> None:
        self.cut()
        for channel in self._channels:
            channel.reap()
        self._channels.clear()

    def _check(self) -> None:
        if not self._connected:
            raise DeviceLost("the shell link was cut")


class ShellChannel:
    """A shell of this machine with pipes on its streams."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True)
        self._selector = selectors.DefaultSelector()
        for file, stream in ((self._process.stdout, Stream.STDOUT), (self._process.stderr, Stream.STDERR)):
            assert file is not None
            self._selector.register(file, selectors.EVENT_READ, stream)
        assert self._process.stdin is not None
        self._input = os.dup(self._process.stdin.fileno())
        self._process.stdin.close()
        self._input_ended = False
        self._lock = threading.Lock()
        self._cut = False

    def read(self, timeout_s: float) -> Chunk | None:
        deadline = time.monotonic() + timeout_s
        while not self._cut and self._selector.get_map():
            ready = self._selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            key, _ = ready[0]
            data = os.read(key.fd, 1 << 16)
            if data:
                return Chunk(key.data, data)
            self._selector.unregister(key.fileobj)
        if self._cut:
            raise DeviceLost("the shell link was cut")
        return None

    def write(self, data: bytes) -> None:
        with self._lock, contextlib.suppress(BrokenPipeError):
            while data and not self._input_ended:
                data = data[os.write(self._input, data) :]

    def end_input(self) -> None:
        with self._lock:
            if not self._input_ended:
                self._input_ended = True
                os.close(self._input)

    def status(self, timeout_s: float) -> int:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None

    def cut(self) -> None:
        """The other end sees its streams end; whoever reads here finds the connection lost."""
        self._cut = True
        self.close()

    def close(self) -> None:
        self.end_input()
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
        for file in (self._process.stdout, self._process.stderr):
            assert file is not None
            file.close()

    def reap(self) -> None:
        """Waits for the end of the shell, which must come by itself."""
        self._process.wait(20)
