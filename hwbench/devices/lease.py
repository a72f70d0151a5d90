"""One user of a device at a time: two processes that measure on it would measure each other.

A lease is a lock on a file of the user's state folder, so it ends with the process that holds it, however that ends,
and counts for all workspaces of this user on this machine. The file says who holds it, for the message to whoever comes
second. The thread that holds a lease may take it again; other threads of its process are refused as other processes
are. Nobody waits for a lease: one that is held is refused, so leases cannot lock each other out for ever, in whatever
order they are taken.

One device may have several addresses; ``unit.py`` takes the leases that hold for all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from hwbench.documents import read_json
from hwbench.errors import DeviceBusy, WorkspaceError
from hwbench.locks import try_flock, without_locks
from hwbench.printable import printable, without_secrets
from hwbench.user_folders import user_folder
from hwbench.workspace import writing

_held: Counter[str] = Counter()
_files: dict[str, IO[str]] = {}
_threads: dict[str, threading.Thread] = {}
_guard = threading.Lock()

_ELSEWHERE = "name a folder that can be written: export XDG_STATE_HOME=DIR"
# Someone who only asks for the holder has the lock for a moment.
_PATIENCE_S, _PAUSE_S = 0.2, 0.02
# A command line of hundreds of arguments would bury the message.
SHOWN_COMMAND = 200


@dataclass(frozen=True)
class Holder:
    """Who has a device: process number, machine, command line without passwords, and since when (UTC, ISO 8601).

    ``address`` is the way that the holder took to the device, where ``identity`` is a name of the unit.
    """

    identity: str
    pid: int
    machine: str
    command: str
    since: str
    address: str = ""

    def __str__(self) -> str:
        way = f", as {self.address}," if self.address else ""
        words = f"process {self.pid} on {self.machine} ({self.command}){way} since {self.since}"
        return printable(words, 2 * SHOWN_COMMAND)


@contextmanager
def leased(identity: str, address: str = "") -> Iterator[None]:
    """Holds a device by one of its names while the block runs.

    Args:
        identity: Of the transport, or a name of the unit.
        address: Of the transport, where ``identity`` is a name of the unit.

    Raises:
        DeviceBusy: Another process holds it; says which, and since when. Or another thread of this process does.
        WorkspaceError: The state folder cannot be written, or has no locks.
    """
    with _guard:
        if not _held[identity]:
            _files[identity] = _take(identity, address)
            _threads[identity] = threading.current_thread()
        elif _threads[identity] is not threading.current_thread():
            raise DeviceBusy(_in_use(address or identity, "another thread of this process"), ours=True)
        _held[identity] += 1
    try:
        yield
    finally:
        with _guard:
            _held[identity] -= 1
            if not _held[identity]:
                del _threads[identity]
                file = _files.pop(identity)
                file.truncate(0)
                file.close()


def holder(identity: str) -> Holder | None:
    """Who holds a device at present, this process included; None when nobody does.

    Raises:
        WorkspaceError: Another user has made the file that says so.
    """
    path = _path(identity)
    with _writing(path):
        try:
            with path.open("r+") as file:
                return _read(file, identity) if _lock(file) is False else None
        except FileNotFoundError:
            return None


def holders() -> tuple[Holder, ...]:
    """Everyone who holds a device at present, this process included."""
    found = []
    for path in sorted(folder().glob("*.json")):
        with contextlib.suppress(OSError), path.open("r+") as file:
            if _lock(file) is False and (someone := _read(file, "")).identity:
                found.append(someone)
    return tuple(found)


def folder() -> Path:
    """Where leases lie: ``$XDG_STATE_HOME/hwbench/leases``, by default below ``~/.local/state`` (``user_folder``).

    Raises:
        WorkspaceError: This user has no home.
    """
    try:
        return user_folder("XDG_STATE_HOME", ".local/state") / "leases"
    except RuntimeError:
        raise WorkspaceError(f"this user has no home, where it stands which devices are in use; {_ELSEWHERE}") from None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """As ``writing``; the folder of leases is one that nobody has chosen, so how to choose it is said, too."""
    try:
        with writing(path):
            yield
    except WorkspaceError as error:
        raise WorkspaceError(f"{error}; {_ELSEWHERE}") from error.__cause__


def _path(identity: str) -> Path:
    return folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"


def _take(identity: str, address: str) -> IO[str]:
    path = _path(identity)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
    try:
        ours = _lock(file, _PATIENCE_S)
        if ours is None:
            way_out = "name a folder on another disk: export XDG_STATE_HOME=DIR"
            raise without_locks(path.parent, "measuring on one device", way_out)
        if not ours:
            raise DeviceBusy(_in_use(address or identity, _read(file, identity)))
        with _writing(path):
            file.truncate(0)
            # Without what is empty: an older hwbench knows no address.
            json.dump({key: value for key, value in asdict(_ourselves(identity, address)).items() if value}, file)
            file.flush()
    except BaseException:
        file.close()
        raise
    return file


def _lock(file: IO[str], patience_s: float = 0.0) -> bool | None:
    """``try_flock``, asked again until the patience ends."""
    deadline = time.monotonic() + patience_s
    while (ours := try_flock(file)) is False and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return ours


def _in_use(device: str, user: Holder | str) -> str:
    said = (
        f"the device {device} is in use by {user}; two at a time would measure each other: wait until it has ended, or "
        "end it"
    )
    if isinstance(user, str) or user.address in ("", device):
        return said
    return (
        f"{said}. If {device} and {user.address} are two devices, one is a copy of the other's system: give it a "
        "number of its own, there as root: rm /etc/machine-id; systemd-machine-id-setup; reboot"
    )


def _ourselves(identity: str, address: str) -> Holder:
    words = [Path(sys.argv[0]).name, *map(without_secrets, sys.argv[1:])]
    command = shlex.join(words)[:SHOWN_COMMAND]
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(identity, os.getpid(), platform.node(), command, since, address)


def _read(file: IO[str], identity: str) -> Holder:
    """What the holder wrote; it may be about to."""
    try:
        values = read_json(file.read())
        return Holder(**values)
    except (ValueError, TypeError):
        return Holder(identity, 0, "this machine", "a command that has just begun", "this moment")
