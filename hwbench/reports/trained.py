"""Networks of a study that were trained, and what the study's evaluator is worth on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hwbench.errors import HwbenchError
from hwbench.printable import printable
from hwbench.reports.profiled import Missing, or_missing
from hwbench.reports.race_advice import race_advice
from hwbench.reports.result import StoredResult
from hwbench.reports.run_log import read_log
from hwbench.studies.evaluators import READING, TRAINING
from hwbench.studies.ranking import chance_regret
from hwbench.studies.scoreboard import Scoreboard, standing
from hwbench.studies.settings import FITTED
from hwbench.training import CHECKPOINT
from hwbench.training.description import RUN, RunDescription, read_description
from hwbench.workspace import Workspace

RUNS = "runs"
# Networks of a study are compared within fifths of its budget.
_BANDS = 5


@dataclass(frozen=True)
class TrainedMember:
    """A network of a study that was trained."""

    architecture: str
    band: str
    top1: float


@dataclass(frozen=True)
class RunsAlike:
    """Finished trainings of the workspace that differ in their networks and seeds alone.

    Attributes:
        top1: By network, as the study calls it, of the newest training of each.
        words: On what they were trained, and how long.
    """

    top1: Mapping[str, float]
    words: str = ""


def finished_runs(workspace: Workspace, result: StoredResult, data: str | None = None) -> RunsAlike:
    """The trainings that judge the networks of a study: of those that are alike the ones that have most networks.

    Args:
        workspace: Has them.
        result: The study. Trainings with the seed and the length of its trials are these once more: they have the
            score that is to be judged, and do not count.
        data: On these alone; None: on those of the study, or on any where it has none, or has an evaluator of another
            package, whose scores need not rest on them.
    """
    groups, networks = dict[str, RunsAlike](), {result.network_name(one): one.architecture for one in result.history}
    data = data or (result.settings.data if result.settings.evaluator in READING else "") or None
    for described, top1 in _finished_runs(workspace):
        if described.network in networks and data in (None, described.data) and not _is_trial(described, result):
            recipe = {name: value for name, value in described.recipe.items() if name != "seed"}
            begins_with = {key: value if key == "teacher" else "" for key, value in described.begins_with.items()}
            how = [described.data, described.classes, recipe, begins_with, dict(described.reading)]
            key = json.dumps(how, sort_keys=True, default=str)
            before = groups.pop(key, None)  # the newest group is the last one
            words = f"on {printable(described.data)}, {described.recipe.get('epochs', '?')} epochs"
            groups[key] = RunsAlike({**(before.top1 if before else {}), networks[described.network]: top1}, words)
    return max(reversed(groups.values()), key=lambda one: len(one.top1), default=RunsAlike({}))


def _is_trial(described: RunDescription, result: StoredResult) -> bool:
    settings, recipe = result.settings, described.recipe
    if settings.evaluator not in TRAINING:  # one of another package keeps the same, whether or not it trains
        return False
    trained = described.data == settings.data and settings.effort == f"{recipe.get('epochs')} epochs"
    return trained and recipe.get("seed") == settings.seed


def _finished_runs(workspace: Workspace) -> Iterator[tuple[RunDescription, float]]:
    paths = [path for path in (workspace.root / RUNS).glob(f"*/{RUN}") if (path.parent / CHECKPOINT).is_file()]
    for path in sorted(paths, key=lambda one: one.stat().st_mtime):
        try:
            described, validated = read_description(path.parent), read_log(path.parent).validated
        except HwbenchError:
            continue  # one that a report of runs would tell about, and nothing to judge by
        if validated and validated[-1].top1 is not None:
            yield described, validated[-1].top1


def raced_networks(result: StoredResult, data: str | None = None) -> dict[str, float]:
    """The finalists of a study after the first round of its races, in which all of them were trained alike: top-1.

    Args:
        result: The study.
        data: Races on these alone; None: on any.
    """
    races = [race for race in result.races.values() if data in (None, race.data)]
    first = [standing for race in races for one in race.rounds[:1] for standing in one.standings]
    return {one.architecture: one.top1 for one in first if one.top1 == one.top1}


def study_scoreboard(result: StoredResult, trained: Mapping[str, float]) -> Scoreboard | None:
    """What the evaluator of a study is worth on those of its networks that were trained; None where none was.

    Args:
        result: The study.
        trained: Top-1 by network, all of them trained alike.
    """
    said = {one.architecture: one for one in result.history}
    known = [(said[key], top1) for key, top1 in trained.items() if key in said]
    if not known:
        return None
    budget_s = result.settings.budget_s
    networks = [
        TrainedMember(one.architecture, str(min(int(_BANDS * one.predicted_s / budget_s), _BANDS - 1)), top1)
        for one, top1 in known
    ]
    one = standing(result.settings.evaluator, networks, [candidate.score for candidate, _ in known])
    chance = chance_regret([network.top1 for network in networks], [network.band for network in networks])
    return Scoreboard((one,), len(networks), None, chance, None)


def judged(workspace: Workspace, result: StoredResult) -> tuple[Scoreboard | Missing, str]:
    """The scoreboard of a study by those of its networks that were trained, and which those are, in words."""
    runs, raced = finished_runs(workspace, result), raced_networks(result)
    return or_missing(lambda: _board(result, max(runs.top1, raced, key=len))), _judged_by(runs, raced)


def _board(result: StoredResult, trained: Mapping[str, float]) -> Scoreboard:
    board = study_scoreboard(result, trained)
    if board is None:
        raise HwbenchError(
            f"no network of the study was trained, so what its score is worth is not known; {race_advice(result)}"
        )
    return board


def _judged_by(runs: RunsAlike, raced: Mapping[str, float]) -> str:
    if len(runs.top1) < len(raced):
        return "its finalists, after the first round of the race"
    return f"in runs/, {runs.words}" if runs.words else "in runs/"


def board_doubts(board: Scoreboard | Missing, result: StoredResult) -> list[str]:
    """Names an evaluator that says nothing of the networks that were trained, or of those it was learned from."""
    if isinstance(board, Missing) or not board.standings:
        learned, evaluator = result.learned, result.settings.evaluator
        if learned is None or learned.informative or evaluator != FITTED:
            return []
        return [
            f"evaluator {evaluator} is uninformative on the {learned.networks} networks that it was learned from, each "
            f"left out in turn, by its rank correlation: {learned.doubt}, so its best network is a draw"
        ]
    one = board.standings[0]
    if not one.judged or one.informative:
        return []
    return [
        f"evaluator {one.evaluator} is uninformative on the {one.networks} networks of the study that were trained: "
        "the interval of its rank correlation holds zero, so its best network is a draw"
    ]
