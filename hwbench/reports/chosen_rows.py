"""Rows that an adaptive profile chose: which were measured, which are filled in, and how good the table became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from hwbench.errors import NotMeasured
from hwbench.latency import LatencyTable, PredictionAccuracy
from hwbench.reports.drawing import BLUE, GREY, ORANGE, TEMPLATE, blank, plain
from hwbench.reports.families import BlockFamily
from hwbench.reports.fragments import figure, missing, reproduce, wide
from hwbench.reports.markup import Html, element
from hwbench.reports.profiled import Missing, or_missing
from hwbench.spaces import StagedSpace
from hwbench.specs import Outcome, Precision, Workload
from hwbench.studies.profiling_walk import ProfilingWalk, is_worth_choosing

if TYPE_CHECKING:
    from hwbench.reports.device import TargetReport

# One row of the map in pixels, one column, and what stands beside them.
_ROW, _MARGINS = 24, 330
# With at most so many columns there is room for a number in each cell.
_WRITTEN, _WRITTEN_COLUMN, _COLUMN = 14, 56, 26

InputShape = tuple[int, int, int]
"""Frames, height and width of what a block reads."""


@dataclass(frozen=True)
class ChosenRows:
    """One space in a table whose rows were chosen.

    Attributes:
        space: Its name.
        precision: Of the table.
        counts: Blocks that have a latency, and all, by family and input.
        history: Blocks so far and accuracy after each batch; or why that is not known.
    """

    space: str
    precision: Precision
    counts: Mapping[tuple[BlockFamily, InputShape], tuple[int, int]]
    history: tuple[tuple[int, PredictionAccuracy], ...] | Missing

    @property
    def measured(self) -> int:
        """Blocks of the space that have a latency."""
        return sum(measured for measured, _ in self.counts.values())

    @property
    def total(self) -> int:
        """Blocks of the space."""
        return sum(total for _, total in self.counts.values())


def chosen_rows(space: StagedSpace, classes: int, table: LatencyTable) -> ChosenRows | None:
    """What a table has of a space, and how good it was after each batch; None: its rows were not chosen."""
    if not table.adaptive or not is_worth_choosing(space, table.precision, classes):
        return None
    walk = ProfilingWalk(space, table.precision, classes)
    counts: dict[tuple[BlockFamily, InputShape], Counter[bool]] = {}
    for part in walk.parts:
        counts.setdefault((BlockFamily.of(part), _shape(part)), Counter())[part in table] += 1
    several = {at: (counted[True], counted.total()) for at, counted in sorted(counts.items())}
    return ChosenRows(space.name, table.precision, several, or_missing(lambda: _history(walk, table)))


def _history(walk: ProfilingWalk, table: LatencyTable) -> tuple[tuple[int, PredictionAccuracy], ...]:
    # Rows whose builds were killed: the profile went on without them.
    walk.given_up.update(row.workload.key for row in table if row.outcome is Outcome.LOST)
    walk.batch(table)
    found = tuple(walk.history(table))
    if not found:
        raise NotMeasured(
            f"{walk.space.name}, {walk.precision}: the rows are not those that are chosen without a budget, or too few "
            "networks were measured: how good the table was after each batch is not known"
        )
    return found


def chosen_section(one: TargetReport, prefix: str) -> Iterator[Html]:
    """What was chosen in each table, and what came of it; nothing where no rows were chosen."""
    if not one.chosen:
        return
    yield element("h2", "Measured and filled rows")
    for number, found in enumerate(one.chosen):
        yield element("h3", f"{found.space}, {found.precision}: {found.measured} of {found.total} rows measured")
        if isinstance(found.history, Missing):
            yield missing(found.history.reason)
        else:
            rows, last = found.history[-1]
            caption = (
                f"With {rows} rows, half of all networks are off by at most {last.bound:.1%} (90 %): {last.networks} "
                "networks that were left out one at a time say so. They judge all batches."
            )
            yield figure(f"{prefix}chosen-{number}-history", error_history(found.history), caption)
        drawn = figure(
            f"{prefix}chosen-{number}-map",
            chosen_map(found),
            "Share of the blocks that were measured (%), by family and input; the others are filled in from them.",
        )
        columns = len({shape for _, shape in found.counts})
        yield wide(drawn, _MARGINS + columns * (_COLUMN if columns > _WRITTEN else _WRITTEN_COLUMN))
        yield reproduce(f"{one.profile(found.precision, found.space)} --accuracy 1%")


def error_history(history: tuple[tuple[int, PredictionAccuracy], ...]) -> go.Figure:
    """Error of left-out networks, and its limit, against rows; both scales are logarithmic."""
    drawn = blank()
    rows = [count for count, _ in history]
    for name, color, dash, values in (
        ("at most (90 %)", ORANGE, "dash", [one.bound for _, one in history]),
        ("median of left-out networks", BLUE, "solid", [one.error for _, one in history]),
    ):
        drawn.add_trace(
            go.Scatter(
                x=rows,
                y=[100 * value for value in values],
                name=name,
                mode="lines+markers",
                line={"color": color, "dash": dash},
                customdata=[f"{count} rows: {value:.2%}" for count, value in zip(rows, values)],
                hovertemplate=TEMPLATE,
            )
        )
    drawn.update_xaxes(title_text="blocks measured", type="log", gridcolor=GREY, tickvals=rows, ticktext=rows)
    drawn.update_yaxes(title_text="error of a network (%)", rangemode="tozero")
    return drawn


def chosen_map(found: ChosenRows) -> go.Figure:
    """Families over inputs; a cell says which share of its blocks was measured."""
    families = list(dict.fromkeys(family for family, _ in found.counts))
    shapes = sorted({shape for _, shape in found.counts}, key=lambda shape: (shape[1] * shape[2], shape), reverse=True)
    narrow = len(shapes) > _WRITTEN

    def matrix(value: object) -> list[list[object]]:
        return [[value(found.counts.get((f, s))) for s in shapes] for f in families]  # type: ignore[operator]

    drawn = blank(height=160 + _ROW * len(families))
    drawn.add_trace(
        go.Heatmap(
            x=list(range(len(shapes))),
            y=[plain(family.label) for family in families],
            z=matrix(lambda at: at and 100 * at[0] / at[1]),
            text=None if narrow else matrix(lambda at: f"{100 * at[0] / at[1]:.0f}" if at else ""),
            texttemplate=None if narrow else "%{text}",
            customdata=matrix(lambda at: f"{at[0]} of {at[1]} measured" if at else "no such block"),
            hovertemplate="%{y}<br>" + TEMPLATE,
            hoverongaps=False,
            colorscale="Cividis",
            zmin=0,
            zmax=100,
            colorbar={"title": {"text": "%"}, "thickness": 12},
            xgap=1,
            ygap=1,
        )
    )
    drawn.update_layout(plot_bgcolor="rgba(128,128,128,0.16)")
    drawn.update_xaxes(
        title_text="input of the block: T×H×W",
        tickvals=list(range(len(shapes))),
        ticktext=[f"{t}×{h}×{w}" for t, h, w in shapes],
        tickangle=-90 if narrow else -45,
        showgrid=False,
    )
    drawn.update_yaxes(autorange="reversed", showgrid=False, title_text="block")
    return drawn


def _shape(part: Workload) -> InputShape:
    return part.input.t, part.input.h, part.input.w
