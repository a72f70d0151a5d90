"""How good a network is. Evaluators are known by name here and imported on use, because some of them load torch."""

from __future__ import annotations

from hwbench.studies.evaluators.base import (
    AdditiveEvaluator,
    ClipReader,
    Context,
    Evaluator,
    Losses,
    Report,
    ReportingEvaluator,
    SummedEvaluator,
    TestedTrainer,
    Trainer,
    block_scores,
    describe,
    evaluators,
    judgement,
    scoring_of,
)

# Name on the command line -> module; the module registers the class.
MODULES = {
    "curve": "curve",
    "entropy": "entropy",
    "fitted": "fitted",
    "short-train": "short_train",
    "supernet": "supernet",
    "zero-cost": "zero_cost",
}
# Those that train a network, and those that look at the study's data at all.
TRAINING = frozenset(("curve", "short-train"))
READING = TRAINING | {"supernet", "zero-cost"}
evaluators.defer({name: f"{__name__}.{module}" for name, module in MODULES.items()})


def get(name: str) -> type[Evaluator]:
    """The evaluator of that name; loads its module.

    Raises:
        UnknownName: There is none.
        MissingDependency: The package that offers it does not load.
    """
    return evaluators.get(name)


__all__ = [
    "AdditiveEvaluator",
    "ClipReader",
    "Context",
    "Evaluator",
    "Losses",
    "Report",
    "ReportingEvaluator",
    "SummedEvaluator",
    "TestedTrainer",
    "Trainer",
    "block_scores",
    "describe",
    "evaluators",
    "get",
    "judgement",
    "scoring_of",
]
