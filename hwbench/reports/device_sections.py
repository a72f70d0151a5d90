"""The sections of a report about a device, from the gathered values to HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from hwbench.latency import LatencyTable, Role
from hwbench.latency.calibration import NOMINAL
from hwbench.printable import counted
from hwbench.reports import device_figures as figures
from hwbench.reports.chosen_rows import chosen_section
from hwbench.reports.comparisons import calibration_group
from hwbench.reports.coverage import Coverage
from hwbench.reports.device import DeviceReport, StreamTable, TargetReport
from hwbench.reports.device_headline import headline, table_facts, target_headline
from hwbench.reports.families import Quantity, block_rows, frames, grid
from hwbench.reports.figures import predicted_measured
from hwbench.reports.fragments import (
    chooser,
    code,
    facts,
    figure,
    missing,
    number,
    numbers,
    reproduce,
    sortable,
    wide,
)
from hwbench.reports.gains import Gain, by_family, gains
from hwbench.reports.markup import Html, element, join, table
from hwbench.reports.profiled import COMPARED, Missing, compared, not_built
from hwbench.reports.sections import GROUP_COLUMNS, group_row, group_sentence
from hwbench.reports.sustained import sustained_section
from hwbench.reports.timeline import doubts, half_width, interruptions, session_spreads, visits
from hwbench.specs import Outcome, Precision
from hwbench.units import format_duration

Section = Callable[[TargetReport, str], Iterator[Html]]
# Missing blocks and interruptions that are listed; the others are counted.
_LISTED = 40
# The labels of families beside a heat map and its scale, in pixels.
_MARGINS = 330


def everything(report: DeviceReport) -> list[Html]:
    """All sections; those of a target are there once for each."""
    parts = [join(headline(report))]
    for number_, target in enumerate(report.targets):
        prefix = f"t{number_}-"
        sections: list[Section] = [
            partial(target_headline, command=report.command),
            heat_maps,
            int8_gain,
            accuracy,
            order,
            quality,
            chosen_section,
            coverages,
        ]
        parts += [join(section(target, prefix)) for section in sections]
    if report.streams:
        parts.append(join(streams(report.streams)))
    if report.courses:
        parts.append(join(sustained_section(report.courses)))
    return parts


def heat_maps(one: TargetReport, prefix: str) -> Iterator[Html]:
    """Latency and rate of the blocks by family and shape, and the rows themselves."""
    yield element("h2", "Blocks by shape")
    rows = {p: block_rows(measured) for p, measured in one.measured.items()}
    rows = {p: several for p, several in rows.items() if several}
    for precision in one.tables:
        if precision not in rows:
            yield missing(f"no block has a latency in {precision}; measure some: {one.profile(precision)}")
    if not rows:
        return
    clips = sorted({count for several in rows.values() for count in frames(several)})
    views: dict[tuple[str, ...], Html] = {}
    for precision, several in rows.items():
        for count in clips:
            some = [row for row in several if row.workload.input.t == count]
            for quantity in Quantity:
                found = grid(some, quantity)
                if found.cells:
                    name = f"{prefix}map-{precision}-{quantity}-{count}"
                    caption = f"{_WHAT[quantity]} of {len(some)} blocks in {precision} on {_frames(count)}. {_CELLS}"
                    drawn = figure(name, figures.heat_map(found, quantity), caption)
                    key = (precision.value, _WORDS[quantity], _frames(count))
                    views[key] = wide(drawn, _MARGINS + figures.width(found))
    named = {
        "precision": [p.value for p in sorted(rows, reverse=True)],
        "colour": [_WORDS[q] for q in (Quantity.RATE, Quantity.LATENCY)],
        "input": [_frames(count) for count in clips],
    }
    yield chooser(named, views)
    total = sum(map(len, rows.values()))
    listing = sortable(f"{prefix}blocks", _ROW_COLUMNS, [cells for t in one.measured.values() for cells in _rows(t)])
    yield element("details", element("summary", f"All rows ({total} blocks, and chains, networks, failures)"), listing)
    yield reproduce(*(one.profile(p) for p in one.measured))


_WORDS = {Quantity.RATE: "GMAC/s", Quantity.LATENCY: "latency"}
_WHAT = {Quantity.RATE: "1e9 multiply-adds a second", Quantity.LATENCY: "Latency"}
_CELLS = (
    "A cell is the median of the rows that differ in inner and output channels only; grey: none was measured. /2 is "
    "the stride, se is squeeze-excite. The scale is logarithmic."
)
_ROW_COLUMNS = (
    "precision", "role", "outcome", "block", "input N×C×T×H×W", "layout", "latency (ms)", "± (%)", "MMAC", "GMAC/s",
    "sessions", "measured on", "reason",
)  # fmt: skip


def int8_gain(one: TargetReport, prefix: str) -> Iterator[Html]:
    """fp32 over int8."""
    yield element("h2", "What int8 gains")
    tables = one.measured
    runtime, lacking = one.target.runtime, [p for p in COMPARED if p not in tables]
    unbuilt = [p for p in lacking if p not in compared(runtime)]
    for precision in unbuilt:
        yield missing(not_built(runtime, precision))
    if unbuilt:
        return
    for precision in lacking:
        yield missing(
            f"the gain needs both precisions, and {precision} is not there; measure it: {one.profile(precision)}"
        )
    if lacking:
        return
    found = gains(tables[Precision.FP32], tables[Precision.INT8])
    if not found:
        yield missing(f"no block has a latency in both precisions; measure both: {one.profile(Precision.FP32)}")
        return
    slower = [gain for gain in found if gain.slower]
    certain = sum(gain.certain for gain in slower)
    middle = median(gain.ratio for gain in found)
    networks = gains(tables[Precision.FP32], tables[Precision.INT8], Role.NETWORK)
    whole = (
        f" Of {len(networks)} whole networks the median is {median(g.ratio for g in networks):.2f}." if networks else ""
    )
    caption = (
        f"Of {len(found)} blocks in both precisions the median is {middle:.2f} times as fast in int8; {len(slower)} "
        f"are slower in int8 ({certain} of them by more than their 95 % intervals).{whole} Single blocks pay for "
        "converting their input and output, which inside a network happens once."
    )
    yield figure(f"{prefix}families", figures.family_gains(by_family(found)), caption)
    yield figure(f"{prefix}gains", figures.row_gains(found), "Each block by itself, sorted.")
    columns = ("fp32 / int8", "fp32 (ms)", "int8 (ms)", "intervals", "block", "input N×C×T×H×W", "layout")
    if slower:
        worst = [_gain_cells(gain) for gain in reversed(slower)]
        shown = [tuple(f"{c:.3f}" if isinstance(c, float) else c for c in cells) for cells in worst[:_LISTED]]
        yield element("h3", f"Slower in int8: {len(slower)} blocks" + _first(worst))
        yield table(columns, shown, numeric=(0, 1, 2))
    else:
        yield element("p", "No block is slower in int8.")
    listing = sortable(f"{prefix}gain", columns, [_gain_cells(gain) for gain in found])
    yield element("details", element("summary", f"All gains ({len(found)})"), listing)
    yield reproduce(*(one.profile(p) for p in COMPARED))


def accuracy(one: TargetReport, prefix: str) -> Iterator[Html]:
    """Predicted against measured networks, and the errors in the order of measuring."""
    yield element("h2", "Predicted against measured networks")
    for precision, profiled in one.tables.items():
        if isinstance(profiled, Missing):
            yield missing(profiled.reason)
            continue
        yield element("h3", precision.value)
        groups = one.groups.get(precision, ())
        if isinstance(profiled.predictor, Missing):
            yield missing(profiled.predictor.reason)
        if not groups or isinstance(profiled.predictor, Missing):
            continue
        fit = profiled.predictor.calibration
        caption = (
            f"The band is the prediction interval on the occasion of the table, a factor of {fit.spread:.4f} either "
            f"way (90 % nominal), from {fit.count} networks. "
            + " ".join(group_sentence(group, True) for group in groups)
        )
        if fit.promised < NOMINAL:
            caption += f" So few calibration networks promise only {fit.promised:.0%}."
        yield figure(f"{prefix}predicted-{precision}", predicted_measured(groups, fit.spread), caption)
        yield table(GROUP_COLUMNS, [group_row(group, True) for group in groups], numeric=range(1, 8))
        if all(group.name != "held out" for group in groups):
            yield missing(f"no network that the calibration has not seen was measured: {one.validate(precision)}")
        finished = _finished(one)
        if any(w.key in finished for group in groups for w in group.workloads):
            drawn = figures.network_order(groups, finished)
            yield figure(f"{prefix}errors-{precision}", drawn, "Errors of the predictions in the order of measuring: "
                         "a trend says that the device changed meanwhile.")  # fmt: skip
        else:
            yield missing("the order in which the networks were measured is not known here: only the store knows it")
    yield reproduce(*(command for p in one.measured for command in (one.profile(p), one.validate(p))))


def order(one: TargetReport, prefix: str) -> Iterator[Html]:
    """Residuals in measuring order, and the drift of the sentinel with interruptions."""
    yield element("h2", "Residuals in measuring order, and drift")
    if isinstance(one.stored, Missing):
        yield missing(one.stored.reason)
        return
    sessions = one.stored.sessions
    if not sessions:
        yield missing(f"no session was taken yet: {one.profile()}")
        return
    found, breaks = visits(sessions), interruptions(sessions)
    drifts = sorted(v.drift for v in found)
    within = [pause for pause in breaks if pause.why.startswith("within")]
    left = f" {one.left_out} sessions under other conditions are not shown." if one.left_out else ""
    thinned = len(found) > figures.MAX_MARKS
    caption = (
        f"{len(found)} sessions from {sessions[0].taken_at[:16]} to {sessions[-1].taken_at[:16]} UTC. Above, how much "
        f"slower the sentinel was than at first ({drifts[0]:+.1%} to {drifts[-1]:+.1%}, median {median(drifts):+.1%}). "
        "Below, the median of each session, corrected for that drift, relative to the median of its row; a trend is "
        f"what the correction did not take away. Lines mark {len(breaks)} interruptions, dashed where they lie within "
        f"a run ({len(within)}).{left}" + (" Only every few sessions are drawn." if thinned else "")
    )
    yield figure(f"{prefix}order", figures.session_order(found, breaks), caption)
    if breaks:
        longest = sorted(breaks, key=lambda pause: -pause.seconds)
        cells = [(p.since[:19], p.until[:19], format_duration(p.seconds), p.why) for p in longest[:_LISTED]]
        title = f"Interruptions ({len(breaks)}), the longest first" + _first(longest)
        yield numbers(title, ("from (UTC)", "to (UTC)", "length", "why"), cells, (2,))
    yield reproduce(*(one.profile(p) for p in one.measured))


def quality(one: TargetReport, prefix: str) -> Iterator[Html]:
    """How far sessions differ, how wide intervals are, and which sessions were doubted."""
    yield element("h2", "Spread of sessions, and doubts")
    measures = {
        f"95 % interval, {p}": [half_width(row.stats) for row in measured if row.stats is not None]
        for p, measured in one.measured.items()
    }
    if not isinstance(one.stored, Missing):
        spreads = {f"sessions, {p}": session_spreads(one.stored.sessions, p) for p in one.measured}
        measures |= {name: values for name, values in spreads.items() if values}
    measures = {name: values for name, values in measures.items() if values}
    if measures:
        widths = [v for name, values in measures.items() if name.startswith("95") for v in values]
        good = sum(width <= 0.01 for width in widths)
        caption = (
            f"95 % interval: its half-width; {good} of {len(widths)} rows are within 1 %. Sessions: slowest less "
            "fastest of those of a row that nothing speaks against."
        )
        yield figure(f"{prefix}spread", figures.spreads(measures), caption)
    if isinstance(one.stored, Missing):
        yield missing(one.stored.reason)
        return
    sessions = one.stored.sessions
    doubted = doubts(sessions)
    count = sum(doubt.count for doubt in doubted)
    if not sessions or not count:
        yield element("p", f"None of {len(sessions)} sessions was doubted.")
        return
    share = f"{count} of {len(sessions)} sessions ({count / len(sessions):.1%})"
    yield element("p", f"{share} were doubted; they are kept, and others taken in their place, up to a limit.")
    cells = [(d.kind, str(d.count), f"{d.share:.1%}", d.example) for d in doubted]
    yield table(("why", "sessions", "share", "for example"), cells, numeric=(1, 2))


def coverages(one: TargetReport, prefix: str) -> Iterator[Html]:
    """Which blocks of spaces have rows."""
    yield element("h2", "Coverage of spaces")
    if not one.coverages:
        yield missing(f"no table, so no block of any space is measured: {one.profile()}")
    for number_, found in enumerate(one.coverages):
        if isinstance(found, Missing):
            yield missing(found.reason)
        else:
            yield from _coverage(one, f"{prefix}coverage-{number_}", found)


def _coverage(one: TargetReport, name: str, found: Coverage) -> Iterator[Html]:
    share = found.whole
    command = one.profile(found.precision, found.space)
    yield element("h3", f"{found.space}, {found.precision}: {share.measured / share.total:.1%}")
    caption = (
        f"{share.measured} of {share.total} blocks of the space have a latency, {share.failed} failed, {share.missing} "
        f"have no row (heads for {found.classes} classes, layout auto)."
    )
    yield figure(name, figures.covered(found), caption)
    if found.missing:
        cells = [(code(part.blocks[0].key), part.input.key) for part in found.missing[:_LISTED]]
        title = f"Blocks without a row ({len(found.missing)})" + _first(found.missing)
        yield numbers(title, ("block", "input N×C×T×H×W"), cells, ())
        yield reproduce(command)
    elif share.failed:
        yield reproduce(f"{command} --retry")


def streams(tables: Sequence[StreamTable]) -> Iterator[Html]:
    """The tables of new frames of streams: their rows, and their networks against the prediction."""
    yield element("h2", "New frames of streams")
    yield element("p", "A row is one new frame, with the states of causal convolutions going in and out.")
    for position, one in enumerate(tables):
        profiled, measured = one.profiled, one.profiled.table
        yield element("h3", f"{measured.target}, {measured.precision}")
        if measured.emulated:
            yield missing(f"{profiled.name} was taken under emulation: its numbers are no latencies of a device")
        yield facts(*table_facts(profiled))
        if isinstance(profiled.predictor, Missing):
            yield missing(profiled.predictor.reason)
        else:
            group, fit = calibration_group(profiled.predictor, ()), profiled.predictor.calibration
            if group.comparisons:
                band = "The band is the prediction interval on the occasion of the table"
                caption = f"{band}, a factor of {fit.spread:.4f} either way. "
                drawn = predicted_measured([group], fit.spread)
                yield figure(f"stream-{position}-predicted", drawn, caption + group_sentence(group, True))
        listing = sortable(f"stream-{position}-blocks", _ROW_COLUMNS, list(_rows(measured)))
        yield element("details", element("summary", f"All rows ({len(list(measured))})"), listing)
        yield reproduce(one.command)


def _rows(measured: LatencyTable) -> Iterator[tuple[str | float | None, ...]]:
    known = {row.workload: row for row in block_rows(measured)}
    for row in measured:
        workload, stats = row.workload, row.stats
        block = known.get(workload)
        count = block.macs if block else None
        rate = block.rate if block else None
        yield (
            measured.precision.value,
            row.role.value,
            row.outcome.value,
            ">".join(b.key for b in workload.blocks),
            workload.input.key,
            workload.variant,
            None if stats is None else round(1e3 * stats.median_s, 6),
            None if stats is None else round(100 * half_width(stats), 2),
            None if count is None else round(count / 1e6, 4),
            None if rate is None else round(rate / 1e9, 3),
            None if stats is None else stats.num_sessions,
            row.measured_on,
            "" if row.outcome is Outcome.OK else row.reason,
        )


def _gain_cells(gain: Gain) -> tuple[str | float, ...]:
    (block,) = gain.workload.blocks
    apart = "apart" if gain.certain else "overlap"
    times = (round(gain.ratio, 3), float(number(gain.fp32.median_s)), float(number(gain.int8.median_s)))
    return (*times, apart, block.key, gain.workload.input.key, gain.workload.variant)


def _finished(one: TargetReport) -> dict[str, str]:
    """When each workload was measured, by its key; the latest time where there are several."""
    rows = () if isinstance(one.stored, Missing) else one.stored.rows
    return {row.measurement.workload.key: row.finished_at for row in sorted(rows, key=lambda row: row.finished_at)}


def _frames(count: int) -> str:
    return counted(count, "frame")


def _first(several: Sequence[object]) -> str:
    return f", the first {_LISTED}" if len(several) > _LISTED else ""
