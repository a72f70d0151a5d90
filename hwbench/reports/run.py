"""Gathers everything a report shows about a training run, from the files in its folder; also while the run goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hwbench import lookup
from hwbench.data.video_scores import SCORES, ConfidenceBin
from hwbench.documents import read_json
from hwbench.errors import InvalidFile
from hwbench.reports.profiled import Missing, or_missing
from hwbench.reports.run_log import LoggedEpoch, RunLog, read_log
from hwbench.training import CHECKPOINT, load_checkpoint, load_scores
from hwbench.training.description import RUN, RunDescription, read_description
from hwbench.training.log import METRICS
from hwbench.training.run_files import REPORT
from hwbench.training.run_lock import is_trained_now


@dataclass(frozen=True)
class ClassScore:
    """One class of the validation videos.

    Attributes:
        name: The class.
        accuracy: Share of its videos whose highest score is a right one.
        videos: Number of its videos; None where videos have several classes.
        taken_for: The class that most of the other videos were taken for, and how many were.
    """

    name: str
    accuracy: float
    videos: int | None
    taken_for: tuple[str, int] | None


@dataclass(frozen=True)
class FinalScores:
    """What the trained network is worth on the validation videos.

    Attributes:
        videos: Number of validation videos.
        top1: Share of them.
        top5: Share of them.
        measures: Further measures, by name.
        classes: Names in the order of the confusion matrix.
        worst_first: Classes that have videos.
        confusion: Number of videos by (class, class of the highest score); None where videos have several classes.
        calibration: Videos by their highest score.
    """

    videos: int
    top1: float
    top5: float
    measures: Mapping[str, float]
    classes: tuple[str, ...]
    worst_first: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...] | None
    calibration: tuple[ConfidenceBin, ...] | Missing


@dataclass(frozen=True)
class RunReport:
    """One run.

    ``ended``: its checkpoint is there. ``trained_now``: a process of this machine trains it; a run that is neither was
    interrupted, or is trained by another machine.
    """

    name: str
    folder: Path
    ended: bool
    trained_now: bool
    log: RunLog
    description: RunDescription | Missing
    scores: FinalScores | Missing
    written_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def state(self) -> str:
        """Where it is, in a word or two."""
        if self.ended:
            return "ended"
        return "under way" if self.trained_now else "interrupted"

    @property
    def last_validated(self) -> LoggedEpoch | None:
        """The last epoch that was validated."""
        return self.log.validated[-1] if self.log.validated else None

    @property
    def epochs(self) -> int | None:
        """Epochs of the whole run."""
        return None if isinstance(self.description, Missing) else int(self.description.recipe.get("epochs", 0)) or None

    @property
    def steps(self) -> int | None:
        """Steps of the whole run; None before the end of the first epoch, and where epochs have different lengths."""
        per_epoch = self.log.steps_per_epoch
        varied = not isinstance(self.description, Missing) and self.description.recipe.get("multigrid")
        return None if per_epoch is None or self.epochs is None or varied else per_epoch * self.epochs

    def missing(self) -> tuple[str, ...]:
        """Everything that is missing, in words."""
        parts: list[object] = [self.description, self.scores]
        parts += [] if isinstance(self.scores, Missing) else [self.scores.calibration]
        return tuple(part.reason for part in parts if isinstance(part, Missing))


@dataclass(frozen=True)
class RunsReport:
    """Runs whose curves share figures."""

    runs: tuple[RunReport, ...]

    @property
    def ended(self) -> bool:
        """Whether all have ended."""
        return all(run.ended for run in self.runs)

    def missing(self) -> tuple[str, ...]:
        """Everything that is missing, in words; of several runs with the name of the run."""
        if len(self.runs) == 1:
            return self.runs[0].missing()
        return tuple(f"{run.name}: {reason}" for run in self.runs for reason in run.missing())


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run: it holds a log."""
    return lookup.is_file(folder / METRICS)


def gather_runs(folders: Sequence[Path]) -> RunsReport:
    """Reads all there is about some runs.

    Raises:
        InvalidFile: A folder without a log, or a damaged file.
    """
    unique = [*{folder.resolve(): folder for folder in folders}.values()]
    names = [folder.resolve().name for folder in unique]
    return RunsReport(
        tuple(
            _gather(folder, name if names.count(name) == 1 else str(folder))
            for folder, name in zip(unique, names, strict=True)
        )
    )


def _gather(folder: Path, name: str) -> RunReport:
    # Asked first: what ends in between is shown as under way, with all its lines, and not the other way round.
    trained_now = is_trained_now(folder)
    ended = (folder / CHECKPOINT).is_file()
    log = read_log(folder)
    return RunReport(
        name=name,
        folder=folder,
        ended=ended,
        trained_now=trained_now and not ended,
        log=log,
        description=or_missing(lambda: _description(folder, ended)),
        scores=_scores(folder, ended),
    )


def _description(folder: Path, ended: bool) -> RunDescription:
    """What the run is; a run that was begun before there was ``run.json`` says it in its checkpoint."""
    if (folder / RUN).exists() or not ended:
        return read_description(folder)
    checkpoint, _ = load_checkpoint(folder / CHECKPOINT)
    return RunDescription(
        network=checkpoint.network.name,
        input=checkpoint.network.input.key,
        data=checkpoint.source,
        classes=len(checkpoint.classes),
        videos={},
        recipe=checkpoint.recipe.to_plain(),
        begins_with={},
    )


def _scores(folder: Path, ended: bool) -> FinalScores | Missing:
    path = folder / REPORT
    if not path.is_file():
        if ended:
            return Missing(f"{path} is not there: accuracy by class, confusion and calibration are not shown")
        return Missing(f"{path} comes at the end of the run: accuracy by class, confusion and calibration wait for it")
    try:
        values = read_json(path.read_bytes())
    except json.JSONDecodeError as error:
        raise InvalidFile(f"{path}:{error.lineno}: damaged: {error.msg}; move it away") from None
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: damaged: {error}; move it away") from None
    try:
        return _final(values, folder / SCORES)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidFile(
            f"{path}: damaged: {error!r:.100}; expected what hwbench train writes; move it away"
        ) from None


def _final(values: Mapping[str, Any], kept: Path) -> FinalScores:
    classes = tuple(str(name) for name in values["classes"])
    confusion = None
    if values["confusion"] is not None:
        confusion = tuple(tuple(int(count) for count in row) for row in values["confusion"])
        if any(len(row) != len(classes) for row in (confusion, *confusion)):
            raise ValueError("confusion: expected a row and a column for each class")
    accuracies = {str(name): float(share) for name, share in values["class_accuracy"].items()}
    scored = (_class_score(name, share, classes, confusion) for name, share in accuracies.items())
    names = ("class_top1", "calibration_error", "mean_ap")
    return FinalScores(
        videos=int(values["videos"]),
        top1=float(values["top1"]),
        top5=float(values["top5"]),
        measures={name: float(values[name]) for name in names if name in values},
        classes=classes,
        worst_first=tuple(sorted(scored, key=lambda one: (one.accuracy, -(one.videos or 0), one.name))),
        confusion=confusion,
        calibration=or_missing(lambda: load_scores(kept).calibration()),
    )


def _class_score(
    name: str, accuracy: float, classes: tuple[str, ...], confusion: tuple[tuple[int, ...], ...] | None
) -> ClassScore:
    if confusion is None:
        return ClassScore(name, accuracy, None, None)
    index = classes.index(name)
    others = [(count, -i) for i, count in enumerate(confusion[index]) if count and i != index]
    most = max(others, default=None)
    taken_for = None if most is None else (classes[-most[1]], most[0])
    return ClassScore(name, accuracy, sum(confusion[index]), taken_for)
