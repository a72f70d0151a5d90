"""The figures about a study: from its values to plotly figures. Pure functions; latencies are drawn in milliseconds."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hwbench.reports.comparisons import Group
from hwbench.reports.drawing import BESIDE_BARS, BLUE, GREEN, GREY, ORANGE, SKY, TEMPLATE, VERMILLION, blank, plain
from hwbench.reports.result import StoredResult
from hwbench.reports.study import Block, StudyReport, Winner
from hwbench.specs import Precision
from hwbench.studies.candidates import Candidate

# One bar and its gap, in pixels.
_ROW, _ROW_OF_TWO = 24, 34
_HOVER_WIDTH = 64
# Points that tell their network. Among more nobody finds one, and the names would be most of the page.
MAX_NAMED = 2000
_MARKS = {"calibration": (GREY, "circle"), "candidates": (ORANGE, "diamond"), "held out": (GREEN, "square")}


def pareto(report: StudyReport) -> go.Figure:
    """Score over latency: every trial, the front, the measured candidates, the winner, the budget."""
    result = report.result
    figure = blank()

    def points(candidates: Sequence[Candidate], name: str, color: str, **mark: Any) -> go.Scatter:
        return _points([result.settings.shown(c) for c in candidates], name, color, **mark)

    figure.add_trace(points(result.history, "trials, predicted", GREY, symbol="circle", size=6, opacity=0.55))
    front = points(result.pareto, "front, predicted", BLUE, symbol="circle", size=7)
    figure.add_trace(front.update(mode="lines+markers", line={"color": BLUE, "width": 2, "shape": "hv"}))
    measured = [c for c in result.measured if c.measured_s is not None]
    others = [c for c in measured if c.architecture != result.best.architecture]
    answers = [point.best for point in result.front if point.best is not None]
    smaller = [answer for answer in answers if answer.architecture != result.best.architecture]
    figure.add_trace(points(others, "candidates, measured", ORANGE, symbol="diamond", size=10, measured=True))
    if smaller:
        figure.add_trace(points(smaller, "best of smaller budgets", GREEN, symbol="star", size=13, measured=True))
    best = [result.best]
    at = result.best.measured_s is not None
    name = "winner, measured" if at else "winner, predicted"
    figure.add_trace(points(best, name, VERMILLION, symbol="star", size=16, measured=at))
    for budget in result.settings.front_ms:
        figure.add_vline(x=budget, line={"color": VERMILLION, "width": 1.5, "dash": "dash"})
        place = {"showarrow": False, "xanchor": "right", "yanchor": "bottom", "xshift": -4}
        figure.add_annotation(x=budget, y=0, yref="paper", text=f"budget {budget:g} ms", **place)
    figure.update_xaxes(title_text=f"latency on {plain(result.target.device)} (ms)")
    figure.update_yaxes(title_text=plain(report.unit))
    return figure


def unnamed(result: StoredResult) -> str:
    """Where the networks of trials stand whose points do not tell them, as a sentence behind others; empty: they do."""
    if len(result.history) <= MAX_NAMED:
        return ""
    return f" Points of more than {MAX_NAMED:,} trials do not tell their networks, which stand in {result.path}."


def predicted_measured(groups: Sequence[Group], spread: float | None) -> go.Figure:
    """Above: measured over predicted with the prediction interval. Below: the relative error of each network."""
    figure = blank(
        make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.06), 620
    )
    times = [1e3 * c.predicted.seconds for group in groups for c in group.comparisons]
    ends = [0.96 * min(times), 1.04 * max(times)] if times else [0.0, 1.0]
    if spread is not None:
        _band(figure, ends, [[x * spread for x in ends], [x / spread for x in ends]], row=1)
        _band(figure, ends, [[100 * (spread - 1)] * 2, [100 * (1 / spread - 1)] * 2], row=2)
    for share, dash in ((0, "solid"), (5, "dash"), (-5, "dash"), (10, "dot"), (-10, "dot")):
        line = {"color": GREY, "width": 1, "dash": dash}
        shown = {"mode": "lines", "line": line, "hoverinfo": "skip", "name": "equal" if not share else f"±{share} %"}
        legend = {"legendgroup": f"±{abs(share)}", "showlegend": share >= 0}
        # the error is relative to what was measured: 5 % too high means measured = predicted / 1.05
        figure.add_trace(go.Scatter(x=ends, y=[x / (1 + share / 100) for x in ends], **shown, **legend), row=1, col=1)
        figure.add_trace(go.Scatter(x=ends, y=[share] * 2, **shown, **legend | {"showlegend": False}), row=2, col=1)
    for group in groups:
        for row in (1, 2):
            figure.add_trace(_compared(group, errors=row == 2), row=row, col=1)
    figure.update_yaxes(title_text="measured (ms)", row=1, col=1)
    figure.update_yaxes(title_text="error (%)", row=2, col=1)
    figure.update_xaxes(title_text="predicted (ms)", row=2, col=1)
    return figure


def history(report: StudyReport) -> go.Figure:
    """Score of each trial, and the best so far of those within the budget."""
    in_order = sorted(report.result.history, key=lambda c: c.trial)
    trials = list(map(report.result.settings.shown, in_order))
    numbers = [c.trial for c in trials]
    figure = blank()
    text = _told(trials)
    shown = {"mode": "markers", "name": "trial", "marker": {"color": GREY, "size": 6, "opacity": 0.7}}
    figure.add_trace(
        go.Scatter(x=numbers, y=[c.score for c in trials], customdata=text, hovertemplate=TEMPLATE, **shown)
    )
    within = map(report.result.is_within, in_order)
    best = accumulate((c.score if counts else -math.inf for c, counts in zip(trials, within, strict=True)), max)
    course = [(number, score) for number, score in zip(numbers, best, strict=True) if score > -math.inf]
    shown = {"mode": "lines", "name": "best so far", "line": {"color": BLUE, "width": 2, "shape": "hv"}}
    figure.add_trace(go.Scatter(x=[n for n, _ in course], y=[score for _, score in course], hoverinfo="skip", **shown))
    figure.update_xaxes(title_text="trial (number)")
    figure.update_yaxes(title_text=plain(report.unit))
    return figure


def blocks(winner: Winner, precision: Precision) -> go.Figure:
    """What each block of the winner adds to the latency of the whole, in network order from the top."""
    rows = [(b, b.costs_s[precision]) for b in winner.blocks if precision in b.costs_s]
    whole = sum(seconds for _, seconds in rows) or 1.0
    figure = blank(height=120 + _ROW * len(winner.blocks))
    figure.add_trace(
        go.Bar(
            y=[b.name for b, _ in rows],
            x=[1e3 * seconds for _, seconds in rows],
            orientation="h",
            marker={"color": BLUE},
            text=[f"{seconds / whole:.1%}" for _, seconds in rows],
            textposition="outside",
            cliponaxis=False,
            customdata=[_block(b) for b, _ in rows],
            hovertemplate="%{y}: %{x:.4f} ms (%{text})<br>%{customdata}<extra></extra>",
            name=precision.value,
            showlegend=False,
        )
    )
    _network_order(figure, winner)
    figure.update_layout(margin_r=BESIDE_BARS)
    figure.update_xaxes(range=[0, 1e3 * max((seconds for _, seconds in rows), default=1e-3)])
    figure.update_xaxes(title_text=f"predicted latency inside the network, {precision} (ms)")
    return figure


def precisions(winner: Winner) -> go.Figure:
    """The blocks of the winner in fp32 and in int8, side by side."""
    figure = blank(height=130 + _ROW_OF_TWO * len(winner.blocks))
    for precision, color in ((Precision.FP32, SKY), (Precision.INT8, BLUE)):
        rows = [b for b in winner.blocks if precision in b.costs_s]
        figure.add_trace(
            go.Bar(
                y=[b.name for b in rows],
                x=[1e3 * b.costs_s[precision] for b in rows],
                orientation="h",
                marker={"color": color},
                customdata=[_block(b) for b in rows],
                hovertemplate=f"%{{y}}, {precision}: %{{x:.4f}} ms<br>%{{customdata}}<extra></extra>",
                name=precision.value,
            )
        )
    _network_order(figure, winner)
    figure.update_layout(barmode="group", bargap=0.3, bargroupgap=0.05, legend_traceorder="normal")
    figure.update_xaxes(title_text="predicted latency inside the network (ms)", rangemode="tozero")
    return figure


def _points(
    candidates: Sequence[Candidate], name: str, color: str, *, measured: bool = False, opacity: float = 1.0, **mark: Any
) -> go.Scatter:
    times = [c.measured_s if measured and c.measured_s is not None else c.predicted_s for c in candidates]
    return go.Scatter(
        x=[1e3 * seconds for seconds in times],
        y=[c.score for c in candidates],
        mode="markers",
        name=name,
        marker={"color": color, "opacity": opacity, **mark},
        customdata=_told(candidates),
        hovertemplate=TEMPLATE,
    )


def _compared(group: Group, *, errors: bool) -> go.Scatter:
    color, symbol = _MARKS.get(group.name, (SKY, "cross"))
    several = group.comparisons
    return go.Scatter(
        x=[1e3 * c.predicted.seconds for c in several],
        y=[100 * c.error if errors else 1e3 * c.measured_s for c in several],
        mode="markers",
        name=plain(group.name),
        legendgroup=group.name,
        showlegend=not errors,
        marker={"color": color, "symbol": symbol, "size": 8},
        customdata=[
            f"predicted {1e3 * c.predicted.seconds:.4f} ms, measured {1e3 * c.measured_s:.4f} ms ({c.error:+.2%})"
            f"<br>{_architecture(c.name)}"
            for c in several
        ],
        hovertemplate=TEMPLATE,
    )


def _band(figure: go.Figure, x: list[float], edges: list[list[float]], *, row: int) -> None:
    upper, lower = edges
    figure.add_trace(
        go.Scatter(
            x=[*x, *reversed(x)],
            y=[*upper, *reversed(lower)],
            fill="toself",
            fillcolor="rgba(86,180,233,0.22)",
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name="prediction interval",
            legendgroup="interval",
            showlegend=row == 1,
        ),
        row=row,
        col=1,
    )


def _network_order(figure: go.Figure, winner: Winner) -> None:
    names = [block.name for block in winner.blocks]
    figure.update_yaxes(
        categoryorder="array", categoryarray=names, autorange="reversed", showgrid=False, title_text="block"
    )


def _told(candidates: Sequence[Candidate]) -> list[str]:
    """What each point says when pointed at: of more than ``MAX_NAMED`` the numbers alone."""
    return [_numbers(one) if len(candidates) > MAX_NAMED else _hover(one) for one in candidates]


def _hover(candidate: Candidate) -> str:
    return f"{_numbers(candidate)}<br>{_architecture(candidate.architecture)}"


def _numbers(candidate: Candidate) -> str:
    measured = "" if candidate.measured_s is None else f", measured {1e3 * candidate.measured_s:.4f} ms"
    trial = "" if candidate.trial < 0 else f"trial {candidate.trial}: "
    further = "".join(f", on {plain(o.device)} predicted {1e3 * o.predicted_s:.4f} ms" for o in candidate.further)
    return f"{trial}score {candidate.score:.6g}, predicted {1e3 * candidate.predicted_s:.4f} ms{measured}{further}"


def _architecture(key: str) -> str:
    """A key over several lines, one for each stage, as plotly's markup."""
    lines = []
    for stage in re.split(r",(?=s\d+\.depth=)", key):
        number = re.match(r"s\d+\.", stage)
        words = stage if number is None else f"{number[0][:-1]}: {stage.replace(number[0], '')}"
        lines += textwrap.wrap(words.replace(",", ", "), _HOVER_WIDTH, break_on_hyphens=False)
    return "<br>".join(map(plain, lines))


def _block(block: Block) -> str:
    lines = textwrap.wrap(block.workload.blocks[0].key, _HOVER_WIDTH, break_on_hyphens=False)
    return "<br>".join([*map(plain, lines), f"{block.workload.input} → {block.output}"])
