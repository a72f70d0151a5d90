"""Servers of the laboratory as processes of the host: ports to listen on, and ends that leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

HOST = "127.0.0.1"
END_S = 10.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def listens(port: int) -> bool:
    """Whether a connection to the port is taken."""
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex((HOST, port)) == 0


def wait_until_listening(port: int, process: subprocess.Popen[bytes], log: Path, limit_s: float = 10.0) -> None:
    """Returns when a server takes connections.

    Raises:
        RuntimeError: It ended, or takes longer; with what it logged.
    """
    deadline = time.monotonic() + limit_s
    while not listens(port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not listen on {port}: {log.read_text()[-1000:]}")
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    """The descendants of a process, as far as their parents live."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                rest = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(rest[1]), []).append(int(name))
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
