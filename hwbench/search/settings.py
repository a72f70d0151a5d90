"""What a study searches for. Two runs under one name must agree on all of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from optuna.study import StudyDirection

from hwbench.errors import InvalidValue
from hwbench.specs import AUTO

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_RESERVED = ("zoo",)

OBJECTIVES = ("score", "score,latency")


@dataclass(frozen=True)
class Settings:
    """Everything that decides what the trials of a study mean.

    Args:
        space: Name of the search space.
        choices: Digest of the space's choices: an edited space is another space.
        target: Key of the target that latencies hold for.
        precision: ``fp32`` or ``int8``.
        budget_ms: Upper limit of the latency, in milliseconds as they are typed: this is compared between runs.
        num_classes: Width of the logits of the networks that are timed.
        evaluator: Name of the evaluator.
        sampler: Name of the sampler.
        objective: ``score`` (highest score within the budget) or ``score,latency`` (the front of both).
        data: What is trained on, where the evaluator trains.
        effort: How long is trained, where the evaluator trains.
        seed: Of everything random.
    """

    space: str
    choices: str
    target: str
    precision: str
    budget_ms: float
    num_classes: int
    evaluator: str = "entropy"
    sampler: str = "tpe"
    objective: str = "score"
    data: str = ""
    effort: str = ""
    seed: int = 0
    variant: str = AUTO

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InvalidValue(f"objective: expected one of {' or '.join(OBJECTIVES)}, got {self.objective!r}")

    @property
    def budget_s(self) -> float:
        """Upper limit of the latency, in seconds."""
        return self.budget_ms / 1e3

    @property
    def directions(self) -> list[StudyDirection]:
        """What Optuna is to do with the values of a trial."""
        return [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE][: 1 + self.objective.count(",")]

    def as_dict(self) -> dict[str, object]:
        """Plain values, for JSON."""
        return asdict(self)

    def differences(self, stored: Mapping[str, object]) -> list[str]:
        """What a stored study was asked differently, in words."""
        return [f"{k} was {stored.get(k)!r}, now {v!r}" for k, v in self.as_dict().items() if stored.get(k) != v]


def check_name(study: str) -> None:
    """A study's name is a folder and the first half of ``STUDY:best``.

    Raises:
        InvalidValue: It cannot be both.
    """
    if _NAME.fullmatch(study) is None or study in _RESERVED:
        raise InvalidValue(f"study: expected a name of letters, digits, '.', '_' and '-', got {study!r}")
