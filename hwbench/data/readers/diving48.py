"""Diving48: dives into water, told apart by take-off, somersaults, twists and position.

* JSON lists ``Diving48_V2_train.json`` and ``Diving48_V2_test.json``, or those of version 1, of objects with
  ``vid_name`` and ``label``, a number from 0; a video is one dive: ``start_frame`` and ``end_frame`` are not read;
* ``Diving48_vocab.json``, a list of the words of each class (``["Back", "15som", "05Twis", "FREE"]``) in the order of
  their numbers; without it the numbers are the names;
* the videos ``<vid_name>.mp4``, or folders of images, anywhere below the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hwbench.data.readers.annotations import find_file, frame_rate, read_list, read_objects
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_TRAIN, _VOCABULARY = "Diving48_*train.json", "Diving48_vocab.json"
_COUNT = 48


@readers.register("diving48")
class Diving48:
    """48 dives out of competitions; the split for tests is what is validated on.

    Args:
        fps: Frames a second of folders of images; the videos know theirs.
    """

    def __init__(self, fps: str = "30") -> None:
        self.fps = frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with the list for training."""
        return path.is_dir() and find_file(path, _TRAIN) is not None

    def read(self, path: Path) -> Listing:
        """Videos in the order of the lists, classes in that of their numbers.

        Raises:
            InvalidFile: A list is missing, an entry does not parse or has no class, or no video of any entry is there.
        """
        train = find_file(path, _TRAIN)
        test = train and train.with_name(train.name.removesuffix("train.json") + "test.json")
        if train is None or test is None or not test.is_file():
            raise InvalidFile(f"{path}: expected Diving48_V2_train.json and Diving48_V2_test.json beside it")
        vocabulary = find_file(path, _VOCABULARY)
        classes = _classes(vocabulary) if vocabulary else tuple(map(str, range(_COUNT)))
        media = MediaIndex(path, self.fps)
        videos = _videos(train, classes, media), _videos(test, classes, media)
        return Listing(*videos, classes=classes, notes=media.notes())


def _classes(file: Path) -> tuple[str, ...]:
    """The words of each class with blanks between them."""
    values = [value if isinstance(value, list) else [value] for value in read_list(file)]
    names = tuple(" ".join(words) for words in values if words and all(isinstance(word, str) for word in words))
    if not names or len(set(names)) != len(values):
        raise InvalidFile(f"{file}: expected a JSON list with the words of each class, each class once")
    return names


def _videos(file: Path, classes: Sequence[str], media: MediaIndex) -> tuple[ListedVideo, ...]:
    listed: list[ListedVideo] = []
    for row in read_objects(file):
        number = row.whole("label")
        if number >= len(classes):
            raise row.fault(f"label {shown(number)} is none of the {len(classes)} classes, which count from 0")
        listed += media.listed(row.text("vid_name"), classes[number], row=row.place)
    return tuple(listed)
