"""What to search for: every decision of ``hwbench.search``, checked when it is made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hwbench.api.prediction import INTERPOLATE, INTERPOLATE_FLAGS, TRANSFER, check_filling
from hwbench.api.reading import DECODER, DECODER_HELP, MODALITY_HELP, RGB
from hwbench.api.requests import changed, option, request
from hwbench.api.score_plan import (
    FINALIST_SCORES,
    LEARNED,
    NO_PRUNER,
    SUPERNET_EPOCHS,
    TRAINED_EPOCHS,
    TRAINED_FINALISTS,
    TRAINED_TRIALS,
    TRIALS,
    ScorePlan,
)
from hwbench.api.search_rows import MEASURE_ROWS
from hwbench.api.study_data import Fidelity
from hwbench.api.train_request import ON_ERROR, RAISE
from hwbench.errors import InvalidValue
from hwbench.specs import AUTO, STREAM, ModelName
from hwbench.specs.network import MAX_SIZE
from hwbench.units import milliseconds, parse_duration, parse_limit
from hwbench.workspace import NO_TRAININGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwbench.spaces.protocols import SearchedSpace
    from hwbench.specs import Target
    from hwbench.studies.settings import Settings
    from hwbench.studies.storage import StudyStorage

# Its networks inherit what was trained once.
SUPERNET = "supernet"
# Evaluators that look at pictures, whatever a network is trained on later.
PICTURES_ALONE = (SUPERNET, "zero-cost")


@request
class SearchRequest:
    """Search a space for the best network within a latency budget on a device, or within one on each of several.

    Several budgets on one device are a front: the best network within each of them, from trials that all of them share.
    Every network that is tried is within the budget by prediction; the best ones are measured on the device before one
    is reported. The same command goes on with the study of its name.
    """

    budget: str = option(
        blank=True,
        help='Latency budget with a unit, such as "12 ms"; one for each of several devices: "60ms,90ms"; on one device '
        "several are a front.",
    )
    device: str = option(default="local", help="Device: a folder of profiles/; or several, such as s9,pi5.")
    space: str = option(
        default="x3d-tiny",
        help="Search space: a file of search_spaces/, zoo:NAME, or package.module:function of your own model; or "
        "several, such as x3d-mobile,r2plus1d-mobile, which compete.",
    )
    precision: str = option(default="int8", help="fp32, fp16, bf16 or int8.")
    threads: int = option(default=1, min=1, help="Threads of the measured process.")
    trials: int | None = option(
        default=None,
        min=1,
        help=f"Networks to evaluate in all; default: as many as fit into --time, else {TRAINED_TRIALS} with curve and "
        f"short-train, else {TRIALS}.",
    )
    time: str | None = option(
        default=None,
        help='For curve and short-train: train as many networks as fit into so much time, such as "1h", with the race '
        "of the finalists. Measuring comes on top.",
    )
    evaluator: str | None = option(
        default=None,
        help="entropy, zero-cost, curve, short-train, fitted or supernet; default: short-train with --data; "
        "else fitted where there are trainings (--learn-from, or those that come with the space), else entropy; a "
        "study that exists goes on with its own.",
    )
    sampler: str = option(default="thompson", help="thompson, tpe, nsga2 or random.")
    startup: int | None = option(
        default=None,
        min=0,
        help="Trials before the sampler takes over, uniform draws; default: 12, at most half of the trials; half as "
        "many with trainings on other data. Networks that are tried first count among them: with entropy some six "
        "optima.",
    )
    pruner: str | None = option(
        default=None,
        choices=(NO_PRUNER, "asha", "hyperband"),
        help="For curve and short-train: give up networks that are behind after a quarter or a half of the epochs: "
        "asha, hyperband or none (default). A study that exists keeps its own.",
    )
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
    sustained: bool = option(
        default=False,
        help="The budget is to hold for minutes: divide it by the ratio that hwbench bench --sustained has measured.",
    )
    streaming: bool = option(
        default=False,
        help="The budget is that of one new frame of a stream: causal networks, by the table of profile --streaming.",
    )
    measure: int = option(default=3, min=1, help="Best candidates to measure on the device.")
    data: str | None = option(
        default=None,
        help="For finalists, and for all evaluators but entropy: synthetic, synthetic:NAME, or a path; default: those "
        "of the study or of its last race, with fitted those of --learn-from, else synthetic.",
    )
    decoder: str = option(default=DECODER, help=DECODER_HELP)
    on_error: str = option(default=RAISE, choices=ON_ERROR, help="Unreadable videos: raise, skip or replace.")
    modality: str = option(default=RGB, help=MODALITY_HELP + " For curve, short-train and finalists.")
    epochs: int | None = option(
        default=None, min=1, help=f"For curve and short-train: epochs of a training; default: {TRAINED_EPOCHS}."
    )
    frames_share: float = option(
        default=1.0, help="For curve and short-train: share of a network's frames that it is trained on."
    )
    resolution_share: float = option(
        default=1.0, help="For curve and short-train: share of a network's resolution that it is trained on."
    )
    learn_from: tuple[str, ...] = option(
        default=(),
        metavar="STUDY|PATH",
        help="Trainings to begin from: a study of curve or short-train, a CSV file with the columns architecture, "
        "epochs and top1, or a folder of ground truth (repeatable); default for fitted and short-train: those that "
        "come with the space (NAME.trained.csv); none: no trainings. fitted scores by them alone; curve and "
        "short-train try the best networks of them first, and repeat none; those on other data count "
        "as far as trials agree.",
    )
    supernet_epochs: int | None = option(
        default=None,
        min=1,
        help="For supernet: epochs of the one training of all networks within the budget; default: those of the study, "
        f"else {SUPERNET_EPOCHS}.",
    )
    classes: int | None = option(default=None, min=1, max=MAX_SIZE, help="Classes of heads; default: those profiled.")
    runtime: str = option(default="executorch", help="executorch, litert, onnx, openvino, torch or torchscript.")
    finalists: int | None = option(
        default=None,
        min=0,
        help="Networks that race: the best ones, trained in rounds and compared by video until one is left; 0: none; "
        f"default: as many as in the study's last race, else {TRAINED_FINALISTS} with curve and short-train, else 0.",
    )
    finalist_epochs: int | None = option(
        default=None,
        min=1,
        help="With --finalists: epochs of the first round; each further one has twice as many; default: those of the "
        f"study's last race, else {TRAINED_EPOCHS}.",
    )
    finalist_score: str | None = option(
        default=None,
        choices=FINALIST_SCORES,
        help="With --finalists: accuracy of the trained network, or of its int8 file; default: that of the study's "
        f"last race, else {FINALIST_SCORES[0]}.",
    )
    workers: int = option(
        default=1,
        min=1,
        help="Networks to evaluate, and finalists to train, at the same time, each in a process of its own.",
    )
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
    interpolate: bool | None = option(default=None, flags=INTERPOLATE_FLAGS, help=INTERPOLATE)
    transfer_from: str | None = option(default=None, help=TRANSFER)
    measure_rows: int | None = option(default=None, min=0, help=MEASURE_ROWS)

    def validate(self) -> None:
        """Raises InvalidValue where budget, share or storage do not parse, or rows cannot be filled in so."""
        from hwbench.studies.settings import check_confidence

        _ = self.spaces, self.budgets_s, self.max_file_bytes, self.max_activation_bytes, self.time_s
        evaluator = self.plan.evaluator
        if len(self.spaces) > 1 and evaluator == SUPERNET:
            raise InvalidValue(
                f"--evaluator {SUPERNET}: networks of one space share weights, got --space {self.space}; "
                "name one space, or take curve or short-train"
            )
        if len(self.front_s) > 1 and self.objective != "score":
            raise InvalidValue("--objective: several budgets on one device are a front already; leave out one of both")
        check_confidence(self.confidence, "--confidence")
        if self.streaming and self.sustained:
            raise InvalidValue("--streaming: no ratio of minutes is known of single frames; leave out --sustained")
        if self.streaming and self.plan.finalist_score != FINALIST_SCORES[0]:
            raise InvalidValue(
                "--streaming: finalists are compared as causal networks on whole clips; leave out --finalist-score"
            )
        for device in self.filled_devices:
            check_filling(self.interpolate, self.transfer_from, device, self.precision, self.threads)
        for name, share in (("frames", self.frames_share), ("resolution", self.resolution_share)):
            if not 0 < share <= 1:
                raise InvalidValue(f"--{name}-share: expected more than 0, at most 1, got {share:g}")
        if self.finalists == 1:
            raise InvalidValue("--finalists: expected 2 or more networks to race, or 0 for none, got 1")
        if self.ray is None and (unread := changed(self, "worker_gpus", "worker_cpus")):
            raise InvalidValue(f"{unread[0]} goes with --ray; elsewhere workers share what this machine has")
        if self.plan.pruner != NO_PRUNER:
            self._check_pruner()
        if self.modality != RGB:
            self._check_modality()
        if NO_TRAININGS in self.learn_from and len(self.learn_from) > 1:
            raise InvalidValue(f"--learn-from: {NO_TRAININGS} stands alone, got {', '.join(self.learn_from)}")
        if self.sources and evaluator != LEARNED and not self.trains:
            raise InvalidValue(
                f"--learn-from goes with --evaluator {LEARNED}, short-train or curve, got --evaluator {evaluator}"
            )
        self._check_storage()

    def _check_storage(self) -> None:
        """Raises InvalidValue where the storage does not parse, or Ray would keep its password with the job.

        WorkspaceError where its folder is not there.
        """
        storage = self.study_storage
        if storage is None:
            return
        storage.require_folder()
        if self.ray is None or not storage.secrets:
            return
        if any(str(self.storage) in word for word in sys.orig_argv):
            raise InvalidValue(
                f"--storage {storage.shown}: with --ray, leave the password out of the URL: Ray shows the command line "
                "in the cluster's list of jobs; set PGPASSWORD, or keep the password in ~/.pgpass"
            )

    def _check_pruner(self) -> None:
        """Raises InvalidValue where nothing can be given up."""
        if self.objective != "score":
            raise InvalidValue(f"--pruner {self.pruner} goes with --objective score; a front has no network behind")
        if self.plan.epochs < 2:
            raise InvalidValue(f"--pruner {self.pruner}: expected at least --epochs 2, got {self.plan.epochs}")
        if self.ray is not None:
            raise InvalidValue(f"--pruner {self.pruner} goes with --workers on this machine, not with --ray")

    def _check_modality(self) -> None:
        """Raises InvalidValue where nothing is trained on what networks see."""
        if self.streaming:
            raise InvalidValue(f"--streaming: frames of a stream are pictures; leave out --modality {self.modality}")
        if self.plan.evaluator in PICTURES_ALONE or not (self.trains or self.plan.finalists):
            raise InvalidValue(
                f"--modality {self.modality} goes with --evaluator short-train or curve, or with --finalists, got "
                f"--evaluator {self.plan.evaluator}"
            )

    @property
    def variant(self) -> str:
        """In what form networks are timed: ``stream`` or ``auto``."""
        return STREAM if self.streaming else AUTO

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
    def filled_devices(self) -> tuple[str, ...]:
        """The devices for whose missing rows another table may stand in: of several all but the one whose table it is.

        Raises:
            InvalidValue: ``transfer_from`` does not parse.
        """
        if not self.transfer_from:
            return self.devices
        from hwbench.latency.table_source import TableSource  # its package loads numpy

        source = TableSource.parse(self.transfer_from)
        others = tuple(name for name in self.devices if not source.is_of(name, self.precision, self.threads))
        return others or self.devices

    @property
    def sources(self) -> tuple[str, ...]:
        """Trainings to begin from, as they are named."""
        return () if NO_TRAININGS in self.learn_from else self.learn_from

    @property
    def spaces(self) -> tuple[str, ...]:
        """The spaces, as they are named.

        Raises:
            InvalidValue: One is empty, or stands there twice.
        """
        names = tuple(name.strip() for name in self.space.split(","))
        if "" in names or len(set(names)) < len(names):
            raise InvalidValue(
                f"--space: expected each space once, such as x3d-mobile,r2plus1d-mobile, got {self.space!r}"
            )
        return names

    @property
    def named(self) -> dict[str, str]:
        """The models of the user's own among the spaces: label of the space -> as it is named."""
        return {name.label: text for text in self.spaces if (name := ModelName.match(text)) is not None}

    @property
    def budgets_s(self) -> dict[str, float]:
        """Upper limit of the latency by device, in seconds.

        Raises:
            InvalidValue: One is no duration, there is neither one for all devices nor one for each, or a front on one
                device has a budget twice.
        """
        limits = self._limits_s
        if len(self.devices) == 1:
            return {self.device.strip(): max(limits)}
        if len(limits) not in (1, len(self.devices)):
            raise InvalidValue(
                f"--budget: expected one budget, or one for each of the devices {', '.join(self.devices)}, "
                f"got {self.budget!r}; a front over several budgets is of one device"
            )
        return dict(zip(self.devices, limits * len(self.devices), strict=False))

    @property
    def front_s(self) -> tuple[float, ...]:
        """The budgets, in seconds, each of which has a best network: several on one device, else one; ascending."""
        return tuple(sorted(self._limits_s)) if len(self.devices) == 1 else (self.budget_s,)

    @property
    def _limits_s(self) -> list[float]:
        limits = [parse_duration(text, name="--budget") for text in self.budget.split(",")]
        if len(self.devices) == 1 and len(set(limits)) < len(limits):
            raise InvalidValue(f"--budget: expected each budget of a front once, got {self.budget!r}")
        return limits

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
        return parse_limit(self.max_file_size, "--max-file-size")

    @property
    def max_activation_bytes(self) -> int:
        """Upper limit of the activations; 0: none."""
        return parse_limit(self.max_activations, "--max-activations")

    @property
    def time_s(self) -> float | None:
        """Seconds for trials and race; None: as long as they take.

        Raises:
            InvalidValue: It is no duration.
        """
        return None if self.time is None else parse_duration(self.time, name="--time", unit="min")

    @property
    def plan(self) -> ScorePlan:
        """Evaluator, data, trials, epochs and finalists, with everything decided that was left open."""
        return ScorePlan.of(self)

    @property
    def asked(self) -> dict[str, str]:
        """Options that are no settings of a study and that its folder keeps, by name, as they are typed."""
        plan = self.plan
        options = {
            "space": self.space if self.named else None,
            "time": self.time,
            "trials": self.trials,
            "startup": self.startup,
            "measure": self.measure if changed(self, "measure") else None,
            "measure-rows": self.measure_rows,
            "decoder": self.decoder if changed(self, "decoder") else None,
            "finalists": plan.finalists or self.finalists,
            "data": None if self.reads and not plan.of_others else self.data,
            "finalist-epochs": plan.finalist_epochs,
            "finalist-score": plan.finalist_score,
        }
        return {name: str(value) for name, value in options.items() if value is not None}

    @property
    def trains(self) -> bool:
        """Whether networks are scored by training them."""
        return self.plan.trains

    @property
    def reads(self) -> bool:
        """Whether scores rest on data."""
        return self.plan.reads

    @property
    def fidelity(self) -> Fidelity:
        """How short a training is."""
        return Fidelity(self.plan.epochs, self.frames_share, self.resolution_share)

    @property
    def keeps_data(self) -> bool:
        """Whether a study keeps its data: with an evaluator of another package where data or a training was typed."""
        typed = changed(self, "data", "epochs", "frames_share", "resolution_share")
        return bool(typed) if self.plan.of_others else self.reads

    @property
    def effort(self) -> str:
        """How long is trained, as a study keeps it; empty where nothing is."""
        if self.plan.evaluator == SUPERNET:
            return f"supernet of {self.plan.supernet_epochs} epochs"
        return str(self.fidelity) if self.trains or (self.plan.of_others and self.keeps_data) else ""

    def settings(
        self,
        space: SearchedSpace,
        target: Target,
        num_classes: int,
        *,
        emulated: bool = False,
        further: Sequence[Target] = (),
        learned: str = "",
    ) -> Settings:
        """What the trials of the study mean.

        Args:
            space: The space, as its file has it, or a union of some.
            target: What latencies hold for.
            further: The same on further devices.
            num_classes: Classes of the heads.
            emulated: Whether the table was taken under emulation.
            learned: What the evaluator, or the sampler of one that trains, is learned from.
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
            evaluator=self.plan.evaluator,
            sampler=self.sampler,
            objective=self.objective,
            data=self.plan.data if self.keeps_data else "",
            effort=self.effort if self.trains else learned or self.effort,
            seed=self.seed,
            variant=self.variant,
            missing_rows=missing_rows(self.interpolate, self.transfer_from),
            emulated=emulated,
            confidence=self.confidence,
            smaller_budgets_ms=tuple(milliseconds(limit) for limit in self.front_s[:-1]),
            further_budgets_ms={other.key: milliseconds(self.budgets_s[other.device]) for other in further},
            max_file_bytes=self.max_file_bytes,
            max_activation_bytes=self.max_activation_bytes,
            pruner="" if self.plan.pruner == NO_PRUNER else self.plan.pruner,
            begun_from=learned if self.trains else "",
            modality="" if self.modality == RGB else self.modality,
            on_error=self.on_error if self.keeps_data or self.plan.finalists else RAISE,
        )
