"""Searches a space within a latency budget: Optuna over feasible networks, then the best ones on the device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from optuna.study import Study

from hwbench.errors import OverBudget
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.resolve import RESULT
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture, Network, Precision, Workload
from hwbench.studies.candidates import Candidate, Confirmation, MeasureNetworks, candidates_frame, pareto
from hwbench.studies.evaluations import EvaluatorSetup, InProcess, ReferenceNetworks, WorkerPlan
from hwbench.studies.evaluators import AdditiveEvaluator, Context, Trainer
from hwbench.studies.evaluators import get as get_evaluator
from hwbench.studies.journal import finished_trials, open_study
from hwbench.studies.sampler import FeasibleSampler, samplers
from hwbench.studies.settings import Settings, check_name
from hwbench.studies.storage import StudyStorage
from hwbench.studies.trials import SearchWatch, Trials, scored_candidates
from hwbench.units import format_duration
from hwbench.workspace import Workspace, write_text

if TYPE_CHECKING:
    import pandas

# Shares of the budget whose exact optima are tried first when the score is additive: the ends of a front.
_FRONT = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
# Uniform feasible draws before the sampler takes over, unless the study is shorter than twice that.
_STARTUP = 12


@dataclass(frozen=True)
class SearchResult:
    """What a search found: ``best`` was measured within the budget. ``spread``: factor of the prediction interval."""

    study: str
    settings: Settings
    feasible: float
    trials: int
    best: Candidate
    pareto: tuple[Candidate, ...]
    measured: tuple[Candidate, ...]
    history: tuple[Candidate, ...]
    spread: float

    @property
    def emulated(self) -> bool:
        """Whether the latencies were taken under emulation."""
        return self.settings.emulated

    def to_json(self) -> dict[str, object]:
        """The keys that ``hwbench search --json`` prints."""
        device = self.settings.device
        return {
            "study": self.study,
            "space": self.settings.space,
            "budget_ms": self.settings.budget_ms,
            "trials": self.trials,
            "feasible": int(self.feasible) if self.feasible < 2**53 else self.feasible,
            "best": self.best.to_json(device),
            "pareto": [candidate.to_json(device) for candidate in self.pareto],
        } | ({"emulated": True} if self.emulated else {})

    def to_frame(self) -> pandas.DataFrame:
        """One row for each scored trial, in order; the columns are those of ``candidates_frame``."""
        return candidates_frame(self.history, self.spread)

    def write(self, folder: Path) -> None:
        """Stores ``result.json``: the printed keys, the settings, every trial and every measured candidate."""
        device = self.settings.device
        stored = self.to_json() | {
            "settings": self.settings.as_dict(),
            "measured": [c.to_json(device) | {"failure": c.failure} for c in self.measured],
            "history": [c.to_json(device) | {"trial": c.trial} for c in self.history],
        }
        write_text(folder / RESULT, json.dumps(stored, indent=2, allow_nan=False) + "\n")


@dataclass
class Search:
    """One study, ready to run.

    Args:
        workspace: Where the study is kept.
        name: The study's name.
        settings: What is searched for.
        feasible: The networks within the budget of the settings.
        latencies: What networks are predicted to take; None: the sums of ``feasible``.
        workers: Where networks are scored; None: in this process.
        storage: Where trials are kept; None: in the folder of the study.
        spread: Factor of the prediction interval.
        measure: Measures the candidates on the device.
        trainer: Short training, for evaluators that train.
        watch: Hears of every trial.
    """

    workspace: Workspace
    name: str
    settings: Settings
    feasible: FeasibleSet
    spread: float
    measure: MeasureNetworks
    trainer: Trainer | None = None
    watch: SearchWatch = field(default_factory=SearchWatch)
    latencies: SpaceSums | None = None
    workers: WorkerPlan | None = None
    storage: StudyStorage | None = None

    def __post_init__(self) -> None:
        if self.feasible.budget_s != self.settings.budget_s:
            raise ValueError(f"networks within {self.feasible.budget_s} s, settings of {self.settings.budget_s} s")

    def run(self, trials: int, measure: int) -> SearchResult:
        """Goes on until the study has ``trials`` scored networks, then measures the best ``measure`` of them.

        Raises:
            InvalidValue: The study exists with other settings, or is in use.
            OverBudget: None of the candidates turned out to be within the budget.
            DeviceError: The device could not be reached for measuring; the trials are kept.
        """
        check_name(self.name)
        folder = self.workspace.studies / self.name
        base = samplers.get(self.settings.sampler)
        startup = min(_STARTUP, trials // 2)
        sampler = FeasibleSampler(self.feasible, base, seed=self.settings.seed, startup=startup)
        num_choices = len(self.feasible.space.choices)
        with open_study(folder, self.settings, sampler, num_choices, self.storage) as study:
            self._optimize(study, trials)
            history = [replace(c, predicted_s=self._predicted(c)) for c in scored_candidates(study)]
            result = self._confirm(history, len(finished_trials(study)), measure)
            result.write(folder)
        return result

    def _optimize(self, study: Study, trials: int) -> None:
        make = get_evaluator(self.settings.evaluator)
        context = Context(self.settings.seed, self._reference, self.trainer)
        setup = EvaluatorSetup(make, context)
        if hasattr(make, "block_score") and not study.get_trials(deepcopy=False):
            evaluator = make(context)
            assert isinstance(evaluator, AdditiveEvaluator)
            for optimum in self._optima(evaluator)[:trials]:
                study.enqueue_trial(dict(optimum.choices))
        left = trials - len(finished_trials(study))
        with self.workers.open(setup, left) if self.workers and left > 0 else InProcess(setup) as evaluations:
            Trials(study, self.settings, self.feasible, self._latencies, evaluations, self.watch).run(trials)

    def _optima(self, evaluator: AdditiveEvaluator) -> list[Architecture]:
        """The exact best networks at shares of the budget, the full budget first."""
        scores = SpaceSums.of(self.feasible.space, evaluator.block_score, num_classes=self.settings.num_classes)
        smallest, _ = self.feasible.smallest()
        found = []
        for share in _FRONT:
            budget = share * self.settings.budget_s
            if share == 1.0:
                found.append(self.feasible.best(scores).architecture)
            elif budget > smallest * 1.01:
                found.append(FeasibleSet(self.feasible.sums, budget).best(scores).architecture)
        return list(dict.fromkeys(found))

    def _confirm(self, history: Sequence[Candidate], trials: int, measure: int) -> SearchResult:
        distinct = [c for c in {c.architecture: c for c in history}.values() if c.predicted_s <= self.settings.budget_s]
        confirmation = Confirmation(
            self.measure,
            self._workload,
            self.settings.budget_s,
            self.spread,
            max(measure, 1),
            emulated=self.settings.emulated,
        )
        best = confirmation.run(distinct)
        if best is None:
            raise OverBudget(self._over_budget(list(confirmation.measured.values())))
        known = [confirmation.measured.get(c.architecture, c) for c in distinct]
        return SearchResult(
            study=self.name,
            settings=self.settings,
            feasible=self.feasible.count,
            trials=trials,
            best=best,
            pareto=tuple(pareto(known)),
            measured=tuple(confirmation.measured.values()),
            history=tuple(confirmation.measured.get(c.architecture, c) for c in history),
            spread=self.spread,
        )

    def _over_budget(self, measured: Sequence[Candidate]) -> str:
        times = [c.measured_s for c in measured if c.measured_s is not None]
        budget = format_duration(self.settings.budget_s)
        if not times:
            reasons = "; ".join(sorted({c.failure for c in measured})) or "no candidate has a score"
            return f"study {self.name!r}: no candidate could be measured on the device: {reasons}"
        return (
            f"study {self.name!r}: none of the {len(times)} candidates that were measured is within {budget}; the "
            f"fastest takes {format_duration(min(times))}; give a larger budget or more --trials, or check the table: "
            f"hwbench validate --device {self.settings.device}"
        )

    @property
    def _latencies(self) -> SpaceSums:
        return self.latencies or self.feasible.sums

    def _predicted(self, candidate: Candidate) -> float:
        """By the table of today, which may be newer than the trial."""
        return self._latencies.total(Architecture.parse(candidate.architecture))

    @property
    def _reference(self) -> ReferenceNetworks:
        return ReferenceNetworks(self.feasible, self.settings.seed, self.settings.num_classes)

    def _network(self, architecture: Architecture) -> Network:
        return self.feasible.space.network(architecture, self.settings.num_classes)

    def _workload(self, key: str) -> Workload:
        network = self._network(Architecture.parse(key))
        return network.workload(Precision.parse(self.settings.precision), self.settings.variant)
