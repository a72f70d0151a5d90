"""Files on a remote device: sent once by their content, checked there, and pruned before they fill it.

Under the work folder (``work_folder.py``) lie ``files`` (by sha256, kept between sessions), ``run`` (records of running
commands) and ``tmp/CLIENT`` (files that commands write, and files on their way). A file counts as being there when its
size and sha256 were found there since the connection was made; only then is it used.

What a device says is not believed further than it must be: a file that it sends has a greatest size that we name.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from hwbench.devices.base import MOST_PULL_BYTES, Address, CommandResult
from hwbench.devices.device_text import number
from hwbench.devices.link import Link
from hwbench.devices.supervisor import plain
from hwbench.devices.work_folder import CLEAR, FREE, HOLD_S, LIST, PREPARE, REFRESH, REFRESH_S
from hwbench.errors import DeviceError, DeviceLost, InvalidValue, WorkspaceError
from hwbench.printable import printable
from hwbench.workspace import temporary_beside, writing

# What is kept on a device between sessions. A campaign's models are some hundred MB; a phone has some GB free.
MOST_BYTES = 2 << 30
# What pruning leaves of it, so that the next file does not prune again.
LEAVE = 0.75
# A file is hashed on the device within SCRIPT_S and its size by this; a slow card reads 10 MB/s.
HASH_BYTES_PER_S = 5e6
SCRIPT_S = 60.0

_DIGEST = r"""
digest() {
  if command -v sha256sum >/dev/null; then sha256sum < "$1"
  elif command -v openssl >/dev/null; then openssl dgst -sha256 < "$1"
  elif command -v shasum >/dev/null; then shasum -a 256 < "$1"
  fi
}
"""

# Arguments: where to write that we use it, its name in files; folder, a folder to make where something is missing, then
# name, size, digest and mode of each file.
_SAME = (
    _DIGEST
    + r"""
# First, so that no other client removes what was found.
{ echo "$2" >> "$1"; } 2>/dev/null
shift 2
folder=$1 part=$2
shift 2
missing() { mkdir "$part" && exit 3; exit 1; }
for name; do touch "$folder" 2>/dev/null; break; done
while [ $# -gt 0 ]; do
  file=$folder/$1
  [ -f "$file" ] && [ $(wc -c < "$file") = "$2" ] || missing
  case $(digest "$file") in *"$3"*) ;; *) missing ;; esac
  [ "$4" = 600 ] || chmod "$4" "$file"
  touch "$file" 2>/dev/null
  shift 4
done
exit 0
"""
)

# Arguments: folder on its way, what of it goes where, then as above. Status 4: something arrived damaged.
_KEEP = (
    _DIGEST
    + r"""
part=$1 from=$2 place=$3
shift 3
while [ $# -gt 0 ]; do
  file=$part/$1
  [ -f "$file" ] && [ $(wc -c < "$file") = "$2" ] || exit 4
  case $(digest "$file") in ""|*"$3"*) ;; *) exit 4 ;; esac
  chmod "$4" "$file" || exit 1
  shift 4
done
mkdir -p "${place%/*}" && rm -rf "$place" && mv -f "$from" "$place" && rm -rf "$part"
"""
)

# Argument: a file. Prints size and digest of a regular file that can be read.
_LOOK = (
    _DIGEST
    + r"""
[ -f "$1" ] || exit 3
[ -r "$1" ] || exit 4
wc -c < "$1"
digest "$1"
exit 0
"""
)

# Arguments: folder, number of blocks of 4 KiB. Says what is in the way of writing so much there.
_TRY = r"""
mkdir -p "$1" && dd if=/dev/zero of="$1/try" bs=4096 count="$2"
status=$?
rm -f "$1/try"
exit $status
"""

# Arguments: the folder of files, and names in it.
_REMOVE = 'cd "$1" && shift && rm -rf "$@"'

_REASONS = {
    "No space left": "no space is left",
    "quota exceeded": "the disk quota is used up",
    "Read-only file system": "the file system is read-only",
    "Permission denied": "permission is denied",
    "Operation not permitted": "permission is denied",
    "Not a directory": "a part of the path is a file",
    "File exists": "a part of the path is a file",
}
_FULL = ("no space is left", "the disk quota is used up")
# Why a work folder is not used, by the word of PREPARE, which may have a name with it.
_REFUSALS = {
    "link": "it is a symbolic link, and might lead anywhere",
    "owner": "the folder belongs to another user",
    "foreign": "it holds {0}, which is not of hwbench, and hwbench removes old files from its folder",
    "shared": "it is a folder that others use, too",
    "open": "other users of the device may write to it",
}
_REFUSAL = re.compile(rf"hwbench: ({'|'.join(_REFUSALS)})\b ?(.*)")
# Names that pruning may remove: they are ours, and no shell and no option can be made of them.
_KEPT = re.compile(r"[0-9a-f]{64}(\.[A-Za-z0-9_]{1,32})?")
# Of numbers that a device says, so many digits are read as Python can make of them what is meant.
_SIZE_AND_DIGEST = re.compile(r"\s*([0-9]{1,18})(?![0-9])\s*(?:.*?([0-9a-f]{64}).*)?", re.DOTALL)


class Script(Protocol):
    """Runs a script of ours on the device."""

    def __call__(self, text: str, *arguments: str, timeout_s: float = SCRIPT_S) -> CommandResult: ...


class _File(NamedTuple):
    """A file here, as it is to lie there."""

    source: Path
    name: str
    size: int
    digest: str
    mode: str

    @property
    def arguments(self) -> tuple[str, str, str, str]:
        return self.name, str(self.size), self.digest, self.mode


class Depot:
    """The files of one client on one device.

    Args:
        address: Says the device's name, for messages, and its work folder.
        owner: The client's name there: letters and digits.
        link: Carries files.
        script: Runs shell scripts there.
        most_bytes: What ``files`` may hold; beyond that the least recently used are removed.
    """

    def __init__(
        self, address: Address, owner: str, link: Link, script: Script, *, most_bytes: int = MOST_BYTES
    ) -> None:
        self._address = address
        self._owner = owner
        self._link = link
        self._script = script
        self._most_bytes = most_bytes
        self._work: str | None = None
        self._begun: str | None = None  # the work folder that holds files of ours, also from before a connection ended
        self._signed = 0.0
        self._there: dict[tuple[str, str], str] = {}  # name in files, mode -> path
        self._digests: dict[tuple[str, int, int, int], str] = {}
        self._held_bytes: int | None = None
        self._count = 0

    def prepare(self) -> str:
        """Makes the work folder, or says there that we still use it; returns its absolute path."""
        silent_s = time.monotonic() - self._signed
        if self._work is not None and silent_s > REFRESH_S:
            if silent_s > HOLD_S / 2:
                self._there.clear()
            if self._script(REFRESH, self._work, self._owner).ok:
                self._signed = time.monotonic()
            else:
                self.forget()
        if self._work is None:
            self._signed = time.monotonic()
            result = self._script(PREPARE, self._address.work_dir, self._owner)
            if not result.ok:
                raise self._refused(self._address.work_dir, result.stderr)
            self._work = self._begun = _real_path(result.stdout, self._address)
        return self._work

    def forget(self) -> None:
        """After the connection ended: nothing is known of what lies there."""
        self._work = self._held_bytes = None
        self._there.clear()

    def temporary(self, name: str) -> str:
        """See ``Transport.temporary``."""
        return f"{self.prepare()}/tmp/{self._owner}/{safe_name(name)}"

    def clear(self) -> None:
        """Removes this client's temporary files."""
        if self._begun is not None:
            self._script(CLEAR, self._begun, self._owner)

    def text(self, content: str) -> str:
        """Brings a text there, for a command that removes it; returns its path."""
        self._count += 1
        path = self.temporary(f"text.{self._count}")
        with tempfile.NamedTemporaryFile() as file:
            file.write(content.encode())
            file.flush()
            self._put(Path(file.name), path, len(content))
        return path

    def push(self, source: Path) -> str:
        """See ``Transport.push``."""
        file = self._file(source)
        name = file.digest + re.sub(r"[^A-Za-z0-9_.]", "_", source.suffix)[:33]
        return self._kept(name, [file._replace(name=name)], folder=False)

    def push_all(self, sources: Sequence[Path]) -> str:
        """See ``Transport.push_all``."""
        files = sorted((self._file(source) for source in sources), key=lambda file: file.name)
        if len({file.name for file in files}) < len(files):
            raise InvalidValue(f"expected different file names, got {[file.name for file in files]}")
        content = "".join(f"{file.digest} {file.mode} {file.name}\0" for file in files)
        return self._kept(f"{hashlib.sha256(content.encode()).hexdigest()}.d", files, folder=True)

    def pull(self, source: str, target: Path, *, most_bytes: int = MOST_PULL_BYTES) -> None:
        """See ``Transport.pull``."""
        part = temporary_beside(target)
        for _ in range(2):
            size, digest = self._look(source, most_bytes)
            if size > most_bytes:
                raise DeviceError(
                    f"device {self._address.name!r}: {printable(source)} has {size} bytes there; expected at most "
                    f"{most_bytes}, so it is not fetched; is it the file that is meant?"
                )
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    self._link.get(source, part, size)
                    if part.stat().st_size == size and digest in ("", _digest(part)):
                        os.replace(part, target)
                        return
                finally:
                    part.unlink(missing_ok=True)
        raise DeviceError(f"device {self._address.name!r}: {source} changes while it is fetched, or arrives damaged")

    def _look(self, source: str, most_bytes: int) -> tuple[int, str]:
        result = self._script(_LOOK, source, timeout_s=SCRIPT_S + most_bytes / HASH_BYTES_PER_S)
        if result.status == 3:
            raise DeviceError(f"device {self._address.name!r} has no file {source}")
        found = _SIZE_AND_DIGEST.fullmatch(result.stdout)
        if not result.ok or found is None:
            raise DeviceError(f"device {self._address.name!r}: {source} cannot be read: {_said(result)}")
        return int(found[1]), found[2] or ""

    def _file(self, source: Path) -> _File:
        try:
            stat = source.stat()
            key = (str(source), stat.st_size, stat.st_mtime_ns, stat.st_ino)
            if key not in self._digests:
                self._digests[key] = _digest(source)
        except OSError as error:
            reason = f"cannot read {source}; build it again: run the same command once more"
            raise WorkspaceError(reason) from error
        mode = "700" if os.access(source, os.X_OK) else "600"
        return _File(source, source.name, stat.st_size, self._digests[key], mode)

    def _kept(self, name: str, files: Sequence[_File], *, folder: bool) -> str:
        """The path of files in ``files``, where they are brought unless they are there."""
        work = self.prepare()
        key = name, "".join(file.mode for file in files)
        if key not in self._there:
            place = f"{work}/files/{name}"
            self._count += 1
            part = f"{work}/tmp/{self._owner}/part.{self._count}"
            where = place if folder else os.path.dirname(place)
            arguments = [argument for file in files for argument in file.arguments]
            limit_s = SCRIPT_S + self._hash_s(files)
            uses = f"{work}/live/{self._owner}.uses"
            look = _SAME, uses, name, where, part, *arguments
            result = self._script(*look, timeout_s=limit_s)
            if result.status not in (0, 3) and self._freed(self._refused(part, result.stderr)):
                result = self._script(*look, timeout_s=limit_s)
            if result.status == 3:
                self._make_room(sum(file.size for file in files))
                source = part if folder else f"{part}/{name}"
                self._bring(files, part, [_KEEP, part, source, place, *arguments], limit_s)
            elif not result.ok:
                raise self._refused(part, result.stderr)
            self._there[key] = place
        return self._there[key]

    def _bring(self, files: Sequence[_File], part: str, keep: Sequence[str], limit_s: float) -> None:
        # What arrives damaged is sent a second time.
        for _ in range(2):
            for file in files:
                self._put(file.source, f"{part}/{file.name}", file.size)
            result = self._script(*keep, timeout_s=limit_s)
            if result.ok:
                return
            if result.status != 4:
                raise self._refused(keep[3], result.stderr)
        names = ", ".join(str(file.source) for file in files)
        raise DeviceError(
            f"device {self._address.name!r}: {names}: arrived damaged twice; look at the cable or the disk"
        )

    def _put(self, source: Path, target: str, size: int) -> None:
        """Sends a file; where it is refused, finds out why, and makes room once if it is that."""
        try:
            self._link.put(source, target)
        except DeviceLost:
            raise
        except DeviceError as error:
            refused = self._why(target, size, error)
            if not self._freed(refused):
                raise refused from error
            try:
                self._link.put(source, target)
            except DeviceLost:
                raise
            except DeviceError as again:
                raise self._why(target, size, again) from again

    def _why(self, target: str, size: int, error: DeviceError) -> DeviceError:
        """A link often knows only that a file was refused; the shell there says why."""
        folder = os.path.dirname(target)
        self._script('rm -f "$1"', target)
        result = self._script(_TRY, folder, str(size // 4096 + 1), timeout_s=SCRIPT_S + size / HASH_BYTES_PER_S)
        return self._refused(target, result.stderr if not result.ok else str(error))

    def _refused(self, path: str, said: str) -> DeviceError:
        """An error of the operating system or of ours there, as a person needs it."""
        if refusal := _REFUSAL.search(said):
            return DeviceError(self._mended(path, refusal[1], printable(refusal[2], 200)))
        reason = next((ours for theirs, ours in _REASONS.items() if theirs in said), None)
        device = f"device {self._address.name!r}"
        if reason is None:
            return DeviceError(f"{device}: {path} cannot be written: {plain(said[-300:].encode(errors='replace'))}")
        mend = f"name another folder there: work_dir = ... in {self._file_of_device}"
        if reason in _FULL:
            work = self._work or self._address.work_dir
            mend = f"free some there, for example: rm -r {work}/files {work}/tmp; or {mend}"
        return DeviceError(f"{device}: {path} cannot be written: {reason}; {mend}")

    def _mended(self, path: str, word: str, name: str) -> str:
        """Why a folder is not used as work folder, and what to write in its place."""
        own = f"{path.rstrip('/')}/hwbench"
        better = {"link": name or "...", "foreign": own, "shared": own}.get(word, "...")
        return (
            f"device {self._address.name!r}: {path} cannot be used as work folder: {_REFUSALS[word].format(name)}; "
            f"name a folder of its own: work_dir = {json.dumps(better, ensure_ascii=False)} in {self._file_of_device}"
        )

    @property
    def _file_of_device(self) -> str:
        return f"profiles/{self._address.name}/device.toml"

    def _make_room(self, size: int) -> None:
        """Keeps ``files`` below its limit, before so many bytes are added."""
        if self._held_bytes is None:
            self._held_bytes = sum(self._list().values())
        if self._held_bytes + size > self._most_bytes:
            self._prune(LEAVE * self._most_bytes - size)
        self._held_bytes += size

    def _list(self) -> dict[str, int]:
        """Bytes by name, the last used first."""
        return self._list_and_held()[0]

    def _list_and_held(self) -> tuple[dict[str, int], frozenset[str]]:
        """As ``_list``, and the names that other clients use now."""
        said = self._script(LIST, self.prepare(), self._owner).stdout
        names, _, more = said.partition("/\n")
        sizes, _, held = more.partition("/\n")
        rows = (line.split() for line in sizes.splitlines())
        known = {row[1]: number(row[0]) * 1024 for row in rows if len(row) == 2}
        ours = {name: known[name] for name in names.splitlines() if name in known and _KEPT.fullmatch(name)}
        return ours, frozenset(held.splitlines())

    def _prune(self, leave_bytes: float) -> int:
        """Removes files that nobody uses: we since the connection was made, others lately; returns how many bytes."""
        files, by_others = self._list_and_held()
        # By digest: what was built there of a file lies beside it, under the same one.
        used = {name.partition(".")[0] for name in (*by_others, *(name for name, _ in self._there))}
        held, removed = 0, {}
        for name, size in files.items():
            held += size
            if held > leave_bytes and name.partition(".")[0] not in used:
                removed[name] = size
        if removed:
            self._script(_REMOVE, f"{self._work}/files", *removed)
        self._held_bytes = held - sum(removed.values())
        return sum(removed.values())

    def _freed(self, refused: DeviceError) -> bool:
        """Whether something was refused for want of room, and nobody needed some of what lies there: it is removed."""
        if not any(reason in str(refused) for reason in _FULL):
            return False
        broken_off = number(self._script(FREE, self.prepare(), self._owner).stdout)
        return self._prune(0) + broken_off > 0

    def _hash_s(self, files: Sequence[_File]) -> float:
        """What a device may need to hash so much."""
        return sum(file.size for file in files) / HASH_BYTES_PER_S


def _real_path(said: str, address: Address) -> str:
    """The path of the work folder, as the device says it."""
    path = said.removesuffix("\n")
    if not path.startswith("/") or not path.isprintable() or len(path) > 4096:
        raise DeviceError(
            f"device {address.name!r}: expected the path of its work folder, got {plain(said.encode()[:300])}"
        )
    return path


def safe_name(name: str) -> str:
    """A file name that is no path, no option and hidden to no one; it ends as ``name`` does where that is harmless."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[-100:].lstrip(".-")
    return safe or "file"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _said(result: CommandResult) -> str:
    return plain((result.stderr or result.stdout)[-300:].encode(errors="replace"))
