"""``hwbench profile``."""

from __future__ import annotations

import typer

from hwbench.api.profile import profile
from hwbench.api.profile_request import ProfileRequest
from hwbench.cli.app import app as program
from hwbench.cli.generated import add_group
from hwbench.cli.listening import listening
from hwbench.cli.output import emit


def _run(request: ProfileRequest, as_json: bool) -> None:
    with listening() as listener:
        result = profile(request, listener)
    values = result.to_json()
    if as_json or len(request.devices) == 1:
        emit(values, as_json=as_json)
    else:
        for one in values["devices"]:
            emit(one, as_json=False, title=one["device"])
    if result.status:
        raise typer.Exit(result.status)


app = add_group(program, "profile", ProfileRequest, _run)
