"""Lists of labelled videos, read from class folders or from list files. Nothing is decoded here.

What a data path may be:

* a folder with ``train/`` and ``val/`` (or ``test/``), each holding one folder per class;
* a folder with ``train.txt`` and ``val.txt`` (or ``.csv``): lists;
* a folder holding one folder per class: a fifth of each class, chosen by the seed, is for validation;
* a list file; if it is called ``train.*`` and a ``val.*`` lies beside it that one is used, else it is split likewise.

A line of a list is ``path label``: the path relative to the list's folder, the label a whole number from 0 or a name,
of one kind in all lines. Blank lines and lines starting with ``#`` are skipped. Names are numbered alphabetically.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from hwbench.errors import InvalidFile, UnknownName

ENDINGS = (".3gp", ".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ogv", ".ts", ".webm", ".wmv")
_ENDS = (".txt", ".csv")
_PARTS = ("train", "val", "test")
_VAL_SHARE = 0.2
# Above this a number is no label but a mistake, such as a length in frames.
_MOST_CLASSES = 100_000


@dataclass(frozen=True)
class VideoList:
    """Labelled videos: ``paths[i]`` shows class ``classes[labels[i]]``; ``root`` is the folder they came from."""

    root: Path
    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def identity(self) -> str:
        """Digest of the relative paths and labels: tells whether a run goes on with the data it began with."""
        rows = (f"{_relative(p, self.root)}\t{label}" for p, label in zip(self.paths, self.labels))
        return hashlib.sha256("\n".join((*self.classes, *rows)).encode()).hexdigest()


@dataclass(frozen=True)
class Splits:
    """Videos to train on and videos to validate on, with the same classes."""

    train: VideoList
    val: VideoList


Pairs = list[tuple[Path, str]]


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
    labels = {label for _, label in parts[0]}
    classes = _classes(labels, path) if lists else tuple(sorted(labels))
    train, val = parts if len(parts) == 2 else _split(parts[0], path, seed)
    unknown = sorted({label for _, label in val} - set(classes))
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


def read_folder(folder: Path) -> Pairs:
    """Videos of class folders as (path, class name), sorted; files that do not end like videos are left out.

    Raises:
        InvalidFile: There are no class folders, or one holds no video.
    """
    pairs: Pairs = []
    for sub in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        videos = sorted(p for p in sub.rglob("*") if p.suffix.lower() in ENDINGS and not p.is_dir())
        if not videos:
            raise InvalidFile(f"{sub}: expected videos of class {sub.name!r} ({' '.join(ENDINGS)}), found none")
        pairs += [(video, sub.name) for video in videos]
    if not pairs:
        raise InvalidFile(f"{folder}: expected one folder of videos per class, or train/ and val/ with such folders")
    return pairs


def read_list(file: Path) -> Pairs:
    """Lines ``path label`` of a list file as (path, label); paths are relative to the list's folder.

    Raises:
        InvalidFile: A line that does not parse (named with its number), or no line at all.
    """
    pairs: Pairs = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (UnicodeDecodeError, OSError) as error:
        raise InvalidFile(f"{file}: expected a text file with lines 'path label' ({error})") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, label = line.strip().replace("\t", " ").rpartition(" ")
        if not name.strip():
            raise InvalidFile(f"{file}:{number}: expected 'path label' with a space between, got {line.strip()[:80]!r}")
        pairs.append((file.parent / name.strip(), _label(label)))
    if not pairs:
        raise InvalidFile(f"{file}: expected lines 'path label', found none")
    return pairs


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


def _listed(root: Path, pairs: Pairs, classes: tuple[str, ...]) -> VideoList:
    index = {name: i for i, name in enumerate(classes)}
    return VideoList(root, tuple(p for p, _ in pairs), tuple(index[label] for _, label in pairs), classes)


def _split(pairs: Pairs, path: Path, seed: int) -> tuple[Pairs, Pairs]:
    """Of each class the fifth whose digests come first, at least one video where the class has two."""
    root = path if path.is_dir() else path.parent
    val: set[Path] = set()
    for name in sorted({label for _, label in pairs}):
        members = [p for p, label in pairs if label == name]
        count = max(1, round(_VAL_SHARE * len(members))) if len(members) > 1 else 0
        val |= set(sorted(members, key=lambda p: _digest(p, root, seed))[:count])
    if not val:
        raise InvalidFile(
            f"{path}: no class has two videos, so none is left to validate on; make train/ and val/ folders"
        )
    return [pair for pair in pairs if pair[0] not in val], [pair for pair in pairs if pair[0] in val]


def _digest(path: Path, root: Path, seed: int) -> str:
    return hashlib.sha256(f"{seed}:{_relative(path, root)}".encode()).hexdigest()


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
