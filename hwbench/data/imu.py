"""Readings of inertial sensors beside a video: a CSV file of each recording, and the readings of a part of it.

A file has a first row with names, a column of time stamps that rise from row to row, and a column for each axis. The
defaults are the names of Ego4D, whose times count milliseconds from the first frame of the video.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwbench.data.readers.annotations import Row, read_table
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.printable import shown

_Values = npt.NDArray[np.float64]

# Squares of larger numbers have no place in a float, nor they themselves in one of 32 bits.
_LARGEST = 1e30
# An hour of Ego4D is 700 000 readings, or 40 MB.
_MOST_KEPT = 8


@dataclass(frozen=True)
class ImuSpec:
    """What a file of readings is made of, and what is taken from it.

    Attributes:
        columns: The axes, in the order in which a network gets them.
        time: The column of time stamps.
        time_unit_s: Seconds that a time stamp counts in.
        offset_s: Seconds from the first frame of the video to time stamp 0.
        readings: Readings of a part, evenly apart.
        normalised: Each axis gets mean 0 and standard deviation 1 over the whole recording.

    Raises:
        InvalidValue: No axis or no reading, a name twice, or a unit of 0.
    """

    columns: tuple[str, ...] = ("accl_x", "accl_y", "accl_z", "gyro_x", "gyro_y", "gyro_z")
    time: str = "canonical_timestamp_ms"
    time_unit_s: Fraction = Fraction(1, 1000)
    offset_s: Fraction = Fraction(0)
    readings: int = 200
    normalised: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))  # recordings are kept by their spec: no list
        names = {*self.columns, self.time}
        if not self.columns or self.readings < 1 or self.time_unit_s <= 0 or len(names) != len(self.columns) + 1:
            raise InvalidValue(f"imu: expected columns, each once, readings and a unit of time above 0, got {self}")


@dataclass(frozen=True)
class ImuReadings:
    """``readings`` float32 (axes, K); ``valid`` bool (K,): where the recording has any, elsewhere they are 0."""

    readings: npt.NDArray[np.float32]
    valid: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ImuRecording:
    """A whole file: ``times_s`` float64 (N,) from the first frame of the video, ``readings`` float64 (N, axes)."""

    times_s: _Values
    readings: _Values

    def part(self, start_s: Fraction, end_s: Fraction, count: int) -> ImuReadings:
        """Readings at ``count`` times evenly apart in ``[start_s, end_s)``, linear between those of the recording."""
        step_s = float(end_s - start_s) / count
        times_s = float(start_s) + step_s * np.arange(count)
        valid = (self.times_s[0] <= times_s) & (times_s <= self.times_s[-1])
        readings = np.stack([np.interp(times_s, self.times_s, axis) for axis in self.readings.T])
        return ImuReadings(np.where(valid, readings, 0).astype(np.float32), valid)


def read_imu(path: Path, spec: ImuSpec) -> ImuRecording:
    """The recording of a file; those read last are kept until their file changes.

    Raises:
        InvalidFile: No such file or column, a value that is no number, or a time stamp that does not rise; with the
            line.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror}") from None
    return _recording(path, spec, status.st_size, status.st_mtime_ns)


@functools.lru_cache(_MOST_KEPT)
def _recording(path: Path, spec: ImuSpec, size_bytes: int, changed_ns: int) -> ImuRecording:
    values = _quickly(path, spec)
    if values is None:
        values = _row_by_row(path, spec)
    times_s = values[:, 0] * float(spec.time_unit_s) + float(spec.offset_s)
    readings = values[:, 1:]
    if spec.normalised:
        deviation = readings.std(axis=0)
        readings = (readings - readings.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    return ImuRecording(times_s, readings)


def _quickly(path: Path, spec: ImuSpec) -> _Values | None:
    """Time stamps and axes: float64 (N, 1 + axes); None where anything about the file is unusual."""
    from pandas import read_csv

    names = [spec.time, *spec.columns]
    try:
        index = False if _ends_with_comma(path) else None
        frame = read_csv(path, usecols=names, dtype=np.float64, encoding="utf-8-sig", index_col=index)
    except (OSError, ValueError, OverflowError):  # pandas takes whole numbers beyond 64 bits for Python's
        return None
    values: _Values = frame[names].to_numpy()
    fine = len(values) and (np.abs(values) <= _LARGEST).all() and (np.diff(values[:, 0]) > 0).all()
    return values if fine else None


def _ends_with_comma(path: Path) -> bool:
    """Whether rows end with a comma and the names do not, in which case pandas takes the first column for an index."""
    with path.open(encoding="utf-8-sig") as file:
        lines = (text for line in file if (text := line.rstrip()))
        return not next(lines, "").endswith(",") and next(lines, "").endswith(",")


def _row_by_row(path: Path, spec: ImuSpec) -> _Values:
    """The same, slowly, with the line of the first fault."""
    names, rows, before = (spec.time, *spec.columns), [], -math.inf
    for row in read_table(path, names):
        values = [_number(row, name) for name in names]
        if values[0] <= before:
            raise row.fault(f"expected a {spec.time!r} later than {before:g} in the row before, got {values[0]:g}")
        before = values[0]
        rows.append(values)
    return np.array(rows, dtype=np.float64)


def _number(row: Row, column: str) -> float:
    value = row.values[column]
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not abs(number) <= _LARGEST:  # nor is it one that is not a number
        raise row.fault(f"expected a number as {column!r}, got {shown(value, 80)}")
    return number
