"""The end of a report: the command behind each number, and where the numbers come from."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Iterator

from hwbench import __version__
from hwbench.latency import Role
from hwbench.latency.occasions import scale_words
from hwbench.reports import commands
from hwbench.reports.fragments import DASH, code, facts, missing, ms, number, reproduce
from hwbench.reports.markup import Html, element, table
from hwbench.reports.profiled import Missing, Profiled
from hwbench.reports.study import StudyReport, Winner
from hwbench.specs import LatencyStats, Target


def reproduction(report: StudyReport) -> Iterator[Html]:
    """One command for every kind of number on the page."""
    result, precision = report.result, report.result.precision
    yield element("h2", "How to reproduce each number")
    yield element(
        "p",
        "Run these in the workspace. What is stored already is neither measured nor computed again; in a new workspace "
        "everything is. Measured latencies come back within the noise of the device; with the same versions all "
        "else comes back as it is here.",
    )
    rows: list[tuple[str, str]] = [
        ("rows of the latency table: blocks, boundaries, calibration networks; prediction intervals",
         commands.profile(result, precision)),
        ("scores, trials, front, predicted and measured latency of the candidates", commands.search(result)),
        ("latency of the winner as a whole network, measured anew", commands.bench(result, precision)),
    ]  # fmt: skip
    rows += [
        ("error of predictions on networks that no calibration has seen", line) for line in commands.validate(result)
    ]
    for key in result.settings.further_budgets_ms:
        other_target = Target.parse(key)
        rows.append((f"rows of the latency table of {key}", commands.profile(result, precision, other_target)))
        rows.append(
            (f"latency of the winner as a whole network on {key}", commands.bench(result, precision, other_target))
        )
    for other in report.tables:
        if other is not precision:
            rows.append((f"{other} latency of the blocks", commands.profile(result, other)))
            rows.append((f"{other} latency of the winner as a whole network", commands.bench(result, other)))
    rows.append(("top-1 of the trained winner", commands.train(result, report.models[0] if report.models else None)))
    rows += [(f"top-1 and size of the {p} file", commands.export(result, p)) for p in report.tables]
    rows += [(f"latency of {m.path.name} in {m.precision}", commands.bench_file(result, m.path)) for m in report.models]
    rows.append(("this page", report.command))
    yield table(("number", "command"), [(what, code(command)) for what, command in rows])


def provenance(report: StudyReport) -> Iterator[Html]:
    """Where the numbers come from: tables, conditions, versions, dates."""
    result = report.result
    yield element("h2", "Provenance")
    for precision, profiled in report.tables.items():
        yield element("h3", f"Latency table, {precision}")
        yield missing(profiled.reason) if isinstance(profiled, Missing) else facts(*_table_facts(profiled))
    if not isinstance(report.winner, Missing) and report.winner.measurement is not None:
        yield element("h3", "Measurement of the winner")
        yield facts(*_measurement_facts(report.winner))
    if report.conditions:
        yield element("h3", f"Conditions of the {result.precision} table")
        yield facts(*sorted(report.conditions.items()))
    yield element("h3", "Versions and dates")
    yield facts(
        ("hwbench", __version__),
        ("Runtime", f"{result.target.runtime} {result.target.version}"),
        ("Optuna, plotly", ", ".join(importlib.metadata.version(name) for name in ("optuna", "plotly"))),
        ("Python", platform.python_version()),
        ("Search, UTC", _searched(report)),
        ("Page written, UTC", report.written_at),
        ("Digest of the space's choices", result.settings.choices),
    )
    yield reproduce(report.command)


def _searched(report: StudyReport) -> str:
    """First and last moment of the search in UTC, or why they are not known."""
    if report.searched is not None:
        return " to ".join(report.searched)
    if report.result.storage is not None:
        return f"unknown: trials are kept in {report.result.storage}"
    return "unknown: the journal of the study is gone"


def _table_facts(profiled: Profiled) -> Iterator[tuple[str, str]]:
    rows = list(profiled.table)
    measured = [row for row in rows if row.stats is not None]
    counts = Counter(row.role for row in measured)
    yield "File", profiled.name
    yield "sha256", profiled.sha256
    yield "Rows", ", ".join(f"{counts[role]} {role}" for role in Role) + f", {len(rows) - len(measured)} failed"
    yield "Measured on", _range(row.measured_on for row in measured) + " (UTC)"
    yield "Conditions, fingerprint", ", ".join(sorted({row.conditions for row in measured})) or DASH
    if isinstance(profiled.predictor, Missing):
        yield "Calibration", profiled.predictor.reason
    else:
        fit = profiled.predictor.calibration
        yield "Calibration", fit.describe()
        yield "Prediction interval", f"× and ÷ {fit.spread:.4f}, on the occasion of the table"
        yield "Day of the predictions", scale_words(profiled.table.scale)


def _measurement_facts(winner: Winner) -> Iterator[tuple[str, str]]:
    assert winner.measurement is not None
    one = winner.measurement.measurement
    stats: LatencyStats = one.stats
    yield "Median", f"{ms(stats.median_s)} (median of the medians of {stats.num_sessions} sessions)"
    yield "95 % interval of the median", f"{number(stats.ci_low_s)} – {ms(stats.ci_high_s)}"
    yield "10th to 90th percentile", f"{number(stats.p10_s)} – {ms(stats.p90_s)} of {stats.num_samples} samples"
    yield (
        "Protocol",
        (
            f"warm-up {one.timing.warmup_s:g} s, at least {one.timing.min_samples} samples a session, "
            f"{one.timing.min_rounds} to {one.timing.max_rounds} sessions each time that it is measured"
        ),
    )
    yield "Finished, UTC", winner.measurement.finished_at
    yield "Artifact, sha256", one.artifact_sha256 or DASH


def _range(values: Iterator[str]) -> str:
    ordered = sorted(set(values))
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1]))) if ordered else DASH
