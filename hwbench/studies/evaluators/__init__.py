"""How good a network is. Evaluators are known by name here and imported on use, because some of them load torch."""

from __future__ import annotations

import importlib

from hwbench.studies.evaluators.base import AdditiveEvaluator, Context, Evaluator, Trainer, evaluators

# Name on the command line -> module; the module registers the class.
MODULES = {"entropy": "entropy", "short-train": "short_train", "zero-cost": "zero_cost"}


def get(name: str) -> type[Evaluator]:
    """The evaluator of that name; loads its module.

    Raises:
        UnknownName: There is none.
    """
    if name in MODULES:
        importlib.import_module(f"{__name__}.{MODULES[name]}")
    elif name not in evaluators:
        from hwbench.errors import UnknownName
        from hwbench.registry import suggest

        raise UnknownName(f"unknown evaluator {name!r}; {suggest(name, {*MODULES, *evaluators.names()})}")
    return evaluators.get(name)


__all__ = ["AdditiveEvaluator", "Context", "Evaluator", "Trainer", "evaluators", "get"]
