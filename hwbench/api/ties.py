"""What is measured again so that the rows of an occasion are on one scale with those of others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from hwbench.api.occasions import anchors
from hwbench.api.tables import table_update
from hwbench.latency.anchors import ANCHORS
from hwbench.latency.occasions import APART_S
from hwbench.latency.table import LatencyRow
from hwbench.specs import AUTO, Precision, Workload

if TYPE_CHECKING:
    from hwbench.measure.campaign import Campaign, CampaignWatch
    from hwbench.workspace import Workspace


def measure_anchors(campaign: Campaign, workloads: Sequence[Workload], watch: CampaignWatch) -> None:
    """Measures anchors again; what was measured of them before stays in the store, as other occasions.

    Raises:
        DeviceError: As ``Campaign.run``; the same call goes on with what is left.
    """
    if workloads:
        campaign.reopen(workloads)
        campaign.run(workloads, watch)


def begin_occasion(
    workspace: Workspace,
    campaign: Campaign,
    missing: Sequence[Workload],
    precisions: Sequence[Precision],
    watch: CampaignWatch,
    variant: str = AUTO,
) -> None:
    """Measures the anchors before rows that are ``missing``, and a few of the rows that no anchor is tied to: those
    that were not measured on this occasion.

    A store without a session measures all anchors: the rows of its table are of another store, and of another day.
    Where nothing is missing, anchors are measured to tie rows alone that they are not tied to.
    """
    if campaign.emulated:
        return
    known, before = set(missing), _of_another_build(campaign)
    # After an update all rows may be taken over, the anchors among them, as those of the first batch tell.
    first = [one for one in missing if one in before][: campaign.batch]
    if before and (campaign.take_over(first, watch) or known - before):
        known -= before
    further = untied(workspace, campaign, precisions, variant, known)
    if not (missing or further):
        return
    again = [workload for workload in anchors(workspace, campaign, precisions, variant) if workload not in known]
    if _goes_on(campaign):
        again = _lacking(campaign, again)
    measure_anchors(campaign, [*again, *further], watch)


def untied(
    workspace: Workspace,
    campaign: Campaign,
    precisions: Sequence[Precision],
    variant: str = AUTO,
    known: Collection[Workload] = (),
) -> list[Workload]:
    """Of the rows of tables whose occasions neither anchors nor the present occasion are tied to, a few of each.

    As many as there are anchors, spread over latency; ``known`` are measured anyway.
    """
    present = _latest(campaign) if _goes_on(campaign) else None
    anchored, found = {*anchors(workspace, campaign, precisions, variant)}, list[Workload]()
    for precision in precisions:
        for part in table_update(workspace, campaign, precision, variant=variant).parts:
            workloads = {row.workload for row in part.rows}
            if not (anchored & workloads) and present not in part.occasions:
                count = ANCHORS - len(workloads & {*known})
                found += _spread([row for row in part.rows if row.workload not in known], max(count, 0))
    return found


def _spread(rows: Sequence[LatencyRow], count: int) -> list[Workload]:
    """So many of some rows, from fast to slow."""
    by_latency = sorted(rows, key=lambda row: (row.stats.median_s if row.stats else 0.0, row.workload.key))
    count = min(count, len(rows))
    return [by_latency[(2 * place + 1) * len(rows) // (2 * count)].workload for place in range(count)]


def _goes_on(campaign: Campaign) -> bool:
    """Whether what is measured now is of the latest occasion."""
    since = campaign.store.since_last_session_s(campaign.target, campaign.conditions)
    return since is not None and since <= APART_S


def _latest(campaign: Campaign) -> int:
    return len(campaign.store.occasions(campaign.target, campaign.conditions).ended_at) - 1


def _of_another_build(campaign: Campaign) -> set[Workload]:
    """Those with a row that the build of now takes over where it comes out the same: it would not be measured."""
    rows = campaign.store.occasions(campaign.target, campaign.conditions).of_rows
    return {workload for workload, build in rows if build != campaign.build_key(workload)}


def _lacking(campaign: Campaign, workloads: Sequence[Workload]) -> list[Workload]:
    """Those that were not measured on the latest occasion, which may have begun with other rows."""
    log, unfinished = campaign.store.occasions(campaign.target, campaign.conditions), set(campaign.missing(workloads))
    latest, found = len(log.ended_at) - 1, list[Workload]()
    for workload in workloads:
        build = campaign.build_key(workload)
        on = {log.of_rows.get((workload, build)), *log.several.get((workload, build), ())}
        if workload in unfinished or latest not in on:
            found.append(workload)
    return found


def end_occasion(
    workspace: Workspace,
    campaign: Campaign,
    seconds: float,
    precisions: Sequence[Precision],
    watch: CampaignWatch,
    variant: str = AUTO,
) -> None:
    """Measures the anchors again after an occasion of more than ten minutes, on which the device may have changed."""
    if seconds > APART_S and not campaign.emulated:
        measure_anchors(campaign, anchors(workspace, campaign, precisions, variant), watch)
