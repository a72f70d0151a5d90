"""``hwbench.diff``: which rows of a latency table moved from one copy of it to another, beyond noise."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench import lookup
from hwbench.api.listener import SILENT, Listener
from hwbench.api.requests import option, request
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, WorkspaceError
from hwbench.frames import NUMBER, frame
from hwbench.registry import suggest
from hwbench.units import milliseconds

if TYPE_CHECKING:
    import pandas

    from hwbench.latency import LatencyTable, RowChange, TableChanges
    from hwbench.workspace import Workspace

# The keys of a row, with their types in a frame; a row of one session has no chance and no rate.
ROW_CHANGE: dict[str, str | None] = {
    **dict.fromkeys(("role", "row")),
    **dict.fromkeys(("change", "beyond", "a_ms", "b_ms"), NUMBER),
    "agrees": None,
    **dict.fromkeys(("chance", "rate"), NUMBER),
    "moved": None,
}


@request
class DiffRequest:
    """Compare the rows that two latency tables share: the common shift of all, and the rows that moved beyond it.

    A row moved where the intervals of its two latencies cannot explain the change (5 % of the rows that are said to
    have moved may be false), and the change is larger than 1 % and than the A/A figure of either table. Of two folders
    or devices the tables of the same name are compared.
    """

    before: str = option(argument=True, metavar="A", names="device", help="A table, a folder with tables, or a device.")
    after: str = option(
        argument=True, metavar="B", names="device", help="What to compare it with: the same kind of thing."
    )


@dataclass(frozen=True)
class TableDiff:
    """How one table differs from another.

    Args:
        name: Of the tables, without the ending.
        before: The first file.
        after: The second file.
        changes: Of their rows.
        notes: What else the tables were not taken with alike, in words.
    """

    name: str
    before: Path
    after: Path
    changes: TableChanges
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One of ``tables`` of ``hwbench profile diff --json``."""
        files = {"table": self.name, "a": str(self.before), "b": str(self.after)}
        return files | changes_as_json(self.changes, list(self.notes))


@dataclass(frozen=True)
class DiffResult:
    """How the tables of two places differ."""

    before: str
    after: str
    tables: tuple[TableDiff, ...]

    @property
    def moved(self) -> int:
        """Number of rows that moved by themselves."""
        return sum(len(one.changes.moved) for one in self.tables)

    @property
    def shifted(self) -> tuple[str, ...]:
        """The tables whose rows moved all together."""
        return tuple(one.name for one in self.tables if one.changes.shifted)

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench profile diff --json`` prints."""
        tables = [one.to_json() for one in self.tables]
        return {"a": self.before, "b": self.after, "moved": self.moved, "tables": tables}

    def to_frame(self) -> pandas.DataFrame:
        """One row for each row that two tables share: its table, then the keys of ``rows``."""
        return changes_frame({one.name: one.changes for one in self.tables})


def diff(
    request: DiffRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> DiffResult:
    """Compares the tables of two files, folders or devices, each on the day that its predictions speak of.

    Args:
        request: The two places.
        listener: Hears nothing: no step takes long.
        workspace: Holds devices, and what is known of the conditions of tables; default: the one around the current
            folder, if any.

    Raises:
        InvalidFile: A table does not validate, or there is none.
        InvalidValue: No table of one name is in both places, or two tables have no row in common.
    """
    from hwbench.latency import LatencyTable, compare_tables
    from hwbench.latency.occasions import between_scales

    known = _workspace(workspace)
    tables = []
    for name, (first, second) in _matched(known, request.before, request.after).items():
        before, after = LatencyTable.read(first), LatencyTable.read(second)
        if before.precision is not after.precision:
            raise InvalidValue(f"{first} is in {before.precision}, {second} in {after.precision}: no row is in both")
        notes = tuple(difference_notes(known, before, after))
        scales = between_scales(before.scale, after.scale)
        changes = compare_tables(before.on_day(before.scale), after.on_day(after.scale), scales)
        tables.append(TableDiff(name, first, second, changes, notes))
    return DiffResult(request.before, request.after, tuple(tables))


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


def changes_frame(changes: Mapping[str, TableChanges]) -> pandas.DataFrame:
    """The rows of comparisons as a frame: the name of the table, then the keys of ``rows``."""
    rows = ({"table": name} | _row(row) for name, one in changes.items() for row in one.rows)
    return frame(rows, {"table": None} | ROW_CHANGE)


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


def _workspace(given: Workspace | str | Path | None) -> Workspace | None:
    """The workspace, where one is given or around: two files need none."""
    from hwbench.workspace import Workspace

    if given is not None:
        return Workspace.at(given)
    with suppress(WorkspaceError):
        return Workspace.find()
    return None


def _matched(workspace: Workspace | None, before: str, after: str) -> dict[str, tuple[Path, Path]]:
    """The pairs of files to compare, by name."""
    first, second = _tables(workspace, before), _tables(workspace, after)
    if len(first) == len(second) == 1 and lookup.exists(Path(before)) and lookup.exists(Path(after)):
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
    is_folder = lookup.is_folder(path)
    if lookup.exists(path) and not is_folder:
        return {path.stem: path}
    folders = [path] if is_folder else _folders_of_device(workspace, text)
    found = {table.stem: table for folder in reversed(folders) for table in sorted(folder.glob("*.csv"))}
    if not found:
        device = "DEVICE" if is_folder else text
        raise InvalidFile(f"no latency table in {text}; measure one: hwbench profile --device {shlex.quote(device)}")
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
