"""UCF101 with its official splits for recognition.

* ``classInd.txt`` (lines ``1 ApplyEyeMakeup``), ``trainlist0N.txt`` (``ApplyEyeMakeup/v_ApplyEyeMakeup_g08_c01.avi 1``)
  and ``testlist0N.txt`` (without the number), in the folder or in ``ucfTrainTestlist/``;
* the videos, also in another container, or folders of images anywhere below the folder.

The videos of a group (``g08``) show one scene: they stay together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from hwbench.data.readers.annotations import choice, find_file, frame_rate, read_lines
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_LISTS = ("ucfTrainTestlist", "annotations", "splits")


@readers.register("ucf101")
class Ucf101:
    """101 actions in short films.

    Args:
        split: 1, 2 or 3.
        fps: Frames a second of folders of images; the videos have 25.
    """

    def __init__(self, split: str = "1", fps: str = "25") -> None:
        self.split, self.fps = choice("split", split, ("1", "2", "3")), frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with ``classInd.txt``."""
        return path.is_dir() and find_file(path, "classInd.txt", below=_LISTS) is not None

    def read(self, path: Path) -> Listing:
        """Videos in the order of the split's lists.

        Raises:
            InvalidFile: A list is missing, a line does not parse or names no class, or no video of any line is there.
        """
        names = ("classInd.txt", f"trainlist0{self.split}.txt", f"testlist0{self.split}.txt")
        files = [find_file(path, name, below=_LISTS) for name in names]
        for name, file in zip(names, files):
            if file is None:
                raise InvalidFile(f"{path}: expected {name} of UCF101, in it or in {_LISTS[0]}")
        index, train, val = (file for file in files if file is not None)
        classes = _classes(index)
        media = MediaIndex(path, self.fps)
        videos = _videos(train, classes, media), _videos(val, classes, media)
        return Listing(*videos, classes=tuple(classes), notes=media.notes())


def _classes(file: Path) -> dict[str, int]:
    """Class -> its number, which counts from 1."""
    classes: dict[str, int] = {}
    for row in read_lines(file, "lines such as '1 ApplyEyeMakeup'"):
        number, _, name = row.text("line").partition(" ")
        if number != str(len(classes) + 1) or not name.strip() or name.strip() in classes:
            raise row.fault(f"expected '{len(classes) + 1} CLASS', got {shown(row.text('line'), 80)}")
        classes[name.strip()] = len(classes) + 1
    return classes


def _videos(file: Path, classes: Mapping[str, int], media: MediaIndex) -> tuple[ListedVideo, ...]:
    listed: list[ListedVideo] = []
    for row in read_lines(file, "lines 'CLASS/VIDEO.avi'"):
        name, _, number = row.text("line").partition(" ")
        path = PurePosixPath(name)
        label = path.parent.name
        if label not in classes:
            raise row.fault(f"expected CLASS/VIDEO.avi with a class of classInd.txt, got {shown(name, 80)}")
        if number.strip() not in ("", str(classes[label])):
            raise row.fault(f"class {label} is number {classes[label]} in classInd.txt, got {shown(number, 40)}")
        group = re.sub(r"_c[0-9]+$", "", path.stem)
        listed += media.listed(path.stem, label, folder=label, group=group, row=row.place)
    return tuple(listed)
