"""``hwbench bench``."""

from __future__ import annotations

from typing import Any

from hwbench.api.bench import ALL, BenchRequest, bench
from hwbench.api.bench_engines import bench_engines
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say


def _run(request: BenchRequest, as_json: bool) -> None:
    with listening() as listener:
        values = (bench_engines if request.runtime == ALL else bench)(request, listener).to_json()
    if as_json:
        emit(values, as_json=True)
    elif "engines" in values:
        _print_engines(values)
    else:
        values["ci95_ms"] = _interval(values)
        emit(values, as_json=False)


def _print_engines(values: dict[str, Any]) -> None:
    """A row an engine, the fastest first; who is left out on stderr."""
    title = f"{values['model']} in {values['precision']} on {values['device']}, {values['threads']} thread(s)"
    rows = [
        (
            f"{engine['runtime']} {engine['version']}",
            *(f"{engine[key]:.4g}" for key in ("median_ms", "p90_ms")),
            _interval(engine),
            f"{'~' if engine['noise'] else ''}{engine['ratio']:.2f}",
        )
        for engine in values["engines"]
    ]
    print_table(("engine", "median_ms", "p90_ms", "ci95_ms", "of the fastest"), rows, title=title)
    for one in values["left_out"]:
        say(f"left out: {one['runtime']}: {one['reason']}")


def _interval(values: dict[str, Any]) -> str:
    return " - ".join(f"{bound:.4g}" for bound in values["ci95_ms"])


add_command(app, "bench", BenchRequest, _run)
