"""Data sets of Hugging Face with a column of videos: saved to disk, or as Parquet files.

* ``save_to_disk``: a folder with ``dataset_dict.json`` and a folder for each split, or with ``state.json``;
* Parquet: a folder of ``train-*.parquet`` and ``validation-*.parquet``, also in ``data/``, or one file.

Splits are told by the words of their names (``sides.py``). Beside a split ``train``, others such as ``train_small`` are
selections of it and are left out; so are splits whose names tell no side, where others do. A note names them.

Read with pyarrow; the package ``datasets`` is not needed. Videos are bytes, or paths relative to the table.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hwbench.data.arrow import ArrowTable, RowSource, open_table
from hwbench.data.readers.annotations import read_object
from hwbench.data.readers.base import ListedVideo, Listing, readers
from hwbench.data.readers.directions import is_directional
from hwbench.data.readers.entries import matching_where_there
from hwbench.data.readers.lists import class_names, fault_of_classes
from hwbench.data.readers.sides import listed as in_words
from hwbench.data.readers.sides import parted, side_of, side_of_word
from hwbench.documents import read_json
from hwbench.errors import InvalidFile
from hwbench.printable import shown

# What follows the name of a split in the name of a Parquet file: train-00000-of-00010-b513d9e388d56453.parquet.
_SHARD = re.compile(r"([-_.]\d+(-of-\d+)?(-[0-9a-f]{8,})?)?\.(parquet|arrow)$")


@readers.register("huggingface")
class HuggingFace:
    """A table with a video and a label in each row.

    Args:
        video: The column of videos.
        label: The column of labels: names, numbers, or lists of them.
        directional: ``yes`` where labels tell directions: clips are not flipped.
    """

    def __init__(self, video: str = "video", label: str = "label", directional: str = "no") -> None:
        self.video, self.label, self.directional = video, label, is_directional(directional)

    def recognises(self, path: Path) -> bool:
        """Whether the path is a folder that ``datasets`` saved, or one of Parquet files whose names tell sides."""
        saved = any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))
        return saved or (path.is_dir() and any(side_of(name) for name, _ in _parquet(path)))

    def read(self, path: Path) -> Listing:
        """Videos in the order of the rows.

        Raises:
            InvalidFile: No table, a table without these columns, or a label that is none.
            MissingDependency: pyarrow is not installed.
        """
        splits = _saved(path) or _parquet(path)
        if not splits:
            raise InvalidFile(
                f"{path}: expected a data set of Hugging Face: dataset_dict.json or state.json in a folder, or Parquet"
            )
        whole, selections = _whole(splits)
        train, val, others = parted(path, whole)
        videos, validated = self._videos(train), self._videos(val) if val else None
        labels = {label for video in (*videos, *(validated or ())) for label in video.labels}
        classes = _class_names(open_table(train[0]), self.label) or class_names(labels, path)
        left_out = {
            "since their names tell neither train, val nor test": others,
            "as selections of a split that is there whole": selections,
        }
        notes = tuple(f"{path}: left out, {why}: {in_words(names)}" for why, names in left_out.items() if names)
        return Listing(videos, validated, classes, self.directional, notes)

    def _videos(self, files: Sequence[Path]) -> tuple[ListedVideo, ...]:
        return tuple(video for file in files for video in self._rows(file))

    def _rows(self, file: Path) -> Iterator[ListedVideo]:
        table = open_table(file)
        for column in (self.video, self.label):
            if column not in table.schema.names:
                known = ", ".join(table.schema.names)[:200]
                is_table = {"path", "label"} <= set(table.schema.names)
                table_hint = f", or read the table: --data {shlex.quote(f'table:{file}')}" if is_table else ""
                raise InvalidFile(
                    f"{file}: expected a column {column!r}, the table has {known}; see options video, label{table_hint}"
                )
        names = _class_names(table, self.label)
        paths = str(table.schema.field(self.video).type) in ("string", "large_string")
        for group in range(table.groups):
            cells = table.column(group, self.video).to_pylist() if paths else ()
            for row, value in enumerate(table.column(group, self.label).to_pylist()):
                source = RowSource(file, self.video, group, row)
                label = _label(value, names, source.name)
                if paths:
                    yield ListedVideo(file.parent / str(cells[row]), label, row=source.name)
                else:
                    yield ListedVideo(file, label, source=source, row=source.name)


def _saved(path: Path) -> list[tuple[str, Path]]:
    """The files of a data set that was saved to disk, each with its split."""
    if (path / "dataset_dict.json").is_file():
        splits = read_object(path / "dataset_dict.json").get("splits")
        if not isinstance(splits, list) or not all(isinstance(name, str) for name in splits):
            raise InvalidFile(f"{path / 'dataset_dict.json'}: expected a list of 'splits'")
        return [(name, file) for name in splits for file in _state(path / name)]
    return [("train", file) for file in _state(path)] if (path / "state.json").is_file() else []


def _state(folder: Path) -> list[Path]:
    """The files of one split."""
    state = read_object(folder / "state.json")
    files = state.get("_data_files")
    if not isinstance(files, list) or not files:
        raise InvalidFile(f"{folder / 'state.json'}: expected a list of '_data_files'")
    if state.get("_indices_data_files"):
        raise InvalidFile(f"{folder / 'state.json'}: its rows are indexed; call flatten_indices() before save_to_disk")
    names = [file.get("filename") if isinstance(file, dict) else None for file in files]
    paths = [folder / name for name in names if isinstance(name, str)]
    if len(paths) < len(names):
        raise InvalidFile(f"{folder / 'state.json'}: expected a 'filename' of each of '_data_files'")
    return paths


def _parquet(path: Path) -> list[tuple[str, Path]]:
    """Parquet files, each with its name, which tells its split."""
    if path.is_file():
        return [("train", path)] if path.suffix in (".parquet", ".arrow") else []
    files = [*matching_where_there(path, "*.parquet"), *matching_where_there(path / "data", "*.parquet")]
    return [(file.name, file) for file in sorted(files)]


def _whole(splits: Sequence[tuple[str, Path]]) -> tuple[list[tuple[str, Path]], list[str]]:
    """Files of splits that are not selections of another, and the names of selections.

    Beside a split ``train``, ``train_small`` is a selection, and ``train-00000-of-00010.parquet`` a file of the split.
    """
    words = {name: _SHARD.sub("", name) for name, _ in splits}
    whole = {side_of_word(word) for word in words.values()} - {""}
    selections = [name for name, word in words.items() if side_of(word) in whole and not side_of_word(word)]
    return [(name, file) for name, file in splits if name not in selections], selections


def _class_names(table: ArrowTable, column: str) -> tuple[str, ...]:
    """Names of the classes of a column, in the order of their numbers, where the table was told them."""
    try:
        feature: Any = read_json((table.schema.metadata or {})[b"huggingface"])["info"]["features"][column]
        while "names" not in feature:
            feature = feature["feature"]
        names = feature["names"]
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _label(value: object, names: Sequence[str], place: str) -> str | tuple[str, ...]:
    if isinstance(value, list):
        if fault := fault_of_classes(value):
            raise InvalidFile(f"{place}: label {shown(value, 80)} {fault}")
        return tuple(dict.fromkeys(_class_name(one, names, place) for one in value))
    return _class_name(value, names, place)


def _class_name(value: object, names: Sequence[str], place: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise InvalidFile(f"{place}: expected a name or a whole number as label, got {shown(value, 80)}")
    if not names or isinstance(value, str):
        return str(value)
    if not 0 <= value < len(names):
        raise InvalidFile(f"{place}: label {value} is none of the {len(names)} classes of the table")
    return names[value]
