"""The latency table of one target at one precision: a sorted CSV that reads well in a diff.

    # hwbench latency table; schema=1; target=local/executorch-1.5.1/t1; precision=int8; emulated=no
    role,key,outcome,median_s,p10_s,p90_s,ci_low_s,ci_high_s,sessions,samples,measured_on,conditions,reason

``role`` says what a row is for: ``block`` (one block alone), ``chain`` (a boundary probe alone or in a row, in older
tables blocks in a row: what a boundary between blocks costs) or ``network`` (a whole network, for calibration). A row
that failed has an outcome and a reason and no numbers. ``conditions`` is a digest of the state of the device; all rows
of a table were taken under the same.

A reason is what a device said, and tables are opened in spreadsheets: one that would be a formula there (``=``, ``+``,
``-``, ``@`` in front) has an apostrophe before it in the file, which reading takes away again.

The first line may also hold what the A/A test found there and then (see ``Repeatability``), relative:

    ; aa=0.0012; aa_low=-0.003; aa_high=0.005; aa_pairs=8; aa_median_s=0.00207; aa_on=2026-01-31

and ``; between_runs=0.005``: the relative standard deviation that the intervals allow for what another hour changes
(``hwbench.latency.intervals``); without it they hold what the sessions of a row tell.

The rows stand in the file as measured, on the scale of the day on which most of them were. The day that predictions
speak of is a factor on all of them, with its 95 % interval (``hwbench.latency.occasions``):

    ; scale:1.062; scale_low:1.051; scale_high:1.073; scale_at:2026-01-31T22:15Z; occasion_sd:0.043; occasions:3

``occasion_sd`` is what all latencies together change by from one occasion to another, relative, as far as so many
``occasions`` tell. These have colons so that versions of hwbench which do not know them pass over them. So has
``; rows:adaptive``, which says that rows were chosen (``hwbench.studies.profiling_walk``): those that the table lacks
are filled in when it is read for a prediction; and ``; form:stream``, which says that each row takes one new frame of a
stream: the name of such a table ends in ``.stream.csv``, and no row of a clip is in it.
"""

from __future__ import annotations

import csv
import enum
import heapq
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, NotMeasured
from hwbench.frames import NUMBER, WHOLE, frame
from hwbench.latency.distance import distance
from hwbench.latency.occasions import BETWEEN_OCCASIONS, Scale
from hwbench.latency.probes import is_boundary_probe
from hwbench.latency.uncertainty import Uncertainty
from hwbench.printable import printable
from hwbench.specs import (
    AUTO,
    LOCAL,
    STREAM,
    LatencyStats,
    Measurement,
    Outcome,
    Precision,
    Repeatability,
    Target,
    Workload,
)
from hwbench.specs.network import DEFAULT_CLASSES
from hwbench.workspace import Workspace, shipped, write_text

if TYPE_CHECKING:
    import pandas

SCHEMA = 1
# The one that commands take where none is named.
DEFAULT_RUNTIME = "executorch"
_TITLE = "# hwbench latency table"
_AGAIN = "restore it or remove it and run hwbench profile again"
_NUMBERS = ("median_s", "p10_s", "p90_s", "ci_low_s", "ci_high_s")
_COUNTS = ("num_sessions", "num_samples")
_HEADER = {"schema", "target", "precision", "emulated"}
_AA = ("aa", "aa_low", "aa_high", "aa_pairs", "aa_median_s", "aa_on")
_BETWEEN = "between_runs"
_ROWS, _ADAPTIVE, _FORM = "rows", "adaptive", "form"
_SCALE = ("scale", "scale_low", "scale_high", "scale_at", "occasion_sd", "occasions")
_COLUMNS = ("role", "key", "outcome", *_NUMBERS, "sessions", "samples", "measured_on", "conditions", "reason")
# The same columns of a frame, with their types.
FRAME: dict[str, str | None] = dict.fromkeys(_COLUMNS) | dict.fromkeys(_NUMBERS, NUMBER)
FRAME |= dict.fromkeys(("sessions", "samples"), WHOLE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_REASON_CHARACTERS = 200
# What begins so is a formula to spreadsheets, also in full width; ``'`` in front makes it text.
_FORMULA = re.compile(r"'*[=+\-@\uff1d\uff0b\uff0d\uff20]")


class Role(enum.StrEnum):
    """What a row is for: a block of networks, what their boundaries cost (chains), or the calibration."""

    BLOCK = "block"
    CHAIN = "chain"
    NETWORK = "network"

    @classmethod
    def of(cls, workload: Workload) -> Role:
        """The role of the row of a workload."""
        if is_boundary_probe(workload):
            return cls.CHAIN
        if len(workload.blocks) == 1:
            return cls.BLOCK
        return cls.NETWORK if workload.is_network else cls.CHAIN


@dataclass(frozen=True)
class LatencyRow:
    """One line of a table. ``stats`` is there exactly when the outcome is ``ok``; ``measured_on`` is a date (UTC)."""

    role: Role
    workload: Workload
    outcome: Outcome
    stats: LatencyStats | None
    measured_on: str
    conditions: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.outcome is Outcome.OK) != (self.stats is not None):
            raise InvalidValue(f"latency row: {self.workload.key}: an ok row has numbers, a failed one has none")
        if _DATE.fullmatch(self.measured_on) is None:
            raise InvalidValue(f"latency row: expected a date such as 2026-01-31, got {self.measured_on!r}")
        if (self.role is Role.BLOCK) != (Role.of(self.workload) is Role.BLOCK):
            raise InvalidValue(f"latency row: {self.workload.key} cannot have the role {self.role}")

    @classmethod
    def of(cls, one: Measurement, measured_on: str, conditions: str = "") -> LatencyRow:
        """A measurement as a row, with its date (UTC) and the digest of its conditions."""
        stats = one.stats if one.outcome is Outcome.OK else None
        return cls(Role.of(one.workload), one.workload, one.outcome, stats, measured_on, conditions, one.reason)

    def values(self) -> dict[str, Any]:
        """The row by the columns of a table; None for each number of a row that failed."""
        numbers = {name: getattr(self.stats, name, None) for name in (*_NUMBERS, *_COUNTS)}
        counts = {"sessions": numbers.pop("num_sessions"), "samples": numbers.pop("num_samples")}
        first = {"role": self.role.value, "key": self.workload.key, "outcome": self.outcome.value}
        last = {"measured_on": self.measured_on, "conditions": self.conditions, "reason": self.reason}
        return first | numbers | counts | last


@dataclass(frozen=True)
class SelfCheck:
    """The A/A test that was made when a table was published, and its date (UTC)."""

    found: Repeatability
    made_on: str

    def __post_init__(self) -> None:
        if _DATE.fullmatch(self.made_on) is None:
            raise InvalidValue(f"A/A test: expected a date such as 2026-01-31, got {self.made_on!r}")


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

    def explain(self, workload: Workload, space: str | None = None) -> str:
        """Why there is no latency for a workload, and what to type."""
        row = self._rows.get(workload.key)
        if row is not None:
            return (
                f"{workload.key}: measuring it on {self.target} ended as {row.outcome}: {row.reason}; "
                f"try again: {self.command(space, workload)} --retry"
            )
        near = self.nearest(workload)
        return (
            f"{workload.key} was not measured on {self.target}; nearest rows: {', '.join(near) or 'none'}; "
            f"measure it: {self.command(space, workload)}"
        )

    def command(self, space: str | None = None, workload: Workload | None = None) -> str:
        """The command that fills this table; with a workload, with the options that take it in."""
        return profile_command(self.target, self.precision, space, workload, self.variant)

    @property
    def text(self) -> str:
        """The table as CSV. Seconds have four significant digits."""
        file = io.StringIO()
        emulated = "yes" if self.emulated else "no"
        values = {"schema": SCHEMA, "target": self.target.key, "precision": self.precision, "emulated": emulated}
        values |= _aa_values(self.aa) if self.aa else {}
        values |= {_BETWEEN: f"{self.between_runs:.2g}"} if self.between_runs else {}
        day = [f"{key}:{value}" for key, value in _scale_values(self.scale).items()] if self.scale else []
        day += [f"{_ROWS}:{_ADAPTIVE}"] if self.adaptive else []
        day += [f"{_FORM}:{self.variant}"] if self.variant == STREAM else []
        file.write("; ".join([_TITLE, *(f"{key}={value}" for key, value in values.items()), *day]) + "\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(_cells(row) for row in self)
        return file.getvalue()

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a frame with the columns of the CSV; numbers are missing where a row failed."""
        return frame((row.values() for row in self), FRAME)

    def write(self, path: Path) -> None:
        """Writes the CSV; a crash leaves the old file or the new one.

        Raises:
            WorkspaceError: No rights or no room.
        """
        write_text(path, self.text)

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        target: Target | None = None,
        precision: Precision | None = None,
        variant: str | None = None,
    ) -> LatencyTable:
        """Reads a table and checks all of it.

        Args:
            path: The CSV.
            target: The target that is asked for, if any.
            precision: The precision that is asked for, if any.
            variant: ``stream`` or ``auto``, where one of both is asked for.

        Raises:
            InvalidFile: The file is damaged, of another schema, or of another target, precision or variant.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidFile(f"{path}: cannot be read as a latency table: {error}; {_AGAIN}") from None
        try:
            header = _parse_header(lines)
            found, at = Target.parse(header["target"]), Precision.parse(header["precision"])
            rows = [_parse_row(number, cells) for number, cells in _parse_lines(lines)]
            emulated = header["emulated"] == "yes"
            table = cls(
                found, at, rows, emulated=emulated, aa=_parse_aa(header), between_runs=_parse_between(header),
                scale=_parse_scale(lines[0]), adaptive=f"{_ROWS}:{_ADAPTIVE}" in lines[0].split("; "),
            )  # fmt: skip
        except HwbenchError as error:
            raise InvalidFile(f"{path}: {error}; {_AGAIN}") from None
        if target is not None and found != target:
            raise InvalidFile(
                f"{path}: expected a table of {target}, this one is of {found}; move it away, then measure: "
                f"{profile_command(target, precision or at)}"
            )
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
    workspace: Workspace, target: Target, precision: Precision, space: str | None = None, variant: str = AUTO
) -> LatencyTable:
    """The table of a target, from the workspace or as shipped; one of this machine only from the workspace. With
    ``stream`` as its variant the one of new frames.

    Raises:
        NotMeasured: There is none; the message holds the command that makes it.
        InvalidFile: It does not validate.
    """
    # What is shipped as "local" was measured on another machine.
    for root in (workspace.root,) if target.device == LOCAL else (workspace.root, shipped()):
        path = table_path(root, target, precision, variant)
        if path.is_file():
            return LatencyTable.read(path, target=target, precision=precision, variant=variant)
    of = "latency table of streams" if variant == STREAM else "latency table"
    raise NotMeasured(
        f"no {of} of {target} in {precision} ({table_path(workspace.root, target, precision, variant)}); "
        f"measure it: {profile_command(target, precision, space, variant=variant)}"
    )


def profile_command(
    target: Target,
    precision: Precision,
    space: str | None = None,
    workload: Workload | None = None,
    variant: str = AUTO,
) -> str:
    """The command that measures what a space needs on a target, ``workload`` among it; ``stream``: by the new frame."""
    threads = f" --threads {target.threads}" if target.threads != 1 else ""
    runtime = f" --runtime {target.runtime}" if target.runtime != DEFAULT_RUNTIME else ""
    command = f"hwbench profile --device {target.device} --space {space or 'SPACE'} --precision {precision}"
    streams = STREAM in (variant, workload.variant if workload else AUTO)
    form = " --streaming" if streams else ""
    if workload is None:
        return f"{command}{threads}{runtime}{form}"
    last = workload.blocks[-1]
    head = last.role.gives_logits and last.out_channels != DEFAULT_CLASSES
    classes = f" --classes {last.out_channels}" if head else ""
    variants = f" --variants {workload.variant}" if workload.variant not in (AUTO, STREAM) else ""
    return f"{command}{threads}{runtime}{form}{classes}{variants}"


def _cells(row: LatencyRow) -> list[str]:
    numbers, counts = [""] * len(_NUMBERS), [""] * len(_COUNTS)
    if row.stats is not None:
        numbers = [f"{getattr(row.stats, name):.4g}" for name in _NUMBERS]
        counts = [str(getattr(row.stats, name)) for name in _COUNTS]
    # As long as ever, so that a table which is read and written again stays the same.
    reason = printable(row.reason)[:_REASON_CHARACTERS].rstrip()
    ends = [row.measured_on, _as_text(printable(row.conditions)), _as_text(reason)]
    return [row.role.value, row.workload.key, row.outcome.value, *numbers, *counts, *ends]


def _as_text(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) else cell


def _from_text(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _aa_values(aa: SelfCheck) -> dict[str, object]:
    numbers = [getattr(aa.found, field.name) for field in fields(aa.found)]
    return dict(zip(_AA, [*(n if isinstance(n, int) else f"{n:.4g}" for n in numbers), aa.made_on]))


def _parse_aa(values: dict[str, str]) -> SelfCheck | None:
    if not any(key in values for key in _AA):
        return None
    try:
        difference, low, high, median = (float(values[_AA[at]]) for at in (0, 1, 2, 4))
        found = Repeatability(difference, low, high, int(values["aa_pairs"]), median)
        made_on = values["aa_on"]
    except (KeyError, ValueError):
        raise InvalidValue(f"expected the A/A test as {'=..., '.join(_AA)}=...") from None
    if not (-1 < low <= difference <= high < float("inf") and found.pairs >= 2 and 0 < median < float("inf")):
        raise InvalidValue(f"expected an A/A test with its difference inside its interval, got {found}")
    return SelfCheck(found, made_on)


def _parse_between(values: dict[str, str]) -> float:
    text = values.get(_BETWEEN, "0")
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < 1:
        raise InvalidValue(f"expected {_BETWEEN} as a share such as 0.005, got {text!r}")
    return found


def _scale_values(scale: Scale) -> dict[str, object]:
    factors = (f"{factor:.4f}" for factor in (scale.factor, scale.low, scale.high))
    return dict(zip(_SCALE, [*factors, scale.at, f"{scale.between.deviation:.2g}", scale.occasions]))


def _parse_scale(title: str) -> Scale | None:
    """The scale in the first line, whose parts of other names are passed over."""
    values = dict(pair.split(":", 1) for pair in title.split("; ")[1:] if "=" not in pair and ":" in pair)
    if not set(values) & set(_SCALE):
        return None
    try:
        factor, low, high, deviation = (float(values[_SCALE[at]]) for at in (0, 1, 2, 4))
        occasions = int(values["occasions"])
        if not (0 < deviation < 1 and 1 <= occasions < 10**6):
            raise ValueError
    except (KeyError, ValueError):
        raise InvalidValue(f"expected the scale as {':..., '.join(_SCALE)}:...") from None
    between = Uncertainty.of_deviation(deviation, BETWEEN_OCCASIONS.degrees + occasions - 1)
    return Scale(factor, low, high, values["scale_at"], between, occasions)


def _parse_header(lines: list[str]) -> dict[str, str]:
    title, *pairs = lines[0].split("; ") if lines else [""]
    values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if title != _TITLE or set(values) - {*_AA, _BETWEEN} != _HEADER:
        raise InvalidValue(f"expected a first line '{_TITLE}; schema=...; target=...', got {title[:60]!r}")
    if values["schema"] != str(SCHEMA):
        raise InvalidValue(f"expected schema {SCHEMA}, got {values['schema']!r}; a newer hwbench may read it")
    if values["emulated"] not in ("yes", "no"):
        raise InvalidValue(f"expected emulated=yes or no, got {values['emulated']!r}")
    return values


def _parse_lines(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    try:
        records = list(csv.reader(lines[1:], strict=True))
    except csv.Error as error:
        raise InvalidValue(f"not a CSV: {error}") from None
    if not records or tuple(records[0]) != _COLUMNS:
        got = records[0] if records else []
        unknown = [c for c in got if c not in _COLUMNS] or got
        raise InvalidValue(f"expected the columns {','.join(_COLUMNS)}; got {','.join(unknown)[:80]!r}")
    yield from enumerate(records[1:], start=3)


def _parse_row(number: int, cells: list[str]) -> LatencyRow:
    if len(cells) != len(_COLUMNS):
        raise InvalidValue(f"line {number}: expected {len(_COLUMNS)} columns, got {len(cells)}")
    values = dict(zip(_COLUMNS, cells))
    try:
        outcome = Outcome(values["outcome"])
        return LatencyRow(
            role=Role(values["role"]),
            workload=Workload.parse(values["key"]),
            outcome=outcome,
            stats=_parse_stats(values) if outcome is Outcome.OK else None,
            measured_on=values["measured_on"],
            conditions=_from_text(values["conditions"]),
            reason=_from_text(values["reason"]),
        )
    except (ValueError, HwbenchError) as error:
        raise InvalidValue(f"line {number}: {error}") from None


def _parse_stats(values: dict[str, str]) -> LatencyStats:
    seconds = [float(values[name]) for name in _NUMBERS]
    counts = [int(values[name]) for name in ("sessions", "samples")]
    median, p10, p90, low, high = seconds
    if not (0 < p10 <= p90 < float("inf") and 0 < median < float("inf") and 0 <= low <= high < float("inf")):
        raise InvalidValue(f"expected latencies above zero in ascending order, got {', '.join(map(str, seconds))}")
    if min(counts) < 1:
        raise InvalidValue("expected at least one session and one sample")
    return LatencyStats(median, p10, p90, low, high, *counts)
