"""What a way to a remote device must give: bytes to and from its shell, and files. ``remote.py`` does all the rest.

A link knows nothing of time limits, process groups, work folders or quoting of arguments: it carries a line of POSIX
shell there and two streams back. So ssh and adb differ only here.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol


class Stream(Enum):
    """Where bytes came from."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Chunk(NamedTuple):
    """Bytes as they came; they may end in the middle of a character."""

    stream: Stream
    data: bytes


class Channel(Protocol):
    """A line of shell that runs on the device."""

    def read(self, timeout_s: float) -> Chunk | None:
        """The next bytes of either stream; None when both have ended.

        Raises:
            TimeoutError: Nothing came in this time; the command goes on.
            DeviceLost: The connection ended before the command did.
        """
        ...

    def write(self, data: bytes) -> None:
        """Bytes for the command's stdin, whatever their number; what it does not read is dropped.

        Also called by another thread while ``read`` waits.

        Raises:
            DeviceLost: The connection has ended.
        """
        ...

    def end_input(self) -> None:
        """Ends the command's stdin."""
        ...

    def status(self, timeout_s: float) -> int:
        """The exit status of the shell, 0 to 255; call it after ``read`` gave None.

        Raises:
            TimeoutError: The command has not ended.
            DeviceLost: The connection ended before the command did.
        """
        ...

    def close(self) -> None:
        """Lets go of the command, which may run on there; calling it again does nothing."""
        ...


class Link(Protocol):
    """A connection to one device. It belongs to one thread."""

    @property
    def identity(self) -> str:
        """Names the device behind the link, by whatever name it was reached: ``ssh:HOST:PORT``, ``adb:SERIAL``."""
        ...

    def open(self, command: str) -> Channel:
        """Hands one line of POSIX shell to the device's shell; its stdin is open until ``end_input``.

        Raises:
            DeviceLost: The connection has ended.
        """
        ...

    def put(self, source: Path, target: str) -> None:
        """Copies a file to an absolute path on the device, whose folder exists; may leave a part when it fails.

        Raises:
            WorkspaceError: ``source`` cannot be read.
            DeviceError: The device refuses: no space, no permission; says which, with the path there.
            DeviceLost: The connection has ended.
        """
        ...

    def get(self, source: str, target: Path, most_bytes: int) -> None:
        """Copies a file from the device; may leave a part when it fails.

        Raises:
            DeviceError: There is no such file, it cannot be read, or more than ``most_bytes`` come.
            WorkspaceError: ``target`` cannot be written.
            DeviceLost: The connection has ended.
        """
        ...

    def reconnect(self) -> None:
        """Makes the connection anew after it ended; one attempt.

        Raises:
            DeviceUnreachable: The device does not answer; says what to look at.
        """
        ...

    def close(self) -> None:
        """Ends the connection; calling it again does nothing."""
        ...
