"""Tables of one's own: a file, a DataFrame of pandas, or rows in Python.

Columns ``path`` (relative to the folder of the file) and ``label``; and, where one needs them, ``start_s`` and
``end_s`` (the part of the video that the label is about), ``split`` (``train``, ``val`` or ``test``), ``group``
(videos of one group stay on one side of a split) and ``directional`` (``yes`` in a row: labels of the table tell
directions, and no clip is flipped). Without ``split`` a fifth of each class is taken to validate on.

A folder with ``train.csv`` and ``val.csv`` (or ``.parquet``, and other words of ``sides.py``) is two tables, and so is
the first of them where the second lies beside it. Where its own column ``split`` tells what to validate on, that holds.

A label or a group that would be a formula to spreadsheets (``=``, ``+``, ``-`` or ``@`` in front) may have an
apostrophe before it in a CSV file, as ``hwbench data check --out`` writes it; reading takes that away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.data.readers.annotations import Row, table_rows
from hwbench.data.readers.base import ListedVideo, Listing, Part, readers
from hwbench.data.readers.directions import ANSWERS, DIRECTIONAL
from hwbench.data.readers.lists import class_names, fault_of_classes, label_of
from hwbench.data.readers.sides import TEST, TRAIN, VAL, side_files, side_of_word
from hwbench.errors import InvalidFile, InvalidValue, MissingDependency
from hwbench.printable import from_cell, shown

# Columns of CSV files in which an apostrophe before what would be a formula is none of the text.
AS_CELLS = ("label", "group")
_ENDS = (".csv", ".parquet")

if TYPE_CHECKING:
    from pandas import DataFrame


@readers.register("table")
class Table:
    """A CSV or Parquet file with a row for each video or part of one.

    Args:
        separator: What stands between the classes of a video that may show several, such as ``|``; empty: a video has
            one class.
    """

    def __init__(self, separator: str = "") -> None:
        self.separator = separator

    def recognises(self, path: Path) -> bool:
        """Whether the path is a Parquet file; CSV files without a name are read as lists."""
        return path.is_file() and path.suffix == ".parquet"

    def read(self, path: Path) -> Listing:
        """Videos in the order of the rows.

        Raises:
            InvalidFile: No table, no column ``path`` or ``label``, or a row that does not parse, or is to be trained on
                and stands in the table to validate on.
            MissingDependency: pyarrow, which reads Parquet files, is not installed.
        """
        files = side_files(path, _ENDS)
        if path.is_dir() and files is None:
            raise InvalidFile(
                f"{path}: expected a table (.csv or .parquet), or a folder with train.csv and val.csv (or .parquet)"
            )
        train, val = files or (path, None)
        rows = _rows(train)
        if val is None:
            return _listing(rows, train.parent, train, self.separator)
        if any(_side(row) != TRAIN for row in rows):
            note = f"{train}: its column split tells what to validate on; {val.name} beside it is not read"
            return replace(_listing(rows, train.parent, train, self.separator), notes=(note,))
        return _listing([*rows, *map(_to_validate_on, _rows(val))], train.parent, path, self.separator)


def listing_of(rows: DataFrame | Iterable[Mapping[str, Any] | ListedVideo], root: Path | str = ".") -> Listing:
    """A list of videos out of Python.

    Args:
        rows: A DataFrame of pandas, or mappings, with the columns that are told above; a label may be a list of several
            classes, not of a 0 or 1 for each. Or ``ListedVideo`` themselves.
        root: Folder to which paths are relative.

    Raises:
        InvalidFile: A row that does not parse; rows are counted from 1.
        InvalidValue: Rows that are neither mappings nor ``ListedVideo``.
    """
    columns = getattr(rows, "columns", None)
    values = rows if columns is None else rows.to_dict(orient="records")  # type: ignore[union-attr]
    listed: list[ListedVideo] = []
    tabled: list[Row] = []
    for number, row in enumerate(values, start=1):
        if isinstance(row, ListedVideo):
            listed.append(row)
        elif isinstance(row, Mapping):
            tabled.append(Row(Path("rows"), number, row))
        else:
            raise InvalidValue(f"rows:{number}: expected a mapping or a ListedVideo, got {shown(row, 80)}")
    if listed and tabled:
        raise InvalidValue("expected rows of one kind, got mappings and ListedVideo")
    return Listing(tuple(listed)) if listed else _listing(tabled, Path(root), Path("rows"))


def _listing(rows: Iterable[Row], root: Path, name: Path, separator: str = "") -> Listing:
    sides: dict[str, list[ListedVideo]] = {TRAIN: [], VAL: [], TEST: []}
    directional = False
    for row in rows:
        sides[_side(row)].append(_video(row, root, separator))
        directional |= _is_directional(row)
    if not sides[TRAIN]:
        raise InvalidFile(f"{name}: expected rows with videos to train on, found none")
    val = sides[VAL] or sides[TEST]
    labels = {label for video in (*sides[TRAIN], *val) for label in video.labels}
    return Listing(tuple(sides[TRAIN]), tuple(val) or None, class_names(labels, name), directional=directional)


def _side(row: Row) -> str:
    split = _value(row, "split", TRAIN)
    side = side_of_word(split)
    if not side:
        raise row.fault(f"expected a split of train, val or test, got {shown(split, 40)}")
    return side


def _is_directional(row: Row) -> bool:
    answer = _value(row, DIRECTIONAL, "no")
    if answer.lower() not in ANSWERS:
        raise row.fault(f"expected yes or no as {DIRECTIONAL!r}, got {shown(answer, 40)}")
    return ANSWERS[answer.lower()]


def _to_validate_on(row: Row) -> Row:
    """A row of a table to validate on, with its split."""
    split = _value(row, "split", VAL)
    if side_of_word(split) == TRAIN:
        raise row.fault(f"expected a split of val or test in the table to validate on, got {shown(split, 40)}")
    return replace(row, values={**row.values, "split": split})


def _video(row: Row, root: Path, separator: str) -> ListedVideo:
    path = row.values.get("path")
    if isinstance(path, Path):
        path = str(path)
    if not isinstance(path, str) or not path.strip():
        raise row.fault(f"expected a file as 'path', got {shown(path, 80)}")
    start, end = (_seconds(row, column) for column in ("start_s", "end_s"))
    if start is not None and end is not None and start >= end:
        raise row.fault(f"expected start_s before end_s, got {float(start):g} and {float(end):g}")
    part = None if start is None and end is None else Part(start, end)
    label = _label(row, separator)
    return ListedVideo(root / path.strip(), label, part=part, group=_value(row, "group", ""), row=row.place)


def _seconds(row: Row, column: str) -> Any:
    return None if _value(row, column, "") == "" else row.seconds(column)


def _label(row: Row, separator: str) -> str | tuple[str, ...]:
    value = row.values.get("label")
    if isinstance(value, str) and separator:
        names = [label_of(word.strip()) for word in value.split(separator) if word.strip()]
    elif isinstance(value, list | tuple | set | frozenset) or (
        hasattr(value, "tolist") and not isinstance(value, Real)
    ):
        values = sorted(value) if isinstance(value, set | frozenset) else list(value)  # type: ignore[arg-type]
        names = [_class_name(row, one) for one in values]
    else:
        return _class_name(row, value)
    if fault := fault_of_classes(names):
        raise row.fault(f"label {shown(value, 80)} {fault}")
    return tuple(dict.fromkeys(names))


def _class_name(row: Row, value: object) -> str:
    """A class as text; pandas makes floats of whole numbers where others of their column are missing."""
    if isinstance(value, Real) and not isinstance(value, bool | Integral) and float(value).is_integer():
        value = int(value)  # type: ignore[call-overload]
    if isinstance(value, bool) or not isinstance(value, str | Integral) or not str(value).strip():
        raise row.fault(f"expected a name or a whole number as 'label', got {shown(value, 80)}")
    return label_of(str(value).strip())


def _value(row: Row, column: str, default: str) -> str:
    """A text that may be missing."""
    value = row.values.get(column)
    missing = value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip()
    return default if missing else str(value).strip()


def _rows(path: Path) -> list[Row]:
    return _parquet_rows(path) if path.suffix == ".parquet" else _csv_rows(path)


def _csv_rows(path: Path) -> list[Row]:
    rows = table_rows(path, ("path", "label"))
    return [replace(row, values={**row.values, **_texts(row)}) for row in rows]


def _texts(row: Row) -> Mapping[str, str]:
    """What the cells of a row say that may be formulas."""
    return {column: from_cell(row.values[column].strip()) for column in AS_CELLS if column in row.values}


def _parquet_rows(path: Path) -> list[Row]:
    from pandas import read_parquet

    try:
        frame = read_parquet(path)
    except ImportError:
        raise MissingDependency(
            f"{path}: reading Parquet needs pyarrow, which is not installed; "
            "install it with: python -m pip install 'hwbench[huggingface]'"
        ) from None
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: expected a Parquet file ({' '.join(str(error).split())[:200]})") from None
    for column in ("path", "label"):
        if column not in frame.columns:
            raise InvalidFile(f"{path}:1: expected a column {column!r}, the table has {', '.join(frame.columns)[:200]}")
    return [Row(path, number, row) for number, row in enumerate(frame.to_dict(orient="records"), start=1)]
