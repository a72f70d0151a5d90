"""Where files live: a workspace is a directory with ``search_spaces/``, ``profiles/``, ``zoo/`` and ``experiments/``.

The checkout is one; ``hwbench init`` makes one elsewhere. Names are looked up in the workspace first, then among the
files that the package ships. Working state (store, caches, studies) lies in ``.hwbench/`` of the workspace.

A workspace names programs that are run, and keys that are believed: one that somebody else can change is refused, as
git refuses a repository (``hwbench.ownership``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import IO

from hwbench import lookup
from hwbench.durable import make_folder, sync_folder
from hwbench.errors import UnknownName, WorkspaceError
from hwbench.locks import try_flock
from hwbench.ownership import check_above, check_own, keep_to_us, make_closed_folder
from hwbench.registry import suggest

PARTS = ("search_spaces", "profiles", "zoo", "experiments")
STATE = ".hwbench"
# Ends the name of a table of trainings of a space, beside the file of the space.
TRAINED = ".trained.csv"
# In place of the name of a table: no trainings, nor those that come with a space.
NO_TRAININGS = "none"
# What a workspace must keep to its owner. The last two hold what is run, and the numbers of processes that are ended.
_OWN = (".", *PARTS[:3], STATE, f"{STATE}/cache", f"{STATE}/labs")
# What a new workspace keeps out of git, as the checkout does: working state, runs, times of this machine, and what a
# killed command leaves.
_GITIGNORE = f"{STATE}/\nruns/\n# measured on this machine\nprofiles/local/*.csv\n# left by a killed command\n.*.tmp\n"
# The longest name of a file on Linux and macOS.
NAME_BYTES = 255
# As ``temporary_beside`` names them.
_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)
_ENDING_BYTES = len(".0123456789abcdef.tmp")
# A file is written in seconds: one that is older is of no process that writes, however clocks differ.
_STALE_S = 24 * 3600
# Linux follows no more, either.
_MOST_LINKS = 40
# Folders in which Linux and macOS list the open files of a process.
_OPEN_FILES = re.compile(r"/proc/\d+(/task/\d+)?/fd|/dev/fd")
_HOLDS = "a workspace names programs that are run, and keys that are believed"


def shipped() -> Path:
    """Directory of the spaces, device files and cards that came with the package (in a checkout: its top)."""
    package = Path(__file__).resolve().parent
    installed = package / "shipped"
    return installed if installed.is_dir() else package.parent


def _shipped_files(part: str) -> list[Path]:
    """What a new workspace gets: all TOML files of a part, and the trainings beside the spaces."""
    folder = shipped() / part
    return [*folder.rglob("*.toml"), *folder.glob(f"*{TRAINED}")]


@dataclass(frozen=True)
class Workspace:
    """A directory with the parts above, which may be incomplete; shipped files fill in."""

    root: Path

    @classmethod
    def find(cls, start: str | Path | None = None) -> Workspace:
        """The nearest directory from ``start`` (default: the current one) upwards that is a workspace.

        Raises:
            WorkspaceError: There is none, or no such folder, or somebody else can change the one that was found; it is
                not passed over.
        """
        start = (Path.cwd() if start is None else Path(start)).resolve()
        if not start.exists():  # a workspace above would be one that nobody meant
            raise WorkspaceError(f"no folder {start}; name one of a workspace, or make one: hwbench init DIR")
        for path in (start, *start.parents):
            if (path / "search_spaces").is_dir() and (path / "profiles").is_dir():
                return cls(path).checked()
        raise WorkspaceError(f"no workspace at {start} or above; go to one, or make one: hwbench init DIR")

    @classmethod
    def at(cls, place: Workspace | str | Path | None) -> Workspace:
        """A workspace as it is given: itself, a folder in one, or None for the one around the current folder.

        Raises:
            WorkspaceError: As ``find``.
        """
        return place if isinstance(place, Workspace) else cls.find(place)

    def checked(self) -> Workspace:
        """This one, of which nobody else can change what is run or believed.

        Raises:
            WorkspaceError: Somebody else can; says who, and what to type next.
        """
        root = self.root.resolve()
        check_above(root, _HOLDS)
        for part in _OWN:
            check_own(root / part, _HOLDS, root=root)
        return self

    @classmethod
    def create(cls, root: str | Path) -> Workspace:
        """Makes a workspace with the shipped spaces, device files and cards; existing files are left as they are.

        A ``.gitignore`` keeps out of git what is of this machine. Whatever the umask is, nobody else can write what is
        made.
        """
        root = Path(root)
        with writing(root):
            for part in PARTS:
                make_closed_folder(root / part)
            if not (root / ".gitignore").exists():
                write_text(root / ".gitignore", _GITIGNORE, 0o644)
            for part in PARTS[:3]:
                for source in sorted(_shipped_files(part)):
                    target = root / source.relative_to(shipped())
                    if not target.exists():  # a part of a file would be left as it is for ever
                        make_closed_folder(target.parent)
                        write_bytes(target, source.read_bytes())
                        keep_to_us(target)
        return cls(root)

    @property
    def state(self) -> Path:
        """Directory of the working state; made on first use.

        Raises:
            WorkspaceError: It cannot be written.
        """
        path = self.root / STATE
        with writing(path):
            make_folder(path, 0o755)
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, "not writable", str(path))
        return path

    @property
    def store(self) -> Path:
        """The SQLite file of all measurements."""
        return self.state / "measurements.sqlite"

    @property
    def cache(self) -> Path:
        """Directory of built artifacts."""
        return self.state / "cache"

    @property
    def verified(self) -> Path:
        """Directory of what was measured to verify tables, a store each."""
        return self.state / "verified"

    @property
    def sustained(self) -> Path:
        """Directory of the courses of files that ran for minutes, a folder for each device."""
        return self.state / "sustained"

    @property
    def studies(self) -> Path:
        """Directory of search studies, one folder each."""
        return self.state / "studies"

    @property
    def data(self) -> Path:
        """Directory of generated data sets."""
        return self.state / "data"

    def space(self, name: str) -> Path:
        """The TOML file of a search space; UnknownName lists the known ones."""
        return self._find("search_spaces", "space", name, ".toml")

    def trainings(self, source: str) -> Path | None:
        """The table of trainings that is meant: by its path, or by its name where it lies beside the spaces.

        Args:
            source: Such as ``x3d-mini.trained.csv``, or the path of a CSV file.

        Returns:
            None: there is no such file.
        """
        return path if lookup.is_file(path := Path(source)) else self.trainings_beside_spaces(source)

    def trainings_beside_spaces(self, name: str) -> Path | None:
        """The table of trainings of that name beside the spaces, whatever the current folder holds; None: none."""
        if not name.endswith(TRAINED) or Path(name).name != name:
            return None
        places = (root / "search_spaces" / name for root in (self.root, shipped()))
        return next((path for path in places if path.is_file()), None)

    def device(self, name: str) -> Path:
        """The ``device.toml`` of a device; UnknownName lists the known ones.

        Raises:
            WorkspaceError: Somebody else can change it, or another file of that folder but its tables.
        """
        path = self._find("profiles", "device", name, "/device.toml")
        if path.is_relative_to(self.root):
            files = [file for file in sorted(path.parent.iterdir()) if file.suffix != ".csv"]
            for own in (path.parent, *files):
                check_own(own, "it says what is run on a device, and which keys it has", root=self.root)
        return path

    def card(self, name: str) -> Path:
        """The ``model.toml`` of a zoo model; UnknownName lists the known ones."""
        return self._find("zoo", "zoo model", name, "/model.toml")

    def names(self, part: str) -> tuple[str, ...]:
        """Names available in ``search_spaces``, ``profiles`` or ``zoo``."""
        tail = "*.toml" if part == "search_spaces" else "*/*.toml"
        found = {
            p.stem if part == "search_spaces" else p.parent.name
            for root in (self.root, shipped())
            for p in (root / part).glob(tail)
            if p.is_file()
        }
        return tuple(sorted(found))

    def _find(self, part: str, kind: str, name: str, tail: str) -> Path:
        known = self.names(part)
        if name in known:
            for root in (self.root, shipped()):
                path = root / part / f"{name}{tail}"
                if path.is_file():
                    return path
        raise UnknownName(f"unknown {kind} {name!r}; {suggest(name, known)}")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the ways in which writing below ``path`` fails for want of rights, room or a sound disk into one error."""
    try:
        yield
    except OSError as error:
        # Parents are made before anything is written: what is still missing then cannot be made there.
        refused = refusal(error, path, {errno.ENOENT: "it cannot be made there"})
        if refused is None:
            raise
        raise refused from error


_REASONS = {
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "it is not writable",
    errno.EPERM: "it is not writable",
    errno.ENOSPC: "no space is left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file would be larger than the limit allows",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EEXIST: "a part of the path is a file",
}
_FAULTS = {
    errno.EIO: "the disk or its connection fails",
    errno.ESTALE: "its file server no longer has it",
}


def refusal(error: OSError, path: Path, more: Mapping[int, str] | None = None) -> WorkspaceError | None:
    """What an error of the operating system means for the person who wants to write below ``path``.

    None where it is about something else than rights, room, a fault of the disk, the kind of a path and the length of
    a name. ``more``: further numbers of errors that mean one of these here, with the reason in words.
    """
    if error.errno in _FAULTS:
        return _fault(error, "write", path)
    if error.errno == errno.ENAMETOOLONG:
        cut = cut_name(max(Path(str(error.filename or path)).parts, key=len), 60)
        return WorkspaceError(f"cannot use {cut}...: longer than {NAME_BYTES} bytes, or than a path may be; shorten it")
    reason = (_REASONS | dict(more or {})).get(error.errno or 0)
    if reason is None:
        return None
    return WorkspaceError(
        f"cannot write {error.filename or path}: {reason}; nothing already stored was lost. "
        "Free some space or choose another directory, then run the same command again"
    )


def _fault(error: OSError, attempt: str, path: Path | str) -> WorkspaceError:
    """A fault of the disk; ``attempt``: what could not be done."""
    return WorkspaceError(
        f"cannot {attempt} {error.filename or path}: {_FAULTS[error.errno or 0]}; "
        "mend that or choose another directory, then run the same command again"
    )


@contextlib.contextmanager
def explaining() -> Iterator[None]:
    """Turns an error of the operating system or of SQLite that nothing nearer turned into a WorkspaceError.

    Errors that are not about rights, room, a fault of the disk, the kind of a path, the length of a name, the current
    folder or a database stay as they are.
    """
    try:
        yield
    except Exception as error:
        explained = _explained(error)
        if explained is None:
            raise
        raise explained from error


def _explained(error: Exception) -> WorkspaceError | None:
    import sqlite3  # the Python of a device may lack it

    if isinstance(error, sqlite3.Error):
        return WorkspaceError(f"database: {error}")
    if isinstance(error, FileNotFoundError) and _is_folder_gone():
        return WorkspaceError("the current folder was removed; go to another one")
    if isinstance(error, PermissionError) and error.filename is not None:
        return WorkspaceError(
            f"cannot use {error.filename}: {error.strerror}; mend its rights, or those of a folder above it"
        )
    if isinstance(error, OSError) and error.errno in _FAULTS:  # of any file that the command uses
        return _fault(error, "read or write", "a file")
    return refusal(error, Path(".")) if isinstance(error, OSError) else None


def _is_folder_gone() -> bool:
    """Whether the current folder was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def write_text(path: Path, text: str, mode: int = 0o666) -> None:
    """Writes a file so that a crash leaves either the old text or the new one; see ``write_bytes``."""
    write_bytes(path, text.encode(), mode)


def temporary_beside(path: Path) -> Path:
    """A name that no other process has, for a file that is to take the place of ``path``.

    The number of a process does not do: containers on one volume have the same ones. Of a long name the end is left
    out.
    """
    return path.with_name(f".{_cut_for_temporary(path.name)}.{secrets.token_hex(8)}.tmp")


def _cut_for_temporary(name: str) -> str:
    return cut_name(name, NAME_BYTES - 1 - _ENDING_BYTES)


def cut_name(name: str, most_bytes: int) -> str:
    """The name of a file without its last characters where it has more bytes than that."""
    while len(name.encode(errors="replace")) > most_bytes:  # what is not UTF-8 counts as one byte each
        name = name[:-1]
    return name


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a file so that a crash or a power cut leaves either the old bytes or the new ones.

    When this returns, the new ones are on the disk. What killed processes left of the same file is removed, where it
    lay there when this process first wrote into the folder.

    Args:
        path: The file; its folder is made where it is missing. A symbolic link is replaced, and what it leads to stays:
            a copied run may be links to the files of another one.
        data: What it is to hold.
        mode: Its rights, less the umask; 0o644 for what is believed, whatever the umask is.

    Raises:
        WorkspaceError: No rights or no room, or a directory, a device, a pipe or an open file is there.
    """
    _refuse_others(path)
    with writing(path):
        make_folder(path.parent)
        _remove_left(_leftovers_at_first(path.parent.absolute()), path.name)
        with _locked_temporary(path, mode) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        sync_folder(path.parent)


@contextlib.contextmanager
def _locked_temporary(path: Path, mode: int) -> Iterator[IO[bytes]]:
    """A new ``temporary_beside`` a file, locked while it is open; goes with the block, unless it was renamed."""
    while True:
        temporary = temporary_beside(path)
        try:
            with open(temporary, "xb", opener=partial(os.open, mode=mode)) as file:
                # Another process may remove what is left between the making of the file and its lock.
                if try_flock(file.fileno()) is not False and temporary.exists():
                    yield file
                    return
        finally:
            temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Removes what killed processes left of files of these names that ``write_bytes`` was writing into a folder.

    A process holds a lock on what it writes. Where the file system has no locks, what is left goes after a day. What
    cannot be removed stays.
    """
    leftovers = _leftovers(folder)
    for name in names:
        _remove_left(leftovers, name)


def _leftovers(folder: Path) -> Mapping[str, Sequence[Path]]:
    """The temporary files in a folder by the name of the file, cut, whose place they were to take."""
    leftovers: dict[str, list[Path]] = defaultdict(list)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if match := _TEMPORARY.fullmatch(entry.name):
                leftovers[match[1]].append(Path(entry.path))
    return dict(leftovers)


# A cache may have 10,000 files: a process looks through a folder once, and not each time that it writes there.
_leftovers_at_first = lru_cache(maxsize=1024)(_leftovers)


def _remove_left(leftovers: Mapping[str, Sequence[Path]], name: str) -> None:
    """Removes the temporary files for the file of a name that are of this user, and of no process any more."""
    for temporary in leftovers.get(_cut_for_temporary(name), ()):
        with contextlib.suppress(OSError):  # it took its place, or another process is faster
            state = temporary.lstat()
            if state.st_uid != os.geteuid() or not stat.S_ISREG(state.st_mode):
                continue
            with temporary.open("r+b") as file:
                is_free = try_flock(file.fileno())
                if is_free or (is_free is None and time.time() - state.st_mtime > _STALE_S):
                    temporary.unlink()


def check_writable(path: Path) -> None:
    """Asks before long work whether ``write_bytes`` could write a file there; nothing stays on the disk.

    Raises:
        WorkspaceError: No rights or no room, or a directory, a device, a pipe or an open file is there.
    """
    with writing(path):
        _refuse_others(path)
        folder = next(folder for folder in path.absolute().parents if folder.exists())
        temporary = temporary_beside(folder / path.name)
        try:
            temporary.touch(exist_ok=False)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def is_stream(path: Path) -> bool:
    """Whether a device, a pipe or a socket is there, or an open file, such as ``/dev/stdout``: no file can take its
    place.
    """
    return (path.exists() and not path.is_file() and not path.is_dir()) or open_file(path) is not None


def open_file(path: Path) -> Path | None:
    """The open file of a process that links lead to, as ``/proc/PID/fd/1`` from ``/dev/stdout``; None: to none."""
    for link in _links(path):
        folder = os.path.realpath(link.parent)
        if link.name.isdigit() and _OPEN_FILES.fullmatch(folder):
            return Path(folder, link.name)
    return None


def _refuse_others(path: Path) -> None:
    """Refuses what is there and is no file."""
    if path.is_dir():
        raise WorkspaceError(f"cannot write {path}: it is a directory; name a file in it")
    if is_stream(path):
        raise WorkspaceError(f"cannot write {path}: it is a device, a pipe or an open file; name a file")


def link_target(path: Path) -> Path:
    """The file that symbolic links lead to: what is meant where a person names a file to write."""
    *_, last = _links(path)
    return last


def _links(path: Path) -> Iterator[Path]:
    """A path, and what symbolic links lead to from there, from one to the next.

    A link that somebody else made is none, and replaced: in a folder that all can write it would choose our file.
    """
    yield path
    for _ in range(_MOST_LINKS):
        if not path.is_symlink() or path.lstat().st_uid not in (0, os.geteuid()):
            return
        path = path.parent / path.readlink()
        yield path
