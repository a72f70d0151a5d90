"""``hwbench dashboard``."""

from __future__ import annotations

import contextlib
import sys

from hwbench.api.dashboard import DashboardRequest, dashboard
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, say


def _run(request: DashboardRequest, as_json: bool) -> None:
    with contextlib.ExitStack() as stack:
        with listening() as listener:
            page = stack.enter_context(dashboard(request, listener))
        emit(page.to_json(), as_json=as_json)
        sys.stdout.flush()  # whoever reads it wants the URL while the page is served
        say("serving; Ctrl-C ends it")
        page.serve()


add_command(app, "dashboard", DashboardRequest, _run)
