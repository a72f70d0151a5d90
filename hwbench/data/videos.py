"""Lists of labelled videos, read from class folders or from list files. Nothing is decoded here.

What a data path may be:

* a folder with ``train/`` and ``val/`` (or ``test/``), each holding one folder per class;
* a folder with ``train.txt`` and ``val.txt`` (or ``.csv``): lists;
* a folder holding one folder per class: a fifth of each class, chosen by the seed, is for validation;
* a list file; if it is called ``train.*`` and a ``val.*`` lies beside it that one is used, else it is split likewise.

A line of a list is ``path label``: the path relative to the list's folder, the label a whole number from 0 or a name,
of one kind in all lines. Blank lines and lines starting with ``#`` are skipped. Names are numbered alphabetically.
``path label stream=2`` reads the stream with that number, as ``ffprobe`` prints it, and not the best one of the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from hwbench.errors import InvalidFile, UnknownName

ENDINGS = (".3gp", ".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ogv", ".ts", ".webm", ".wmv")
_ENDS = (".txt", ".csv")
_PARTS = ("train", "val", "test")
_VAL_SHARE = 0.2
_STREAM = re.compile(r"stream=([0-9]{1,4})")
# Above this a number is no label but a mistake, such as a length in frames.
_MOST_CLASSES = 100_000


@dataclass(frozen=True)
class VideoList:
    """Labelled videos: ``paths[i]`` shows class ``classes[labels[i]]``; ``root`` is the folder they came from.

    ``streams`` has the numbers of streams that were named, by the index of the video; of others the best is read.
    """

    root: Path
    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    streams: Mapping[int, int] = field(default_factory=dict, hash=False)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def identity(self) -> str:
        """Digest of the relative paths, labels and named streams: tells whether a run goes on with the data it began
        with.
        """
        rows = [f"{_relative(p, self.root)}\t{label}" for p, label in zip(self.paths, self.labels)]
        for index, stream in self.streams.items():
            rows[index] += f"\tstream={stream}"
        return hashlib.sha256("\n".join((*self.classes, *rows)).encode()).hexdigest()

    def subset(self, indices: Sequence[int]) -> VideoList:
        """The videos with these indices, in this order."""
        streams = {new: self.streams[old] for new, old in enumerate(indices) if old in self.streams}
        paths = tuple(self.paths[index] for index in indices)
        labels = tuple(self.labels[index] for index in indices)
        return replace(self, paths=paths, labels=labels, streams=streams)


@dataclass(frozen=True)
class Splits:
    """Videos to train on and videos to validate on, with the same classes."""

    train: VideoList
    val: VideoList


class ListedVideo(NamedTuple):
    """A video of a folder or list: its file, its label in words, and the stream that is named (None: the best one)."""

    path: Path
    label: str
    stream: int | None = None


Listed = list[ListedVideo]


def read_splits(path: Path, *, seed: int = 0) -> Splits:
    """The two lists of a data path; see the head of this file.

    Raises:
        UnknownName: There is no such path.
        InvalidFile: No videos, a list that does not parse, or a class which only the validation part has.
    """
    if not path.exists():
        raise UnknownName(f"no data at {path}; expected 'synthetic', a folder of class folders or a list file")
    lists = _lists(path)
    parts = [read_list(file) for file in lists] or [read_folder(folder) for folder in _folders(path)]
    labels = {video.label for video in parts[0]}
    classes = _classes(labels, path) if lists else tuple(sorted(labels))
    train, val = parts if len(parts) == 2 else _split(parts[0], path, seed)
    unknown = sorted({video.label for video in val} - set(classes))
    if unknown:
        raise InvalidFile(f"{path}: class {unknown[0]!r} has videos for validation and none for training")
    root = path if path.is_dir() else path.parent
    return Splits(_listed(root, train, classes), _listed(root, val, classes))


def _lists(path: Path) -> list[Path]:
    """The list files of a data path: train and val, one for both, or none."""
    if path.is_file():
        beside = path.with_stem("val")
        return [path, beside] if path.stem == "train" and beside.is_file() else [path]
    named = {name: [path / f"{name}{end}" for end in _ENDS if (path / f"{name}{end}").is_file()] for name in _PARTS}
    return [named["train"][0], named["val"][0]] if named["train"] and named["val"] else []


def _folders(path: Path) -> list[Path]:
    """The folders of class folders of a data path: train and val (or test), or one for both."""
    train, others = path / "train", [path / name for name in _PARTS[1:] if (path / name).is_dir()]
    return [train, others[0]] if train.is_dir() and others else [path]


def read_folder(folder: Path) -> Listed:
    """Videos of class folders, sorted; files that do not end like videos are left out.

    Raises:
        InvalidFile: There are no class folders, or one holds no video.
    """
    listed: Listed = []
    for sub in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        videos = sorted(p for p in sub.rglob("*") if p.suffix.lower() in ENDINGS and not p.is_dir())
        if not videos:
            raise InvalidFile(f"{sub}: expected videos of class {sub.name!r} ({' '.join(ENDINGS)}), found none")
        listed += [ListedVideo(video, sub.name) for video in videos]
    if not listed:
        raise InvalidFile(f"{folder}: expected one folder of videos per class, or train/ and val/ with such folders")
    return listed


def read_list(file: Path) -> Listed:
    """Lines ``path label`` of a list file, with ``stream=N`` behind or not; paths are relative to the list's folder.

    Raises:
        InvalidFile: A line that does not parse (named with its number), or no line at all.
    """
    listed: Listed = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (UnicodeDecodeError, OSError) as error:
        raise InvalidFile(f"{file}: expected a text file with lines 'path label' ({error})") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        video = _listed_video(file.parent, line.strip().replace("\t", " "))
        if video is None:
            raise InvalidFile(f"{file}:{number}: expected 'path label' with a space between, got {line.strip()[:80]!r}")
        listed.append(video)
    if not listed:
        raise InvalidFile(f"{file}: expected lines 'path label', found none")
    return listed


def _listed_video(folder: Path, line: str) -> ListedVideo | None:
    """A line of a list; None where it has one word. ``stream=N`` is a label where the words before it are a file."""
    name, _, last = line.rpartition(" ")
    stream = _STREAM.fullmatch(last)
    if stream and " " in name.strip() and not (folder / name.strip()).is_file():
        name, _, label = name.strip().rpartition(" ")
        return ListedVideo(folder / name.strip(), _label(label), int(stream[1]))
    return ListedVideo(folder / name.strip(), _label(last)) if name.strip() else None


def _label(text: str) -> str:
    """A whole number without zeros in front, or the name as it is; numbers of 64 bits and more are no labels."""
    return str(int(text)) if re.fullmatch("-?[0-9]{1,18}", text) else text


def _classes(labels: set[str], path: Path) -> tuple[str, ...]:
    """Class names of a list in order. Whole numbers keep their value: labels 0 and 2 make three classes."""
    numbers = {label for label in labels if re.fullmatch("-?[0-9]{1,18}", label)}
    if not numbers:
        return tuple(sorted(labels))
    if numbers != labels:
        other = min(labels - numbers)
        raise InvalidFile(f"{path}: labels are either all whole numbers or all names, got {min(numbers)} and {other!r}")
    if not all(0 <= int(label) < _MOST_CLASSES for label in numbers):
        wrong = max(numbers, key=lambda label: abs(int(label)))
        raise InvalidFile(f"{path}: expected whole numbers from 0 as labels, got {wrong}")
    return tuple(str(i) for i in range(max(map(int, numbers)) + 1))


def _listed(root: Path, videos: Listed, classes: tuple[str, ...]) -> VideoList:
    index = {name: i for i, name in enumerate(classes)}
    streams = {i: video.stream for i, video in enumerate(videos) if video.stream is not None}
    labels = tuple(index[video.label] for video in videos)
    return VideoList(root, tuple(video.path for video in videos), labels, classes, streams)


def _split(videos: Listed, path: Path, seed: int) -> tuple[Listed, Listed]:
    """Of each class the fifth whose digests come first, at least one video where the class has two."""
    root = path if path.is_dir() else path.parent
    val: set[Path] = set()
    for name in sorted({video.label for video in videos}):
        members = [video.path for video in videos if video.label == name]
        count = max(1, round(_VAL_SHARE * len(members))) if len(members) > 1 else 0
        val |= set(sorted(members, key=lambda p: _digest(p, root, seed))[:count])
    if not val:
        raise InvalidFile(
            f"{path}: no class has two videos, so none is left to validate on; make train/ and val/ folders"
        )
    return [video for video in videos if video.path not in val], [video for video in videos if video.path in val]


def _digest(path: Path, root: Path, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{_relative(path, root)}".encode()).hexdigest()


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
