"""A finished search as it was stored: ``result.json``, read back and checked."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from hwbench.errors import HwbenchError, InvalidFile, InvalidValue
from hwbench.printable import printable
from hwbench.spaces.begun import begun_videos, kept_at
from hwbench.spaces.resolve import RESULT, finished, load_result
from hwbench.specs import Precision, Target
from hwbench.specs.study_name import check_reference
from hwbench.studies.candidates import Candidate, FurtherLatency
from hwbench.studies.course import SearchCourse
from hwbench.studies.front import FrontPoint
from hwbench.studies.ground_truth import is_truth
from hwbench.studies.left_out import LeftOut
from hwbench.studies.race import RaceResult
from hwbench.studies.settings import Settings
from hwbench.studies.space_shares import SpaceShare
from hwbench.units import milliseconds
from hwbench.workspace import Workspace

Made = TypeVar("Made")

_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Mapping[str, float]": (dict,),
    "tuple[float, ...]": (list, tuple),
}
# Bytes of a candidate that may have a budget.
_SIZES = ("file_size_bytes", "activation_bytes")


@dataclass(frozen=True)
class StoredResult:
    """What ``hwbench search`` found and stored; ``trials`` counts those without a score, ``history`` has the others.

    ``given_up`` is the number of those without a score that a pruner ended, ``given_up_trials`` are theirs, but for
    those whose networks newer rows of a table put beyond the budget.
    ``unpredicted`` is the number of those with a score whose networks have a block that a table lacked when the search
    ended; 0 where an older version stored the result.

    ``named`` has the models of the user's own, label of the space -> as it was named; ``storage`` is the URL where the
    trials are kept, without a password; None: in the folder of the study. ``learned_data`` is what the studies that it
    learned from trained on; empty where that differs, or is not known. ``learned`` says what a model of the trainings
    that it began from is worth. ``replaced`` is the number of networks that rows measured for the study put beyond its
    budget, so that others were tried besides, and ``most_rows`` how many rows could be measured for it.
    """

    study: str
    path: Path
    settings: Settings
    target: Target
    precision: Precision
    feasible: float
    trials: int
    best: Candidate
    pareto: tuple[Candidate, ...]
    measured: tuple[Candidate, ...]
    history: tuple[Candidate, ...]
    front: tuple[FrontPoint, ...] = ()
    race: RaceResult | None = None
    course: SearchCourse | None = None
    spaces: tuple[SpaceShare, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    storage: str | None = None
    learned_data: str = ""
    learned: LeftOut | None = None
    given_up: int = 0
    unpredicted: int = 0
    given_up_trials: tuple[int, ...] = ()
    replaced: int = 0
    most_rows: int = 0

    @property
    def space(self) -> str:
        """Name of the space; of several that of the winner."""
        return self.best.space if len(self.settings.spaces) > 1 else self.settings.space

    @property
    def own_model(self) -> str | None:
        """The model of the user's own that is the winner's space, as it was named; None: a file is."""
        return self.named.get(self.space)

    def network_name(self, candidate: Candidate) -> str:
        """What trainings and exports call a network of the study: a model of the user's own as it was named."""
        return self.named.get(candidate.space, candidate.architecture)

    def is_predicted_within(self, candidate: Candidate) -> bool:
        """Whether a network is within the (largest) budget by the tables with which the search ended.

        Newer rows may have put networks beyond it that earlier trials scored. Predictions are stored to a nanosecond.
        """
        settings, times = self.settings, candidate.predicted(self.settings.device)
        limits = {device: milliseconds(limit / 1e3) for device, limit in settings.budgets_ms.items()}
        in_time = all(milliseconds(times[device]) <= limit for device, limit in limits.items())
        return in_time and settings.allows(candidate.sizes)

    def is_measured_within(self, candidate: Candidate, budget_ms: float) -> bool:
        """Whether a network was measured within a budget on the first device, and within those of all others."""
        limits = {**self.settings.budgets_ms, self.settings.device: budget_ms}
        times = candidate.measured(self.settings.device)
        return all(times.get(device, math.inf) <= limit / 1e3 for device, limit in limits.items())

    def is_within(self, candidate: Candidate) -> bool:
        """Whether a network is within the (largest) budget: by its prediction, or as it was measured."""
        return self.is_predicted_within(candidate) or self.is_measured_within(candidate, self.settings.budget_ms)

    @property
    def races(self) -> Mapping[float, RaceResult]:
        """The races by their budget in milliseconds."""
        own = {} if self.race is None else {self.settings.budget_ms: self.race}
        return own | {point.budget_ms: point.race for point in self.front if point.race is not None}


def read_result(workspace: Workspace, study: str, options: str = "") -> StoredResult:
    """The stored result of a study; ``options`` as of ``load_result``.

    Raises:
        InvalidValue: This cannot be the name of a study.
        UnknownName: No study of that name has a result; the nearest names are listed.
        InvalidFile: Its file is damaged; what was expected and what came is named.
    """
    result = _read(workspace, study, options)
    return replace(result, learned_data=learned_data(workspace, study, result.settings))


def learned_data(workspace: Workspace, study: str, settings: Settings) -> str:
    """What the trainings were on that a study learned from; empty where that differs, or is not known.

    The folder of the study keeps the trainings; that of a study of before does not, and their sources tell it as they
    are now.
    """
    sources = settings.sources
    if not sources or any(map(is_truth, sources)):
        return ""
    data = begun_videos(workspace.studies / study, settings.begun_from or settings.effort)
    if data is None:
        try:
            data = _data_of_sources(workspace, settings)
        except HwbenchError:  # a source is gone, or damaged
            return ""
    return data.pop() if len(data) == 1 else ""


def _data_of_sources(workspace: Workspace, settings: Settings) -> set[str]:
    """What networks of the spaces of a study were trained on by its sources; an empty text where some do not tell it.

    Raises:
        UnknownName: There is no such study with a result.
        InvalidFile: Its file is damaged.
    """
    data, spaces = set[str](), settings.spaces
    for source in settings.sources:
        table = workspace.trainings(source)
        if table is not None:
            data |= _data_of(table, spaces.keys())
            continue
        learned = _read(workspace, source, "").settings
        if not spaces.items().isdisjoint(learned.spaces.items()):
            data.add(learned.data)
    return data


def _data_of(table: Path, spaces: Set[str]) -> set[str]:
    """What the networks of some spaces in a table of trainings were trained on; an empty text where a row says none."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            return {(row.get("data") or "").strip() for row in csv.DictReader(file) if _space_of(row) in spaces}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidFile(f"{table}: no table of trainings: {printable(str(error), 300)}") from None


def _space_of(row: Mapping[str, str | None]) -> str:
    return (row.get("architecture") or "").strip().partition(":")[0]


def _read(workspace: Workspace, study: str, options: str) -> StoredResult:
    check_reference(study, finished(workspace))
    values = load_result(workspace, study, options)
    path = workspace.studies / study / RESULT
    try:
        return _parse(study, path, values)
    except (ValueError, InvalidValue) as error:
        raise InvalidFile(f"{path}: damaged: {error}; run the search again, it goes on from its journal") from None


def _parse(study: str, path: Path, values: Mapping[str, object]) -> StoredResult:
    settings = _settings(values.get("settings"))
    target = Target.parse(settings.target)
    further = [Target.parse(key).device for key in settings.further_budgets_ms]

    def several(key: str) -> tuple[Candidate, ...]:
        items = enumerate(_list(values.get(key), key))
        return tuple(_candidate(item, target.device, further, f"{key}[{i}]") for i, item in items)

    return StoredResult(
        study=study,
        path=path,
        settings=settings,
        target=target,
        precision=Precision.parse(settings.precision),
        feasible=_number(values.get("feasible"), "feasible"),
        trials=int(_number(values.get("trials"), "trials")),
        best=_candidate(values.get("best"), target.device, further, "best"),
        pareto=several("pareto"),
        measured=several("measured"),
        history=several("history"),
        front=_front(values, target.device, further),
        race=_race(values, "race"),
        course=_course(values.get("course")),
        spaces=_spaces(values, "spaces"),
        named=_named(values.get("named", {})),
        storage=printable(kept_at(path.parent), 300) or None,
        learned=_learned(values.get("learned")),
        given_up=len(_list(values.get("given_up", []), "given_up")),
        given_up_trials=_trials(values.get("given_up", [])),
        unpredicted=int(_number(values.get("unpredicted", 0), "unpredicted")),
        replaced=_of_rows(values, "replaced"),
        most_rows=_of_rows(values, "limit"),
    )


def _list(values: object, where: str) -> list[Any]:
    if not isinstance(values, list):
        raise ValueError(f"{where}: expected a list, got {_shown(values)}")
    return values


def _trials(values: object) -> tuple[int, ...]:
    """The numbers of the trials that were given up and are not beyond the budget, of those that tell it."""
    listed = [one for one in _list(values, "given_up") if isinstance(one, dict) and "trial" in one]
    listed = [one for one in listed if not one.get("beyond")]
    return tuple(int(_number(one["trial"], "given_up.trial")) for one in listed)


def _of_rows(values: Mapping[str, object], key: str) -> int:
    """A number of ``measured_rows``; 0 where no row could be measured."""
    rows = values.get("measured_rows", {})
    if not isinstance(rows, dict):
        raise ValueError(f"measured_rows: expected an object, got {_shown(rows)}")
    return int(_number(rows.get(key, 0), f"measured_rows.{key}"))


def _named(values: object) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise ValueError(f"named: expected the names of models by space, got {_shown(values)}")
    return values


def _made(read: Callable[[Any], Made], values: object, where: str, expected: str) -> Made:
    """What a ``from_json`` makes of stored values; raises ValueError with what was expected."""
    try:
        return read(values)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"{where}: expected {expected}, got {_shown(values)}: {error!r}"[:300]) from None


def _spaces(values: Mapping[str, object], where: str) -> tuple[SpaceShare, ...]:
    """What each space has within a budget; empty where there is one."""

    def read(spaces: Any) -> tuple[SpaceShare, ...]:
        return tuple(SpaceShare.from_json(one) for one in spaces)

    return _made(read, values.get("spaces", []), where, "what each space has")


def _course(values: object) -> SearchCourse | None:
    return None if values is None else _made(SearchCourse.from_json, values, "course", "seconds and draws")


def _learned(values: object) -> LeftOut | None:
    return None if values is None else _made(LeftOut.from_json, values, "learned", "a rank correlation")


def _front(values: Mapping[str, object], device: str, further: Sequence[str]) -> tuple[FrontPoint, ...]:
    """The answer for each budget; empty where there is one budget."""
    points = values.get("front", [])
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise ValueError(f"front: expected a list of objects, got {_shown(points)}")
    return tuple(
        FrontPoint(
            budget_ms=_number(point.get("budget_ms"), f"front[{i}].budget_ms"),
            feasible=_number(point.get("feasible"), f"front[{i}].feasible"),
            best=None if point.get("best") is None else _candidate(point["best"], device, further, f"front[{i}].best"),
            race=_race(point, f"front[{i}].race"),
            spaces=_spaces(point, f"front[{i}].spaces"),
        )
        for i, point in enumerate(points)
    )


def _race(values: Mapping[str, object], where: str) -> RaceResult | None:
    race = values.get("race")
    return None if race is None else _made(RaceResult.from_json, race, where, "how finalists raced")


def _settings(values: object) -> Settings:
    """Settings of this version; keys of another version are passed over."""
    if not isinstance(values, dict):
        raise ValueError(f"settings: expected an object, got {_shown(values)}")
    known: dict[str, object] = {}
    for one in fields(Settings):
        default = one.default if one.default_factory is MISSING else one.default_factory()
        value = values.get(one.name, default)
        if value is MISSING:
            raise ValueError(f"settings: {one.name} is missing")
        if type(value) not in _TYPES[str(one.type)] or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"settings.{one.name}: expected {one.type}, got {_shown(value)}")
        if isinstance(value, dict):
            value = {key: _number(number, f"settings.{one.name}.{key}") for key, number in value.items()}
        if isinstance(value, list):
            value = tuple(_number(number, f"settings.{one.name}[{i}]") for i, number in enumerate(value))
        known[one.name] = value
    return Settings(**known)  # type: ignore[arg-type]


def _candidate(values: object, device: str, further: Sequence[str], where: str) -> Candidate:
    if not isinstance(values, dict):
        raise ValueError(f"{where}: expected an object, got {_shown(values)}")
    architecture, failure = values.get("architecture"), values.get("failure", "")
    if not isinstance(architecture, str) or not isinstance(failure, str):
        raise ValueError(f"{where}: expected an architecture and a failure as text, got {_shown(values)}")
    predicted, *others = (_predicted(values, name, where) for name in (device, *further))
    measured = values.get("measured_ms")
    return Candidate(
        architecture=architecture,
        score=_number(values.get("score"), f"{where}.score"),
        predicted_s=predicted,
        measured_s=_latency(measured, device, f"{where}.measured_ms"),
        failure=failure,
        trial=int(_number(values.get("trial", -1), f"{where}.trial")),
        further=tuple(
            FurtherLatency(name, seconds, _later(measured, name, f"{where}.measured_ms"))
            for name, seconds in zip(further, others, strict=True)
        ),
        sizes=tuple((key, int(_number(values[key], f"{where}.{key}"))) for key in _SIZES if key in values),
    )


def _predicted(values: Mapping[str, object], device: str, where: str) -> float:
    predicted = _latency(values.get("predicted_ms"), device, f"{where}.predicted_ms")
    if predicted is None:
        raise ValueError(f"{where}.predicted_ms: expected a latency, got nothing")
    return predicted


def _later(measured: object, device: str, where: str) -> float | None:
    """Seconds on a further device, on which only what was within the budgets before is measured."""
    return _latency(measured, device, where) if isinstance(measured, dict) and device in measured else None


def _latency(values: object, device: str, where: str) -> float | None:
    """Seconds, from milliseconds by device."""
    if values is None:
        return None
    if not isinstance(values, dict) or device not in values:
        raise ValueError(f"{where}: expected milliseconds for {device!r}, got {_shown(values)}")
    number = _number(values[device], where)
    if number <= 0:
        raise ValueError(f"{where}: expected more than zero, got {number}")
    return number / 1e3


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{where}: expected a number, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:60]
