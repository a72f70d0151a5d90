"""``hwbench profile diff``: which rows of a latency table moved from one copy of it to another, beyond noise."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli.output import Json, emit, print_table, say
from hwbench.cli.profile import app
from hwbench.errors import CheckFailed, HwbenchError, InvalidFile, InvalidValue, WorkspaceError
from hwbench.printable import printable
from hwbench.registry import suggest
from hwbench.units import format_duration, milliseconds

if TYPE_CHECKING:
    from hwbench.latency import LatencyTable, RowChange, TableChanges
    from hwbench.workspace import Workspace

# Rows that are shown of each table unless all are asked for.
SHOWN_ROWS = 20


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A table, a folder with tables, or a device.")],
    after: Annotated[str, typer.Argument(metavar="B", help="What to compare it with: the same kind of thing.")],
    everything: Annotated[bool, typer.Option("--all", help="Show every row, not the largest changes alone.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Exit status 5 where anything moved.")] = False,
    as_json: Json = False,
) -> None:
    """Compare the rows that two latency tables share: the common shift of all, and the rows that moved beyond it.

    A row moved where the intervals of its two latencies cannot explain the change (5 % of the rows that are said to
    have moved may be false), and the change is larger than 1 % and than the A/A figure of either table. Of two folders
    or devices the tables of the same name are compared.
    """
    from hwbench.latency import LatencyTable, compare_tables

    workspace = _workspace()
    found = []
    for name, (first, second) in _matched(workspace, before, after).items():
        tables = LatencyTable.read(first), LatencyTable.read(second)
        if tables[0].precision is not tables[1].precision:
            raise InvalidValue(
                f"{first} is in {tables[0].precision}, {second} in {tables[1].precision}: no row is in both"
            )
        changes, notes = compare_tables(*tables), difference_notes(workspace, *tables)
        found.append({"table": name, "a": str(first), "b": str(second), **changes_as_json(changes, notes)})
        if not as_json:
            print_changes(changes, notes, title=name, everything=everything)
    moved = sum(len(one["moved"]) for one in found)
    shifted = [one["table"] for one in found if one["shifted"]]
    if as_json:
        emit({"a": before, "b": after, "moved": moved, "tables": found}, as_json=True)
    if fail and (moved or shifted):
        together = f", all rows together in {', '.join(shifted)}" if shifted else ""
        raise CheckFailed(f"{moved} rows moved{together}; measure again what is to stand: hwbench verify TABLE")


def difference_notes(
    workspace: Workspace | None,
    before: LatencyTable,
    after: LatencyTable,
    known: Mapping[str, Mapping[str, str]] | None = None,
) -> list[str]:
    """What the tables were not taken with alike, in words, with what the store of the workspace knows about it.

    ``known`` are conditions by their digest that are known already.
    """
    from hwbench.latency import taken_otherwise
    from hwbench.measure.store import MeasurementStore

    known = dict(known or {})
    protocols = []
    path = workspace.root / ".hwbench" / "measurements.sqlite" if workspace else None
    if path is not None and path.is_file():
        with suppress(HwbenchError), MeasurementStore(path) as store:
            for table in (before, after):
                conditions = store.conditions_of(table.conditions)
                known = ({table.conditions: conditions} if conditions else {}) | known
                protocols.append(store.timings(table.target, table.conditions))
    notes = taken_otherwise(before, after, known)
    if len(protocols) == 2 and all(protocols) and protocols[0] != protocols[1]:
        notes.append("rows of another protocol: warm-up, samples, sessions or the state of the caches")
    return notes


def changes_as_json(changes: TableChanges, notes: list[str]) -> dict[str, Any]:
    """A comparison as ``--json`` prints it; changes are fractions, times in milliseconds."""
    return {
        "finding": str(changes),
        "notes": notes,
        "shift": changes.shift,
        "shift_low": changes.shift_low,
        "shift_high": changes.shift_high,
        "shifted": changes.shifted,
        "spread": changes.spread,
        "allowed": changes.allowed,
        "agreeing": changes.agreeing,
        "moved": [row.workload.key for row in changes.moved],
        "rows": [_row(row) for row in changes.rows],
        "only_a": [row.workload.key for row in changes.only_before],
        "only_b": [row.workload.key for row in changes.only_after],
    }


def print_changes(
    changes: TableChanges, notes: list[str], *, title: str, everything: bool = False, shown: int = SHOWN_ROWS
) -> None:
    """Prints a comparison for people: rows that moved, then the largest changes; what else is to be said on stderr."""
    rows = [*changes.moved, *(row for row in changes.rows if not row.moved)]
    columns = ("change", "beyond shift", "a", "b", "moved", "row")
    cells = [
        (
            f"{row.change:+.2%}",
            f"{row.beyond:+.2%}",
            *(f"{format_duration(one.median_s)}" for one in (row.before, row.after)),
            "yes" if row.moved else "",
            row.workload.key,
        )
        for row in (rows if everything else rows[: max(shown, len(changes.moved))])
    ]
    print(printable(f"{title}: {changes}"))
    print_table(columns, cells)
    left = len(rows) - len(cells)
    only = [(len(changes.only_before), "A"), (len(changes.only_after), "B")]
    notes = [*notes, *(f"{count} rows with a latency in {which} alone" for count, which in only if count)]
    if changes.spread > changes.allowed:
        notes.append(
            f"beyond what their intervals explain the rows differ by {changes.spread:.1%} (standard deviation)"
        )
    if left:
        notes.append(f"{left} rows with smaller changes are not shown; --all or --json has them")
    for note in notes:
        say(f"{title}: {note}")


def _row(row: RowChange) -> dict[str, Any]:
    return {
        "role": row.role.value,
        "row": row.workload.key,
        "change": row.change,
        "beyond": row.beyond,
        "a_ms": milliseconds(row.before.median_s),
        "b_ms": milliseconds(row.after.median_s),
        "agrees": row.agrees,
        "chance": row.chance,
        "rate": row.rate,
        "moved": row.moved,
    }


def _workspace() -> Workspace | None:
    """The workspace, where there is one: two files need none."""
    from hwbench.workspace import Workspace

    with suppress(WorkspaceError):
        return Workspace.find()
    return None


def _matched(workspace: Workspace | None, before: str, after: str) -> dict[str, tuple[Path, Path]]:
    """The pairs of files to compare, by name."""
    first, second = _tables(workspace, before), _tables(workspace, after)
    if len(first) == len(second) == 1 and Path(before).exists() and Path(after).exists():
        (name,) = second
        return {name: (next(iter(first.values())), second[name])}
    found = {name: (first[name], second[name]) for name in first if name in second}
    if not found:
        raise InvalidValue(
            f"no table of one name in both: {before} has {', '.join(first)}; {after} has {', '.join(second)}"
        )
    return found


def _tables(workspace: Workspace | None, text: str) -> dict[str, Path]:
    """The tables that a file, a folder or a device stands for, by their names without the ending."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        return {path.stem: path}
    folders = [path] if path.is_dir() else _folders_of_device(workspace, text)
    found = {table.stem: table for folder in reversed(folders) for table in sorted(folder.glob("*.csv"))}
    if not found:
        raise InvalidFile(f"no latency table in {text}; measure one: hwbench profile --device DEVICE")
    return dict(sorted(found.items()))


def _folders_of_device(workspace: Workspace | None, name: str) -> list[Path]:
    """Where the tables of a device lie: in the workspace, then as shipped; those of ``local`` are never shipped."""
    from hwbench.specs import LOCAL
    from hwbench.workspace import shipped

    if workspace is None:
        raise InvalidFile(f"no file or folder {name}; outside of a workspace give the path of a table")
    known = workspace.names("profiles")
    if name not in known:
        raise InvalidFile(f"no file, folder or device {name!r}; {suggest(name, known)}")
    roots = (workspace.root,) if name == LOCAL else (workspace.root, shipped())
    return [root / "profiles" / name for root in roots]
