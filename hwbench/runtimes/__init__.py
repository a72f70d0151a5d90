"""Inference engines: build a file from a module, run it on a device, read the answer.

Importing this package loads neither torch nor an engine, and so does ``get``: an engine is loaded when it builds.
"""

from __future__ import annotations

from pathlib import Path

from hwbench.errors import InvalidFile
from hwbench.runtimes.base import DEFAULT, Runtime, check_ending, loading, runtimes, usable, without_choice
from hwbench.runtimes.capabilities import Capabilities, FileFormat, ModuleForm, Quantiser

# Where each runtime is defined. Importing its module registers it.
_MODULES = {
    "executorch": "hwbench.runtimes.executorch",
    "litert": "hwbench.runtimes.litert",
    "onnx": "hwbench.runtimes.onnx",
    "openvino": "hwbench.runtimes.openvino",
    "torch": "hwbench.runtimes.eager",
    "torchscript": "hwbench.runtimes.torchscript",
}
runtimes.defer(_MODULES)


def names() -> tuple[str, ...]:
    """All runtimes, sorted; whether their engines are installed is another matter."""
    return runtimes.names()


def get(name: str) -> Runtime:
    """The runtime called ``name``; its engine is loaded when it builds.

    Raises:
        UnknownName: No such runtime.
        MissingDependency: The package that offers it does not load.
        InvalidValue: Its package gives its files the ending of another runtime's.
    """
    check_ending(name)
    return runtimes.get(name)()


def of_file(path: Path) -> str | None:
    """The runtime whose files end like this one; None where there is none.

    The longest ending counts. An ending of hwbench's own runtimes is theirs, also where another package takes it.
    """
    endings = dict[str, str]()
    for name, known in loading().items():
        endings.setdefault(known.suffix, name)
    return next((endings[e] for e in sorted(endings, key=len, reverse=True) if path.name.endswith(e)), None)


def exporting() -> tuple[str, ...]:
    """The runtimes whose files hold a network, sorted: what a model is exported for."""
    return tuple(sorted(name for name, known in usable().items() if known.holds_weights))


def suffixes() -> str:
    """The endings of exported models, for a message: ``.pte, .onnx or .ts``."""
    known = usable()
    return in_words([known[name].suffix for name in exporting()])


def in_words(words: list[str] | tuple[str, ...]) -> str:
    """``a, b or c``."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def check_given(runtime: str, path: Path) -> None:
    """Refuses a file that only the build cache has a use for; ``path`` was given by a user, or lies with an export.

    Raises:
        InvalidFile: A file of eager PyTorch.
    """
    if not get(runtime).capabilities.holds_weights:
        raise InvalidFile(
            f"{path}: expected an exported model ({suffixes()}); a file for --runtime {runtime} names code of "
            f"hwbench, and none is taken from a file: name the network, as in hwbench bench zoo:x3d-xs "
            f"--runtime {runtime}"
        )


def check_format(runtime: str, path: Path) -> None:
    """Refuses a file that does not begin as those of a runtime do.

    Raises:
        InvalidFile: It begins in another way.
    """
    files = get(runtime).capabilities.files
    with path.open("rb") as file:
        start = file.read(files.magic_at + len(files.magic))
    if not files.matches(start):
        raise InvalidFile(f"{path}: expected {files.content}, found something else; export it again")


__all__ = [
    "DEFAULT",
    "Capabilities",
    "FileFormat",
    "ModuleForm",
    "Quantiser",
    "Runtime",
    "check_format",
    "check_given",
    "exporting",
    "get",
    "in_words",
    "names",
    "of_file",
    "runtimes",
    "suffixes",
    "usable",
    "without_choice",
]
