"""The small pieces that the sections of a report are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence

import plotly.graph_objects as go

from hwbench.report.markup import Html, element, join, json_script, table

# Stands where a number is not known.
DASH = "–"
_BREAKS = re.compile(r"(?<= )(?=--)|(?<=,)")
# Characters that stay on one line; as many fit on a phone.
_UNBROKEN = 36


def figure(name: str, drawn: go.Figure, caption: str) -> Html:
    """A figure, drawn by the page's script from the JSON beside it."""
    height = f"height: {drawn.layout.height}px"
    place = element("div", id=name, class_="plot", style=height, role="img", aria_label=caption)
    data = json_script(f"{name}-data", drawn.to_json())
    return element("figure", place, data, element("figcaption", caption))


def reproduce(*lines: str) -> Html:
    """The commands that make what stands above, each once."""
    commands = [element("pre", code(line)) for line in dict.fromkeys(lines)]
    return element("div", element("span", "Reproduce"), *commands, class_="reproduce")


def missing(reason: str) -> Html:
    """Says what is not there, and why."""
    return element("p", reason, class_="missing")


def numbers(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int]) -> Html:
    """The values of a figure as a table that unfolds."""
    return element("details", element("summary", title), table(columns, rows, numeric=numeric))


def facts(*pairs: tuple[str, str]) -> Html:
    """Names and values, one below the other."""
    return element("dl", *(cell for key, value in pairs for cell in (element("dt", key), element("dd", value))))


def code(text: str) -> Html:
    """A key, a path or a command; its lines break ahead of an option and behind a comma."""
    pieces = [element("span", p) if len(p) <= _UNBROKEN else join([p]) for p in _BREAKS.split(text)]
    return element("code", *(piece for p in pieces for piece in (p, element("wbr"))))


def number(seconds: float) -> str:
    """Milliseconds without the unit, for columns that name it."""
    return f"{1e3 * seconds:.3f}"


def ms(seconds: float) -> str:
    """Milliseconds with the unit."""
    return f"{number(seconds)} ms"
