"""Reads trainings that a study begins from (``--learn-from``): of other studies, tables and folders of ground truth."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench import lookup
from hwbench.api.learned import (
    ENDED,
    GIVEN_UP,
    OF_CLIPS,
    TOP1,
    WENT_ON,
    Learned,
    LearnedTraining,
    TrainingSettings,
    seen,
    unit_of,
    with_optimizer,
)
from hwbench.api.study_data import Fidelity
from hwbench.api.train_request import RAISE
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue
from hwbench.printable import printable
from hwbench.specs import STREAM

if TYPE_CHECKING:
    from hwbench.spaces.protocols import SearchedSpace
    from hwbench.specs import Architecture
    from hwbench.workspace import Workspace

_PARTIAL = frozenset(("architecture", "score", "epochs"))
# Of a table of trainings; other columns are for people, but ``optimizer``.
_COLUMNS = ("architecture", "epochs", "top1")


def coming_with(workspace: Workspace, spaces: Sequence[str]) -> tuple[str, ...]:
    """Tables of trainings beside the files of spaces, as ``--learn-from`` takes them; none where a space has none.

    A table has its name, and its path where the name would stand for a file of the current folder.
    """
    from hwbench.workspace import TRAINED

    sources = list[str]()
    for name in (f"{space}{TRAINED}" for space in spaces):
        table = workspace.trainings_beside_spaces(name)
        if table is None:
            return ()
        named = workspace.trainings(name) or table
        sources.append(name if named.samefile(table) else str(table.absolute()))
    return tuple(sources)


def learn_from(workspace: Workspace, space: SearchedSpace, sources: Sequence[str]) -> Learned:
    """Reads trainings of a space.

    In a space of streams, tables and folders tell of networks that look ahead: their data is marked as clips.

    Args:
        workspace: Has the studies.
        space: Trainings of other spaces are left out; of a union each space needs some.
        sources: Names of studies, folders of ground truth, and CSV files with the columns ``architecture``, ``epochs``
            and ``top1`` (a share), and ``optimizer`` where it is not the default one. Those beside the spaces need no
            path (``x3d-mini.trained.csv``).

    Raises:
        UnknownName: There is no such study with a result.
        InvalidValue: A study trained nothing, scores are of different units, none is of the space, or the space of that
            name has changed and lacks what was chosen.
        InvalidFile: A file is missing or damaged.
    """
    from hwbench.specs import Architecture
    from hwbench.studies.ground_truth import NETWORKS, no_truth

    units, trained, studies = dict[str, str](), list[LearnedTraining](), list[str]()
    names, streaming = {one.name for one in space.members}, of_streams(space)
    for source in sources:
        path = Path(source)
        if lookup.is_file(path / NETWORKS):
            unit, rows = _of_folder(path, names, len(trained))
        elif (table := workspace.trainings(source)) is not None:
            unit, rows = _of_table(table, names, len(trained))
        elif lookup.is_folder(path) and "/" in source:
            raise InvalidFile(no_truth(path))
        elif "/" in source or path.suffix == ".csv":  # no name of a study
            raise InvalidFile(f"{path}: no such file; expected a table of trainings ({', '.join(_COLUMNS)})")
        else:
            unit, rows = _of_study(workspace, space, source, len(trained))
            studies.append(source)
        check_members(space, source, rows)
        if rows:  # else it says nothing of the space
            units[source] = unit
        looking_ahead = streaming and not any(one.made for one in rows)
        trained += [replace(one, data=seen(one.data, OF_CLIPS)) for one in rows] if looking_ahead else rows
    if len(set(units.values())) > 1:
        told = ", ".join(f"{source}: {unit}" for source, unit in units.items())
        raise InvalidValue(f"--learn-from: scores of one unit are learned from together, got {told}")
    learned = {Architecture.parse(one.architecture).space for one in trained}
    if lacking := [one.name for one in space.members if one.name not in learned]:
        raise InvalidValue(
            f"--learn-from {', '.join(sources)}: no training there is of space {', '.join(lacking)!r}"
            + _other_form(workspace, space, studies, lacking)
        )
    return Learned(tuple(sources), next(iter(units.values())), tuple(_each_once(trained)))


def of_streams(space: SearchedSpace) -> bool:
    """Whether the networks of a space are causal, for streams."""
    return any(one.variant == STREAM for one in space.members)


def _other_form(workspace: Workspace, space: SearchedSpace, studies: Sequence[str], lacking: Sequence[str]) -> str:
    """The end of a refusal: studies of these spaces that trained causal networks where clips are searched, or the other
    way round; empty: none.
    """
    from hwbench.reports.result import read_result

    streaming, settings = of_streams(space), {one: read_result(workspace, one, "").settings for one in studies}
    other = [
        one for one, of in settings.items() if of.streaming != streaming and not of.spaces.keys().isdisjoint(lacking)
    ]
    if not other:
        return ""
    how = "look ahead; give studies of --streaming, or a table" if streaming else "are causal; give studies of clips"
    return f": the networks of {', '.join(other)} {how}"


def _each_once(trained: Sequence[LearnedTraining]) -> list[LearnedTraining]:
    """Without trainings that a study took over from another one: their scores are no further observations."""
    found, seen = list[LearnedTraining](), set[tuple[str, Fidelity, TrainingSettings]]()
    for one in trained:
        if one.made is not None:
            same = one.architecture, one.fidelity, replace(one.made, on_error=RAISE)
            if same in seen:
                continue
            seen.add(same)
        found.append(one)
    return found


def _of_folder(folder: Path, spaces: Set[str], first: int) -> tuple[str, list[LearnedTraining]]:
    """The unit of the scores of a ground truth, and its trainings.

    Raises:
        InvalidValue: Its networks were trained with several optimizers.
        InvalidFile: A file is damaged.
    """
    from hwbench.specs import Architecture
    from hwbench.studies.ground_truth import GroundTruth

    found, units, truth = list[LearnedTraining](), set[str](), GroundTruth.read(folder)
    for network in truth.networks:
        for training in network.trainings:
            if Architecture.parse(network.architecture).space in spaces:
                fidelity = Fidelity(len(training.curve))
                found.append(
                    LearnedTraining(network.architecture, training.top1, fidelity, first + len(found), truth.data)
                )
                units.add(with_optimizer(TOP1, training.optimizer))
    return _one_unit(folder, units), found


def _of_table(path: Path, spaces: Set[str], first: int) -> tuple[str, list[LearnedTraining]]:
    """The unit of the scores of a CSV file, and its trainings.

    Raises:
        InvalidValue: Its networks were trained with several optimizers.
        InvalidFile: It is no table of trainings; the line is named.
    """
    found, units = list[LearnedTraining](), set[str]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if lacking := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
                raise InvalidFile(
                    f"{path}: no column {', '.join(lacking)}; a table of trainings has {', '.join(_COLUMNS)}"
                )
            for row in rows:
                try:
                    architecture, top1, fidelity = _training_of(row)
                except (ValueError, HwbenchError) as error:
                    raise InvalidFile(f"{path}, line {rows.line_num}: {printable(str(error), 300)}") from None
                if architecture.space in spaces:
                    data = (row.get("data") or "").strip()
                    found.append(LearnedTraining(architecture.key, top1, fidelity, first + len(found), data))
                    units.add(with_optimizer(TOP1, row.get("optimizer") or ""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidFile(f"{path}: no table of trainings: {printable(str(error), 300)}") from None
    return _one_unit(path, units), found


def _training_of(row: Mapping[str, str | None]) -> tuple[Architecture, float, Fidelity]:
    """Architecture, top-1 and length of a row; raises ValueError or InvalidValue where it is none."""
    from hwbench.specs import Architecture

    words, epochs, top1 = ((row[name] or "").strip() for name in _COLUMNS)
    architecture, score, length = Architecture.parse(words), float(top1), int(epochs)
    if not 0 <= score <= 1:
        raise ValueError(f"top1: expected a share from 0 to 1, got {top1}")
    if length < 1:
        raise ValueError(f"epochs: expected at least 1, got {epochs}")
    return architecture, score, Fidelity(length)


def _one_unit(source: Path, units: Set[str]) -> str:
    if len(units) > 1:
        raise InvalidValue(
            f"--learn-from {source}: scores of one unit are learned from together, got {', '.join(sorted(units))}"
        )
    return next(iter(units), TOP1)


def check_members(space: SearchedSpace, source: str, trained: Sequence[LearnedTraining]) -> None:
    """Refuses trainings of an earlier space of this name, from a file that does not tell its choices."""
    from hwbench.specs import Architecture

    for one in trained:
        try:
            space.validate(Architecture.parse(one.architecture))
        except InvalidValue as error:
            raise InvalidValue(f"--learn-from {source}: trained in another space of this name: {error}") from None


def _partial(stored: Mapping[str, object], name: str, key: str) -> list[dict[str, Any]]:
    """Scores before the end of trainings, of the result of a study."""
    rows = stored.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(r, dict) and r.keys() >= _PARTIAL for r in rows):
        raise InvalidFile(f"study {name!r}: {key} of its result is damaged; run the search again")
    return rows


def _given_up(workspace: Workspace, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The trainings of a study that a pruner ended, and what all had at those epochs.

    Results of before do not have the latter; the journal has.
    """
    from hwbench.spaces.resolve import load_result

    stored = load_result(workspace, name)
    rows = _partial(stored, name, "given_up")
    if not rows or "rungs" in stored:
        return rows, _partial(stored, name, "rungs")
    from hwbench.studies.trials import stored_rung_scores

    try:
        return rows, [one.to_json() for one in stored_rung_scores(workspace.studies / name)]
    except HwbenchError:  # the trials are kept elsewhere, or are damaged
        return rows, []


def _of_study(workspace: Workspace, space: SearchedSpace, name: str, first: int) -> tuple[str, list[LearnedTraining]]:
    """The unit of a study's scores, and its trainings."""
    from hwbench.reports.result import read_result
    from hwbench.studies.evaluators import TRAINING
    from hwbench.studies.latencies import choices_digest

    result = read_result(workspace, name, "--data synthetic")
    evaluator = result.settings.evaluator
    if evaluator not in TRAINING:
        raise InvalidValue(
            f"--learn-from {name}: the study was scored by {printable(evaluator, 60)!r}, which trains nothing; give "
            f"one of {' or '.join(sorted(TRAINING))}, or a folder of ground truth"
        )
    same = {one.name for one in space.members if result.settings.spaces.get(one.name) == choices_digest(one)}
    if not same:
        return evaluator, []
    fidelity, made, rows = (
        Fidelity.parse(result.settings.effort),
        TrainingSettings.of(result.settings),
        list[LearnedTraining](),
    )
    given_up, at_rungs = _given_up(workspace, name)
    lines = [(one.architecture, one.score, fidelity.epochs, one.trial, ENDED) for one in result.history]
    lines += [(*_line(one), GIVEN_UP) for one in given_up]
    trials, ends = {trial for *_, trial, _ in lines}, {(trial, epochs) for _, _, epochs, trial, _ in lines}
    lines += [
        (architecture, score, epochs, trial, WENT_ON)
        for architecture, score, epochs, trial in map(_line, at_rungs)
        if trial in trials and (trial, epochs) not in ends
    ]
    data, trainings = seen(result.settings.data, result.settings.modality), dict[object, int]()
    for architecture, score, epochs, trial, state in lines:
        if architecture.partition(":")[0] in same:
            number = trainings.setdefault(len(trainings) if trial < 0 else f"trial {trial}", len(trainings))
            length = replace(fidelity, epochs=epochs)
            rows.append(LearnedTraining(architecture, score, length, first + number, data, made, state))
    return unit_of(evaluator, result.settings.scoring), rows


def _line(one: Mapping[str, Any]) -> tuple[str, float, int, int]:
    """Architecture, score, epochs and trial of a score before the end of a training; -1: no trial is told."""
    return str(one["architecture"]), float(one["score"]), int(one["epochs"]), int(one.get("trial", -1))
