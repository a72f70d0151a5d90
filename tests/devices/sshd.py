"""A plain sshd of this machine on loopback, with throw-away keys; its logins are ours."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

CONFIGURATION = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UseDNS no
PrintMotd no
MaxStartups 64
AllowTcpForwarding yes
# bash then takes itself for a shell in a shell, and leaves the .bashrc of who runs the tests alone
SetEnv SHLVL=2
{extra}
"""

SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")


def available() -> str:
    """Path of the server's program, or nothing."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""


def sftp_server() -> str:
    """Path of the program that serves files, which is installed with the server."""
    return next(str(path) for path in map(Path, SFTP_SERVERS) if path.exists())


def make_key(path: Path, passphrase: str = "") -> Path:
    for old in (path, path.with_name(f"{path.name}.pub")):
        old.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True, capture_output=True
    )
    return path


class Sshd:
    """Start and kill it as often as you like, on the same port."""

    def __init__(self, folder: Path, extra: str = "Subsystem sftp internal-sftp") -> None:
        folder.mkdir()
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.user = getpass.getuser()
        self.key = make_key(folder / "client_key")
        make_key(folder / "host_key")
        shutil.copy(folder / "client_key.pub", folder / "authorized_keys")
        (folder / "config").write_text(CONFIGURATION.format(port=self.port, folder=folder, extra=extra))
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def options(self) -> dict[str, str | int | bool]:
        """Of a device file, under [ssh]."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": self.user,
            "identity": str(self.key),
            "known_hosts": str(self.folder / "known_hosts"),
            "agent": False,
        }

    def known(self) -> None:
        """Its host key is trusted."""
        key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}\n")

    def start(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True) if os.geteuid() == 0 else None
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [available(), "-D", "-e", "-f", str(self.folder / "config")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.02)

    def sessions(self) -> list[int]:
        """The processes that serve connections."""
        found = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
        rows = [line.split(None, 2) for line in found.splitlines()]
        family = {self.process.pid}
        for _ in rows:
            family |= {int(pid) for pid, parent, args in rows if int(parent) in family and "sshd" in args}
        return sorted(family - {self.process.pid})

    def drop(self) -> None:
        """Ends the connections, as a cable that is pulled and put in again."""
        _kill(self.sessions())

    def stop(self) -> None:
        """Ends the server and its connections."""
        if self.process is not None:
            sessions = self.sessions()
            self.process.kill()
            self.process.wait()
            _kill(sessions)
            self.process = None


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
