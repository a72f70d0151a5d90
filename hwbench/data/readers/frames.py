"""Folders of images below class folders; each folder of images is a video.

``train/`` and ``val/`` (or ``validation/``, ``valid/``, ``test/``) with a folder for each class, or a folder for each
class. The images of a video are taken in natural order of their names. ``frame-rates.json`` beside the class folders,
or beside ``train/``, says how many of them were taken a second (``hwbench.data.readers.frame_rates``).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from hwbench.data.images import IMAGE_ENDINGS, FrameFolder
from hwbench.data.readers.annotations import frame_rate
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.class_order import prepared_classes, without_folder
from hwbench.data.readers.directions import is_directional
from hwbench.data.readers.folders import sides, subfolders
from hwbench.data.readers.frame_rates import frame_rates, rated_root
from hwbench.data.readers.media_index import frame_folders
from hwbench.errors import InvalidFile

_DEFAULT = Fraction(30)


@readers.register("frames")
class ImageFolders:
    """A folder for each class with a folder of images for each video.

    Args:
        fps: Frames a second at which the images were taken; empty: as ``frame-rates.json`` says, and 30 where it says
            nothing.
        directional: ``yes`` where labels tell directions: clips are not flipped.
    """

    def __init__(self, fps: str = "", directional: str = "no") -> None:
        self.fps = frame_rate(fps) if fps else None
        self.directional = is_directional(directional)

    def recognises(self, path: Path) -> bool:
        """Whether the rates of its folders are told, as ``hwbench data prepare --frames`` does."""
        return rated_root(path) is not None

    def read(self, path: Path) -> Listing:
        """Videos of all class folders, sorted by class and path.

        Raises:
            InvalidFile: There are no class folders, one holds no folder of images, ``train/`` has no other side, or the
                file of the rates is damaged.
        """
        if not path.is_dir():
            raise InvalidFile(f"{path}: expected a folder with a folder for each class, got a file")
        train, val = sides(path, _holds_images)
        rates = frame_rates(path) if self.fps is None else {}
        default = self.fps or _DEFAULT
        videos = _videos(train, rates, default)
        others = _videos(val, rates, default) if val else None
        return Listing(videos, others, prepared_classes(path, videos), self.directional, without_folder(path))

    def roots(self, path: Path) -> tuple[Path, ...]:
        """The folders whose folders are the classes: the path, or its sides."""
        return tuple(filter(None, sides(path, _holds_images)))


def _videos(root: Path, rates: Mapping[Path, Fraction], default: Fraction) -> tuple[ListedVideo, ...]:
    listed: list[ListedVideo] = []
    for folder in subfolders(root):
        videos = frame_folders(folder)
        if not videos:
            raise InvalidFile(f"{folder}: expected folders of images ({' '.join(IMAGE_ENDINGS)}), found none")
        listed += [
            ListedVideo(video, folder.name, source=FrameFolder(video, rates.get(video.absolute(), default)))
            for video in videos
        ]
    if not listed:
        raise InvalidFile(f"{root}: expected a folder for each class with folders of images in it")
    return tuple(listed)


def _holds_images(path: Path) -> bool:
    return path.is_dir() and any(one.suffix.lower() in IMAGE_ENDINGS for one in path.iterdir())
