"""Publishing: the tables of a workspace, written from its store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener
from hwbench.api.occasions import TiedRows, anchors, moved_apart, not_tied, on_one_scale, replaced_rows
from hwbench.errors import HwbenchError
from hwbench.latency import (
    LatencyRow,
    LatencyTable,
    Role,
    SelfCheck,
    between_runs,
    rows_of_space,
    table_path,
    with_honest_intervals,
)
from hwbench.measure.campaign import Campaign
from hwbench.measure.drift import by_clock
from hwbench.measure.store_types import RowPurpose
from hwbench.printable import counted
from hwbench.specs import AUTO, STREAM, Outcome, Precision, Session, Target, Workload
from hwbench.workspace import Workspace

if TYPE_CHECKING:
    from hwbench.measure.store_occasions import Attempt
    from hwbench.spaces import StagedSpace


@dataclass(frozen=True)
class TableUpdate:
    """A table as the store has it now, which is not written yet.

    Args:
        path: Where it goes.
        table: With the rows published before that stay.
        own: How many of its latencies are of the store.
        left_out: How many rows of the published table it has no row for.
        lost: How many latencies of the published table it lacks.
        replaced: How many rows of another store it has otherwise, of the same day.
        apart: What is to be said where no factor brings it to the day; None: nothing.
        untied: What is to be said where nothing tells how fast the device was when some rows were measured; None:
            nothing.
        parts: Its rows by what ties their occasions.
    """

    path: Path
    table: LatencyTable
    own: int
    left_out: int
    lost: int
    replaced: int
    apart: str | None
    untied: str | None
    parts: tuple[TiedRows, ...]

    def salvage(self, listener: Listener = SILENT) -> None:
        """Writes what was measured until a device was lost; where that is no latency, the table loses none for it.

        Raises:
            WorkspaceError: It cannot be written.
        """
        if self.own or not self.lost:
            self.write(listener)

    def write(self, listener: Listener = SILENT) -> None:
        """Writes the table and tells what was lost by it; a command tells of the scale at its end, by ``tell_scale``.

        Raises:
            WorkspaceError: It cannot be written.
        """
        self.table.write(self.path)
        name = self.path.name
        if self.left_out:
            listener.say(
                f"{name}: {self.left_out} rows of an earlier version or of other conditions are left out; "
                "the command that made them measures them again"
            )
        if self.replaced:
            listener.say(
                f"{name}: {counted(self.replaced, 'row')} of another store differed from those that this one measured "
                f"on the same day, which replace them; {self.table.command()} --remeasure tells which hold"
            )

    def tell_scale(self, listener: Listener) -> None:
        """Says where no factor brings the table to the day, and where rows are not on its scale."""
        for message in (self.apart, self.untied):
            if message is not None:
                listener.say(message)


def publish(
    workspace: Workspace,
    campaign: Campaign,
    precision: Precision,
    listener: Listener = SILENT,
    *,
    adaptive: bool = False,
    variant: str = AUTO,
) -> Path:
    """Writes the table of the campaign's target from the store, merged with the rows published before.

    Args:
        workspace: Where the table lies.
        campaign: Its store holds the rows, and its target and conditions are those of the table.
        precision: Of the rows.
        listener: Hears how many published rows are left out, how many of another store are replaced by rows of the same
            day, and where no factor brings a table to the day.
        adaptive: As ``table_update``.
        variant: As ``table_update``.

    Raises:
        InvalidFile: The table that is there is damaged; nothing measured is lost.
        WorkspaceError: It cannot be written.
    """
    update = table_update(workspace, campaign, precision, adaptive=adaptive, variant=variant)
    update.write(listener)
    update.tell_scale(listener)
    return update.path


def table_update(
    workspace: Workspace, campaign: Campaign, precision: Precision, *, adaptive: bool = False, variant: str = AUTO
) -> TableUpdate:
    """The table of the campaign's target from the store, merged with the rows published before; writes nothing.

    A published row stays where it was taken under the same conditions and the store knows nothing about its workload,
    is about to measure it anew, got no latency when it did (``tell_kept`` says of how many), or has older rows of it
    alone: another store measured it since.
    Intervals hold what all rows together show, and what rows that were measured anew differed by
    (``with_honest_intervals``). Rows of different occasions are joined on one scale (``on_one_scale``), and sessions
    are corrected with one exponent of the clock. Whole networks that were measured as candidates or to validate are
    left out: they were chosen for their prediction, or are to judge it.

    Args:
        workspace: Where the table lies.
        campaign: Its store holds the rows, and its target and conditions are those of the table.
        precision: Of the rows.
        adaptive: Its rows are chosen to tell of the others; a table that says so goes on saying it.
        variant: ``stream``: the table of new frames, which no row of a clip enters, and the other way round.

    Raises:
        InvalidFile: The table that is there is damaged; nothing measured is lost.
    """
    path = table_path(workspace.root, campaign.target, precision, variant)
    corrected = _one_exponent(campaign)
    log = campaign.store.occasions(campaign.target, campaign.conditions, corrected)
    between = between_runs(known for (w, _), known in log.several.items() if _is_of(w, precision, variant))
    stored = _stored_rows(campaign, precision, corrected, variant)
    wide = with_honest_intervals([row for row, _ in stored.values()], between)
    rows = {row.workload: (row, stored[row.workload][1]) for row in wide}
    published = (
        LatencyTable.read(path, target=campaign.target, precision=precision, variant=variant) if path.exists() else None
    )
    kept = {row.workload: row for row in _kept(published or (), campaign, rows)}
    one = on_one_scale(rows, log, published, list(kept.values()))
    table = LatencyTable(
        campaign.target,
        precision,
        one.rows,
        emulated=campaign.emulated,
        between_runs=between,
        scale=one.scale,
        adaptive=adaptive or (published is not None and published.adaptive),
    )
    if published is not None and published.conditions == table.conditions:
        table = table.with_aa(published.aa)
    return TableUpdate(
        path=path,
        table=table,
        own=sum(row.stats is not None and row.workload not in kept for row in table),
        left_out=sum(row.workload not in rows and row.workload not in kept for row in published or ()),
        lost=sum(row.stats is not None and row.workload not in table for row in published or ()),
        replaced=0 if published is None else replaced_rows(published, one, log),
        apart=moved_apart(table, path.name, one),
        untied=not_tied(table, path.name, one),
        parts=one.parts,
    )


def rows_left_out(campaign: Campaign, table: LatencyTable) -> int:
    """How many rows of a published table ``publish`` leaves out: of an earlier version or other conditions."""
    stored = _stored_rows(campaign, table.precision, _one_exponent(campaign), table.variant)
    own = _OwnRows.of(campaign)
    return sum(row.workload not in stored and not own.lets_stay(row) for row in table)


def tell_kept(
    workspace: Workspace,
    campaign: Campaign,
    precisions: Sequence[Precision],
    variant: str,
    own: Callable[[LatencyTable], Iterable[LatencyRow]],
    again: str,
    listener: Listener,
) -> None:
    """Says how many published rows got no latency when they were measured again, and so are those of before.

    Args:
        workspace: Holds the tables.
        campaign: Its store has the failures.
        precisions: Of the tables.
        variant: ``stream``: the tables of new frames.
        own: Those of some rows that a command looks after; a table has rows of other spaces as well.
        again: What measures these rows once more, in words.
        listener: Hears it.
    """
    lacking = {*campaign.store.reopened(campaign.target, campaign.conditions)}
    for precision in precisions:
        rows = [row for row in published_rows(workspace, campaign.target, precision, variant) if row.stats is not None]
        tried = [(row, campaign.measurement(row.workload)) for row in rows if row.workload in lacking]
        failed = [row for row, one in tried if one is not None and one.outcome is not Outcome.OK]
        if failed and (count := len([*own(LatencyTable(campaign.target, precision, failed))])):
            name = table_path(workspace.root, campaign.target, precision, variant).name
            listener.say(
                f"{name}: {counted(count, 'row')} got no latency when measured again; the table keeps what was "
                f"measured before; {again}"
            )


def rows_of_profile(
    workspace: Workspace, campaign: Campaign, spaces: Sequence[StagedSpace], num_classes: int, table: LatencyTable
) -> list[LatencyRow]:
    """The rows of a table that a profile of some spaces measures: theirs, and the anchors."""
    parts = [part for space in spaces for part in space.parts(table.precision, num_classes=num_classes)]
    own = {row.workload for row in rows_of_space(table, parts)}
    own |= {*anchors(workspace, campaign, [table.precision], table.variant)}
    return [row for row in table if row.workload in own]


def _kept(
    published: Iterable[LatencyRow], campaign: Campaign, rows: Mapping[Workload, tuple[LatencyRow, str]]
) -> list[LatencyRow]:
    """The published rows that stay: those of ``rows``, which the store has, come first where they have a latency."""
    own = _OwnRows.of(campaign)

    def is_replaced(row: LatencyRow) -> bool:
        if row.workload not in rows or own.is_later(row):
            return False
        return rows[row.workload][0].stats is not None or row.stats is None

    return [row for row in published if own.lets_stay(row) and not is_replaced(row)]


@dataclass(frozen=True)
class _OwnRows:
    """What the store of a campaign says of published rows.

    Args:
        conditions: Digest of those of the campaign.
        replacing: The workloads whose rows in the store replace published ones; one that is measured anew only by a
            latency.
        measured: The workloads that the store has a latency of; its failures replace no latency of another store.
        ended_at: When the latest row of each workload ended under these conditions, of every build.
        attempts: Each time that a workload was measured under these conditions.
    """

    conditions: str
    replacing: Collection[Workload]
    measured: Collection[Workload]
    ended_at: Mapping[Workload, str]
    attempts: Callable[[Workload], Sequence[Attempt]]

    @classmethod
    def of(cls, campaign: Campaign) -> _OwnRows:
        """Those of a campaign's store."""
        store, target, conditions = campaign.store, campaign.target, campaign.conditions
        replacing = {*store.workloads(target)} - {*store.reopened(target, conditions)}
        ended_at = store.ended_at(target, None, conditions)
        attempts = partial(store.attempts, target=target, conditions=conditions)
        return cls(campaign.fingerprint, replacing, {*store.measured(target)}, ended_at, attempts)

    def is_later(self, row: LatencyRow) -> bool:
        """Whether another store published a latency of a later day than all that the store has of its workload.

        One that this store published while its clock was ahead is of a later day, and older than what it has since.
        """
        if row.stats is None or row.measured_on <= self.ended_at.get(row.workload, "")[:10]:
            return False
        size = (row.stats.num_sessions, row.stats.num_samples)
        return not any(
            row.measured_on in one.days and size == (one.num_sessions, one.num_samples)
            for one in self.attempts(row.workload)
        )

    def lets_stay(self, row: LatencyRow) -> bool:
        """Whether a published row without a latency in the store is kept: nothing is known about its workload, it is
        measured anew, or another store has a latency of it where this one has none, or an older one."""
        if row.conditions != self.conditions:
            return False
        lacking = row.stats is not None and row.workload not in self.measured
        return lacking or row.workload not in self.replacing or self.is_later(row)


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


def published_rows(workspace: Workspace, target: Target, precision: Precision, variant: str = AUTO) -> list[LatencyRow]:
    """The rows of the table as it lies in the workspace; none where there is no table.

    Raises:
        InvalidFile: It does not validate.
    """
    path = table_path(workspace.root, target, precision, variant)
    if not path.exists():
        return []
    return list(LatencyTable.read(path, target=target, precision=precision, variant=variant))


def _one_exponent(campaign: Campaign) -> Callable[[Session], Session]:
    """Gives sessions that tell their clock the drift that all sessions together say; the others stay as they are.

    While a campaign goes on, how far latencies follow the clock is known less well, and not the same for all rows.
    """
    clock_s = campaign.store.clock(campaign.conditions)
    follow = campaign.store.clock_sensitivity(campaign.conditions)

    def corrected(session: Session) -> Session:
        if not (session.probe_s and clock_s):
            return session
        return replace(session, drift=by_clock(session.probe_s, clock_s, follow))

    return corrected


def _stored_rows(
    campaign: Campaign, precision: Precision, corrected: Callable[[Session], Session], variant: str
) -> dict[Workload, tuple[LatencyRow, str]]:
    """The best row of each workload, and its build: measured before failed, then by the campaign's protocol, then the
    newest."""
    best: dict[Workload, tuple[tuple[bool, bool], LatencyRow, str]] = {}
    for stored in campaign.store.rows(campaign.target, campaign.conditions):
        one = stored.measurement
        if not _is_of(one.workload, precision, variant) or stored.build != campaign.build_key(one.workload):
            continue
        if stored.purpose is not RowPurpose.TABLE and Role.of(one.workload) is Role.NETWORK:
            continue
        one = replace(one, sessions=tuple(map(corrected, one.sessions)))
        row = LatencyRow.of(one, stored.finished_at[:10], campaign.fingerprint)
        rank = (one.outcome is Outcome.OK, one.timing == campaign.timing)
        if one.workload not in best or rank >= best[one.workload][0]:
            best[one.workload] = (rank, row, stored.build)
    return {workload: (row, build) for workload, (_, row, build) in best.items()}


def _is_of(workload: Workload, precision: Precision, variant: str) -> bool:
    """Whether a workload may have a row in the table of a precision: of clips, or of new frames."""
    return workload.precision is precision and (workload.variant == STREAM) == (variant == STREAM)
