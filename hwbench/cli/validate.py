"""``hwbench validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.validate import ValidateRequest, validate
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table
from hwbench.units import format_duration

if TYPE_CHECKING:
    from hwbench.latency import Comparison


def _run(request: ValidateRequest, as_json: bool) -> None:
    with listening() as listener:
        result = validate(request, listener)
    if not as_json:
        compared = sorted(result.comparisons, key=lambda one: one.measured_s)
        columns = ("predicted", "interval", "measured", "error", "architecture")
        print_table(columns, [_cells(one) for one in compared])
    emit(result.to_json(), as_json=as_json)


def _cells(one: Comparison) -> tuple[str, ...]:
    interval = f"{format_duration(one.predicted.low_s)} - {format_duration(one.predicted.high_s)}"
    times = (format_duration(one.predicted.seconds), interval, format_duration(one.measured_s))
    return (*times, f"{one.error:+.1%}", one.name)


add_command(app, "validate", ValidateRequest, _run)
