"""Courses on the disk: one file each, a line a window, so that a kill costs no more than the window under way."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hwbench.devices import Device
from hwbench.documents import read_json
from hwbench.durable import make_folder
from hwbench.errors import InvalidFile
from hwbench.measure.energy import Energy, EnergyReading, power
from hwbench.measure.store_types import fingerprint
from hwbench.measure.sustained import CoursePoint, SettledLatency, settled_latency, settled_points
from hwbench.printable import printable
from hwbench.specs import LatencyStats, Measurement
from hwbench.workspace import writing

SUFFIX = ".jsonl"
# How a course ends; one that was interrupted has no end, and the same command goes on with it.
SETTLED, LIMIT, OPEN = "settled", "limit", "interrupted"
# One thread that has less than this share of a processor shares it with other programs: that is not heat.
OWN_SHARE = 0.9


@dataclass(frozen=True)
class CourseFacts:
    """What a course is of. ``cool_s`` and its interval are the latency of the file just before it, in seconds.

    ``fingerprint`` and ``unit`` are those of the device, ``conditions`` the word of its file, ``digest`` that of all
    conditions, as tables keep it. They are empty where the device did not tell them, or an older hwbench kept none.
    """

    target: str
    model: str
    sha256: str
    precision: str
    started_at: str
    cool_s: float
    cool_low_s: float
    cool_high_s: float
    fingerprint: str = ""
    unit: str = ""
    conditions: str = ""
    digest: str = ""

    @classmethod
    def of(
        cls,
        device: Device,
        measured: Measurement,
        model: str,
        sha256: str,
        precision: str | None,
        cool: LatencyStats,
    ) -> CourseFacts:
        """Those of a course that begins now.

        Args:
            device: As its file says it.
            measured: The latency of the cool device.
            model: The file, as the user named it.
            sha256: Of the file.
            precision: That the file tells; None: it tells none.
            cool: Of ``measured``.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(
            measured.target.key,
            model,
            sha256,
            precision or "",
            now,
            cool.median_s,
            cool.ci_low_s,
            cool.ci_high_s,
            fingerprint=measured.conditions.get("device", device.fingerprint),
            unit=device.unit,
            conditions=device.conditions.value,
            digest=fingerprint(measured.conditions),
        )

    def is_of(self, device: Device) -> bool:
        """Whether the device as its file says it now is the one that was measured, under the same conditions.

        What one of them does not tell is taken to be equal.
        """
        pairs = (
            (self.fingerprint, device.fingerprint),
            (self.unit, device.unit),
            (self.conditions, device.conditions.value),
        )
        return all(now in ("", then) for then, now in pairs if then)


@dataclass(frozen=True)
class SustainedCourse:
    """A course as it is on the disk.

    Attributes:
        facts: What it is of.
        points: Its windows; at least one.
        ended: ``settled``, ``limit`` (the time was over before) or ``interrupted``.
        path: Its file.
    """

    facts: CourseFacts
    points: tuple[CoursePoint, ...]
    ended: str
    path: Path

    @property
    def settled(self) -> SettledLatency:
        """The latency at its end."""
        return settled_latency(self.points)

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Latency at the end over the latency of the cool device, and the interval of it from those of both."""
        end, facts = self.settled, self.facts
        value = end.latency_s / facts.cool_s
        spread = math.hypot(
            (end.high_s - end.low_s) / (2 * end.latency_s), (facts.cool_high_s - facts.cool_low_s) / (2 * facts.cool_s)
        )
        return value, max(0.0, value * (1 - spread)), value * (1 + spread)

    @property
    def energy(self) -> Energy:
        """Mean power at its end."""
        return power([(p.at_s + p.seconds / 2, p.energy) for p in settled_points(self.points) if p.energy is not None])

    @property
    def cpu_share(self) -> float | None:
        """Share of one processor that the process had at the end, of several threads more than 1; None: not told."""
        used = settled_points(self.points)
        taken = sum(point.cpu_s for point in used)
        return taken / sum(point.seconds for point in used) if taken else None

    @property
    def shared(self) -> bool:
        """Whether other programs took a part of the processor at the end; of several threads that cannot be told."""
        alone = self.facts.target.endswith("/t1")
        return alone and self.cpu_share is not None and self.cpu_share < OWN_SHARE

    @property
    def executions_per_s(self) -> float:
        """Executions a second at its end."""
        used = settled_points(self.points)
        return sum(point.executions for point in used) / sum(point.seconds for point in used)


class CourseLog:
    """A file that windows are added to; each is on the disk when ``add`` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def begin(cls, folder: Path, facts: CourseFacts) -> CourseLog:
        """Begins a course in the folder of its device.

        Raises:
            WorkspaceError: It cannot be written.
        """
        name = f"{facts.target.partition('/')[2]}.{facts.precision or 'unknown'}.{facts.started_at}.{facts.sha256[:8]}"
        stem = name.replace("/", ".").replace(":", "")
        with writing(folder):
            make_folder(folder)
            taken = len(list(folder.glob(f"{stem}*")))  # of the same second
        log = cls(folder / f"{stem}{f'-{taken + 1}' if taken else ''}{SUFFIX}")
        log._append({"kind": "begin", **asdict(facts)})
        return log

    @classmethod
    def resume(cls, path: Path) -> CourseLog:
        """Goes on with a course; a last line that was cut off is taken away, so that the next one begins a line.

        Raises:
            WorkspaceError: It cannot be written.
        """
        with writing(path), path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)
        return cls(path)

    def add(self, point: CoursePoint) -> None:
        """Keeps one window."""
        self._append({"kind": "window", **asdict(point)})

    def end(self, how: str) -> None:
        """Notes that nothing more comes, and why: ``settled`` or ``limit``."""
        self._append({"kind": "end", "how": how})

    def _append(self, values: dict[str, Any]) -> None:
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_course(path: Path) -> SustainedCourse | None:
    """A course; None where it has no window yet. A last line that was cut off is left out.

    Raises:
        InvalidFile: It is no course.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = [read_json(line) for line in text[: text.rfind("\n") + 1].split("\n") if line]
        if not values:
            return None
        facts = CourseFacts(**_typed(CourseFacts, values[0], "begin"))
        if facts.cool_s < _LEAST_S:
            raise ValueError("a latency of nothing")
        points = tuple(_point(one) for one in values[1:] if one["kind"] == "window")
        ended = next((str(one["how"]) for one in values[1:] if one["kind"] == "end"), OPEN)
    except (ValueError, KeyError, TypeError) as error:
        said = printable(str(error), 200)
        raise InvalidFile(f"{path}: no course of a sustained latency: {said}; delete it and measure again") from None
    return SustainedCourse(facts, points, ended, path) if points else None


def courses(folder: Path) -> Iterator[SustainedCourse]:
    """The courses of a device, the latest first; damaged files are left out.

    Args:
        folder: Of the device; may be absent.
    """
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            course = read_course(path)
        except InvalidFile:
            continue
        if course is not None:
            found.append(course)
    yield from sorted(found, key=lambda course: course.facts.started_at, reverse=True)


def _typed(made: type[Any], values: Any, kind: str) -> dict[str, Any]:
    """The fields of a dataclass from a line, each of the type of its annotation."""
    if values["kind"] != kind:
        raise ValueError(f"expected a line {kind!r}, got {values['kind']!r}")
    return {
        one.name: _CHECKED[str(one.type)](values[one.name])
        for one in fields(made)
        if one.name in values or one.default is MISSING
    }


def _point(values: Any) -> CoursePoint:
    point = CoursePoint(**_typed(CoursePoint, values, "window"))
    if min(point.latency_s, point.seconds) < _LEAST_S or point.executions < 1:
        raise ValueError("a window without executions")
    return point


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return printable(value, 500)


def _real(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < _MOST:
        raise TypeError("expected a finite number")
    return float(value)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:
        raise TypeError("expected a whole number from 0")
    return value


def _reading(value: Any) -> EnergyReading | None:
    if value is None:
        return None
    packages = tuple((_whole(count), _whole(limit)) for count, limit in value["packages"])
    current, voltage = (None if value[name] is None else _real(value[name]) for name in ("current_ua", "voltage_uv"))
    return EnergyReading(packages, current, voltage, bool(value["charging"]))


# A nanosecond, and more than any count or time has.
_LEAST_S, _MOST = 1e-9, 1e18
_CHECKED: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "float": _real,
    "int": _whole,
    "EnergyReading | None": _reading,
}
