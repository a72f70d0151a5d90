"""Lists of frames, as PySlowFast and PyTorchVideo take them for Charades and AVA.

* ``train.csv`` and ``val.csv``, in the folder or in ``frame_lists/``: a first row
  ``original_vido_id video_id frame_id path labels``, then a row for each frame, blanks between the columns. Labels are
  numbers of classes between quotes, ``"12,40"``, or ``""``;
* the images at ``path``, relative to the folder, to ``Charades_v1_rgb`` or to ``frames`` in it; the option ``prefix``
  names another one. The images of a video lie in one folder of its own.

A video shows all classes that one of its frames shows. Lists of AVA and Something-Something have no labels: the readers
``ava`` and ``something-something`` read those, with the same folders of images.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from hwbench.data.images import FrameFolder, natural
from hwbench.data.readers.annotations import find_file, first_row, frame_rate
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.directions import is_directional
from hwbench.data.readers.entries import refuse
from hwbench.data.readers.lists import class_names
from hwbench.errors import InvalidFile
from hwbench.printable import shown

# The first name is spelt so in all of these files.
_COLUMNS = ("original_vido_id", "video_id", "frame_id", "path", "labels")
_BELOW = ("frame_lists",)
_NUMBER = re.compile("[0-9]{1,9}")
_LONGEST_PATH = 1000


@dataclass
class _Frames:
    """The rows of one video so far."""

    row: str
    group: str
    first: PurePosixPath
    number: int
    count: int = 0
    labels: dict[str, None] = field(default_factory=dict)


@readers.register("frame-lists")
class FrameLists:
    """Several classes of each video, out of a row for each of its frames.

    Args:
        prefix: Folder of the images, relative to the data path.
        fps: Frames a second at which the images were taken; the official ones of Charades have 24.
        directional: ``yes`` where labels tell directions: clips are not flipped.
    """

    def __init__(self, prefix: str = "", fps: str = "24", directional: str = "no") -> None:
        self.prefix, self.fps, self.directional = prefix, frame_rate(fps), is_directional(directional)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with ``frame_lists/train.csv``, or whose ``train.csv`` has their first row."""
        train = path / "train.csv"
        if (path / "frame_lists" / train.name).is_file():
            return True
        return train.is_file() and tuple(" ".join(first_row(train)).split()[:5]) == _COLUMNS

    def read(self, path: Path) -> Listing:
        """Videos in the order of the lists; those that are not on the disk are left out and counted.

        Raises:
            InvalidFile: A list is missing, a row does not parse, no row has a label, a folder cannot be entered, or no
                video is there.
        """
        files = [find_file(path, f"{side}.csv", below=_BELOW) for side in ("train", "val")]
        if files[0] is None or files[1] is None:
            raise InvalidFile(f"{path}: expected train.csv and val.csv, in it or in frame_lists/")
        missing: list[str] = []
        train, val = (tuple(self._videos(path, file, missing)) for file in files if file is not None)
        labels = {label for video in (*train, *val) for label in video.labels}
        if missing and not train + val:
            raise InvalidFile(f"{files[0]}: none of {len(missing)} listed videos is there; the first is {missing[0]!r}")
        if not labels:
            raise InvalidFile(f"{files[0]}: no row has labels; lists of AVA and Something-Something have readers")
        notes = []
        if missing:
            total = len(missing) + len(train) + len(val)
            notes.append(f"{path}: {len(missing)} of {total} listed videos are not there, such as {missing[0]!r}")
        return Listing(train, val, class_names(labels, path), self.directional, tuple(notes))

    def _videos(self, root: Path, file: Path, missing: list[str]) -> Iterator[ListedVideo]:
        for name, frames in _rows_by_video(file).items():
            folder = self._folder(root, frames.first.parent)
            if folder is None:
                missing.append(name)
                continue
            labels = dict.fromkeys(word.strip() for text in frames.labels for word in text.split(",") if word.strip())
            source = FrameFolder(folder, self.fps, count=frames.count)
            yield ListedVideo(folder, tuple(labels), source=source, group=frames.group, row=frames.row)

    def _folder(self, root: Path, name: PurePosixPath) -> Path | None:
        roots = (self.prefix,) if self.prefix else ("", "Charades_v1_rgb", "frames")
        try:
            return next((root / one / name for one in roots if (root / one / name).is_dir()), None)
        except PermissionError as error:
            refuse(error)
        except OSError:  # a name that no folder can have
            return None


def _rows_by_video(file: Path) -> Mapping[str, _Frames]:
    """Videos in the order of their first rows. A list has millions of rows: none is kept."""
    videos: dict[str, _Frames] = {}
    last: dict[str, PurePosixPath] = {}
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            table = csv.reader(lines, delimiter=" ", skipinitialspace=True)
            header = next(table, [])
            if tuple(header[:5]) != _COLUMNS:
                raise InvalidFile(f"{file}:1: expected '{' '.join(_COLUMNS)}', got {shown(' '.join(header), 80)}")
            for values in filter(None, table):
                _take(values, f"{file}:{table.line_num}", videos, last)
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise InvalidFile(f"{file}: expected a list of frames ({error})") from None
    for name, frames in videos.items():
        if natural(frames.first.name) > natural(last[name].name):
            raise InvalidFile(f"{frames.row}: the images of {name!r} are not in the order of their names")
    return videos


def _take(values: list[str], place: str, videos: dict[str, _Frames], last: dict[str, PurePosixPath]) -> None:
    """Adds a row to its video."""
    if len(values) < 5 or not _NUMBER.fullmatch(values[2]) or not 0 < len(values[3]) <= _LONGEST_PATH:
        raise InvalidFile(f"{place}: expected a video, a number, a path and labels, got {shown(' '.join(values), 80)}")
    name, path = values[1], PurePosixPath(values[3])
    frames = videos.setdefault(name, _Frames(place, values[0], path, int(values[2])))
    if int(values[2]) != frames.number + frames.count or path.parent != frames.first.parent:
        expected = f"frame {frames.number + frames.count} of {name!r} in {str(frames.first.parent)!r}"
        raise InvalidFile(f"{place}: expected {expected}, got {shown(' '.join(values[2:4]), 80)}")
    frames.count += 1
    frames.labels[values[4]] = None
    last[name] = path
