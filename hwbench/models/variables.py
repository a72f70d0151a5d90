"""Variables of the user's modules of Python, which a forward may change as it may change attributes."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from hwbench.blocks.kept import Kept, changed, values_of


class Variables:
    """The variables of some modules as they are now, to compare with later and to put back."""

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        self._modules = {module.__name__: module for module in modules}
        self._before = {name: {**_copies(module)} for name, module in self._modules.items()}
        self._values = self._kept()

    def changed(self) -> list[str]:
        """The variables that are new or hold other values, as ``module.NAME``."""
        return changed(self._values, self._kept())

    def put_back(self) -> None:
        """Gives the variables the values of before; a list or dict of before is a copy of it then."""
        for place in self.changed():
            module, _, name = place.rpartition(".")
            if name in self._before[module]:
                setattr(self._modules[module], name, self._before[module][name])
            else:
                delattr(self._modules[module], name)

    def _kept(self) -> Kept:
        return {
            f"{name}.{variable}": values_of(value)
            for name, module in self._modules.items()
            for variable, value in _copies(module).items()
        }


def _copies(module: ModuleType) -> dict[str, object]:
    """Variables by name; of lists and dicts copies, which stay as they are."""
    return {
        name: value.copy() if type(value) in (list, dict) else value
        for name, value in vars(module).items()
        if not name.startswith("__")
    }
