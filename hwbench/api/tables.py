"""Publishing: the tables of a workspace, written from its store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from hwbench.api.listener import SILENT, Listener
from hwbench.errors import HwbenchError
from hwbench.latency import LatencyRow, LatencyTable, SelfCheck, between_runs, table_path, with_honest_intervals
from hwbench.measure.campaign import Campaign
from hwbench.specs import Outcome, Precision, Target, Workload
from hwbench.workspace import Workspace


def publish(
    workspace: Workspace,
    campaign: Campaign,
    precision: Precision,
    listener: Listener = SILENT,
    *,
    adaptive: bool = False,
) -> Path:
    """Writes the table of the campaign's target from the store, merged with the rows published before.

    A published row stays where the store knows nothing about its workload and it was taken under the same conditions.
    Intervals hold what all rows together show, and what rows that were measured anew differed by
    (``with_honest_intervals``).

    Args:
        workspace: Where the table lies.
        campaign: Its store holds the rows, and its target and conditions are those of the table.
        precision: Of the rows.
        listener: Hears how many published rows are left out.
        adaptive: Its rows are chosen to tell of the others; a table that says so goes on saying it.

    Raises:
        InvalidFile: The table that is there is damaged; nothing measured is lost.
        WorkspaceError: It cannot be written.
    """
    path = table_path(workspace.root, campaign.target, precision)
    repeated = campaign.store.repeated(campaign.target, campaign.conditions)
    between = between_runs(occasions for workload, occasions in repeated if workload.precision is precision)
    rows = {row.workload: row for row in with_honest_intervals(_stored_rows(campaign, precision), between)}
    known = set(campaign.store.workloads(campaign.target))
    published = LatencyTable.read(path, target=campaign.target, precision=precision) if path.exists() else None
    old = list(published or ())
    kept = [row for row in old if row.workload not in known and row.conditions == campaign.fingerprint]
    dropped = [row for row in old if row.workload not in rows and row not in kept]
    if dropped:
        listener.say(
            f"{path.name}: {len(dropped)} rows of an earlier version or of other conditions are left out; "
            "the command that made them measures them again"
        )
    table = LatencyTable(
        campaign.target,
        precision,
        [*rows.values(), *kept],
        emulated=campaign.emulated,
        between_runs=between,
        adaptive=adaptive or (published is not None and published.adaptive),
    )
    if published is not None and published.conditions == table.conditions:
        table = table.with_aa(published.aa)
    table.write(path)
    return path


def publish_aa(
    campaign: Campaign, tables: Sequence[Path], *, again: bool, listener: Listener = SILENT
) -> SelfCheck | None:
    """Runs the A/A test of the campaign's device and writes what it finds into the tables.

    A test that fails leaves the tables as they are, and is told.

    Args:
        campaign: Still open, so that device and conditions are those of the rows.
        tables: Published just now.
        again: Also where every table has one.
        listener: Hears what the test found.

    Returns:
        What stands in the first table afterwards.
    """
    read = {path: LatencyTable.read(path) for path in tables}
    if again or any(table.aa is None for table in read.values()):
        check = self_check(campaign, listener)
        for path, table in read.items() if check else ():
            table.with_aa(check).write(path)
    return published_aa(tables)


def self_check(campaign: Campaign, listener: Listener = SILENT) -> SelfCheck | None:
    """The A/A test of the campaign's device, made now; None where it fails, which the listener hears, or has none."""
    if campaign.repeat is None:
        return None
    try:
        check = SelfCheck(campaign.repeat(), datetime.now(UTC).date().isoformat())
    except HwbenchError as error:
        listener.say(f"A/A test: {error}")
        return None
    listener.say(f"A/A test: {check.found}")
    return check


def published_aa(tables: Sequence[Path]) -> SelfCheck | None:
    """The A/A test that stands in the first table."""
    return LatencyTable.read(tables[0]).aa


def published_rows(workspace: Workspace, target: Target, precision: Precision) -> list[LatencyRow]:
    """The rows of the table as it lies in the workspace; none where there is no table.

    Raises:
        InvalidFile: It does not validate.
    """
    path = table_path(workspace.root, target, precision)
    if not path.exists():
        return []
    return list(LatencyTable.read(path, target=target, precision=precision))


def _stored_rows(campaign: Campaign, precision: Precision) -> list[LatencyRow]:
    """The best row of each workload: measured before failed, then by the campaign's protocol, then the newest."""
    best: dict[Workload, tuple[tuple[bool, bool], LatencyRow]] = {}
    for stored in campaign.store.rows(campaign.target, campaign.conditions):
        one = stored.measurement
        if one.workload.precision is not precision or stored.build != campaign.build_key(one.workload):
            continue
        row = LatencyRow.of(one, stored.finished_at[:10], campaign.fingerprint)
        rank = (one.outcome is Outcome.OK, one.timing == campaign.timing)
        if one.workload not in best or rank >= best[one.workload][0]:
            best[one.workload] = (rank, row)
    return [row for _, row in best.values()]
