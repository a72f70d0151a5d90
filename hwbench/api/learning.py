"""Trainings that a study begins from (``--learn-from``): of other studies, tables and folders of ground truth."""

from __future__ import annotations

import csv
import hashlib
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from hwbench.api.study_data import Fidelity
from hwbench.api.train_request import RAISE
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue
from hwbench.printable import counted, printable

if TYPE_CHECKING:
    from hwbench.spaces.protocols import NetworkSums, SearchedSpace
    from hwbench.specs import Architecture
    from hwbench.studies.fidelities import ScoreObservation
    from hwbench.studies.fitted_scores import FittedScores
    from hwbench.studies.left_out import LeftOut
    from hwbench.studies.settings import Settings
    from hwbench.workspace import Workspace

# Networks that are left out one by one, at most, to say what the model is worth: each is a fit of its own.
_LEFT_OUT = 64
_TOP1 = "top-1"
# Of the recipe that trainings have unless somebody says otherwise; ``Recipe`` is in a package that loads torch.
DEFAULT_OPTIMIZER = "muon"
# The version of scores of short trainings whose default recipe had SGD; they are far below those of Muon.
_WITH_SGD = 1
_PARTIAL = frozenset(("architecture", "score", "epochs"))
# How a training stood at the time of which a row tells.
_ENDED, _GIVEN_UP, _WENT_ON = "ended", "given up", "went on"
# Between data and what networks see of it.
_AS = " as "
# Of a table of trainings; other columns are for people, but ``optimizer``.
_COLUMNS = ("architecture", "epochs", "top1")


@dataclass(frozen=True)
class LearnedTraining:
    """What one training said of a network, how long it was by then, and on which data; empty: not known.

    ``made`` is how a study trained it, ``Settings`` without what is about latency; None: not by a study. ``state`` says
    whether the training had ended there, was given up by a pruner, or went on.
    """

    architecture: str
    score: float
    fidelity: Fidelity
    training: int
    data: str = ""
    made: TrainingSettings | None = None
    state: str = _ENDED


@dataclass(frozen=True)
class TrainingSettings:
    """What a score of a study follows from, besides the network: the same training again would give the same."""

    evaluator: str
    scoring: int
    data: str
    effort: str
    seed: int
    num_classes: int
    modality: str
    on_error: str = RAISE

    @classmethod
    def of(cls, settings: Settings) -> TrainingSettings:
        return cls(*(getattr(settings, name) for name in cls.__dataclass_fields__))

    def repeats(self, made: TrainingSettings | None) -> bool:
        """Whether trainings of these settings would only repeat those that were made so.

        Where unreadable videos were errors there were none, so that nothing could have been left out.
        """
        if made is None or made.on_error not in (RAISE, self.on_error):
            return False
        return replace(made, on_error=self.on_error) == self


@dataclass(frozen=True)
class Learned:
    """Trainings of the networks of one space, or of a union of some.

    Attributes:
        sources: Where they are from.
        unit: What their scores are, as ``_unit_of`` names it.
        trained: What they said.
        data: What scores are predicted on, of ``datas``; empty: on the data of the longest trainings.
    """

    sources: tuple[str, ...]
    unit: str
    trained: tuple[LearnedTraining, ...]
    data: str = ""

    @property
    def datas(self) -> tuple[str, ...]:
        """What they were trained on, as far as that is known."""
        return tuple(dict.fromkeys(one.data for one in self.trained if one.data))

    @property
    def videos(self) -> tuple[str, ...]:
        """The same, whatever networks saw of it; an empty text where that is not known of some."""
        return tuple(dict.fromkeys(one.data.partition(_AS)[0] for one in self.trained))

    @property
    def predicted(self) -> str:
        """The data on which scores are predicted; empty: not known."""
        return self.data or _longest(self.trained).data

    @property
    def as_before(self) -> Learned:
        """As versions of before read and used them, by which studies that kept none of them are known again."""
        return replace(self, trained=tuple(one for one in self.trained if one.state != _WENT_ON), data="")

    @property
    def observations(self) -> tuple[ScoreObservation, ...]:
        """What they said; the longest trainings on the data that is predicted are at full length."""
        return self.at(_longest(self._here).fidelity, self.predicted)

    @property
    def _here(self) -> list[LearnedTraining]:
        """Trainings on the data that is predicted; those on data that are not known count as such."""
        return [one for one in self.trained if not self.predicted or one.data in ("", self.predicted)]

    def predicting(self, data: str) -> Learned:
        """The same, to predict scores on this data; where none were trained on it, on that of the studies.

        Args:
            data: What is asked for (``seen``); empty: that is left open.

        Raises:
            InvalidValue: There are several, and nothing says which.
        """
        if chosen := self._chosen(data):
            return replace(self, data=chosen)
        if len(self.datas) < 2:
            return self
        first = shlex.quote(self.datas[0].partition(_AS)[0])
        raise InvalidValue(
            f"--learn-from {', '.join(self.sources)}: networks were trained on {' and '.join(self.datas)}; say on "
            f"which of them scores are predicted: --evaluator fitted --data {first}"
        )

    def beside(self, data: str) -> Learned:
        """The same, for a study that trains on this data itself, which no training of before need be on."""
        return replace(self, data=self._chosen(data))

    def _chosen(self, data: str) -> str:
        """Which data is predicted; empty: nothing says it."""
        of_studies = dict.fromkeys(one.data for one in self.trained if one.data and one.made is not None)
        alike = [one for one in self.datas if one.partition(_AS)[0] == data]  # seen as another modality
        choices = ([data] if data in self.datas else [], alike, self.datas, list(of_studies))
        return next((one[0] for one in choices if len(one) == 1), "")

    def at(self, full: Fidelity, data: str) -> tuple[ScoreObservation, ...]:
        """What they said, beside trainings of this length on this data."""
        from hwbench.specs import Architecture
        from hwbench.studies.fidelities import ScoreObservation, doublings

        found = []
        for one in self.trained:
            amounts = (
                doublings(one.fidelity.epochs, full.epochs),
                doublings(one.fidelity.frames_share, full.frames_share),
                doublings(one.fidelity.resolution_share, full.resolution_share),
            )
            apart = amounts if any(amounts) else ()
            architecture, elsewhere = Architecture.parse(one.architecture), bool(one.data and data) and one.data != data
            given_up = one.state == _GIVEN_UP
            found.append(ScoreObservation(architecture, one.score, apart, -1 - one.training, elsewhere, given_up))
        return tuple(found)

    def same_as(self, settings: Settings) -> dict[str, float]:
        """Scores by architecture of the trainings that a study of these settings would only repeat."""
        now = TrainingSettings.of(settings)
        return {one.architecture: one.score for one in self.trained if now.repeats(one.made) and one.state == _ENDED}

    def check_unit(self, evaluator: str) -> None:
        """Refuses scores of another unit than a study's own.

        Raises:
            InvalidValue: They are.
        """
        from hwbench.studies.evaluators import get, scoring_of

        if (wanted := _unit_of(evaluator, scoring_of(get(evaluator)))) != self.unit:
            raise InvalidValue(
                f"--learn-from {', '.join(self.sources)}: scores there are {self.unit}, those of --evaluator "
                f"{evaluator} are {wanted}; what is learned from together is of one unit"
            )

    @property
    def effort(self) -> str:
        """What a study keeps that is scored by them: other trainings, and other data, make other scores."""
        usual = len(self.datas) < 2 or self.predicted == _longest(self.trained).data
        return self._label("" if usual else self.predicted)

    @property
    def begun_from(self) -> str:
        """What a study keeps that trains networks itself."""
        return self._label("")

    def _label(self, more: str) -> str:
        longest = _longest(self.trained)
        rows = self.at(longest.fidelity, longest.data)
        text = repr([(one.architecture.key, one.score, one.fidelity) for one in rows]) + more
        return f"learned from {self} ({hashlib.sha256(text.encode()).hexdigest()[:12]})"

    def __str__(self) -> str:
        networks = len({one.architecture for one in self.observations})
        return f"{networks} networks of {', '.join(self.sources)}"

    def scores(self, sums: NetworkSums) -> FittedScores:
        """The model; ``sums`` are any over the space."""
        from hwbench.studies.fitted_scores import FittedScores

        return FittedScores(sums, self.observations)

    def left_out(self, sums: NetworkSums) -> LeftOut | None:
        """What the model is worth on networks that it was not learned from; None: too few to say.

        By trainings on the data that is predicted: scores of other data have a level of their own, by which a model
        that says nothing would tell the networks of one data set from those of another.
        """
        from hwbench.studies.fitted_scores import FittedScores
        from hwbench.studies.left_out import LeftOut
        from hwbench.studies.ranking import rank_interval
        from hwbench.studies.scoreboard import FEWEST

        full: dict[Architecture, list[float]] = {}
        for one in self.observations:
            if not any(one.fidelity) and not one.elsewhere:
                full.setdefault(one.architecture, []).append(one.score)
        judged = sorted(full, key=lambda one: -len(full[one]))[:_LEFT_OUT]
        if len(judged) < FEWEST:
            return None
        left_out = FittedScores(sums, self.observations, leave_out=True)
        predictions, truths = [left_out.predict(one) for one in judged], [fmean(full[one]) for one in judged]
        tau = rank_interval([one.mean for one in predictions], truths, [0] * len(judged))
        return LeftOut(len(judged), tau, fmean(one.deviation for one in predictions))

    def describe(self, left_out: LeftOut | None, *, beside: bool = False) -> str:
        """What is predicted, where that is a question, and what the model is worth; for people.

        Args:
            left_out: Of networks that the model was not learned from.
            beside: For a study that trains networks itself, whose own data is predicted.
        """
        text = f"learned from {self}"
        if len(self.datas) > 1:
            here = counted(len({one.architecture for one in self._here}), "network")
            role = "judged by those on" if beside else "scores are predicted on"
            text += f"; {role} {printable(self.predicted, 300)} ({here})"
        if left_out is None:
            return f"{text}: too few to say what that is worth"
        verdict = "" if left_out.informative else "; uninformative: the interval holds zero"
        told = f"{left_out}, a prediction is uncertain by {left_out.deviation:.2g}{verdict}"
        return f"{text}; of those left out one by one {told}"


def coming_with(workspace: Workspace, spaces: Sequence[str]) -> tuple[str, ...]:
    """Tables of trainings beside the files of spaces, as ``--learn-from`` takes them; none where a space has none."""
    from hwbench.workspace import TRAINED

    names = tuple(f"{space}{TRAINED}" for space in spaces)
    return names if all(workspace.trainings(name) for name in names) else ()


def learn_from(workspace: Workspace, space: SearchedSpace, sources: Sequence[str]) -> Learned:
    """Reads trainings of a space.

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

    units, trained = {}, list[LearnedTraining]()
    names = {one.name for one in space.members}
    for source in sources:
        path = Path(source)
        if (path / NETWORKS).is_file():
            units[source], rows = _of_folder(path, names, len(trained))
        elif (table := workspace.trainings(source)) is not None:
            units[source], rows = _of_table(table, names, len(trained))
        elif path.is_dir() and "/" in source:
            raise InvalidFile(no_truth(path))
        elif "/" in source or path.suffix == ".csv":  # no name of a study
            raise InvalidFile(f"{path}: no such file; expected a table of trainings ({', '.join(_COLUMNS)})")
        else:
            units[source], rows = _of_study(workspace, space, source, len(trained))
        check_members(space, source, rows)
        trained += rows
    if len(set(units.values())) > 1:
        told = ", ".join(f"{source}: {unit}" for source, unit in units.items())
        raise InvalidValue(f"--learn-from: scores of one unit are learned from together, got {told}")
    learned = {Architecture.parse(one.architecture).space for one in trained}
    if lacking := [one.name for one in space.members if one.name not in learned]:
        raise InvalidValue(f"--learn-from {', '.join(sources)}: no training there is of space {', '.join(lacking)!r}")
    return Learned(tuple(sources), next(iter(units.values())), tuple(_each_once(trained)))


def seen(data: str, modality: str) -> str:
    """What networks were trained on: videos, and what they saw of them where that is no picture."""
    return f"{data}{_AS}{modality}" if modality else data


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


def _amount(fidelity: Fidelity) -> float:
    """What a training of this length costs, relative to others."""
    return fidelity.epochs * fidelity.frames_share * fidelity.resolution_share**2


def _longest(trained: Sequence[LearnedTraining]) -> LearnedTraining:
    """The training that costs most; the first of several."""
    return max(trained, key=lambda one: _amount(one.fidelity))


def _unit_of(evaluator: str, scoring: int) -> str:
    """What scores of an evaluator are; those of one unit are learned from together."""
    unit = evaluator if evaluator == "curve" else _TOP1
    return unit if scoring > _WITH_SGD else _with_optimizer(unit, "sgd")


def _with_optimizer(unit: str, optimizer: str) -> str:
    """A unit of trainings with an optimizer; that of the default recipe goes without saying, and one not known."""
    names = {"": "", DEFAULT_OPTIMIZER: "", "sgd": "SGD"}
    name = names.get(optimizer, printable(optimizer, 60))
    return f"{unit} of trainings with {name}" if name else unit


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
                units.add(_with_optimizer(_TOP1, training.optimizer))
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
                    units.add(_with_optimizer(_TOP1, row.get("optimizer") or ""))
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
    return next(iter(units), _TOP1)


def check_members(space: SearchedSpace, source: str, trained: Sequence[LearnedTraining]) -> None:
    """Refuses trainings of an earlier space of this name, from a file that does not tell its choices."""
    from hwbench.specs import Architecture

    for one in trained:
        try:
            space.network(Architecture.parse(one.architecture), 1)
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
    lines = [(one.architecture, one.score, fidelity.epochs, one.trial, _ENDED) for one in result.history]
    lines += [(*_line(one), _GIVEN_UP) for one in given_up]
    trials, ends = {trial for *_, trial, _ in lines}, {(trial, epochs) for _, _, epochs, trial, _ in lines}
    lines += [
        (architecture, score, epochs, trial, _WENT_ON)
        for architecture, score, epochs, trial in map(_line, at_rungs)
        if trial in trials and (trial, epochs) not in ends
    ]
    data, trainings = seen(result.settings.data, result.settings.modality), dict[object, int]()
    for architecture, score, epochs, trial, state in lines:
        if architecture.partition(":")[0] in same:
            number = trainings.setdefault(len(trainings) if trial < 0 else f"trial {trial}", len(trainings))
            length = replace(fidelity, epochs=epochs)
            rows.append(LearnedTraining(architecture, score, length, first + number, data, made, state))
    return _unit_of(evaluator, result.settings.scoring), rows


def _line(one: Mapping[str, Any]) -> tuple[str, float, int, int]:
    """Architecture, score, epochs and trial of a score before the end of a training; -1: no trial is told."""
    return str(one["architecture"]), float(one["score"]), int(one["epochs"]), int(one.get("trial", -1))
