"""``hwbench verify``: whether an exported file computes on a device what it computes here, or a table still holds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, progress, say
from hwbench.errors import InvalidFile, ParityFailed
from hwbench.specs import LOCAL


@app.command()
def verify(
    model: Annotated[
        Path, typer.Argument(help="A folder that hwbench export wrote, or the model in it; or a latency table (.csv).")
    ],
    device: Annotated[
        str | None, typer.Option(help="Device: a folder of profiles/; default: local, or that of the table.")
    ] = None,
    inputs: Annotated[int, typer.Option(min=1, help="Of a model: clips of noise to run.")] = 8,
    rows: Annotated[int, typer.Option(min=1, help="Of a table: rows to measure again.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise, or of the choice of rows.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Of a model: threads of the engine on the device.")] = 1,
    conditions: Annotated[
        str | None, typer.Option(help="Of a table: stock or controlled, as it was taken; default: the device file's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run an exported file on a device and on this machine, and compare; or measure rows of a latency table again.

    Of a file: largest and mean error, SQNR, top-1; it must still be the one that its manifest describes. Of a table:
    how many of the rows agree within their intervals, and a verdict; the table and the store stay as they are. Exit
    status 5 where the two do not agree, or the table does not hold.
    """
    if model.suffix == ".csv":
        from hwbench.cli.profile import parse_conditions
        from hwbench.cli.published import verify_table
        from hwbench.workspace import Workspace

        held = parse_conditions(conditions)
        verify_table(Workspace.find(), model, device=device, rows=rows, seed=seed, conditions=held, as_json=as_json)
        return
    device = device or LOCAL
    from hwbench.deploy import DeployedModel
    from hwbench.deploy import verify as run
    from hwbench.devices import load_device
    from hwbench.measure.bench import open_bench
    from hwbench.workspace import Workspace

    folder = model.parent if model.is_file() else model
    if not folder.is_dir():
        raise InvalidFile(f"no folder {folder}; make one: hwbench export CHECKPOINT --out DIR")
    workspace, deployed = Workspace.find(), DeployedModel.open(folder)
    manifest, place = deployed.manifest, load_device(workspace, device)
    with (
        open_bench(place, manifest.runtime, cache_dir=workspace.cache, threads=threads, report=say) as bench,
        progress() as bar,
    ):
        task = bar.add_task(f"verify on {device}", total=inputs, rate="", note="")
        found = run(
            deployed, bench, inputs=inputs, seed=seed, progress=lambda done, _: bar.update(task, completed=done)
        )
    values = {
        "model": str(deployed.path),
        "device": device,
        "runner": bench.runner.label,
        "precision": manifest.precision.value,
        "sha256": manifest.sha256,
        **asdict(found),
    }
    emit(values, as_json=as_json)
    if not found.agrees:
        raise ParityFailed(
            f"{deployed.path} computes something else on {device} than here: largest error {found.max_abs_error:.3g}, "
            f"SQNR {found.sqnr_db:.1f} dB; the engine there is another version or broken: hwbench doctor"
        )
