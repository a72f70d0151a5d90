"""``hwbench quickstart``."""

from __future__ import annotations

from typing import Any

from hwbench.api.quickstart import QuickstartRequest, quickstart
from hwbench.cli.app import app
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table
from hwbench.cli.signals import GOES_ON
from hwbench.units import format_duration


def _run(request: QuickstartRequest, as_json: bool) -> None:
    with listening() as listener:
        result = quickstart(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        _print(result.to_json())
    result.check_budget()


def _print(values: dict[str, Any]) -> None:
    rows = [
        ("architecture", values["architecture"]),
        ("device", values["device"]),
        ("budget", f"{values['budget_ms']:g} ms"),
        ("predicted", f"{values['predicted_ms']:.4g} ms"),
        ("measured", f"{values['measured_ms']:.4g} ms (in fp32 {values['fp32_ms']:.4g} ms)"),
        ("top-1 fp32", f"{values['top1_fp32']:.1%}"),
        ("top-1 int8", f"{values['top1_int8']:.1%} (chance {values['chance']:.1%})"),
        ("file", values["model"]),
        ("report", values["report"]),
        ("took", format_duration(values["seconds"])),
    ]
    print_table(("", ""), rows, header=False)


add_command(app, "quickstart", QuickstartRequest, _run, after=GOES_ON)
