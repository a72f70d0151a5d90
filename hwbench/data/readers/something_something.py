"""Something-Something, version 2.

* A JSON object of the labels, ``{"Holding something": "0", ...}``: ``labels.json`` or
  ``something-something-v2-labels.json``;
* JSON lists ``train.json`` and ``validation.json`` (or ``something-something-v2-*.json``) of objects with ``id`` and
  ``template``, in whose text brackets stand around what is held; all of them in the folder or in ``labels/``;
* the videos ``<id>.webm`` (or of another ending, or folders of images) anywhere below the folder.

Labels tell left from right: clips are not flipped.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hwbench.data.readers.annotations import find_file, frame_rate, read_object, read_objects
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_BELOW = ("labels", "annotations")


@readers.register("something-something")
class SomethingSomething:
    """174 templates of what hands do with things.

    Args:
        fps: Frames a second of folders of images; the videos have 12.
    """

    def __init__(self, fps: str = "12") -> None:
        self.fps = frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with the three JSON files."""
        return path.is_dir() and None not in _files(path)

    def read(self, path: Path) -> Listing:
        """Videos in the order of the lists, classes in that of their numbers.

        Raises:
            InvalidFile: A file is missing, an entry does not parse or has no class, or no video of any entry is there.
        """
        labels, train, val = _files(path)
        if labels is None or train is None or val is None:
            raise InvalidFile(f"{path}: expected labels.json, train.json and validation.json of Something-Something")
        classes = _classes(labels)
        media = MediaIndex(path, self.fps)
        videos = _videos(train, set(classes), media), _videos(val, set(classes), media)
        return Listing(*videos, classes=classes, directional=True, notes=media.notes())


def _files(path: Path) -> tuple[Path | None, Path | None, Path | None]:
    labels, train, val = (
        find_file(path, f"{name}.json", f"*-{name}.json", below=_BELOW) for name in ("labels", "train", "validation")
    )
    return labels, train, val


def _classes(file: Path) -> tuple[str, ...]:
    """The templates in the order of their numbers."""
    numbers = {template: str(number) for template, number in read_object(file).items()}
    expected = [str(number) for number in range(len(numbers))]
    if not numbers or sorted(numbers.values()) != sorted(expected):
        raise InvalidFile(f"{file}: expected an object of templates and their numbers from 0, each number once")
    return tuple(sorted(numbers, key=lambda template: int(numbers[template])))


def _videos(file: Path, classes: Collection[str], media: MediaIndex) -> tuple[ListedVideo, ...]:
    listed: list[ListedVideo] = []
    for row in read_objects(file):
        template = row.text("template").replace("[", "").replace("]", "")
        if template not in classes:
            raise row.fault(f"template {shown(template, 80)} has no number in the file of labels")
        listed += media.listed(str(row.whole("id")), template, row=row.place)
    return tuple(listed)
