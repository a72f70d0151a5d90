"""``hwbench.search``: the best network of a space within a latency budget, measured before it is called that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.prediction import (
    INTERPOLATE,
    TRANSFER,
    check_donor,
    check_filling,
    installed_target,
    measuring,
    short_trainer,
    table_predictor,
)
from hwbench.api.requests import option, request
from hwbench.errors import InvalidValue
from hwbench.units import format_duration, format_rate, milliseconds, parse_duration

if TYPE_CHECKING:
    from hwbench.latency import Calibration
    from hwbench.measure.builder import Builder
    from hwbench.spaces import StagedSpace
    from hwbench.spaces.feasible import FeasibleSet
    from hwbench.specs import Target
    from hwbench.studies.evaluations import WorkerPlan
    from hwbench.studies.settings import Settings
    from hwbench.studies.storage import StudyStorage
    from hwbench.studies.study import SearchResult
    from hwbench.studies.trials import SearchWatch
    from hwbench.workspace import Workspace


@request
class SearchRequest:
    """Search a space for the best network within a latency budget on a device.

    Every network that is tried is within the budget by prediction; the best ones are measured on the device before one
    is reported. The same command goes on with the study of its name.
    """

    budget: str = option(help='Latency budget with a unit, such as "12 ms".')
    device: str = option(default="local", help="Device: a folder of profiles/.")
    space: str = option(
        default="x3d-tiny",
        help="Search space: a file of search_spaces/, zoo:NAME, or package.module:function of your own model.",
    )
    precision: str = option(default="int8", help="fp32 or int8.")
    threads: int = option(default=1, min=1, help="Threads of the measured process.")
    trials: int = option(default=64, min=1, help="Networks to evaluate in all.")
    evaluator: str = option(default="entropy", help="entropy, zero-cost or short-train.")
    sampler: str = option(default="thompson", help="thompson, tpe, nsga2 or random.")
    objective: str = option(
        default="score",
        choices=("score", "score,latency"),
        help='score, or "score,latency" for the front of both.',
    )
    study: str | None = option(default=None, help="Name of the study; a study of that name goes on.")
    seed: int = option(default=0, min=0, help="Of everything random.")
    confidence: float = option(
        default=0.5,
        help="Try only networks that are within the budget with this probability, 0.5 to below 1; 0.5: by prediction.",
    )
    measure: int = option(default=3, min=1, help="Best candidates to measure on the device.")
    data: str = option(default="synthetic", help="For short-train: synthetic, synthetic:NAME, or a path.")
    epochs: int = option(default=2, min=1, help="For short-train: epochs of a training.")
    classes: int | None = option(default=None, min=1, help="Classes of the heads; default: those profiled.")
    runtime: str = option(default="executorch", help="executorch, onnx, torch or torchscript.")
    workers: int = option(default=1, min=1, help="Networks to evaluate at the same time, each in a process of its own.")
    ray: str | None = option(
        default=None,
        help="Evaluate on a Ray cluster: auto, HOST:PORT of its head, or local to start one on this machine.",
    )
    worker_gpus: float = option(default=0.0, min=0, help="With --ray: GPUs that a worker takes; 0.25: four share one.")
    worker_cpus: float = option(default=1.0, min=0, help="With --ray: processors that a worker takes.")
    storage: str | None = option(
        default=None,
        help="Keep the trials there: sqlite:///FILE, postgresql://USER@HOST/DATABASE or grpc://HOST:PORT; "
        "default: in the folder of the study.",
    )
    allow_emulated: bool = option(default=False, help="Take timings made under emulation, which are no latencies.")
    interpolate: bool = option(default=False, help=INTERPOLATE)
    transfer_from: str | None = option(default=None, help=TRANSFER)

    def validate(self) -> None:
        """Raises InvalidValue where budget or storage do not parse, or missing rows cannot be filled in as asked."""
        from hwbench.studies.settings import check_confidence

        _ = self.budget_s
        check_confidence(self.confidence, "--confidence")
        check_filling(self.interpolate, self.transfer_from, self.device)
        if self.ray is None and self.worker_gpus:
            raise InvalidValue("--worker-gpus goes with --ray; elsewhere workers share what this machine has")
        _ = self.study_storage

    @property
    def study_storage(self) -> StudyStorage | None:
        """Where trials are kept; None: in the folder of the study."""
        if self.storage is None:
            return None
        from hwbench.studies.storage import StudyStorage

        return StudyStorage.parse(self.storage)

    @property
    def budget_s(self) -> float:
        """Upper limit of the latency, in seconds."""
        return parse_duration(self.budget, name="--budget")

    @property
    def trains(self) -> bool:
        """Whether networks are scored by training them."""
        return self.evaluator == "short-train"

    def settings(self, space: StagedSpace, target: Target, num_classes: int, *, emulated: bool = False) -> Settings:
        """What the trials of the study mean.

        Args:
            space: The space, as its file has it.
            target: What latencies hold for.
            num_classes: Classes of the heads.
            emulated: Whether the table was taken under emulation.
        """
        from hwbench.specs import Precision
        from hwbench.studies.latencies import choices_digest
        from hwbench.studies.settings import Settings, missing_rows

        return Settings(
            space=space.name,
            choices=choices_digest(space),
            target=target.key,
            precision=Precision.parse(self.precision).value,
            budget_ms=milliseconds(self.budget_s),
            num_classes=num_classes,
            evaluator=self.evaluator,
            sampler=self.sampler,
            objective=self.objective,
            data=self.data if self.trains else "",
            effort=f"{self.epochs} epochs" if self.trains else "",
            seed=self.seed,
            missing_rows=missing_rows(self.interpolate, self.transfer_from),
            emulated=emulated,
            confidence=self.confidence,
        )


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
        InvalidValue: The table was taken under emulation, or the study exists with other settings.
        InfeasibleBudget: No network is within the budget; the smallest reachable latency is named.
        OverBudget: None of the measured candidates is.
        NotMeasured: There is no table, or too little of the space is in it.
        UnknownName: No such space, device, evaluator or sampler.
    """
    from hwbench.devices import load_device
    from hwbench.spaces import open_space
    from hwbench.specs import Precision
    from hwbench.studies.latencies import feasible_set, space_latencies
    from hwbench.workspace import Workspace

    precision = Precision.parse(request.precision)
    workspace = workspace or Workspace.find()
    space = open_space(workspace, request.space, request.classes)
    load_device(workspace, request.device)
    check_donor(workspace, request.transfer_from)
    target = installed_target(request.device, request.runtime, request.threads)
    filling = (request.interpolate, request.transfer_from)
    predictor, num_classes = table_predictor(
        workspace, target, precision, request.space, request.classes, request.allow_emulated, filling, listener=listener
    )
    settings = request.settings(space, target, num_classes, emulated=predictor.table.emulated)
    feasible = feasible_set(space, predictor, settings)
    latencies = None
    if not settings.by_prediction:
        latencies = space_latencies(space, predictor, precision, num_classes)
        _tell_confidence(predictor.calibration, settings.confidence, listener)
    listener.say(f"calibration: {predictor.calibration.describe()}")
    _tell_feasible(feasible, listener)
    _check_names(workspace, request)  # loads Optuna and torch, which an impossible budget does not wait for

    from hwbench.studies.study import Search

    result = Search(
        workspace=workspace,
        name=request.study or settings.default_study,
        settings=settings,
        feasible=feasible,
        spread=predictor.spread,
        measure=measuring(workspace, target, request.runtime, builder, listener=listener),
        trainer=short_trainer(workspace, request.data, request.epochs) if request.trains else None,
        watch=_watch(listener),
        latencies=latencies,
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


def _check_names(workspace: Workspace, request: SearchRequest) -> None:
    """Refuses names that nothing has, before a study holds them.

    Raises:
        UnknownName: No such evaluator, sampler or data.
        InvalidValue: The study cannot be called so.
        InvalidFile: The data are not laid out as their reader expects.
    """
    from hwbench.studies.evaluators import get
    from hwbench.studies.sampler import samplers
    from hwbench.studies.settings import check_name

    get(request.evaluator)
    samplers.get(request.sampler)
    if request.study is not None:
        check_name(request.study)
    if request.trains:
        from hwbench.data import SYNTHETIC, open_splits

        if request.data != SYNTHETIC:  # which is made when it is read
            open_splits(workspace, request.data)


def _tell_confidence(calibration: Calibration, confidence: float, listener: Listener) -> None:
    """Says what room below the budget the confidence takes, and whether so few networks can promise it."""
    margin, known = calibration.margin(confidence), calibration.count / (calibration.count + 1)
    short = f"; {calibration.count} calibration networks promise no more than {known:.0%}" if known < confidence else ""
    listener.say(f"within the budget with {confidence:.0%}: predictions are taken {margin - 1:.1%} longer{short}")


def _tell_feasible(feasible: FeasibleSet, listener: Listener) -> None:
    """Says how large the feasible set is, and what is missing from it."""
    count, coverage = feasible.count, feasible.sums.coverage
    number = f"{count:.0f}" if count < 1e6 else f"{count:.2e}"
    budget = format_duration(feasible.budget_s)
    listener.say(f"{number} networks ({feasible.share():.1%} of the space) are within {budget}")
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
