"""Frozen dataclasses as JSON and back, strictly: what is unknown, missing or of another type is an error."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from hwbench.errors import HwbenchError, InvalidValue
from hwbench.printable import printable
from hwbench.registry import suggest

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A record as dicts, lists, texts and numbers."""
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return str(value) if isinstance(value, enum.StrEnum) else value


def from_plain(kind: type[T], values: Any, where: str = "") -> T:
    """The record of class ``kind`` that ``to_plain`` wrote. All fields must be there, also those with a default.

    Raises:
        InvalidValue: An unknown or missing key, a wrong type, or values the class refuses; the message says where.
    """
    if not isinstance(values, dict):
        raise InvalidValue(f"{where or 'file'}: expected an object, got {_short(values)}")
    hints = typing.get_type_hints(kind)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # only called with dataclasses
    unknown = [name for name in values if name not in names]
    if unknown:
        raise InvalidValue(f"unknown key {_place(where, unknown[0])!r}; {suggest(unknown[0], names)}")
    missing = [name for name in names if name not in values]
    if missing:
        raise InvalidValue(f"key {_place(where, missing[0])!r} is missing")
    read = {name: _read(hints[name], values[name], _place(where, name)) for name in names}
    try:
        return kind(**read)
    except HwbenchError as error:
        raise InvalidValue(f"{where}: {error}" if where else str(error)) from None


def _read(hint: Any, value: Any, where: str) -> Any:
    """A value of the annotated type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):  # only ``X | None`` is used
        (wanted,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else _read(wanted, value, where)
    if origin is tuple:
        return _read_tuple(arguments, value, where)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise InvalidValue(f"{where}: expected an object, got {_short(value)}")
        return {key: _read(arguments[1], item, _place(where, key)) for key, item in value.items()}
    if is_dataclass(hint):
        return from_plain(typing.cast(type[Any], hint), value, where)
    return _read_scalar(hint, value, where)


def _read_tuple(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    """``tuple[X, ...]`` of any length, ``tuple[X, Y]`` of that one."""
    length = None if arguments[-1] is Ellipsis else len(arguments)
    if not isinstance(value, list) or length not in (None, len(value)):
        raise InvalidValue(f"{where}: expected a list{f' of {length}' if length else ''}, got {_short(value)}")
    return tuple(_read(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))


def _read_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is object:
        return value
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum) and value in list(hint):
        return hint(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and isinstance(value, bool) == (hint is bool):
        return value
    allowed = f"one of {', '.join(hint)}" if issubclass(hint, enum.StrEnum) else f"a value of type {hint.__name__}"
    raise InvalidValue(f"{where}: expected {allowed}, got {_short(value)}")


def _place(where: str, name: str) -> str:
    return f"{where}.{printable(name)}" if where else printable(name)


def _short(value: Any) -> str:
    return repr(value)[:80]
