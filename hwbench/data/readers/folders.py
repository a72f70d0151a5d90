"""Class folders.

* A folder with ``train/`` and ``val/`` (or other words of ``sides.py``), each holding one folder per class;
* a folder holding one folder per class.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.class_order import prepared_classes, without_folder
from hwbench.data.readers.directions import is_directional
from hwbench.data.readers.entries import refuse
from hwbench.data.readers.frame_rates import is_prepared
from hwbench.data.readers.media_index import ENDINGS
from hwbench.data.readers.sides import TEST, TRAIN, VAL, side_of, side_of_word
from hwbench.data.readers.sides import listed as in_words
from hwbench.errors import InvalidFile


@readers.register("folders")
class ClassFolders:
    """A folder of videos for each class; the folder's name is the class.

    Args:
        directional: ``yes`` where labels tell directions: clips are not flipped.
    """

    def __init__(self, directional: str = "no") -> None:
        self.directional = is_directional(directional)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder."""
        return path.is_dir()

    def read(self, path: Path) -> Listing:
        """Videos of all class folders, sorted by class and path; a folder without one is a fault.

        Raises:
            InvalidFile: There are no class folders, none holds a video, one cannot be read, or ``train/`` has no other
                side.
        """
        if not path.is_dir():
            raise InvalidFile(f"{path}: expected a folder with one folder of videos per class, got a file")
        train, val = sides(path, _is_video)
        videos, fault = _classes(train)
        classes = prepared_classes(path, videos)
        if val is None:
            return Listing(videos, None, classes, self.directional, without_folder(path), fault)
        to_validate, more = _classes(val)
        notes = (*_left_out(path, train, val), *without_folder(path))
        return Listing(videos, to_validate, classes, self.directional, notes, fault or more)

    def roots(self, path: Path) -> tuple[Path, ...]:
        """The folders whose folders are the classes: the path, or its sides."""
        return tuple(filter(None, sides(path, _is_video)))


def sides(path: Path, is_video: Callable[[Path], bool]) -> tuple[Path, Path | None]:
    """The folder with the classes to train on, and that to validate on if the data set has one.

    A folder is a side where all of its name is a word of one, such as ``Train`` or ``validation``; and, where that
    holds for all folders, where one of its words is, as in ``train_256``.

    Args:
        path: The data set.
        is_video: Whether an entry of a folder is a video. A class may be called "train": its videos lie in it.

    Raises:
        InvalidFile: ``train/`` has no other side, a side has two folders, or all folders are sides and none is to be
            trained on: they are no classes of their own.
    """
    folders = subfolders(path)
    whole, by_words = _by_side(folders, side_of_word), _by_side(folders, side_of)
    if not by_words:
        return path, None
    pair = None if _are_classes(whole, is_video) else _pair(path, whole)
    if pair is None and "" not in by_words and not any(_is_class(sub, is_video) for sub in folders):
        pair = _pair(path, by_words)
    if pair is None:
        _check_alone(path, whole, is_video)
    return pair or (path, None)


def _by_side(folders: Sequence[Path], side: Callable[[str], str]) -> dict[str, list[Path]]:
    """Folders by side; under an empty name those of none."""
    grouped: dict[str, list[Path]] = {}
    for folder in folders:
        grouped.setdefault(side(folder.name), []).append(folder)
    return grouped if grouped.keys() - {""} else {}


def _pair(path: Path, by_side: Mapping[str, list[Path]]) -> tuple[Path, Path] | None:
    """The sides to train on and to validate on, where both are there."""
    train, val = by_side.get(TRAIN, []), by_side.get(VAL) or by_side.get(TEST, [])
    if not train or not val:
        return None
    for folders in (train, val):
        if len(folders) > 1:
            names = in_words([f"{folder.name}/" for folder in folders])
            raise InvalidFile(f"{path}: expected one folder for each side, got {names} for one of them")
    return train[0], val[0]


def _are_classes(by_side: Mapping[str, list[Path]], is_video: Callable[[Path], bool]) -> bool:
    """Whether folders that are called like sides are classes as those beside them are."""
    return all(any(_is_class(folder, is_video) for folder in by_side.get(side, ())) for side in ("", TRAIN))


def _is_class(folder: Path, is_video: Callable[[Path], bool]) -> bool:
    """Whether videos lie in a folder and no folders of them."""
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    return any(map(is_video, entries)) and not any(entry.is_dir() and not is_video(entry) for entry in entries)


def _check_alone(path: Path, by_side: Mapping[str, list[Path]], is_video: Callable[[Path], bool]) -> None:
    """Refuses one side without the other: its folders are no classes of their own."""
    train = by_side.get(TRAIN, [])
    if not by_side or not (train or "" not in by_side):
        return
    folders = [folder for folders in by_side.values() for folder in folders]
    alone = train or folders
    in_classes = any(subfolders(folder) for folder in alone)
    if not in_classes or any(is_video(one) for sub in folders for one in sub.iterdir()):
        return
    if train:
        raise InvalidFile(
            f"{path}: {train[0].name}/ without val/ (valid/, validation/, test/, ...); "
            f"where no videos are set aside to validate on: --data {shlex.quote(str(train[0]))}"
        )
    names = in_words([f"{folder.name}/" for folder in alone])
    raise InvalidFile(f"{path}: {names} without train/; to train on one of them: --data {shlex.quote(str(alone[0]))}")


def _left_out(path: Path, train: Path, val: Path) -> tuple[str, ...]:
    """A note about folders with videos beside the sides of a data set; ``test`` is known to be left out."""
    beside = [sub for sub in subfolders(path) if sub not in (train, val) and side_of(sub.name) != TEST]
    names = [f"{sub.name}/" for sub in beside if _videos_below(sub)]
    return (f"{path}: {in_words(names)} left out beside {train.name}/ and {val.name}/",) if names else ()


def subfolders(path: Path) -> list[Path]:
    """Folders in a folder, sorted, but for hidden ones and those that ``hwbench data prepare`` made."""
    folders = (sub for sub in path.iterdir() if sub.is_dir() and not sub.name.startswith("."))
    return sorted(sub for sub in folders if not is_prepared(sub))


def read_folder(folder: Path) -> tuple[ListedVideo, ...]:
    """Videos of class folders, sorted; files that do not end like videos are left out.

    Raises:
        InvalidFile: There are no class folders, none holds a video, or one cannot be read.
    """
    return _classes(folder)[0]


def _classes(folder: Path) -> tuple[tuple[ListedVideo, ...], str]:
    """The videos of class folders, and what is wrong with the first folder that holds none; empty: all hold some."""
    listed: list[ListedVideo] = []
    fault = ""
    for sub in subfolders(folder):
        videos = _videos_below(sub)
        listed += [ListedVideo(video, sub.name) for video in videos]
        if not videos and not fault:
            fault = (
                f"{sub}: expected videos of class {sub.name!r} ({' '.join(ENDINGS)}), found none; put some there, or "
                "remove the folder"
            )
    if not listed:
        raise InvalidFile(
            fault or f"{folder}: expected one folder of videos per class, or train/ and val/ with such folders"
        )
    return tuple(listed), fault


def _videos_below(folder: Path) -> list[Path]:
    """Videos at any depth, sorted; links to folders are followed, and names that begin with a dot are none.

    Raises:
        InvalidFile: A folder cannot be read.
    """
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    for root, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        status = os.stat(root)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [path for name in files if not name.startswith(".") and _is_video(path := Path(root, name))]
    return sorted(found)


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.is_dir()
