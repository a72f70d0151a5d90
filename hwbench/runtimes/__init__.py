"""Inference engines: build a file from a module, run it on a device, read the answer.

Importing this package loads neither torch nor an engine; ``get`` loads the one that is asked for.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from hwbench.errors import InvalidFile, UnknownName
from hwbench.registry import suggest
from hwbench.runtimes.base import Form, Runtime, runtimes

# Where each runtime is defined. Importing its module registers it.
_MODULES = {
    "executorch": "hwbench.runtimes.executorch",
    "onnx": "hwbench.runtimes.onnx",
    "torch": "hwbench.runtimes.eager",
    "torchscript": "hwbench.runtimes.torchscript",
}


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


def of_file(path: Path) -> str | None:
    """The runtime whose files end like this one; None where there is none. The longest ending counts."""
    endings = {get(name).suffix: name for name in names()}
    return next((endings[e] for e in sorted(endings, key=len, reverse=True) if path.name.endswith(e)), None)


# Runtimes whose files are working state of the build cache: they name code, and hold no weights.
INTERNAL = frozenset({"torch"})


def check_given(runtime: str, path: Path) -> None:
    """Refuses a file that only the build cache has a use for; ``path`` was given by a user, or lies with an export.

    Raises:
        InvalidFile: A file of eager PyTorch.
    """
    if runtime in INTERNAL:
        raise InvalidFile(
            f"{path}: expected an exported model (.pte, .onnx or .ts); a file for --runtime {runtime} names code of "
            f"hwbench, and none is taken from a file: name the network, as in hwbench bench zoo:x3d-xs "
            f"--runtime {runtime}"
        )


__all__ = ["INTERNAL", "Form", "Runtime", "check_given", "get", "names", "of_file", "runtimes"]
