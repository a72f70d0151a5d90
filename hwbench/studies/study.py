"""Searches a space within a latency budget: Optuna over feasible networks, then the best ones on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import TrialState

from hwbench.registry import blaming
from hwbench.spaces.protocols import NetworkSet, NetworkSums
from hwbench.spaces.union import sums_over
from hwbench.specs import Architecture, Network, Precision, Workload
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.studies.candidates import BySpace, Candidate, FurtherLatency, pareto
from hwbench.studies.confirmation import Confirmation, DeviceBudget, MeasureNetworks, confirm, each_once
from hwbench.studies.course import (
    QUEUED,
    SearchCourse,
    keep_startup,
    kept_startup,
    note_draws,
    note_earlier_draws,
    note_trials,
    startup_draws,
)
from hwbench.studies.earlier import EarlierTrainings
from hwbench.studies.evaluations import EvaluatorSetup, InProcess, ReferenceNetworks, WorkerPlan
from hwbench.studies.evaluators import (
    AdditiveEvaluator,
    ClipReader,
    Context,
    Evaluator,
    Losses,
    SummedEvaluator,
    TestedTrainer,
    Trainer,
    block_scores,
    evaluators,
    scoring_of,
)
from hwbench.studies.evaluators import get as get_evaluator
from hwbench.studies.first_networks import enqueue_first, first_networks
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.front import FrontPoint, FrontSampler
from hwbench.studies.journal import finished_trials, open_study
from hwbench.studies.latencies import WorstLatency
from hwbench.studies.left_out import LeftOut
from hwbench.studies.over_budget import over_budget
from hwbench.studies.pruning import Pruning
from hwbench.studies.race import Race
from hwbench.studies.row_cuts import CutRows
from hwbench.studies.sampler import Base, FeasibleSampler, samplers
from hwbench.studies.score_data import check_data, note_videos
from hwbench.studies.search_result import SearchResult
from hwbench.studies.settings import Settings, check_name
from hwbench.studies.space_shares import SpaceShare, space_shares
from hwbench.studies.storage import StudyStorage
from hwbench.studies.stored_settings import SETTINGS
from hwbench.studies.time_limit import TimeLimit, TrialClock
from hwbench.studies.trials import GivenUp, SearchWatch, Trials, given_up, rung_scores, scored_candidates
from hwbench.workspace import Workspace, write_text

# What a study keeps of ``ReferenceNetworks``.
_REFERENCE = "reference"


@dataclass(frozen=True)
class Exploration:
    """What the trials of a study leave to measure.

    Attributes:
        first: The networks that are measured first, each once.
        lost: How many networks were scored that are beyond the (largest) budget by the tables of today.
    """

    first: tuple[Candidate, ...]
    lost: int


@dataclass
class Search:
    """One study, ready to run.

    Args:
        workspace: Where the study is kept.
        name: The study's name.
        settings: What is searched for.
        feasible: The networks within the budget of the settings.
        smaller: Those within each of its smaller budgets, ascending.
        latencies: What networks are predicted to take; None: the sums of ``feasible``.
        further: Further devices; ``feasible`` is within their budgets, too.
        sizes: Bytes that have a budget, by the key that is printed (``hwbench.studies.latencies.sizes``).
        workers: Where networks are scored; None: in this process.
        race: Trains the best networks longer and chooses among them; None: the score chooses.
        storage: Where trials are kept; None: in the folder of the study.
        pruning: How networks are given up that are behind; None: none is.
        time_limit: Ends the trials before their number is reached; None: nothing does.
        startup: Trials before the sampler takes over, uniform draws but for networks that are tried first; None: as
            many as the study has kept, or by its trials.
        spread: Factor of the prediction interval, by space where there are several.
        measure: Measures the candidates on the device.
        trainer: Short training, for evaluators that train.
        losses: The training losses of the same.
        clips: Clips of the data, for evaluators that look at some.
        inherited: Top-1 with the weights of a supernet.
        fitted: What trainings of other networks say.
        tested: Short training with a test after each epoch.
        earlier: Trainings of other studies that this one begins from.
        watch: Hears of every trial.
        occasion: Standard deviation of what all networks share today, relative; by space where there are several.
        replaces: Another network is scored for each one that newer rows of a table put beyond the budget, and the
            optima of today are scored; at most as many as the trials.
        channels: Of the clips that networks are measured with; predictions are those of pictures.
        named: Models of the user's own, label of the space -> as it was named; for the result.
        learned: What a model of the trainings that the study begins from is worth; for the result.
        kept: Texts that its folder keeps, by the names of their files; empty ones are not kept.
        videos: Digest of the videos that networks are scored by; None: by none.
    """

    workspace: Workspace
    name: str
    settings: Settings
    feasible: NetworkSet
    spread: BySpace
    measure: MeasureNetworks
    trainer: Trainer | None = None
    watch: SearchWatch = field(default_factory=SearchWatch)
    latencies: NetworkSums | None = None
    losses: Losses | None = None
    clips: ClipReader | None = None
    inherited: Callable[[Network], float] | None = None
    fitted: FittedScores | None = None
    tested: TestedTrainer | None = None
    earlier: EarlierTrainings | None = None
    further: Sequence[DeviceBudget] = ()
    sizes: Mapping[str, Callable[[Architecture], float]] = field(default_factory=dict)
    workers: WorkerPlan | None = None
    storage: StudyStorage | None = None
    smaller: Sequence[NetworkSet] = ()
    race: Race | None = None
    pruning: Pruning | None = None
    time_limit: TimeLimit | None = None
    startup: int | None = None
    occasion: BySpace = 0.0
    replaces: bool = False
    channels: int = CLIP_CHANNELS
    named: Mapping[str, str] = field(default_factory=dict)
    learned: LeftOut | None = None
    kept: Mapping[str, str] = field(default_factory=dict)
    videos: Callable[[], str] | None = None

    def __post_init__(self) -> None:
        places = {other.device: other.budget_s for other in self.further}
        further = {name: limit / 1e3 for name, limit in list(self.settings.budgets_ms.items())[1:]}
        if places != further:
            raise ValueError(f"further devices {places}, settings of {further}")
        if self.feasible.budget_s != self.settings.budget_s:
            raise ValueError(f"networks within {self.feasible.budget_s} s, settings of {self.settings.budget_s} s")
        if [one.budget_s for one in self.smaller] != [limit / 1e3 for limit in self.settings.smaller_budgets_ms]:
            raise ValueError(f"{len(self.smaller)} smaller sets, settings of {self.settings.smaller_budgets_ms}")

    def run(self, trials: int, measure: int, cut_rows: CutRows | None = None) -> SearchResult:
        """Goes on until the study has ``trials`` scored networks, then measures the best ``measure`` of them.

        With a ``time_limit`` the trials end earlier where no time is left for another one.
        With a race as many as begin it are measured within the budget, if there are, before they are trained.

        Args:
            trials: Networks to score.
            measure: The best of them to measure.
            cut_rows: Filled rows that were measured for these networks, for the result.

        Raises:
            InvalidValue: The study exists with other settings, or is in use; or further networks would be scored with
                data that it does not keep.
            OverBudget: None of the candidates turned out to be within the budget.
            DeviceError: The device could not be reached for measuring; the trials are kept.
        """
        folder = self.workspace.studies / self.name
        with self._opened(trials) as study:
            scored = [self._with_predictions(c) for c in scored_candidates(study)]
            if lacking := sum(not one.is_predicted for one in scored):
                self.watch.unpredicted(lacking)
            result = replace(
                self._confirm(scored, len(finished_trials(study)), measure),
                settings=self.settings.as_kept(study.user_attrs[SETTINGS]),
                course=SearchCourse.of(study, measure, self.earlier.scores if self.earlier else ()),
                given_up=tuple(self._given_up(study)),
                rungs=tuple(rung_scores(study)),
                cut_rows=cut_rows,
                named=self.named,
                learned=self.learned,
            )
            result.write(folder)
        return result

    def explore(self, trials: int, measure: int) -> Exploration:
        """The trials of ``run``, and what it would measure first; nothing is measured.

        Raises:
            InvalidValue: As ``run``.
        """
        with self._opened(trials) as study:
            scored = [self._with_predictions(c) for c in scored_candidates(study)]
        history = [one for one in scored if one.is_predicted]
        first = [one.first(candidates) for one, candidates in self._confirmations(history, measure, {})]
        return Exploration(tuple(each_once(first)), len(self._lost(scored)))

    @contextmanager
    def _opened(self, trials: int) -> Iterator[Study]:
        """The study after its trials."""
        check_name(self.name)
        make = get_evaluator(self.settings.evaluator)
        self.settings = replace(self.settings, scoring=scoring_of(make))
        base, num_choices = samplers.get(self.settings.sampler), len(self.feasible.space.choices)
        folder = self.workspace.studies / self.name
        keep = partial(self._keep_texts, folder)
        with open_study(folder, self.settings, None, num_choices, self.storage, self._fits, keep) as study:
            startup = self._startup(study, trials)
            study.sampler = self._sampler(base, startup)
            note_earlier_draws(study)
            self._optimize(study, trials)
            note_draws(study)
            note_trials(study, trials)
            yield study

    def _fits(self, choices: dict[str, Any]) -> bool:
        """Whether a network is within the budget by the tables of today.

        Where a trial is queued with some choices, the sampler makes the others; none runs with a value that its choice
        does not have.
        """
        values = self.feasible.space.values
        if any(value not in values[name] for name, value in choices.items() if name in values):
            return False
        network = self._queued_network(choices)
        return network is None or network in self.feasible

    def _queued_network(self, choices: Mapping[str, Any]) -> Architecture | None:
        """The network of what a trial is queued with; None where that leaves choices to the sampler."""
        values = self.feasible.space.values
        if values.keys() - choices.keys():
            return None
        return self.feasible.space.of_params({name: choices[name] for name in values})

    def _keep_texts(self, folder: Path) -> None:
        """Keeps what stands beside the settings; a file that was lost is written again."""
        for path, text in ((folder / name, text) for name, text in self.kept.items() if text):
            if not (path.is_file() and path.read_bytes() == text.encode()):
                write_text(path, text)

    def _startup(self, study: Study, trials: int) -> int:
        """Uniform draws before the sampler takes over; a study keeps them where its trials do not say it."""
        startup, kept = self.startup, kept_startup(study)
        if startup is None:
            startup = startup_draws(trials, self.earlier) if kept is None else kept
        if startup != kept and (self.startup is not None or self.time_limit is not None):
            keep_startup(study, startup)
        return startup

    def _sampler(self, base: Base, startup: int) -> BaseSampler:
        known = self.earlier.observations if self.earlier else ()
        if self.smaller:
            return FrontSampler(self._sets, base, seed=self.settings.seed, startup=startup, known=known)
        return FeasibleSampler(self.feasible, base, seed=self.settings.seed, startup=startup, known=known)

    @property
    def _sets(self) -> list[NetworkSet]:
        """The networks within each budget, ascending."""
        return [*self.smaller, self.feasible]

    def _optimize(self, study: Study, trials: int) -> None:
        make = get_evaluator(self.settings.evaluator)
        context = Context(
            self.settings.seed,
            self._reference(study),
            self.trainer,
            self.losses,
            self.clips,
            self.inherited,
            self.fitted,
            self.tested,
        )
        setup = EvaluatorSetup(make, context)
        sums = self._score_sums(make, context)
        enqueue_first(study, trials, self._sets, self.settings, sums, self.earlier)
        self._run_trials(study, setup, trials)
        if self.replaces:
            scored = scored_candidates(study)
            known, done = {c.architecture for c in scored}, len(finished_trials(study))
            lost = self._lost([self._with_predictions(c) for c in scored])
            optima = [] if sums is None else first_networks(self._sets, self.settings, sums)
            fresh = [one for one in optima if one.key not in known][: 2 * trials - done]
            self._enqueue(study, fresh)
            self._run_trials(study, setup, min(max(trials + len(lost), done + len(fresh)), 2 * trials))

    def _enqueue(self, study: Study, architectures: Iterable[Architecture]) -> None:
        for architecture in architectures:
            study.enqueue_trial(self.feasible.space.params(architecture))

    def _queued(self, study: Study, trials: int) -> list[Architecture]:
        """The networks of the next trials that are queued with all their choices, in order."""
        waiting = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))[: max(trials, 0)]
        networks = [self._queued_network(trial.system_attrs.get(QUEUED, {})) for trial in waiting]
        return [network for network in networks if network is not None]

    def _run_trials(self, study: Study, setup: EvaluatorSetup, total: int) -> None:
        done, known = len(finished_trials(study)), self.earlier.scores if self.earlier else {}
        clock = TrialClock(self.time_limit, study, known) if self.time_limit else None
        if clock is not None and not clock.has_room():
            total = min(total, done)  # no worker starts for nothing
        left = total - done
        fresh = left - sum(one.key in known for one in self._queued(study, left))
        fresh = min(fresh, round(self.feasible.count) - self._seen(study))
        if fresh > 0:
            check_data(study, self.settings, self.name, done)
            if self.videos is not None and (others := note_videos(study, self.videos(), done)):
                self.watch.other_videos(others)
            self.watch.planned(fresh, clock)
        with self.workers.open(setup, left) if self.workers and left > 0 else InProcess(setup) as evaluations:
            Trials(
                study,
                self.settings,
                self.feasible,
                self._latencies,
                evaluations,
                self.watch,
                self.pruning,
                known,
                clock,
            ).run(total)

    def _seen(self, study: Study) -> int:
        """How many of the networks within the budget have been tried."""
        tried = {trial.user_attrs["architecture"] for trial in finished_trials(study)}
        return sum(Architecture.parse(key) in self.feasible for key in tried)

    def _lost(self, history: Iterable[Candidate]) -> set[str]:
        """The networks that were scored and are beyond the (largest) budget, or a limit of bytes, as of today."""
        limit_s = self.settings.budget_ms / 1e3
        return {c.architecture for c in history if self._worst(c) > limit_s or not self.settings.allows(c.sizes)}

    def _given_up(self, study: Study) -> list[GivenUp]:
        """What a pruner ended, as of today."""
        several = given_up(study)
        lost = self._lost([self._with_predictions(one.candidate) for one in several])
        return [replace(one, beyond=one.candidate.architecture in lost) for one in several]

    def _score_sums(self, make: type[Evaluator], context: Context) -> NetworkSums | None:
        """The scores of all networks, where they are sums; None where they are not."""
        if not (hasattr(make, "block_score") or hasattr(make, "score_sums")):
            return None
        with blaming(f"evaluator {make.name!r}"), evaluators.blaming(make):
            evaluator = make(context)
            if isinstance(evaluator, SummedEvaluator):
                return evaluator.score_sums()
            assert isinstance(evaluator, AdditiveEvaluator)
            return sums_over(self.feasible.space, block_scores(evaluator), num_classes=self.settings.num_classes)

    def _confirm(self, scored: Sequence[Candidate], trials: int, measure: int) -> SearchResult:
        history = [one for one in scored if one.is_predicted]
        measured: dict[str, Candidate] = {}
        wanted = self._confirmations(history, measure, measured)
        confirm(wanted)
        if not wanted[-1][0].within():
            raise over_budget(self.name, self.settings, list(measured.values()), scored)
        points = tuple(
            self._point(limit_ms, one, confirmation.within(), space_shares(one, candidates, confirmation.within()))
            for limit_ms, one, (confirmation, candidates) in zip(
                self.settings.front_ms, self._sets, wanted, strict=True
            )
        )
        best = points[-1].best
        assert best is not None  # something is within the largest budget
        known = wanted[-1][0].with_chances(_known(*wanted[-1]))
        return SearchResult(
            study=self.name,
            settings=self.settings,
            feasible=self.feasible.count,
            trials=trials,
            best=best,
            pareto=tuple(pareto(known, self._worst)),
            measured=tuple(measured.values()),
            history=tuple(measured.get(c.architecture, c) for c in history),
            spread=self.spread,
            unpredicted=len(scored) - len(history),
            front=points if len(points) > 1 else (),
            race=points[0].race if len(points) == 1 else None,
            spaces=points[-1].spaces,
        )

    def _confirmations(
        self, history: Sequence[Candidate], measure: int, measured: dict[str, Candidate]
    ) -> list[tuple[Confirmation, list[Candidate]]]:
        """What measures for each budget, ascending, and among which networks."""
        distinct = list({c.architecture: c for c in history if self.settings.allows(c.sizes)}.values())
        limits = [limit / 1e3 for limit in self.settings.front_ms]
        found = []
        for limit in limits:
            within = [c for c in distinct if self._worst(c) <= limit]
            beyond = [c for c in distinct if self._worst(c) > limit]
            found.append((self._confirmation(limit, max(measure, 1), measured, beyond), within))
        return found

    def _point(
        self, budget_ms: float, feasible: NetworkSet, within: Sequence[Candidate], spaces: tuple[SpaceShare, ...]
    ) -> FrontPoint:
        """The answer for a budget, from what was measured within it, highest score first."""
        if self.race is None or not within:
            return FrontPoint(budget_ms, feasible.count, next(iter(within), None), spaces=spaces)
        finalists = {candidate.architecture: candidate for candidate in within[: self.race.finalists]}
        result = self.race.run(list(finalists))
        return FrontPoint(budget_ms, feasible.count, finalists.get(result.winner or "", within[0]), result, spaces)

    def _confirmation(
        self, budget_s: float, count: int, measured: dict[str, Candidate], beyond: Sequence[Candidate]
    ) -> Confirmation:
        finalists = 1 if self.race is None else self.race.finalists
        return Confirmation(
            self.measure,
            self.measured_workload,
            budget_s,
            self.spread,
            max(count, finalists),
            emulated=self.settings.emulated,
            further=self.further,
            measured=measured,
            wanted=finalists,
            occasion=self.occasion,
            beyond=beyond,
        )

    @cached_property
    def _latencies(self) -> NetworkSums | WorstLatency:
        """What is the latency of a network: on several devices, that with the least room."""
        first = self.latencies or self.feasible.sums
        if not self.further:
            return first
        limits = [limit / 1e3 for limit in self.settings.budgets_ms.values()]
        return WorstLatency([first, *(other.latencies for other in self.further)], limits)

    def _worst(self, candidate: Candidate) -> float:
        """The predicted latency with the least room, in seconds of the first budget."""
        if not self.further:
            return candidate.predicted_s
        limits, times = self.settings.budgets_ms, candidate.predicted(self.settings.device)
        return max(times[device] / limits[device] for device in limits) * self.settings.budget_ms

    def _with_predictions(self, candidate: Candidate) -> Candidate:
        """By the tables of today, which may be newer than the trial."""
        architecture = Architecture.parse(candidate.architecture)
        return replace(
            candidate,
            predicted_s=(self.latencies or self.feasible.sums).total(architecture),
            further=tuple(FurtherLatency(p.device, p.latencies.total(architecture)) for p in self.further),
            sizes=tuple((name, round(size(architecture))) for name, size in self.sizes.items()),
        )

    def _reference(self, study: Study) -> ReferenceNetworks:
        """The networks that scores are relative to, where these are: those of the beginning of the study."""
        drawn = ReferenceNetworks(self.feasible, self.settings.seed, self.settings.num_classes)
        kept = tuple(study.user_attrs.get(_REFERENCE, ()))
        if not kept:
            kept = drawn.keys()
            study.set_user_attr(_REFERENCE, list(kept))
        return replace(drawn, kept=kept)

    def _network(self, architecture: Architecture) -> Network:
        return self.feasible.space.network(architecture, self.settings.num_classes)

    def workload(self, key: str) -> Workload:
        """What is predicted of an architecture, by its key."""
        return self._workload(self._network(Architecture.parse(key)))

    def measured_workload(self, key: str) -> Workload:
        """What is measured of an architecture, by its key: with the channels that it is trained for."""
        return self._workload(self._network(Architecture.parse(key)).with_channels(self.channels))

    def _workload(self, network: Network) -> Workload:
        return network.workload(Precision.parse(self.settings.precision), self.settings.variant)


def _known(confirmation: Confirmation, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The networks that are predicted within a budget, and those that were measured within it all the same."""
    return each_once([candidates, confirmation.within()])
