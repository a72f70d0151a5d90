"""``hwbench report``."""

from __future__ import annotations

from hwbench.api.report import ReportRequest, report
from hwbench.cli.app import app
from hwbench.cli.generated import add_command, without
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, say


def _run(request: ReportRequest, as_json: bool) -> None:
    with listening() as listener:
        values = report(request, listener).to_json()
    emit(values if as_json else without(values, "missing"), as_json=as_json)
    say(f"open it in a browser: {request.out}")


add_command(app, "report", ReportRequest, _run)
