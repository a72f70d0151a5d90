"""Which videos lie below a folder: files, and folders of images, by their names."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from fractions import Fraction
from pathlib import Path

from hwbench.data.images import IMAGE_ENDINGS, FrameFolder, is_flow
from hwbench.data.readers.base import ListedVideo, Part
from hwbench.data.readers.entries import refuse
from hwbench.data.readers.frame_rates import PREPARED_MARKS
from hwbench.errors import InvalidFile

ENDINGS = (".3gp", ".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ogv", ".ts", ".webm", ".wmv")
# A folder that begins with so many images and nothing else holds the frames of a video, unless they are small pictures
# beside videos of their names; the rest is not looked at.
_ENOUGH_IMAGES = 8


class MediaIndex:
    """Videos below a folder by name: that of a file without its ending, or that of a folder of images.

    Folders that hold images of optical flow alone are no videos. Folders below ``root`` that ``hwbench data prepare``
    made hold copies: a copy counts where no original has its name, and ``notes`` counts those that ``listed`` gave.

    Lists of data sets name more videos than anybody can still download: ``listed`` leaves out those that are not there,
    and ``notes`` counts them.

    Args:
        root: The folder; links are followed.
        fps: Frames a second of folders of images.

    Raises:
        InvalidFile: A folder cannot be read.
    """

    def __init__(self, root: Path, fps: Fraction = Fraction(30)) -> None:
        self._root, self._fps = root, fps
        self._paths: dict[str, list[Path]] = {}
        self._folders: set[Path] = set()
        self._there: set[str] = set()
        self._missing: dict[str, None] = {}
        self._empty: list[str] = []
        self._copied: dict[Path, None] = {}
        self._copies: set[Path] = set()
        prepared: list[Path] = []
        self._add(_media(root, prepared))
        originals = frozenset(self._paths)
        for folder in prepared:
            self._copies.update(self._add(_media(folder), but=originals))

    def _add(self, media: Iterable[tuple[Path, bool]], but: Container[str] = ()) -> list[Path]:
        """Adds videos, but for those with certain names; returns their paths."""
        added = []
        for path, is_folder in media:
            name = path.name if is_folder else path.stem
            if name not in but:
                self._paths.setdefault(name, []).append(path)
                added.append(path)
                if is_folder:
                    self._folders.add(path)
        return added

    def listed(
        self,
        name: str | tuple[str, ...],
        label: str | tuple[str, ...],
        *,
        folder: str = "",
        part: Part | None = None,
        group: str = "",
        row: str = "",
        fps: Fraction | None = None,
    ) -> list[ListedVideo]:
        """The video of that name as a list of one; of none where it is not there.

        Args:
            name: Without an ending; the first of several names that is there.
            label: Its class or classes.
            folder: Of several videos of that name, the one in the folder called so is taken. A file goes before a
                folder of images.
            part: What the label is about.
            group: See ``ListedVideo``.
            row: Where it is listed.
            fps: Of a folder of images; None: as all.
        """
        names = (name,) if isinstance(name, str) else name
        there = next((one for one in names if one in self._paths), None)
        if there is None:
            self._missing[names[0]] = None
            return []
        self._there.add(there)
        paths = self._paths[there]
        paths = [one for one in paths if folder in one.parent.parts] or paths
        path = next((one for one in paths if one not in self._folders), paths[0])
        if path in self._copies:
            self._copied[path] = None
        source = FrameFolder(path, fps or self._fps) if path in self._folders else None
        return [ListedVideo(path, label, source=source, part=part, group=group, row=row)]

    def part(self, start_s: Fraction, end_s: Fraction, row: str) -> Part | None:
        """A part of a video; None, and counted, where it ends before it begins, as some of official files do."""
        if start_s < end_s:
            return Part(start_s, end_s)
        self._empty.append(row)
        return None

    def notes(self) -> tuple[str, ...]:
        """A line each about videos that are not there, parts that end before they begin, and copies without originals.

        Raises:
            InvalidFile: None of them is there.
        """
        notes = []
        if self._empty:
            notes.append(f"{self._empty[0]}: ends before it begins; {len(self._empty)} such labels are left out")
        if self._copied:
            notes.append(
                f"{self._root}: {len(self._copied)} listed videos are copies that hwbench data prepare made, such as "
                f"{next(iter(self._copied))}; their originals are not there"
            )
        if not self._missing:
            return tuple(notes)
        first, count = next(iter(self._missing)), len(self._missing)
        if not self._there:
            raise InvalidFile(
                f"{self._root}: none of the {count} listed videos is there, as a file ({' '.join(ENDINGS)}) or a "
                f"folder of images; the first is {first!r}"
            )
        total = count + len(self._there)
        notes.append(f"{self._root}: {count} of {total} listed videos are not there, such as {first!r}")
        return tuple(notes)


def frame_folders(root: Path) -> list[Path]:
    """Folders of images below a folder, sorted; InvalidFile where a folder cannot be read."""
    return sorted(path for path, is_folder in _media(root) if is_folder)


def _media(root: Path, prepared: list[Path] | None = None) -> Iterator[tuple[Path, bool]]:
    """Videos below a folder, sorted within each, with whether they are folders of images.

    Args:
        root: The folder.
        prepared: Gets the folders below it that ``hwbench data prepare`` made, which are not entered.

    Raises:
        InvalidFile: A folder cannot be read.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            status = folder.stat()
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            content = _content(folder, whole=folder == root)
        except PermissionError as error:
            refuse(error)
        if content is None:
            if prepared is not None:
                prepared.append(folder)
            continue
        folders, videos, images = content
        waiting += [folder / name for name in sorted(folders, reverse=True)]
        yield from ((folder / name, False) for name in sorted(videos))
        if images and not folders and not videos and folder != root:
            yield folder, True


def _content(folder: Path, *, whole: bool) -> tuple[list[str], list[str], int] | None:
    """Names of folders and of videos in a folder, and the number of images until it was clear what the folder is.

    Images of optical flow do not count. None where ``hwbench data prepare`` made the folder. With ``whole`` all names
    are read, whoever made the folder.
    """
    folders: list[str] = []
    videos: list[str] = []
    images = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            end = os.path.splitext(entry.name)[1].lower()
            if entry.name in PREPARED_MARKS and not whole:
                return None
            if entry.name.startswith("."):
                continue
            if end in IMAGE_ENDINGS:
                images += not is_flow(entry.name)
                enough = images == _ENOUGH_IMAGES and not (whole or folders or videos)
                if enough and not _is_beside_video(folder / entry.name):
                    break
            elif entry.is_dir():
                folders.append(entry.name)
            elif end in ENDINGS:
                videos.append(entry.name)
    return folders, videos, images


def _is_beside_video(image: Path) -> bool:
    """Whether a video has the name of an image."""
    return any(image.with_suffix(case(end)).exists() for end in ENDINGS for case in (str.lower, str.upper))
