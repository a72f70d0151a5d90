"""Text files of data sets: lines, tables and JSON, whose faults are told with their place (``FILE:LINE``)."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from hwbench.data.readers.entries import matching_where_there
from hwbench.documents import read_json
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.printable import shown

_SECONDS = re.compile(r"(?:([0-9]{1,4}):)?(?:([0-9]{1,4}):)?([0-9]{1,9}(?:\.[0-9]{1,18})?)")
_NEXT_VALUE = re.compile(r"[\s,]*([^\s,\]])")
_LONGEST_S = 1e9
# In characters: a file of another kind may have no end of a line.
_LONGEST_HEADER = 10_000
# Halves of characters, which JSON may hold and no file.
_SURROGATE = re.compile("[\ud800-\udfff]")
_WHOLE = re.compile(r"[0-9]{1,15}")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,60})?(?:[eE][+-]?[0-9]{1,2})?)(?:/([0-9]{1,6}))?")
_MOST_FPS = 10**6
# Of a frame rate in decimals: the float 29.97002997002997 is 30000/1001 again, and six decimals stay what they are.
_LARGEST_DENOMINATOR = 10**6


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a text file: its values by column, and where it stands."""

    file: Path
    line: int
    values: Mapping[str, Any]

    @property
    def place(self) -> str:
        """``FILE:LINE``."""
        return f"{self.file}:{self.line}"

    def fault(self, text: str) -> InvalidFile:
        """An error about this row."""
        return InvalidFile(f"{self.place}: {text}")

    def text(self, column: str) -> str:
        """A value that is text and not empty."""
        value = self.values.get(column)
        if not isinstance(value, str) or not value.strip() or _SURROGATE.search(value):
            raise self.fault(f"expected text as {column!r}, got {shown(value, 80)}")
        return value.strip()

    def whole(self, column: str) -> int:
        """A whole number from 0."""
        value = self.values.get(column)
        if isinstance(value, bool) or not _WHOLE.fullmatch(str(value).strip()):
            raise self.fault(f"expected a whole number as {column!r}, got {shown(value, 80)}")
        return int(str(value))

    def seconds(self, column: str) -> Fraction:
        """A time: seconds, or ``HH:MM:SS.ff``."""
        return self.as_seconds(self.values.get(column), column)

    def as_seconds(self, value: object, column: str) -> Fraction:
        """A value of this row as a time: seconds, or ``HH:MM:SS.ff``."""
        if isinstance(value, float) and 0 <= value < _LONGEST_S:
            return Fraction(str(value))
        match = _SECONDS.fullmatch(str(value).strip())
        if match is None:
            raise self.fault(f"expected a time such as 12.5 or 00:01:02.50 as {column!r}, got {shown(value, 80)}")
        hours, minutes, seconds = match.groups()
        if minutes is None:
            hours, minutes = None, hours
        return 3600 * int(hours or 0) + 60 * int(minutes or 0) + Fraction(seconds)


def read_text(file: Path) -> str:
    """A text file in UTF-8, whose lines end as Python's do.

    Raises:
        InvalidFile: It cannot be read, or is no text.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidFile(f"{file}: expected text in UTF-8") from None
    except OSError as error:
        raise InvalidFile(f"{file}: {error.strerror}") from None


def read_lines(file: Path, expected: str) -> list[Row]:
    """Lines that are not blank, as rows with the column ``line``.

    Raises:
        InvalidFile: No such line; ``expected`` says what was to stand there.
    """
    lines = read_text(file).split("\n")
    rows = [Row(file, number, {"line": line.strip()}) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise InvalidFile(f"{file}: expected {expected}, found none")
    return rows


def read_table(
    file: Path, columns: Sequence[str], *, delimiter: str = ",", header: Sequence[str] | None = None
) -> list[Row]:
    """All rows of a file of comma-separated values; arguments and errors are those of ``table_rows``."""
    return list(table_rows(file, columns, delimiter=delimiter, header=header))


def first_row(file: Path) -> list[str]:
    """The first row of a file of comma-separated values, of which no more is read; none of what is no such file."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return [value.strip() for value in next(csv.reader([lines.readline(_LONGEST_HEADER)]), [])]
    except (csv.Error, UnicodeDecodeError, OSError):
        return []


def table_rows(
    file: Path, columns: Sequence[str], *, delimiter: str = ",", header: Sequence[str] | None = None
) -> Iterator[Row]:
    """Rows of a file of comma-separated values, one at a time: tables of AVA have a million, of which few are kept.

    Args:
        file: The file.
        columns: Columns which the file must have.
        delimiter: Character between two values.
        header: Names of the columns of a file that begins with a row of data; None: its first row has them.

    Raises:
        InvalidFile: A missing column, a row that is too short, or no row.
    """
    table = csv.reader(io.StringIO(read_text(file)), delimiter=delimiter)
    names, count, line = header, 0, 1
    try:
        for values in table:
            at, line = line, table.line_num + 1
            if not any(value.strip() for value in values):
                continue
            if names is None:
                names = [value.strip() for value in values]
                _check_columns(file, at, names, columns)
                continue
            row = Row(file, at, dict(zip(names, values)))
            if len(values) < len(names) and any(column not in row.values for column in columns):
                raise row.fault(f"expected {len(names)} columns ({', '.join(names)[:200]}), got {len(values)}")
            count += 1
            yield row
    except csv.Error as error:
        raise InvalidFile(f"{file}:{line}: {error}") from None
    if not count:
        raise InvalidFile(f"{file}: expected a table with the columns {', '.join(columns)}, found no row")


def read_object(file: Path) -> dict[str, Any]:
    """The object of a JSON file.

    Raises:
        InvalidFile: No JSON, or another value than an object.
    """
    value = _read_json(file)
    if not isinstance(value, dict):
        raise InvalidFile(f"{file}: expected a JSON object, got {shown(value, 80)}")
    return value


def read_list(file: Path) -> list[Any]:
    """The list of a JSON file.

    Raises:
        InvalidFile: No JSON, or another value than a list.
    """
    value = _read_json(file)
    if not isinstance(value, list):
        raise InvalidFile(f"{file}: expected a JSON list, got {shown(value, 80)}")
    return value


def read_objects(file: Path) -> list[Row]:
    """The objects of a JSON list, each with the line on which it begins.

    Raises:
        InvalidFile: No JSON, another value than a list, or no object in it.
    """
    if not isinstance(_read_json(file), list):
        raise InvalidFile(f"{file}: expected a JSON list of objects")
    text, rows = read_text(file), []
    at, line, decoder = text.index("[") + 1, 1, json.JSONDecoder()
    counted = 0
    while match := _NEXT_VALUE.match(text, at):
        line += text.count("\n", counted, match.start(1))
        counted = match.start(1)
        value, at = decoder.raw_decode(text, counted)
        if not isinstance(value, dict):
            raise InvalidFile(f"{file}:{line}: expected a JSON object, got {shown(value, 80)}")
        rows.append(Row(file, line, value))
    if not rows:
        raise InvalidFile(f"{file}: expected a JSON list of objects, found none in it")
    return rows


def find_file(root: Path, *names: str, below: Sequence[str] = ("annotations",)) -> Path | None:
    """The first file whose name fits one of some patterns, in a folder or in its folders ``below``.

    Raises:
        InvalidFile: One of the folders cannot be read: the file may lie there.
    """
    folders = [root, *(root / name for name in below)]
    for name in names:
        for folder in folders:
            files = [path for path in matching_where_there(folder, name) if path.is_file()]
            if files:
                return files[0]
    return None


def choice(option: str, value: str, allowed: Sequence[str]) -> str:
    """The value of an option that takes some words.

    Raises:
        InvalidValue: Another word.
    """
    if value not in allowed:
        raise InvalidValue(f"option {option}: expected {', '.join(allowed)}, got {shown(value, 80)}")
    return value


def frame_rate(value: str) -> Fraction:
    """The value of an option ``fps``: 25, 29.97, 29.97002997002997 or 30000/1001.

    Raises:
        InvalidValue: No number above 0, or a million and more.
    """
    match = _RATE.fullmatch(value)
    rate = Fraction(match[1]).limit_denominator(_LARGEST_DENOMINATOR) if match else Fraction(0)
    if match is None or not 0 < rate < _MOST_FPS or (match[2] and not int(match[2])):
        raise InvalidValue(f"option fps: expected frames a second such as 25 or 30000/1001, got {shown(value, 80)}")
    return rate / int(match[2] or 1)


def _check_columns(file: Path, line: int, names: Sequence[str], columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in names]
    if missing:
        raise InvalidFile(f"{file}:{line}: expected a column {missing[0]!r}, the table has {shown(', '.join(names))}")


def _read_json(file: Path) -> Any:
    text = read_text(file)
    try:
        return read_json(text)
    except json.JSONDecodeError as error:
        raise InvalidFile(f"{file}:{error.lineno}: expected JSON ({error.msg})") from None
    except ValueError as error:
        raise InvalidFile(f"{file}: expected JSON ({error})") from None
