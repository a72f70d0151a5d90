"""Cuts the power at every write of a program, and looks at what the disk may hold then.

A program runs once under a shim (``power.c``, before libc), which writes down each thing that it does to files below
a folder: created, written, renamed, removed, synced, and what it said on standard output, which is what it told as
stored. For each point between two of these there are the disks that a power cut may leave there:

* what was synced is there: bytes by ``fsync`` of the file, a name (made, renamed, removed) by ``fsync`` of its folder;
* of the rest anything may be there: all of it, none of it, the names without the bytes, the bytes without the names, or
  by chance some of it, a write torn at a sector or with zeros in the place of its bytes.

That is less than today's journaling file systems keep, and no more than POSIX promises; a rename alone is atomic. Each
disk is laid out in a folder and read by the program that normally reads it.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hwbench.errors import HwbenchError, MissingDependency

SOURCE = Path(__file__).with_name("power.c")
# A disk writes its sectors whole; a file system hands them over by pages.
SECTOR, PAGE = 512, 4096
# Disks by chance at each point, beside the four extremes.
MIXED = 3

_ROOT = 0


@dataclass(frozen=True)
class Made:
    """A file (or with ``is_folder`` a folder) was made under a name."""

    node: int
    parent: int
    name: str
    is_folder: bool


@dataclass(frozen=True)
class Renamed:
    """A file or folder got another name; what had that name before is gone."""

    node: int
    parent: int
    name: str
    old_parent: int
    old_name: str


@dataclass(frozen=True)
class Removed:
    """A name was removed."""

    parent: int
    name: str


@dataclass(frozen=True)
class Written:
    """Bytes were written into a file."""

    node: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class Resized:
    """A file was cut or extended."""

    node: int
    size: int


@dataclass(frozen=True)
class Synced:
    """A file or folder was synced."""

    node: int


@dataclass(frozen=True)
class Told:
    """The program said something on standard output."""

    text: str


Event = Made | Renamed | Removed | Written | Resized | Synced | Told
Tree = Mapping[str, bytes | None]


@dataclass(frozen=True)
class State:
    """A disk after a power cut: path below the folder -> bytes (None: a folder), and what had been told until then."""

    cut: int
    kind: str
    tree: Tree
    told: tuple[str, ...]

    def lay_out(self, folder: Path) -> None:
        """Writes the disk into an empty folder."""
        for name, data in self.tree.items():
            path = folder / name
            if data is None:
                path.mkdir()
            else:
                path.write_bytes(data)


@dataclass
class _Inodes:
    """Files and folders by number: which are folders, and what they held before the recording."""

    folders: set[int] = field(default_factory=lambda: {_ROOT})
    bytes: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, dict[str, int]] = field(default_factory=lambda: {_ROOT: {}})


@dataclass(frozen=True)
class Recording:
    """What a program did, one event after another, on top of what lay there ``before``."""

    before: _Inodes
    events: tuple[Event, ...]

    @functools.cached_property
    def _syncs(self) -> dict[int, list[int]]:
        """Points at which each file or folder was synced."""
        points: dict[int, list[int]] = {}
        for at, event in enumerate(self.events):
            if isinstance(event, Synced):
                points.setdefault(event.node, []).append(at)
        return points

    @property
    def promises(self) -> list[int]:
        """The points right after something was told."""
        return [at + 1 for at, event in enumerate(self.events) if isinstance(event, Told)]

    def told(self, cut: int) -> tuple[str, ...]:
        """The lines that were said in whole before a point."""
        text = "".join(event.text for event in self.events[:cut] if isinstance(event, Told))
        return tuple(text.split("\n")[:-1])

    def states(self, cut: int, *, mixed: int = MIXED, seed: int = 0) -> Iterator[State]:
        """The disks that a power cut before event number ``cut`` may leave: the extremes, and ``mixed`` by chance."""
        told = self.told(cut)
        for kind, names, data in (
            ("nothing that was not synced", False, False),
            ("everything", True, True),
            ("names without bytes", True, False),
            ("bytes without names", False, True),
        ):
            yield State(cut, kind, self._tree(cut, _Extreme(names, data)), told)
        for number in range(mixed):
            chance = random.Random(f"{seed}/{cut}/{number}")
            yield State(cut, f"by chance {number}", self._tree(cut, _Chance(chance)), told)

    def _tree(self, cut: int, survives: _Extreme | _Chance) -> Tree:
        names = {node: dict(entries) for node, entries in self.before.names.items()}
        contents = {node: bytearray(data) for node, data in self.before.bytes.items()}
        folders = set(self.before.folders)
        for at, event in enumerate(self.events[:cut]):
            if isinstance(event, Made):
                if event.is_folder:
                    folders.add(event.node)
                    names[event.node] = {}
                else:
                    contents[event.node] = bytearray()
                if self._durable(event.parent, at, cut) or survives.name():
                    names[event.parent][event.name] = event.node
            elif isinstance(event, Renamed):
                if self._durable(event.parent, at, cut) or survives.name():
                    _drop(names[event.old_parent], event.old_name, event.node)
                    names[event.parent][event.name] = event.node
            elif isinstance(event, Removed):
                if self._durable(event.parent, at, cut) or survives.name():
                    names[event.parent].pop(event.name, None)
            elif isinstance(event, Written):
                durable = self._durable(event.node, at, cut)
                for offset, data in [(event.offset, event.data)] if durable else survives.pieces(event):
                    _write(contents[event.node], offset, data)
            elif isinstance(event, Resized) and (self._durable(event.node, at, cut) or survives.size()):
                _resize(contents[event.node], event.size)
        tree: dict[str, bytes | None] = {}
        _walk(_ROOT, "", names, folders, contents, tree)
        return tree

    def _durable(self, node: int, at: int, cut: int) -> bool:
        """Whether a file or folder was synced between an event and a point."""
        points = self._syncs.get(node, [])
        following = bisect.bisect_right(points, at)
        return following < len(points) and points[following] < cut


@dataclass(frozen=True)
class _Extreme:
    """All or nothing of what was not synced."""

    keeps_names: bool
    keeps_bytes: bool

    def name(self) -> bool:
        return self.keeps_names

    def size(self) -> bool:
        return self.keeps_bytes

    def pieces(self, event: Written) -> list[tuple[int, bytes]]:
        return [(event.offset, event.data)] if self.keeps_bytes else []


@dataclass(frozen=True)
class _Chance:
    """Some of what was not synced."""

    chance: random.Random

    def name(self) -> bool:
        return self.chance.random() < 0.5

    def size(self) -> bool:
        return self.chance.random() < 0.5

    def pieces(self, event: Written) -> list[tuple[int, bytes]]:
        way, data = self.chance.randrange(5), event.data
        if way == 0:
            return []
        if way == 1:
            return [(event.offset, data)]
        if way == 2:  # the first sectors
            return [(event.offset, data[: self.chance.randrange(len(data) // SECTOR + 1) * SECTOR])]
        if way == 3:  # the file has its length, and zeros where nothing came
            return [(event.offset + len(data), b"")]
        pages = range(0, len(data), PAGE)
        return [(event.offset + at, data[at : at + PAGE]) for at in pages if self.size()]


def _drop(entries: dict[str, int], name: str, node: int) -> None:
    if entries.get(name) == node:
        del entries[name]


def _write(content: bytearray, offset: int, data: bytes) -> None:
    _resize(content, max(len(content), offset + len(data)))
    content[offset : offset + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _walk(
    node: int,
    prefix: str,
    names: Mapping[int, Mapping[str, int]],
    folders: set[int],
    contents: Mapping[int, bytearray],
    tree: dict[str, bytes | None],
) -> None:
    for name, child in sorted(names[node].items()):
        if child in folders:
            tree[prefix + name] = None
            _walk(child, f"{prefix}{name}/", names, folders, contents, tree)
        else:
            tree[prefix + name] = bytes(contents[child])


def build_shim(folder: Path) -> Path:
    """Compiles the shim into a folder; C and 0.3 s.

    Raises:
        MissingDependency: No C compiler, or one that cannot compile it (not Linux with glibc).
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise MissingDependency("no C compiler (cc, gcc, clang); install one: apt-get install gcc libc6-dev")
    shim = folder / "power.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(shim), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MissingDependency(f"{compiler} does not compile {SOURCE.name}: {done.stderr.strip()[-400:]}")
    return shim


def record(command: Sequence[str], root: Path, shim: Path, *, env: Mapping[str, str] | None = None) -> Recording:
    """Runs a program and gives what it did below ``root``, which stays as the program left it.

    Args:
        command: The program; what it writes on standard output is what it tells as stored.
        root: A folder; what is in it before counts as being on the disk.
        shim: From ``build_shim``.
        env: Added to the environment of the program.

    Raises:
        HwbenchError: The program failed, or did something that the shim does not see: what was recorded does not add up
            to what lies there.
    """
    before, by_inode = _snapshot(root)
    with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
        log = Path(folder, "log")
        own = {"HWBENCH_POWER_ROOT": str(root), "HWBENCH_POWER_LOG": str(log), "LD_PRELOAD": str(shim)}
        done = subprocess.run([*command], capture_output=True, env={**os.environ, **(env or {}), **own})
        if done.returncode:
            raise HwbenchError(f"{command[0]} ended with status {done.returncode}: {done.stderr.decode()[-2000:]}")
        text = log.read_bytes() if log.exists() else b""
    recording = Recording(before, tuple(_Reader(root.resolve(), before, by_inode).events(text)))
    *_, (_, whole) = ((state.kind, state.tree) for state in recording.states(len(recording.events), mixed=0)
                      if state.kind == "everything")  # fmt: skip
    present = _read_tree(root)
    wrong = [name for name in {*whole, *present} if whole.get(name, b"?") != present.get(name, b"?")]
    if wrong:
        raise HwbenchError(f"the shim did not see everything that was done to {', '.join(sorted(wrong)[:5])}")
    return recording


def python(*arguments: str) -> list[str]:
    """The command of this Python."""
    return [sys.executable, "-P", *arguments]


def _snapshot(root: Path) -> tuple[_Inodes, dict[int, int]]:
    """What lies in a folder, and the numbers here of the inodes there."""
    inodes, by_inode = _Inodes(), {root.stat().st_ino: _ROOT}
    numbers = {root: _ROOT}
    for path in sorted(root.rglob("*")):
        node = len(numbers)
        numbers[path] = by_inode[path.stat().st_ino] = node
        inodes.names[numbers[path.parent]][path.name] = node
        if path.is_dir():
            inodes.folders.add(node)
            inodes.names[node] = {}
        else:
            inodes.bytes[node] = path.read_bytes()
    return inodes, by_inode


def _read_tree(root: Path) -> Tree:
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))
    }


class _Reader:
    """Takes the shim's records apart; names become numbers, since an inode is used again after a file is gone."""

    def __init__(self, root: Path, before: _Inodes, by_inode: dict[int, int]) -> None:
        self._root = str(root)
        self._names = {node: dict(entries) for node, entries in before.names.items()}
        self._by_inode = dict(by_inode)
        self._next = max(by_inode.values()) + 1

    def events(self, text: bytes) -> Iterator[Event]:
        at = 0
        while at < len(text):
            end = text.index(b"\n", at)
            kind, inode, number, first, second = text[at:end].split()
            middle = end + 1 + int(first)
            at = middle + int(second)
            yield from self._event(kind.decode(), int(inode), int(number), text[end + 1 : middle], text[middle:at])

    def _event(self, kind: str, inode: int, number: int, one: bytes, two: bytes) -> Iterator[Event]:
        if kind == "A":
            yield Told(one.decode())
        elif kind in "CD":
            parent, name = self._place(one)
            node = self._by_inode[inode] = self._next
            self._next += 1
            self._names[parent][name] = node
            if kind == "D":
                self._names[node] = {}
            yield Made(node, parent, name, kind == "D")
        elif kind == "R":
            (old_parent, old_name), (parent, name) = self._place(one), self._place(two)
            node = self._names[old_parent].pop(old_name)
            self._names[parent][name] = node
            yield Renamed(node, parent, name, old_parent, old_name)
        elif kind == "U":
            parent, name = self._place(one)
            self._names[parent].pop(name, None)
            yield Removed(parent, name)
        elif (node_of := self._by_inode.get(inode)) is not None:
            if kind == "W":
                yield Written(node_of, number, one)
            else:
                yield Resized(node_of, number) if kind == "Z" else Synced(node_of)

    def _place(self, path: bytes) -> tuple[int, str]:
        """The folder of a path by its number, and the name in it."""
        text = os.fsdecode(path)
        if not text.startswith(f"{self._root}/"):
            raise HwbenchError(f"{text} was moved over the edge of {self._root}: that is not recorded")
        *folders, name = text.removeprefix(f"{self._root}/").split("/")
        node = _ROOT
        for folder in folders:
            node = self._names[node][folder]
        return node, name


@dataclass
class PowerCutReport:
    """What came of it: points cut, disks read (alike ones once), and per disk that did not do why, in words."""

    events: int
    cuts: int = 0
    disks: int = 0
    problems: list[str] = field(default_factory=list)


def cut_power(
    recording: Recording,
    check: Callable[[Path, tuple[str, ...]], None],
    *,
    points: int | None = None,
    mixed: int = MIXED,
    seed: int = 0,
    most: int = 10,
) -> PowerCutReport:
    """Cuts the power at every point of a recording (or at so many) and has each disk read.

    Args:
        recording: Of the program.
        check: Reads the disk that lies in a folder, given what the program had told; an exception is a finding.
        points: How many points by chance, beside those right after something was told, which are always looked at
            unless they alone are more; default: all.
        mixed: Disks by chance at each point.
        seed: Of all chance.
        most: Ends after so many findings.
    """
    report = PowerCutReport(len(recording.events))
    seen: set[bytes] = set()
    for cut in _chosen(recording, points, seed):
        report.cuts += 1
        for state in recording.states(cut, mixed=mixed, seed=seed):
            digest = hashlib.sha256(repr((sorted(state.tree.items()), state.told)).encode()).digest()
            if digest in seen:
                continue
            seen.add(digest)
            report.disks += 1
            with _ramdisk() as folder:
                state.lay_out(Path(folder))
                try:
                    check(Path(folder), state.told)
                except Exception as error:  # whatever it is, it is what this looks for
                    line = " ".join(str(error).split())[:300]
                    did = recording.events[cut - 1] if cut else "the beginning"
                    after = f"{type(did).__name__ if cut else did}"
                    report.problems.append(f"cut {cut} (after {after}), {state.kind}: {type(error).__name__}: {line}")
            if len(report.problems) >= most:
                return report
    return report


def _chosen(recording: Recording, points: int | None, seed: int) -> list[int]:
    every = range(len(recording.events) + 1)
    if points is None or points >= len(every):
        return list(every)
    chance = random.Random(seed)
    promises = recording.promises
    if len(promises) > points:
        promises = chance.sample(promises, points)
    return sorted({*promises, *chance.sample(every, points)})


def _ramdisk() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one: thousands of disks are laid out, and none is kept."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(
        prefix="hwbench-", dir=memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    )
