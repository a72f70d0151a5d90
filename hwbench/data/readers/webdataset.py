"""WebDataset: tar archives ("shards") with a video and its label beside each other, read without unpacking.

* ``KEY.mp4`` (or another ending of a video) and ``KEY.cls``, ``KEY.txt`` or ``KEY.json`` are one video; the key is the
  path of a member up to the first dot of its name. In JSON, ``label`` is the label, or a list of several. A whole
  number in ``KEY.cls`` is the number of the class; elsewhere a text that is the name of a class is that name;
* one archive, or a folder of archives ``*.tar``; those in ``train/`` and ``val/``, or with ``train`` and ``val`` as a
  word of their names, are the two parts of the data set (``sides.py`` has the other words);
* ``classes.txt`` beside them, where it is there: names of the classes by number, a line for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hwbench.data.archives import ArchiveMember
from hwbench.data.readers.annotations import read_lines
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.directions import is_directional
from hwbench.data.readers.entries import matching
from hwbench.data.readers.frame_rates import is_prepared
from hwbench.data.readers.lists import class_names
from hwbench.data.readers.media_index import ENDINGS
from hwbench.data.readers.sides import TRAIN, VAL, parted, side_files, side_of, side_of_word
from hwbench.data.readers.sides import listed as in_words
from hwbench.data.readers.tar_index import TarMember, tar_members
from hwbench.documents import read_json
from hwbench.errors import InvalidFile
from hwbench.printable import shown

_LABELS = (".cls", ".json", ".txt")
# Endings of lists of videos, which may be of what was unpacked.
_LISTS = (".txt", ".csv", ".parquet")


@readers.register("webdataset")
class WebDataset:
    """Videos inside of tar archives.

    Args:
        label: The key of the label in members ``KEY.json``.
        directional: ``yes`` where labels tell directions: clips are not flipped.
    """

    def __init__(self, label: str = "label", directional: str = "no") -> None:
        self.label, self.directional = label, is_directional(directional)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a tar archive, or a folder of them, or of sides with them and no lists beside these."""
        if path.is_file():
            return path.suffix == ".tar"
        return bool(matching(path, "*.tar")) or _has_sides_of_archives(path)

    def read(self, path: Path) -> Listing:
        """Videos in the order of the archives and their members.

        Raises:
            InvalidFile: No archive, one or a side that cannot be read, a video without a label, or an archive of no
                side where others have one.
        """
        train, val, notes = _shards(path)
        names = (path if path.is_dir() else path.parent) / "classes.txt"
        classes = tuple(row.text("line") for row in read_lines(names, "names of classes")) if names.is_file() else ()
        videos, others = self._videos(train, classes), self._videos(val, classes) if val else None
        labels = {label for video in (*videos, *(others or ())) for label in video.labels}
        return Listing(videos, others, classes or class_names(labels, path), self.directional, notes)

    def _videos(self, shards: Sequence[Path], classes: Sequence[str]) -> tuple[ListedVideo, ...]:
        listed: list[ListedVideo] = []
        for shard in shards:
            for video, label in _samples(shard):
                source = ArchiveMember(shard, video.name, video.offset_bytes, video.size_bytes)
                numbered = label.name.lower().endswith(".cls")
                texts = self._labels(label, f"{shard}!{label.name}")
                names = [_named(one, classes, source.name, numbered=numbered) for one in texts]
                several = label.name.lower().endswith(".json") and isinstance(
                    read_json(label.text or "")[self.label], list
                )
                listed.append(ListedVideo(shard, tuple(names) if several else names[0], source=source, row=source.name))
        if not listed:
            raise InvalidFile(f"{shards[0]}: expected videos ({' '.join(ENDINGS)}) with labels beside them, found none")
        return tuple(listed)

    def _labels(self, member: TarMember, place: str) -> list[str]:
        """The labels that a member tells."""
        text = member.text or ""
        if not member.name.lower().endswith(".json"):
            if not text.strip():
                raise InvalidFile(f"{place}: expected a label, found nothing")
            return [text.strip()]
        try:
            value = read_json(text)[self.label]
        except (ValueError, TypeError, KeyError):
            raise InvalidFile(f"{place}: expected a JSON object with the key {self.label!r}") from None
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, bool) or not isinstance(one, int | str) or one == "" for one in values):
            raise InvalidFile(f"{place}: expected a name, a number or a list of them as label, got {shown(value, 80)}")
        return [str(one) for one in values]


def _has_sides_of_archives(path: Path) -> bool:
    """Whether the folders to train and to validate on hold archives alone; what is to be tested on may be unopened."""
    if side_files(path, _LISTS) is not None:
        return False
    sides = {folder: side_of_word(folder.name) for folder in path.iterdir() if folder.is_dir()}
    asked = [folder for folder, side in sides.items() if side in (TRAIN, VAL)]
    return TRAIN in sides.values() and all(map(_holds_archives_alone, asked))


def _holds_archives_alone(folder: Path) -> bool:
    """Whether archives lie there, and no folders or videos, which may have come out of them."""
    return bool(matching(folder, "*.tar")) and not any(
        entry.suffix.lower() in ENDINGS or entry.is_dir() for entry in folder.iterdir()
    )


def _shards(path: Path) -> tuple[list[Path], list[Path], tuple[str, ...]]:
    """Archives for training, those for validation if they are told apart, and notes about what cannot be read.

    Folders below ``path`` that ``hwbench data prepare`` made are left out.
    """
    if path.is_file():
        return [path], [], ()
    archives, notes = matching(path, "*.tar"), list[str]()
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir() and not is_prepared(entry)):
        try:
            archives += matching(folder, "*.tar")
        except InvalidFile as error:
            if side_of(folder.name):
                raise
            notes.append(f"{error}; left out")
    if not archives:
        raise InvalidFile(f"{path}: expected archives *.tar in it or in its folders, found none")
    named = [(str(archive.relative_to(path)), archive) for archive in sorted(archives)]
    train, val, others = parted(path, named)
    if others:
        raise InvalidFile(
            f"{path}: expected one of the words train, val, test in the names of all archives or of none; "
            f"{in_words(others)} tell no side, others do"
        )
    return train, val, tuple(notes)


def _samples(shard: Path) -> Iterator[tuple[TarMember, TarMember]]:
    """Videos of an archive, each with the member that holds its label."""
    samples: dict[str, dict[str, TarMember]] = {}
    for member in tar_members(shard):
        folder, slash, name = member.name.rpartition("/")
        key, _, end = name.partition(".")
        end = f".{end.rpartition('.')[2].lower()}"
        if key:
            kind = "video" if end in ENDINGS else end
            if kind == "video" and kind in samples.get(f"{folder}{slash}{key}", {}):
                raise InvalidFile(f"{shard}!{member.name}: a second video of the key {key!r}")
            samples.setdefault(f"{folder}{slash}{key}", {})[kind] = member
    for key, members in samples.items():
        label = next((members[end] for end in _LABELS if end in members), None)
        if "video" not in members:
            continue
        if label is not None and label.text is None:
            raise InvalidFile(f"{shard}!{label.name}: {label.size_bytes} bytes, expected a label of at most 64 KiB")
        if label is None:
            raise InvalidFile(f"{shard}!{members['video'].name}: expected a label {key}.cls, .txt or .json beside it")
        yield members["video"], label


def _named(label: str, classes: Sequence[str], place: str, *, numbered: bool) -> str:
    """A label; where classes have names, the name of its number.

    Names may be numbers themselves: a label is a number first where it is ``numbered``, else a name.
    """
    is_number = re.fullmatch("[0-9]{1,6}", label) and int(label) < len(classes)
    if not classes or (label in classes and not (numbered and is_number)):
        return label
    if not is_number:
        raise InvalidFile(f"{place}: label {shown(label, 40)} is none of the {len(classes)} classes of classes.txt")
    return classes[int(label)]
