"""How good a network is. Evaluators are known by name here and imported on use, because some of them load torch."""

from __future__ import annotations

from hwbench.studies.evaluators.base import AdditiveEvaluator, Context, Evaluator, Trainer, evaluators

# Name on the command line -> module; the module registers the class.
MODULES = {"entropy": "entropy", "short-train": "short_train", "zero-cost": "zero_cost"}
evaluators.defer({name: f"{__name__}.{module}" for name, module in MODULES.items()})


def get(name: str) -> type[Evaluator]:
    """The evaluator of that name; loads its module.

    Raises:
        UnknownName: There is none.
        MissingDependency: The package that offers it does not load.
    """
    return evaluators.get(name)


__all__ = ["AdditiveEvaluator", "Context", "Evaluator", "Trainer", "evaluators", "get"]
