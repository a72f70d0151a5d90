"""The devices of a search: their tables, the networks within their budgets, and what measures on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hwbench.api.listener import Listener
from hwbench.api.prediction import check_donor, installed_target, table_predictor
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.api.search_request import SearchRequest
    from hwbench.latency import AdditivePredictor
    from hwbench.spaces import StagedSpace
    from hwbench.spaces.feasible import FeasibleSet
    from hwbench.specs import Target
    from hwbench.studies.confirmation import DeviceBudget, MeasureNetworks
    from hwbench.studies.settings import Settings
    from hwbench.workspace import Workspace


def predictors(request: SearchRequest, workspace: Workspace, listener: Listener) -> tuple[list[AdditivePredictor], int]:
    """What predicts on each device, and the number of classes of all of them.

    Raises:
        InvalidValue: The tables have heads for different numbers of classes; or as ``table_predictor``.
        NotMeasured: A device has no table.
        UnknownName: No such device.
    """
    from hwbench.devices import load_device
    from hwbench.specs import Precision

    for device in request.devices:
        load_device(workspace, device)
    check_donor(workspace, request.transfer_from)
    targets = [installed_target(device, request.runtime, request.threads) for device in request.devices]
    precision, filling = Precision.parse(request.precision), (request.interpolate, request.transfer_from)
    known = {
        target.device: table_predictor(
            workspace, target, precision, request.space, request.classes, request.allow_emulated, filling,
            listener=listener,
        )
        for target in targets
    }  # fmt: skip
    classes = {device: number for device, (_, number) in known.items()}
    if len(set(classes.values())) > 1:
        counts = ", ".join(f"{number} on {device}" for device, number in classes.items())
        raise InvalidValue(f"tables have heads for different numbers of classes: {counts}; choose one with --classes")
    return [predictor for predictor, _ in known.values()], next(iter(classes.values()))


def filled(request: SearchRequest, known: Sequence[AdditivePredictor]) -> SearchRequest:
    """The request with ``interpolate`` as the tables decide, where it leaves that to them."""
    if request.interpolate is not None or request.transfer_from:
        return request
    return replace(request, interpolate=any(predictor.table.how for predictor in known))


def networks_within(space: StagedSpace, known: Sequence[AdditivePredictor], settings: Settings) -> FeasibleSet:
    """The networks within all budgets of a study.

    Raises:
        InfeasibleBudget: There is none.
        NotMeasured: No whole network has all its rows.
    """
    from hwbench.studies.latencies import feasible_set, joint_set

    if len(known) > 1 or settings.max_file_bytes or settings.max_activation_bytes:
        return joint_set(space, known, settings)
    return feasible_set(space, known[0], settings)


def front_within(space: StagedSpace, known: Sequence[AdditivePredictor], settings: Settings) -> list[FeasibleSet]:
    """The networks within each budget of a front, ascending; of a study with one budget one set.

    Raises:
        InfeasibleBudget: A budget has none; of a front the smallest one is named.
        NotMeasured: No whole network has all its rows.
    """
    alone = [replace(settings, budget_ms=limit, smaller_budgets_ms=()) for limit in settings.front_ms]
    return [networks_within(space, known, one) for one in alone]


def device_budgets(
    space: StagedSpace,
    known: Sequence[AdditivePredictor],
    settings: Settings,
    feasible: FeasibleSet,
    measure_on: Callable[[Target], MeasureNetworks],
) -> list[DeviceBudget]:
    """The devices, with what networks are predicted to take there and what measures them.

    Args:
        space: What is searched.
        known: What predicts, by device.
        settings: Of the study.
        feasible: ``networks_within`` them, whose sums serve again where these are plain predictions.
        measure_on: Makes what measures on a target.
    """
    from hwbench.spaces.joint import JointSet
    from hwbench.studies.confirmation import DeviceBudget
    from hwbench.studies.latencies import space_latencies

    devices = []
    for number, predictor in enumerate(known):
        target, precision = predictor.table.target, predictor.table.precision
        if settings.by_prediction:
            latencies = feasible.budgets[number].sums if isinstance(feasible, JointSet) else feasible.sums
        else:
            latencies = space_latencies(space, predictor, precision, settings.num_classes)
        limit_s = settings.budgets_ms[target.device] / 1e3
        measure, occasion = measure_on(target), predictor.occasion.deviation
        devices.append(DeviceBudget(target.device, limit_s, predictor.spread, latencies, measure, occasion))
    return devices
