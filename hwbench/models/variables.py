"""Variables of the user's modules of Python and of classes, which a forward may change as it may change attributes."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from hwbench.blocks.kept import Kept, changed, values_of


class Variables:
    """The variables of some modules and classes as they are now, to compare with later and to put back."""

    def __init__(self, places: Iterable[ModuleType | type]) -> None:
        self._places = {_name_of(place): place for place in places}
        self._before = {name: {**_copies(place)} for name, place in self._places.items()}
        self._values = self._kept()

    def changed(self) -> list[str]:
        """The variables that are new or hold other values, as ``module.NAME`` or ``module.Class.NAME``."""
        return changed(self._values, self._kept())

    def put_back(self) -> None:
        """Gives the variables the values of before; a list or dict of before is a copy of it then."""
        for path in self.changed():
            place, _, name = path.rpartition(".")
            if name in self._before[place]:
                setattr(self._places[place], name, self._before[place][name])
            else:
                delattr(self._places[place], name)

    def _kept(self) -> Kept:
        return {
            f"{name}.{variable}": values_of(value)
            for name, place in self._places.items()
            for variable, value in _copies(place).items()
        }


def _name_of(place: ModuleType | type) -> str:
    return place.__name__ if isinstance(place, ModuleType) else f"{place.__module__}.{place.__qualname__}"


def _copies(place: ModuleType | type) -> dict[str, object]:
    """Variables by name; of lists and dicts copies, which stay as they are."""
    return {
        name: value.copy() if type(value) in (list, dict) else value
        for name, value in vars(place).items()
        if not name.startswith("__")
    }
