"""Servers of the laboratory as processes of the host: ports to listen on, and ends that leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

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
    with (folder / RECORD).open("a") as record:
        record.write(f"{process.pid} {started(process.pid)}\n")
    return process


def end_recorded(folder: Path) -> None:
    """Kills what ``launch`` started for the folders in this one and nobody ended."""
    for record in folder.glob(f"*/{RECORD}"):
        for line in record.read_text().splitlines():
            pid, _, start = line.partition(" ")
            if start and started(int(pid)) == start:
                for number in [int(pid), *children(int(pid))]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(number, signal.SIGKILL)


def started(pid: int) -> str:
    """When a process began, in ticks since boot: with its number it names it for ever. Empty: there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


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


def children(pid: int) -> list[int]:
    """The descendants of a process, as far as their parents live."""
    parents: dict[int, list[int]] = {}
    for number in process_numbers():
        with contextlib.suppress(OSError, IndexError, ValueError):
            rest = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(rest[1]), []).append(number)
    found, at = [pid], 0
    while at < len(found):
        found += parents.get(found[at], [])
        at += 1
    return found[1:]


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and its descendants; none of them can clean up."""
    for pid in [process.pid, *children(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(END_S)
