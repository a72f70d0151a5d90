"""``hwbench profile diff``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hwbench.api.diff import DiffRequest, DiffResult, diff
from hwbench.api.requests import option, request
from hwbench.cli.generated import add_command
from hwbench.cli.listening import listening
from hwbench.cli.output import emit, print_table, say
from hwbench.cli.profile import app
from hwbench.errors import CheckFailed
from hwbench.printable import printable
from hwbench.units import format_duration

if TYPE_CHECKING:
    from hwbench.latency import RowChange, TableChanges

# Rows that are shown of each table unless all are asked for.
SHOWN_ROWS = 20
_COLUMNS = ("change", "beyond shift", "a", "b", "moved", "row")


@request
class _DiffCommand(DiffRequest):
    __doc__ = DiffRequest.__doc__

    everything: bool = option(default=False, flags=("--all",), help="Show every row, not the largest changes alone.")
    fail: bool = option(default=False, help="Exit status 5 where anything moved.")


def _run(request: _DiffCommand, as_json: bool) -> None:
    with listening() as listener:
        result = diff(request, listener)
    if as_json:
        emit(result.to_json(), as_json=True)
    else:
        for one in result.tables:
            print_changes(one.changes, one.notes, title=one.name, everything=request.everything)
    if request.fail:
        _fail_where_moved(result)


def _fail_where_moved(result: DiffResult) -> None:
    if result.moved or result.shifted:
        together = f", all rows together in {', '.join(result.shifted)}" if result.shifted else ""
        raise CheckFailed(f"{result.moved} rows moved{together}; measure again what is to stand: hwbench verify TABLE")


def print_changes(changes: TableChanges, notes: Sequence[str], *, title: str, everything: bool = False) -> None:
    """Prints a comparison for people: rows that moved, then the largest changes; what else is to be said on stderr."""
    rows = [*changes.moved, *(row for row in changes.rows if not row.moved)]
    shown = rows if everything else rows[: max(SHOWN_ROWS, len(changes.moved))]
    print(printable(f"{title}: {changes}"))
    print_table(_COLUMNS, [_cells(row) for row in shown])
    for note in (*notes, *_more_notes(changes, len(rows) - len(shown))):
        say(f"{title}: {note}")


def _cells(row: RowChange) -> tuple[str, ...]:
    times = (format_duration(one.median_s) for one in (row.before, row.after))
    return (f"{row.change:+.2%}", f"{row.beyond:+.2%}", *times, "yes" if row.moved else "", row.workload.key)


def _more_notes(changes: TableChanges, left: int) -> Iterator[str]:
    """What the table of a comparison does not show; ``left``: rows that are not in it."""
    for only, which in ((changes.only_before, "A"), (changes.only_after, "B")):
        if only:
            yield f"{len(only)} rows with a latency in {which} alone"
    if changes.spread > changes.allowed:
        yield f"beyond what their intervals explain the rows differ by {changes.spread:.1%} (standard deviation)"
    if left:
        yield f"{left} rows with smaller changes are not shown; --all or --json has them"


add_command(app, "diff", _DiffCommand, _run)
