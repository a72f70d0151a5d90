"""What every function of ``import hwbench`` asks of its arguments, in one place."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from hwbench.api import API
from hwbench.api.listener import SILENT, Listener
from hwbench.api.turns import ALONE, alone
from hwbench.errors import InvalidValue
from hwbench.registry import instance_of
from hwbench.workspace import Workspace, explaining


def published(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command as ``hwbench`` offers it: its arguments are checked before anything is done.

    The type of the request is read from the signature.

    Raises:
        InvalidValue: From the call: a request, a listener or a workspace of another type.
        WorkspaceError: From the call: the operating system or SQLite refused something, and the function did not say
            what that means.
        UsageError: From the call: another thread of this process is at a request, and both are of ``ALONE``.
    """
    name, signature = function.__name__, inspect.signature(function)
    request, *none = signature.parameters["request"].annotation.split(" | ")
    kind = getattr(import_module(API[request]), request)

    @functools.wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*values, **named)
        except TypeError:
            return function(*values, **named)  # whose own error names the argument
        given = bound.arguments
        if given.get("request") is not None or not none:
            _expect(kind, given["request"], name, f"make one: hwbench.{request}(...)")
        _expect(
            Listener, given.get("listener", SILENT), f"{name}: listener", "give one that inherits from hwbench.Listener"
        )
        workspace = given.get("workspace")
        if not isinstance(workspace, str | Path | None):
            _expect(Workspace, workspace, f"{name}: workspace", "give one, or its path")
        with explaining(), alone(name) if name in ALONE else contextlib.nullcontext():
            return function(*bound.args, **bound.kwargs)

    call.__module__ = "hwbench"  # where pickle finds it
    return call


def _expect(kind: type, value: object, what: str, advice: str) -> None:
    if wrong := instance_of(kind)(value):
        raise InvalidValue(f"{what}: {wrong}; {advice}")
