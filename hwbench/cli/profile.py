"""``hwbench profile``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from hwbench.api.profile import profile
from hwbench.api.profile_request import ProfileRequest
from hwbench.cli.app import app as program
from hwbench.cli.generated import add_group
from hwbench.cli.listening import listening
from hwbench.cli.output import emit
from hwbench.cli.signals import GOES_ON
from hwbench.units import format_duration


def _run(request: ProfileRequest, as_json: bool) -> None:
    with listening() as listener:
        result = profile(request, listener)
    values = result.to_json()
    if as_json:
        emit(values, as_json=True)
    elif len(request.devices) == 1:
        emit(_shown(values), as_json=False)
    else:
        for one in values["devices"]:
            emit(_shown(one), as_json=False, title=one["device"])
    if result.status:
        raise typer.Exit(result.status)


def _shown(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is printed of one device: what has a value, and of a refresh what it did."""
    moves = [one for one in values.get("scales", ()) if "scale_before" in one]
    if not moves:
        return {key: value for key, value in values.items() if value is not None}
    shown = {"device": values["device"], "target": values["target"], "anchors": values["ok"]}
    if values["failed"]:
        shown["failed"] = values["failed"]
    for one, table in zip(moves, values["tables"], strict=True):
        shown |= {f"scale, {one['precision']}": _move(one), f"table, {one['precision']}": table}
    shown["took"] = format_duration(values["seconds"])
    return shown | {key: values[key] for key in ("status",) if key in values}


def _move(scale: Mapping[str, Any]) -> str:
    """By how much predictions of a table moved."""
    before = f"{scale['scale_before']:.3f} before"
    if scale["scale"] is None:
        return before
    interval = f"{scale['scale_low']:.3f} to {scale['scale_high']:.3f}"
    return f"{before}, {scale['scale']:.3f} now (95 %: {interval})"


def _after(request: ProfileRequest) -> str:
    """What goes on after an interruption: with ``--remeasure`` the rows that are done would be measured once more."""
    return f"without --remeasure {GOES_ON}" if request.remeasure else GOES_ON


app = add_group(program, "profile", ProfileRequest, _run, after=_after)
