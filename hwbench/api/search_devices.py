"""The devices of a search: their tables, the networks within their budgets, and what measures on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.prediction import check_donor, installed_target, table_predictor
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from hwbench.api.devices.steps import CheckStep
    from hwbench.api.search_request import SearchRequest
    from hwbench.latency import AdditivePredictor
    from hwbench.spaces.protocols import NetworkSet, NetworkSums, SearchedSpace
    from hwbench.specs import Measurement, Target
    from hwbench.studies.candidates import BySpace, Candidate
    from hwbench.studies.confirmation import DeviceBudget, MeasureNetworks
    from hwbench.studies.settings import Settings
    from hwbench.training.loop import TrainingProgress
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class DevicePredictors:
    """What predicts on one device.

    Attributes:
        by_space: By name of the space, in order: each space has rows, calibration and interval of its own.
    """

    by_space: Mapping[str, AdditivePredictor]

    @property
    def target(self) -> Target:
        """What latencies hold for."""
        return next(iter(self.by_space.values())).table.target

    @property
    def emulated(self) -> bool:
        """Whether a table was taken under emulation."""
        return any(one.table.emulated for one in self.by_space.values())

    @property
    def filled(self) -> bool:
        """Whether rows were filled in."""
        return any(one.table.how for one in self.by_space.values())

    @property
    def chosen(self) -> bool:
        """Whether profile chose the rows of a table; it may have measured the others since."""
        return any(one.table.adaptive for one in self.by_space.values())

    @property
    def adaptive(self) -> bool:
        """Whether profile chose the rows of a table that others are filled in from."""
        return any(one.table.adaptive and one.table.how for one in self.by_space.values())

    @property
    def spread(self) -> BySpace:
        """Factor of the interval of any network; by space where there are several."""
        return self._each({name: one.spread for name, one in self.by_space.items()})

    @property
    def occasion(self) -> BySpace:
        """Deviation of what all networks share today; by space where there are several."""
        return self._each({name: one.occasion.deviation for name, one in self.by_space.items()})

    @staticmethod
    def _each(numbers: Mapping[str, float]) -> BySpace:
        return numbers if len(numbers) > 1 else next(iter(numbers.values()))


class SpaceListener(Listener):
    """Says of which space it speaks, where there are several."""

    def __init__(self, listener: Listener, space: str, of: int) -> None:
        self._listener, self._before = listener, f"{space}: " if of > 1 else ""

    def say(self, message: str) -> None:
        self._listener.say(f"{self._before}{message}")

    def progress(self, at: StageProgress) -> None:
        self._listener.progress(at)

    def measured(self, measurement: Measurement) -> None:
        self._listener.measured(measurement)

    def evaluated(self, candidate: Candidate) -> None:
        self._listener.evaluated(candidate)

    def trained(self, progress: TrainingProgress) -> None:
        self._listener.trained(progress)

    def checked(self, step: CheckStep) -> None:
        self._listener.checked(step)

    def confirm(self, question: str) -> bool | None:
        return self._listener.confirm(question)


def predictors(
    request: SearchRequest, workspace: Workspace, space: SearchedSpace, listener: Listener
) -> tuple[list[DevicePredictors], int]:
    """What predicts on each device, and the number of classes of all of them.

    Args:
        request: Names devices and spaces.
        workspace: Holds the tables.
        space: What is searched.
        listener: Hears what was filled in.

    Raises:
        InvalidValue: The heads of devices or spaces are for different numbers of classes, or the runtime is not carried
            to a device; or as ``table_predictor``.
        NotMeasured: A device has no table.
        UnknownName: No such device.
    """
    from hwbench.devices import load_device
    from hwbench.specs import Precision

    places = [load_device(workspace, device) for device in request.devices]
    check_donor(workspace, request.transfer_from)
    targets = [installed_target(place, request.runtime, request.threads) for place in places]
    precision, lacking = Precision.parse(request.precision), request.filled_devices
    known = list[DevicePredictors]()
    classes = dict[str, int]()
    for target in targets:
        filling = request.interpolate, request.transfer_from if target.device in lacking else None
        by_space: dict[str, AdditivePredictor] = {}
        for text, member in zip(request.spaces, space.members, strict=True):
            by_space[member.name], number = table_predictor(
                workspace, target, precision, text, request.classes, request.allow_emulated, filling,
                listener=SpaceListener(listener, member.name, len(request.spaces)),
                of_day=SILENT if by_space else listener,  # one table for all spaces
                variant=request.variant,
            )  # fmt: skip
            where = f"{member.name} on {target.device}" if len(request.spaces) > 1 else target.device
            classes[where] = number
        known.append(DevicePredictors(by_space))
    if len(set(classes.values())) > 1:
        of = "of" if len(request.spaces) > 1 else "on"
        counts = ", ".join(f"{number} {of} {where}" for where, number in classes.items())
        raise InvalidValue(f"tables have heads for different numbers of classes: {counts}; choose one with --classes")
    return known, next(iter(classes.values()))


def with_rows_of_study(
    settings: Settings,
    request: SearchRequest,
    workspace: Workspace,
    space: SearchedSpace,
    known: Sequence[DevicePredictors],
) -> Settings:
    """The settings of a request with ``missing_rows`` as the tables decide, where nothing is transferred.

    Rows that profile chose have the others filled in, also once all of them are measured. Where no row is missing,
    there is nothing to fill in or to leave out: a study of that name goes on, whichever of both it was begun with.
    """
    from hwbench.studies.settings import INTERPOLATED, LEFT_OUT
    from hwbench.studies.stored_settings import stored_settings

    if request.transfer_from or any(one.filled for one in known):
        filled = request.interpolate is None and not request.transfer_from
        return replace(settings, missing_rows=INTERPOLATED) if filled else settings
    chosen = request.interpolate is None and any(one.chosen for one in known)
    plain = replace(settings, missing_rows=INTERPOLATED) if chosen else settings
    other = replace(settings, missing_rows=LEFT_OUT if plain.missing_rows == INTERPOLATED else INTERPOLATED)
    begun = [
        stored_settings(workspace.studies / (request.study or one.default_study), request.study_storage).get(
            "missing_rows"
        )
        == one.missing_rows
        for one in (plain, other)
    ]
    return other if begun == [False, True] and is_whole(space, known, settings) else plain


def is_whole(space: SearchedSpace, known: Sequence[DevicePredictors], settings: Settings) -> bool:
    """Whether the tables of all devices have every block of every space."""
    from hwbench.specs import Precision

    precision = Precision.parse(settings.precision)
    return all(
        part in one.by_space[member.name].table
        for member in space.members
        for part in member.parts(precision, num_classes=settings.num_classes)
        for one in known
    )


def within_budgets(space: SearchedSpace, known: Sequence[DevicePredictors], settings: Settings) -> NetworkSet:
    """The networks within all budgets of a study.

    Raises:
        InfeasibleBudget: There is none.
        NotMeasured: No whole network of a space has all its rows.
    """
    from hwbench.spaces.union_set import networks_within
    from hwbench.studies.latencies import space_limits

    limits = [space_limits(one, [device.by_space[one.name] for device in known], settings) for one in space.members]
    return networks_within(space, limits)


def front_within(space: SearchedSpace, known: Sequence[DevicePredictors], settings: Settings) -> list[NetworkSet]:
    """The networks within each budget of a front, ascending; of a study with one budget one set.

    Raises:
        InfeasibleBudget: A budget has none; of a front the smallest one is named.
        NotMeasured: No whole network of a space has all its rows.
    """
    alone = [replace(settings, budget_ms=limit, smaller_budgets_ms=()) for limit in settings.front_ms]
    return [within_budgets(space, known, one) for one in alone]


def device_budgets(
    space: SearchedSpace,
    known: Sequence[DevicePredictors],
    settings: Settings,
    feasible: NetworkSet,
    measure_on: Callable[[Target], MeasureNetworks],
) -> list[DeviceBudget]:
    """The devices, with what networks are predicted to take there and what measures them.

    Args:
        space: What is searched.
        known: What predicts, by device.
        settings: Of the study.
        feasible: ``within_budgets`` of them, whose sums serve again where these are plain predictions.
        measure_on: Makes what measures on a target.
    """
    from hwbench.studies.confirmation import DeviceBudget

    devices = []
    for number, one in enumerate(known):
        plain = settings.by_prediction
        latencies = feasible.latencies(number) if plain else _predicted(space, one, settings.num_classes)
        limit_s = settings.budgets_ms[one.target.device] / 1e3
        measure = measure_on(one.target)
        devices.append(DeviceBudget(one.target.device, limit_s, one.spread, latencies, measure, one.occasion))
    return devices


def _predicted(space: SearchedSpace, known: DevicePredictors, num_classes: int) -> NetworkSums:
    """What networks are predicted to take on a device, without a margin."""
    from hwbench.spaces.union import joined_sums
    from hwbench.studies.latencies import space_latencies

    by_space = known.by_space
    return joined_sums(
        space,
        [
            space_latencies(one, by_space[one.name], by_space[one.name].table.precision, num_classes)
            for one in space.members
        ],
    )
