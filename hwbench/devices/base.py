"""The contract of a transport: how commands and files get to a device, and answers come back.

Order of calls: ``Device.transport()`` opens a transport; then ``push``, ``run``, ``spawn`` and ``pull`` in any order
and number; ``close`` at the end, which ends whatever still runs. A transport belongs to one thread. What every
transport keeps:

* An argument arrives as it was given, whatever characters are in it; no shell takes it apart.
* Time limits hold on the device: what ``run`` gave up on, and what ``kill`` or ``close`` ended, does not run there any
  more, its children included.
* ``push`` sends a content once: where files must be copied, the path on the device is made of the content.
* A command that fails is a ``CommandResult``; only a device that does not answer is an exception.

``hwbench.testing.transports`` holds the suite that every transport passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from hwbench.errors import DeviceError
from hwbench.registry import Registry, instance_of
from hwbench.workspace import Workspace

# A file that a device gives may be so long unless who fetches it says how long; a large model has some 200 MB.
MOST_PULL_BYTES = 512 << 20


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. ``status`` below zero is the signal that ended it."""

    status: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """It ended by itself, with status 0."""
        return self.status == 0 and not self.timed_out


class NoAnswer(DeviceError):
    """A command was ended at its limit; the device may have done, or yet do, what it asks for."""


class Process(Protocol):
    """A command that runs while its lines are read."""

    def read_line(self, timeout_s: float) -> str | None:
        """The next line of its stdout, without the line end; None after the last.

        What stands after the last line end is dropped: it was cut off.

        Raises:
            TimeoutError: No line in this time; the process goes on.
            DeviceLost: The device went away.
        """
        ...

    def kill(self) -> None:
        """Ends the process and its children, also when it has ended already."""
        ...

    def wait(self, timeout_s: float) -> CommandResult:
        """Waits until the process has ended; stdout is empty (it was read as lines), stderr is its last part.

        Raises:
            TimeoutError: It has not ended in this time; it goes on.
            DeviceLost: The device went away.
        """
        ...


class Transport(Protocol):
    """A way to one device; see the top of this file."""

    @property
    def identity(self) -> str:
        """Names the device, by whatever name it was reached: ``local:HOST``, ``ssh:HOST:PORT``, ``adb:SERIAL``."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> CommandResult:
        """Runs a command to its end, at most ``timeout_s``; ``env`` is added to the device's environment.

        A program that does not exist is status 127, as a shell says it.

        Raises:
            DeviceLost: The device went away.
        """
        ...

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Process:
        """Starts a command whose lines are read while it runs. It ends with ``kill`` or ``close`` at the latest.

        Raises:
            DeviceLost: The device went away.
        """
        ...

    def push(self, source: Path) -> str:
        """Brings a file to the device; returns its absolute path there. The file's name ends as ``source`` does.

        It can be executed there if it can be here.

        Raises:
            InvalidValue: Its path there has a tab or an end of a line, and lists of a runner have not.
            WorkspaceError: ``source`` cannot be read.
            DeviceError: The device refuses it: no space left, no permission.
            DeviceLost: The device went away.
        """
        ...

    def push_all(self, sources: Sequence[Path]) -> str:
        """Brings files into one folder, each under its own name; returns the folder's absolute path on the device.

        For what must lie side by side, such as a program and its libraries. The same names and contents give the same
        folder, and are sent once.

        Raises:
            InvalidValue: Two have the same name; as ``push``.
            WorkspaceError: One cannot be read.
            DeviceError: The device refuses it: no space left, no permission.
            DeviceLost: The device went away.
        """
        ...

    def pull(self, source: str, target: Path, *, most_bytes: int = MOST_PULL_BYTES) -> None:
        """Fetches a file from the device; ``target`` is complete or not there.

        Raises:
            DeviceError: There is no such file on the device, or it is longer than ``most_bytes``.
            WorkspaceError: ``target`` cannot be written.
        """
        ...

    def temporary(self, name: str) -> str:
        """Absolute path on the device for a file that a command is to write; removed by ``close``."""
        ...

    def close(self) -> None:
        """Ends what still runs, removes temporary files; calling it again does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


Option = str | int | bool


@dataclass(frozen=True)
class Address:
    """Which device, and how it is reached, as its device file says it.

    Args:
        name: The device's name.
        options: The device file's table that is named as the transport is.
        work_dir: Where files go on the device; ``~/`` in front is the home folder there.
        workspace: Where what is known about the device is kept, such as its host keys; None: nowhere.
        typed: The options are those of ``hwbench devices add``, whether or not the device has a file.
    """

    name: str
    options: Mapping[str, Option] = field(default_factory=dict)
    work_dir: str = "/tmp/hwbench"
    workspace: Workspace | None = None
    typed: bool = False

    def mend(self, in_file: str, typed: str) -> str:
        """What to do about an option, in words: what to write into the device file, or to type where it was typed."""
        return f"add it with {typed}" if self.typed else f"write {in_file} in profiles/{self.name}/device.toml"


@dataclass(frozen=True)
class TransportKind:
    """A transport as device files name it.

    Args:
        connect: Opens it; raises DeviceUnreachable where the device does not answer.
        options: Keys of the device file's table of that name, with the type of each.
        required: Those that must be there.
        work_dir: Where files go on the device if its file does not say it.
    """

    connect: Callable[[Address], Transport]
    options: Mapping[str, type] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    work_dir: str = "/tmp/hwbench"


transports: Registry[TransportKind] = Registry(
    "transport", entry_points="hwbench.transports", expects=instance_of(TransportKind)
)
"""Ways to a device. A new one is a file here and a line in ``device.py``."""
