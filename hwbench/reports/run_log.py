"""``metrics.jsonl`` of a run, read strictly: a damaged line is an error, a half-written last one is not there yet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hwbench.documents import read_json
from hwbench.errors import InvalidFile
from hwbench.training.log import METRICS

# Keys of an epoch's line that are no measure of the validation.
_NO_MEASURES = ("event", "epoch", "step", "top1", "top5", "videos", "lost_samples", "unreadable")


@dataclass(frozen=True)
class LoggedStep:
    """One step, counted from 0, of an epoch, counted from 0."""

    step: int
    epoch: int
    loss: float
    learning_rate: float


@dataclass(frozen=True)
class LoggedEpoch:
    """The end of an epoch, counted from 0.

    Attributes:
        epoch: Which.
        step: Steps of the run up to here.
        top1: Share of validation videos; None where the epoch was not validated.
        top5: The same of the best five.
        videos: Number of validation videos.
        measures: Further measures of the validation, by name.
        lost_samples: Training samples left out so far.
        unreadable: Training videos that could not be read so far, path -> cause.
    """

    epoch: int
    step: int
    top1: float | None
    top5: float | None
    videos: int | None
    measures: Mapping[str, float]
    lost_samples: int
    unreadable: Mapping[str, str]


@dataclass(frozen=True)
class RunLog:
    """The lines of a log. ``written_at``: when the file last changed (UTC, ISO 8601)."""

    steps: tuple[LoggedStep, ...]
    epochs: tuple[LoggedEpoch, ...]
    written_at: str

    @property
    def validated(self) -> tuple[LoggedEpoch, ...]:
        """The epochs that were validated."""
        return tuple(epoch for epoch in self.epochs if epoch.top1 is not None)

    @property
    def done_steps(self) -> int:
        """Steps that are logged."""
        return max((step.step + 1 for step in self.steps[-1:]), default=0)

    @property
    def steps_per_epoch(self) -> int | None:
        """None before the end of the first epoch."""
        return self.epochs[0].step // (self.epochs[0].epoch + 1) if self.epochs else None


def read_log(folder: Path) -> RunLog:
    """Reads the log of a run, also while the run writes it.

    Raises:
        InvalidFile: The folder has no log, or a line of it is damaged; file and line number are named.
    """
    path = folder / METRICS
    try:
        data, written_s = path.read_bytes(), path.stat().st_mtime
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror}; expected the log that hwbench train writes there") from None
    steps: list[LoggedStep] = []
    epochs: list[LoggedEpoch] = []
    # What follows the last end of a line is a line that is being written, or what a power cut left of one.
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            values = read_json(line)
            if not isinstance(values, dict):
                raise ValueError("expected an object")
            if values.get("event") == "step":
                steps.append(_step(values))
            elif values.get("event") == "epoch":
                epochs.append(_epoch(values))
            elif not isinstance(values.get("event"), str):
                raise ValueError("event: expected text")
        except ValueError as error:
            cause = " ".join(str(error).split())[:120]
            raise InvalidFile(f"{path}:{number}: damaged line: {cause}; take it out to see the others") from None
    written = datetime.fromtimestamp(written_s, UTC).isoformat(timespec="seconds")
    return RunLog(tuple(steps), tuple(epochs), written)


def _step(values: Mapping[str, Any]) -> LoggedStep:
    return LoggedStep(
        _count(values, "step"), _count(values, "epoch"), _number(values, "loss"), _number(values, "learning_rate")
    )


def _epoch(values: Mapping[str, Any]) -> LoggedEpoch:
    unreadable = values.get("unreadable", {})
    if not isinstance(unreadable, dict):
        raise ValueError("unreadable: expected an object")
    validated = "top1" in values
    return LoggedEpoch(
        epoch=_count(values, "epoch"),
        step=_count(values, "step"),
        top1=_number(values, "top1") if validated else None,
        top5=_number(values, "top5") if validated else None,
        videos=_count(values, "videos") if "videos" in values else None,
        measures={
            name: float(value) for name, value in values.items() if name not in _NO_MEASURES and _is_number(value)
        },
        lost_samples=_count(values, "lost_samples") if "lost_samples" in values else 0,
        unreadable={path: str(cause) for path, cause in unreadable.items()},
    )


def _number(values: Mapping[str, Any], name: str) -> float:
    value = values.get(name)
    if value is None or not _is_number(value):
        raise ValueError(f"{name}: expected a number, got {repr(value)[:40]}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(values: Mapping[str, Any], name: str) -> int:
    value = _number(values, name)
    if value < 0 or value != int(value):
        raise ValueError(f"{name}: expected a whole number from 0, got {value:g}")
    return int(value)
