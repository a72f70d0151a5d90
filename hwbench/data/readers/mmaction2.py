"""Lists of mmaction2: of videos, and of folders of images.

* A line ``video label`` for each video, or ``folder frames label`` for each folder of images ``img_00001.jpg``, ...;
* ``*train*.txt`` and ``*val*.txt`` (or ``*test*.txt``, and other words of ``sides.py``) in one folder, or the file of
  them for training. Paths are relative to the folder of the lists, or to ``videos``, ``videos_train``, ``rawframes``,
  ``rawframes_train`` (``_val`` of the other list) in it; the option ``prefix`` names another one.

Blank lines are skipped, and comments: ``# `` and more. ``# directional`` before the first line says that labels tell
directions: clips are not flipped.

Labels are whole numbers. Folders that hold optical flow (``flow_x_00001.jpg``) and no images are refused.
"""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

from hwbench.data.images import IMAGE_ENDINGS, FrameFolder, is_flow
from hwbench.data.readers.annotations import Row, choice, frame_rate, read_lines
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.directions import DIRECTIONAL, is_directional, is_list_directional
from hwbench.data.readers.entries import matching, refuse
from hwbench.data.readers.lists import class_names
from hwbench.data.readers.sides import list_beside
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_NUMBER = re.compile("[0-9]{1,9}")
# Not each "#": HMDB51 has videos such as "#122_Cartwheel_Kids.avi".
_COMMENT = re.compile(rf"#(\s|$|{DIRECTIONAL}\b)", re.IGNORECASE)


@readers.register("mmaction2")
class Mmaction2:
    """Text files with a line for each video or folder of images.

    Args:
        prefix: Folder of the videos, relative to that of the lists.
        labels: ``one`` number at the end of a line, or ``several``.
        images: What the names of images begin with.
        fps: Frames a second of folders of images.
        directional: ``yes`` where labels tell directions, as ``# directional`` says in a list: clips are not flipped.
    """

    def __init__(
        self, prefix: str = "", labels: str = "one", images: str = "img_", fps: str = "30", directional: str = "no"
    ) -> None:
        self.prefix, self.images, self.directional = prefix, images, is_directional(directional)
        self.labels, self.fps = choice("labels", labels, ("one", "several")), frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Never: ``lists`` reads a path without a name."""
        return False

    def read(self, path: Path) -> Listing:
        """Videos in the order of the lines; those that are not on the disk are left out and counted.

        Raises:
            InvalidFile: No list, a line that does not parse, a folder that cannot be read, or no video of any line is
                there.
        """
        train, val = _files(path)
        missing: list[str] = []
        videos = self._videos(train, "train", missing)
        others = self._videos(val, "val", missing) if val else None
        listed = [*videos, *(others or ())]
        if not listed:
            raise InvalidFile(
                f"{train}: none of the {len(missing)} listed videos is there; the first is {missing[0]!r}"
            )
        notes = []
        if missing:
            total = len(missing) + len(listed)
            notes.append(f"{path}: {len(missing)} of {total} listed videos are not there, such as {missing[0]!r}")
        labels = {label for video in listed for label in video.labels}
        directional = self.directional or any(is_list_directional(file) for file in (train, val) if file)
        return Listing(videos, others, class_names(labels, path), directional, tuple(notes))

    def _videos(self, file: Path, side: str, missing: list[str]) -> tuple[ListedVideo, ...]:
        listed: list[ListedVideo] = []
        for row in _rows(file):
            words = row.text("line").split()
            name, numbers = self._split(row, words)
            path = self._path(file.parent, side, name)
            if path is None:
                missing.append(name)
                continue
            source = None
            if path.is_dir():
                source, numbers = self._frames(row, path, numbers), numbers[1:]
            if not numbers or (self.labels == "one" and len(numbers) != 1):
                raise row.fault(f"expected 'VIDEO LABEL' or 'FOLDER FRAMES LABEL', got {shown(row.text('line'), 80)}")
            label = numbers[0] if self.labels == "one" else tuple(dict.fromkeys(numbers))
            listed.append(ListedVideo(path, label, source=source, row=row.place))
        return tuple(listed)

    def _split(self, row: Row, words: list[str]) -> tuple[str, list[str]]:
        """The path, which may have spaces, and the numbers behind it."""
        place = len(words)
        while place > 1 and _NUMBER.fullmatch(words[place - 1]):
            place -= 1
        numbers = [str(int(word)) for word in words[place:]]
        if not numbers:
            raise row.fault(f"expected whole numbers as labels, got {shown(row.text('line'), 80)}")
        return " ".join(words[:place]), numbers

    def _path(self, folder: Path, side: str, name: str) -> Path | None:
        """Where a video lies."""
        roots = (self.prefix,) if self.prefix else ("", f"videos_{side}", "videos", f"rawframes_{side}", "rawframes")
        paths = (folder / root / name for root in roots)
        return next((path for path in paths if _exists(path)), None)

    def _frames(self, row: Row, path: Path, numbers: list[str]) -> FrameFolder:
        if len(numbers) < 2:
            raise row.fault(f"expected 'FOLDER FRAMES LABEL', got {shown(row.text('line'), 80)}")
        names = [entry.name for entry in path.iterdir() if entry.suffix.lower() in IMAGE_ENDINGS]
        if not any(name.startswith(self.images) for name in names):
            flow = [name for name in names if is_flow(name)]
            holds = f"optical flow ({min(flow)}), which is not read" if flow else f"no images {self.images}*"
            raise row.fault(f"{path} holds {holds}; expected RGB images, whose names begin as option images says")
        return FrameFolder(path, Fraction(self.fps), self.images, int(numbers[0]) or None)


def _rows(file: Path) -> list[Row]:
    """The lines of a list that are no comments.

    Raises:
        InvalidFile: There is none.
    """
    expected = "lines 'VIDEO LABEL' or 'FOLDER FRAMES LABEL'"
    rows = [row for row in read_lines(file, expected) if not _COMMENT.match(row.text("line"))]
    if not rows:
        raise InvalidFile(f"{file}: expected {expected}, found none")
    return rows


def _exists(path: Path) -> bool:
    """Whether something lies there; nothing does under names that no file can have.

    Raises:
        InvalidFile: A folder on the way cannot be entered.
    """
    try:
        return path.exists()
    except PermissionError as error:
        refuse(error)
    except (OSError, ValueError):
        return False


def _files(path: Path) -> tuple[Path, Path | None]:
    """The lists for training and validation."""
    if path.is_file():
        return path, list_beside(path)
    train = [file for file in matching(path, "*train*.txt") if file.is_file()]
    if len(train) != 1:
        several = f"several ({', '.join(file.name for file in train)[:200]}); name the file" if train else "none"
        raise InvalidFile(f"{path}: expected a list *train*.txt of mmaction2, found {several}")
    return _files(train[0])
