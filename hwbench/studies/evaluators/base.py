"""The contract of an evaluator: how good a network is, as one number, larger is better.

To add one: a file here whose class is decorated with ``@evaluators.register(NAME)``, and its line in ``__init__.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from hwbench.registry import Registry
from hwbench.specs import BlockSpec, Network, TensorSpec

# Trains a network shortly with a seed and returns its top-1 accuracy, a fraction 0-1.
Trainer = Callable[[Network, int], float]


@dataclass(frozen=True)
class Context:
    """What an evaluator may use.

    Args:
        seed: Everything random in a score follows from it; the same network has the same score in every process.
        reference: Draws that many networks of the feasible set, uniformly and always the same.
        trainer: Short training on the study's data, where that was asked for.
    """

    seed: int
    reference: Callable[[int], Sequence[Network]]
    trainer: Trainer | None = None


class Evaluator(Protocol):
    """Made once for a study. ``unit`` says what a score is, for people."""

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


evaluators: Registry[type[Evaluator]] = Registry("evaluator", entry_points="hwbench.evaluators")
