"""Recipes in files: TOML with the fields of ``Recipe``, read strictly; those below ``recipes/`` come with the package.

A file has ``schema = 1``, ``about``, ``source``, any fields of a recipe, and ``base_batch``: the batch that its
learning rate is for. The rate of another batch is that rate times the quotient of both (Goyal et al. 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from hwbench.errors import InvalidFile, InvalidValue, UnknownName
from hwbench.registry import suggest
from hwbench.toml_fields import Fields
from hwbench.training.recipe import USUAL, Recipe
from hwbench.units import MOST_WHOLE

_SHIPPED = Path(__file__).with_name("recipes")
# A list of texts, as the kind of a field.
_TEXTS = list
_KINDS: dict[str, type] = {
    one.name: _TEXTS if one.type == "tuple[str, ...]" else type(one.default) for one in fields(Recipe)
}


@dataclass(frozen=True)
class RecipeFile:
    """What a file says; ``values`` are those fields of a recipe that it sets."""

    path: Path
    about: str
    source: str
    values: Mapping[str, Any] = field(default_factory=dict)
    base_batch: int | None = None

    @classmethod
    def read(cls, path: Path) -> RecipeFile:
        """Reads a file.

        Raises:
            InvalidFile: It is no such file; an unknown key is answered with the nearest known one.
        """
        file = Fields.read(path, most=MOST_WHOLE)
        about, source = file.text("about", ""), file.text("source", "")
        base_batch = file.integer("base_batch", 0) or None
        # asked for whether they are there or not: these are the known keys
        stated = {name: _value(file, name) for name in _KINDS}
        values = {name: value for name, value in stated.items() if name in file}
        file.done()
        read = cls(path, about, source, values, base_batch)
        # the batch that comes from elsewhere may be any multiple of the repeats
        batch = {} if "batch_size" in values else {"batch_size": max(1, stated["repeats"])}
        try:
            read.recipe(batch)
        except InvalidValue as error:
            raise InvalidFile(f"{path}: {error}") from None
        if base_batch is None and "base_batch" in file:
            raise file.error("base_batch", "expected at least 1", 0)
        return read

    @classmethod
    def named(cls, text: str) -> RecipeFile:
        """The file at a path, or a recipe that comes with the package, by its name.

        Raises:
            UnknownName: Neither.
            InvalidFile: As ``read``.
        """
        if Path(text).suffix == ".toml":
            return cls.read(Path(text))
        if text not in names():
            raise UnknownName(f"unknown recipe {text!r}; {suggest(text, names())}; or give a file: --recipe FILE.toml")
        return cls.read(_SHIPPED / f"{text}.toml")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> RecipeFile:
        """Fields of a recipe as if they stood in a file."""
        return cls(Path(), "", "", values)

    def with_default(self, **values: Any) -> RecipeFile:
        """The same with values for fields that are not set."""
        return replace(self, values={**values, **self.values})

    def recipe(self, overrides: Mapping[str, Any] | None = None) -> Recipe:
        """The recipe, some fields of it replaced; a rate that is not among these follows the batch.

        Rate, momentum and decay that nobody gives are what is usual for the optimizer.
        """
        overrides = overrides or {}
        values = {**self.values, **overrides}
        recipe = replace(Recipe(), **{**USUAL.get(values.get("optimizer", ""), {}), **values})
        if self.base_batch and "learning_rate" not in overrides:
            recipe = replace(recipe, learning_rate=recipe.learning_rate * recipe.batch_size / self.base_batch)
        return recipe


def names() -> tuple[str, ...]:
    """Names of the recipes that come with the package, sorted."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.toml")))


def parse_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """Fields of a recipe out of texts ``NAME=VALUE``.

    Raises:
        InvalidValue: Another form, or a value of another type.
        UnknownName: A recipe has no such field.
    """
    return dict(_setting(text) for text in settings)


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise InvalidValue(f"--set: expected NAME=VALUE, got {text!r}")
    if name not in _KINDS:
        raise UnknownName(f"--set: a recipe has no {name!r}; {suggest(name, _KINDS)}")
    try:
        return name, _READERS[_KINDS[name]](value)
    except (ValueError, KeyError):
        raise InvalidValue(f"--set: {name}: expected {_EXPECTED[_KINDS[name]]}, got {value!r}") from None


def setting_texts(values: Mapping[str, object], optimizer: str = Recipe.optimizer) -> list[str]:
    """The texts ``NAME=VALUE`` of those values that are not the usual ones; ``parse_settings`` reads them.

    Args:
        values: By field, lists in the place of tuples as JSON has them; what is no field is passed over.
        optimizer: What is said of it elsewhere; it brings its usual values.
    """
    usual = RecipeFile.of({"optimizer": optimizer} if optimizer in USUAL else {}).recipe()
    known = {name: _plain(value) for name, value in values.items() if name in _KINDS}
    return [f"{name}={_text(name, value)}" for name, value in known.items() if value != getattr(usual, name)]


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return (";" if _KINDS[name] is _TEXTS else ",").join(map(str, value))
    return str(value)


_READERS: dict[type, Any] = {
    str: str,
    int: int,
    float: float,
    bool: {"true": True, "false": False}.__getitem__,
    tuple: lambda text: tuple(float(part) for part in text.split(",")),
    _TEXTS: lambda text: tuple(filter(None, (part.strip() for part in text.split(";")))),
}
_EXPECTED = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    tuple: "numbers with commas between them",
    _TEXTS: "names with semicolons between them",
}


def _value(file: Fields, name: str) -> Any:
    """One field of a recipe as the file has it, or its default."""
    kind, default = _KINDS[name], getattr(Recipe, name)
    if kind is bool:
        return file.flag(name, default)
    if kind is int:
        return file.integer(name, default)
    if kind is float:
        return file.number(name, default)
    if kind is str:
        return file.text(name, default)
    if kind is _TEXTS:
        return file.texts(name, default)
    return file.numbers(name, default)
