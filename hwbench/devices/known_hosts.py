"""Files of known hosts, in OpenSSH's format (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT): which keys a host may show."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hwbench.workspace import write_text

SSH_PORT = 22


@dataclass(frozen=True)
class HostKey:
    """A public key that a host showed, or that a file says it has. ``host`` is ``NAME`` or ``[NAME]:PORT``."""

    host: str
    kind: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The fingerprint as ``ssh-keygen -l`` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.data).digest()).decode().rstrip("=")

    @property
    def line(self) -> str:
        """The line of a file of known hosts."""
        return f"{self.host} {self.kind} {base64.b64encode(self.data).decode()}"


class Known(NamedTuple):
    """What files say about a host: keys that it may show, with the place of each, and keys that nobody may show."""

    keys: dict[HostKey, str]
    revoked: set[bytes]


def host_name(host: str, port: int) -> str:
    """A host as files of known hosts name it."""
    return host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"


def known(host: str, files: Iterable[Path]) -> Known:
    """What files say about a host; those that cannot be read say nothing.

    Args:
        host: As ``host_name`` gives it.
        files: The first that names a key counts as its place.
    """
    found = Known({}, set())
    for path in files:
        for number, line in enumerate(_lines(path), 1):
            entry = _parse(line)
            if entry is None or not _matches(entry.hosts, host):
                continue
            if entry.marker == "@revoked":
                found.revoked.add(entry.data)
            elif not entry.marker:
                found.keys.setdefault(HostKey(host, entry.kind, entry.data), f"{path}:{number}")
    return found


def record(path: Path, key: HostKey) -> None:
    """Writes a key into a file in place of what the file says about that host.

    Raises:
        WorkspaceError: The file cannot be written.
    """
    kept = [line for line in _lines(path) if (entry := _parse(line)) is None or not _matches(entry.hosts, key.host)]
    write_text(path, "".join(f"{line}\n" for line in [*kept, key.line]))


class _Entry(NamedTuple):
    marker: str
    hosts: str
    kind: str
    data: bytes


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _parse(line: str) -> _Entry | None:
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return None
    try:
        return _Entry(marker, words[0], words[1], base64.b64decode(words[2], validate=True))
    except (binascii.Error, ValueError):
        return None


def _matches(hosts: str, host: str) -> bool:
    """Whether a list of patterns, or a hashed name, means the host; a pattern with ``!`` in front takes it out."""
    if hosts.startswith("|1|"):
        return _hashed(hosts, host)
    found = False
    for pattern in hosts.lower().split(","):
        negated = pattern.startswith("!")
        # Only * and ? have a meaning there; brackets stand for themselves.
        if fnmatch.fnmatchcase(host, pattern.removeprefix("!").replace("[", "[[]")):
            if negated:
                return False
            found = True
    return found


def _hashed(hosts: str, host: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in _fields(hosts))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, host.encode(), "sha1").digest(), digest)


def _fields(hosts: str) -> Iterator[str]:
    yield from hosts.split("|")[2:]
