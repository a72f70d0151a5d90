"""Class folders.

* A folder with ``train/`` and ``val/`` (or ``validation/``, ``valid/``, ``test/``), each holding one folder per class;
* a folder holding one folder per class.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import ENDINGS
from hwbench.errors import InvalidFile

_VALIDATION = ("val", "validation", "valid", "test")


@readers.register("folders")
class ClassFolders:
    """A folder of videos for each class; the folder's name is the class."""

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder."""
        return path.is_dir()

    def read(self, path: Path) -> Listing:
        """Videos of all class folders, sorted by class and path.

        Raises:
            InvalidFile: There are no class folders, one holds no video, or ``train/`` has no other side.
        """
        if not path.is_dir():
            raise InvalidFile(f"{path}: expected a folder with one folder of videos per class, got a file")
        train, val = sides(path, _is_video)
        return Listing(read_folder(train), read_folder(val) if val else None)


def sides(path: Path, is_video: Callable[[Path], bool]) -> tuple[Path, Path | None]:
    """The folder with the classes to train on, and that to validate on if the data set has one.

    Args:
        path: The data set.
        is_video: Whether an entry of a folder is a video. A class may be called "train": its videos lie in it.

    Raises:
        InvalidFile: ``train/`` has no other side; its folders are no classes of their own.
    """
    train, others = path / "train", [path / name for name in _VALIDATION if (path / name).is_dir()]
    if not train.is_dir():
        return path, None
    if others:
        return train, others[0]
    folders = [sub for sub in path.iterdir() if sub.is_dir() and not sub.name.startswith(".")]
    if any(sub.is_dir() for sub in train.iterdir()) and not any(
        is_video(one) for sub in folders for one in sub.iterdir()
    ):
        raise InvalidFile(
            f"{path}: train/ without val/ ({', '.join(f'{name}/' for name in _VALIDATION[1:])}); "
            f"where no videos are set aside to validate on: --data {shlex.quote(str(train))}"
        )
    return path, None


def read_folder(folder: Path) -> tuple[ListedVideo, ...]:
    """Videos of class folders, sorted; files that do not end like videos are left out.

    Raises:
        InvalidFile: There are no class folders, or one holds no video.
    """
    listed: list[ListedVideo] = []
    for sub in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        videos = _videos_below(sub)
        if not videos:
            raise InvalidFile(f"{sub}: expected videos of class {sub.name!r} ({' '.join(ENDINGS)}), found none")
        listed += [ListedVideo(video, sub.name) for video in videos]
    if not listed:
        raise InvalidFile(f"{folder}: expected one folder of videos per class, or train/ and val/ with such folders")
    return tuple(listed)


def _videos_below(folder: Path) -> list[Path]:
    """Videos at any depth, sorted; links to folders are followed, and names that begin with a dot are none."""
    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    for root, folders, files in os.walk(folder, followlinks=True):
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
