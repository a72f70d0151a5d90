"""Requests: frozen dataclasses that hold every decision of a command, each with its default and its documentation.

The command line and the reference pages are made from them (``hwbench.cli.generated``). Loads nothing of weight.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import dataclass_transform

from hwbench.errors import InvalidValue
from hwbench.printable import enumeration
from hwbench.registry import suggest
from hwbench.units import MOST_WHOLE

Request = TypeVar("Request")
_KEY = "option"
EMPTY = "expected a value, got an empty one; is a shell variable unset?"
"""What is said behind the label of a field whose text is empty or of blanks."""
# What is taken for a number, and becomes one of Python.
_NUMBERS: Mapping[type, type] = {int: numbers.Integral, float: numbers.Real}


@dataclass(frozen=True)
class Option:
    """How one field of a request is documented, bounded and typed on a command line.

    Args:
        help: One sentence, for ``--help`` and the reference.
        minimum: Smallest legal number.
        maximum: Largest legal number.
        argument: A positional argument of the command instead of an option.
        flags: Spellings on the command line; default: ``--`` and the name of the field.
        metavar: Placeholder of the value in ``--help``; default: the type.
        choices: The legal texts where they are fixed; a registry's names are checked by the registry.
        alone: Value of an option that is typed without one; None: the option needs a value.
        blank: Whether a text or path may be empty or of blanks, as an unset shell variable makes it;
            also where the request refuses such a text in words of its own.
        names: What a shell completes the value to, where the name of the field does not say it: ``device``, ``study``
            or ``zoo``.
    """

    help: str
    minimum: float | None = None
    maximum: float | None = None
    argument: bool = False
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    alone: str | None = None
    blank: bool = False
    names: str = ""


@dataclass(frozen=True)
class RequestField:
    """One field of a request: its name, its type without None, whether None is legal, its default, its documentation.

    ``default`` is ``dataclasses.MISSING`` for a field that must be given. ``many``: a tuple of ``type``.
    """

    name: str
    type: type
    optional: bool
    many: bool
    default: Any
    option: Option

    @property
    def required(self) -> bool:
        """Whether the field has no default."""
        return self.default is dataclasses.MISSING

    @property
    def label(self) -> str:
        """How a message names the field: as it is typed on the command line."""
        if self.option.argument:
            return self.name.upper()
        first, *_ = self.option.flags or (f"--{self.name.replace('_', '-')}",)
        return first.partition("/")[0]


def option(
    *,
    default: Any = dataclasses.MISSING,
    help: str,
    min: float | None = None,
    max: float | None = None,
    argument: bool = False,
    flags: tuple[str, ...] = (),
    metavar: str | None = None,
    choices: tuple[str, ...] = (),
    alone: str | None = None,
    blank: bool = False,
    names: str = "",
) -> Any:
    """A field of a request; the arguments are those of ``Option``.

    All by name: type checkers read the default of a field from a keyword alone.
    """
    documented = Option(help, min, max, argument, flags, metavar, choices, alone, blank, names)
    return dataclasses.field(default=default, metadata={_KEY: documented})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option,))
def request(cls: type[Request]) -> type[Request]:
    """Makes a class a request: a frozen dataclass of keyword arguments whose values are checked when it is made.

    Numbers are finite and held against ``min`` and ``max``, texts against ``choices`` and ``blank``. Lists become
    tuples and strings paths where the annotation says so. A ``validate`` method, where the class has one, checks what
    fields say together.

    Raises:
        InvalidValue: From the constructor: a value of another type or beyond its bounds, a field that is unknown,
            missing or given by position; the field is named. No TypeError: a request is often made of what a person
            wrote (``TrainRequest(**settings)``), and ``except HwbenchError`` catches all that is wrong with it.
    """

    def checked(self: Any) -> None:
        for one in fields_of(type(self)):
            object.__setattr__(self, one.name, _checked(one, getattr(self, one.name)))
        validate: Callable[[], None] | None = getattr(self, "validate", None)
        if validate is not None:
            validate()

    cls.__post_init__ = checked  # type: ignore[attr-defined]
    made = dataclass(frozen=True, kw_only=True)(cls)
    take = made.__init__

    @functools.wraps(take)
    def __init__(self: Any, /, *values: Any, **fields: Any) -> None:
        _check_fields(made, values, fields)
        take(self, **fields)

    made.__init__ = __init__  # type: ignore[assignment, method-assign]
    return made


def _check_fields(cls: type, values: tuple[Any, ...], given: Mapping[str, Any]) -> None:
    fields = dataclasses.fields(cls)
    required = [one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING]
    if values:
        first = (*required, *(one.name for one in fields))[0]
        raise InvalidValue(f"{cls.__name__}: expected fields by name ({first}=...), got {values[0]!r} without one")
    known = [one.name for one in fields]
    for name in given:
        if name not in known:
            raise InvalidValue(f"{cls.__name__}: unknown field {name!r}; {suggest(name, known)}")
    if missing := [name for name in required if name not in given]:
        asked = ", ".join(f"{name}=..." for name in missing)
        raise InvalidValue(f"{cls.__name__}: {enumeration(missing)} must be given: {cls.__name__}({asked})")


def fields_of(cls: type) -> tuple[RequestField, ...]:
    """The fields of a request, in the order of the class."""
    found: tuple[RequestField, ...] | None = cls.__dict__.get("_request_fields")
    if found is None:
        hints = typing.get_type_hints(cls)
        found = tuple(_field(one, hints[one.name]) for one in dataclasses.fields(cls))
        cls._request_fields = found  # type: ignore[attr-defined]
    return found


def changed(request: object, *names: str) -> tuple[str, ...]:
    """The labels of those of some fields of a request that are not at their defaults, in the order of ``names``."""
    fields = {one.name: one for one in fields_of(type(request))}
    return tuple(fields[name].label for name in names if getattr(request, name) != fields[name].default)


def _field(one: dataclasses.Field[Any], hint: Any) -> RequestField:
    parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
    optional = isinstance(hint, types.UnionType) and len(parts) < len(typing.get_args(hint))
    inner = parts[0] if optional else hint
    many = typing.get_origin(inner) is tuple
    kind = typing.get_args(inner)[0] if many else inner
    return RequestField(one.name, kind, optional, many, one.default, one.metadata[_KEY])


def _checked(one: RequestField, value: Any) -> Any:
    if value is None and one.optional:
        return None
    if one.many:
        if isinstance(value, str | bytes) or not isinstance(value, list | tuple):
            raise InvalidValue(f"{one.label}: expected a list, got {value!r}")
        return tuple(checked_value(one, part) for part in value)
    return checked_value(one, value)


def checked_value(one: RequestField, value: Any) -> Any:
    """A value that is not None as a field of a request keeps it; of a field that is ``many``, one of its values.

    Raises:
        InvalidValue: It is of another type, or beyond the bounds of the field, which is named.
    """
    blank = isinstance(value, str) and not value.strip() and not one.option.blank
    if blank and one.type in (str, Path) and not one.option.choices:
        raise InvalidValue(f"{one.label}: {EMPTY}")
    if one.type is Path and isinstance(value, str):
        return Path(value)
    number = _NUMBERS.get(one.type)
    if number is not None and isinstance(value, number) and not isinstance(value, bool):
        try:
            value = one.type(value)  # also one of NumPy, which is not loaded for that
        except OverflowError:  # a whole number
            value = math.inf if value > 0 else -math.inf
    kind: Any = one.type
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise InvalidValue(f"{one.label}: expected {kind.__name__}, got {value!r}")
    if kind is float and not math.isfinite(value):  # NaN is beyond no bound
        raise InvalidValue(f"{one.label}: expected a finite number, got {value!r}")
    least, most = one.option.minimum, one.option.maximum
    if kind is int and abs(value) > MOST_WHOLE:  # Python writes no number of 5,000 digits
        wanted = f"a whole number of at most {MOST_WHOLE}" if most is None else _bounds(least, most)
        raise InvalidValue(f"{one.label}: expected {wanted}")
    if (least is not None and value < least) or (most is not None and value > most):
        raise InvalidValue(f"{one.label}: expected {_bounds(least, most)}, got {value!r}")
    if one.option.choices and value not in one.option.choices:
        raise InvalidValue(f"{one.label}: expected {_either(one.option.choices)}, got {value!r}")
    return value


def _either(choices: tuple[str, ...]) -> str:
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last


def _bounds(least: float | None, most: float | None) -> str:
    if most is None:
        return f"at least {least:g}"
    return f"at most {most:g}" if least is None else f"{least:g} to {most:g}"
