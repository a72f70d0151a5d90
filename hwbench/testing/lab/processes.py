"""Servers of the laboratory as processes of the host: ports to listen on, and ends that leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
END_S = 10.0
# Below what Linux takes for outgoing connections (from 32768).
PORTS = range(20_000, 32_000)
LOG, RECORD = "server.log", "processes"


def free_port() -> int:
    """A port that nobody listens on now, and that the kernel gives to no outgoing connection while a server is down."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind((HOST, port))
            return port


def listens(port: int) -> bool:
    """Whether a connection to the port is taken."""
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex((HOST, port)) == 0


def launch(
    argv: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Starts a server in a session of its own; its log and a record of it lie in its folder."""
    with (folder / LOG).open("ab") as out:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(environment) if environment is not None else None,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    leader = LaboratoryProcess.of(process.pid)
    with open(folder / RECORD, "a", opener=_for_us) as record:
        record.write(f"{leader}\n" if leader else "")
    return process


def _for_us(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # whatever the umask says: what a group may write to is not believed later


@dataclass(frozen=True)
class LaboratoryProcess:
    """A process of this machine, named for ever: its number may be another's by now, number and start are not.

    Args:
        pid: Its number.
        start: When it began, in ticks since the machine did.
        boot: Which start of the machine that was; empty in records that do not say it.
    """

    pid: int
    start: str
    boot: str = ""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The one that has this number now; None: nobody has."""
        start = started(pid)
        return cls(pid, start, _boot()) if start else None

    @classmethod
    def read(cls, line: str) -> Self | None:
        """From a line as ``str`` writes it; None where the line names no process."""
        words = line.split()
        return cls(int(words[0]), *words[1:]) if len(words) in (2, 3) and words[0].isdecimal() else None

    def __str__(self) -> str:
        return f"{self.pid} {self.start} {self.boot}".strip()

    @property
    def lives(self) -> bool:
        """It has not been waited for."""
        return started(self.pid) == self.start and self.boot in ("", _boot())

    def kill(self) -> None:
        """SIGKILL to this one; nothing where it is gone, whoever has its number now."""
        with contextlib.suppress(ProcessLookupError):
            held = os.pidfd_open(self.pid)
            try:
                # The descriptor stays with the process that had the number when it was opened.
                if self.lives:
                    signal.pidfd_send_signal(held, signal.SIGKILL)
            finally:
                os.close(held)


def started(pid: int) -> str:
    """When a process began, in ticks since boot. Empty: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


@lru_cache(maxsize=1)
def _boot() -> str:
    """Names this start of the machine; empty where the kernel does not say it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def end_recorded(folder: Path) -> None:
    """Kills what ``launch`` started for the folders in this one and nobody ended.

    The folder must be one that only we write to; records in folders of others are not believed.
    """
    for record in folder.glob(f"*/{RECORD}"):
        if is_private(record.parent) and is_private(record):
            for process in map(LaboratoryProcess.read, record.read_text().splitlines()):
                if process is not None and process.lives:
                    kill_family(process)


def is_private(path: Path) -> bool:
    """A file or folder, no link, that belongs to us and that nobody else may write to."""
    try:
        state = path.lstat()
    except OSError:
        return False
    kind = stat.S_ISDIR(state.st_mode) or stat.S_ISREG(state.st_mode)
    return kind and state.st_uid == os.geteuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def wait_until_listening(port: int, process: subprocess.Popen[bytes], folder: Path, limit_s: float = 10.0) -> None:
    """Returns when a server takes connections.

    Raises:
        RuntimeError: It ended, or takes longer; with what it logged.
    """
    deadline = time.monotonic() + limit_s
    while not listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not listen on {port}: {(folder / LOG).read_text()[-1000:]}")
        time.sleep(0.02)


def process_numbers() -> list[int]:
    """Of all processes of the host."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(pid: int) -> list[LaboratoryProcess]:
    """Of a process, as far as their parents live."""
    offspring: dict[int, list[LaboratoryProcess]] = {}
    for number in process_numbers():
        with contextlib.suppress(OSError, IndexError, ValueError):
            words = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            offspring.setdefault(int(words[1]), []).append(LaboratoryProcess(number, words[19]))
    found, at = [*offspring.get(pid, [])], 0
    while at < len(found):
        found += offspring.get(found[at].pid, [])
        at += 1
    return found


def kill_family(process: LaboratoryProcess) -> None:
    """Kills a process and its descendants; none of them can clean up."""
    for member in [process, *descendants(process.pid)]:
        member.kill()


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills what ``launch`` started, with its descendants, and waits for it; one that was waited for is left alone."""
    if process.poll() is None and (leader := LaboratoryProcess.of(process.pid)):
        kill_family(leader)
    process.wait(END_S)


def watched(tracer: int) -> list[int]:
    """The processes that a proot watches: all that were ever started in it and live."""
    return [pid for pid in process_numbers() if _is_watched(pid, tracer)]


def end_watched(tracer: int, limit_s: float = END_S) -> None:
    """Kills what a proot watches. It goes before proot itself: left alone it would run on outside of the root."""
    deadline = time.monotonic() + limit_s
    while (alive := watched(tracer)) and time.monotonic() < deadline:
        for pid in alive:
            if (process := LaboratoryProcess.of(pid)) and _is_watched(pid, tracer):
                process.kill()
        time.sleep(0.01)


def _is_watched(pid: int, tracer: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return f"TracerPid:\t{tracer}\n" in status and "State:\tZ" not in status
