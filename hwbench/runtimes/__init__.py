"""Inference engines: build a file from a module, run it on a device, read the answer.

Importing this package loads neither torch nor an engine; ``get`` loads the one that is asked for.
"""

from __future__ import annotations

import importlib

from hwbench.errors import UnknownName
from hwbench.registry import suggest
from hwbench.runtimes.base import Runtime, runtimes

# Where each runtime is defined. Importing its module registers it.
_MODULES = {"executorch": "hwbench.runtimes.executorch", "torch": "hwbench.runtimes.eager"}


def names() -> tuple[str, ...]:
    """All runtimes, sorted; whether their engines are installed is another matter."""
    return tuple(sorted({*_MODULES, *runtimes.names()}))


def get(name: str) -> Runtime:
    """The runtime called ``name``; its engine is loaded when it builds.

    Raises:
        UnknownName: No such runtime.
    """
    if name in _MODULES:
        importlib.import_module(_MODULES[name])
    elif name not in runtimes:
        raise UnknownName(f"unknown runtime {name!r}; {suggest(name, names())}")
    return runtimes.get(name)()


__all__ = ["Runtime", "get", "names", "runtimes"]
