"""Folders of images below class folders; each folder of images is a video.

``train/`` and ``val/`` (or ``validation/``, ``valid/``, ``test/``) with a folder for each class, or a folder for each
class. The images of a video are taken in natural order of their names.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from hwbench.data.images import IMAGE_ENDINGS, FrameFolder
from hwbench.data.readers.annotations import frame_rate
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.folders import sides
from hwbench.data.readers.media_index import frame_folders
from hwbench.errors import InvalidFile


@readers.register("frames")
class ImageFolders:
    """A folder for each class with a folder of images for each video.

    Args:
        fps: Frames a second at which the images were taken.
    """

    def __init__(self, fps: str = "30") -> None:
        self.fps = frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Never: ``folders`` reads a path without a name."""
        return False

    def read(self, path: Path) -> Listing:
        """Videos of all class folders, sorted by class and path.

        Raises:
            InvalidFile: There are no class folders, one holds no folder of images, or ``train/`` has no other side.
        """
        if not path.is_dir():
            raise InvalidFile(f"{path}: expected a folder with a folder for each class, got a file")
        train, val = sides(path, _holds_images)
        return Listing(_videos(train, self.fps), _videos(val, self.fps) if val else None)


def _videos(root: Path, fps: Fraction) -> tuple[ListedVideo, ...]:
    listed: list[ListedVideo] = []
    for folder in sorted(sub for sub in root.iterdir() if sub.is_dir() and not sub.name.startswith(".")):
        videos = frame_folders(folder)
        if not videos:
            raise InvalidFile(f"{folder}: expected folders of images ({' '.join(IMAGE_ENDINGS)}), found none")
        listed += [ListedVideo(video, folder.name, source=FrameFolder(video, fps)) for video in videos]
    if not listed:
        raise InvalidFile(f"{root}: expected a folder for each class with folders of images in it")
    return tuple(listed)


def _holds_images(path: Path) -> bool:
    return path.is_dir() and any(one.suffix.lower() in IMAGE_ENDINGS for one in path.iterdir())
