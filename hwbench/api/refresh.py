"""``hwbench profile --refresh``: the anchors alone, and the scale of the published tables."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import Listener
from hwbench.api.occasions import anchors, describe_day
from hwbench.api.other_conditions import other_conditions
from hwbench.api.prediction import installed_target
from hwbench.api.tables import publish, published_aa, rows_left_out, tell_kept
from hwbench.api.ties import measure_anchors, untied
from hwbench.errors import NotMeasured
from hwbench.latency import LatencyRow, LatencyTable, Role, profile_command, table_path
from hwbench.measure.store import MeasurementStore
from hwbench.specs import Outcome

if TYPE_CHECKING:
    from hwbench.api.profile_request import ProfileRequest
    from hwbench.devices import Device
    from hwbench.measure.builder import Builder
    from hwbench.measure.campaign import Campaign
    from hwbench.specs import Precision, Target, Workload
    from hwbench.workspace import Workspace


def refresh_device(
    request: ProfileRequest, workspace: Workspace, place: Device, listener: Listener, builder: Builder | None
) -> dict[str, Any]:
    """Measures the anchors of the tables that are there, and moves the scale of these tables to now.

    An anchor that fails is told and keeps its row, so that the next refresh measures it again. Precisions without a
    table are passed over; none is an error.

    Returns:
        The fields of a ``DeviceProfile``.

    Raises:
        NotMeasured: There is no table, or none has whole networks, or its rows were taken under other conditions or
            by an earlier version of hwbench.
        DeviceError: The device does not answer; the same command goes on with what is left.
    """
    from hwbench.api.campaigns import CampaignProgress, place_campaign, say_failures

    started = time.monotonic()
    target = installed_target(place, request.runtime, request.threads)
    precisions = _published(request, workspace, target)
    with (
        MeasurementStore(workspace.store) as store,
        place_campaign(
            store,
            workspace,
            place,
            runtime=request.runtime,
            threads=request.threads,
            processes=request.processes,
            builder=builder,
            listener=listener,
        ) as campaign,
    ):
        for precision in precisions:
            path = table_path(workspace.root, target, precision, request.variant)
            _check_conditions(path, campaign, request)
        before = {one.value: _factor(table_path(workspace.root, target, one, request.variant)) for one in precisions}
        tables_of = (workspace, campaign, precisions, request.variant)
        workloads = [*anchors(*tables_of), *untied(*tables_of)]
        measure_anchors(campaign, workloads, CampaignProgress(listener))
        tables = tuple(
            publish(workspace, campaign, precision, listener, variant=request.variant) for precision in precisions
        )
        rows = [row for row in map(campaign.measurement, workloads) if row is not None]
        say_failures([row for row in rows if row.outcome is not Outcome.OK], listener)
        again = "the same command measures them again"
        tell_kept(*tables_of, partial(_of_anchors, workloads), again, listener)
    for path in tables:
        listener.say(describe_day(LatencyTable.read(path)))
    good = sum(bool(row.sessions) and row.outcome is Outcome.OK for row in rows)
    return {
        "device": place.name,
        "target": target.key,
        "ok": good,
        "failed": len(workloads) - good,
        "skipped": 0,
        "tables": tables,
        "root": workspace.root,
        "seconds": round(time.monotonic() - started, 1),
        "aa": published_aa(tables),
        "scales_before": before,
    }


def scale_values(table: LatencyTable, before: Mapping[str, float]) -> dict[str, Any]:
    """The scale of a table as ``hwbench profile --json`` prints it.

    Args:
        table: As it is now.
        before: The factor before a refresh by precision; empty: there was none.
    """
    scale, precision = table.scale, table.precision.value
    moved = {"scale_before": round(before[precision], 5)} if precision in before else {}
    if scale is None:
        return {"precision": precision, "scale": None, **moved}
    return {
        "precision": precision,
        **moved,
        "scale": round(scale.factor, 5),
        "scale_low": round(scale.low, 5),
        "scale_high": round(scale.high, 5),
        "scale_at": scale.at,
        "occasions": scale.occasions,
    }


def _factor(path: Path) -> float:
    """What the rows of a table are multiplied by in a prediction; 1 where nothing has told a scale yet."""
    scale = LatencyTable.read(path).scale
    return 1.0 if scale is None else scale.factor


def _of_anchors(anchored: Collection[Workload], table: LatencyTable) -> list[LatencyRow]:
    return [row for row in table if row.workload in anchored]


def _published(request: ProfileRequest, workspace: Workspace, target: Target) -> list[Precision]:
    paths = {one: table_path(workspace.root, target, one, request.variant) for one in request.precisions}
    published = [precision for precision, path in paths.items() if path.is_file()]
    if not published:
        missing = request.precisions[0]
        command = profile_command(target, missing, request.space, variant=request.variant, classes=request.classes)
        names = ", ".join(path.name for path in paths.values())
        raise NotMeasured(
            f"--refresh moves the scale of a table, and {target.device} has none ({names}); measure one: {command}"
        )
    return published


def _check_conditions(path: Path, campaign: Campaign, request: ProfileRequest) -> None:
    """Refuses a table whose anchors cannot tell by how much the device changed, or which would lose rows."""
    table = LatencyTable.read(path)
    command = table.command(request.space) + (f" --conditions {request.conditions}" if request.conditions else "")
    if other := other_conditions(campaign, table):
        wrong = f"{path.name} was measured under other conditions ({other.words})"
        if other.conditions:
            raise NotMeasured(f"{wrong}: add --conditions {other.conditions}, or {other.in_file}")
        raise NotMeasured(
            f"{wrong}: another build of the device, another runner or other cores, which no factor makes up for; "
            f"measure it anew: {command}"
        )
    if not table.rows(Role.NETWORK):
        raise NotMeasured(f"{path.name} has no whole network to tell the scale by; measure some: {command}")
    if lost := rows_left_out(campaign, table):
        raise NotMeasured(
            f"{path.name} has {lost} rows of an earlier version of hwbench, which a refresh would leave out; "
            f"what builds other files today is measured again by {command}"
        )
