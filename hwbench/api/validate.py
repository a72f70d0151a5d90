"""``hwbench.validate``: predicted against measured, on networks that were never used for calibration."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener
from hwbench.api.prediction import INTERPOLATE, INTERPOLATE_FLAGS, TRANSFER, check_donor, check_filling
from hwbench.api.requests import option, request
from hwbench.errors import CheckFailed
from hwbench.specs import AUTO, STREAM, Outcome, Precision
from hwbench.specs.network import MAX_SIZE
from hwbench.units import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pandas

    from hwbench.latency import AdditivePredictor, Comparison, LatencyTable, TableChanges, Validation
    from hwbench.latency.occasions import Scale
    from hwbench.spaces.sums import SpaceSums
    from hwbench.specs import Measurement, Network, Workload
    from hwbench.workspace import Workspace

# Six values all lie on one side of what they scatter around once in 32 times: their range is its 97 % interval.
AGAIN = 6
AGAIN_SEED = 0
# Fewer networks do not tell a shift that they have in common from what each moved by itself.
FEWEST = 3


@request
class ValidateRequest:
    """Compare predicted with measured latencies of networks that were never used for calibration.

    Some of the calibration networks are measured again, in the same rounds, so that a device that is slower than when
    its table was taken is not mistaken for a wrong prediction. All of it is measured now, also what is known already.
    """

    device: str = option(default="local", help="Device: a folder of profiles/.")
    networks: int = option(default=12, min=2, help="Networks to draw and measure.")
    space: str = option(default="x3d-tiny", help="Search space: a file of search_spaces/, or zoo:NAME.")
    precision: str = option(default="int8", help="fp32, fp16, bf16 or int8.")
    threads: int = option(default=1, min=1, help="Threads of the measured process.")
    seed: int = option(default=0, min=0, help="Of the draw.")
    classes: int | None = option(default=None, min=1, max=MAX_SIZE, help="Classes of heads; default: those profiled.")
    runtime: str = option(default="executorch", help="executorch, litert, onnx, openvino, torch or torchscript.")
    interpolate: bool | None = option(default=None, flags=INTERPOLATE_FLAGS, help=INTERPOLATE)
    transfer_from: str | None = option(default=None, help=TRANSFER)
    streaming: bool = option(
        default=False,
        help="One new frame of a stream each, by the table of profile --streaming.",
    )
    again: int = option(
        default=AGAIN, min=0, help="Calibration networks to measure again, as the device may have changed since."
    )

    def validate(self) -> None:
        """Raises InvalidValue where a text does not parse, or fields do not go together."""
        Precision.parse(self.precision)
        check_filling(self.interpolate, self.transfer_from, self.device, self.precision, self.threads)


@dataclass(frozen=True)
class ValidateResult:
    """How good the predictions of a device's table are.

    Args:
        device: Its name.
        summary: Over all networks.
        comparisons: Each network that was measured, predicted and measured.
        calibration: How whole networks follow from their blocks, in words.
        since: How the calibration networks that were measured again differ from the table, its rows taken on the scale
            that predictions speak of; None: none was.
        command: Measures the table anew.
        refreshed: The summary as it would be on the scale of today, by the networks that were measured again; None:
            they do not tell it.
        today: That scale.
    """

    device: str
    summary: Validation
    comparisons: tuple[Comparison, ...]
    calibration: str
    since: TableChanges | None
    command: str
    refreshed: Validation | None = None
    today: Scale | None = None

    @property
    def change(self) -> str | None:
        """What has changed on the device since its table was taken, as a sentence.

        None: nothing beyond chance, or fewer than three networks were measured again: those do not tell the device
        from what moved each by itself.
        """
        from hwbench.latency.changes import SMALLEST

        since = self.since
        if since is None or len(since.rows) < FEWEST or not since.has_interval:
            return None
        if since.shift_low <= SMALLEST and since.shift_high >= -SMALLEST:
            return None
        return (
            f"the device is {'slower' if since.shift > 0 else 'faster'} now than when its table was taken: "
            f"{len(since.rows)} calibration networks measured again differ by {since.shift:+.1%} "
            f"({since.shift_low:+.1%} to {since.shift_high:+.1%}), which no prediction can know.{self._after()} "
            f"Move the scale of the table to this day: {self.command} --refresh, or measure all of it anew: --remeasure"
        )

    def _after(self) -> str:
        if self.refreshed is None:
            return ""
        before, after = self.summary, self.refreshed
        return (
            f" With it the median error is {after.median_error:.1%} instead of {before.median_error:.1%}, and "
            f"{after.coverage:.0%} of the networks are in their intervals instead of {before.coverage:.0%}."
        )

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench validate --json`` prints."""
        values = {"device": self.device} | vars(self.summary) | {"calibration": self.calibration}
        values |= _since_values(self.since) | _refreshed_values(self.refreshed, self.today)
        return values | {"results": [_result(one) for one in self.comparisons]}

    def to_frame(self) -> pandas.DataFrame:
        """One row for each network: the keys of ``results``, its relative error, and whether the interval holds it."""
        from hwbench.frames import frame

        rows = [_result(one) | {"error": one.error, "covered": one.covered} for one in self.comparisons]
        return frame(rows, dict.fromkeys(rows[0]))


def validate(
    request: ValidateRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> ValidateResult:
    """Draws networks, measures them together with some that calibrate the table, and compares.

    Args:
        request: Which networks of which space, and where they are measured.
        listener: Hears stages ``build`` and ``measure``, every row, what was filled in or left out, and whether the
            device changed.
        workspace: Holds spaces, devices and tables; default: the one around the current folder.

    Raises:
        NotMeasured: The device has no table of the space.
        UnknownName: No such device, space or runtime.
        InvalidValue: The runtime is not carried to the device.
        DeviceError: The device does not answer.
        CheckFailed: The calibration knows all networks but one, or fewer than two of them could be measured.
    """
    from hwbench.api.prediction import installed_target, measuring, table_predictor, tell_left_out
    from hwbench.devices import load_device
    from hwbench.spaces import open_space
    from hwbench.studies.latencies import space_latencies
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    precision = Precision.parse(request.precision)
    variant = STREAM if request.streaming else AUTO
    space = open_space(workspace, request.space, request.classes, variant)
    place = load_device(workspace, request.device)
    check_donor(workspace, request.transfer_from)
    target = installed_target(place, request.runtime, request.threads)
    filling = (request.interpolate, request.transfer_from)
    predictor, num_classes = table_predictor(
        workspace, target, precision, request.space, request.classes, filling=filling, listener=listener,
        variant=variant,
    )  # fmt: skip
    sums = space_latencies(space, predictor, precision, num_classes)
    tell_left_out(sums, listener)
    drawn = fresh_networks(sums, predictor.table, request.networks, request.seed)
    networks = {network.workload(precision, variant): network for network in drawn}
    if len(networks) < 2:
        raise CheckFailed(
            "validation needs two networks that the calibration of the table does not know; space "
            f"{request.space!r} has {len(networks)}: the table knows all others"
        )
    before = calibrating(predictor.table, request.again)
    # Mixed, as both are in each batch then where one does not hold them all.
    mixed = [*networks, *(row.workload for row in before)]
    mixed = random.Random(request.seed).sample(mixed, len(mixed))
    rows = measuring(workspace, target, request.runtime, keep=networks, listener=listener)(mixed)
    measured = [row for row in rows if row.outcome is Outcome.OK]
    fresh = [(networks[row.workload], row) for row in measured if row.workload in networks]
    if len(fresh) < 2:
        raise CheckFailed(f"only {len(fresh)} of {len(networks)} networks could be measured on {target}; see above")
    since = changes_since(before.on_day(predictor.day), measured, predictor.day)
    today = scale_today(predictor, changes_since(before, measured))
    result = _compared(request, predictor, fresh, since, today)
    listener.say(f"calibration: {result.calibration}")
    if result.change is not None:
        listener.say(result.change)
    return result


def _compared(
    request: ValidateRequest,
    predictor: AdditivePredictor,
    fresh: list[tuple[Network, Measurement]],
    since: TableChanges | None,
    today: Scale | None,
) -> ValidateResult:
    from hwbench.latency import Comparison, Validation

    def compared(by: AdditivePredictor) -> tuple[Comparison, ...]:
        return tuple(Comparison(network.name, by.predict(row.workload), row.stats.median_s) for network, row in fresh)

    comparisons = compared(predictor)
    promised = predictor.calibration.promised
    return ValidateResult(
        device=request.device,
        summary=Validation.of(comparisons, promised),
        comparisons=comparisons,
        calibration=predictor.calibration.describe(),
        since=since,
        command=predictor.table.command(request.space),
        refreshed=Validation.of(compared(predictor.on_day(today)), promised) if today else None,
        today=today,
    )


def scale_today(predictor: AdditivePredictor, since: TableChanges | None) -> Scale | None:
    """The scale of today, as ``profile --refresh`` would find it; None where fewer than three calibration networks were
    measured again.

    Args:
        predictor: On the scale of before.
        since: How those differ from the rows as they were measured, whatever the scale.
    """
    from hwbench.latency import BETWEEN_RUNS
    from hwbench.latency.occasions import Scale, occasion_shifts

    if since is None or len(since.rows) < FEWEST:
        return None
    between = predictor.table.between_runs
    rows = [{0: row.before, 1: row.after} for row in since.rows]
    shifts = occasion_shifts(rows, 0, {0: between, 1: between or BETWEEN_RUNS})
    shift, before = shifts.by_occasion[1], predictor.day
    found = Scale(shift.factor, shift.low, shift.high, Scale.now(datetime.now(UTC)))
    return replace(found, between=before.between, occasions=before.occasions) if before else found


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
    found: dict[Workload, Network] = {}
    for _ in range(50 * count):
        network = sums.space.network(everything.draw(rng), sums.num_classes)
        workload = network.workload(table.precision, sums.space.variant)
        if workload not in used:
            found.setdefault(workload, network)
        if len(found) == count:
            break
    return list(found.values())


def calibrating(table: LatencyTable, count: int) -> LatencyTable:
    """At most so many calibration networks of a table, spread over their latencies; the same at every call."""
    from hwbench.latency import LatencyTable, Role, sample_rows

    networks = LatencyTable(table.target, table.precision, table.rows(Role.NETWORK))
    rows = sample_rows(networks, count, AGAIN_SEED) if count else ()
    return LatencyTable(table.target, table.precision, rows, between_runs=table.between_runs)


def changes_since(
    before: LatencyTable, measured: Iterable[Measurement], scale: Scale | None = None
) -> TableChanges | None:
    """How those rows differ that were measured again; None where there are none.

    ``scale`` is what brought ``before`` to its day.
    """
    from hwbench.latency import BETWEEN_RUNS, LatencyRow, LatencyTable, compare_tables, with_honest_intervals
    from hwbench.latency.occasions import between_scales

    today = datetime.now(UTC).date().isoformat()
    between = before.between_runs or BETWEEN_RUNS
    again = with_honest_intervals([LatencyRow.of(row, today) for row in measured if row.workload in before], between)
    if not again:
        return None
    after = LatencyTable(before.target, before.precision, again, between_runs=between)
    return compare_tables(before, after, between_scales(scale, None))


def _since_values(since: TableChanges | None) -> dict[str, Any]:
    names = ("device_change", "device_change_low", "device_change_high")
    shifts: tuple[float | None, ...] = (None,) * 3
    if since is not None:
        shifts = (since.shift, since.shift_low, since.shift_high)
    rounded = {name: None if shift is None else round(shift, 5) for name, shift in zip(names, shifts)}
    return rounded | {"again": 0 if since is None else len(since.rows)}


def _refreshed_values(refreshed: Validation | None, today: Scale | None) -> dict[str, Any]:
    """The errors after a refresh, beside those before; None where today's scale is not known."""
    return {
        "scale_today": None if today is None else round(today.factor, 5),
        "scale_today_low": None if today is None else round(today.low, 5),
        "scale_today_high": None if today is None else round(today.high, 5),
        "median_error_refreshed": None if refreshed is None else refreshed.median_error,
        "coverage_refreshed": None if refreshed is None else refreshed.coverage,
    }


def _result(comparison: Comparison) -> dict[str, Any]:
    return {
        "architecture": comparison.name,
        "predicted_ms": milliseconds(comparison.predicted.seconds),
        "low_ms": milliseconds(comparison.predicted.low_s),
        "high_ms": milliseconds(comparison.predicted.high_s),
        "measured_share": round(comparison.predicted.measured_share, 4),
        "measured_ms": milliseconds(comparison.measured_s),
    }
