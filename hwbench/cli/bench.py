"""``hwbench bench``."""

from __future__ import annotations

from hwbench.api.bench import BenchRequest, bench
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit


def _run(request: BenchRequest, as_json: bool) -> None:
    with listening() as listener:
        values = bench(request, listener).to_json()
    if not as_json:
        values["ci95_ms"] = " - ".join(f"{bound:.4g}" for bound in values["ci95_ms"])
    emit(values, as_json=as_json)


add_command(app, "bench", BenchRequest, _run)
