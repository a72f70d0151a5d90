"""A real OpenSSH server on loopback, with keys of its own, whose logins lead into a lab device."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hwbench.testing.lab import enter
from hwbench.testing.lab.machine import VirtualMachine
from hwbench.testing.lab.needs import require
from hwbench.testing.lab.processes import HOST, free_port, kill_tree, launch, wait_until_listening

CONFIGURATION = """\
ListenAddress {host}:{port}
HostKey {folder}/host_key
# One key alone: neither the user's own file of keys nor an authority of this machine lets anybody in.
AuthorizedKeysFile {folder}/authorized_keys
AuthorizedKeysCommand none
TrustedUserCAKeys none
PidFile none
UsePAM no
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UseDNS no
PrintMotd no
PrintLastLog no
MaxSessions 64
MaxStartups 64
LogLevel VERBOSE
# The user's own shell starts the login; what its start-up files do must neither be waited for nor be done.
SetEnv HOME={folder} SHLVL=2
Subsystem sftp {sftp}
ForceCommand {forced}
AllowTcpForwarding {forwarding}
AllowStreamLocalForwarding no
AllowAgentForwarding no
PermitUserRC no
"""


class Sshd:
    """A server; ``start`` and ``kill`` as often as one likes, on the same port.

    Args:
        folder: Of its own, for keys and log; made.
        machine: Where logins lead; None: nowhere, it only forwards connections, as a jump host does.
    """

    def __init__(self, folder: Path, machine: VirtualMachine | None) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self.port = free_port()
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.identity = folder / "client_key"
        self._machine = machine
        self._process: subprocess.Popen[bytes] | None = None
        self.change_host_key()
        _make_key(self.identity)
        (folder / "authorized_keys").write_text(self.identity.with_suffix(".pub").read_text())
        self._configure()

    @property
    def host_key(self) -> str:
        """Type and key, as they stand in a file of known hosts behind the host's name."""
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def fingerprint(self) -> str:
        """``SHA256:...`` of the host key."""
        digest = hashlib.sha256(base64.b64decode(self.host_key.split()[1])).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def known_hosts_line(self, port: int | None = None) -> str:
        """A line for a file of known hosts, for the port that clients use."""
        return f"[{HOST}]:{port or self.port} {self.host_key}\n"

    def change_host_key(self) -> None:
        """Makes a new host key, as a board that was set up anew has; known after ``restart``."""
        for path in self._host_key_files():
            path.unlink(missing_ok=True)
        _make_key(self.folder / "host_key")

    @contextlib.contextmanager
    def another_host_key(self) -> Iterator[None]:
        """A new host key, and the old one again afterwards."""
        before = {path: path.read_bytes() for path in self._host_key_files()}
        try:
            self.change_host_key()
            self.restart()
            yield
        finally:
            for path, content in before.items():
                path.write_bytes(content)
            self.restart()

    def _host_key_files(self) -> tuple[Path, Path]:
        return self.folder / "host_key", self.folder / "host_key.pub"

    def start(self) -> None:
        """Starts the server; returns when it takes connections."""
        if os.geteuid() == 0:  # compiled into it as the folder of its unprivileged half
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        argv = [require("sshd"), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self._process = launch(argv, self.folder)
        wait_until_listening(self.port, self._process, self.folder)

    def kill(self) -> None:
        """Kills the server and its sessions, not what those started on the device; nothing if it is not running."""
        if self._process is not None:
            kill_tree(self._process)
            self._process = None

    def restart(self) -> None:
        """Kills and starts it."""
        self.kill()
        self.start()

    def _configure(self) -> None:
        if self._machine is None:
            forced, sftp = "/bin/false", "/bin/false"
        else:
            # Each login goes through this line, the one for files too: the client's own line is in the environment.
            words = [sys.executable, "-I", "-S", enter.__file__, self._machine.socket, *self._machine.sftp_server()]
            script = self.folder / "login"
            script.write_text("#!/bin/sh\ncd /\nexec " + shlex.join(words) + "\n")
            script.chmod(0o755)
            forced, sftp = str(script), enter.SFTP
        text = CONFIGURATION.format(
            host=HOST,
            port=self.port,
            folder=self.folder,
            sftp=sftp,
            forced=forced,
            forwarding="yes" if self._machine is None else "no",
        )
        (self.folder / "sshd_config").write_text(text)


def _make_key(path: Path) -> None:
    argv = [require("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "hwbench lab", "-f", str(path)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
