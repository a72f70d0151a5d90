"""Names to things. A name binds once; an unknown name is answered with the nearest known ones."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from hwbench.errors import HwbenchError, MissingDependency, UnknownName
from hwbench.printable import enumeration, printable, shown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
# Says what was expected and what came instead, of a thing of the wrong kind; empty: of the right one.
Check = Callable[[object], str]

MAX_NAME = 200
# Exit statuses of a process that a signal ended: 128 and the number.
_SIGNALLED = range(129, 128 + 65)


def suggest(name: str, known: Iterable[str]) -> str:
    """The tail of an error message about an unknown name: the nearest known names, then all of them."""
    known = sorted(known)
    # What is as long as a page is no misspelt name, and comparing takes the square of its length.
    near = difflib.get_close_matches(name[:MAX_NAME], known, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return f"{meant}known: {', '.join(known) if known else 'none'}"


def package_of(point: EntryPoint) -> str:
    """Name of the distribution that an entry point is of, as pip knows it."""
    return point.dist.name if point.dist is not None else point.module


def is_ending(error: BaseException) -> bool:
    """Whether an error is that of a signal which ends the program (``hwbench.cli.signals``)."""
    return isinstance(error, SystemExit) and error.code in _SIGNALLED


@contextmanager
def blaming(who: str, on: str = "") -> Iterator[None]:
    """Around a call of what is not ours: what it raises is told in one line with its name; a HwbenchError passes.

    Args:
        who: What is called, in words.
        on: What it is called with, for the message.

    Raises:
        HwbenchError: It has raised something else, or called ``sys.exit``.
    """
    try:
        yield
    except HwbenchError:
        raise
    except (Exception, SystemExit) as error:
        if is_ending(error):
            raise
        cause = printable(f"{type(error).__name__}: {error}", 500)
        raise HwbenchError(f"{who} failed{f' on {on}' if on else ''}: {cause}") from error


def instance_of(kind: type) -> Check:
    """Expects an instance of a class."""

    def check(item: object) -> str:
        return "" if isinstance(item, kind) else f"expected {_a(kind.__name__)}, got {_what(item)}"

    return check


def class_with(*attributes: str) -> Check:
    """Expects a class that has these attributes."""

    def check(item: object) -> str:
        missing = [name for name in attributes if not hasattr(item, name)]
        if isinstance(item, type) and not missing:
            return ""
        without = f" without {enumeration(missing)}" if isinstance(item, type) else ""
        return f"expected a class with {enumeration(attributes)}, got {_what(item)}{without}"

    return check


def a_callable(item: object) -> str:
    """Expects a function, or what else can be called."""
    return "" if callable(item) else f"expected a function, got {_what(item)}"


def _what(item: object) -> str:
    if item is None:
        return "None"
    return f"the class {item.__name__}" if isinstance(item, type) else _a(type(item).__name__)


def _a(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeiouAEIOU' else 'a'} {noun}"


class Registry(Generic[T]):
    """An open set of named things of one kind, filled where the things are defined, and by other packages.

    Args:
        kind: What the things are, in words.
        entry_points: The group of entry points in which an installed package names things of its own
            (``name = "package.module:thing"``). One is loaded when its name is asked for; a thing of hwbench's own
            keeps its name.
        expects: What such a package has to offer: ``instance_of``, ``class_with`` or ``a_callable``; None: anything.
        named: Each thing says its name itself, as ``name``, and is found by it; an entry point of another name is
            refused.
    """

    def __init__(self, kind: str, entry_points: str = "", expects: Check | None = None, *, named: bool = False) -> None:
        self.kind = kind
        self.entry_points = entry_points
        self._expects = expects
        self._named = named
        self._reserved: set[str] = set()
        self._modules: dict[str, str] = {}
        self._items: dict[str, T] = {}
        self._offered: dict[str, tuple[T, str]] = {}  # items of other packages, with what messages call each
        self._broken: set[str] = set()

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator which binds ``name``; a second binding of the same name is a programming error."""

        def bind(item: T) -> T:
            if name in self._items:
                raise ValueError(f"{self.kind} {name!r} is already registered as {self._items[name]!r}")
            self._items[name] = item
            return item

        return bind

    def defer(self, modules: Mapping[str, str]) -> None:
        """Names things of hwbench's own, each with the module that registers it; imported when a name is asked for."""
        self._modules.update(modules)

    def reserve(self, names: Iterable[str]) -> None:
        """Names that mean something of hwbench's own and are no things here: no other package takes them."""
        self._reserved.update(names)

    def get(self, name: str) -> T:
        """The thing called ``name``.

        Raises:
            UnknownName: Nothing has that name.
            MissingDependency: The package that offers it does not load, or offers a thing of another kind or name.
        """
        if name not in self._items:
            if name not in self:
                raise UnknownName(f"unknown {self.kind} {name!r}; {suggest(name, self.names())}")
            self._load(name)
        return self._items[name]

    def find(self, name: str) -> T | None:
        """The thing called ``name``, or None where nothing has that name.

        Raises:
            MissingDependency: The package that offers it does not load, or offers a thing of another kind.
        """
        return self.get(name) if name in self else None

    def names(self) -> tuple[str, ...]:
        """All names, sorted. Loads nothing."""
        return tuple(sorted({*self._items, *self._modules, *self._points}))

    def loading(self) -> dict[str, T]:
        """All things by name, hwbench's own first; those of other packages that do not load are left out."""
        things = dict[str, T]()
        for name in sorted(set(self.names()) - self._broken, key=lambda name: (self.point(name) is not None, name)):
            try:
                things[name] = self.get(name)
            except MissingDependency:
                self._broken.add(name)
        return things

    def point(self, name: str) -> EntryPoint | None:
        """The entry point that offers the thing called ``name``; None where hwbench does, or nobody."""
        return None if self.is_own(name) else self._points.get(name)

    def is_own(self, name: str) -> bool:
        """Whether the thing called ``name`` is hwbench's own, which no other package replaces. Loads nothing."""
        own = name in self._items and name not in self._offered
        return own or name in self._modules or name in self._reserved

    def __contains__(self, name: str) -> bool:
        return name in self._items or name in self._modules or name in self._points

    def origin(self, item: object) -> str:
        """``KIND 'NAME' of the package P``, for messages; empty where no other package has offered the thing here."""
        return next((title for offered, title in self._offered.values() if offered is item), "")

    def blaming(self, item: object, on: str = "") -> AbstractContextManager[None]:
        """``blaming`` where another package has offered the thing; errors of hwbench's own things pass as they are."""
        origin = self.origin(item)
        return blaming(origin, on) if origin else nullcontext()

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """What installed packages offer, by name."""
        if not self.entry_points:
            return {}
        from importlib.metadata import entry_points

        found = [point for point in entry_points(group=self.entry_points) if point.name not in self._reserved]
        return {point.name: point for point in reversed(found)}  # of two packages the first on the path

    def _load(self, name: str) -> None:
        if name in self._modules:
            importlib.import_module(self._modules[name])
            return
        point = self._points[name]
        package = package_of(point)
        title = f"{self.kind} {name!r} of the package {package}"
        mend = f"mend it, or remove it: python -m pip uninstall {package}"
        try:
            item = point.load()
        except (Exception, SystemExit) as error:
            if is_ending(error):
                raise
            cause = f"{type(error).__name__}: {error}"
            raise MissingDependency(f"{title} does not load ({point.value}): {cause}; {mend}") from error
        wrong = self._expects(item) if self._expects is not None else ""
        if not wrong and self._named and (own := getattr(item, "name", None)) != name:
            wrong = f"expected the name of the entry point, {name!r}, as its name, got {shown(own)}"
        if wrong:
            raise MissingDependency(f"{title} ({point.value}): {wrong}; {mend}")
        self._items[name] = item
        self._offered[name] = item, title
