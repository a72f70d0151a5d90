"""Hands a line of shell to the first process of a lab device, with descriptors for its streams; waits for its status.

As a program it is what a login over SSH runs (``python -I -S enter.py SOCKET SFTP_SERVER...``), so it stands alone.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence

SFTP = "hwbench-lab-sftp"
DOWN = 255  # what ssh itself ends with when it has no connection


def start(path: str, command: str, streams: Sequence[int]) -> socket.socket:
    """Starts a command; ``streams`` are the descriptors of its stdin, stdout and stderr, which stay the caller's.

    Raises:
        OSError: The device is down.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        line = os.fsencode(command)
        socket.send_fds(connection, [struct.pack("<I", len(line))], list(streams))
        connection.sendall(line)
    except BaseException:
        connection.close()
        raise
    return connection


def status(connection: socket.socket) -> int | None:
    """Waits for the end of a command: its exit status, or below zero the signal; None: the device went down."""
    try:
        answer = connection.recv(4, socket.MSG_WAITALL)
    except ConnectionError:
        answer = b""
    finally:
        connection.close()
    return os.waitstatus_to_exitcode(struct.unpack("<i", answer)[0]) if len(answer) == 4 else None


def main(path: str, sftp_server: Sequence[str]) -> int:
    """What the login runs: sftp, the line that the client sent, or a shell."""
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "exec sh")
    if command == SFTP:
        os.execv(sftp_server[0], list(sftp_server))
    try:
        ended = status(start(path, command, (0, 1, 2)))
    except OSError:
        ended = None
    if ended is None:
        return DOWN
    if ended < 0:  # sshd tells its client of the signal when its own child dies of it
        if -ended not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    return ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
