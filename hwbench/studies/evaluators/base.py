"""The contract of an evaluator: how good a network is, as one number, larger is better.

To add one: a file here whose class is decorated with ``@evaluators.register(NAME)``, and its line in ``__init__.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from hwbench.errors import InvalidValue
from hwbench.printable import shown
from hwbench.registry import Registry, class_with
from hwbench.specs import BlockSpec, Network, TensorSpec

if TYPE_CHECKING:
    import torch

    from hwbench.spaces.protocols import NetworkSums
    from hwbench.studies.fitted_scores import FittedScores

# Trains a network shortly with a seed and returns its top-1 accuracy, a fraction 0-1.
Trainer = Callable[[Network, int], float]
# Hears the number of an epoch, from 0, and a number that belongs to it; what it raises ends what calls it.
Report = Callable[[int, float], None]


class Losses(Protocol):
    """Trains a network shortly with a seed, without a test."""

    def __call__(self, network: Network, seed: int, report: Report) -> None:
        """Reports the mean training loss of each epoch in nats, in order, after the epoch.

        A loss that is not finite is the last one.
        """
        ...


class TestedTrainer(Protocol):
    """Trains a network shortly with a seed, with a test after each epoch."""

    def __call__(self, network: Network, seed: int, report: Report) -> float:
        """Top-1 accuracy at the end, a fraction 0-1, as ``Trainer`` has it; reports that of each epoch, in order."""
        ...


class ClipReader(Protocol):
    """Clips of the study's data."""

    def __call__(self, input: TensorSpec, count: int, seed: int, network: Network | None = None) -> torch.Tensor:
        """The same ``count`` training videos for every input, float32 (count, 3, T, H, W).

        As ``network`` takes them: over the time that its space says, and normalised as a model by hand says. Without
        one they are those of the data, normalised as for hwbench's own blocks.
        """
        ...


@dataclass(frozen=True)
class Context:
    """What an evaluator may use.

    Args:
        seed: Everything random in a score follows from it; the same network has the same score in every process.
        reference: Draws that many networks of the feasible set, uniformly and always the same.
        trainer: Short training on the study's data, where there are data.
        losses: The training losses of the same, where there are data.
        clips: Clips of the study's data, where there are data. Nothing is read before the first call.
        inherited: Top-1 of a network with the weights of the study's supernet, where there are data.
        fitted: What trainings of other networks of the space say, where there are any.
        tested: ``trainer`` with a test after each epoch, where there are data.
    """

    seed: int
    reference: Callable[[int], Sequence[Network]]
    trainer: Trainer | None = None
    losses: Losses | None = None
    clips: ClipReader | None = None
    inherited: Callable[[Network], float] | None = None
    fitted: FittedScores | None = None
    tested: TestedTrainer | None = None


class Evaluator(Protocol):
    """Made once for a study. ``unit`` says what a score is, for people.

    Optional: ``scoring``, the version of what scores mean (``scoring_of``), ``basis``, what a score rests on and costs,
    in a few words, and ``judged``, what is known against it and by what experiment (``judgement``).
    """

    name: ClassVar[str]
    unit: ClassVar[str]

    def __init__(self, context: Context) -> None: ...

    def score(self, network: Network) -> float:
        """How good a network is; the same for the same network. Not a number means that it could not be told."""
        ...


@runtime_checkable
class AdditiveEvaluator(Protocol):
    """An evaluator whose score is a sum over blocks: its best network within a budget is found exactly."""

    def block_score(self, block: BlockSpec, x: TensorSpec) -> float:
        """What a block adds to the score of a network."""
        ...


@runtime_checkable
class SummedEvaluator(Protocol):
    """An evaluator that has the scores of a whole space as sums over stages: its best network is found exactly, too."""

    def score_sums(self) -> NetworkSums:
        """The sum of a network is its score."""
        ...


@runtime_checkable
class ReportingEvaluator(Protocol):
    """An evaluator that knows a score before it is done with a network, so that one that is behind can be given up."""

    def score_reporting(self, network: Network, report: Report) -> float:
        """``score``, with the score so far reported after each epoch; what ``report`` raises ends the work."""
        ...


evaluators: Registry[type[Evaluator]] = Registry(
    "evaluator", entry_points="hwbench.evaluators", expects=class_with("name", "unit", "score")
)


def block_scores(evaluator: AdditiveEvaluator) -> Callable[[BlockSpec, TensorSpec], float]:
    """``block_score`` of an evaluator, which raises InvalidValue where a score is no finite number."""

    def score(block: BlockSpec, x: TensorSpec) -> float:
        value = float(evaluator.block_score(block, x))
        if not math.isfinite(value):
            raise InvalidValue(
                f"{_title(type(evaluator))}: expected a finite score of block {block} on {x}, got {value}"
            )
        return value

    return score


def scoring_of(evaluator: type[Evaluator]) -> int:
    """Version of what the scores of an evaluator mean, from 1; raised whenever a network gets another score.

    Scores of two versions do not mix in a study.

    Raises:
        InvalidValue: It is no number.
    """
    scoring = getattr(evaluator, "scoring", 1)
    try:
        return int(scoring)
    except (TypeError, ValueError):
        raise InvalidValue(
            f"{_title(evaluator)}: expected a whole number as its scoring, got {shown(scoring)}"
        ) from None


def _title(evaluator: type) -> str:
    """What messages call an evaluator."""
    return evaluators.origin(evaluator) or f"evaluator {getattr(evaluator, 'name', evaluator.__name__)!r}"


def describe(evaluator: type[Evaluator]) -> str:
    """Unit and basis of a score, for people."""
    basis = getattr(evaluator, "basis", "")
    return f"{evaluator.unit}; {basis}" if basis else evaluator.unit


def judgement(evaluator: type[Evaluator], networks: float = math.inf) -> str | None:
    """What speaks against the scores of an evaluator, for people; None: nothing that is known.

    Args:
        evaluator: Scores them.
        networks: How many there are to choose from; of a single one no score has to tell anything.
    """
    judged = getattr(evaluator, "judged", "")
    if not judged or networks < 2:
        return None
    return (
        f"{evaluator.name}: {judged}; train what it finds (--finalists 4), or score by training "
        "(--evaluator short-train --data DATA)"
    )
