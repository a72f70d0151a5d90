"""How much room may go to what can be made again: built files and runners, samples of verified tables, decoded videos.

What was used least recently goes first. What a running process uses stays: each process that uses a folder holds a lock
on a file in its ``.users`` from then on, and stamps what it uses; what was stamped since the first of those that still
run began is in use. No clock that is set in between changes that: a process stamps nothing as older than itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hwbench.errors import WorkspaceError
from hwbench.locks import has_no_locks, without_locks
from hwbench.ownership import make_closed_folder
from hwbench.units import parse_bytes

# The builds of one space take up to a GiB. This holds those of ten; what is more are builds of older sources and
# engines, which nobody asks for again.
LIMIT_BYTES = 10 * 1024**3
# Changes the limit: "20GiB", or "none".
LIMIT_VARIABLE = "HWBENCH_CACHE_LIMIT"
# A verified table leaves a MB of samples, which only a person reads: those of a thousand.
VERIFIED_BYTES = 1024**3

# Folder of decoded videos in a cache; each run says how much they may take.
DECODED = "decoded"
# Folder of computed optical flow in a cache.
FLOW = "flow"
# Folder of trained supernets in a cache: hours of training, without which a study cannot be scored further.
SUPERNETS = "supernets"

USERS = ".users"
_TURN = "turn.lock"
# Files of a build begin with its key, a SHA-256 in hex.
_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass
class Room:
    """What was removed from a folder, and what of the rest stays because a running process uses it."""

    removed_bytes: int = 0
    removed_files: int = 0
    kept_bytes: int = 0


@dataclass(frozen=True)
class _User:
    """This process as a user of a folder; the lock on the file ends with the process."""

    descriptor: int
    began_ns: int


@dataclass(frozen=True)
class _Entry:
    """Files, or a folder, that were made together; without the first one there is no entry."""

    paths: tuple[Path, ...]
    bytes: int
    used_ns: int


_using: dict[tuple[int, Path], _User] = {}


def limit_bytes() -> float:
    """What the build cache may take: ``LIMIT_BYTES``, or what ``HWBENCH_CACHE_LIMIT`` says (``none``: infinity).

    Raises:
        InvalidValue: It says neither a size nor ``none``.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return LIMIT_BYTES
    return float("inf") if text == "none" else parse_bytes(text, name=LIMIT_VARIABLE)


def use(root: Path) -> None:
    """Notes that this process uses what lies in a folder, from now to its end; where that cannot be written, it is not.

    The folder is made when needed.
    """
    key = (os.getpid(), root.absolute())
    if key in _using:
        return
    with contextlib.suppress(OSError, WorkspaceError), _turn(root, fcntl.LOCK_SH):
        descriptor, name = tempfile.mkstemp(dir=root / USERS, prefix=f"{os.getpid()}-", suffix=".lock")
        _using[key] = _User(descriptor, Path(name).stat().st_mtime_ns)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def stamp(root: Path, path: Path) -> None:
    """Notes that this process uses a file of a folder now, if it is there."""
    if not path.exists():
        return
    use(root)
    user = _using.get((os.getpid(), root.absolute()))
    now = max(time.time_ns(), user.began_ns if user else 0)
    with contextlib.suppress(OSError):
        os.utime(path, ns=(now, now))


def trim_builds(root: Path) -> Room:
    """Brings the builds in a cache below the limit; runners, of which there are few, stay.

    Raises:
        InvalidValue: See ``limit_bytes``.
    """
    return _builds_down_to(root, limit_bytes())


def clean_cache(root: Path) -> Room:
    """Removes the builds that no running process uses and, where none uses the cache, the rest of it but supernets.

    Raises:
        WorkspaceError: The file system has no locks, which tell what is used.
    """
    room = _builds_down_to(root, 0)
    if not root.is_dir():
        return room
    rest = [_entry([path]) for path in _listed(root) if not _KEY.match(path.name) and path.name != SUPERNETS]
    with _turn(root, fcntl.LOCK_EX):
        if _first_began_ns(root) is None:
            for entry in rest:
                _remove(entry, room)
        else:
            room.kept_bytes += sum(entry.bytes for entry in rest)
    return room


def trim_verified(root: Path) -> Room:
    """Brings the samples of verified tables below ``VERIFIED_BYTES``."""
    return _stores_down_to(root, VERIFIED_BYTES)


def clean_verified(root: Path) -> Room:
    """Removes the samples of all verified tables that no running process works on."""
    return _stores_down_to(root, 0)


def trim(root: Path, limit: float) -> int:
    """Brings a folder of files that no process needs to find again below a limit; returns the bytes of what stays."""
    entries, room = [_entry([path]) for path in _listed(root)], Room()
    _down_to(entries, limit, room, lambda entry, used_ns: False)
    return sum(entry.bytes for entry in entries) - room.removed_bytes


def size(root: Path) -> int:
    """Bytes of all files in a folder and below it; 0 where there is none."""
    return sum(_entry([path]).bytes for path in _listed(root))


def size_of_builds(root: Path) -> int:
    """Bytes of the builds in a cache, which are what its limit holds for."""
    return sum(_entry(paths).bytes for paths in _builds(root).values())


def _builds(root: Path) -> dict[str, list[Path]]:
    """The files of each build, by its key."""
    grouped: dict[str, list[Path]] = defaultdict(list)
    for path in _listed(root):
        if key := _KEY.match(path.name):
            grouped[key[0]].append(path)
    return grouped


def _builds_down_to(root: Path, limit: float) -> Room:
    # the description comes first: what it does not describe does not count as built
    entries = [_entry(sorted(paths, key=lambda path: path.suffixes != [".json"])) for paths in _builds(root).values()]
    room = Room()
    if not entries:
        return room
    with _turn(root, fcntl.LOCK_EX):
        began_ns = _first_began_ns(root)
        _down_to(entries, limit, room, lambda entry, used_ns: began_ns is not None and used_ns >= began_ns)
    return room


def _stores_down_to(root: Path, limit: float) -> Room:
    room = Room()
    stores = [path for path in _listed(root) if path.suffix == ".sqlite"]
    if stores:
        more = [[path.with_name(f"{path.name}-journal"), path.with_name(f".{path.name}.checked")] for path in stores]
        entries = [_entry([path, *filter(Path.exists, beside)]) for path, beside in zip(stores, more, strict=True)]
        _down_to(entries, limit, room, lambda entry, _: _is_open(entry.paths[0]))
    return room


def _down_to(entries: Sequence[_Entry], limit: float, room: Room, in_use: Callable[[_Entry, int], bool]) -> None:
    """Removes entries, those used least recently first, until the rest is not larger than the limit."""
    total = sum(entry.bytes for entry in entries)
    for entry in sorted(entries, key=lambda entry: entry.used_ns):
        if total <= limit:
            return
        if in_use(entry, entry.used_ns) or not _remove(entry, room, in_use):
            room.kept_bytes += entry.bytes
        else:
            total -= entry.bytes


def _remove(entry: _Entry, room: Room, in_use: Callable[[_Entry, int], bool] = lambda entry, used_ns: False) -> bool:
    """Removes an entry; not one that was stamped since it was looked at.

    It is looked at once more under another name, under which nobody finds it.
    """
    first, *others = entry.paths
    going = first.with_name(f"{first.name}.going")
    try:
        first.rename(going)
        if in_use(entry, going.stat().st_mtime_ns):
            going.rename(first)
            return False
    except OSError:
        return False
    for path in (*others, going):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    room.removed_bytes += entry.bytes
    room.removed_files += len(entry.paths)
    return True


def _is_open(store: Path) -> bool:
    """Whether a process has a store open (``hwbench.measure.checked``); so, too, where that cannot be told."""
    try:
        with store.with_name(f".{store.name}.checked").open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _first_began_ns(root: Path) -> int | None:
    """When the first of the processes began that use a folder; None where none does. Files of ended ones go."""
    began = []
    for path in (root / USERS).glob("*-*.lock"):
        with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                began.append(os.fstat(file.fileno()).st_mtime_ns)
            else:
                path.unlink()
    return min(began, default=None)


@contextlib.contextmanager
def _turn(root: Path, how: int) -> Iterator[None]:
    """No process begins to use a folder (shared) while another removes what nobody uses (exclusive)."""
    make_closed_folder(root / USERS)
    with (root / USERS / _TURN).open("a") as file:
        try:
            fcntl.flock(file, how)
        except OSError as error:
            if not has_no_locks(error):
                raise
            way_out = "remove the folder by hand while no hwbench runs"
            raise without_locks(root, "removing what the other one uses", way_out) from None
        yield


def _listed(root: Path) -> list[Path]:
    """What lies in a folder, but for who uses it."""
    try:
        return sorted(path for path in root.iterdir() if path.name != USERS and path.suffix != ".lock")
    except OSError:
        return []


def _entry(paths: Sequence[Path]) -> _Entry:
    total, used_ns = 0, 0
    for path in paths:
        inside = path.rglob("*") if path.is_dir() and not path.is_symlink() else ()
        for one in (path, *inside):
            with contextlib.suppress(OSError):
                stat = one.lstat()
                total += 0 if one.is_dir() else stat.st_size
                used_ns = max(used_ns, stat.st_mtime_ns)
    return _Entry(tuple(paths), total, used_ns)
