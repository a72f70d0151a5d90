"""The latency table of one target at one precision; its file is described in ``hwbench.latency.table_text``."""

from __future__ import annotations

import csv
import functools
import heapq
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, NotMeasured
from hwbench.frames import NUMBER, WHOLE, frame
from hwbench.latency.distance import distance
from hwbench.latency.occasions import Scale
from hwbench.latency.table_rows import COLUMNS, NUMBERS
from hwbench.latency.table_rows import LatencyRow as LatencyRow
from hwbench.latency.table_rows import Role as Role
from hwbench.latency.table_rows import SelfCheck as SelfCheck
from hwbench.latency.table_text import (
    BETWEEN,
    SCHEMA,
    TITLE,
    aa_values,
    cells,
    first_line,
    parse_aa,
    parse_between,
    parse_header,
    parse_lines,
    parse_row,
    parse_scale,
    scale_values,
)
from hwbench.specs import (
    AUTO,
    LOCAL,
    STREAM,
    LatencyStats,
    Precision,
    Target,
    Workload,
)
from hwbench.specs.network import DEFAULT_CLASSES
from hwbench.workspace import Workspace, shipped, write_text

if TYPE_CHECKING:
    import pandas

# The one that commands take where none is named.
DEFAULT_RUNTIME = "executorch"
_AGAIN = "restore it or remove it and run hwbench profile again"
_ROWS, _ADAPTIVE, _FORM = "rows", "adaptive", "form"
# The columns as those of a frame, with their types.
FRAME: dict[str, str | None] = dict.fromkeys(COLUMNS) | dict.fromkeys(NUMBERS, NUMBER)
FRAME |= dict.fromkeys(("sessions", "samples"), WHOLE)


class LatencyTable:
    """Read-only mapping from a workload to its row, for one target and one precision.

    ``aa`` is what the A/A test of the device found when the table was published, None where there was none;
    ``between_runs`` the standard deviation, relative, that the intervals allow for what another hour changes; ``scale``
    the day that predictions speak of, None where the file does not say it; ``adaptive`` that its rows were chosen to
    tell of those that it lacks.

    Raises:
        InvalidValue: Two rows of one workload, a row of another precision, or rows taken under different conditions.
    """

    def __init__(
        self,
        target: Target,
        precision: Precision,
        rows: Iterable[LatencyRow],
        *,
        emulated: bool = False,
        aa: SelfCheck | None = None,
        between_runs: float = 0.0,
        scale: Scale | None = None,
        adaptive: bool = False,
    ) -> None:
        self.target = target
        self.precision = precision
        self.emulated = emulated
        self.aa = aa
        self.between_runs = between_runs
        self.scale = scale
        self.adaptive = adaptive
        ordered = sorted(rows, key=lambda row: (list(Role).index(row.role), row.workload.key))
        self._rows = {row.workload.key: row for row in ordered}
        if len(self._rows) != len(ordered):
            key, _ = Counter(row.workload.key for row in ordered).most_common(1)[0]
            raise InvalidValue(f"latency table: {key} has two rows")
        for row in ordered:
            if row.workload.precision is not precision:
                raise InvalidValue(f"latency table: expected rows in {precision}, got {row.workload.key}")
        forms = {row.workload.variant == STREAM for row in ordered}
        if len(forms) > 1:
            raise InvalidValue("latency table: rows of clips and rows of new frames of streams must not be mixed")
        # ``auto`` of clips, whatever their layout; ``stream``: each row takes one new frame.
        self.variant = STREAM if True in forms else AUTO
        conditions = {row.conditions for row in ordered if row.stats is not None}
        if len(conditions) > 1:
            raise InvalidValue(
                f"latency table: rows were taken under {len(conditions)} different conditions "
                f"({', '.join(sorted(conditions))}) and must not be mixed; measure again: {self.command()}"
            )

    # Factor of the interval of rows that are filled in, and what they are; see ``FilledTable``.
    filled_spread = 1.0
    how = ""
    # Correlation of the errors of filled rows, and the largest of their standard deviations.
    common_share = 0.0
    largest_deviation = 0.0

    @property
    def boundary_rows(self) -> LatencyTable:
        """The table whose chains say what a boundary costs."""
        return self

    def is_measured(self, workload: Workload) -> bool:
        """Whether the latency of a workload was measured; false where it is filled in."""
        return self.latency(workload) is not None

    def deviation(self, part: Workload) -> float:
        """Standard deviation of the logarithm of a row that is filled in; 0 where it is measured or there is none."""
        return 0.0

    def filled_variance(self, parts: Iterable[Workload]) -> float:
        """Relative variance of a network by its filled rows; 0 where all are measured. See ``FilledTable``."""
        return 0.0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[LatencyRow]:
        return iter(self._rows.values())

    def __contains__(self, workload: object) -> bool:
        return isinstance(workload, Workload) and self.latency(workload) is not None

    def __getitem__(self, workload: Workload) -> LatencyStats:
        """The latency of a workload.

        Raises:
            NotMeasured: There is no row, or a failed one; the nearest rows and the command are named.
        """
        stats = self.latency(workload)
        if stats is None:
            raise NotMeasured(self.explain(workload))
        return stats

    @property
    def conditions(self) -> str:
        """Digest of the conditions of all rows; empty where no row says them."""
        return next((row.conditions for row in self if row.stats is not None), "")

    @functools.cached_property
    def num_classes(self) -> int:
        """The number of classes that most heads have; what ``hwbench profile`` takes where there are none."""
        blocks = [row.workload.blocks[0] for row in self if row.role is Role.BLOCK]
        counts = Counter(block.out_channels for block in blocks if block.role.gives_logits)
        return max(counts, key=lambda n: (counts[n], -n), default=DEFAULT_CLASSES)

    def with_aa(self, aa: SelfCheck | None) -> LatencyTable:
        """The same rows with another A/A test."""
        return LatencyTable(
            self.target,
            self.precision,
            self,
            emulated=self.emulated,
            aa=aa,
            between_runs=self.between_runs,
            scale=self.scale,
            adaptive=self.adaptive,
        )

    def without(self, workloads: Iterable[Workload]) -> LatencyTable:
        """The table without some rows."""
        left_out = set(workloads)
        return LatencyTable(
            self.target,
            self.precision,
            [row for row in self if row.workload not in left_out],
            emulated=self.emulated,
            aa=self.aa,
            between_runs=self.between_runs,
            scale=self.scale,
            adaptive=self.adaptive,
        )

    def on_day(self, day: Scale | None) -> LatencyTable:
        """The rows as they are on another day, which becomes the day of the rows; None: as they were measured."""
        if day is None:
            return self
        return LatencyTable(
            self.target,
            self.precision,
            [row.times(day.factor) for row in self],
            emulated=self.emulated,
            aa=self.aa,
            between_runs=self.between_runs,
            adaptive=self.adaptive,
        )

    def latency(self, workload: Workload) -> LatencyStats | None:
        """The latency of a workload, or None where it was not measured."""
        row = self._rows.get(workload.key)
        return row.stats if row else None

    def rows(self, role: Role) -> list[LatencyRow]:
        """The rows of one role that have a latency, by key."""
        return [row for row in self if row.role is role and row.stats is not None]

    def nearest(self, workload: Workload, count: int = 3) -> list[str]:
        """Keys of the measured rows that are least unlike (``hwbench.latency.distance``), the nearest first."""
        found = [(distance(workload, row.workload), row.workload.key) for row in self if row.stats]
        return [key for away, key in heapq.nsmallest(count, found) if away < math.inf]

    def explain(self, workload: Workload, space: str | None = None, classes: int | None = None) -> str:
        """Why there is no latency for a workload, and what to type."""
        row = self._rows.get(workload.key)
        if row is not None:
            return (
                f"{workload.key}: measuring it on {self.target} ended as {row.outcome}: {row.reason}; "
                f"try again: {self.command(space, workload, classes)} --retry"
            )
        near = self.nearest(workload)
        return (
            f"{workload.key} was not measured on {self.target}; nearest rows: {', '.join(near) or 'none'}; "
            f"measure it: {self.command(space, workload, classes)}"
        )

    def command(self, space: str | None = None, workload: Workload | None = None, classes: int | None = None) -> str:
        """The command that fills this table, with heads of ``classes`` (default: ``num_classes``); with a workload,
        with the options that take it in.
        """
        return profile_command(self.target, self.precision, space, workload, self.variant, classes or self.num_classes)

    @property
    def text(self) -> str:
        """The table as CSV. Seconds have four significant digits."""
        file = io.StringIO()
        emulated = "yes" if self.emulated else "no"
        values = {"schema": SCHEMA, "target": self.target.key, "precision": self.precision, "emulated": emulated}
        values |= aa_values(self.aa) if self.aa else {}
        values |= {BETWEEN: f"{self.between_runs:.2g}"} if self.between_runs else {}
        day = [f"{key}:{value}" for key, value in scale_values(self.scale).items()] if self.scale else []
        day += [f"{_ROWS}:{_ADAPTIVE}"] if self.adaptive else []
        day += [f"{_FORM}:{self.variant}"] if self.variant == STREAM else []
        file.write("; ".join([TITLE, *(f"{key}={value}" for key, value in values.items()), *day]) + "\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(cells(row) for row in self)
        return file.getvalue()

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a frame with the columns of the CSV; numbers are missing where a row failed."""
        return frame((row.values() for row in self), FRAME)

    def write(self, path: str | Path) -> None:
        """Writes the CSV; a crash leaves the old file or the new one.

        Raises:
            WorkspaceError: No rights or no room.
        """
        write_text(Path(path), self.text)

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        target: Target | None = None,
        precision: Precision | None = None,
        variant: str | None = None,
        space: str | None = None,
        classes: int | None = None,
    ) -> LatencyTable:
        """Reads a table and checks all of it.

        Args:
            path: The CSV.
            target: The target that is asked for, if any.
            precision: The precision that is asked for, if any.
            variant: ``stream`` or ``auto``, where one of both is asked for.
            space: What the command measures that an error names; None: not known.
            classes: Of the heads that this command measures; None: the default.

        Raises:
            InvalidFile: There is no such file, or it is damaged, of another schema, or of another target, precision or
                variant.
        """
        path = Path(path)
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except FileNotFoundError:
            raise InvalidFile(f"no latency table {path}; measure one: hwbench profile") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidFile(f"{path}: cannot be read as a latency table: {error}; {_AGAIN}") from None
        try:
            title = first_line(lines)
            header = parse_header(title)
            found, at = Target.parse(header["target"]), Precision.parse(header["precision"])
            rows = [parse_row(number, cells) for number, cells in parse_lines(lines)]
            emulated = header["emulated"] == "yes"
            table = cls(
                found, at, rows, emulated=emulated, aa=parse_aa(header), between_runs=parse_between(header),
                scale=parse_scale(title), adaptive=f"{_ROWS}:{_ADAPTIVE}" in title.split("; "),
            )  # fmt: skip
        except HwbenchError as error:
            raise InvalidFile(f"{path}: {error}; {_AGAIN}") from None
        if target is not None and found != target:
            again = f"then run hwbench profile --device {target.device} again"
            if space is not None:
                again = (
                    f"then measure: {profile_command(target, precision or at, space, None, variant or AUTO, classes)}"
                )
            raise InvalidFile(f"{path}: expected a table of {target}, this one is of {found}; move it away, {again}")
        if precision is not None and at is not precision:
            raise InvalidFile(f"{path}: expected a table in {precision}, this one is in {at}; {_AGAIN}")
        if variant is not None and len(table) and (table.variant == STREAM) != (variant == STREAM):
            kinds = ("new frames of streams", "clips")
            wanted, there = kinds if variant == STREAM else kinds[::-1]
            raise InvalidFile(f"{path}: expected rows of {wanted}, these are of {there}; {_AGAIN}")
        return table


def table_path(root: Path, target: Target, precision: Precision, variant: str = AUTO) -> Path:
    """Where the table of a target lies below a workspace; ``stream`` has one of its own."""
    form = f".{STREAM}" if variant == STREAM else ""
    name = f"{target.runtime}-{target.version}.{precision}.t{target.threads}{form}.csv"
    return root / "profiles" / target.device / name


def load_table(
    workspace: Workspace,
    target: Target,
    precision: Precision,
    space: str | None = None,
    variant: str = AUTO,
    classes: int | None = None,
) -> LatencyTable:
    """The table of a target, from the workspace or as shipped; one of this machine only from the workspace.

    Args:
        workspace: Holds tables.
        target: What was measured.
        precision: Of the arithmetic.
        space: What the command measures where there is no table.
        variant: ``stream``: the table of new frames.
        classes: Of the heads that this command measures; None: the default.

    Raises:
        NotMeasured: There is none; the message holds the command that makes it.
        InvalidFile: It does not validate.
    """
    # What is shipped as "local" was measured on another machine.
    for root in (workspace.root,) if target.device == LOCAL else (workspace.root, shipped()):
        path = table_path(root, target, precision, variant)
        if path.is_file():
            return LatencyTable.read(
                path, target=target, precision=precision, variant=variant, space=space, classes=classes
            )
    of = "latency table of streams" if variant == STREAM else "latency table"
    raise NotMeasured(
        f"no {of} of {target} in {precision} ({table_path(workspace.root, target, precision, variant)}); "
        f"measure it: {profile_command(target, precision, space, variant=variant, classes=classes)}"
    )


def profile_command(
    target: Target,
    precision: Precision,
    space: str | None = None,
    workload: Workload | None = None,
    variant: str = AUTO,
    classes: int | None = None,
) -> str:
    """The command that measures what a space needs on a target, ``workload`` among it; ``stream``: by the new frame.

    ``classes`` are those of the heads, where no ``workload`` has one; None: the default.
    """
    streams = STREAM in (variant, workload.variant if workload else AUTO)
    variants = ""
    if workload is not None:
        last = workload.blocks[-1]
        classes = last.out_channels if last.role.gives_logits else classes
        variants = f" --variants {workload.variant}" if workload.variant not in (AUTO, STREAM) else ""
    return f"hwbench profile {_options(target, precision, space, STREAM if streams else AUTO, classes)}{variants}"


def validate_command(
    target: Target, precision: Precision, space: str | None = None, variant: str = AUTO, classes: int | None = None
) -> str:
    """The command that holds the table of a target against networks which no calibration has seen.

    Args:
        target: What the table is of.
        precision: Of the arithmetic.
        space: Where the networks are drawn from.
        variant: ``stream``: the table of new frames.
        classes: Of the heads; None: those that were profiled.
    """
    return f"hwbench validate {_options(target, precision, space, variant, classes)}"


def _options(target: Target, precision: Precision, space: str | None, variant: str, classes: int | None) -> str:
    """The options that name a table, those left out that the default names."""
    threads = f" --threads {target.threads}" if target.threads != 1 else ""
    runtime = f" --runtime {target.runtime}" if target.runtime != DEFAULT_RUNTIME else ""
    form = " --streaming" if variant == STREAM else ""
    heads = f" --classes {classes}" if classes not in (None, DEFAULT_CLASSES) else ""
    place = f"--device {target.device} --space {space or 'SPACE'} --precision {precision}"
    return f"{place}{threads}{runtime}{form}{heads}"
