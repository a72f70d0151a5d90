"""Trainings that ``--evaluator fitted`` learns from: of studies, and of folders of ground truth."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.study_data import Fidelity
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.printable import printable

if TYPE_CHECKING:
    from hwbench.spaces.protocols import NetworkSums, SearchedSpace
    from hwbench.studies.fidelities import ScoreObservation
    from hwbench.studies.fitted_scores import FittedScores
    from hwbench.workspace import Workspace

# Networks that are left out one by one, at most, to say what the model is worth: each is a fit of its own.
_LEFT_OUT = 64
_TOP1 = "top-1"
_GIVEN_UP = frozenset(("architecture", "score", "epochs"))


@dataclass(frozen=True)
class _Trained:
    """What one training said of a network, and how long it was."""

    architecture: str
    score: float
    fidelity: Fidelity
    training: int


@dataclass(frozen=True)
class Learned:
    """Trainings of the networks of one space.

    Attributes:
        sources: Where they are from.
        observations: What they said; the longest trainings are at full length.
    """

    sources: tuple[str, ...]
    observations: tuple[ScoreObservation, ...]

    @property
    def effort(self) -> str:
        """What a study keeps: other trainings make other scores."""
        text = repr([(one.architecture.key, one.score, one.fidelity) for one in self.observations])
        return f"learned from {self} ({hashlib.sha256(text.encode()).hexdigest()[:12]})"

    def __str__(self) -> str:
        networks = len({one.architecture for one in self.observations})
        return f"{networks} networks of {', '.join(self.sources)}"

    def scores(self, sums: NetworkSums) -> FittedScores:
        """The model; ``sums`` are any over the space."""
        from hwbench.studies.fitted_scores import FittedScores

        return FittedScores(sums, self.observations)

    def describe(self, sums: NetworkSums) -> str:
        """What the model is worth on networks that it was not learned from, for people."""
        from hwbench.studies.fitted_scores import FittedScores
        from hwbench.studies.ranking import rank_interval
        from hwbench.studies.scoreboard import FEWEST

        full = {one.architecture: one.score for one in self.observations if not any(one.fidelity)}
        judged = list(full)[:_LEFT_OUT]
        if len(judged) < FEWEST:
            return f"fitted: learned from {self}: too few to say what that is worth"
        left_out = FittedScores(sums, self.observations, leave_out=True)
        predictions = [left_out.predict(one) for one in judged]
        tau = rank_interval([one.mean for one in predictions], [full[one] for one in judged], [0] * len(judged))
        deviation = sum(one.deviation for one in predictions) / len(predictions)
        verdict = "" if tau.low > 0 else "; uninformative: the interval holds zero"
        return (
            f"fitted: learned from {self}; of those left out one by one tau {tau.value:.2f} ({tau.low:.2f} to "
            f"{tau.high:.2f}), a prediction is uncertain by {deviation:.2g}{verdict}"
        )


def learn_from(workspace: Workspace, space: SearchedSpace, sources: Sequence[str]) -> Learned:
    """Reads trainings of a space.

    Args:
        workspace: Has the studies.
        space: Trainings of other spaces are left out; of a union each space needs some.
        sources: Names of studies, and folders of ground truth.

    Raises:
        UnknownName: There is no such study with a result.
        InvalidValue: A study trained nothing, scores are of different units, or none is of the space.
        InvalidFile: A file is damaged.
    """
    from hwbench.specs import Architecture
    from hwbench.studies.fidelities import ScoreObservation, doublings
    from hwbench.studies.ground_truth import NETWORKS

    units, trained = {}, list[_Trained]()
    for source in sources:
        folder = Path(source)
        if (folder / NETWORKS).is_file():
            units[source] = _TOP1
            trained += _of_folder(folder, {one.name for one in space.members}, len(trained))
        else:
            units[source], rows = _of_study(workspace, space, source, len(trained))
            trained += rows
    if len(set(units.values())) > 1:
        told = ", ".join(f"{source}: {unit}" for source, unit in units.items())
        raise InvalidValue(f"--learn-from: scores of one unit are learned from together, got {told}")
    learned = {Architecture.parse(one.architecture).space for one in trained}
    if lacking := [one.name for one in space.members if one.name not in learned]:
        raise InvalidValue(f"--learn-from {', '.join(sources)}: no training there is of space {', '.join(lacking)!r}")
    full = max((one.fidelity for one in trained), key=lambda f: f.epochs * f.frames_share * f.resolution_share**2)
    observations = []
    for one in trained:
        amounts = [
            doublings(one.fidelity.epochs, full.epochs),
            doublings(one.fidelity.frames_share, full.frames_share),
            doublings(one.fidelity.resolution_share, full.resolution_share),
        ]
        apart = tuple(amounts) if any(amounts) else ()
        observations.append(ScoreObservation(Architecture.parse(one.architecture), one.score, apart, one.training))
    return Learned(tuple(sources), tuple(observations))


def _of_folder(folder: Path, spaces: Set[str], first: int) -> list[_Trained]:
    from hwbench.specs import Architecture
    from hwbench.studies.ground_truth import GroundTruth

    found = list[_Trained]()
    for network in GroundTruth.read(folder).networks:
        for training in network.trainings:
            if Architecture.parse(network.architecture).space in spaces:
                fidelity = Fidelity(len(training.curve))
                found.append(_Trained(network.architecture, training.top1, fidelity, first + len(found)))
    return found


def _given_up(workspace: Workspace, name: str) -> list[dict[str, Any]]:
    """The trainings of a study that a pruner ended."""
    from hwbench.spaces.resolve import load_result

    rows = load_result(workspace, name).get("given_up", [])
    if not isinstance(rows, list) or not all(isinstance(r, dict) and r.keys() >= _GIVEN_UP for r in rows):
        raise InvalidFile(f"study {name!r}: given_up of its result is damaged; run the search again")
    return rows


def _of_study(workspace: Workspace, space: SearchedSpace, name: str, first: int) -> tuple[str, list[_Trained]]:
    """The unit of a study's scores, and its trainings."""
    from hwbench.reports.result import read_result
    from hwbench.studies.evaluators import TRAINING
    from hwbench.studies.latencies import choices_digest

    result = read_result(workspace, name)
    evaluator = result.settings.evaluator
    if evaluator not in TRAINING:
        raise InvalidValue(
            f"--learn-from {name}: the study was scored by {printable(evaluator, 60)!r}, which trains nothing; give "
            f"one of {' or '.join(sorted(TRAINING))}, or a folder of ground truth"
        )
    same = {one.name for one in space.members if result.settings.spaces.get(one.name) == choices_digest(one)}
    if not same:
        return evaluator, []
    fidelity, rows = Fidelity.parse(result.settings.effort), list[_Trained]()
    trainings = [(one.architecture, one.score, fidelity) for one in result.history]
    for one in _given_up(workspace, name):
        begun = replace(fidelity, epochs=int(one["epochs"]))
        trainings.append((str(one["architecture"]), float(one["score"]), begun))
    for architecture, score, length in trainings:
        if architecture.partition(":")[0] in same:
            rows.append(_Trained(architecture, score, length, first + len(rows)))
    return evaluator if evaluator == "curve" else _TOP1, rows
