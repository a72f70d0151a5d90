"""Class folders.

* A folder with ``train/`` and ``val/`` (or ``test/``), each holding one folder per class;
* a folder holding one folder per class.
"""

from __future__ import annotations

from pathlib import Path

from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import ENDINGS
from hwbench.errors import InvalidFile

_VALIDATION = ("val", "test")


@readers.register("folders")
class ClassFolders:
    """A folder of videos for each class; the folder's name is the class."""

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder."""
        return path.is_dir()

    def read(self, path: Path) -> Listing:
        """Videos of all class folders, sorted by class and path.

        Raises:
            InvalidFile: There are no class folders, or one holds no video.
        """
        if not path.is_dir():
            raise InvalidFile(f"{path}: expected a folder with one folder of videos per class, got a file")
        train, others = path / "train", [path / name for name in _VALIDATION if (path / name).is_dir()]
        if train.is_dir() and others:
            return Listing(read_folder(train), read_folder(others[0]))
        return Listing(read_folder(path))


def read_folder(folder: Path) -> tuple[ListedVideo, ...]:
    """Videos of class folders, sorted; files that do not end like videos are left out.

    Raises:
        InvalidFile: There are no class folders, or one holds no video.
    """
    listed: list[ListedVideo] = []
    for sub in sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")):
        videos = sorted(p for p in sub.rglob("*") if p.suffix.lower() in ENDINGS and not p.is_dir())
        if not videos:
            raise InvalidFile(f"{sub}: expected videos of class {sub.name!r} ({' '.join(ENDINGS)}), found none")
        listed += [ListedVideo(video, sub.name) for video in videos]
    if not listed:
        raise InvalidFile(f"{folder}: expected one folder of videos per class, or train/ and val/ with such folders")
    return tuple(listed)
