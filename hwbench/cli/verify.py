"""``hwbench verify``."""

from __future__ import annotations

from hwbench.api.verify import VerifyRequest, VerifyResult, verify
from hwbench.cli.app import app
from hwbench.cli.diff import print_changes
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit


def _run(request: VerifyRequest, as_json: bool) -> None:
    with listening() as listener:
        result = verify(request, listener)
    if as_json or isinstance(result, VerifyResult):
        emit(result.to_json(), as_json=as_json)
    else:
        print_changes(result.changes, result.notes, title=result.path.stem)
        emit(result.summary(), as_json=False)
    result.check()


add_command(app, "verify", VerifyRequest, _run)
