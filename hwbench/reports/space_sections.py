"""Spaces that compete in a study: what each has within a budget, and which one won."""

from __future__ import annotations

from collections.abc import Iterator

from hwbench.reports import commands
from hwbench.reports.fragments import DASH, code, number, reproduce
from hwbench.reports.markup import Html, element, table
from hwbench.reports.result import StoredResult
from hwbench.reports.study import StudyReport
from hwbench.studies.candidates import Candidate
from hwbench.studies.space_shares import SpaceShare
from hwbench.units import format_share


def spaces(report: StudyReport) -> Iterator[Html]:
    """Which space won at which budget, where several compete."""
    result = report.result
    if not result.spaces:
        return
    yield element("h2", "The spaces that compete")
    points = [(point.budget_ms, point.best, point.spaces) for point in result.front]
    rows = [
        _space_row(budget_ms, best, one, result)
        for budget_ms, best, of_budget in points or [(result.settings.budget_ms, result.best, result.spaces)]
        for one in of_budget
    ]
    columns = (
        *("budget (ms)", "space", "family", "networks within", "share", "scored", "highest score"),
        *("measured (ms)", "", "best that was measured within the budget"),
    )
    yield table(columns, rows, numeric=(0, 3, 4, 5, 6, 7))
    note = (
        f"Scores ({report.unit}) compare networks of several families only as far as the evaluator does. What follows "
        f"about blocks, tables and predictions is about {result.space}, the space of the winner."
    )
    yield element("p", note, class_="muted")
    yield reproduce(commands.search(result))


def _space_row(budget_ms: float, best: Candidate | None, one: SpaceShare, result: StoredResult) -> tuple[str, ...]:
    """A space within a budget, with its best network that was measured within it, and within those of other devices."""
    within = [c for c in result.measured if c.space == one.space and result.is_measured_within(c, budget_ms)]
    own = best if best is not None and best.space == one.space else max(within, key=lambda c: c.score, default=None)
    return (
        f"{budget_ms:g}",
        one.space,
        one.family,
        f"{one.feasible:,.0f}" if one.feasible < 1e9 else f"{one.feasible:.3g}",
        format_share(one.share),
        str(one.trials),
        DASH if one.score is None else f"{result.settings.shown_score(one.score):.6g}",
        DASH if own is None or own.measured_s is None else number(own.measured_s),
        "won" if own is not None and own is best else "",
        DASH if own is None else code(own.architecture),
    )
