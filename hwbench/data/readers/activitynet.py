"""ActivityNet, and data sets in its form: long videos of which some parts show something.

A JSON object whose ``database`` has, by the name of a video, its ``subset`` and ``annotations``, each of which has a
``segment`` (start and end in seconds) and a ``label``. The file lies in the data path or in its folder ``annotations``,
the videos ``v_<name>.mp4`` or ``<name>.mp4``, also in another container, or folders of images with these names anywhere
below the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hwbench.data.readers.annotations import Row, choice, find_file, frame_rate, read_object, read_text
from hwbench.data.readers.base import ListedVideo, Listing, Part, readers
from hwbench.data.readers.media_index import MediaIndex
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_NAMED = "activity_net*.json"
_SUBSETS = ("training", "validation", "testing")


@readers.register("activitynet")
class ActivityNet:
    """Segments of long videos; each is an entry of its own.

    Args:
        subset: What to validate on: validation or testing.
        fps: Frames a second of folders of images.
    """

    def __init__(self, subset: str = "validation", fps: str = "30") -> None:
        self.subset, self.fps = choice("subset", subset, _SUBSETS[1:]), frame_rate(fps)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder with a file of ActivityNet."""
        return path.is_dir() and find_file(path, _NAMED) is not None

    def read(self, path: Path) -> Listing:
        """Segments in the order of the file.

        Raises:
            InvalidFile: No file, an entry that does not parse, or no video of any entry is there.
        """
        file = _file(path)
        database = read_object(file).get("database")
        if not isinstance(database, dict):
            raise InvalidFile(f"{file}:1: expected an object with a 'database' of videos")
        lines = _NameLines(file)
        media = MediaIndex(path if path.is_dir() else path.parent, self.fps)
        sides: dict[str, list[ListedVideo]] = {"training": [], self.subset: []}
        for name, entry in database.items():
            row = Row(file, lines.of(name), entry if isinstance(entry, dict) else {})
            if row.text("subset") not in _SUBSETS:
                raise row.fault(f"expected a subset of {', '.join(_SUBSETS)}, got {shown(row.values['subset'], 40)}")
            side = sides.get(row.text("subset"), [])
            for label, part in _segments(row, media):
                side += media.listed((f"v_{name}", name), label, part=part, group=name, row=row.place)
        if not sides[self.subset]:
            raise InvalidFile(f"{file}: expected labelled videos of subset {self.subset!r}, found none")
        return Listing(
            tuple(sides["training"]), tuple(sides[self.subset]), _labels(database.values()), notes=media.notes()
        )


class _NameLines:
    """Lines on which the videos of a file stand; names are looked for in the order of the file."""

    def __init__(self, file: Path) -> None:
        self._text, self._at, self._line = read_text(file), 0, 1

    def of(self, name: str) -> int:
        """The line of a name."""
        match = re.compile(f'"{re.escape(name)}"\\s*:').search(self._text, self._at)
        if match:
            self._line += self._text.count("\n", self._at, match.start())
            self._at = match.start()
        return self._line


def _file(path: Path) -> Path:
    if path.is_file():
        return path
    file = find_file(path, _NAMED, "*.json")
    if file is None:
        raise InvalidFile(f"{path}: expected a JSON file in the form of ActivityNet, found none")
    return file


def _segments(row: Row, media: MediaIndex) -> Iterator[tuple[str, Part]]:
    """Label and part of each annotation of a video."""
    annotations = row.values.get("annotations", [])
    if not isinstance(annotations, list):
        raise row.fault(f"expected a list of annotations, got {shown(annotations, 80)}")
    for annotation in annotations:
        segment = annotation.get("segment") if isinstance(annotation, dict) else None
        if not isinstance(segment, list) or len(segment) != 2:
            raise row.fault(f"expected annotations with a segment of two times, got {shown(annotation, 80)}")
        start, end = (row.as_seconds(time, "segment") for time in segment)
        label, part = Row(row.file, row.line, annotation).text("label"), media.part(start, end, row.place)
        if part is not None:
            yield label, part


def _labels(entries: Any) -> tuple[str, ...]:
    """All classes of a database, sorted."""
    return tuple(sorted({one["label"].strip() for entry in entries for one in entry.get("annotations", ())}))
