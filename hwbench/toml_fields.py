"""Reads TOML files field by field, so that a misspelt key or a wrong type is one clear error which names the file.

Search spaces, cards and device files are read so, and their errors have one form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hwbench.documents import read_toml
from hwbench.errors import InvalidFile
from hwbench.printable import shown
from hwbench.registry import suggest

T = TypeVar("T")

SCHEMA = 1
# Products of three still fit into a float; a network has no number near it.
MAX_VALUE = 1e18


class Fields:
    """The keys of one TOML table. Each is asked for once by a typed method; ``done`` refuses those nobody asked for.

    A scalar where a list is expected counts as a list of one, so a space writes ``frames = 8`` for a fixed choice. A
    method with a default gives that for a key which is not there; empty text and empty lists are valid where they are
    the default.

    Args:
        values: By key.
        path: The file, for errors.
        where: The place of the table in the file; empty at the top.
        most: The largest number, also of the tables inside.
    """

    def __init__(self, values: dict[str, Any], path: Path, where: str = "", most: float = MAX_VALUE) -> None:
        self.path = path
        self.where = where
        self.most = most
        self._values = values
        self._known: set[str] = set()

    @classmethod
    def read(cls, path: Path, most: float = MAX_VALUE) -> Fields:
        """Opens a TOML file of schema 1, in UTF-8 with or without the mark (BOM) that some editors write before it.

        Args:
            path: The file.
            most: The largest number in it.

        Raises:
            InvalidFile: It cannot be read, is no TOML, or is of another schema.
        """
        try:
            values = read_toml(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError) as error:
            raise InvalidFile(f"{path}: cannot be read as TOML: {error}") from None
        fields = cls(values, path, most=most)
        schema = fields.integer("schema")
        if schema != SCHEMA:
            raise InvalidFile(f"{path}: expected schema = {SCHEMA}, got {schema}; a newer hwbench may read it")
        return fields

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        return self._scalar(name, default, self._as_text)

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number, at least 0."""
        return self._scalar(name, default, self._as_integer)

    def number(self, name: str, default: float | None = None) -> float:
        """A number, at least 0."""
        return self._scalar(name, default, self._as_number)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """``true`` or ``false``."""
        return self._scalar(name, default, self._as_flag)

    def value(self, name: str, kind: type, *, required: bool) -> str | int | bool | None:
        """A string (also an empty one), a whole number, ``true`` or ``false``; None where it may be left out and is."""
        self._known.add(name)
        if not required and name not in self._values:
            return None
        value = self._take(name)
        if kind is bool:
            return self._as_flag(name, value)
        if kind is int:
            return self._as_integer(name, value)
        return "" if value == "" else self._as_text(name, value)

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A string or a list of different strings."""
        return self._list(name, self._as_text, default)

    def integers(self, name: str, default: tuple[int, ...] | None = None, *, least: int = 0) -> tuple[int, ...]:
        """A whole number or a list of different ones, each at least ``least``."""
        return self._list(name, partial(self._as_integer, least=least), default)

    def numbers(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """A number or a list of different ones."""
        return self._list(name, self._as_number, default)

    def series(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, one for each of several things; they may repeat."""
        value = self._take(name)
        if not isinstance(value, list) or not value:
            raise self.error(name, "expected a list of whole numbers", value)
        return tuple(self._as_integer(name, v) for v in value)

    def number_series(self, name: str) -> tuple[float, ...]:
        """A list of numbers, at least 0, one for each of several things; they may repeat."""
        value = self._take(name)
        if not isinstance(value, list) or not value:
            raise self.error(name, "expected a list of numbers", value)
        return tuple(self._as_number(name, v) for v in value)

    def words(self, name: str) -> tuple[str, ...]:
        """A list of strings, one for each of several things; they may repeat."""
        value = self._take(name)
        if not isinstance(value, list) or not value:
            raise self.error(name, "expected a list of texts in quotes", value)
        return tuple(self._as_text(name, v) for v in value)

    def measures(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """A list of numbers, as many as the default has; they may repeat."""
        self._known.add(name)
        if name not in self._values:
            return default
        value = self._take(name)
        if not isinstance(value, list) or len(value) != len(default):
            raise self.error(name, f"expected a list of {len(default)} numbers", value)
        return tuple(self._as_number(name, v) for v in value)

    def table(self, name: str, *, required: bool = True, most: float | None = None) -> Fields:
        """A table, ``[name]`` in the file; an empty one where it may be left out and is.

        ``most``: the largest number in it; default: that of the table around it.
        """
        self._known.add(name)
        most = self.most if most is None else most
        if not required and name not in self._values:
            return Fields({}, self.path, self._place(name), most)
        value = self._take(name)
        if not isinstance(value, dict):
            raise self.error(name, f"expected a table [{self._place(name)}]", value)
        return Fields(value, self.path, self._place(name), most)

    def tables(self, name: str, *, required: bool = True) -> Iterator[Fields]:
        """The tables of a list, ``[[name]]`` in the file."""
        self._known.add(name)
        if not required and name not in self._values:
            return
        value = self._take(name)
        if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
            raise self.error(name, f"expected at least one table [[{self._place(name)}]]", value)
        for index, item in enumerate(value, start=1):
            yield Fields(item, self.path, f"{self._place(name)} {index}", self.most)

    def __contains__(self, name: object) -> bool:
        """Whether the table has a key, which is a known one from then on."""
        self._known.add(str(name))
        return name in self._values

    def done(self) -> None:
        """Ends the reading of this table.

        Raises:
            InvalidFile: A key is left that nobody asked for; the nearest known key is named.
        """
        for name in self._values:
            if name not in self._known:
                inside = f" in [{self.where}]" if self.where else ""
                raise InvalidFile(f"{self.path}: unknown key {shown(name)}{inside}; {suggest(name, self._known)}")

    def error(self, name: str, expected: str, got: object, mend: str = "") -> InvalidFile:
        """The error that a value of this table does not fit; ``mend`` is what puts it right."""
        return InvalidFile(f"{self.path}: {self._place(name)}: {expected}, got {shown(got)}{mend and f'; {mend}'}")

    def _place(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name

    def _take(self, name: str) -> Any:
        self._known.add(name)
        if name not in self._values:
            near = [key for key in self._values if key not in self._known]
            hint = f"; the file has {', '.join(sorted(near))[:200]}" if near else ""
            raise InvalidFile(f"{self.path}: key {self._place(name)!r} is missing{hint}")
        return self._values[name]

    def _scalar(self, name: str, default: T | None, convert: Callable[[str, Any], T]) -> T:
        self._known.add(name)
        if default is not None and name not in self._values:
            return default
        if default == "" == self._values.get(name):
            return default
        return convert(name, self._take(name))

    def _list(self, name: str, convert: Callable[[str, Any], T], default: tuple[T, ...] | None = None) -> tuple[T, ...]:
        self._known.add(name)
        if default is not None and (name not in self._values or self._values[name] == list(default) == []):
            return default
        value = self._take(name)
        values = tuple(convert(name, v) for v in (value if isinstance(value, list) else [value]))
        if not values or len(set(values)) != len(values):
            raise self.error(name, "expected one or more different values", value)
        return values

    def _as_text(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise self.error(name, "expected text in quotes", value)
        return value

    def _as_flag(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.error(name, "expected true or false", value)
        return value

    def _as_integer(self, name: str, value: Any, *, least: int = 0) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= self.most:
            raise self.error(name, f"expected a whole number, {self._bound(value, least)}", value)
        return value

    def _as_number(self, name: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= self.most:
            raise self.error(name, f"expected a number, {self._bound(value)}", value)
        return float(value)

    def _bound(self, value: object, least: int = 0) -> str:
        """The bound that a value breaks: the upper one where it is a number beyond that."""
        above = isinstance(value, int | float) and value > self.most
        return f"at most {self.most}" if above else f"at least {least}"
