"""The trials of a study: asks Optuna for networks, has them scored by as many workers as there are, tells Optuna."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import Trial, TrialState

from hwbench.errors import InvalidFile
from hwbench.spaces.protocols import NetworkSet, NetworkSums
from hwbench.specs import Architecture
from hwbench.studies.candidates import Candidate
from hwbench.studies.evaluations import Assignment, Died, Evaluations, GaveUp, JudgedEvaluations
from hwbench.studies.journal import UNSCORED, Unlocked, close_open_trials, damage_told, finished_trials, load_kept
from hwbench.studies.latencies import WorstLatency
from hwbench.studies.pruning import PREDICTED, Pruning, rungs
from hwbench.studies.settings import Settings
from hwbench.studies.stored_settings import JOURNAL
from hwbench.studies.time_limit import TrialClock

# A network during which so many workers died has no score: a fourth one would go the same way.
DEATHS = 3
_REASON = "failure"


class SearchWatch:
    """What a search tells while it runs; override what is of interest."""

    def other_videos(self, trials: int) -> None:
        """So many trials of the study were scored by other videos than those to come; before ``planned``."""

    def planned(self, networks: int, clock: TrialClock | None = None) -> None:
        """So many networks are to be scored now, as far as the clock has time for them; before any worker starts.

        Not called where none is left.
        """

    def started(self, trials: int, finished: int, best: float) -> None:
        """``trials`` are wanted in all, ``finished`` were done by earlier runs.

        ``best`` is the score of the best of these that is within the budget by now; -inf: none is.
        """

    def expected(self, trials: int) -> None:
        """The time of the study has room for so many trials in all, as far as is known by now."""

    def evaluated(self, candidate: Candidate) -> None:
        """One trial has its score."""

    def gave_up(self, candidate: Candidate, epochs: int) -> None:
        """A network was given up after so many epochs; its score is the one that it had then."""

    def died(self, architecture: str, reason: str, again: bool) -> None:
        """A worker died while it scored a network, which is scored ``again``, or has no score from now on."""

    def unpredicted(self, networks: int) -> None:
        """So many scored networks are left out: the tables lack one of their blocks by now."""

    def exhausted(self, networks: int) -> None:
        """All networks within the budget have been evaluated; no more trials are run."""


@dataclass(frozen=True)
class _Running:
    """A trial whose network is being scored."""

    trial: Trial
    architecture: Architecture
    predicted_s: float

    def candidate(self, score: float) -> Candidate:
        return Candidate(self.architecture.key, score, self.predicted_s, trial=self.trial.number)


@dataclass
class Trials:
    """Runs the trials of one study; one process at a time does.

    Args:
        study: Asked and told; what it has is kept.
        settings: What is searched for.
        feasible: The networks within the budget.
        latencies: What networks are predicted to take.
        evaluations: Scores the networks.
        watch: Hears of every trial.
        pruning: How networks are given up; None: none is.
        known: Scores by architecture that need no evaluation.
        clock: Begins no network that would end too late; None: there is time for all.
    """

    study: Study
    settings: Settings
    feasible: NetworkSet
    latencies: NetworkSums | WorstLatency
    evaluations: Evaluations
    watch: SearchWatch
    pruning: Pruning | None = None
    known: Mapping[str, float] = field(default_factory=dict)
    clock: TrialClock | None = None
    _running: dict[int, _Running] = field(default_factory=dict, init=False)
    _deaths: Counter[str] = field(default_factory=Counter, init=False)
    # Whose worker died: they go first.
    _orphaned: deque[_Running] = field(default_factory=deque, init=False)

    def __post_init__(self) -> None:
        self._scores = {c.architecture: c.score for c in scored_candidates(self.study)}
        self._scores |= dict.fromkeys(_unscored(self.study), math.nan)
        self._given_up = {one.candidate.architecture for one in given_up(self.study)}
        if self.pruning is not None:
            assert isinstance(self.evaluations, JudgedEvaluations)
            self.evaluations.judge = self.pruning.judge(self.study, _TrialsOf(self._running))

    def run(self, total: int) -> None:
        """Goes on until the study has ``total`` trials that need no repeating, or no network is left.

        Where it ends with an exception, the trials under way are closed as failed: they run again with the next one.
        """
        self.watch.started(total, len(finished_trials(self.study)), self._best())
        try:
            while self._ask(total):
                for outcome in self.evaluations.outcomes():
                    running = self._running[outcome.trial]
                    if isinstance(outcome, Died):
                        self._died(running, outcome.reason)
                    elif isinstance(outcome, GaveUp):
                        self._give_up(running)
                    else:
                        self._tell(running, outcome.score)
                self._tell_expected(total)
        except BaseException:
            self._abandon()
            raise
        if self.clock is not None:
            self.watch.expected(len(finished_trials(self.study)))

    def _best(self) -> float:
        """The highest score so far of a network that is within the budget by the tables of today; -inf: of none."""
        scores = {key: score for key, score in self._scores.items() if not math.isnan(score)}
        within = (score for key, score in scores.items() if Architecture.parse(key) in self.feasible)
        return max(within, default=-math.inf)

    def _ask(self, total: int) -> bool:
        """Assigns networks while there is room for them; False when nothing is left to do."""
        while self._orphaned and self.evaluations.free:
            self._assign(self._orphaned.popleft())
        while len(finished_trials(self.study)) + len(self._running) < total:
            if self._is_exhausted():
                if not self._running:
                    self.watch.exhausted(round(self.feasible.count))
                break
            if not self.evaluations.free:
                return True
            if self.clock is not None and not self.clock.has_room():
                self.clock.close()
                break
            self._begin(self.study.ask())
        return bool(self._running)

    def _tell_expected(self, total: int) -> None:
        """Says how many trials there will be, where the clock decides that; while workers start nothing is known."""
        under_way, workers = len(self._running), len(self._running) + self.evaluations.free
        if self.clock is not None and workers and (fit := self.clock.fit(workers)) is not None:
            done = len(finished_trials(self.study))
            self.watch.expected(min(total, done + max(under_way, fit)))

    def _is_exhausted(self) -> bool:
        known = {*self._scores, *self._given_up, *(running.architecture.key for running in self._running.values())}
        if len(known) < self.feasible.count:
            return False
        # newer rows of a table may have put networks of before beyond the budget
        return sum(Architecture.parse(key) in self.feasible for key in known) >= self.feasible.count

    def _begin(self, trial: Trial) -> None:
        architecture = self.feasible.space.sample(trial)
        running = _Running(trial, architecture, self.latencies.total(architecture))
        self._running[trial.number] = running
        if self.pruning is not None:
            trial.set_user_attr(PREDICTED, running.predicted_s)  # by which it competes while it is trained
        if architecture.key in self._scores:
            self._tell(running, self._scores[architecture.key])
        elif architecture.key in self._given_up:
            self._give_up(running)
        elif architecture.key in self.known:
            self._tell(running, self.known[architecture.key])
        else:
            self._assign(running)

    def _assign(self, running: _Running) -> None:
        network = self.feasible.space.network(running.architecture, self.settings.num_classes)
        reports = self.pruning is not None
        self.evaluations.assign(Assignment.of(running.trial.number, network, reports=reports))

    def _died(self, running: _Running, reason: str) -> None:
        """A worker died: its network goes to the next one, unless it seems to be what kills them."""
        key = running.architecture.key
        self._deaths[key] += 1
        again = self._deaths[key] < DEATHS
        self.watch.died(key, reason, again)
        if again:
            self._orphaned.append(running)
        else:
            running.trial.set_user_attr(_REASON, f"{DEATHS} workers died: {reason}")
            self._tell(running, math.nan)

    def _give_up(self, running: _Running) -> None:
        """Closes a trial that was behind; what it reported stays, for samplers that learn from it."""
        trial = running.trial
        self._given_up.add(running.architecture.key)
        self._describe(running)
        self.study.tell(trial, state=TrialState.PRUNED)
        del self._running[trial.number]
        reported = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        epochs, score = max(reported.items(), default=(0, math.nan))
        self.watch.gave_up(running.candidate(score), epochs)

    def _describe(self, running: _Running) -> None:
        running.trial.set_user_attr("architecture", running.architecture.key)
        running.trial.set_user_attr(PREDICTED, running.predicted_s)
        running.trial.set_constraint("latency", running.predicted_s - self.settings.budget_s)

    def _tell(self, running: _Running, score: float) -> None:
        trial, key = running.trial, running.architecture.key
        self._scores[key] = score
        self.watch.evaluated(running.candidate(score))
        self._describe(running)
        if math.isfinite(score):
            trial.set_user_attr("score", score)
            values = [score, running.predicted_s][: len(self.settings.directions)]
            self.study.tell(trial, values, TrialState.COMPLETE)  # without the state Optuna fails what it does not take
        else:
            trial.set_user_attr(UNSCORED, True)
            self.study.tell(trial, state=TrialState.FAIL)
        del self._running[trial.number]

    def _abandon(self) -> None:
        """Closes the trials under way, and the one that is making its choices; where the storage fails, whoever opens
        the study next does it.
        """
        with contextlib.suppress(Exception):
            close_open_trials(self.study)


class _TrialsOf(Mapping[int, Trial]):
    """The trials of what is running, as it changes."""

    def __init__(self, running: Mapping[int, _Running]) -> None:
        self._running = running

    def __getitem__(self, number: int) -> Trial:
        return self._running[number].trial

    def __iter__(self) -> Iterator[int]:
        return iter(self._running)

    def __len__(self) -> int:
        return len(self._running)


@dataclass(frozen=True)
class GivenUp:
    """A network that was given up: with the score that it had, after so many epochs.

    ``beyond``: newer rows of a table put it beyond the budget.
    """

    candidate: Candidate
    epochs: int
    beyond: bool = False

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        one = self.candidate
        values = {"architecture": one.architecture, "score": one.score, "epochs": self.epochs, "trial": one.trial}
        return values | ({"beyond": True} if self.beyond else {})


def given_up(study: Study) -> list[GivenUp]:
    """The trials of a study that were given up after they had a score, in order; a network seen again has none."""
    found = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.PRUNED,)):
        if trial.last_step is not None:
            a, score = trial.user_attrs, trial.intermediate_values[trial.last_step]
            found.append(
                GivenUp(Candidate(a["architecture"], score, a["predicted_s"], trial=trial.number), trial.last_step)
            )
    return found


@dataclass(frozen=True)
class RungScore:
    """The score that the network of a trial had after so many epochs, at which others were given up."""

    architecture: str
    score: float
    epochs: int
    trial: int

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def rung_scores(study: Study) -> list[RungScore]:
    """What all trials of a study had where some were given up: who goes on is among them, and who does not."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return [
        RungScore(trial.user_attrs["architecture"], score, epochs, trial.number)
        for epochs in rungs(trials)
        for trial in trials
        if math.isfinite(score := trial.intermediate_values.get(epochs, math.nan))
    ]


def stored_rung_scores(folder: Path) -> list[RungScore]:
    """``rung_scores`` of the journal of a study, which may be in use.

    Raises:
        InvalidFile: There is none, or it is damaged.
    """
    path = folder / JOURNAL
    if not path.is_file():
        raise InvalidFile(f"{path}: no such file")
    with damage_told(path):
        storage = JournalStorage(JournalFileBackend(str(path), lock_obj=Unlocked()))  # type: ignore[arg-type]
        study = load_kept(storage, folder.name)
        return [] if study is None else rung_scores(study)


def _unscored(study: Study) -> list[str]:
    """The networks that turned out to have no score."""
    closed = study.get_trials(deepcopy=False, states=(TrialState.FAIL,))
    return [trial.user_attrs["architecture"] for trial in closed if UNSCORED in trial.user_attrs]


def scored_candidates(study: Study) -> list[Candidate]:
    """The scored trials of a study, in order."""
    return [
        Candidate(a["architecture"], a["score"], a["predicted_s"], trial=trial.number)
        for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        for a in (trial.user_attrs,)
    ]
