"""Files of known hosts, in OpenSSH's format (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT): which keys a host may show.

They are read here and not by paramiko, which knows no markers: it takes ``@revoked`` for the name of a host, and so
forgets what was revoked. A file may be the user's own, so ``record`` changes what it says about one host and nothing
else: other hosts of a line, lines with markers, comments and what cannot be read stay byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hwbench.errors import DeviceError, WorkspaceError
from hwbench.ownership import keep_to_us, make_closed_folder
from hwbench.workspace import write_bytes, writing

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

    A key that is revoked for a name is revoked on all ports of it; OpenSSH asks for the port that the line names.

    Args:
        host: As ``host_name`` gives it.
        files: The first that names a key counts as its place.
    """
    found = Known({}, set())
    for path in files:
        for number, line in enumerate(_lines(path), 1):
            entry = _parse(line)
            if entry is None:
                continue
            if entry.marker == "@revoked" and _matches(entry.hosts, host, _portless(host)):
                found.revoked.add(entry.data)
            elif not entry.marker and _matches(entry.hosts, host):
                found.keys.setdefault(HostKey(host, entry.kind, entry.data), f"{path}:{number}")
    return found


def _portless(host: str) -> str:
    return host.removeprefix("[").rpartition("]:")[0] or host


def record(path: Path, key: HostKey, files: Iterable[Path] = ()) -> None:
    """Writes a key into a file in place of what the file says about that host; all else in it stays as it is.

    A line that names the host among others loses its name alone. Where it names it by a pattern (``*.local``), the host
    is taken out of the pattern (``*.local,!pi5.local``). Lines with a marker stay: what was revoked stays revoked.

    Args:
        path: The file; a symbolic link stays one.
        key: What the host shows.
        files: Others that say what the host may show.

    Raises:
        DeviceError: The key is revoked, by this file or one of the others.
        WorkspaceError: The file cannot be read or written.
    """
    if key.data in known(key.host, [path, *files]).revoked:
        raise DeviceError(
            f"{key.host} shows {key.kind} {key.sha256}, which is marked @revoked; nothing is recorded. Expected a new "
            "host key there: rm /etc/ssh/ssh_host_*; ssh-keygen -A. If the mark is wrong, take its line out by hand"
        )
    try:
        data, mode = path.read_bytes(), path.stat().st_mode & 0o777
    except FileNotFoundError:
        data, mode = b"", None
    except OSError as error:
        raise WorkspaceError(
            f"cannot read {path}, so nothing is recorded in it: {error.strerror}; make it readable, then run the same "
            "command again"
        ) from error
    target = Path(os.path.realpath(path))
    with writing(target):
        make_closed_folder(target.parent)
        write_bytes(target, _recorded(data, key))
        if mode is None:
            keep_to_us(target)  # the umask may have left it to others
        else:
            target.chmod(mode)


class _HostEntry(NamedTuple):
    marker: str
    hosts: str
    kind: str
    data: bytes


def _recorded(data: bytes, key: HostKey) -> bytes:
    """The bytes of a file in which this key is the only one of its host."""
    # At line feeds only, as OpenSSH: other ends of lines that Python knows may stand in a comment.
    kept = b"".join(_without(line, key.host) for line in re.findall(rb"[^\n]*\n|[^\n]+", data))
    end = b"" if kept.endswith(b"\n") or not kept else b"\n"
    return kept + end + key.line.encode() + b"\n"


def _without(line: bytes, host: str) -> bytes:
    """A line that says nothing more about a host; empty where it said nothing else."""
    entry = _parse(line)
    if entry is None or entry.marker or not _matches(entry.hosts, host):
        return line
    if entry.hosts.startswith("|"):
        return b""
    others = [pattern for pattern in entry.hosts.split(",") if pattern.lower() != host]
    if _matches(",".join(others), host):
        others.append(f"!{host}")
    if all(pattern.startswith("!") for pattern in others):
        return b""
    return line.replace(_bytes(entry.hosts), _bytes(",".join(others)), 1)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except OSError:
        return []


def _parse(line: bytes) -> _HostEntry | None:
    words = [word.decode(errors="surrogateescape") for word in line.split()]
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return None
    try:
        return _HostEntry(marker, words[0], words[1], base64.b64decode(words[2], validate=True))
    except (binascii.Error, ValueError):
        return None


def _matches(hosts: str, *names: str) -> bool:
    """Whether a list of patterns, or a hashed name, means a host by one of its names.

    A pattern with ``!`` in front takes the host out.
    """
    if hosts.startswith("|1|"):
        return any(_hashed(hosts, name) for name in names)
    found = False
    for pattern in hosts.lower().split(","):
        negated = pattern.startswith("!")
        # Only * and ? have a meaning there; brackets stand for themselves.
        plain = pattern.removeprefix("!").replace("[", "[[]")
        if any(fnmatch.fnmatchcase(name, plain) for name in names):
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
