"""Occasions of measuring: their anchors, the one scale of a table's rows, and what is said about its day."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from hwbench.api.listener import Listener
from hwbench.latency.anchors import anchor_rows, moved_blocks
from hwbench.latency.changes import SMALLEST
from hwbench.latency.occasions import (
    OccasionShifts,
    Scale,
    Shift,
    occasion_shifts,
    occasion_uncertainty,
    tied_occasions,
)
from hwbench.latency.table import LatencyRow, LatencyTable, Role, table_path
from hwbench.printable import counted
from hwbench.specs import AUTO, STREAM, LatencyStats, Precision, Workload

if TYPE_CHECKING:
    from hwbench.measure.campaign import Campaign
    from hwbench.measure.store_occasions import OccasionLog
    from hwbench.workspace import Workspace

# The occasion of rows that were published from another store, whose moments this one does not know.
_PUBLISHED = -1
# Anchors that differ by more than this from what all together say are named.
_TOLD = 0.02
# Tables have four digits.
_DIGITS = 6e-4


@dataclass(frozen=True)
class TiedRows:
    """Rows with a latency, of occasions that rows tie to each other: by how much they differ is known."""

    occasions: frozenset[int]
    rows: tuple[LatencyRow, ...]


@dataclass(frozen=True)
class OneScale:
    """The rows of a table on the scale of one occasion, and what brings them to the latest one.

    Args:
        rows: All rows; those of other occasions are divided by the shift of theirs.
        scale: The latest occasion that anchors tie to these rows; None: no occasion is known, or no whole network is
            tied to most rows.
        shifts: Of the occasions that rows of the table are of, and of those since.
        moved: Of each anchor on the latest occasion, log of what it is slower by than before, beside all together.
        parts: The rows by what ties them; those of the first are on one scale, the others as measured.
    """

    rows: tuple[LatencyRow, ...]
    scale: Scale | None
    shifts: OccasionShifts | None
    moved: Mapping[Workload, float]
    parts: tuple[TiedRows, ...] = ()


def on_one_scale(
    rows: Mapping[Workload, tuple[LatencyRow, str]],
    log: OccasionLog,
    published: LatencyTable | None,
    kept: Sequence[LatencyRow],
) -> OneScale:
    """Joins rows of different occasions on the scale of the occasion of most of them, by what was measured on several.

    Rows of another store have an occasion of their own, which those that both stores measured tie to the others. Where
    they are the most, whole networks of theirs stay as published: those that this store measured since would agree with
    its occasions by construction, and tie nothing.

    Args:
        rows: Rows from the store, each with its build.
        log: The occasions of the store.
        published: The table as it was before.
        kept: Rows of it that stand in place of those of the store, or that it has none of.
    """
    stays = {row.workload for row in kept}
    own = {workload: row for workload, (row, _) in rows.items() if workload not in stays}
    occasion = {w: log.of_rows[w, build] for w, (_, build) in rows.items() if (w, build) in log.of_rows}
    several: dict[Workload, dict[int, LatencyStats]] = {}
    for workload, (row, build) in rows.items():
        if workload not in occasion or row.stats is None:
            continue
        if workload in stays and row.role is not Role.NETWORK:
            continue  # another store measured it since, maybe for its change beside the others
        several[workload] = dict(log.several.get((workload, build)) or {occasion[workload]: row.stats})
    counts = Counter(occasion[workload] for workload in several if workload in own)
    elsewhere = list[LatencyRow]()
    for row in kept:
        if (earlier := _earlier(row, log)) is None:
            elsewhere.append(row)
            continue
        at, own[row.workload] = earlier.occasion, earlier.row
        occasion[row.workload], several[row.workload] = at, earlier.several
        counts[at] += 1
    counts[_PUBLISHED] += len(elsewhere)
    counts = +counts
    if not counts or (set(counts) == {_PUBLISHED}):
        plain = (*own.values(), *elsewhere)
        parts = _by_ties(plain, {}, [], _PUBLISHED)
        return OneScale(plain, published.scale if published and kept else None, None, {}, parts)
    reference = max(counts, key=lambda at: (counts[at], at))
    before = _of_elsewhere(published, log) if published and elsewhere else {}
    if published and elsewhere and not before.keys() & several.keys():
        # No row tells by itself that it is of another store, as where both measured on one day.
        before = {row.workload: row for row in published} if reference == _PUBLISHED else {}
    for workload in before.keys() & several.keys():
        if (stats := before[workload].stats) is not None:
            several[workload][_PUBLISHED] = stats
    workloads = list(several)
    between = {_PUBLISHED: published.between_runs} if published else None
    every = occasion_shifts([several[workload] for workload in workloads], reference, between)
    present = {occasion[workload] for workload in own if workload in occasion}
    shifts = _since(every, [several[workload] for workload in workloads], reference, present, between)
    latest = max(shifts.by_occasion)
    joined = {w: _brought(row, shifts.by_occasion.get(occasion.get(w, reference))) for w, row in own.items()}
    aside = shifts.by_occasion.get(_PUBLISHED) or _scale_of(published, joined)
    if reference == _PUBLISHED:
        joined |= {w: before[w] for w in joined.keys() & before.keys() if before[w].role is Role.NETWORK}
    moved = {workloads[row]: value for row, value in shifts.moved(latest).items()}
    of_rows = occasion | dict.fromkeys((row.workload for row in elsewhere), reference if aside else _PUBLISHED)
    parts = _by_ties([*own.values(), *elsewhere], of_rows, list(several.values()), reference)
    return OneScale(
        rows=(*joined.values(), *(_brought(row, aside) for row in elsewhere)),
        scale=_scale(shifts, latest, len(every.by_occasion), log, published, joined) if _has_scale(parts) else None,
        shifts=shifts,
        moved={workload: value for workload, value in moved.items() if Role.of(workload) is Role.NETWORK},
        parts=parts,
    )


def _by_ties(
    rows: Sequence[LatencyRow],
    occasion: Mapping[Workload, int],
    several: Collection[Mapping[int, LatencyStats]],
    reference: int,
) -> tuple[TiedRows, ...]:
    """The rows with a latency by what ties their occasions: first those of the reference, then the most."""
    by_occasion: dict[int, list[LatencyRow]] = {}
    for row in rows:
        if row.stats is not None:
            by_occasion.setdefault(occasion.get(row.workload, reference), []).append(row)
    parts, start = list[TiedRows](), reference
    while by_occasion:
        tied = tied_occasions(several, start)
        of_part = [row for at in sorted(by_occasion.keys() & tied) for row in by_occasion.pop(at)]
        parts.append(TiedRows(frozenset(tied), tuple(of_part)))
        start = max(by_occasion, key=lambda at: (len(by_occasion[at]), at), default=reference)
    return tuple(parts)


def _has_scale(parts: Sequence[TiedRows]) -> bool:
    """Whether the whole networks, where a table has some, tell a scale of most rows."""
    with_networks = [any(row.role is Role.NETWORK for row in part.rows) for part in parts]
    return not any(with_networks) or with_networks[0]


def _since(
    every: OccasionShifts,
    rows: Sequence[Mapping[int, LatencyStats]],
    reference: int,
    present: Collection[int],
    between: Mapping[int, float] | None,
) -> OccasionShifts:
    """The shifts without occasions before the reference that no row of the table is of any more.

    What changed by itself until its rows were measured anew is no scatter of the rows of now. The occasions go on
    telling how far occasions lie apart, and stay where they alone tie others.
    """
    gone = {at for at in every.by_occasion if at not in present and _PUBLISHED < at < reference}
    if not gone:
        return every
    left = [{at: stats for at, stats in one.items() if at not in gone} for one in rows]
    since = occasion_shifts(left, reference, between)
    if since.by_occasion.keys() != every.by_occasion.keys() - gone:
        return every
    return replace(since, between=every.between)


@dataclass(frozen=True)
class _Earlier:
    """A published row that this store measured before it began to measure it anew.

    Args:
        row: With the latency as it was on its occasion.
        occasion: Of most of its sessions.
        several: Its latency on each occasion of the attempts before the present one.
    """

    row: LatencyRow
    occasion: int
    several: dict[int, LatencyStats]


def _earlier(row: LatencyRow, log: OccasionLog) -> _Earlier | None:
    """A published row by what this store has of it from before; None: it is of another store."""
    if row.stats is None or row.measured_on not in log.days.get(row.workload, ()):
        return None
    for attempts in [those for (workload, _), those in log.earlier.items() if workload == row.workload]:
        for occasion, stats in reversed(attempts):
            if (stats.num_sessions, stats.num_samples) == (row.stats.num_sessions, row.stats.num_samples):
                return _Earlier(row.times(stats.median_s / row.stats.median_s), occasion, dict(attempts))
    return None


def _of_elsewhere(published: LatencyTable, log: OccasionLog) -> dict[Workload, LatencyRow]:
    """The rows of a table that another store published: of days on which this one did not measure them."""
    if _is_of_another_store(published, log):
        return {row.workload: row for row in published}
    return {row.workload: row for row in published if row.measured_on not in log.days.get(row.workload, ())}


def _is_of_another_store(published: LatencyTable, log: OccasionLog) -> bool:
    """Whether the day that a table speaks of is of no occasion of this store."""
    return published.scale is not None and _occasion_of(published.scale, log) is None


def _occasion_of(scale: Scale, log: OccasionLog) -> int | None:
    """The latest occasion of a store that the day of a scale is of; None: of another store.

    A clock that was set back during an occasion lets it end before it began.
    """
    for number, span in reversed([*enumerate(zip(log.began_at, log.ended_at))]):
        if Scale.now(min(span)) <= scale.at <= Scale.now(max(span)):
            return number
    return None


def _scale_of(published: LatencyTable | None, joined: Mapping[Workload, LatencyRow]) -> Shift | None:
    """How much slower a table was than its rows as they are now, by the middle one, as most were not measured since."""
    pairs = [(row.stats, joined[row.workload].stats) for row in published or () if row.workload in joined]
    ratios = [then.median_s / now.median_s for then, now in pairs if then is not None and now is not None]
    return Shift(math.log(median(ratios)), 0.0) if ratios else None


def _scale(
    shifts: OccasionShifts,
    latest: int,
    occasions: int,
    log: OccasionLog,
    published: LatencyTable | None,
    joined: Mapping[Workload, LatencyRow],
) -> Scale | None:
    day = published.scale if published else None
    if latest < 0:
        return day
    ended, aside = log.ended_at[latest], shifts.by_occasion.get(_PUBLISHED)
    if published is not None and day is not None and _is_later(day, latest, log):
        if aside is None and _are_same(published, joined):
            return day  # another store measured anchors since, and nothing else
        if aside is not None:
            return replace(day, factor=aside.factor * day.factor, low=aside.low * day.low, high=aside.high * day.high)
    shift = shifts.by_occasion[latest]
    return Scale(shift.factor, shift.low, shift.high, Scale.now(ended), shifts.between, occasions)


def _is_later(day: Scale, occasion: int, log: OccasionLog) -> bool:
    """Whether a table speaks of a later day than an occasion; of days of this store the order of occasions tells.

    A day to come of another store is none: a clock was wrong, and a refresh would never move the scale to now.
    """
    if (known := _occasion_of(day, log)) is not None:
        return known > occasion
    now = datetime.now(UTC)
    return day.at > Scale.now(log.ended_at[occasion]) and (day.age_s(now) > 0 or day.is_of(now))


def _are_same(published: LatencyTable, joined: Mapping[Workload, LatencyRow]) -> bool:
    """Whether a table has the latencies of the store and no others, to the digits that a table has."""
    before = {row.workload: row.stats.median_s for row in published if row.stats is not None}
    present = {w: row.stats.median_s for w, row in joined.items() if row.stats is not None}
    return before.keys() == present.keys() and all(
        math.isclose(seconds, present[workload], rel_tol=_DIGITS) for workload, seconds in before.items()
    )


def _brought(row: LatencyRow, shift: Shift | None) -> LatencyRow:
    """A row as it would have been on the occasion of the reference."""
    return row.times(1 / shift.factor) if shift and shift.log else row


def replaced_rows(published: LatencyTable, one: OneScale, log: OccasionLog) -> int:
    """How many rows of a table of another store differ from those in their place by more than their 95 % interval.

    A table of another store is one whose scale is of no occasion of this one. Both rows are of the same conditions and
    day, whose hour a table does not say.
    """
    if not _is_of_another_store(published, log):
        return 0
    aside = one.shifts.by_occasion.get(_PUBLISHED) if one.shifts is not None else None
    before = {row.workload: _brought(row, aside) for row in published}
    return sum(
        (row.measured_on, row.conditions) == (old.measured_on, old.conditions)
        and not row.stats.ci_low_s <= old.stats.median_s <= row.stats.ci_high_s
        for row in one.rows
        if row.stats is not None and (old := before.get(row.workload)) is not None and old.stats is not None
    )


def anchors(
    workspace: Workspace, campaign: Campaign, precisions: Sequence[Precision], variant: str = AUTO
) -> list[Workload]:
    """The anchors of the published tables of a campaign's target and conditions; none where there is no such table."""
    paths = [table_path(workspace.root, campaign.target, precision, variant) for precision in precisions]
    tables = [LatencyTable.read(path) for path in paths if path.is_file()]
    return [row.workload for table in tables if table.conditions == campaign.fingerprint for row in anchor_rows(table)]


def of_another_speed(workspace: Workspace, campaign: Campaign, workloads: Sequence[Workload]) -> list[Workload]:
    """Those whose row is older than the day that predictions speak of, and not known to be as fast on that day."""
    found, by_table = list[Workload](), dict[Path, list[Workload]]()
    for workload in workloads:
        variant = STREAM if workload.variant == STREAM else AUTO
        path = table_path(workspace.root, campaign.target, workload.precision, variant)
        by_table.setdefault(path, []).append(workload)
    scales = {path: LatencyTable.read(path).scale for path in by_table if path.is_file()}
    if campaign.emulated or not any(scales.values()):
        return found
    log = campaign.store.occasions(campaign.target, campaign.conditions)
    for path, scale in scales.items():
        if scale is None:
            continue
        if (day := _occasion_of(scale, log)) is None:
            day = next((at for at, end in enumerate(log.ended_at) if scale.age_s(end) >= 0), None)
        if day is None:
            continue
        shifts = occasion_shifts(list(log.several.values()), day).by_occasion
        for workload in by_table[path]:
            at = log.of_rows.get((workload, campaign.build_key(workload)), day)
            if at < day and (at not in shifts or abs(shifts[at].log) > SMALLEST):
                found.append(workload)
    return found


def tell_day(table: LatencyTable, moment: datetime, listener: Listener) -> None:
    """Says on which day's scale predictions speak, and where that is another occasion, how far it may be off."""
    if table.emulated:
        return
    known = occasion_uncertainty(table.scale, moment)
    day, command = describe_day(table, moment), f"hwbench profile --refresh --device {table.target.device}"
    if known.variance and (table.scale is None or not table.scale.is_of(moment)):
        options = f" --precision {table.precision}"
        options += f" --threads {table.target.threads}" if table.target.threads != 1 else ""
        options += f" --runtime {table.target.runtime}" if table.target.runtime != "executorch" else ""
        options += " --streaming" if table.variant == STREAM else ""
        listener.say(
            f"{day}; another occasion may differ by ±{known.spread(0.9) - 1:.0%}, which intervals allow for; "
            f"a minute moves the scale to now: {command}{options}"
        )
    elif table.scale is not None and table.scale.factor != 1.0:
        listener.say(day)


def describe_day(table: LatencyTable, moment: datetime | None = None) -> str:
    """The day that a table's predictions speak of, in words."""
    where = f"{table.target.device} in {table.precision}" + (", streams" if table.variant == STREAM else "")
    if table.scale is None:
        dates = [row.measured_on for row in table if row.stats is not None]
        return f"latencies of {where} are those of {max(dates, default='an unknown day')}"
    text = f"latencies of {where} are those of {table.scale}"
    if moment is None or table.scale.is_of(moment):
        return text
    age = table.scale.age_s(moment)
    return f"{text}, {_ago(age)} ago" if age > 0 else f"{text}, {_ago(-age)} ahead of the clock"


def moved_apart(table: LatencyTable, name: str, one: OneScale) -> str | None:
    """What is to be said where anchors moved apart, so that no factor brings a table to the day; else None.

    ``name`` is that of its file.
    """
    if one.shifts is None or not one.shifts.apart or len(one.moved) < 3:
        return None
    low, high = min(one.moved.values()), max(one.moved.values())
    blocks = moved_blocks(table, {w: math.expm1(v) for w, v in one.moved.items() if abs(v) > _TOLD})
    named = "; measure anew at first: " + ", ".join(block.key for block in blocks) if blocks else ""
    return (
        f"{name}: the networks that tell the scale moved apart, by {math.expm1(low):+.1%} to "
        f"{math.expm1(high):+.1%} beside each other: one factor does not bring the table to this day; "
        f"{table.command()} --remeasure{named}"
    )


def not_tied(table: LatencyTable, name: str, one: OneScale) -> str | None:
    """What is to be said where rows are as measured, because nothing ties their occasion to that of most; else None.

    ``name`` is that of its file.
    """
    count = sum(len(part.rows) for part in one.parts[1:])
    if not count:
        return None
    command = f"{table.command()} --refresh" if table.rows(Role.NETWORK) else table.command()
    was, it_is = ("was", "it is") if count == 1 else ("were", "they are")
    return (
        f"{name}: {counted(count, 'row')} {was} measured on an occasion of which nothing tells how fast the device was "
        f"beside the other rows, so that {it_is} as measured; a few rows measured again tell it: {command}"
    )


def _ago(seconds: float) -> str:
    for size, words in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            number = int(seconds // size)
            return counted(number, words)
    return "a moment"
