"""Gathers everything a report shows about a device: its published tables, and what the store knows of how they came."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.devices import load_device
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, NotMeasured
from hwbench.latency import LatencyTable, profile_command, table_path, tables_frame, validate_command
from hwbench.measure.store import MeasurementStore
from hwbench.measure.store_types import StoredRow, TakenSession, fingerprint
from hwbench.measure.sustained_log import SustainedCourse, courses
from hwbench.reports.chosen_rows import ChosenRows, chosen_rows
from hwbench.reports.comparisons import Group, calibration_group, held_out_group
from hwbench.reports.coverage import Coverage, belongs, coverage, parts_of
from hwbench.reports.profiled import Missing, Profiled, code_unread, compared, or_missing, read_profiled
from hwbench.spaces import StagedSpace, load_space
from hwbench.specs import AUTO, LOCAL, STREAM, ModelName, Precision, Target, Workload
from hwbench.specs.kinds.by_hand import is_by_hand
from hwbench.workspace import Workspace, shipped

if TYPE_CHECKING:
    import pandas

Spaces = Mapping[str, StagedSpace]


@dataclass(frozen=True)
class Stored:
    """What the store knows of a target: its sessions in the order taken, its rows, its sets of conditions."""

    sessions: tuple[TakenSession, ...]
    rows: tuple[StoredRow, ...]
    conditions: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class TargetReport:
    """One target of a device.

    Attributes:
        target: Which.
        tables: Its published tables.
        spaces: Names of the spaces that the tables have rows of: those asked for in front, then by the share measured.
        coverages: Of these spaces and of those asked for, by table; or why there is none.
        groups: Networks with what was predicted and what was measured, by precision.
        stored: What the store knows, sessions of other conditions than those of the tables left out.
        left_out: How many sessions these are.
        chosen: Of tables whose rows were chosen: what was measured and what is filled in, by space.
    """

    target: Target
    tables: Mapping[Precision, Profiled | Missing]
    spaces: tuple[str, ...]
    coverages: tuple[Coverage | Missing, ...]
    groups: Mapping[Precision, tuple[Group, ...]]
    stored: Stored | Missing
    left_out: int
    chosen: tuple[ChosenRows, ...] = ()

    @property
    def measured(self) -> dict[Precision, LatencyTable]:
        """The tables that are there."""
        return {p: found.table for p, found in self.tables.items() if isinstance(found, Profiled)}

    @property
    def space(self) -> str | None:
        """The space that commands name."""
        return self.spaces[0] if self.spaces else None

    def profile(self, precision: Precision | None = None, space: str | None = None) -> str:
        """The command that measures what is missing in one precision; None: int8, or fp32 where it is not built."""
        tables, precision = self.measured, precision or compared(self.target.runtime)[-1]
        table = tables.get(precision, next(iter(tables.values()), None))
        classes = None if table is None else table.num_classes
        return profile_command(self.target, precision, space or self.space, classes=classes)

    def validate(self, precision: Precision) -> str:
        """The command that measures networks which no calibration has seen."""
        return f"{validate_command(self.target, precision, self.space)} --networks 12"


@dataclass(frozen=True)
class StreamTable:
    """A table of new frames of streams, and the command that measures it."""

    profiled: Profiled
    command: str


@dataclass(frozen=True)
class DeviceReport:
    """Everything that a report shows about a device. ``damaged`` are tables that could not be read, ``streams`` those
    of new frames of streams, ``courses`` files that ran for minutes, the latest first; ``asked`` are names of spaces.
    """

    device: str
    description: str | Missing
    targets: tuple[TargetReport, ...]
    damaged: tuple[Missing, ...]
    courses: tuple[SustainedCourse, ...] = ()
    streams: tuple[StreamTable, ...] = ()
    asked: tuple[str, ...] = ()
    written_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def command(self) -> str:
        """The command that writes the page again."""
        spaces = [word for name in self.asked for word in ("--space", name)]
        return shlex.join(["hwbench", "report", "--device", self.device, *spaces])

    def missing(self) -> tuple[str, ...]:
        """Everything that is missing, in words."""
        parts: list[object] = [self.description, *self.damaged, *(one.profiled.predictor for one in self.streams)]
        for one in self.targets:
            parts += [*one.tables.values(), one.stored, *one.coverages]
            parts += [found.predictor for found in one.tables.values() if isinstance(found, Profiled)]
        return tuple(dict.fromkeys(part.reason for part in parts if isinstance(part, Missing)))

    def to_frame(self) -> pandas.DataFrame:
        """One row for each row of each published table; the columns are those of ``tables_frame``."""
        clips = [table for target in self.targets for table in target.measured.values()]
        return tables_frame([*clips, *(one.profiled.table for one in self.streams)])


def gather_device(workspace: Workspace, device: str, spaces: Sequence[str] = ()) -> DeviceReport:
    """Reads all there is about a device; asks the device itself nothing.

    Args:
        workspace: Where its tables and its measurements are; tables that the package ships count, too.
        device: Its name.
        spaces: Whose coverage to show besides that of the spaces which the tables have rows of.

    Raises:
        UnknownName: No such device or space.
        InvalidValue: A space is a model of the user's own.
        NotMeasured: Nothing of it was measured or published.
        InvalidFile: There are no tables, and the store cannot be read.
    """
    place = or_missing(lambda: load_device(workspace, device))
    asked = {name: _asked(workspace, name) for name in spaces}
    tables, damaged = _tables(workspace, device)
    found = {(target, precision): path for (target, precision, form), path in tables.items() if form != STREAM}
    stored = or_missing(lambda: _stored(workspace, device))
    known = set() if isinstance(stored, Missing) else set(stored)
    targets = sorted({target for target, _ in found} | known)
    if not tables and not known and not damaged:
        load_device(workspace, device)
        if isinstance(stored, Missing) and workspace.store.is_file():
            raise InvalidFile(stored.reason)
        command = f"hwbench profile --device {device} --space {next(iter(asked), 'SPACE')}"
        raise NotMeasured(f"nothing was measured on device {device!r} in {workspace.root}; measure it: {command}")
    everything = asked | _spaces(workspace)
    streams = (path for (*_, form), path in sorted(tables.items()) if form == STREAM)
    parts = _Parts()
    return DeviceReport(
        device=device,
        description=place if isinstance(place, Missing) else place.description,
        targets=tuple(_target(target, found, stored, everything, asked, parts, workspace) for target in targets),
        damaged=tuple(damaged),
        courses=tuple(courses(workspace.sustained / device)),
        streams=tuple(_stream_table(workspace, path, everything, asked, parts) for path in streams),
        asked=tuple(asked),
    )


def _asked(workspace: Workspace, space: str) -> StagedSpace:
    if ModelName.match(space):
        raise InvalidValue(f"{code_unread(space)}; leave out --space {space}")
    return load_space(workspace, space)


def _members(table: LatencyTable) -> int | None:
    """1 where all rows are of models of the user's own, each of which is one network; None: of a space, unknown."""
    return 1 if all(is_by_hand(block) for row in table for block in row.workload.blocks) else None


class _Parts:
    """The blocks of spaces, each listed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], list[Workload]] = {}

    def of(self, space: StagedSpace, classes: int) -> list[Workload]:
        key = (space.name, space.variant, classes)
        if key not in self._known:
            self._known[key] = parts_of(space, classes)
        return self._known[key]


def _stream_table(workspace: Workspace, path: Path, spaces: Spaces, asked: Spaces, parts: _Parts) -> StreamTable:
    table = LatencyTable.read(path)
    classes = table.num_classes
    # Families without a stream form have no such table.
    own = {name: space for name, space in spaces.items() if or_missing(partial(belongs, space, table)) is True}
    streamed = {name: or_missing(space.streamed) for name, space in own.items()}
    covered = {
        name: [coverage(name, parts.of(space, classes), classes, table)]
        for name, space in streamed.items()
        if not isinstance(space, Missing)
    }
    space = next(iter(_by_share(covered, asked)), None)
    command = profile_command(table.target, table.precision, space, variant=STREAM, classes=classes)
    return StreamTable(read_profiled(workspace, path, space, _members(table)), command)


def _by_share(covered: Mapping[str, Sequence[Coverage]], asked: Spaces) -> tuple[str, ...]:
    """Names of spaces: those asked for in front, then by the share of their blocks that is measured, then by name.

    Spaces share stems, so that a few rows of one look like a table of another.
    """
    shares = {
        name: sum(one.whole.measured for one in several) / max(sum(one.whole.total for one in several), 1)
        for name, several in covered.items()
    }
    return tuple(sorted(shares, key=lambda name: (name not in asked, -shares[name], name)))


def _tables(workspace: Workspace, device: str) -> tuple[dict[tuple[Target, Precision, str], Path], list[Missing]]:
    """Where the tables of a device lie, by target, precision and form; those of the workspace stand for those that are
    shipped.
    """
    found: dict[tuple[Target, Precision, str], Path] = {}
    damaged = []
    # What is shipped as "local" was measured on another machine.
    for root in dict.fromkeys((workspace.root,) if device == LOCAL else (workspace.root, shipped())):
        for path in sorted((root / "profiles").glob("*/*.csv")):
            if path.parent.name == device:
                at = or_missing(partial(_place, root, path))
                if isinstance(at, Missing):
                    damaged.append(at)
                else:
                    found.setdefault(at, path)
    return found, damaged


def _place(root: Path, path: Path) -> tuple[Target, Precision, str]:
    """Whose table a file is, and of what: the rows of new frames of streams stand beside no row of a clip."""
    table = LatencyTable.read(path)
    if table_path(root, table.target, table.precision, table.variant) != path:
        raise InvalidFile(
            f"{path}: its name is not that of a table of {table.target} in {table.precision}; move it away"
        )
    return table.target, table.precision, table.variant


def _stored(workspace: Workspace, device: str) -> dict[Target, Stored]:
    """What the store knows of a device, by target."""
    if not workspace.store.is_file():
        raise HwbenchError("the store of measurements is not in this workspace: its sessions are not shown")
    found = {}
    with MeasurementStore(workspace.store) as store:
        for target in store.targets(device):
            sessions = tuple(store.taken(target))
            conditions = {digest: store.conditions_of(digest) or {} for digest in {s.conditions for s in sessions}}
            found[target] = Stored(sessions, tuple(store.rows(target)), conditions)
    return found


def _spaces(workspace: Workspace) -> dict[str, StagedSpace]:
    """All spaces that can be read."""
    read = {name: or_missing(partial(load_space, workspace, name)) for name in workspace.names("search_spaces")}
    return {name: space for name, space in read.items() if not isinstance(space, Missing)}


def _target(
    target: Target,
    found: Mapping[tuple[Target, Precision], Path],
    stored: Mapping[Target, Stored] | Missing,
    spaces: Spaces,
    asked: Spaces,
    parts: _Parts,
    workspace: Workspace,
) -> TargetReport:
    raw = {p: LatencyTable.read(found[target, p]) for p in Precision if (target, p) in found}
    own = [name for name, space in spaces.items() if any(belongs(space, table) for table in raw.values())]
    covered = {name: _covered(spaces[name], raw.values(), parts) for name in dict.fromkeys((*own, *asked))}
    names = tuple(name for name in _by_share(covered, asked) if name in own)
    first = next(iter((*names, *asked)), None)
    classes = next((table.num_classes for table in raw.values()), None)
    tables: dict[Precision, Profiled | Missing] = {
        p: read_profiled(workspace, found[target, p], first, _members(raw[p]))
        if p in raw
        else _no_table(target, p, first, classes)
        for p in Precision
        if p in raw or p in compared(target.runtime)
    }
    known = _of_tables(target, raw, stored, first)
    rows = () if isinstance(known, Missing) else known.rows
    whole = () if isinstance(stored, Missing) or isinstance(known, Missing) else stored[target].sessions
    return TargetReport(
        target=target,
        tables=tables,
        spaces=names,
        coverages=tuple(_coverages([covered[name] for name in dict.fromkeys((*names, *asked))], target, raw)),
        groups={p: _groups(profiled, rows) for p, profiled in tables.items() if isinstance(profiled, Profiled)},
        stored=known,
        left_out=len(whole) - (0 if isinstance(known, Missing) else len(known.sessions)),
        chosen=tuple(_chosen(names, spaces, raw)),
    )


def _chosen(names: Iterable[str], spaces: Spaces, tables: Mapping[Precision, LatencyTable]) -> Iterator[ChosenRows]:
    for name in names:
        for table in tables.values():
            rows = chosen_rows(spaces[name], table.num_classes, table)
            if rows is not None:
                yield rows


def _no_table(target: Target, precision: Precision, space: str | None, classes: int | None) -> Missing:
    command = profile_command(target, precision, space, classes=classes)
    return Missing(f"no latency table of {target} in {precision}; measure it: {command}")


def _of_tables(
    target: Target,
    tables: Mapping[Precision, LatencyTable],
    stored: Mapping[Target, Stored] | Missing,
    space: str | None,
) -> Stored | Missing:
    """What the store knows under the conditions of the tables; all of it where there is no table."""
    classes = next((table.num_classes for table in tables.values()), None)
    command = profile_command(target, next(iter(tables), compared(target.runtime)[-1]), space, classes=classes)
    if isinstance(stored, Missing):
        return Missing(f"{stored.reason}; measure here: {command}")
    digests = {row.conditions for table in tables.values() for row in table if row.conditions}
    if target in stored and not tables:
        return stored[target]
    sessions = [taken for taken in stored[target].sessions if taken.conditions in digests] if target in stored else []
    if not sessions:
        return Missing(
            f"the store of this workspace has no sessions of {target} under the conditions of its tables: they were "
            f"measured elsewhere; measure here: {command}"
        )
    rows = [row for row in stored[target].rows if fingerprint(row.measurement.conditions) in digests]
    return Stored(tuple(sessions), tuple(rows), stored[target].conditions)


def _covered(space: StagedSpace, tables: Iterable[LatencyTable], parts: _Parts) -> list[Coverage]:
    """What each table has of a space."""
    found = [(table.num_classes, table) for table in tables]
    return [coverage(space.name, parts.of(space, classes), classes, table) for classes, table in found]


def _coverages(
    covered: Sequence[Sequence[Coverage]], target: Target, tables: Mapping[Precision, LatencyTable]
) -> Iterator[Coverage | Missing]:
    for several in covered:
        yield from several
    if tables and not covered:
        yield Missing(
            "the tables have rows of no known space, so that nothing says what is missing; name one: "
            f"hwbench report --device {target.device} --space SPACE"
        )


def _groups(profiled: Profiled, rows: Sequence[StoredRow]) -> tuple[Group, ...]:
    if isinstance(profiled.predictor, Missing):
        return ()
    groups = (calibration_group(profiled.predictor, ()), held_out_group(profiled.predictor, rows, (), AUTO))
    return tuple(group for group in groups if group.comparisons)
