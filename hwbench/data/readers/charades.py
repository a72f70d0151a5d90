"""Charades: everyday activities, several in each video.

* ``Charades_v1_train.csv`` and ``Charades_v1_test.csv`` with the columns ``id`` and ``actions``
  (``c092 11.90 21.20;c147 0.00 12.60``), in the folder or in ``Charades/``;
* ``Charades_v1_classes.txt`` (lines ``c000 Holding some clothes``); without it the codes are the names;
* the videos ``<id>.mp4``, or folders ``<id>`` of images, anywhere below the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from hwbench.data.readers.annotations import Row, choice, find_file, frame_rate, read_lines, read_table
from hwbench.data.readers.base import ListedVideo, Listing, Part, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_BELOW = ("Charades", "annotations")
_COUNT = 157


@readers.register("charades")
class Charades:
    """157 activities; a label is the set of those that a video shows.

    Args:
        per: ``video``: one entry for each video, with all its activities. ``action``: one entry for each activity, with
            the part of the video that shows it; activities with the same part are one entry.
        fps: Frames a second of folders of images; the official ones have 24.
    """

    def __init__(self, per: str = "video", fps: str = "24") -> None:
        self.per, self.fps = choice("per", per, ("video", "action")), frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with the table for training."""
        return path.is_dir() and find_file(path, "Charades_v1_train.csv", below=_BELOW) is not None

    def read(self, path: Path) -> Listing:
        """Videos in the order of the tables.

        Raises:
            InvalidFile: A table is missing, a row does not parse or names no class, or no video of any row is there.
        """
        train, val = (find_file(path, f"Charades_v1_{side}.csv", below=_BELOW) for side in ("train", "test"))
        if train is None or val is None:
            raise InvalidFile(f"{path}: expected Charades_v1_train.csv and Charades_v1_test.csv")
        names = find_file(path, "Charades_v1_classes.txt", below=_BELOW)
        classes = _classes(names) if names else {f"c{number:03d}": f"c{number:03d}" for number in range(_COUNT)}
        media = MediaIndex(path, self.fps)
        videos = self._videos(train, classes, media), self._videos(val, classes, media)
        return Listing(*videos, classes=tuple(classes.values()), notes=media.notes())

    def _videos(self, file: Path, classes: Mapping[str, str], media: MediaIndex) -> tuple[ListedVideo, ...]:
        listed: list[ListedVideo] = []
        for row in read_table(file, ("id", "actions")):
            actions, name = list(_actions(row, classes, media)), row.text("id")
            person = str(row.values.get("subject", ""))
            if self.per == "video":
                labels = tuple(dict.fromkeys(label for label, _ in actions))
                listed += media.listed(name, labels, group=person, row=row.place)
                continue
            shown_by: dict[Part, dict[str, None]] = {}
            for label, part in actions:
                shown_by.setdefault(part, {})[label] = None
            for part, activities in shown_by.items():
                listed += media.listed(name, tuple(activities), part=part, group=person, row=row.place)
        return tuple(listed)


def _classes(file: Path) -> dict[str, str]:
    """Code -> name."""
    classes: dict[str, str] = {}
    for row in read_lines(file, "lines such as 'c000 Holding some clothes'"):
        code, _, name = row.text("line").partition(" ")
        if not name.strip() or code in classes or name.strip() in classes.values():
            raise row.fault(f"expected a code and a name, each once, got {shown(row.text('line'), 80)}")
        classes[code] = name.strip()
    return classes


def _actions(row: Row, classes: Mapping[str, str], media: MediaIndex) -> Iterator[tuple[str, Part]]:
    """Class and part of each activity of a row."""
    for action in filter(None, map(str.strip, row.values["actions"].split(";"))):
        words = action.split()
        if len(words) != 3:
            raise row.fault(f"expected actions as 'CLASS START END;...', got {shown(action, 80)}")
        if words[0] not in classes:
            raise row.fault(f"unknown class {shown(words[0], 40)}")
        start, end = (row.as_seconds(word, "actions") for word in words[1:])
        part = media.part(start, end, row.place)
        if part is not None:
            yield classes[words[0]], part
