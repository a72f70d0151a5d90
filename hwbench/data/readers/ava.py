"""AVA 2.2: what each person does at a moment of a film.

* ``ava_train_v2.2.csv`` and ``ava_val_v2.2.csv`` without a first row of names:
  ``video,timestamp,x1,y1,x2,y2,action,person``; corners are shares of the frame, timestamps are seconds of the film;
* ``ava_action_list_v2.2*.pbtxt`` names the actions. Those which it leaves out, of the 80, are left out here: the list
  for the challenge has 60;
* ``ava_train_excluded_timestamps_v2.2.csv`` and that of ``val``, where they are there: moments that are left out;
* the videos ``<video>.mkv`` (``.mp4``, ``.webm``), or folders ``<video>`` of images, anywhere below the folder:
  cuts from second 900 of the films on, as the scripts of PySlowFast and mmaction2 make them, or, with ``offset=0``, the
  whole films.

The rows of one person at one moment are one entry with all its actions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from hwbench.data.readers.annotations import Row, find_file, frame_rate, read_lines, read_table, table_rows
from hwbench.data.readers.base import Box, ListedVideo, Listing, Part, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.printable import shown

_HEADER = ("video", "timestamp", "x1", "y1", "x2", "y2", "action", "person")
_CORNERS = ("x1", "y1", "x2", "y2")
_FIRST, _LAST = 902, 1798
# Scripts cut 901 s; a film of AVA has 30 minutes or more.
_CUT_S, _LONGEST_CUT_S = 900, Fraction(20 * 60)
_ACTIONS = 80
_SHARE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,18})?")


@readers.register("ava")
class Ava:
    """Persons at moments, each in a box; a label is the set of what the person does.

    Args:
        offset: The second of the film at which the video begins: 900 of cuts, 0 of whole films. Empty: 900, and videos
            of more than 20 minutes are none of the cuts.
        fps: Frames a second of folders of images.
    """

    def __init__(self, offset: str = "", fps: str = "30") -> None:
        if offset and (not re.fullmatch("[0-9]{1,3}", offset) or int(offset) > _FIRST):
            raise InvalidValue(f"option offset: expected seconds from 0 to {_FIRST}, got {shown(offset, 80)}")
        self.offset = int(offset) if offset else _CUT_S
        self.cut_s = None if offset else _LONGEST_CUT_S
        self.fps = frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with the table for training."""
        return path.is_dir() and find_file(path, "ava_train_v*.csv") is not None

    def read(self, path: Path) -> Listing:
        """Persons in the order of the tables.

        Raises:
            InvalidFile: A file is missing, a row does not parse, a box is not within the frame, an action or a moment
                is none of AVA's, or no video of any row is there.
        """
        names = ("ava_train_v*.csv", "ava_val_v*.csv", "ava_action_list*.pbtxt")
        files = [find_file(path, name) for name in names]
        for name, file in zip(names, files):
            if file is None:
                raise InvalidFile(f"{path}: expected {name} of AVA, in it or in annotations/")
        train, val, actions = (file for file in files if file is not None)
        classes = _classes(actions)
        media = MediaIndex(path, self.fps)
        sides = self._persons(path, "train", train, classes, media), self._persons(path, "val", val, classes, media)
        return Listing(*sides, classes=tuple(classes.values()), notes=media.notes())

    def _persons(
        self, path: Path, side: str, file: Path, classes: Mapping[int, str], media: MediaIndex
    ) -> tuple[ListedVideo, ...]:
        excluded = _excluded(find_file(path, f"ava_{side}_excluded_timestamps_v*.csv"))
        persons: dict[tuple[str, int, Box, str], tuple[str, list[str]]] = {}
        for row in table_rows(file, _HEADER, header=_HEADER):
            moment, action = _moment(row), row.whole("action")
            if not 1 <= action <= _ACTIONS:
                raise row.fault(f"expected an action from 1 to {_ACTIONS}, got {action}")
            key = row.text("video"), moment, _box(row), row.text("person")
            if action in classes and key[:2] not in excluded:
                if key not in persons:
                    persons[key] = row.place, []
                persons[key][1].append(classes[action])
        listed: list[ListedVideo] = []
        moments = {moment: Fraction(moment - self.offset) for moment in range(_FIRST, _LAST + 1)}
        for (video, moment, box, _), (place, labels) in persons.items():
            part = Part(keyframe_s=moments[moment], box=box, cut_s=self.cut_s)
            listed += media.listed(video, tuple(dict.fromkeys(labels)), part=part, group=video, row=place)
        return tuple(listed)


def _classes(file: Path) -> dict[int, str]:
    """Number -> name, rising, of a list of blocks with ``name: "..."`` and ``id: N`` or ``label_id: N``."""
    classes: dict[int, str] = {}
    name = ""
    for row in read_lines(file, 'blocks with name: "..." and id: N'):
        match = re.fullmatch(r'name:\s*"(.+)"', row.text("line"))
        name = match[1] if match else name
        number = re.fullmatch(r"(?:label_)?id:\s*([0-9]{1,4})", row.text("line"))
        if number is None:
            continue
        if not name or int(number[1]) in classes or name in classes.values():
            raise row.fault(f"expected a name before each number, and each once, got number {number[1]}")
        classes[int(number[1])], name = name, ""
    if not classes:
        raise InvalidFile(f'{file}: expected blocks with name: "..." and id: N, found none')
    return dict(sorted(classes.items()))


def _moment(row: Row) -> int:
    moment = row.whole("timestamp")
    if not _FIRST <= moment <= _LAST:
        raise row.fault(f"expected a timestamp from {_FIRST} to {_LAST}, got {moment}")
    return moment


def _box(row: Row) -> Box:
    values = [str(row.values[corner]).strip() for corner in _CORNERS]
    x1, y1, x2, y2 = [float(value) if _SHARE.fullmatch(value) else -1.0 for value in values]
    if not (0 <= x1 <= x2 <= 1 and 0 <= y1 <= y2 <= 1):
        raise row.fault(f"expected a box x1,y1,x2,y2 within 0 and 1, got {shown(','.join(values), 80)}")
    return x1, y1, x2, y2


def _excluded(file: Path | None) -> set[tuple[str, int]]:
    """Moments that are left out."""
    if file is None or not file.stat().st_size:
        return set()
    columns = ("video", "timestamp")
    return {(row.text("video"), row.whole("timestamp")) for row in read_table(file, columns, header=columns)}
