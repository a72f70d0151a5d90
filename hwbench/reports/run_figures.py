"""The figures about training runs: from logs and scores to plotly figures. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hwbench.data.video_scores import ConfidenceBin
from hwbench.reports.drawing import (
    BESIDE_BARS,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    TEMPLATE,
    VERMILLION,
    blank,
    line_mode,
    plain,
)
from hwbench.reports.run import ClassScore, FinalScores, RunReport

# Steps drawn of a run; beyond this every n-th is.
MAX_STEPS = 3000
# The moving average of the loss has the length of this share of the steps, and at least so many steps.
_SMOOTHED_SHARE, _SMOOTHED_LEAST = 0.02, 5
# One bar or one row of a labelled heat map, in pixels, and the height of a heat map whose rows are not labelled.
ROW, _UNLABELLED = 24, 760
# Confusion matrices: beyond so many classes the axes have no labels; up to so many, cells have their counts written.
LABELLED, _WRITTEN = 60, 20
_SHARES = (0, 0.02, 0.1, 0.25, 0.5, 1)
# Bars of the worst classes; the table beside them has all.
MAX_BARS = 40
_COLORS = (BLUE, VERMILLION, GREEN, ORANGE, SKY, GREY)
_DASHES = ("solid", "dash", "dot", "dashdot")
# Characters of a class name beside an axis.
_NAME = 28


def smoothing_steps(count: int) -> int:
    """Length of the moving average over so many steps."""
    return max(_SMOOTHED_LEAST, round(_SMOOTHED_SHARE * count))


def smoothed(values: Sequence[float], length: int) -> list[float]:
    """Exponential moving average with weight ``2 / (length + 1)`` of the newest value, free of bias at the start."""
    keep = 1 - 2 / (length + 1)
    total, weight, averages = 0.0, 0.0, []
    for value in values:
        total, weight = keep * total + (1 - keep) * value, keep * weight + (1 - keep)
        averages.append(total / weight)
    return averages


def loss(runs: Sequence[RunReport]) -> go.Figure:
    """Loss over steps: every step thin, the moving average thick."""
    figure = blank()
    for index, run in enumerate(runs):
        steps = run.log.steps
        average = smoothed([step.loss for step in steps], smoothing_steps(len(steps)))
        name = "smoothed" if len(runs) == 1 else plain(run.name)
        shown = _thinned(range(len(steps)))
        x = [steps[i].step for i in shown]
        common: dict[str, Any] = {"x": x, "mode": line_mode(x), "legendgroup": str(index)}
        figure.add_trace(
            go.Scatter(
                y=[steps[i].loss for i in shown],
                name="loss of a step",
                showlegend=len(runs) == 1,
                line={"color": _color(index), "width": 1},
                opacity=0.35,
                hovertemplate="step %{x}: loss %{y:.4f}<extra></extra>",
                **common,
            )
        )
        figure.add_trace(
            go.Scatter(
                y=[average[i] for i in shown],
                name=name,
                line={**_line(index), "width": 2.5},
                hovertemplate=f"{name}, step %{{x}}: %{{y:.4f}}<extra></extra>",
                **common,
            )
        )
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(title_text="loss")
    return figure


def learning_rate(runs: Sequence[RunReport]) -> go.Figure:
    """Learning rate over steps."""
    figure = blank(height=260)
    for index, run in enumerate(runs):
        steps = _thinned(run.log.steps)
        figure.add_trace(
            go.Scatter(
                x=[step.step for step in steps],
                y=[step.learning_rate for step in steps],
                mode=line_mode(steps),
                name=plain(run.name),
                showlegend=len(runs) > 1,
                line={**_line(index), "width": 2},
                hovertemplate="step %{x}: %{y:.3g}<extra></extra>",
            )
        )
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(title_text="learning rate", rangemode="tozero")
    return figure


def accuracy(runs: Sequence[RunReport]) -> go.Figure:
    """Top-1 and top-5 over epochs."""
    figure = blank()
    for index, run in enumerate(runs):
        epochs = run.log.validated
        for name, symbol, dash in (("top-1", "circle", "solid"), ("top-5", "diamond", "dot")):
            label = name if len(runs) == 1 else f"{plain(run.name)}, {name}"
            figure.add_trace(
                go.Scatter(
                    x=[epoch.epoch + 1 for epoch in epochs],
                    y=[epoch.top1 if name == "top-1" else epoch.top5 for epoch in epochs],
                    mode="lines+markers",
                    name=label,
                    line={"color": _color(index), "width": 2, "dash": dash},
                    marker={"symbol": symbol, "size": 7},
                    hovertemplate=f"{label}, epoch %{{x}}: %{{y:.4f}}<extra></extra>",
                )
            )
    _whole_epochs(figure, runs)
    figure.update_yaxes(title_text="share of validation videos", range=[0, 1.03])
    return figure


def calibration_errors(runs: Sequence[RunReport]) -> go.Figure:
    """Expected calibration error over epochs."""
    figure = blank(height=260)
    for index, run in enumerate(runs):
        epochs = [epoch for epoch in run.log.validated if "calibration_error" in epoch.measures]
        figure.add_trace(
            go.Scatter(
                x=[epoch.epoch + 1 for epoch in epochs],
                y=[epoch.measures["calibration_error"] for epoch in epochs],
                mode="lines+markers",
                name=plain(run.name),
                showlegend=len(runs) > 1,
                line={**_line(index), "width": 2},
                hovertemplate="epoch %{x}: %{y:.4f}<extra></extra>",
            )
        )
    _whole_epochs(figure, runs)
    figure.update_yaxes(title_text="calibration error", rangemode="tozero")
    return figure


def class_accuracy(worst_first: Sequence[ClassScore]) -> go.Figure:
    """Accuracy of the worst classes, the worst on top."""
    shown = worst_first[:MAX_BARS]
    figure = blank(height=110 + ROW * len(shown))
    figure.add_trace(
        go.Bar(
            x=[one.accuracy for one in shown],
            y=list(range(len(shown))),
            orientation="h",
            marker={"color": BLUE},
            text=[f"{one.accuracy:.1%}" for one in shown],
            textposition="outside",
            cliponaxis=False,
            customdata=[_class_text(one) for one in shown],
            hovertemplate=TEMPLATE,
            showlegend=False,
        )
    )
    figure.update_layout(margin_r=BESIDE_BARS)
    figure.update_xaxes(title_text="share of the videos of a class that are right", range=[0, 1])
    figure.update_yaxes(
        title_text="class",
        tickvals=list(range(len(shown))),
        ticktext=[_short(one.name) for one in shown],
        autorange="reversed",
        showgrid=False,
    )
    return figure


def confusion(scores: FinalScores) -> go.Figure:
    """Share of the videos of a class (rows) by the class that they were taken for (columns).

    Colours follow the square root of the share, so that rare confusions are seen.
    """
    assert scores.confusion is not None
    names, rows = scores.classes, scores.confusion
    labelled = len(names) <= LABELLED
    shares = [[round(count / max(1, sum(row)), 4) for count in row] for row in rows]
    figure = blank(height=230 + ROW * len(names) if labelled else _UNLABELLED)
    written = len(names) <= _WRITTEN
    figure.add_trace(
        go.Heatmap(
            x=list(range(len(names))),
            y=list(range(len(names))),
            z=[[round(math.sqrt(share), 3) for share in row] for row in shares],
            zmin=0,
            zmax=1,
            colorscale="Cividis",
            colorbar={
                "thickness": 12,
                "title": {"text": "share", "side": "right"},
                "tickvals": [math.sqrt(share) for share in _SHARES],
                "ticktext": [f"{share:.0%}" for share in _SHARES],
            },
            text=[[str(count) if count else "" for count in row] for row in rows] if written else None,
            texttemplate="%{text}" if written else None,
            customdata=_pairs(scores) if labelled else shares,
            hovertemplate=TEMPLATE if labelled else "class %{y} taken for class %{x}: %{customdata:.1%}<extra></extra>",
            xgap=1 if labelled else 0,
            ygap=1 if labelled else 0,
        )
    )
    ticks = {"tickvals": list(range(len(names))), "ticktext": [_short(name) for name in names]} if labelled else {}
    figure.update_xaxes(title_text="taken for", showgrid=False, tickangle=-60 if labelled else 0, **ticks)
    figure.update_yaxes(title_text="class", showgrid=False, autorange="reversed", **ticks)
    return figure


def reliability(bins: Sequence[ConfidenceBin]) -> go.Figure:
    """Above: the share that is right by the highest score. Below: how many videos have that score."""
    figure = blank(make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.7, 0.3], vertical_spacing=0.06), 480)
    x = [one.confidence for one in bins]
    text = [f"{one.videos} videos: highest score {one.confidence:.3f}, right {one.accuracy:.3f}" for one in bins]
    shown = {"customdata": text, "hovertemplate": TEMPLATE}
    equal = {"color": GREY, "width": 1, "dash": "dash"}
    figure.add_trace(go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line=equal, name="equal", hoverinfo="skip"), 1, 1)
    line = {"color": BLUE, "width": 2}
    right = [one.accuracy for one in bins]
    trained = go.Scatter(x=x, y=right, mode="lines+markers", line=line, marker={"size": 8}, name="trained", **shown)
    figure.add_trace(trained, 1, 1)
    counts = [one.videos for one in bins]
    figure.add_trace(go.Bar(x=x, y=counts, width=0.03, marker={"color": SKY}, showlegend=False, **shown), 2, 1)
    figure.update_xaxes(range=[0, 1.03])
    figure.update_xaxes(title_text="mean of the highest score", row=2, col=1)
    figure.update_yaxes(title_text="share that is right", range=[0, 1.05], row=1, col=1)
    figure.update_yaxes(title_text="videos", row=2, col=1)
    return figure


def _thinned(values: Sequence[Any]) -> list[Any]:
    """Every n-th value, and the last."""
    every = math.ceil(len(values) / MAX_STEPS) or 1
    kept = list(values[::every])
    return kept if not values or (len(values) - 1) % every == 0 else [*kept, values[-1]]


def _color(index: int) -> str:
    return _COLORS[index % len(_COLORS)]


def _line(index: int) -> dict[str, Any]:
    """Colour of a run; where colours come again, so do other dashes."""
    return {"color": _color(index), "dash": _DASHES[index // len(_COLORS) % len(_DASHES)]}


def _whole_epochs(figure: go.Figure, runs: Sequence[RunReport]) -> None:
    last = max((epoch.epoch + 1 for run in runs for epoch in run.log.validated), default=1)
    figure.update_xaxes(title_text="epoch", range=[0.5, last + 0.5], tickformat="d")
    if last <= 10:
        figure.update_xaxes(dtick=1)


def _pairs(scores: FinalScores) -> list[list[str]]:
    assert scores.confusion is not None
    return [
        [
            f"{plain(a)} taken for {plain(b)}: {count} of {sum(row)}"
            for b, count in zip(scores.classes, row, strict=True)
        ]
        for a, row in zip(scores.classes, scores.confusion, strict=True)
    ]


def _class_text(one: ClassScore) -> str:
    of = "" if one.videos is None else f" of {one.videos} videos"
    most = "" if one.taken_for is None else f"<br>most often taken for {plain(one.taken_for[0])} ({one.taken_for[1]})"
    return f"{plain(one.name)}: {one.accuracy:.1%}{of}{most}"


def _short(name: str) -> str:
    return plain(name if len(name) <= _NAME else f"{name[: _NAME - 1]}…")
