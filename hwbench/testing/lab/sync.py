"""The file service of adb, version 1: STAT, LIST, SEND, RECV, QUIT; failures carry the text of the errno.

https://android.googlesource.com/platform/packages/modules/adb/+/main/SYNC.TXT
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from pathlib import Path
from typing import Protocol

CHUNK = 64 * 1024
MAX_PATH = 1024
MAX_LINKS = 40
NO_ROOM = f"write failed: {os.strerror(errno.ENOSPC)}"


class Peer(Protocol):
    """The stream to the other side."""

    def read_exactly(self, size: int) -> bytes: ...

    def write(self, data: bytes) -> None: ...


class Refused(Exception):
    """What the other side is told in a FAIL."""


def serve(peer: Peer, root: Path, faults: Path) -> None:
    """Answers requests until QUIT.

    Args:
        peer: The stream.
        root: What paths of the device are relative to.
        faults: While ``truncate`` is in this folder, a file that is sent keeps only as many bytes as stand there; while
            ``full`` is, it finds no room.
    """
    while True:
        name, length = _head(peer)
        if name == b"QUIT":
            return
        if length > MAX_PATH:
            _fail(peer, "path too long")
            return
        path = os.fsdecode(peer.read_exactly(length))
        try:
            if name == b"STAT":
                peer.write(_stat(root, path))
            elif name == b"LIST":
                _list(peer, root, path)
            elif name == b"SEND":
                _send(peer, root, path, faults)
            elif name == b"RECV":
                _recv(peer, root, path)
            else:
                _fail(peer, f"unknown command {name!r}")
                return
        except Refused as refused:
            _fail(peer, str(refused))


def resolve(root: Path, path: str, *, follow: bool = True) -> Path:
    """Where a path of the device lies on the host; links lead no further than ``root``."""
    waiting, found, links = _parts(path), root, 0
    while waiting:
        part = waiting.pop(0)
        if part == "..":
            found = found if found == root else found.parent
            continue
        found = found / part
        if found.is_symlink() and (waiting or follow):
            links += 1
            if links > MAX_LINKS:
                raise Refused("Too many symbolic links encountered")
            target = os.readlink(found)
            found = root if target.startswith("/") else found.parent
            waiting = _parts(target) + waiting
    return found


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _head(peer: Peer) -> tuple[bytes, int]:
    data = peer.read_exactly(8)
    return data[:4], int.from_bytes(data[4:], "little")


def _fail(peer: Peer, text: str) -> None:
    data = text.encode()
    peer.write(b"FAIL" + len(data).to_bytes(4, "little") + data)


def _stat(root: Path, path: str) -> bytes:
    try:
        found = os.lstat(resolve(root, path, follow=False))
        values = (found.st_mode, found.st_size & 0xFFFFFFFF, int(found.st_mtime) & 0xFFFFFFFF)
    except (OSError, Refused):
        values = (0, 0, 0)
    return b"STAT" + struct.pack("<III", *values)


def _list(peer: Peer, root: Path, path: str) -> None:
    with contextlib.suppress(OSError, Refused):
        for entry in sorted(os.scandir(resolve(root, path)), key=lambda one: one.name):
            found, name = entry.stat(follow_symlinks=False), os.fsencode(entry.name)
            values = (found.st_mode, found.st_size & 0xFFFFFFFF, int(found.st_mtime), len(name))
            peer.write(b"DENT" + struct.pack("<IIII", *values) + name)
    peer.write(b"DONE" + bytes(16))


def _recv(peer: Peer, root: Path, path: str) -> None:
    try:
        source = resolve(root, path).open("rb", buffering=0)
    except OSError as error:
        raise Refused(f"open failed: {error.strerror}") from error
    with source:
        while True:
            try:
                data = source.read(CHUNK)
            except OSError as error:
                raise Refused(f"read failed: {error.strerror}") from error
            if not data:
                break
            peer.write(b"DATA" + len(data).to_bytes(4, "little") + data)
    peer.write(b"DONE" + bytes(4))


def _send(peer: Peer, root: Path, request: str, faults: Path) -> None:
    path, _, mode = request.rpartition(",")
    truncate = faults / "truncate"
    kept = int(truncate.read_text()) if truncate.exists() else None
    target, failed = _opened(root, path, mode)
    size = 0
    try:
        while True:
            name, value = _head(peer)
            if name == b"DONE":
                break
            if name != b"DATA" or value > CHUNK:
                raise EOFError
            data = peer.read_exactly(value)
            part = data if kept is None else data[: max(0, kept - size)]
            size += len(data)
            if target is not None and failed is None:
                failed = NO_ROOM if (faults / "full").exists() else _written(target, part)
    finally:
        if target is not None:
            os.close(target)
    if failed is not None:
        if target is not None:
            resolve(root, path).unlink(missing_ok=True)
        raise Refused(failed)
    os.utime(resolve(root, path), (value, value))
    peer.write(b"OKAY" + bytes(4))


def _opened(root: Path, path: str, mode: str) -> tuple[int | None, str | None]:
    """A descriptor, or what to refuse with once the other side has sent everything, as adbd does."""
    try:
        place = resolve(root, path)
        place.parent.mkdir(mode=0o775, parents=True, exist_ok=True)
    except (OSError, Refused) as error:
        return None, f"secure_mkdirs failed: {getattr(error, 'strerror', None) or error}"
    bits = int(mode) if mode.isdecimal() else 0o644
    if not stat.S_ISREG(bits) and stat.S_IFMT(bits):
        return None, "only regular files are taken"
    try:
        with contextlib.suppress(OSError):
            place.unlink()
        return os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, bits & 0o777), None
    except OSError as error:
        return None, f"couldn't create file: {error.strerror}"


def _written(target: int, data: bytes) -> str | None:
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError as error:
        return f"write failed: {error.strerror}"
    return None
