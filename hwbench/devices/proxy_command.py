"""A ProxyCommand of ``~/.ssh/config``: a command whose stdin and stdout lead to an SSH server."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from typing import IO

from hwbench.devices.supervisor import plain
from hwbench.printable import printable, without_secrets

# So often it is looked whether it has ended; its last words may come after that.
PAUSE_S, WORDS_S = 0.02, 1.0
# Of what it says, and of the command itself, so much is told.
SAID_BYTES, SHOWN_COMMAND = 300, 200


class ProxyCommand:
    """Runs in a shell, as ssh does it, until it is closed; it speaks over the other end of ``socket``."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._said = b""
        self.socket, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                command,
                shell=True,
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._listener.start()

    def ended(self, within_s: float) -> str:
        """How it ended and what it said, in words; empty where it goes on."""
        deadline = time.monotonic() + within_s
        while not self._has_ended():
            if time.monotonic() >= deadline:
                return ""
            time.sleep(PAUSE_S)
        status = self.close()
        self._listener.join(WORDS_S)
        how = f"with status {status}" if status >= 0 else f"by a signal ({signal.strsignal(-status)})"
        said = f" and said {plain(self._said.strip())}" if self._said.strip() else ""
        command = printable(" ".join(map(without_secrets, self.command.split(" "))), SHOWN_COMMAND)
        return f"ended {how}{said}; try it: {command}"

    def close(self) -> int:
        """Ends it and what it started, and gives its status; calling it again ends nothing."""
        # Its number is that of its group until it was waited for, and somebody else's later.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):  # macOS: nothing looks without waiting, so what it leaves there runs on
            return self._process.poll() is not None
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # it was waited for
            return self._process.poll() is not None

    def _listen(self, stderr: IO[bytes]) -> None:
        """Takes what it says, so that it never waits, and keeps the end of it."""
        with stderr:
            while data := os.read(stderr.fileno(), SAID_BYTES):
                self._said = (self._said + data)[-SAID_BYTES:]
