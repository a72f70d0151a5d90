"""``hwbench report``: one self-contained page about a study or about a device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, say
from hwbench.errors import InvalidValue


@app.command()
def report(
    study: Annotated[
        str | None, typer.Argument(help="Name of a finished study; or name a device with --device.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    model: Annotated[
        list[Path] | None, typer.Option(help="Folder of an exported model of the winner; may be repeated.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device: a folder of profiles/; instead of a study.")] = None,
    space: Annotated[
        list[str] | None, typer.Option(help="With --device: a space whose coverage to show; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a page about a study, or about a device.

    Of a study: front, predictions, history, blocks, int8 and fp32, and how to reproduce each number. Of a device: heat
    maps of its blocks, what int8 gains, predicted and measured networks, the course of measuring, coverage of spaces.

    The page is one file that opens without a network. What is not there yet is named in it, with the command for it.
    """
    if (study is None) == (device is None):
        raise InvalidValue("expected either a study or a device: hwbench report STUDY, or hwbench report --device NAME")
    if device is not None and model:
        raise InvalidValue("--model is about a study: hwbench report STUDY --model DIR")
    if study is not None and space:
        raise InvalidValue("--space is about a device: hwbench report --device NAME --space SPACE")
    if device is not None:
        _device(device, space or (), out, as_json)
    else:
        assert study is not None
        _study(study, model or (), out, as_json)


def _study(study: str, models: Sequence[Path], out: Path, as_json: bool) -> None:
    from hwbench.report import write
    from hwbench.workspace import Workspace

    started = time.monotonic()
    written = write(Workspace.find(), study, out, exported=models)
    for doubt in written.doubts:
        say(f"doubtful: {doubt}")
    lacking = written.missing()
    _say_written({"report": str(out), "study": study}, started, lacking, [*lacking, *written.doubts], out, as_json)


def _device(device: str, spaces: Sequence[str], out: Path, as_json: bool) -> None:
    from hwbench.report import write_device
    from hwbench.workspace import Workspace

    started = time.monotonic()
    lacking = write_device(Workspace.find(), device, out, spaces=spaces).missing()
    _say_written({"report": str(out), "device": device}, started, lacking, lacking, out, as_json)


def _say_written(
    values: dict[str, str], started: float, lacking: Sequence[str], listed: Sequence[str], out: Path, as_json: bool
) -> None:
    for reason in lacking:
        say(f"not in the report: {reason}")
    seconds = round(time.monotonic() - started, 1)
    emit(values | {"seconds": seconds} | ({"missing": list(listed)} if as_json else {}), as_json=as_json)
    say(f"open it in a browser: {out}")
