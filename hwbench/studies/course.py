"""How long the trials of a study took, and which of them are uniform draws: what a search is held against."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optuna.study import Study

from hwbench.studies.journal import DRAW, finished_trials
from hwbench.studies.time_limit import evaluated_trials, spent_s, trial_s, whole_s

if TYPE_CHECKING:
    from hwbench.studies.earlier import EarlierTrainings

_DRAWS = "draws"
_MEASURE = "measure"
_STARTUP = "startup"
_CLOCK = "clock_s"
_TRIALS = "trials"
_WHOLE = "whole_s"
# Trials before the sampler takes over, unless the study is shorter than twice that.
_DRAWS_BEFORE = 12
# Earlier versions kept, of each run that began with draws, the trials before it, and up to how many it drew.
_DRAWN = "drawn"
# Optuna's mark of a trial whose choices were queued.
QUEUED = "fixed_params"


@dataclass(frozen=True)
class SearchCourse:
    """Of the finished trials of a study.

    Attributes:
        seconds: Worker time: the sum of the wall times of the trials, several of which may run at a time. A trial that
            the clock was set back in counts as none.
        draws: Numbers of the trials that were drawn uniformly from the networks within the budget.
        measure: How many of the best networks were asked to be measured for each budget; None: not stored.
        startup: Trials before the sampler takes over, uniform draws but for networks that are tried first, where the
            number of trials does not say it; else None.
        clock_s: Wall time of the trials: seconds in which at least one of them ran; None: not stored.
        trials: How many were asked for, by the command that asked for most: those that took the place of networks that
            newer rows put beyond the budget come on top; None: not stored.
        whole_s: Mean wall time of a trial whose network the study itself scored, to the end; None: none, or not stored.
    """

    seconds: float
    draws: tuple[int, ...] = ()
    measure: int | None = None
    startup: int | None = None
    clock_s: float | None = None
    trials: int | None = None
    whole_s: float | None = None

    @classmethod
    def of(cls, study: Study, measure: int | None = None, known: Container[str] = ()) -> SearchCourse:
        """Of a study as it is stored, of whose best networks ``measure`` are to be measured.

        Scores of ``known`` architectures were there before: their trials took no time.
        """
        trials = finished_trials(study)
        seconds = math.fsum(trial_s(trial) or 0.0 for trial in trials)
        draws, clock_s = tuple(study.user_attrs.get(_DRAWS, ())), round(spent_s(trials), 3)
        asked, each_s = study.user_attrs.get(_TRIALS), whole_s(evaluated_trials(study, known))
        return cls(round(seconds, 3), draws, measure, kept_startup(study), clock_s, asked, each_s)

    def to_json(self) -> dict[str, Any]:
        """``course`` of a stored result."""
        values = {"seconds": self.seconds, _DRAWS: list(self.draws)}
        further = {
            _MEASURE: self.measure,
            _STARTUP: self.startup,
            _CLOCK: self.clock_s,
            _TRIALS: self.trials,
            _WHOLE: self.whole_s,
        }
        return values | {key: number for key, number in further.items() if number is not None}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SearchCourse:
        """What ``to_json`` wrote; raises KeyError, TypeError or ValueError where it is none."""
        counts = (None if values.get(key) is None else int(values[key]) for key in (_MEASURE, _STARTUP, _TRIALS))
        measure, startup, trials = counts
        clock_s, each_s = (None if values.get(key) is None else float(values[key]) for key in (_CLOCK, _WHOLE))
        draws = tuple(int(number) for number in values[_DRAWS])
        return cls(float(values["seconds"]), draws, measure, startup, clock_s, trials, each_s)


def startup_draws(trials: int, earlier: EarlierTrainings | None = None) -> int:
    """Trials before the sampler takes over in a study of so many trials: fewer where it begins from others.

    They are uniform draws, but for the networks that the study tries first.

    Where there are trainings on other data, half of them show how far these hold (experiment 036).
    """
    draws = min(_DRAWS_BEFORE, trials // 2)
    if earlier is None:
        return draws
    return max(0, (draws // 2 if earlier.elsewhere else draws) - earlier.networks)


def keep_startup(study: Study, startup: int) -> None:
    """Keeps with a study how many trials there are before its sampler takes over: it goes on with as many."""
    study.set_user_attr(_STARTUP, startup)


def kept_startup(study: Study) -> int | None:
    """What ``keep_startup`` kept; None: the number of trials says it."""
    kept = study.user_attrs.get(_STARTUP)
    return None if kept is None else int(kept)


def note_earlier_draws(study: Study) -> None:
    """Notes the draws of earlier versions, which told them by their places among the finished trials."""
    if runs := study.user_attrs.get(_DRAWN):
        trials = sorted(finished_trials(study), key=lambda trial: trial.number)
        places = {place for first, end in runs for place in range(first, end)}
        _keep_draws(study, {t.number for n, t in enumerate(trials) if n in places and QUEUED not in t.system_attrs})
        study.set_user_attr(_DRAWN, [])  # from now on the sampler marks them


def note_draws(study: Study) -> None:
    """Keeps with a study which of its trials were draws, as the sampler marked them."""
    _keep_draws(study, {trial.number for trial in finished_trials(study) if DRAW in trial.system_attrs})


def _keep_draws(study: Study, drawn: set[int]) -> None:
    known = set(study.user_attrs.get(_DRAWS, ()))
    if not drawn <= known:
        study.set_user_attr(_DRAWS, sorted(drawn | known))


def note_trials(study: Study, trials: int) -> None:
    """Keeps with a study how many trials it was asked for, as far as it has them; the most of several commands."""
    asked, kept = min(trials, len(finished_trials(study))), study.user_attrs.get(_TRIALS, 0)
    if asked > kept:
        study.set_user_attr(_TRIALS, asked)
