"""HTML that is escaped by construction: plain text becomes text, only ``element`` makes tags.

What is no character in plain text (escape codes, what reverses the direction of reading) is left out.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from hwbench.printable import printable_lines

_VOID = ("br", "img", "input", "meta", "wbr")


class Html(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str) -> Html:
    """One element. Children that are no ``Html`` are escaped, and so are all attribute values.

    A trailing underscore of an attribute's name is dropped and other underscores become hyphens: ``class_``,
    ``aria_label``.
    """
    pairs = "".join(f' {key.rstrip("_").replace("_", "-")}="{_escaped(value)}"' for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{pairs}>")
    return Html(f"<{name}{pairs}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Children one after the other; those that are no ``Html`` are escaped."""
    return Html("".join(child if isinstance(child, Html) else _escaped(child) for child in children))


def _escaped(text: str) -> str:
    return html.escape(printable_lines(text))


def script(code: str) -> Html:
    """Code of ours or of a package, inline. An end tag inside a string literal is written so that it ends nothing."""
    safe = code.replace("</script", "<\\/script")
    return Html(f"<script>{safe}</script>")


def json_script(name: str, text: str) -> Html:
    """JSON for scripts to read from the element with the id ``name``; no text in it can end the element."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{_escaped(name)}">{text}</script>')


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Iterable[int] = ()) -> Html:
    """A table that scrolls inside its box where it is too wide; the ``numeric`` columns are set right."""
    right = set(numeric)

    def cells(tag: str, row: Sequence[str]) -> Html:
        return element("tr", *(element(tag, c, class_="number" if i in right else "text") for i, c in enumerate(row)))

    head = element("thead", cells("th", columns))
    body = element("tbody", *(cells("td", row) for row in rows))
    return element("div", element("table", head, body), class_="scroll")
