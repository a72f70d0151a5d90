"""``hwbench report``: one self-contained page about a study."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, say


@app.command()
def report(
    study: Annotated[str, typer.Argument(help="Name of a finished study.")],
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    model: Annotated[
        list[Path] | None, typer.Option(help="Folder of an exported model of the winner; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a page about a study: front, predictions, history, blocks, int8 and fp32, and how to reproduce each number.

    The page is one file that opens without a network. What is not there yet is named in it, with the command for it.
    """
    from hwbench.report import write
    from hwbench.workspace import Workspace

    started = time.monotonic()
    written = write(Workspace.find(), study, out, exported=model or ())
    lacking = [*written.missing(), *written.doubts]
    for reason in lacking:
        say(f"not in the report: {reason}" if reason in written.missing() else f"doubtful: {reason}")
    values = {"report": str(out), "study": study, "seconds": round(time.monotonic() - started, 1)}
    emit(values | ({"missing": lacking} if as_json else {}), as_json=as_json)
    say(f"open it in a browser: {out}")
