"""The figures about a device: from aggregated numbers to plotly figures. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hwbench.reports.comparisons import Group
from hwbench.reports.coverage import Coverage
from hwbench.reports.drawing import BLUE, GREEN, GREY, ORANGE, SKY, TEMPLATE, VERMILLION, blank, line_mode, plain
from hwbench.reports.families import BlockFamily, Column, Grid, HeatMapCell, Quantity
from hwbench.reports.gains import FamilyGain, Gain
from hwbench.reports.timeline import EDGES, Interruption, TimelineVisit, classes

# One row of a heat map or of bars in pixels.
ROW = 24
# Values are written into the cells of a heat map with at most so many columns, which are wide enough for them then.
_WRITTEN = 14
_WRITTEN_COLUMN, _COLUMN = 56, 22
# Sessions drawn one by one; beyond this every n-th is.
MAX_MARKS = 5000
# Sessions over which the running median is taken.
WINDOW = 25
# Interruptions whose length is written beside their line; all of them say it when pointed at.
_LABELLED = 6
_MARKS = {"calibration": (GREY, "circle"), "held out": (GREEN, "square")}


def heat_map(grid: Grid, quantity: Quantity) -> go.Figure:
    """Families over inputs; colours are logarithmic, and a cell without a row shows the ground."""
    narrow = len(grid.columns) > _WRITTEN
    figure = blank(height=(200 if narrow else 150) + ROW * len(grid.families))
    shown = {at: _shown(cell.value, quantity) for at, cell in grid.cells.items()}
    figure.add_trace(
        go.Heatmap(
            x=list(range(len(grid.columns))),
            y=[plain(family.label) for family in grid.families],
            z=_matrix(grid, {at: math.log10(value) for at, value in shown.items()}),
            text=None if narrow else _matrix(grid, {at: f"{value:.3g}" for at, value in shown.items()}, ""),
            texttemplate=None if narrow else "%{text}",
            customdata=_matrix(grid, {at: _cell(at, cell, quantity) for at, cell in grid.cells.items()}),
            hovertemplate=TEMPLATE,
            hoverongaps=False,
            colorscale="Cividis",
            colorbar=_colorbar(list(shown.values()), "ms" if quantity is Quantity.LATENCY else "GMAC/s"),
            xgap=1,
            ygap=1,
        )
    )
    for place, (left, right) in enumerate(pairwise(grid.columns), start=1):
        if (left.height, left.width) != (right.height, right.width):
            figure.add_vline(x=place - 0.5, line={"color": GREY, "width": 1})
    figure.update_layout(plot_bgcolor="rgba(128,128,128,0.16)")
    figure.update_xaxes(
        title_text="input of the block: H×W, channels",
        tickvals=list(range(len(grid.columns))),
        ticktext=[f"{_size(c)}{', ' if narrow else '<br>'}{_channels(c)}" for c in grid.columns],
        tickangle=-90 if narrow else 0,
        showgrid=False,
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, title_text="block")
    return figure


def width(grid: Grid) -> int:
    """How many pixels the columns of a heat map need."""
    return len(grid.columns) * (_COLUMN if len(grid.columns) > _WRITTEN else _WRITTEN_COLUMN)


def family_gains(families: Sequence[FamilyGain]) -> go.Figure:
    """fp32 over int8 by family: the median as a mark, the ends as a line."""
    figure = blank(height=130 + ROW * len(families))
    colors = [VERMILLION if f.median < 1 else BLUE for f in families]
    figure.add_trace(
        go.Scatter(
            x=[f.median for f in families],
            y=[plain(f.family.label) for f in families],
            mode="markers",
            marker={"color": colors, "size": 9, "symbol": ["diamond" if f.median < 1 else "circle" for f in families]},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": [f.high - f.median for f in families],
                "arrayminus": [f.median - f.low for f in families],
                "color": GREY,
                "thickness": 1.5,
                "width": 3,
            },
            customdata=[
                f"{plain(f.family.label)}<br>median {f.median:.2f}, {f.low:.2f} to {f.high:.2f} of {f.count} rows"
                f"<br>{f.slower} slower in int8"
                for f in families
            ],
            hovertemplate=TEMPLATE,
            showlegend=False,
        )
    )
    figure.add_vline(x=1, line={"color": VERMILLION, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title_text="fp32 / int8: times as fast in int8", rangemode="tozero")
    figure.update_yaxes(range=[len(families) - 0.5, -0.5], title_text="block")
    return figure


def row_gains(gains: Sequence[Gain]) -> go.Figure:
    """fp32 over int8 of every row, sorted; those that are slower in int8 stand out."""
    figure = blank(height=340)
    faster = [(rank, gain) for rank, gain in enumerate(gains, start=1) if not gain.slower]
    slower = [(rank, gain) for rank, gain in enumerate(gains, start=1) if gain.slower]
    for name, color, symbol, several in (
        ("faster in int8", BLUE, "circle", faster),
        ("slower in int8", VERMILLION, "diamond", slower),
    ):
        figure.add_trace(
            go.Scatter(
                x=[rank for rank, _ in several],
                y=[gain.ratio for _, gain in several],
                mode="markers",
                name=f"{name} ({len(several)})",
                marker={"color": color, "symbol": symbol, "size": 6},
                customdata=[_gain(gain) for _, gain in several],
                hovertemplate=TEMPLATE,
            )
        )
    figure.add_hline(y=1, line={"color": VERMILLION, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title_text="row, from the largest gain to the smallest", **_whole(len(gains)))
    figure.update_yaxes(title_text="fp32 / int8", rangemode="tozero")
    return figure


def network_order(groups: Sequence[Group], finished: Mapping[str, str]) -> go.Figure:
    """The error of each network's prediction, in the order in which the networks were measured.

    Args:
        groups: Networks with their workloads.
        finished: When each was measured (ISO 8601), by the key of its workload; the others are left out.
    """
    figure = blank(height=320)
    measured = {w.key for group in groups for w in group.workloads if w.key in finished}
    # Two may have ended in the same moment: each has a place of its own.
    place = {key: number for number, key in enumerate(sorted(measured, key=lambda key: (finished[key], key)), start=1)}
    for group in groups:
        known = [(w.key, c) for w, c in zip(group.workloads, group.comparisons) if w.key in finished]
        color, symbol = _MARKS.get(group.name, (SKY, "cross"))
        figure.add_trace(
            go.Scatter(
                x=[place[key] for key, _ in known],
                y=[100 * c.error for _, c in known],
                mode="markers",
                name=plain(group.name),
                marker={"color": color, "symbol": symbol, "size": 8},
                customdata=[f"{finished[key][:19]} UTC: {c.error:+.2%}<br>{plain(c.name)}" for key, c in known],
                hovertemplate=TEMPLATE,
                showlegend=True,
            )
        )
    figure.add_hline(y=0, line={"color": GREY, "width": 1})
    figure.update_xaxes(title_text="network, in the order measured", **_whole(len(place)))
    figure.update_yaxes(title_text="error of the prediction (%)")
    return figure


def session_order(visits: Sequence[TimelineVisit], breaks: Sequence[Interruption]) -> go.Figure:
    """Above: the drift of the sentinel. Below: the residual of each session, and where known heat and clock."""
    told = _told(visits)
    heights = [0.3, 0.4, *[0.3] * len(told)]
    figure = make_subplots(rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.05)
    figure = blank(figure, 460 + 150 * len(told))
    step = max(1, math.ceil(len(visits) / MAX_MARKS))
    numbered = list(enumerate(visits, start=1))
    line = {"color": BLUE, "width": 1.5, "shape": "hv"}
    figure.add_trace(
        go.Scatter(
            x=[n for n, _ in numbered[::step]],
            y=[100 * v.drift for _, v in numbered[::step]],
            mode=line_mode(visits),
            name="sentinel",
            line=line,
            hovertemplate="session %{x}: the sentinel is %{y:+.2f} % slower than at first<extra></extra>",
        ),
        row=1,
        col=1,
    )
    clean = [(n, v) for n, v in numbered if not v.taken.suspect]
    doubted = [(n, v) for n, v in numbered if v.taken.suspect]
    for name, color, symbol, several in (
        ("session", GREY, "circle", clean[::step]),
        ("doubted session", VERMILLION, "x", doubted[:: max(1, math.ceil(len(doubted) / MAX_MARKS))]),
    ):
        figure.add_trace(_residuals(name, color, symbol, several), row=2, col=1)
    running = [median(v.residual for v in visits[max(0, i - WINDOW) : i + 1]) for i in range(len(visits))]
    figure.add_trace(
        go.Scatter(
            x=[n for n, _ in numbered[::step]],
            y=[100 * y for y in running[::step]],
            mode=line_mode(visits),
            name=f"median of the last {WINDOW}",
            line={"color": ORANGE, "width": 2},
            hoverinfo="skip",
        ),
        row=2,
        col=1,
    )
    for row, (title, values) in enumerate(told.items(), start=3):
        figure.add_trace(
            go.Scatter(
                x=[n for n, _ in numbered[::step]],
                y=values[::step],
                mode=line_mode(values[::step]),
                line={"color": GREEN, "width": 1.5},
                showlegend=False,
                hovertemplate="session %{x}: %{y:.4g}<extra></extra>",
            ),
            row=row,
            col=1,
        )
        figure.update_yaxes(title_text=title, row=row, col=1)
    _add_breaks(figure, visits, breaks)
    figure.update_yaxes(title_text="drift (%)", row=1, col=1)
    figure.update_yaxes(title_text="residual (%)", range=_range([100 * v.residual for v in visits]), row=2, col=1)
    figure.update_xaxes(title_text="session, in the order taken", row=len(heights), col=1)
    return figure


def spreads(measures: Mapping[str, Sequence[float]]) -> go.Figure:
    """How many rows have a spread of which class: one set of bars for each measure, as shares of its rows."""
    figure = blank(height=340)
    names = [f"< {EDGES[0]:.1%}", *(f"{a:.1%}–{b:.1%}" for a, b in pairwise(EDGES)), f"≥ {EDGES[-1]:.0%}"]
    colors = [SKY, BLUE, ORANGE, GREEN]
    for (name, values), color in zip(measures.items(), colors):
        counts = classes(values)
        figure.add_trace(
            go.Bar(
                x=[label.replace(".0%", "%") for label in names],
                y=[100 * count / max(len(values), 1) for count in counts],
                name=f"{name} ({len(values)} rows)",
                marker={"color": color},
                customdata=[f"{count} of {len(values)} rows" for count in counts],
                hovertemplate="%{x}: %{customdata}<extra></extra>",
            )
        )
    figure.update_layout(barmode="group", bargap=0.25, bargroupgap=0.05)
    figure.update_xaxes(title_text="relative to the median of the row", type="category")
    figure.update_yaxes(title_text="share of the rows (%)", rangemode="tozero")
    return figure


def covered(found: Coverage) -> go.Figure:
    """The blocks of a space by family: with a latency, failed, without a row."""
    families = list(found.families)
    figure = blank(height=130 + ROW * len(families))
    states: tuple[tuple[str, str, Any], ...] = (
        ("measured", BLUE, [found.families[f].measured for f in families]),
        ("failed", VERMILLION, [found.families[f].failed for f in families]),
        ("missing", "rgba(128,128,128,0.28)", [found.families[f].missing for f in families]),
    )
    for name, color, counts in states:
        figure.add_trace(
            go.Bar(
                x=counts,
                y=[plain(family.label) for family in families],
                orientation="h",
                name=name,
                marker={"color": color},
                hovertemplate=f"%{{y}}: %{{x}} {name}<extra></extra>",
            )
        )
    figure.update_layout(barmode="stack", bargap=0.25, legend_traceorder="normal")
    figure.update_xaxes(title_text="blocks of the space")
    figure.update_yaxes(autorange="reversed", showgrid=False, title_text="block")
    return figure


def _residuals(name: str, color: str, symbol: str, several: Sequence[tuple[int, TimelineVisit]]) -> go.Scatter:
    return go.Scatter(
        x=[n for n, _ in several],
        y=[100 * v.residual for _, v in several],
        mode="markers",
        name=name,
        marker={"color": color, "symbol": symbol, "size": 5, "opacity": 0.7},
        customdata=[_visit(n, v) for n, v in several],
        hovertemplate=TEMPLATE,
    )


def _add_breaks(figure: go.Figure, visits: Sequence[TimelineVisit], breaks: Sequence[Interruption]) -> None:
    """A line through the upper part for each interruption, dashed where it lies within a run."""
    if not breaks:
        return
    top = 100 * max([v.drift for v in visits])
    for number, pause in enumerate(sorted(breaks, key=lambda b: -b.seconds)[:60]):
        dash = "dash" if pause.why.startswith("within") else "dot"
        figure.add_vline(x=pause.before + 0.5, line={"color": GREY, "width": 1, "dash": dash}, row=1, col=1)
        if number < _LABELLED:
            figure.add_annotation(
                x=pause.before + 0.5, y=1, yref="y domain", xref="x", text=_pause(pause.seconds), showarrow=False,
                yanchor="bottom", font={"size": 11},
            )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=[pause.before + 0.5 for pause in breaks],
            y=[top] * len(breaks),
            mode="markers",
            name="interruption",
            marker={"color": ORANGE, "symbol": "triangle-down", "size": 8},
            customdata=[
                f"{_pause(b.seconds)} from {b.since[:19]} to {b.until[:19]} UTC<br>{plain(b.why)}" for b in breaks
            ],
            hovertemplate=TEMPLATE,
        ),
        row=1,
        col=1,
    )


def _told(visits: Sequence[TimelineVisit]) -> dict[str, list[float | None]]:
    """What the device told of itself with each session, by the title of the axis; None where it told nothing."""
    told = {
        "°C": [v.taken.session.temperature_celsius or None for v in visits],
        "clock (GHz)": [v.taken.session.clock_hz / 1e9 or None for v in visits],
    }
    return {title: values for title, values in told.items() if any(values)}


def _range(values: Sequence[float]) -> list[float]:
    """Holds all but the outermost fiftieth on either side, and at least ±2."""
    ordered = sorted(values)
    cut = len(ordered) // 50
    return [min(-2.0, 1.2 * ordered[cut]), max(2.0, 1.2 * ordered[-1 - cut])]


def _whole(count: int) -> dict[str, Any]:
    """Ticks at whole numbers only, where there are so few that others would be set between them."""
    return {"dtick": 1} if count <= 10 else {}


def _matrix(grid: Grid, values: Mapping[tuple[BlockFamily, Column], Any], absent: Any = None) -> list[list[Any]]:
    return [[values.get((family, column), absent) for column in grid.columns] for family in grid.families]


def _shown(value: float, quantity: Quantity) -> float:
    """Milliseconds, or 1e9 multiply-adds a second."""
    return 1e3 * value if quantity is Quantity.LATENCY else value / 1e9


def _colorbar(values: Sequence[float], unit: str) -> dict[str, Any]:
    """Round values at their place on the logarithmic scale."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    steps = [m * 10.0**e for e in range(-7, 7) for m in (1, 2, 5)]
    ticks = [step for step in steps if low <= step <= high] or [low]
    ticks = ticks if len(ticks) < 9 else [step for step in ticks if f"{step:e}"[0] == "1"]
    named = {"tickvals": [math.log10(t) for t in ticks], "ticktext": [f"{t:g}" for t in ticks]}
    return {"title": {"text": unit}, "thickness": 12, "outlinewidth": 0, **named}


def _size(column: Column) -> str:
    return f"{column.height}×{column.width}"


def _channels(column: Column) -> str:
    return f"{column.channels} ch" if column.channels else "any ch"


def _cell(at: tuple[BlockFamily, Column], cell: HeatMapCell, quantity: Quantity) -> str:
    family, column = at
    unit = "ms" if quantity is Quantity.LATENCY else "GMAC/s"
    value, low, high = (_shown(v, quantity) for v in (cell.value, cell.low, cell.high))
    channels = f"{column.channels} channels" if column.channels else "any channels"
    several = "" if cell.count == 1 else f"<br>median of {cell.count} rows, {low:.4g} to {high:.4g} {unit}"
    return f"{plain(family.label)}<br>{_size(column)}, {channels}<br>{value:.4g} {unit}{several}"


def _gain(gain: Gain) -> str:
    (block,) = gain.workload.blocks
    times = f"fp32 {1e3 * gain.fp32.median_s:.4f} ms, int8 {1e3 * gain.int8.median_s:.4f} ms"
    return f"{gain.ratio:.2f}: {times}<br>{plain(block.key)}<br>on {gain.workload.input} {plain(gain.workload.variant)}"


def _visit(number: int, visit: TimelineVisit) -> str:
    taken = visit.taken
    blocks = taken.workload.blocks
    what = blocks[0].key if len(blocks) == 1 else f"{len(blocks)} blocks"
    doubt = f"<br>doubted: {plain(taken.suspect)}" if taken.suspect else ""
    return (
        f"session {number}, {taken.taken_at[:19]} UTC: {visit.residual:+.2%} ({visit.uncorrected:+.2%} uncorrected)"
        f"<br>{plain(what)} on {taken.workload.input}, {taken.workload.precision}{doubt}"
    )


def _pause(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
