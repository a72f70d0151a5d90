"""``hwbench init``: a workspace somewhere else than in the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, say


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Directory to make, or to complete.", metavar="DIR")],
    as_json: Json = False,
) -> None:
    """Make a workspace: the shipped search spaces, devices and model cards; existing files are left as they are."""
    from hwbench.workspace import PARTS, Workspace

    workspace = Workspace.create(directory.resolve())
    found = {part: len(workspace.names(part)) for part in PARTS[:3]}
    emit({"workspace": str(workspace.root), **found}, as_json=as_json)
    say(f"next: cd {directory} && hwbench doctor")
