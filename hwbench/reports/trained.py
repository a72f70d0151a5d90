"""Networks of a study that were trained, and what the study's evaluator is worth on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hwbench.errors import HwbenchError
from hwbench.reports.result import StoredResult
from hwbench.reports.run_log import read_log
from hwbench.studies.ranking import chance_regret
from hwbench.studies.scoreboard import Scoreboard, standing
from hwbench.training import CHECKPOINT
from hwbench.training.description import RUN, read_description
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


def finished_runs(workspace: Workspace, data: str | None) -> dict[str, float]:
    """The finished trainings of the workspace: top-1 by network, of the newest of each; ``data``: on these alone."""
    return dict(_finished_runs(workspace, data))


def _finished_runs(workspace: Workspace, data: str | None) -> Iterator[tuple[str, float]]:
    paths = [path for path in (workspace.root / RUNS).glob(f"*/{RUN}") if (path.parent / CHECKPOINT).is_file()]
    for path in sorted(paths, key=lambda one: one.stat().st_mtime):
        try:
            described, validated = read_description(path.parent), read_log(path.parent).validated
        except HwbenchError:
            continue  # one that a report of runs would tell about, and nothing to judge by
        if validated and validated[-1].top1 is not None and data in (None, described.data):
            yield described.network, validated[-1].top1


def raced_networks(result: StoredResult) -> dict[str, float]:
    """The finalists of a study after the first round of its races, in which all of them were trained alike: top-1."""
    first = [standing for race in result.races.values() for one in race.rounds[:1] for standing in one.standings]
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
