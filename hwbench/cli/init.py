"""``hwbench init``."""

from __future__ import annotations

import shlex
from pathlib import Path

from hwbench.api.init import InitRequest, init
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.output import emit, say


def _run(request: InitRequest, as_json: bool) -> None:
    emit(init(request).to_json(), as_json=as_json)
    here = request.directory.resolve() == Path.cwd()
    there = "" if here else f"cd {shlex.quote(str(request.directory))} && "
    say(f"next: {there}hwbench doctor")


add_command(app, "init", InitRequest, _run)
