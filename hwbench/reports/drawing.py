"""What all figures have in common: colours, margins, hover text, and text that is not read as markup.

Colours are those of Okabe and Ito (2008), which colour-blind people can tell apart; marks differ in shape as well. The
page sets the colours of text and grid, because only it knows whether it is light or dark.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go

GREY, BLUE, ORANGE, GREEN, VERMILLION, SKY = "#8c929b", "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9"
HEIGHT = 440
# Pixels to the right of bars, in which a share such as 100.0% stands behind the longest one.
BESIDE_BARS = 60
TEMPLATE = "%{customdata}<extra></extra>"


def blank(figure: go.Figure | None = None, height: int = HEIGHT) -> go.Figure:
    """A figure without a style of its own but margins, a legend above and hover text that stays in one colour."""
    figure = go.Figure() if figure is None else figure
    figure.update_layout(
        template="none",
        height=height,
        autosize=True,
        margin={"l": 8, "r": 16, "t": 16, "b": 8},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
        hoverlabel={"align": "left"},
        hovermode="closest",
        dragmode=False,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(automargin=True, zeroline=False, title_standoff=8)
    figure.update_yaxes(automargin=True, zeroline=False, title_standoff=8)
    return figure


def line_mode(values: Sequence[object]) -> str:
    """How a line through values is drawn: with marks where one stands alone, which no line shows; None is a gap."""
    gaps = [True, *(value is None for value in values), True]
    alone = any(before and not gap and after for before, gap, after in zip(gaps, gaps[1:], gaps[2:], strict=False))
    return "lines+markers" if alone else "lines"


def plain(text: str) -> str:
    """Text without markup: plotly reads a little HTML (links among it) in all that it shows; of a quote no name."""
    return html.escape(text, quote=False)
