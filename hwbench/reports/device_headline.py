"""The top of a report about a device, and of each of its targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from hwbench import __version__
from hwbench.latency import Role
from hwbench.latency.occasions import scale_words
from hwbench.reports.device import DeviceReport, TargetReport
from hwbench.reports.fragments import DASH, code, facts, missing, reproduce, tile
from hwbench.reports.markup import Html, element, table
from hwbench.reports.profiled import Missing, Profiled
from hwbench.reports.timeline import half_width


def headline(report: DeviceReport) -> Iterator[Html]:
    """The device."""
    yield element("h1", f"Device {report.device}")
    known = "" if isinstance(report.description, Missing) else report.description
    if known:
        yield element("p", known, class_="lead")
    if isinstance(report.description, Missing):
        yield missing(report.description.reason)
    yield from (missing(f"a table could not be read: {one.reason}") for one in report.damaged)
    yield facts(
        ("Processor or model", ", ".join(_models(report)) or "not known here: only the store of a workspace says it"),
        ("Targets", ", ".join(_targets(report)) or "none"),
        ("Page written, UTC", report.written_at),
        ("hwbench", __version__),
    )


def target_headline(one: TargetReport, prefix: str, *, command: str) -> Iterator[Html]:
    """One target: rows, failures, conditions, when it was measured; ``command`` writes the page again."""
    yield element("h2", f"{one.target}")
    yield element("div", *(tile(*cells) for cells in _tiles(one)), class_="tiles")
    for precision, profiled in one.tables.items():
        if isinstance(profiled, Missing):
            yield missing(profiled.reason)
        else:
            if profiled.table.emulated:
                yield missing(f"{profiled.name} was taken under emulation: its numbers are no latencies of a device")
            yield element("h3", f"Latency table, {precision}")
            yield facts(*table_facts(profiled))
            yield from _failures(profiled, f"{one.profile(precision)} --retry")
    yield from _conditions(one)
    yield reproduce(*(one.profile(p) for p in one.tables), command)


def _targets(report: DeviceReport) -> dict[str, None]:
    """Those of tables of clips and of streams, each once."""
    targets = [*(one.target for one in report.targets), *(one.profiled.table.target for one in report.streams)]
    return dict.fromkeys(map(str, targets))


def _models(report: DeviceReport) -> list[str]:
    """What the device called itself when it was measured."""
    known = [one.stored for one in report.targets if not isinstance(one.stored, Missing)]
    used = [stored.conditions.get(taken.conditions, {}) for stored in known for taken in stored.sessions]
    return sorted({conditions["model"] for conditions in used if conditions.get("model")})


def _tiles(one: TargetReport) -> Iterator[tuple[str, str, str]]:
    for precision, measured in one.measured.items():
        rows = list(measured)
        widths = [half_width(row.stats) for row in rows if row.stats is not None]
        wide = f", 95 % interval of the median row ±{median(widths):.2%}" if widths else ""
        yield f"rows, {precision}", str(len(widths)), f"{len(rows) - len(widths)} failed{wide}"
    for precision, measured in one.measured.items():
        if measured.aa is not None:
            test = measured.aa.found
            note = f"A/A test: one model as if it were two, 95 % {test.low:+.2%} to {test.high:+.2%}"
            yield f"A/A, {precision}", f"{test.difference:+.2%}", note
    for precision, groups in one.groups.items():
        for group in groups:
            if group.summary is not None:
                note = f"median error, {group.summary.networks} networks, {group.name}"
                yield f"prediction, {precision}", f"{group.summary.median_error:.1%}", note
    for found in one.coverages:
        if not isinstance(found, Missing):
            share = found.whole
            note = f"{share.measured} of {share.total} blocks, {found.precision}"
            yield found.space, f"{share.measured / share.total:.1%}", note


def table_facts(profiled: Profiled) -> Iterator[tuple[str, str]]:
    """What a table is, in names and values."""
    rows = list(profiled.table)
    good = [row for row in rows if row.stats is not None]
    counts = Counter(row.role for row in good)
    dates = sorted({row.measured_on for row in rows})
    yield "File", profiled.name
    yield "sha256", profiled.sha256
    yield "Rows", ", ".join(f"{counts[role]} {role}" for role in Role) + f", {len(rows) - len(good)} failed"
    yield "Measured on", " to ".join(dict.fromkeys((dates[0], dates[-1]))) + " (UTC)" if dates else DASH
    yield "Conditions, fingerprint", ", ".join(sorted({row.conditions for row in good})) or DASH
    aa = profiled.table.aa
    yield "A/A test", f"{aa.found} ({aa.made_on})" if aa else "none is published; hwbench profile ends with one"
    between = profiled.table.between_runs
    held = f"{between:.1%} of standard deviation is" if between else "nothing is"
    yield "Between runs", f"{held} in the intervals for what another hour changes"
    if not isinstance(profiled.predictor, Missing):
        fit = profiled.predictor.calibration
        yield "Calibration", fit.describe()
        yield "Prediction interval", f"× and ÷ {fit.spread:.4f}, on the occasion of the table"
        yield "Day of the predictions", scale_words(profiled.table.scale)


def _failures(profiled: Profiled, again: str) -> Iterator[Html]:
    failed = [row for row in profiled.table if row.stats is None]
    if failed:
        cells = [(code(row.workload.key), row.outcome.value, row.reason) for row in failed]
        summary = ", ".join(f"{n} {outcome}" for outcome, n in Counter(row.outcome.value for row in failed).items())
        yield element(
            "details",
            element("summary", f"Failed rows ({summary})"),
            table(("workload", "outcome", "reason"), cells),
            reproduce(again),
        )


def _conditions(one: TargetReport) -> Iterator[Html]:
    """What the fingerprints of the tables stand for; only the store knows."""
    if isinstance(one.stored, Missing):
        yield missing(one.stored.reason)
        return
    digests = {taken.conditions for taken in one.stored.sessions}
    for digest in sorted(digests):
        yield element("h3", f"Conditions {digest}")
        yield facts(*sorted(one.stored.conditions.get(digest, {}).items()))
