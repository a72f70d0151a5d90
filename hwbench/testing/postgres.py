"""A PostgreSQL server of one's own, from the programs of Debian's package: made, started and ended by a test."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Who runs the server where we are root, which it refuses to be.
_USER = "postgres"
DATABASE = "postgres"


def programs() -> Path | None:
    """The folder of ``initdb`` and ``pg_ctl``, the newest of Debian's first; None where there is none."""
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -int(path.parent.name))
    folders += [Path(found).resolve().parent] if found else []
    usable = [folder for folder in folders if (folder / "initdb").is_file() and (folder / "pg_ctl").is_file()]
    return usable[0] if usable else None


class PostgresServer:
    """One server on a free port of this machine.

    Args:
        folder: Where it keeps everything; another user can reach it.
        password: Of its only user.
    """

    def __init__(self, folder: Path, password: str) -> None:
        self.folder, self.password = folder, password
        self.port = _free_port()
        self.user = _USER if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name

    @property
    def url(self) -> str:
        """Of the database, with the password."""
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    def create(self) -> None:
        """Makes the data of a new server."""
        self.folder.mkdir(parents=True)
        secret = self.folder / "password"
        secret.write_text(self.password)
        if os.getuid() == 0:
            shutil.chown(self.folder, _USER)
            shutil.chown(secret, _USER)
        words = ("--no-sync", "--auth=scram-sha-256", f"--pwfile={secret}", "--encoding=UTF8", "--locale=C")
        self._run("initdb", *words, "-D")

    def start(self) -> None:
        """Starts the server and waits for it."""
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder} -F"
        self._run("pg_ctl", "--wait", "-o", options, "-l", str(self.folder / "log"), "start", "-D")

    def kill(self) -> None:
        """Ends the server without a farewell, as a power cut does."""
        self._run("pg_ctl", "--wait", "-m", "immediate", "stop", "-D")

    def _run(self, program: str, *words: str) -> None:
        folder = programs()
        assert folder is not None
        root = os.getuid() == 0
        subprocess.run(
            [str(folder / program), *words, str(self.folder / "data")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            cwd="/",
            user=_USER if root else None,
            group=_USER if root else None,
            extra_groups=[] if root else None,
        )


@contextmanager
def postgres(folder: Path, password: str) -> Iterator[PostgresServer]:
    """A server that runs while the block does."""
    server = PostgresServer(folder, password)
    server.create()
    server.start()
    try:
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.kill()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
