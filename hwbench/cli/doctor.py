"""``hwbench doctor``."""

from __future__ import annotations

import typer

from hwbench.api.doctor import DoctorRequest, doctor
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say
from hwbench.errors import CheckFailed


def _run(request: DoctorRequest, as_json: bool) -> None:
    with listening() as listener:
        result = doctor(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        rows = [("ok" if f.ok else "missing" if f.needed else "-", f.name, f.found) for f in result.findings]
        print_table(("", "", ""), rows, header=False)
    for finding in result.findings:
        if not finding.ok:
            say(f"{finding.name}: {finding.advice}")
    if not result.ok:
        raise typer.Exit(CheckFailed.exit_status)


add_command(app, "doctor", DoctorRequest, _run)
