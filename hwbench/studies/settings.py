"""What a study searches for. Two runs under one name must agree on all of it. Loads no Optuna."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hwbench.errors import InvalidValue
from hwbench.specs import AUTO, STREAM
from hwbench.specs.study_name import check_name as check_name
from hwbench.units import format_bytes, format_duration

if TYPE_CHECKING:
    from hwbench.studies.candidates import Candidate

# Left out of what is stored where a study has none, as before there were any.
_LATER = (
    "further_budgets_ms", "smaller_budgets_ms", "max_file_bytes", "max_activation_bytes", "pruner", "sustained",
    "begun_from", "modality",
)  # fmt: skip

# What happens with videos that cannot be read, where nothing else is said: the search ends. It is left out as well.
RAISE = "raise"
# Its scores are means of a posterior: of a top-1, or of what is no greater than 0.
FITTED = "fitted"
# The confidence of a prediction alone: measured above it as often as below.
EVEN = 0.5
OBJECTIVES = ("score", "score,latency")
# What becomes of rows that the table of the target lacks: their networks are left out, or the rows are filled in.
LEFT_OUT = "left out"
INTERPOLATED = "interpolated"
_TRANSFERRED = "transferred from "


def missing_rows(interpolate: bool | None, transfer_from: str | None) -> str:
    """``Settings.missing_rows`` of the two ways to fill rows in."""
    if transfer_from:
        return _TRANSFERRED + transfer_from
    return INTERPOLATED if interpolate else LEFT_OUT


def transferred_from(rows: str) -> str | None:
    """Whose table stands in, of what ``missing_rows`` gave; None where none does."""
    return rows.removeprefix(_TRANSFERRED) if rows.startswith(_TRANSFERRED) else None


@dataclass(frozen=True)
class Settings:
    """Everything that decides what the trials of a study mean.

    Args:
        space: Name of the search space; of several the names with commas.
        choices: Digest of the space's choices: an edited space is another space; of several the digests with commas.
        target: Key of the target that latencies hold for.
        precision: ``fp32``, ``fp16``, ``bf16`` or ``int8``.
        budget_ms: Upper limit of the latency, in milliseconds as they are typed: this is compared between runs.
        num_classes: Width of the logits of the networks that are timed.
        evaluator: Name of the evaluator.
        sampler: Name of the sampler.
        objective: ``score`` (highest score within the budget) or ``score,latency`` (the front of both).
        data: What networks are trained on or looked at with, where the evaluator does; with one of another package
            where data or a training was asked for.
        effort: How long is trained, where the evaluator trains; with one of another package as ``data``.
        seed: Of everything random.
        variant: Lowering of the networks that are timed; ``stream``: budgets are those of one new frame.
        missing_rows: What becomes of rows that were not measured: ``left out``, ``interpolated``, or ``transferred
            from`` a device.
        emulated: Whether the table was taken under emulation.
        confidence: Probability with which a network is within the budget, at least; 1/2 goes by the prediction alone.
        scoring: Version of what the evaluator's scores mean (``hwbench.studies.evaluators.scoring_of``).
        further_budgets_ms: Upper limits of the latency on further devices, in milliseconds, by the key of the target.
        smaller_budgets_ms: Limits below ``budget_ms``, ascending, each of which has a best network of its own: a front.
        max_file_bytes: Upper limit of the size of the file; 0: none.
        max_activation_bytes: Upper limit of the activations; 0: none.
        pruner: Name of what gives networks up that are behind; empty: nothing does.
        sustained: Where budgets were to hold for minutes, the ratio by device through which they were divided.
        begun_from: Trainings of other studies that the sampler knows from the beginning; empty: none.
        modality: What networks see where they are trained: a form of optical flow; empty: pictures.
        on_error: What happens with unreadable videos where networks are scored or race on data: ``raise``, ``skip`` or
            ``replace``.
    """

    space: str
    choices: str
    target: str
    precision: str
    budget_ms: float
    num_classes: int
    evaluator: str = "entropy"
    sampler: str = "thompson"
    objective: str = "score"
    data: str = ""
    effort: str = ""
    seed: int = 0
    variant: str = AUTO
    missing_rows: str = LEFT_OUT
    emulated: bool = False
    confidence: float = EVEN
    scoring: int = 1
    further_budgets_ms: Mapping[str, float] = field(default_factory=dict)
    smaller_budgets_ms: tuple[float, ...] = ()
    max_file_bytes: int = 0
    max_activation_bytes: int = 0
    pruner: str = ""
    sustained: Mapping[str, float] = field(default_factory=dict)
    begun_from: str = ""
    modality: str = ""
    on_error: str = RAISE

    def __post_init__(self) -> None:
        check_confidence(self.confidence, "confidence")
        if self.objective not in OBJECTIVES:
            raise InvalidValue(f"objective: expected one of {' or '.join(OBJECTIVES)}, got {self.objective!r}")
        if list(self.front_ms) != sorted(set(self.front_ms)):
            raise InvalidValue(f"budgets of a front: expected different ones, ascending, got {self.front_ms}")

    @property
    def spaces(self) -> Mapping[str, str]:
        """The digests of choices by space."""
        return dict(zip(self.space.split(","), self.choices.split(","), strict=False))

    @property
    def sources(self) -> tuple[str, ...]:
        """Studies and folders whose trainings the study begins from, as ``--learn-from`` named them."""
        from hwbench.spaces.begun import learned_sources  # which loads NumPy

        return learned_sources(self.begun_from or self.effort)

    @property
    def budget_s(self) -> float:
        """Upper limit of the latency, in seconds."""
        return self.budget_ms / 1e3

    @property
    def by_prediction(self) -> bool:
        """Whether a network counts as within the budget when it is predicted to be."""
        return self.confidence == EVEN

    @property
    def directions(self) -> list[Literal["maximize", "minimize"]]:
        """What Optuna is to do with the values of a trial."""
        return ["maximize"] if self.objective == "score" else ["maximize", "minimize"]

    @property
    def device(self) -> str:
        """Name of the device that latencies hold for."""
        return self.target.partition("/")[0]

    @property
    def budgets_ms(self) -> Mapping[str, float]:
        """Upper limits of the latency by device, the first one first."""
        further = {target.partition("/")[0]: limit for target, limit in self.further_budgets_ms.items()}
        return {self.device: self.budget_ms, **further}

    @property
    def front_ms(self) -> tuple[float, ...]:
        """The budgets that have a best network, ascending: the one budget, or those of a front."""
        return (*self.smaller_budgets_ms, self.budget_ms)

    @property
    def streaming(self) -> bool:
        """Whether latencies are those of one new frame of a stream."""
        return self.variant == STREAM

    def limit_text(self, limit_ms: float) -> str:
        """One budget, for people: ``60 ms``, of a stream ``2 ms a frame``."""
        return format_duration(limit_ms / 1e3) + (" a frame" if self.streaming else "")

    def budgets_text(self) -> str:
        """All upper limits, for people: ``60 ms``, or ``60 ms on s9 and 90 ms on pi5, a file of 2.0 MiB``."""
        limits = [self.limit_text(limit) for limit in self.budgets_ms.values()]
        if self.smaller_budgets_ms:
            smaller = ", ".join(map(self.limit_text, self.smaller_budgets_ms))
            limits = [f"{smaller} and {limits[0]}"]
        if self.further_budgets_ms:
            limits = [f"{limit} on {device}" for limit, device in zip(limits, self.budgets_ms, strict=True)]
        texts = [" and ".join(limits)]
        if self.max_file_bytes:
            texts.append(f"a file of {format_bytes(self.max_file_bytes)}")
        if self.max_activation_bytes:
            texts.append(f"activations of {format_bytes(self.max_activation_bytes)}")
        return ", ".join(texts)

    def shown_score(self, score: float) -> float:
        """A score as it is shown: a predicted top-1, which has no bound, is at most 1."""
        return min(score, 1.0) if self.evaluator == FITTED else score

    def shown(self, candidate: Candidate) -> Candidate:
        """A candidate with its score as it is shown; candidates are put in order before."""
        return replace(candidate, score=self.shown_score(candidate.score))

    @property
    def asked_text(self) -> str:
        """The budgets in the default name of a study, as they were asked for: ``60ms-90ms``."""
        budgets = list(self.budgets_ms.items())
        if self.smaller_budgets_ms:
            budgets = [(self.device, limit) for limit in self.front_ms]
        if self.sustained:
            from hwbench.spaces.begun import asked_ms  # which loads NumPy

            budgets = [(device, asked_ms(limit, self.sustained[device])) for device, limit in budgets]
        return "-".join(f"{limit:g}ms" for _, limit in budgets)

    @property
    def default_study(self) -> str:
        """Name of the study where none is given."""
        devices = "-".join(self.budgets_ms)
        name = f"{'-'.join(self.spaces)}_{devices}_{self.precision}_{self.asked_text}_{self.evaluator}"
        if self.max_file_bytes:
            name = f"{name}_file-{self.max_file_bytes}B"
        if self.max_activation_bytes:
            name = f"{name}_activations-{self.max_activation_bytes}B"
        if not self.by_prediction:
            name = f"{name}_sure-{self.confidence:g}"
        if self.sustained:
            name = f"{name}_sustained"
        if self.streaming:
            name = f"{name}_{STREAM}"
        if self.missing_rows == LEFT_OUT:
            return name
        return f"{name}_{self.missing_rows.replace(_TRANSFERRED, 'from-')}"

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON. Budgets and a pruner that a study does not have are left out."""
        return {name: value for name, value in self._plain().items() if not _is_left_out(name, value)}

    def _plain(self) -> dict[str, object]:
        """Values as JSON gives them back."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def differences(self, stored: Mapping[str, object], study: str) -> list[str]:
        """What a stored study was asked differently, in words.

        Versions up to 0.1 did not store ``missing_rows``, ``emulated``, ``confidence`` and ``scoring``. Without them,
        rows were filled in as the default name of the study says, else left out; the table is taken to be as emulated
        as it is now; networks went by their prediction; and scores were the first that their evaluator gave.

        A study whose videos could all be read (``raise``) is the same under any other ``on_error``; a race alone keeps
        trainings under each apart.

        A study of an evaluator of another package that keeps neither data nor effort goes on with any: none was asked
        for, or it is of before, when neither was kept. Its networks race on them; no further ones are scored with them.

        Args:
            stored: Plain values of the settings that the study was made with.
            study: Name of the study.
        """
        before = {
            "missing_rows": self._rows_by_name(study),
            "emulated": self.emulated,
            "confidence": EVEN,
            "scoring": 1,
            "on_error": RAISE,
        }
        now = self._plain()
        if self.goes_on_with_any_data(stored):
            stored = {**stored, "data": self.data, "effort": self.effort, "on_error": self.on_error}
        before |= {name: type(now[name])() for name in _LATER} | dict(stored)
        changed = {
            k: f"{k} was {_typed(k, before.get(k))!r}, now {_typed(k, v)!r}"
            for k, v in now.items()
            if before.get(k) != v
        }
        if "scoring" in changed and "evaluator" not in changed:
            changed["scoring"] += f": scores of {self.evaluator} are computed otherwise since"
        if before["on_error"] == RAISE or not self.data:
            changed.pop("on_error", None)
        elif "on_error" in changed:
            changed["on_error"] += f": go on with --on-error {before['on_error']}"
        return list(changed.values())

    def allows(self, sizes: Iterable[tuple[str, int]]) -> bool:
        """Whether the bytes of a network, by the key that ``--json`` prints, are within the limits."""
        limits = {"file_size_bytes": self.max_file_bytes, "activation_bytes": self.max_activation_bytes}
        return all(not limits[name] or size <= limits[name] for name, size in sizes)

    def check_same(self, stored: Mapping[str, object], study: str) -> None:
        """Refuses a stored study that was asked for anything else.

        Args:
            stored: Plain values of the settings that the study was made with.
            study: Name of the study.

        Raises:
            InvalidValue: It was; names what was asked differently.
        """
        if differences := self.differences(stored, study):
            raise InvalidValue(
                f"study {study!r} exists with other settings: {'; '.join(differences)}; "
                f"repeat it as it was, or choose another name: --study {study}-2"
            )

    def check_same_spaces(self, stored: Mapping[str, object], study: str) -> None:
        """As ``check_same`` for a study of other spaces, before it is known what this one learns from, and how its
        evaluator scores."""
        if stored and (self.space, self.choices) != (stored.get("space"), stored.get("choices")):
            unknown = {"effort": "", "begun_from": "", "scoring": 1}
            kept: Mapping[str, Any] = {name: stored.get(name, before) for name, before in unknown.items()}
            replace(self, **kept).check_same(stored, study)

    def goes_on_with_any_data(self, stored: Mapping[str, object]) -> bool:
        """Whether a stored study has scores of an evaluator of another package, and keeps neither data nor effort."""
        from hwbench.studies.evaluators import MODULES

        return self.evaluator not in MODULES and not (stored.get("data") or stored.get("effort"))

    def as_kept(self, stored: Mapping[str, object]) -> Settings:
        """With the data that scores of a stored study rest on: on others, its networks race alone."""
        return replace(self, data="", effort="") if self.goes_on_with_any_data(stored) else self

    def _rows_by_name(self, study: str) -> str:
        """``missing_rows`` of the settings like these whose default name this is; ``left out`` where it is of none."""
        _, _, device = study.rpartition("_from-")
        for rows in (INTERPOLATED, _TRANSFERRED + device):
            if study == replace(self, missing_rows=rows).default_study:
                return rows
        return LEFT_OUT


def _is_left_out(name: str, value: object) -> bool:
    """Whether a setting is that of studies before there was any other one."""
    return not value if name in _LATER else (name, value) == ("on_error", RAISE)


def _typed(name: str, value: object) -> object:
    """A setting as an option gives it."""
    return "none" if name == "pruner" and not value else value


def check_confidence(confidence: float, name: str) -> None:
    """A confidence is a probability of at least 1/2.

    Raises:
        InvalidValue: It is not; the message begins with ``name``.
    """
    if not EVEN <= confidence < 1:
        raise InvalidValue(f"{name}: expected a probability from {EVEN} to below 1, got {confidence:g}")
