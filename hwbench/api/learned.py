"""What trainings of before say of the networks of a space, and a model of them."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from hwbench.api.study_data import Fidelity
from hwbench.api.train_request import RAISE
from hwbench.errors import InvalidValue
from hwbench.printable import counted, printable

if TYPE_CHECKING:
    from hwbench.spaces.protocols import NetworkSums
    from hwbench.specs import Architecture
    from hwbench.studies.fidelities import ScoreObservation
    from hwbench.studies.fitted_scores import FittedScores
    from hwbench.studies.left_out import LeftOut
    from hwbench.studies.settings import Settings

# Networks that are left out one by one, at most, to say what the model is worth: each is a fit of its own.
_LEFT_OUT = 64
TOP1 = "top-1"
# Of the recipe that trainings have unless somebody says otherwise; ``Recipe`` is in a package that loads torch.
DEFAULT_OPTIMIZER = "muon"
# The version of scores of short trainings whose default recipe had SGD; they are far below those of Muon.
_WITH_SGD = 1
# How a training stood at the time of which a row tells.
ENDED, GIVEN_UP, WENT_ON = "ended", "given up", "went on"
# What is seen by networks that look ahead, where those of the study are causal.
OF_CLIPS = "clips"


@dataclass(frozen=True)
class LearnedTraining:
    """What one training said of a network, how long it was by then, and on which data; empty: not known.

    ``made`` is how a study trained it, ``Settings`` without what is about latency; None: not by a study. ``state`` says
    whether the training had ended there, was given up by a pruner, or went on.
    """

    architecture: str
    score: float
    fidelity: Fidelity
    training: int
    data: str = ""
    made: TrainingSettings | None = None
    state: str = ENDED


@dataclass(frozen=True)
class TrainingSettings:
    """What a score of a study follows from, besides the network: the same training again would give the same."""

    evaluator: str
    scoring: int
    data: str
    effort: str
    seed: int
    num_classes: int
    modality: str
    on_error: str = RAISE

    @classmethod
    def of(cls, settings: Settings) -> TrainingSettings:
        return cls(*(getattr(settings, name) for name in cls.__dataclass_fields__))

    def repeats(self, made: TrainingSettings | None) -> bool:
        """Whether trainings of these settings would only repeat those that were made so.

        Where unreadable videos were errors there were none, so that nothing could have been left out.
        """
        if made is None or made.on_error not in (RAISE, self.on_error):
            return False
        return replace(made, on_error=self.on_error) == self


@dataclass(frozen=True)
class Learned:
    """Trainings of the networks of one space, or of a union of some.

    Attributes:
        sources: Where they are from.
        unit: What their scores are, as ``unit_of`` names it.
        trained: What they said.
        data: What scores are predicted on, of ``datas``; empty: on the data of the longest trainings.
    """

    sources: tuple[str, ...]
    unit: str
    trained: tuple[LearnedTraining, ...]
    data: str = ""

    @property
    def datas(self) -> tuple[str, ...]:
        """What they were trained on, as far as that is known."""
        return tuple(dict.fromkeys(one.data for one in self.trained if one.data))

    @property
    def videos(self) -> tuple[str, ...]:
        """The same, whatever networks saw of it; an empty text where that is not known of some."""
        from hwbench.spaces.begun import videos_of  # its package loads NumPy

        return tuple(dict.fromkeys(videos_of(one.data) for one in self.trained))

    @property
    def predicted(self) -> str:
        """The data on which scores are predicted; empty: not known."""
        return self.data or _longest(self.trained).data

    @property
    def as_before(self) -> Learned:
        """As versions of before read and used them, by which studies that kept none of them are known again."""
        return replace(self, trained=tuple(one for one in self.trained if one.state != WENT_ON), data="")

    @property
    def observations(self) -> tuple[ScoreObservation, ...]:
        """What they said; the longest trainings on the data that is predicted are at full length."""
        return self.at(_longest(self._here).fidelity, self.predicted)

    @property
    def _here(self) -> list[LearnedTraining]:
        """Trainings on the data that is predicted; those on data that are not known count as such."""
        return [one for one in self.trained if not self.predicted or one.data in ("", self.predicted)]

    def predicting(self, data: str) -> Learned:
        """The same, to predict scores on this data; where none were trained on it, on that of the studies.

        Args:
            data: What is asked for (``seen``); empty: that is left open.

        Raises:
            InvalidValue: There are several, and nothing says which.
        """
        from hwbench.spaces.begun import videos_of

        if chosen := self._chosen(data):
            return replace(self, data=chosen)
        if len(self.datas) < 2:
            return self
        networks = {data: len({one.architecture for one in self.trained if one.data == data}) for data in self.datas}
        most = shlex.quote(videos_of(max(networks, key=networks.__getitem__)))
        raise InvalidValue(
            f"--learn-from {', '.join(self.sources)}: networks were trained on {' and '.join(self.datas)}; say on "
            f"which of them scores are predicted: --evaluator fitted --data {most}"
        )

    def beside(self, data: str) -> Learned:
        """The same, for a study that trains on this data itself, which no training of before need be on."""
        return replace(self, data=self._chosen(data))

    def _chosen(self, data: str) -> str:
        """Which data is predicted; empty: nothing says it."""
        from hwbench.spaces.begun import videos_of

        of_studies = dict.fromkeys(one.data for one in self.trained if one.data and one.made is not None)
        alike = [one for one in self.datas if videos_of(one) == data]  # seen as another modality
        choices = ([data] if data in self.datas else [], alike, self.datas, list(of_studies))
        return next((one[0] for one in choices if len(one) == 1), "")

    def at(self, full: Fidelity, data: str) -> tuple[ScoreObservation, ...]:
        """What they said, beside trainings of this length on this data."""
        from hwbench.specs import Architecture
        from hwbench.studies.fidelities import ScoreObservation, doublings

        found = []
        for one in self.trained:
            amounts = (
                doublings(one.fidelity.epochs, full.epochs),
                doublings(one.fidelity.frames_share, full.frames_share),
                doublings(one.fidelity.resolution_share, full.resolution_share),
            )
            apart = amounts if any(amounts) else ()
            architecture, elsewhere = Architecture.parse(one.architecture), bool(one.data and data) and one.data != data
            given_up = one.state == GIVEN_UP
            found.append(ScoreObservation(architecture, one.score, apart, -1 - one.training, elsewhere, given_up))
        return tuple(found)

    def same_as(self, settings: Settings) -> dict[str, float]:
        """Scores by architecture of the trainings that a study of these settings would only repeat."""
        now = TrainingSettings.of(settings)
        return {one.architecture: one.score for one in self.trained if now.repeats(one.made) and one.state == ENDED}

    def check_unit(self, evaluator: str) -> None:
        """Refuses scores of another unit than a study's own.

        Raises:
            InvalidValue: They are.
        """
        from hwbench.studies.evaluators import get, scoring_of

        if (wanted := unit_of(evaluator, scoring_of(get(evaluator)))) != self.unit:
            raise InvalidValue(
                f"--learn-from {', '.join(self.sources)}: scores there are {self.unit}, those of --evaluator "
                f"{evaluator} are {wanted}; what is learned from together is of one unit"
            )

    @property
    def effort(self) -> str:
        """What a study keeps that is scored by them: other trainings, and other data, make other scores."""
        usual = len(self.datas) < 2 or self.predicted == _longest(self.trained).data
        return self._label("" if usual else self.predicted)

    @property
    def begun_from(self) -> str:
        """What a study keeps that trains networks itself."""
        return self._label("")

    def _label(self, more: str) -> str:
        longest = _longest(self.trained)
        rows = self.at(longest.fidelity, longest.data)
        text = repr([(one.architecture.key, one.score, one.fidelity) for one in rows]) + more
        return f"learned from {self} ({hashlib.sha256(text.encode()).hexdigest()[:12]})"

    def __str__(self) -> str:
        networks = len({one.architecture for one in self.observations})
        return f"{networks} networks of {', '.join(self.sources)}"

    def scores(self, sums: NetworkSums) -> FittedScores:
        """The model; ``sums`` are any over the space."""
        from hwbench.studies.fitted_scores import FittedScores

        return FittedScores(sums, self.observations)

    def left_out(self, sums: NetworkSums) -> LeftOut | None:
        """What the model is worth on networks that it was not learned from; None: too few to say.

        By trainings on the data that is predicted: scores of other data have a level of their own, by which a model
        that says nothing would tell the networks of one data set from those of another.
        """
        from hwbench.studies.fitted_scores import FittedScores
        from hwbench.studies.left_out import LeftOut
        from hwbench.studies.ranking import rank_interval
        from hwbench.studies.scoreboard import FEWEST

        full: dict[Architecture, list[float]] = {}
        for one in self.observations:
            if not any(one.fidelity) and not one.elsewhere:
                full.setdefault(one.architecture, []).append(one.score)
        judged = sorted(full, key=lambda one: -len(full[one]))[:_LEFT_OUT]
        if len(judged) < FEWEST:
            return None
        left_out = FittedScores(sums, self.observations, leave_out=True)
        predictions, truths = [left_out.predict(one) for one in judged], [fmean(full[one]) for one in judged]
        tau = rank_interval([one.mean for one in predictions], truths, [0] * len(judged))
        return LeftOut(len(judged), tau, fmean(one.deviation for one in predictions))

    def describe(self, left_out: LeftOut | None, *, beside: bool = False) -> str:
        """What is predicted, where that is a question, and what the model is worth; for people.

        Args:
            left_out: Of networks that the model was not learned from.
            beside: For a study that trains networks itself, whose own data is predicted.
        """
        text = f"learned from {self}"
        if len(self.datas) > 1:
            here = counted(len({one.architecture for one in self._here}), "network")
            role = "judged by those on" if beside else "scores are predicted on"
            text += f"; {role} {printable(self.predicted, 300)} ({here})"
        if left_out is None:
            return f"{text}: too few to say what that is worth"
        verdict = "" if left_out.informative else f"; uninformative: {left_out.doubt}"
        told = f"{left_out}, a prediction is uncertain by {left_out.deviation:.2g}{verdict}"
        return f"{text}; of those left out one by one {told}"


def seen(data: str, modality: str) -> str:
    """What networks were trained on: videos, and what they saw of them where that is not what the study's own see.

    Args:
        data: The videos; empty: not known.
        modality: A form of optical flow, or ``OF_CLIPS``; empty: as the study has it.
    """
    return f"{data} as {modality}" if modality else data


def _amount(fidelity: Fidelity) -> float:
    """What a training of this length costs, relative to others."""
    return fidelity.epochs * fidelity.frames_share * fidelity.resolution_share**2


def _longest(trained: Sequence[LearnedTraining]) -> LearnedTraining:
    """The training that costs most; the first of several."""
    return max(trained, key=lambda one: _amount(one.fidelity))


def unit_of(evaluator: str, scoring: int) -> str:
    """What scores of an evaluator are; those of one unit are learned from together."""
    unit = evaluator if evaluator == "curve" else TOP1
    return unit if scoring > _WITH_SGD else with_optimizer(unit, "sgd")


def with_optimizer(unit: str, optimizer: str) -> str:
    """A unit of trainings with an optimizer; that of the default recipe goes without saying, and one not known."""
    names = {"": "", DEFAULT_OPTIMIZER: "", "sgd": "SGD"}
    name = names.get(optimizer, printable(optimizer, 60))
    return f"{unit} of trainings with {name}" if name else unit
