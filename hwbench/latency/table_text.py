"""The latency table of one target at one precision: a sorted CSV that reads well in a diff.

    # hwbench latency table; schema=1; target=local/executorch-1.5.1/t1; precision=int8; emulated=no
    role,key,outcome,median_s,p10_s,p90_s,ci_low_s,ci_high_s,sessions,samples,measured_on,conditions,reason

``role`` says what a row is for: ``block`` (one block alone), ``chain`` (a boundary probe alone or in a row, in older
tables blocks in a row: what a boundary between blocks costs) or ``network`` (a whole network, for calibration). A row
that failed has an outcome and a reason and no numbers. Latencies are in seconds, and the median lies inside its 95 %
interval: one that was edited in milliseconds is refused. ``conditions`` is a digest of the state of the device; all
rows of a table were taken under the same.

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
import math
from collections.abc import Iterator
from dataclasses import fields

from hwbench.errors import HwbenchError, InvalidValue
from hwbench.latency.occasions import BETWEEN_OCCASIONS, Scale
from hwbench.latency.table_rows import COLUMNS, COUNTS, NUMBERS, LatencyRow, Role, SelfCheck
from hwbench.latency.uncertainty import Uncertainty
from hwbench.printable import as_cell, from_cell, printable, shown
from hwbench.specs import LatencyStats, Outcome, Repeatability, Workload

SCHEMA = 1
TITLE = "# hwbench latency table"
BETWEEN = "between_runs"
_HEADER = {"schema", "target", "precision", "emulated"}
_AA = ("aa", "aa_low", "aa_high", "aa_pairs", "aa_median_s", "aa_on")
_SCALE = ("scale", "scale_low", "scale_high", "scale_at", "occasion_sd", "occasions")
_REASON_CHARACTERS = 200
# Numbers beyond these are no latencies, ratios or deviations of a device, and sums of their squares overflow.
_LEAST_S = 1e-12
_MOST = 1e9
_MOST_DEVIATION = 30.0


def cells(row: LatencyRow) -> list[str]:
    """A row as the cells of its line, none of which is a formula to spreadsheets."""
    numbers, counts = [""] * len(NUMBERS), [""] * len(COUNTS)
    if row.stats is not None:
        numbers = [f"{getattr(row.stats, name):.4g}" for name in NUMBERS]
        counts = [str(getattr(row.stats, name)) for name in COUNTS]
    # As long as ever, so that a table which is read and written again stays the same.
    reason = printable(row.reason)[:_REASON_CHARACTERS].rstrip()
    ends = [row.measured_on, as_cell(printable(row.conditions)), as_cell(reason)]
    return [row.role.value, row.workload.key, row.outcome.value, *numbers, *counts, *ends]


def aa_values(aa: SelfCheck) -> dict[str, object]:
    """The A/A test as pairs of the first line."""
    numbers = [getattr(aa.found, field.name) for field in fields(aa.found)]
    return dict(zip(_AA, [*(n if isinstance(n, int) else f"{n:.4g}" for n in numbers), aa.made_on]))


def parse_aa(values: dict[str, str]) -> SelfCheck | None:
    """The A/A test in the first line; None: none is there. Raises InvalidValue where it is damaged."""
    if not any(key in values for key in _AA):
        return None
    try:
        difference, low, high, median = (_number(values[_AA[at]]) for at in (0, 1, 2, 4))
        found = Repeatability(difference, low, high, _count(values["aa_pairs"]), median)
        made_on = values["aa_on"]
    except (KeyError, InvalidValue):
        raise InvalidValue(f"expected the A/A test as {'=..., '.join(_AA)}=...") from None
    if not (-1 < low <= difference <= high < float("inf") and found.pairs >= 2 and 0 < median < float("inf")):
        raise InvalidValue(f"expected an A/A test with its difference inside its interval, got {found}")
    return SelfCheck(found, made_on)


def parse_between(values: dict[str, str]) -> float:
    """What another hour changes, a relative standard deviation. Raises InvalidValue where it is none."""
    text = values.get(BETWEEN, "0")
    try:
        found = _number(text, _MOST_DEVIATION)
    except InvalidValue:
        found = -1.0
    if found < 0:
        raise InvalidValue(f"expected {BETWEEN} as a share such as 0.005, got {text!r}")
    return found


def scale_values(scale: Scale) -> dict[str, object]:
    """The scale as pairs of the first line."""
    factors = (f"{factor:{'.4f' if factor >= 0.1 else '.4g'}}" for factor in (scale.factor, scale.low, scale.high))
    return dict(zip(_SCALE, [*factors, scale.at, f"{scale.between.deviation:.2g}", scale.occasions]))


def parse_scale(title: str) -> Scale | None:
    """The scale in the first line, whose parts of other names are passed over; None: none is there.

    Raises:
        InvalidValue: It is damaged.
    """
    values = dict(pair.split(":", 1) for pair in title.split("; ")[1:] if "=" not in pair and ":" in pair)
    if not set(values) & set(_SCALE):
        return None
    try:
        factor, low, high = (_number(values[name]) for name in _SCALE[:3])
        deviation, occasions = _number(values["occasion_sd"], _MOST_DEVIATION), _count(values["occasions"])
    except (KeyError, InvalidValue):
        low, deviation, occasions = 0.0, 0.0, 0
    if not (low >= 1 / _MOST and deviation > 0 and 1 <= occasions < 10**6):
        raise InvalidValue(f"expected the scale as {':..., '.join(_SCALE)}:...")
    between = Uncertainty.of_deviation(deviation, BETWEEN_OCCASIONS.degrees + occasions - 1)
    return Scale(factor, low, high, values["scale_at"], between, occasions)


def first_line(lines: list[str]) -> str:
    """The first line as hwbench wrote it: spreadsheets append a comma for each further column, and may quote it."""
    return lines[0].rstrip(",").strip('"') if lines else ""


def parse_header(title: str) -> dict[str, str]:
    """The pairs of the first line. Raises InvalidValue where it is not the one of a table."""
    title, *pairs = title.split("; ")
    values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if title != TITLE or set(values) - {*_AA, BETWEEN} != _HEADER:
        raise InvalidValue(f"expected a first line '{TITLE}; schema=...; target=...', got {title[:60]!r}")
    if values["schema"] != str(SCHEMA):
        raise InvalidValue(f"expected schema {SCHEMA}, got {values['schema']!r}; a newer hwbench may read it")
    if values["emulated"] not in ("yes", "no"):
        raise InvalidValue(f"expected emulated=yes or no, got {values['emulated']!r}")
    return values


def parse_lines(lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The number of each line of rows, and its cells; lines without a value, as editors leave them, are passed over.

    Raises:
        InvalidValue: It is no CSV, or the columns are others.
    """
    try:
        records = [*enumerate(csv.reader(lines[1:], strict=True), start=2)]
    except csv.Error as error:
        raise InvalidValue(f"not a CSV: {error}") from None
    (_, header), *rows = [(number, cells) for number, cells in records if any(map(str.strip, cells))] or [(2, [])]
    if tuple(header) != COLUMNS:
        unknown = [c for c in header if c not in COLUMNS] or header
        raise InvalidValue(f"expected the columns {','.join(COLUMNS)}; got {','.join(unknown)[:80]!r}")
    yield from rows


def parse_row(number: int, cells: list[str]) -> LatencyRow:
    """The row of a line. Raises InvalidValue, with the number of the line."""
    if len(cells) != len(COLUMNS):
        raise InvalidValue(f"line {number}: expected {len(COLUMNS)} columns, got {len(cells)}")
    values = dict(zip(COLUMNS, cells))
    try:
        outcome = Outcome(values["outcome"])
        return LatencyRow(
            role=Role(values["role"]),
            workload=Workload.parse(values["key"]),
            outcome=outcome,
            stats=_parse_stats(values) if outcome is Outcome.OK else None,
            measured_on=values["measured_on"],
            conditions=from_cell(values["conditions"]),
            reason=from_cell(values["reason"]),
        )
    except (ValueError, HwbenchError) as error:
        raise InvalidValue(f"line {number}: {error}") from None


def _parse_stats(values: dict[str, str]) -> LatencyStats:
    seconds = [_number(values[name]) for name in NUMBERS]
    counts = [_count(values[name]) for name in ("sessions", "samples")]
    median, p10, p90, low, high = seconds
    # The p10 and p90 are of all samples, and sessions have different numbers of them: the median of the sessions may
    # lie outside.
    if not (_LEAST_S <= p10 <= p90 and median >= _LEAST_S and 0 <= low <= median <= high):
        named = ", ".join(f"{name}={values[name]}" for name in NUMBERS)
        raise InvalidValue(
            f"expected latencies in seconds above zero, p10_s up to p90_s and median_s inside its interval, got {named}"
        )
    if min(counts) < 1:
        raise InvalidValue("expected at least one session and one sample")
    return LatencyStats(median, p10, p90, low, high, *counts)


def _number(text: str, most: float = _MOST) -> float:
    """A number as tables have it. Raises InvalidValue for one as Python alone writes it, and for one beyond sense."""
    try:
        found = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        found = math.nan
    if not abs(found) <= most:
        raise InvalidValue(f"expected a number such as 0.00207, got {shown(text, 40)}")
    return found


def _count(text: str) -> int:
    """A whole number, likewise."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise InvalidValue(f"expected a whole number such as 50, got {shown(text, 40)}")
    return int(digits)
