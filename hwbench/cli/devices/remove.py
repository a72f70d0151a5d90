"""``hwbench devices remove``: a device file is deleted, its tables stay unless they are named."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli.devices import virtual
from hwbench.cli.devices.group import app
from hwbench.cli.devices.show import Name
from hwbench.cli.output import Json, emit, say
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.workspace import Workspace


@app.command()
def remove(
    name: Name,
    tables: Annotated[bool, typer.Option("--tables", help="Delete its latency tables as well.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a device: its file, with --tables its latency tables as well. What was measured stays in the store."""
    from hwbench.workspace import Workspace, writing

    workspace = Workspace.find()
    path = _removable(workspace, name)
    csv = sorted(path.parent.glob("*.csv"))
    keys = [path for path in [path.with_name("known_hosts")] if path.is_file()]
    going, staying = [path, *keys, *(csv if tables else [])], [] if tables else csv
    confirm(f"delete {', '.join(_named(workspace, file) for file in going)}?", yes, "--yes")
    with writing(path):
        for file in going:
            file.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    if virtual.stop(workspace, name):
        say(f"the laboratory of {name} was ended")
    if staying:
        say(f"{len(staying)} tables stay; with --tables they are deleted as well")
    removed, kept = ([_named(workspace, file) for file in files] for files in (going, staying))
    values = {"device": name, "removed": removed, "kept": kept}
    emit(values if as_json else {"device": name, "removed": ", ".join(removed)}, as_json=as_json)


def _removable(workspace: Workspace, name: str) -> Path:
    from hwbench.devices.device import SHIPPED

    path = workspace.device(name)
    if name in SHIPPED or not path.is_relative_to(workspace.root):
        raise InvalidValue(
            f"device {name!r} comes with hwbench and stays; to reach it in another way: "
            f"hwbench devices add {name} --force, with --ssh, --adb or --local"
        )
    return path


def _named(workspace: Workspace, path: Path) -> str:
    return str(path.relative_to(workspace.root))


def confirm(question: str, yes: bool, option: str) -> None:
    """Asks on the terminal, unless it was answered on the command line.

    Raises:
        InvalidValue: There is nobody to ask, or the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidValue(f"{question} There is no terminal to ask on: add {option}")
    with contextlib.suppress(typer.Abort):  # the end of the input is a no
        if typer.confirm(question, err=True):
            return
    raise InvalidValue("nothing was done")
