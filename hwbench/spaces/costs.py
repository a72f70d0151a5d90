"""Choices of any kind whose costs add up: layers and their widths, items and whether they are packed. No video.

The choice before is what reaches a choice, so a score may be additive over neighbours, too.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hwbench.errors import InfeasibleBudget, InvalidValue
from hwbench.printable import shown
from hwbench.spaces.budgets import Budget, jointly_known
from hwbench.spaces.family import Ends, Family, Member
from hwbench.spaces.scales import steps_along
from hwbench.spaces.space import InputSize, StagedSpace
from hwbench.spaces.stages import Stage, StageChoice
from hwbench.spaces.steps import SpaceStep, WholeStage
from hwbench.spaces.sums import CellSums, SpaceSums
from hwbench.spaces.walk import StageSums
from hwbench.specs import Architecture, BlockSpec, TensorSpec
from hwbench.toml_fields import Fields

_NAME = "costs"
# What is chosen stands for no network; these places of a space are held but not read.
_NO_SIZE = InputSize(1, 1)
_AXIS = "value"
_DECIMALS = 6
# Of a cost, by which a float misses the decimal that it stands for; sets allow sums no more.
_ROUNDING = 1e-12
# Units of whole costs within a budget, and places of the tables that count them: 128 MiB.
_MOST_UNITS = 1 << 20
_MOST_PLACES = 1 << 24

Costs = Mapping[str, Mapping[Any, float]]


class CostSpace(StagedSpace):
    """Choices with the values that Optuna's ``suggest_categorical`` takes: text, numbers, booleans, None.

    Args:
        offered: The values of each choice, in order.

    Raises:
        InvalidValue: No choices, a choice without values, or two values of one choice that read the same.
    """

    def __init__(self, offered: Mapping[str, tuple[Any, ...]]) -> None:
        if not offered:
            raise InvalidValue("costs: expected at least one choice")
        for name, values in offered.items():
            texts = [str(value) for value in values]
            if not texts:
                raise InvalidValue(f"costs: {name!r} has no values")
            if len(set(texts)) < len(texts):
                raise InvalidValue(f"costs: two values of {name!r} read the same: {', '.join(texts)}")
        stages = tuple(Stage.of({_AXIS: tuple(str(value) for value in values)}) for values in offered.values())
        super().__init__(_NAME, (1,), (1,), _NoNetworks(), _NoEnds(), stages)
        object.__setattr__(self, "_offered", {name: tuple(values) for name, values in offered.items()})

    @cached_property
    def choices(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(str(value) for value in values) for name, values in self.values.items()}

    @property
    def values(self) -> Mapping[str, tuple[Any, ...]]:
        offered: Mapping[str, tuple[Any, ...]] = self._offered  # type: ignore[attr-defined]
        return offered

    def params(self, architecture: Architecture) -> dict[str, Any]:
        texts = self.choices
        return {name: self.values[name][texts[name].index(text)] for name, text in architecture.choices}

    def of_params(self, params: Mapping[str, Any]) -> Architecture:
        """As of any space; a value that equals an offered one stands for it, as for Optuna: 1.0 and True for 1."""
        return super().of_params({name: self._as_offered(name, value) for name, value in params.items()})

    def _as_offered(self, name: str, value: Any) -> Any:
        offered = self.values.get(name, ())
        return offered[offered.index(value)] if value in offered else value

    @cached_property
    def steps(self) -> tuple[SpaceStep, ...]:
        return tuple(WholeStage(stage, {_AXIS: name}) for stage, name in zip(self.stages, self.values, strict=True))

    def size_texts(self, cell: InputSize) -> dict[str, str]:
        return {}

    def cell(self, architecture: Architecture) -> InputSize:
        return _NO_SIZE


def cost_sums(costs: Costs) -> SpaceSums:
    """Costs, or scores, as sums over a space, in which the value before is what reaches a choice.

    Args:
        costs: By choice and value: any numbers, of scores also below 0; infinity rules a value out.

    Raises:
        InvalidValue: As ``CostSpace``; the costs are no mapping, one is not a number above minus infinity, or there are
            more combinations than a float counts.
    """
    return _sums_by(costs, _number)


def spent_sums(costs: Costs) -> SpaceSums:
    """As ``cost_sums``, of what counts in a budget: none is below 0.

    Raises:
        InvalidValue: As ``cost_sums``; or a cost is below 0.
    """
    return _sums_by(costs, _cost)


def _sums_by(costs: Costs, number: Callable[[str, object, object], float]) -> SpaceSums:
    """Sums over a space of what ``number`` reads of a choice, its value and what is given for them."""
    if not isinstance(costs, Mapping):
        raise InvalidValue(f"costs: expected numbers by choice and value, a dict of dicts, got {shown(costs, 60)}")
    for name, by_value in costs.items():
        if not isinstance(by_value, Mapping):
            raise InvalidValue(f"costs: {name!r}: expected a number by value, got {shown(by_value, 60)}")
    space = CostSpace({name: tuple(by_value) for name, by_value in costs.items()})
    if space.size() > sys.float_info.max:
        raise InvalidValue(
            f"costs: {len(costs)} choices have more combinations than can be counted, {sys.float_info.max:.0e}"
        )
    rows = [[number(name, value, one) for value, one in by_value.items()] for name, by_value in costs.items()]
    return _sums(space, [np.array(row) for row in rows])


def _sums(space: CostSpace, rows: Sequence[npt.NDArray[np.float64]]) -> SpaceSums:
    """Sums over a space, whatever the value before is; ``rows`` are numbers by choice and value.

    The channels that reach a step stand for the value before, and are close where it is close.
    """
    stages: list[StageSums] = []
    before = [0]
    for row, scale in zip(rows, space.choices.values(), strict=True):
        last = len(stages) == len(rows) - 1
        out = np.zeros(len(row), np.int64) if last else np.arange(len(row))
        inputs = tuple(TensorSpec(1, step + 1, 1, 1, 1) for step in before)
        stages.append(StageSums(inputs, np.tile(row, (len(before), 1)), np.tile(out, (len(before), 1))))
        before = steps_along(scale).tolist()
    return SpaceSums(space, space.steps, (CellSums(_NO_SIZE, 0.0, tuple(stages)),), num_classes=1)


def of_choices(scores: SpaceSums, space: StagedSpace) -> SpaceSums:
    """Scores with the choices and the values in the order of a space; those of networks stay as they are.

    Raises:
        InvalidValue: They are of other choices or values, or in another order one depends on the value before.
    """
    if not isinstance(space, CostSpace) or list(scores.space.choices.items()) == list(space.choices.items()):
        return scores
    theirs = scores.space.choices
    for name in dict.fromkeys((*space.choices, *theirs)):
        values, offered = theirs.get(name, ()), space.choices.get(name, ())
        if sorted(values) != sorted(offered):
            raise InvalidValue(
                f"scores: expected for {name!r} the values {', '.join(offered) or 'none'}, got "
                f"{', '.join(values) or 'none'}"
            )
    (cell,) = scores.cells
    if any((stage.seconds != stage.seconds[0]).any() for stage in cell.stages):
        raise InvalidValue(
            "scores: expected choices and values in the order of the costs, as one depends on the one before"
        )
    by_name = {name: dict(zip(theirs[name], stage.seconds[0])) for name, stage in zip(theirs, cell.stages, strict=True)}
    return _sums(
        space, [np.array([by_name[name][value] for value in values]) for name, values in space.choices.items()]
    )


def cost_budgets(costs: Mapping[str, Costs], budgets: Mapping[str, float], most: int) -> list[Budget]:
    """Several budgets of the same choices.

    Args:
        costs: As for ``spent_sums``, by the name of the budget; the first ones tell the order.
        budgets: By the same names.
        most: Units of whole costs that are counted, see ``common_unit``.

    Raises:
        InvalidValue: As ``spent_sums``; or the names differ, the choices do, or a budget is not above zero.
        InfeasibleBudget: All values of a choice are ruled out, by one budget or several together.
    """
    if not budgets or costs.keys() != budgets.keys():
        raise InvalidValue(
            f"costs: expected those of {', '.join(budgets) or 'at least one budget'}, got those of "
            f"{', '.join(costs) or 'none'}"
        )
    limits = {name: cost_budget(limit, name) for name, limit in budgets.items()}
    for by_choice in costs.values():  # each by itself, before they are compared
        spent_sums(by_choice)
    first = next(iter(costs.values()))
    ordered = {name: _in_order_of(first, by_choice, name, next(iter(costs))) for name, by_choice in costs.items()}
    sums = {name: spent_sums(by_choice) for name, by_choice in ordered.items()}
    for choice, values in first.items():
        if all(any(math.isinf(_cost(choice, v, one[choice][v])) for one in ordered.values()) for v in values):
            raise InfeasibleBudget(f"{choice!r} has only values that are ruled out, by infinite costs")
    known = dict(zip(sums, jointly_known(list(sums.values())), strict=True))
    return [
        Budget(name, limit, known[name], f"{name} =", unit=common_unit(known[name], limit, most))
        for name, limit in limits.items()
    ]


def _in_order_of(first: Costs, other: Costs, name: str, first_name: str) -> Costs:
    """Costs with choices and values in the order of the first ones.

    Raises:
        InvalidValue: They are of other choices or values.
    """
    if other.keys() != first.keys() or any(other[choice].keys() != values.keys() for choice, values in first.items()):
        raise InvalidValue(f"costs: {name!r} has other choices or values than {first_name!r}")
    return {choice: {value: other[choice][value] for value in values} for choice, values in first.items()}


def common_unit(sums: SpaceSums, budget: float, most: int) -> float | None:
    """The largest number of which all costs are whole multiples, where at most ``most`` of it are within the budget.

    Costs with up to six decimals are looked at; None where there is no such number.
    """
    costs = np.unique(np.concatenate([stage.seconds.ravel() for cell in sums.cells for stage in cell.stages]))
    costs = costs[np.isfinite(costs) & (costs > 0) & (costs <= budget * (1 + _ROUNDING))]
    if not len(costs):  # nothing but zeros, and what is beyond the budget
        return budget or 1.0
    for decimals in range(_DECIMALS + 1):
        scaled = costs * 10.0**decimals
        whole = np.rint(scaled)
        if whole.all() and (np.abs(scaled - whole) <= _ROUNDING * scaled).all():
            unit = math.gcd(*(int(value) for value in whole)) / 10.0**decimals
            return unit if budget / unit <= most else None
    return None


def unit_within(sums: SpaceSums, budget: float, most: int, unit: float | None) -> float | None:
    """The unit of a set whose budget is changed: of costs others may be within it, so it is looked for anew.

    Args:
        sums: Of the set.
        budget: The new one.
        most: As for ``common_unit``.
        unit: The one before, which stays where the sums are those of networks.
    """
    return common_unit(sums, budget, most) if isinstance(sums.space, CostSpace) else unit


def most_units(sums: SpaceSums, least: int) -> int:
    """How many units of whole costs are counted for one budget: as many as a table has room for, or ``least``."""
    rows = sum(len(stage.seconds) for cell in sums.cells for stage in cell.stages)
    return max(least, min(_MOST_UNITS, _MOST_PLACES // rows))


def cost_budget(value: object, name: str = "") -> float:
    """What combinations may cost; ``name`` is that of the budget, where there are several.

    Raises:
        InvalidValue: It is not a finite number of 0 or more; one of several budgets, of which shares are taken, is not
            above zero.
    """
    number = _real(value)
    if not 0 <= number < math.inf or (name and not number):
        least = "above zero" if name else "of 0 or more"
        raise InvalidValue(f"budget{name and ' '}{name}: expected a finite number {least}, got {shown(value, 60)}")
    return number


def _cost(name: str, value: object, cost: object) -> float:
    number = _real(cost)
    if not number >= 0:
        raise InvalidValue(f"costs: {name!r} = {value!r}: expected a number of 0 or more, got {shown(cost, 60)}")
    return number


def _number(name: str, value: object, given: object) -> float:
    number = _real(given)
    if not number > -math.inf:
        raise InvalidValue(
            f"{name!r} = {value!r}: expected a number, or infinity to rule it out, got {shown(given, 60)}"
        )
    return number


def _real(value: object) -> float:
    """A number as a float; NaN where it is none, or beyond all floats."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        return math.nan
    try:
        return float(value)
    except (OverflowError, ValueError):
        return math.nan


class _NoNetworks(Family):
    """Choices of costs stand for no blocks; nothing that works on costs asks for any."""

    name = _NAME
    axes = ()

    def ends(self, fields: Fields) -> Ends:
        raise NotImplementedError

    def card(self, fields: Fields) -> Member:
        raise NotImplementedError

    def stage(self, choice: StageChoice, x: TensorSpec) -> tuple[BlockSpec, ...]:
        raise NotImplementedError


class _NoEnds(Ends):
    """Nor is there a stem or a head."""

    def stem(self) -> BlockSpec:
        raise NotImplementedError

    def head(self, last: StageChoice, x: TensorSpec, num_classes: int) -> BlockSpec:
        raise NotImplementedError

    def parts(self) -> Mapping[str, object]:
        return {}
