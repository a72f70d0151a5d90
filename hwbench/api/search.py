"""``hwbench.search``: the best network of a space within a latency budget, measured before it is called that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.prediction import (
    INTERPOLATE,
    TRANSFER,
    check_filling,
    measuring,
)
from hwbench.api.requests import option, request
from hwbench.api.search_devices import device_budgets, networks_within, predictors
from hwbench.api.study_data import Fidelity, StudyData
from hwbench.errors import InvalidValue
from hwbench.units import format_rate, milliseconds, parse_bytes, parse_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwbench.latency import Calibration
    from hwbench.measure.builder import Builder
    from hwbench.spaces import StagedSpace
    from hwbench.spaces.feasible import FeasibleSet
    from hwbench.specs import Target
    from hwbench.studies.candidates import MeasureNetworks
    from hwbench.studies.evaluations import WorkerPlan
    from hwbench.studies.settings import Settings
    from hwbench.studies.storage import StudyStorage
    from hwbench.studies.study import SearchResult
    from hwbench.studies.trials import SearchWatch
    from hwbench.workspace import Workspace


@request
class SearchRequest:
    """Search a space for the best network within a latency budget on a device, or within one on each of several.

    Every network that is tried is within the budget by prediction; the best ones are measured on the device before one
    is reported. The same command goes on with the study of its name.
    """

    budget: str = option(help='Latency budget with a unit, such as "12 ms"; or one for each device: "60ms,90ms".')
    device: str = option(default="local", help="Device: a folder of profiles/; or several, such as s9,pi5.")
    space: str = option(
        default="x3d-tiny",
        help="Search space: a file of search_spaces/, zoo:NAME, or package.module:function of your own model.",
    )
    precision: str = option(default="int8", help="fp32 or int8.")
    threads: int = option(default=1, min=1, help="Threads of the measured process.")
    trials: int = option(default=64, min=1, help="Networks to evaluate in all.")
    evaluator: str = option(default="entropy", help="entropy, zero-cost, curve or short-train.")
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
    max_file_size: str | None = option(default=None, help="Largest file, such as 2MB, by the weights and operations.")
    max_activations: str | None = option(
        default=None, help="Most that activations take at a time, such as 8MiB: those of the largest block."
    )
    measure: int = option(default=3, min=1, help="Best candidates to measure on the device.")
    data: str = option(
        default="synthetic", help="For zero-cost, curve and short-train: synthetic, synthetic:NAME, or a path."
    )
    epochs: int = option(default=2, min=1, help="For curve and short-train: epochs of a training.")
    frames_share: float = option(
        default=1.0, help="For curve and short-train: share of a network's frames that it is trained on."
    )
    resolution_share: float = option(
        default=1.0, help="For curve and short-train: share of a network's resolution that it is trained on."
    )
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
        """Raises InvalidValue where budget, share or storage do not parse, or rows cannot be filled in so."""
        from hwbench.studies.settings import check_confidence

        _ = self.budgets_s, self.max_file_bytes, self.max_activation_bytes
        check_confidence(self.confidence, "--confidence")
        for device in self.devices:
            check_filling(self.interpolate, self.transfer_from, device)
        for name, share in (("frames", self.frames_share), ("resolution", self.resolution_share)):
            if not 0 < share <= 1:
                raise InvalidValue(f"--{name}-share: expected more than 0, at most 1, got {share:g}")
        if self.ray is None and self.worker_gpus:
            raise InvalidValue("--worker-gpus goes with --ray; elsewhere workers share what this machine has")
        _ = self.study_storage

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the devices.

        Raises:
            InvalidValue: One is empty, or stands there twice.
        """
        names = tuple(name.strip() for name in self.device.split(","))
        if "" in names or len(set(names)) < len(names):
            raise InvalidValue(f"--device: expected each device once, such as s9,pi5, got {self.device!r}")
        return names

    @property
    def budgets_s(self) -> dict[str, float]:
        """Upper limit of the latency by device, in seconds.

        Raises:
            InvalidValue: One is no duration, or there is neither one for all devices nor one for each.
        """
        limits = [parse_duration(text, name="--budget") for text in self.budget.split(",")]
        if len(limits) not in (1, len(self.devices)):
            raise InvalidValue(
                f"--budget: expected one budget, or one for each of the devices {', '.join(self.devices)}, "
                f"got {self.budget!r}"
            )
        return dict(zip(self.devices, limits * len(self.devices), strict=False))

    @property
    def study_storage(self) -> StudyStorage | None:
        """Where trials are kept; None: in the folder of the study."""
        if self.storage is None:
            return None
        from hwbench.studies.storage import StudyStorage

        return StudyStorage.parse(self.storage)

    @property
    def budget_s(self) -> float:
        """Upper limit of the latency on the first device, in seconds."""
        return self.budgets_s[self.devices[0]]

    @property
    def max_file_bytes(self) -> int:
        """Upper limit of the size of the file; 0: none."""
        return _limit(self.max_file_size, "--max-file-size")

    @property
    def max_activation_bytes(self) -> int:
        """Upper limit of the activations; 0: none."""
        return _limit(self.max_activations, "--max-activations")

    @property
    def trains(self) -> bool:
        """Whether networks are scored by training them."""
        from hwbench.studies.evaluators import TRAINING

        return self.evaluator in TRAINING

    @property
    def reads(self) -> bool:
        """Whether scores rest on data."""
        from hwbench.studies.evaluators import READING

        return self.evaluator in READING

    @property
    def fidelity(self) -> Fidelity:
        """How short a training is."""
        return Fidelity(self.epochs, self.frames_share, self.resolution_share)

    def settings(
        self,
        space: StagedSpace,
        target: Target,
        num_classes: int,
        *,
        emulated: bool = False,
        further: Sequence[Target] = (),
    ) -> Settings:
        """What the trials of the study mean.

        Args:
            space: The space, as its file has it.
            target: What latencies hold for.
            further: The same on further devices.
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
            data=self.data if self.reads else "",
            effort=str(self.fidelity) if self.trains else "",
            seed=self.seed,
            missing_rows=missing_rows(self.interpolate, self.transfer_from),
            emulated=emulated,
            confidence=self.confidence,
            further_budgets_ms={other.key: milliseconds(self.budgets_s[other.device]) for other in further},
            max_file_bytes=self.max_file_bytes,
            max_activation_bytes=self.max_activation_bytes,
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
    settings = request.settings(space, targets[0], num_classes, emulated=emulated, further=targets[1:])
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


def _limit(text: str | None, name: str) -> int:
    """Bytes; 0 where there is no limit.

    Raises:
        InvalidValue: It is no size above zero.
    """
    limit = 0 if text is None else parse_bytes(text, name=name)
    if text is not None and limit < 1:
        raise InvalidValue(f"{name}: expected a size above zero, got {text!r}")
    return limit


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
