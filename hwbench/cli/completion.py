"""What a shell completes the value of an option or an argument to: names of the workspace, and of what hwbench has.

A shell starts the program at each press of the tab key: nothing here loads numpy, torch or Optuna.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hwbench.api.requests import RequestField
from hwbench.errors import HwbenchError

# An option that takes several has them with commas.
_SEPARATOR = ","


def completion_of(one: RequestField) -> Callable[[str], list[str]] | None:
    """The function that typer asks for the values of a field, given what is typed of one; None: any text goes."""
    choices = one.option.choices
    names = (lambda: choices) if choices else _NAMES.get(one.option.names or one.name)
    if names is None or one.type is not str:
        return None

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(_SEPARATOR)
        try:
            return [before + comma + name for name in names() if name.startswith(last)]
        except HwbenchError:  # no workspace, or one that cannot be read: what it is says the command itself
            return []

    return complete


def _of_workspace(part: str) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from hwbench.workspace import Workspace

        return Workspace.find().names(part)

    return names


def _studies() -> Iterable[str]:
    from hwbench.workspace import STATE, Workspace

    folder = Workspace.find().root / STATE / "studies"  # looked at, not made
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ()


def _precisions() -> Iterable[str]:
    from hwbench.specs import Precision

    return [one.value for one in Precision]


def _runtimes() -> Iterable[str]:
    from hwbench.runtimes import names

    return names()


def _evaluators() -> Iterable[str]:
    from hwbench.studies.evaluators import evaluators

    return evaluators.names()


# By the name of the field, or by what its option says that its values are names of.
_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "device": _of_workspace("profiles"),
    "evaluator": _evaluators,
    "precision": _precisions,
    "runtime": _runtimes,
    "space": _of_workspace("search_spaces"),
    "study": _studies,
    "zoo": _of_workspace("zoo"),
}
