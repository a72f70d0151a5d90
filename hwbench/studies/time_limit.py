"""Ends the trials of a study in time: no network is begun that would leave no time for the race of the best ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from hwbench.studies.dashboard import opened_for_reading
from hwbench.studies.journal import finished_trials, load_kept
from hwbench.studies.storage import StudyStorage

# A trial takes at least this: clocks are coarse.
_LEAST_S = 1e-3
# What a study keeps: the longest limit that has ended its trials.
_USED_UP = "used_up_s"


@dataclass(frozen=True)
class TimeLimit:
    """Wall time for the trials of a study and for the race that follows, over all runs of the study.

    Attributes:
        seconds: For all of it. The time of trials counts that have ended: what an interruption lost is free.
        race_trials: The race takes at most as long as so many trials one after the other.
    """

    seconds: float
    race_trials: float = 0.0


class TrialClock:
    """How much of its time a study has left while a run of its trials goes on.

    Args:
        limit: Of the study.
        study: With the trials of earlier runs.
        known: Architectures whose scores were there before; their trials say nothing of how long one takes.
    """

    def __init__(self, limit: TimeLimit, study: Study, known: Container[str] = ()) -> None:
        self._limit, self._study, self._known = limit, study, known
        self._before_s, self._since = spent_s(finished_trials(study)), time.monotonic()

    @property
    def spent_s(self) -> float:
        """Seconds that are gone, those of earlier runs among them."""
        return self._before_s + time.monotonic() - self._since

    @property
    def left_s(self) -> float:
        """Seconds for trials and race."""
        return self._limit.seconds - self.spent_s

    def has_room(self) -> bool:
        """Whether a network that is begun now ends in time, the race after it; as long as none has ended, it does."""
        if self._study.user_attrs.get(_USED_UP, 0.0) >= self._limit.seconds:
            return False
        trials = evaluated_trials(self._study, self._known)
        return not trials or self.left_s >= _mean_s(trials) + self._race_s(trials)

    def close(self) -> None:
        """Keeps with the study that its time is used up: the same command adds no trial, one with more time does."""
        self._study.set_user_attr(_USED_UP, self._limit.seconds)

    def fit(self, workers: int) -> int | None:
        """How many more trials fit, where so many workers go on as until now; None: no trial tells yet."""
        trials = evaluated_trials(self._study, self._known)
        if not trials:
            return None
        each_s, left_s = _mean_s(trials), self.left_s - self._race_s(trials)
        return 0 if left_s < each_s else int(left_s / max(each_s, _LEAST_S) * workers)

    def _race_s(self, trials: list[FrozenTrial]) -> float:
        each_s = whole_s(trials)
        return self._limit.race_trials * (_mean_s(trials) if each_s is None else each_s)


def evaluated_trials(study: Study, known: Container[str] = ()) -> list[FrozenTrial]:
    """The finished trials that say how long one takes.

    Their network was scored by them: not before (``known``), and not by an earlier trial. The clock was not set back
    meanwhile.
    """
    seen, found = set[str](), []
    for trial in finished_trials(study):
        key = trial.user_attrs.get("architecture", "")
        if key not in seen and key not in known and trial_s(trial) is not None:
            found.append(trial)
        seen.add(key)
    return found


def whole_s(trials: list[FrozenTrial]) -> float | None:
    """Mean wall time in seconds of those of ``evaluated_trials`` that ran to their end; None: none did."""
    whole = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    return _mean_s(whole) if whole else None


def is_timed(folder: Path, storage: StudyStorage | None, known: Container[str] = ()) -> bool:
    """Whether a study that was begun has a trial that says how long one takes; nothing is written.

    Args:
        folder: Of the study.
        storage: Keeps the trials; None: a journal in the folder.
        known: Architectures whose scores were there before.

    Raises:
        InvalidFile: The journal is damaged, or the storage has lost the study.
        WorkspaceError: The storage cannot be reached.
    """
    with opened_for_reading(folder, storage) as opened:
        study = load_kept(opened, folder.name)
        return study is not None and bool(evaluated_trials(study, known))


def _mean_s(trials: list[FrozenTrial]) -> float:
    return statistics.fmean(trial_s(trial) or 0.0 for trial in trials)


def trial_s(trial: FrozenTrial) -> float | None:
    """Wall time of a trial in seconds; None: it has not ended, or by the clock it ended before it began.

    Optuna keeps local times: the clock is set back by hand, by a time server, and at the end of summer time.
    """
    if trial.datetime_start is None or trial.datetime_complete is None:
        return None
    seconds = trial.datetime_complete.timestamp() - trial.datetime_start.timestamp()
    return None if seconds < 0 else seconds


def spent_s(trials: list[FrozenTrial]) -> float:
    """Seconds in which at least one of some ended trials was under way."""
    spans = sorted(
        (trial.datetime_start.timestamp(), trial.datetime_complete.timestamp())
        for trial in trials
        if trial.datetime_start is not None and trial.datetime_complete is not None
    )
    spent, until = 0.0, float("-inf")
    for start, end in spans:
        spent += max(0.0, end - max(start, until))
        until = max(until, end)
    return spent
