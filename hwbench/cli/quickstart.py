"""``hwbench quickstart``: the whole loop on this machine, from the latency table to a measured int8 file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, print_table
from hwbench.errors import OverBudget
from hwbench.units import format_duration, parse_duration


@app.command()
def quickstart(
    budget: Annotated[
        str | None, typer.Option(help='Latency budget, such as "4 ms"; default: 1.8 times the fastest network.')
    ] = None,
    device: Annotated[str, typer.Option(help="Device: a folder of profiles/.")] = "local",
    seed: Annotated[int, typer.Option(min=0, help="Of search, training and calibration.")] = 0,
    as_json: Json = False,
) -> None:
    """The whole loop on a small space and synthetic videos: profile, search, train, export int8, measure, report.

    Each step says how it is typed as a command of its own. Interrupted at any moment, the same command goes on.
    """
    budget_s = None if budget is None else parse_duration(budget, name="--budget")
    from hwbench.cli.loop import Loop
    from hwbench.workspace import Workspace

    values = Loop(Workspace.find(), device, seed).run(budget_s)
    if as_json:
        emit(values, as_json=True)
    else:
        _print(values)
    if values["measured_ms"] > values["budget_ms"]:
        raise OverBudget(
            f"{values['model']} takes {values['measured_ms']:.4g} ms, the budget is {values['budget_ms']:g} ms; the "
            "search measured its network well within, so the machine is slower now than it was then. Run the command "
            "again when it is quiet, or with a larger --budget"
        )


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
