"""``hwbench validate``: predicted against measured, on networks that were never used for calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, print_table, say
from hwbench.cli.search import INTERPOLATE, TRANSFER
from hwbench.errors import CheckFailed
from hwbench.units import format_duration, milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwbench.latency import Comparison, LatencyTable, TableChanges
    from hwbench.spaces.sums import SpaceSums
    from hwbench.specs import Measurement, Network

# Six values all lie on one side of what they scatter around once in 32 times: their range is its 97 % interval.
AGAIN = 6
AGAIN_SEED = 0


@app.command()
def validate(
    device: Annotated[str, typer.Option(help="Device: a folder of profiles/.")] = "local",
    networks: Annotated[int, typer.Option(min=2, help="Networks to draw and measure.")] = 12,
    space: Annotated[str, typer.Option(help="Search space: a file of search_spaces/.")] = "x3d-tiny",
    precision: Annotated[str, typer.Option(help="fp32 or int8.")] = "int8",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the measured process.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw.")] = 0,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of the heads; default: those profiled.")] = None,
    runtime: Annotated[str, typer.Option(help="executorch, onnx, torch or torchscript.")] = "executorch",
    interpolate: Annotated[bool, typer.Option("--interpolate", help=INTERPOLATE)] = False,
    transfer_from: Annotated[str | None, typer.Option(help=TRANSFER)] = None,
    again: Annotated[
        int, typer.Option(min=0, help="Calibration networks to measure again, as the device may have changed since.")
    ] = AGAIN,
    as_json: Json = False,
) -> None:
    """Compare predicted with measured latencies of networks that were never used for calibration.

    Some of the calibration networks are measured again, in the same rounds, so that a device that is slower than when
    its table was taken is not mistaken for a wrong prediction. All of it is measured now, also what is known already.
    """
    import random

    from hwbench.cli.search import installed_target, measuring, table_predictor
    from hwbench.devices import load_device
    from hwbench.latency import Comparison, Validation
    from hwbench.latency.changes import SMALLEST
    from hwbench.search.latencies import space_latencies
    from hwbench.spaces import load_space
    from hwbench.specs import Outcome, Precision
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    wanted = Precision.parse(precision)
    staged = load_space(workspace, space)
    load_device(workspace, device)
    target = installed_target(device, runtime, threads)
    filling = (interpolate, transfer_from)
    predictor, num_classes = table_predictor(workspace, target, wanted, space, classes, filling=filling)
    sums = space_latencies(staged, predictor, wanted, num_classes)
    drawn = {n.workload(wanted): n for n in fresh_networks(sums, predictor.table, networks, seed)}
    before = calibrating(predictor.table, again)
    # Mixed, as both are in each batch then where one does not hold them all.
    everything = [*drawn, *(row.workload for row in before)]
    rows = measuring(workspace, target, runtime, keep=drawn)(random.Random(seed).sample(everything, len(everything)))
    measured = [row for row in rows if row.outcome is Outcome.OK]
    comparisons = [
        Comparison(drawn[row.workload].name, predictor.predict(row.workload), row.stats.median_s)
        for row in measured
        if row.workload in drawn
    ]
    if len(comparisons) < 2:
        raise CheckFailed(f"only {len(comparisons)} of {len(drawn)} networks could be measured on {target}; see above")
    summary = Validation.of(comparisons, predictor.calibration.promised)
    calibration = predictor.calibration.describe()
    say(f"calibration: {calibration}")
    since = changes_since(before, measured)
    values = {"device": device} | vars(summary) | {"calibration": calibration} | _since_values(since)
    if since is not None and (since.shift_low > SMALLEST or since.shift_high < -SMALLEST):
        say(
            f"the device is {'slower' if since.shift > 0 else 'faster'} now than when its table was taken: "
            f"{len(since.rows)} calibration networks measured again differ by {since.shift:+.1%} "
            f"({since.shift_low:+.1%} to {since.shift_high:+.1%}), which no prediction can know. Try again later, or "
            f"measure anew: {predictor.table.command(space)} --anew"
        )
    if as_json:
        emit(values | {"results": [_result(c) for c in comparisons]}, as_json=True)
    else:
        _print_comparisons(comparisons)
        emit(values, as_json=False)


def fresh_networks(sums: SpaceSums, table: LatencyTable, count: int, seed: int) -> list[Network]:
    """Different networks drawn uniformly from those that can be predicted, none of which calibrates the table.

    The same for the same arguments in every process. Fewer come back where the space has fewer.
    """
    import numpy as np

    from hwbench.latency import Role
    from hwbench.spaces.feasible import FeasibleSet

    used = {row.workload for row in table if row.role is Role.NETWORK}
    everything = FeasibleSet(sums, sums.largest()[0] * 1.01)
    rng = np.random.default_rng([seed, 0x7A11])
    found: dict[Network, None] = {}
    for _ in range(50 * count):
        network = sums.space.network(everything.draw(rng), sums.num_classes)
        if network.workload(table.precision) not in used:
            found[network] = None
        if len(found) == count:
            break
    return list(found)


def calibrating(table: LatencyTable, count: int) -> LatencyTable:
    """At most so many calibration networks of a table, spread over their latencies; the same at every call."""
    from hwbench.latency import LatencyTable, Role, sample_rows

    networks = LatencyTable(table.target, table.precision, table.rows(Role.NETWORK))
    return LatencyTable(table.target, table.precision, sample_rows(networks, count, AGAIN_SEED) if count else ())


def changes_since(before: LatencyTable, measured: Iterable[Measurement]) -> TableChanges | None:
    """How those rows differ that were measured again; None where there are none."""
    from datetime import UTC, datetime

    from hwbench.latency import LatencyRow, LatencyTable, compare_tables, with_honest_intervals

    today = datetime.now(UTC).date().isoformat()
    again = with_honest_intervals([LatencyRow.of(row, today) for row in measured if row.workload in before])
    return compare_tables(before, LatencyTable(before.target, before.precision, again)) if again else None


def _since_values(since: TableChanges | None) -> dict[str, float | int | None]:
    if since is None:
        return {"device_change": None, "device_change_low": None, "device_change_high": None, "again": 0}
    return {
        "device_change": round(since.shift, 5),
        "device_change_low": round(since.shift_low, 5),
        "device_change_high": round(since.shift_high, 5),
        "again": len(since.rows),
    }


def _result(comparison: Comparison) -> dict[str, object]:
    return {
        "architecture": comparison.name,
        "predicted_ms": milliseconds(comparison.predicted.seconds),
        "low_ms": milliseconds(comparison.predicted.low_s),
        "high_ms": milliseconds(comparison.predicted.high_s),
        "measured_share": round(comparison.predicted.measured_share, 4),
        "measured_ms": milliseconds(comparison.measured_s),
    }


def _print_comparisons(comparisons: list[Comparison]) -> None:
    rows = []
    for c in sorted(comparisons, key=lambda c: c.measured_s):
        interval = f"{format_duration(c.predicted.low_s)} - {format_duration(c.predicted.high_s)}"
        times = (format_duration(c.predicted.seconds), interval, format_duration(c.measured_s))
        rows.append((*times, f"{c.error:+.1%}", c.name))
    print_table(("predicted", "interval", "measured", "error", "architecture"), rows)
