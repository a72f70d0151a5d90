"""What commands print: one JSON object or a table on stdout, talk and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from hwbench.printable import printable_lines

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]

# Texts are printed as they are: [brackets] are no markup, :words: no emoji.
talk = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def emit(values: Mapping[str, Any], *, as_json: bool, title: str = "") -> None:
    """Prints a result: with ``as_json`` the object itself, else a two-column table of its plain values."""
    if as_json:
        print(json.dumps(values, indent=2, allow_nan=False))
        return
    rows = [(key, text(value)) for key, value in values.items() if not isinstance(value, Mapping | list)]
    print_table(("", ""), rows, title=title, header=False)


def text(value: object) -> str:
    """A value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "", header: bool = True) -> None:
    """Prints a table on stdout; plain text where stdout is no terminal, nothing where it is closed."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(highlight=False, width=None if is_terminal else 200)
    table = Table(
        title=Text(printable_lines(title)) if title else None,
        show_header=header,
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", justify="left" if index == 0 else "right" if header else "left")
    for row in rows:
        table.add_row(*(Text(printable_lines(cell)) for cell in row))  # a Text: brackets in it are no markup
    console.print(table)


def say(message: str) -> None:
    """One line of talk on stderr."""
    talk.print(printable_lines(message))


def draws_bars() -> bool:
    """Whether bars are drawn as they grow; else, as in the log of a batch job, when they end."""
    return talk.is_terminal and not talk.is_dumb_terminal


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress display on stderr with counts, rate and time left; brackets in its texts are no markup."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=talk, transient=False) as bar:
        yield bar
