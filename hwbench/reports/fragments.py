"""The small pieces that the sections of a report are made of."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from hwbench.reports.markup import Html, element, join, json_script, table

# Stands where a number is not known.
DASH = "–"
_BREAKS = re.compile(r"(?<= )(?=--)|(?<=,)")
_OPTION = re.compile(r"((?<![^ ])--[a-z][a-z0-9-]*)")
# Characters that stay on one line; as many fit on a phone.
_UNBROKEN = 36


def figure(name: str, drawn: go.Figure, caption: str) -> Html:
    """A figure, drawn by the page's script from the JSON beside it."""
    height = f"height: {drawn.layout.height}px"
    place = element("div", id=name, class_="plot", style=height, role="img", aria_label=caption)
    data = json_script(f"{name}-data", drawn.to_json())
    return element("figure", place, data, element("figcaption", caption))


def tile(name: str, value: str, note: str) -> Html:
    """One number at a glance."""
    parts = (element("div", text, class_=of) for of, text in (("name", name), ("value", value), ("note", note)))
    return element("div", *parts, class_="tile")


def chooser(named: Mapping[str, Sequence[str]], views: Mapping[tuple[str, ...], Html]) -> Html:
    """One of several views at a time, picked from lists of values; the first of each is shown at first.

    Args:
        named: Values to choose from, by what they are; a list with one value is not shown.
        views: By one value of each list. Combinations without a view say so.
    """
    lists = []
    for name, values in named.items():
        options = [element("option", value) for value in values]
        hidden = {"hidden": ""} if len(values) < 2 else {}
        lists.append(element("label", f"{name} ", element("select", *options), **hidden))
    first = tuple(values[0] for values in named.values())
    shown = []
    for key in itertools.product(*named.values()):
        content = views.get(key, missing(f"nothing to show for {', '.join(key)}"))
        hidden = {} if key == first else {"hidden": ""}
        shown.append(element("div", content, class_="view", data_view=json.dumps(key), **hidden))
    return element("div", element("div", *lists, class_="choices"), *shown, class_="views")


def wide(drawn: Html, pixels: int) -> Html:
    """A figure that scrolls inside its box where the page is narrower than so many pixels."""
    return element("div", element("div", drawn, style=f"min-width: {pixels}px"), class_="scroll")


def sortable(name: str, columns: Sequence[str], rows: Sequence[Sequence[str | float | None]]) -> Html:
    """A table that the reader sorts by a column and filters by words; the page's script draws it from its values."""
    data = json_script(f"{name}-rows", json.dumps({"columns": columns, "rows": rows}, separators=(",", ":")))
    return element("div", element("div", id=name, class_="rows"), data)


def reproduce(*lines: str) -> Html:
    """The commands that make what stands above, each once."""
    commands = [element("pre", code(line)) for line in dict.fromkeys(lines)]
    return element("div", element("span", "Reproduce"), *commands, class_="reproduce")


def missing(reason: str) -> Html:
    """Says what is not there, and why."""
    return element("p", _whole_options(reason), class_="missing")


def numbers(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int]) -> Html:
    """The values of a figure as a table that unfolds."""
    return element("details", element("summary", title), table(columns, rows, numeric=numeric))


def facts(*pairs: tuple[str, str]) -> Html:
    """Names and values, one below the other."""
    return element("dl", *(cell for key, value in pairs for cell in (element("dt", key), element("dd", value))))


def code(text: str) -> Html:
    """A key, a path or a command; its lines break ahead of an option and behind a comma."""
    pieces = [element("span", p) if len(p) <= _UNBROKEN else _whole_options(p) for p in _BREAKS.split(text)]
    return element("code", *(piece for p in pieces for piece in (p, element("wbr"))))


def _whole_options(text: str) -> Html:
    """Text whose options are not broken behind a hyphen."""
    # Every second part is an option.
    return join(element("span", part) if at % 2 else part for at, part in enumerate(_OPTION.split(text)))


def number(seconds: float) -> str:
    """Milliseconds without the unit, for columns that name it."""
    return f"{1e3 * seconds:.3f}"


def ms(seconds: float) -> str:
    """Milliseconds with the unit."""
    return f"{number(seconds)} ms"
