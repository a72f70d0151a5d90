"""The figures about how a study chose: random draws beside it, the choices that matter, and the race of finalists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from hwbench.reports.drawing import BESIDE_BARS, BLUE, GREY, ORANGE, SKY, VERMILLION, blank, plain
from hwbench.studies.race import BEATEN, FAILED, HALVED, RaceResult

# One bar and its gap, in pixels.
_ROW = 24
# Choices beyond these explain next to nothing.
_MOST = 16
# Shares on an axis that spans less need a decimal to differ.
_NARROW = 0.1
_COLORS = {BEATEN: GREY, HALVED: SKY}


def random_draws(figure: go.Figure, expected: Sequence[float], fewest: int = 1) -> go.Figure:
    """Adds to the history of a study what as many random draws would have come to: ``fewest``, one more, ..."""
    line = {"color": ORANGE, "width": 2, "dash": "dash"}
    numbers = [fewest - 1 + more for more in range(len(expected))]  # trials are counted from 0
    trace = go.Scatter(x=numbers, y=list(expected), mode="lines+markers", name="random draws, expected best", line=line)
    figure.add_trace(trace.update(marker={"color": ORANGE, "size": 5, "symbol": "diamond"}))
    return figure


def importance(shares: Mapping[str, float]) -> go.Figure:
    """The share of the variance of the scores that each choice explains alone, largest at the top."""
    shown = list(shares.items())[:_MOST]
    figure = blank(height=110 + _ROW * len(shown))
    figure.add_trace(
        go.Bar(
            y=[plain(name) for name, _ in shown],
            x=[share for _, share in shown],
            orientation="h",
            marker={"color": BLUE},
            text=[f"{share:.1%}" for _, share in shown],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{y}: %{text}<extra></extra>",
            showlegend=False,
        )
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, title_text="choice")
    figure.update_layout(margin_r=BESIDE_BARS)
    figure.update_xaxes(range=[0, max((share for _, share in shown), default=0.0) or 1.0], tickformat=".0%")
    figure.update_xaxes(title_text="share of the variance of the scores")
    return figure


def race(races: Mapping[float, RaceResult]) -> go.Figure:
    """Top-1 of each finalist over the epochs that it has been trained, the winners last and in front."""
    figure = blank()
    named: set[str] = set()
    for result in races.values():
        for key in reversed(_by_last_round(result)):
            epochs, top1, outcome = _course(result, key)
            wins = key == result.winner
            name = "winner" if wins else outcome
            color = VERMILLION if wins else _COLORS.get(outcome, BLUE)
            figure.add_trace(
                go.Scatter(
                    x=epochs,
                    y=top1,
                    mode="lines+markers",
                    cliponaxis=False,
                    name=name,
                    legendgroup=name,
                    showlegend=name not in named,
                    line={"color": color, "width": 3 if wins else 1.5},
                    marker={"color": color, "size": 9 if wins else 6, "symbol": "star" if wins else "circle"},
                    customdata=[plain(key)] * len(epochs),
                    hovertemplate="%{y:.1%} after %{x} epochs<br>%{customdata}<extra></extra>",
                )
            )
            named.add(name)
    figure.update_xaxes(title_text="epochs of training, all rounds", rangemode="tozero")
    shares = [share for trace in figure.data for share in trace.y]
    low, high = _within_shares(shares) if shares else (0.0, 1.0)
    figure.update_yaxes(range=(low, high), tickformat=".0%" if high - low > _NARROW else ".1%")
    figure.update_yaxes(title_text="top-1 on the validation videos")
    return figure


def _within_shares(shares: Sequence[float]) -> tuple[float, float]:
    """An axis round shares, however alike they are, from 0 to 1 at the most."""
    low, high = min(shares), max(shares)
    beside = max(0.02, 0.1 * (high - low))
    return max(0.0, low - beside), min(1.0, high + beside)


def _by_last_round(result: RaceResult) -> list[str]:
    """The finalists, the one that stayed longest first."""
    return list(dict.fromkeys(s.architecture for one in reversed(result.rounds) for s in one.standings))


def _course(result: RaceResult, architecture: str) -> tuple[list[int], list[float], str]:
    """Epochs so far and top-1 after each round of a finalist, and what became of it in its last one."""
    epochs, so_far, top1, outcome = list[int](), 0, list[float](), ""
    for one in result.rounds:
        so_far += one.epochs
        for standing in one.standings:
            if standing.architecture == architecture:
                outcome = standing.outcome
                if outcome != FAILED:
                    epochs.append(so_far)
                    top1.append(standing.top1)
    return epochs, top1, outcome
