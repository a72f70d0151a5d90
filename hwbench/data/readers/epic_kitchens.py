"""EPIC-KITCHENS-100 and EPIC-KITCHENS-55: what is done in kitchens, seen from the head of who does it.

* ``EPIC_100_train.csv`` and ``EPIC_100_validation.csv``, or of 55 ``EPIC_train_action_labels.csv``, which has no
  labelled part for validation: a fifth of its videos is taken;
* with them ``EPIC_100_verb_classes.csv`` and ``EPIC_100_noun_classes.csv``, of 55 without ``100_``;
* the videos ``<video_id>.MP4``, or folders ``<video_id>`` of images, anywhere below the folder. The frame rates of such
  folders stand in ``EPIC_100_video_info.csv`` (of 55 ``EPIC_video_info.csv``); without it they are as the option says.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from hwbench.data.readers.annotations import Row, choice, find_file, frame_rate, read_table
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.printable import shown

_BELOW = ("annotations", "epic-kitchens-100-annotations", "epic-kitchens-55-annotations")
_TRAIN = ("EPIC_100_train.csv", "EPIC_train_action_labels.csv")
_COLUMNS = ("video_id", "start_timestamp", "stop_timestamp", "verb_class", "noun_class")


@readers.register("epic-kitchens")
class EpicKitchens:
    """Parts of long videos, each with a verb and a noun.

    Args:
        label: What is a class: verb, noun, or action, a pair of both.
        fps: Frames a second of folders of images.
    """

    def __init__(self, label: str = "verb", fps: str = "60") -> None:
        self.label, self.fps = choice("label", label, ("verb", "noun", "action")), frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with the table for training."""
        return path.is_dir() and find_file(path, *_TRAIN, below=_BELOW) is not None

    def read(self, path: Path) -> Listing:
        """Actions in the order of the tables.

        Raises:
            InvalidFile: A table is missing, a row does not parse or names no class, or no video of any row is there.
        """
        train = find_file(path, *_TRAIN, below=_BELOW)
        if train is None:
            raise InvalidFile(f"{path}: expected {' or '.join(_TRAIN)} of EPIC-KITCHENS")
        epic = "EPIC_100" if train.name.startswith("EPIC_100") else "EPIC"
        files = [train]
        if epic == "EPIC_100":
            files.append(_required(path, "EPIC_100_validation.csv"))
        names = {
            kind: _classes(_required(path, f"{epic}_{kind}_classes.csv"))
            for kind in ("verb", "noun")
            if self.label in (kind, "action")
        }
        tables = [read_table(file, _COLUMNS) for file in files]
        labels = [[self._label(row, names) for row in table] for table in tables]
        media, rates = MediaIndex(path, self.fps), _rates(path, epic)
        sides = [_videos(table, of_rows, media, rates) for table, of_rows in zip(tables, labels)]
        classes = tuple(sorted(set().union(*labels))) if self.label == "action" else tuple(names[self.label].values())
        return Listing(sides[0], sides[1] if sides[1:] else None, classes, notes=media.notes())

    def _label(self, row: Row, names: Mapping[str, Mapping[int, str]]) -> str:
        """The class of a row."""
        words = []
        for kind, classes in names.items():
            number = row.whole(f"{kind}_class")
            if number not in classes:
                raise row.fault(f"unknown {kind}_class {number}; the table of classes has {len(classes)}")
            words.append(classes[number])
        return " ".join(words)


def _videos(
    rows: list[Row], labels: list[str], media: MediaIndex, rates: Mapping[str, Fraction]
) -> tuple[ListedVideo, ...]:
    listed: list[ListedVideo] = []
    for row, label in zip(rows, labels):
        name = row.text("video_id")
        part = media.part(row.seconds("start_timestamp"), row.seconds("stop_timestamp"), row.place)
        if part is not None:
            listed += media.listed(name, label, part=part, group=name, row=row.place, fps=rates.get(name))
    return tuple(listed)


def _required(path: Path, name: str) -> Path:
    file = find_file(path, name, below=_BELOW)
    if file is None:
        raise InvalidFile(f"{path}: expected {name} of EPIC-KITCHENS")
    return file


def _classes(file: Path) -> dict[int, str]:
    """Number -> name, rising. The columns of 100 are called ``id`` and ``key``, those of 55 otherwise."""
    classes: dict[int, str] = {}
    for row in read_table(file, ()):
        number, name = ("id", "key") if "key" in row.values else (next(iter(row.values)), "class_key")
        if row.whole(number) in classes or row.text(name) in classes.values():
            raise row.fault(f"class {row.text(name)!r} or its number stands there twice")
        classes[row.whole(number)] = row.text(name)
    return dict(sorted(classes.items()))


def _rates(path: Path, epic: str) -> dict[str, Fraction]:
    file = find_file(path, f"{epic}_video_info.csv", below=_BELOW)
    if file is None:
        return {}
    key = "video_id" if epic == "EPIC_100" else "video"
    rates = {}
    for row in read_table(file, (key, "fps")):
        try:
            rates[row.text(key)] = frame_rate(row.text("fps"))
        except InvalidValue:
            raise row.fault(f"expected frames a second as 'fps', got {shown(row.values['fps'], 80)}") from None
    return rates
