"""``hwbench.search``: the best network of a space within a latency budget, measured before it is called that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.prediction import measuring
from hwbench.api.search_devices import device_budgets, filled, networks_within, predictors
from hwbench.api.search_request import SUPERNET, SearchRequest
from hwbench.api.study_data import StudyData
from hwbench.api.study_supernet import StudySupernet
from hwbench.units import format_rate

if TYPE_CHECKING:
    from hwbench.latency import Calibration
    from hwbench.measure.builder import Builder
    from hwbench.spaces.feasible import FeasibleSet
    from hwbench.specs import Target
    from hwbench.studies.candidates import MeasureNetworks
    from hwbench.studies.evaluations import WorkerPlan
    from hwbench.studies.settings import Settings
    from hwbench.studies.study import SearchResult
    from hwbench.studies.trials import SearchWatch
    from hwbench.workspace import Workspace


def search(
    request: SearchRequest,
    listener: Listener = SILENT,
    *,
    workspace: Workspace | None = None,
    builder: Builder | None = None,
) -> SearchResult:
    """Searches a space by its published table and measures the best networks.

    Args:
        request: What to search for.
        listener: Hears of every trial, and of every measurement.
        workspace: Holds space, device, table and studies; default: the one around the current folder.
        builder: Builds the best candidates, and goes on living; default: one of its own.

    Raises:
        InvalidValue: The table was taken under emulation, the study exists with other settings, or tables of several
            devices have heads for different numbers of classes.
        InfeasibleBudget: No network is within the budgets; the smallest reachable latency is named, or the nearest
            budgets.
        OverBudget: None of the measured candidates is.
        NotMeasured: There is no table, or too little of the space is in it.
        UnknownName: No such space, device, evaluator or sampler.
    """
    from hwbench.spaces import open_space
    from hwbench.workspace import Workspace

    workspace = workspace or Workspace.find()
    space = open_space(workspace, request.space, request.classes)
    known, num_classes = predictors(request, workspace, listener)
    targets = [predictor.table.target for predictor in known]
    emulated = any(predictor.table.emulated for predictor in known)
    settings = filled(request, known).settings(space, targets[0], num_classes, emulated=emulated, further=targets[1:])
    feasible = networks_within(space, known, settings)
    if not settings.by_prediction:
        for predictor in known:
            _tell_confidence(predictor.calibration, settings.confidence, listener)
    for predictor in known:
        where = f" of {predictor.table.target.device}" if len(known) > 1 else ""
        listener.say(f"calibration{where}: {predictor.calibration.describe()}")
    _tell_feasible(feasible, settings, listener)
    _check_names(workspace, request, listener)  # loads Optuna and torch, which an impossible budget does not wait for

    from hwbench.studies.latencies import sizes
    from hwbench.studies.study import Search

    data = StudyData(workspace, request.data, request.fidelity)
    supernet = StudySupernet(workspace, data, feasible, request.supernet_epochs, request.seed, listener)
    if request.evaluator == SUPERNET:
        supernet.prepare()

    def measure_on(target: Target) -> MeasureNetworks:
        return measuring(workspace, target, request.runtime, builder, listener=listener)

    first, *further = device_budgets(space, known, settings, feasible, measure_on)
    result = Search(
        workspace=workspace,
        name=request.study or settings.default_study,
        settings=settings,
        feasible=feasible,
        spread=first.spread,
        measure=first.measure,
        trainer=data.top1,
        losses=data.losses,
        clips=data.clips,
        inherited=supernet.top1,
        watch=_watch(listener),
        latencies=None if settings.by_prediction else first.latencies,
        further=further,
        sizes=sizes(feasible),
        workers=_workers(request),
        storage=request.study_storage,
    ).run(request.trials, request.measure)
    if result.emulated:
        listener.say("every time here was taken under emulation: it says nothing about a device")
    return result


def _workers(request: SearchRequest) -> WorkerPlan | None:
    """Where networks are scored; None: in this process."""
    from hwbench.studies.ray_workers import RayWorkers
    from hwbench.studies.worker_pool import Workers

    if request.ray is not None:
        return RayWorkers(request.ray, request.workers, request.worker_gpus, request.worker_cpus)
    return Workers(request.workers) if request.workers > 1 else None


def _check_names(workspace: Workspace, request: SearchRequest, listener: Listener) -> None:
    """Refuses names that nothing has, before a study holds them, and says what a score is.

    Raises:
        UnknownName: No such evaluator, sampler or data.
        InvalidValue: The study cannot be called so.
        InvalidFile: The data are not laid out as their reader expects.
    """
    from hwbench.studies.evaluators import describe, get
    from hwbench.studies.sampler import samplers
    from hwbench.studies.settings import check_name

    evaluator = get(request.evaluator)
    samplers.get(request.sampler)
    if request.study is not None:
        check_name(request.study)
    if request.reads:
        from hwbench.data import SYNTHETIC, open_splits

        if request.data != SYNTHETIC:  # which is made when it is read
            open_splits(workspace, request.data)
    listener.say(f"score: {describe(evaluator)}")


def _tell_confidence(calibration: Calibration, confidence: float, listener: Listener) -> None:
    """Says what room below the budget the confidence takes, and whether so few networks can promise it."""
    margin, known = calibration.margin(confidence), calibration.count / (calibration.count + 1)
    short = f"; {calibration.count} calibration networks promise no more than {known:.0%}" if known < confidence else ""
    listener.say(f"within the budget with {confidence:.0%}: predictions are taken {margin - 1:.1%} longer{short}")


def _tell_feasible(feasible: FeasibleSet, settings: Settings, listener: Listener) -> None:
    """Says how large the feasible set is, and what is missing from it."""
    count, coverage = feasible.count, feasible.sums.coverage
    number = f"{count:.0f}" if count < 1e6 else f"{count:.2e}"
    listener.say(f"{number} networks ({feasible.share():.1%} of the space) are within {settings.budgets_text()}")
    if coverage < 1:
        listener.say(f"only {coverage:.2%} of the space is measured; the rest is left out")


def _watch(listener: Listener) -> SearchWatch:
    """Tells a listener of trials, with the best score so far."""
    from hwbench.studies.candidates import Candidate
    from hwbench.studies.trials import SearchWatch

    class TrialProgress(SearchWatch):
        def started(self, trials: int, finished: int) -> None:
            self.total, self.first, self.done = trials, finished, finished
            self.since, self.best = time.monotonic(), float("-inf")
            self._tell("", f"{finished} from before" if finished else "")

        def evaluated(self, candidate: Candidate) -> None:
            self.done += 1
            self.best = max(self.best, candidate.score)
            listener.evaluated(candidate)
            self._tell(format_rate(self.done - self.first, time.monotonic() - self.since), f"best {self.best:.4g}")

        def died(self, architecture: str, reason: str, again: bool) -> None:
            listener.say(f"{reason}; {architecture} {'runs again' if again else 'has no score'}")

        def exhausted(self, networks: int) -> None:
            self.total = self.done
            self._tell("", f"all {networks} networks within the budget seen")

        def _tell(self, rate: str, note: str) -> None:
            listener.progress(StageProgress("trials", self.done, self.total, rate, note))

    return TrialProgress()
