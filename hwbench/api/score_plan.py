"""By what a search scores networks, how many of them, and how long: what a request says, and what it leaves open."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwbench.api.search_request import SearchRequest

# With data and without: experiment 019 found networks ahead of random ones by training, at four budgets of four, and
# experiment 018 found that the closed form, which costs nothing, ranks no better than by chance.
WITH_DATA, WITHOUT_DATA = "short-train", "entropy"
# With trainings to begin from and no data: what is learned from them ranks better than the closed form (031, 036).
LEARNED = "fitted"
SYNTHETIC_DATA = "synthetic"
# Networks, epochs of one, and how many race. All are trained to the end: the sampler learns as much from whole
# trainings as from as many epochs of more networks that are given up on the way, and more networks are worth more than
# a longer race (experiment 032). Whole trainings of half the length find what learns fast (experiment 031).
TRAINED_TRIALS, TRAINED_EPOCHS, TRAINED_FINALISTS = 24, 12, 2
ASHA, NO_PRUNER = "asha", "none"
# Passes of the one training of all networks within a budget.
SUPERNET_EPOCHS = 30
# Whose accuracy a race is about: that of the trained network, or of its int8 file.
FINALIST_SCORES = ("fp32", "int8")
# Of evaluators that train nothing, whose networks cost a second at most.
TRIALS = 64
# Where the time of a study says how many networks are scored.
MOST_TRIALS = 10_000


@dataclass(frozen=True)
class ScorePlan:
    """How networks of a study are scored, with everything decided.

    Attributes:
        evaluator: Name of the evaluator.
        data: What is trained on or looked at, by evaluators and finalists that do.
        trials: Networks to score in all; with a time limit at most.
        epochs: Of a training, for evaluators that train.
        finalists: Networks that race in the end; 0: none.
        pruner: Which networks are given up on the way (``hwbench.studies.pruning``), or ``none``.
        finalist_epochs: Of the first round of a race.
        finalist_score: One of ``FINALIST_SCORES``.
        supernet_epochs: Of the training of a supernet.
    """

    evaluator: str
    data: str
    trials: int
    epochs: int
    finalists: int
    pruner: str = NO_PRUNER
    finalist_epochs: int = TRAINED_EPOCHS
    finalist_score: str = FINALIST_SCORES[0]
    supernet_epochs: int = SUPERNET_EPOCHS

    @classmethod
    def of(cls, request: SearchRequest) -> ScorePlan:
        """What a request says; what it leaves open follows from its data, and from what the evaluator costs."""
        from hwbench.studies.evaluators import TRAINING

        evaluator = request.evaluator or _default(request)
        trains = evaluator in TRAINING
        return cls(
            evaluator,
            SYNTHETIC_DATA if request.data is None else request.data,
            request.trials or (MOST_TRIALS if request.time else TRAINED_TRIALS if trains else TRIALS),
            request.epochs or TRAINED_EPOCHS,
            (TRAINED_FINALISTS if trains else 0) if request.finalists is None else request.finalists,
            request.pruner or NO_PRUNER,
            request.finalist_epochs or TRAINED_EPOCHS,
            request.finalist_score or FINALIST_SCORES[0],
            request.supernet_epochs or SUPERNET_EPOCHS,
        )

    @property
    def trains(self) -> bool:
        """Whether networks are scored by training them."""
        from hwbench.studies.evaluators import TRAINING

        return self.evaluator in TRAINING

    @property
    def reads(self) -> bool:
        """Whether scores rest on data, or may: what an evaluator of another package does with it is not known."""
        from hwbench.studies.evaluators import READING

        return self.evaluator in READING or self.of_others

    @property
    def of_others(self) -> bool:
        """Whether the evaluator is of another package, which may train with what a study offers."""
        from hwbench.studies.evaluators import MODULES

        return self.evaluator not in MODULES


def _default(request: SearchRequest) -> str:
    if request.data is not None:
        return WITH_DATA
    return LEARNED if request.sources else WITHOUT_DATA


def going_on(request: SearchRequest, stored: Mapping[str, object]) -> SearchRequest:
    """A request, with the evaluator, the data, the epochs and the pruner of a stored study where it leaves them open.

    So are the trainings that it began from, and the epochs of its supernet.

    Args:
        request: What is asked for.
        stored: Settings of the study that goes on (``hwbench.studies.stored_settings``); empty: it begins.

    Raises:
        InvalidValue: The evaluator of the study does not go with the rest of the request.
    """
    from hwbench.spaces.begun import learned_sources

    evaluator, data, effort = stored.get("evaluator"), stored.get("data"), stored.get("effort")
    sources = learned_sources(str(stored.get("begun_from") or effort))
    if sources and not request.learn_from and request.evaluator in (None, evaluator):
        request = replace(request, learn_from=sources)
    if request.evaluator is None and isinstance(evaluator, str) and evaluator:
        request = replace(request, evaluator=evaluator)
    if request.data is None and request.reads and isinstance(data, str) and data:
        request = replace(request, data=data)
    epochs = re.match(r"([1-9][0-9]{0,5}) epochs", str(effort))
    if request.epochs is None and (request.trains or request.plan.of_others) and epochs:
        request = replace(request, epochs=int(epochs[1]))
    shared = re.fullmatch(r"supernet of ([1-9][0-9]{0,5}) epochs", str(effort))
    if request.supernet_epochs is None and request.plan.evaluator == evaluator and shared:
        request = replace(request, supernet_epochs=int(shared[1]))
    if request.pruner is None and stored:
        request = replace(request, pruner=str(stored.get("pruner") or NO_PRUNER))
    return request


def racing_as_asked(request: SearchRequest, asked: Mapping[str, str]) -> SearchRequest:
    """A request, with the epochs and the score of a race that a study was asked for last, where it leaves them open.

    Args:
        request: What is asked for.
        asked: Options of the last command of the study (``hwbench.spaces.begun.asked_options``).
    """
    epochs, score = asked.get("finalist-epochs", ""), asked.get("finalist-score")
    if request.finalist_epochs is None and re.fullmatch(r"[1-9][0-9]{0,5}", epochs):
        request = replace(request, finalist_epochs=int(epochs))
    if request.finalist_score is None and score in FINALIST_SCORES:
        request = replace(request, finalist_score=score)
    return request


def racing_as_many(request: SearchRequest, asked: Mapping[str, str]) -> SearchRequest:
    """A request, with as many finalists as the last race of a study had, where it leaves them open.

    Args:
        request: What is asked for.
        asked: Options of the last race (``hwbench.api.finalists.last_race``).
    """
    finalists = asked.get("finalists", "")
    if request.finalists is None and re.fullmatch(r"[1-9][0-9]{0,5}", finalists) and finalists != "1":
        return replace(request, finalists=int(finalists))
    return request
