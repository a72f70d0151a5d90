"""``hwbench.scoreboard``: how well evaluators rank networks that were trained, beside what is possible."""

from __future__ import annotations

import math
import shlex
import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench import lookup
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.requests import option, request
from hwbench.api.score_plan import SUPERNET_EPOCHS
from hwbench.api.train_request import ON_ERROR, RAISE
from hwbench.errors import InvalidFile, InvalidValue, NotMeasured, UnknownName
from hwbench.registry import suggest

if TYPE_CHECKING:
    import pandas

    from hwbench.api.study_data import StudyData
    from hwbench.api.study_supernet import StudySupernet
    from hwbench.spaces import StagedSpace
    from hwbench.specs import Network
    from hwbench.studies.evaluators import Context
    from hwbench.studies.fitted_scores import FittedScores
    from hwbench.studies.ground_truth import GroundTruth, TrainedNetwork
    from hwbench.studies.scoreboard import Scoreboard
    from hwbench.workspace import Workspace

# Epochs of an evaluator that trains.
SHORT_EPOCHS = 2


@request
class ScoreboardRequest:
    """Say how well evaluators rank networks that were trained.

    Of a folder of ground truth (experiments/018-ground-truth): all evaluators that have scored its networks, and what
    the first epochs of a training say. Those that were trained most often are judged on, once they are 24; the others
    are there for fitted to learn from. Of a study: its evaluator, on the networks of the study that were trained to the
    end (hwbench train, in runs/), or on its finalists where these are more. Networks are compared with others of about
    their latency.

    tau is Kendall's rank correlation with top-1, with a 95 % interval; the ceiling is that of the networks' trainings
    with as many others of the same networks. An evaluator whose interval holds zero is uninformative: its best network
    is a draw.
    """

    source: str = option(
        argument=True, metavar="STUDY|FOLDER", names="study", help="A study, or a folder of ground truth."
    )
    evaluator: tuple[str, ...] = option(
        default=(), help="Score the networks by this evaluator as well (repeatable); a folder keeps the scores."
    )
    band: tuple[str, ...] = option(default=(), help="Of a folder: only networks of this band (repeatable).")
    data: str | None = option(
        default=None,
        help="Data of the trainings, and for evaluators that need any; default: those of the source.",
    )
    on_error: str = option(default=RAISE, choices=ON_ERROR, help="Unreadable videos: raise, skip or replace.")

    def validate(self) -> None:
        """Raises InvalidValue where no video is read that could be left out."""
        if self.on_error != RAISE and not self.evaluator:
            raise InvalidValue(f"--on-error {self.on_error} goes with --evaluator, which reads videos")


@dataclass(frozen=True)
class ScoreboardResult:
    """What evaluators are worth on trained networks.

    Attributes:
        source: The study or folder.
        board: The evaluators, best first.
    """

    source: str
    board: Scoreboard

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench scoreboard --json`` prints; rank correlations are -1 to 1, regrets shares."""
        board, ceiling = self.board, self.board.ceiling
        return {
            "source": self.source,
            "networks": board.networks,
            "others": board.others,
            "ceiling": None if ceiling is None else _number(ceiling.value),
            "ceiling_low": None if ceiling is None else _number(ceiling.low),
            "ceiling_high": None if ceiling is None else _number(ceiling.high),
            "chance_regret": _number(board.chance_regret),
            "training_s": board.cost_s,
            "best": None if board.best is None else board.best.evaluator,
            "evaluators": [one.to_json() for one in board.standings],
        }

    def to_frame(self) -> pandas.DataFrame:
        """One row for each evaluator, best first; the columns are the keys of ``evaluators``."""
        from pandas import DataFrame

        return DataFrame([one.to_json() for one in self.board.standings])


def scoreboard(
    request: ScoreboardRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> ScoreboardResult:
    """Says how well evaluators rank networks that were trained.

    Args:
        request: Which networks, and which evaluators.
        listener: Hears how many networks are scored.
        workspace: Holds studies, spaces and runs; default: the one around the current folder.

    Raises:
        UnknownName: No such study, folder, evaluator or band.
        InvalidFile: A file of the source is damaged.
        NotMeasured: No network of the study was trained.
    """
    from hwbench.spaces.begun import is_begun
    from hwbench.studies.ground_truth import NETWORKS, no_truth
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    folder = Path(request.source)
    if lookup.is_file(folder / NETWORKS):
        return ScoreboardResult(request.source, _of_folder(workspace, folder, request, listener))
    if lookup.is_folder(folder) and ("/" in request.source or not is_begun(workspace.studies / request.source)):
        raise InvalidFile(f"{no_truth(folder)}, or the name of a study")
    if request.band:
        raise InvalidValue("--band is about a folder of ground truth")
    return ScoreboardResult(request.source, _of_study(workspace, request, listener))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _of_folder(workspace: Workspace, folder: Path, request: ScoreboardRequest, listener: Listener) -> Scoreboard:
    from hwbench.studies.ground_truth import GroundTruth
    from hwbench.studies.scoreboard import scoreboard as judged

    truth = GroundTruth.read(folder)
    known = sorted({one.band for one in truth.networks})
    for band in request.band:
        if band not in known:
            raise UnknownName(f"{folder}: no band {band!r}; {suggest(band, known)}")
    data = _data(workspace, truth, request, listener)
    for name in request.evaluator:
        truth = truth.with_scores(name, _scores(workspace, truth, name, data, listener))
        truth.write_scores()
    return judged(truth, request.band or None)


def _data(workspace: Workspace, truth: GroundTruth, request: ScoreboardRequest, listener: Listener) -> StudyData:
    """What evaluators may look at and train on; a listener hears where videos may be left out."""
    from hwbench.api.study_data import Fidelity, StudyData, tell_unread

    source = request.data or truth.data
    tell_unread(source, request.on_error, listener)
    return StudyData(workspace, source, Fidelity(SHORT_EPOCHS), on_error=request.on_error)


def _scores(
    workspace: Workspace, truth: GroundTruth, name: str, data: StudyData, listener: Listener
) -> dict[str, tuple[float, float]]:
    """What an evaluator says of each network of a ground truth, with the CPU time that it takes."""
    from hwbench.studies.evaluations import EvaluatorSetup
    from hwbench.studies.evaluators import evaluators, get

    networks = [_network(workspace, truth, one) for one in truth.networks]
    setup = EvaluatorSetup(get(name), _context(workspace, truth, networks, name, data, listener))
    made = setup.evaluator()
    found: dict[str, tuple[float, float]] = {}
    for done, (one, network) in enumerate(zip(truth.networks, networks), start=1):
        start = time.process_time()
        with evaluators.blaming(setup.make, on=network.name):
            score = made.score(network)
        found[one.name] = (score, time.process_time() - start)
        listener.progress(StageProgress(f"score by {name}", done, len(networks)))
    return found


def _network(workspace: Workspace, truth: GroundTruth, one: TrainedNetwork) -> Network:
    """A network of a ground truth."""
    from hwbench.specs import Architecture

    architecture = Architecture.parse(one.architecture)
    return _space(workspace, truth, architecture.space).network(architecture, truth.num_classes)


def _space(workspace: Workspace, truth: GroundTruth, name: str) -> StagedSpace:
    """A space of a ground truth, whose file may lie beside it; else that of the workspace."""
    from hwbench.spaces import load_space, read_space

    beside = truth.folder / f"{name}.toml"
    return read_space(beside) if beside.is_file() else load_space(workspace, name)


def _context(
    workspace: Workspace, truth: GroundTruth, networks: list[Network], name: str, data: StudyData, listener: Listener
) -> Context:
    """What evaluator ``name`` may use: the trained networks are those that a score is relative to."""
    from hwbench.studies.evaluators import MODULES, Context
    from hwbench.studies.settings import FITTED

    inherited = _Inherited(workspace, truth, data, networks, listener)
    learns = name == FITTED or name not in MODULES  # an evaluator of another package may
    fitted = _left_out(workspace, truth, inherited.space_name) if learns else None
    return Context(0, lambda count: networks[:count], data.top1, data.losses, data.clips, inherited.top1, fitted)


def _left_out(workspace: Workspace, truth: GroundTruth, space: str) -> FittedScores:
    """What the trainings of all other networks of a space say of one; nothing of networks of other spaces."""
    from hwbench.api.learning import learn_from
    from hwbench.spaces.sums import SpaceSums
    from hwbench.studies.fitted_scores import FittedScores

    opened = _space(workspace, truth, space)
    observations = learn_from(workspace, opened, [str(truth.folder)]).observations
    sums = SpaceSums.of(opened, lambda block, x: 0.0, num_classes=truth.num_classes)
    return FittedScores(sums, observations, leave_out=True)


@dataclass(frozen=True)
class _Inherited:
    """What trained networks are worth with the weights of a supernet of their space; other networks are not judged.

    A ground truth says no latencies of other networks. The supernet is trained on all that take no more multiply-adds
    than the largest of the trained ones: about what a study would train it on.
    """

    workspace: Workspace
    truth: GroundTruth
    data: StudyData
    networks: list[Network]
    listener: Listener

    def top1(self, network: Network) -> float:
        from hwbench.specs import Architecture

        same = Architecture.parse(network.name).space == self.space_name
        return self._supernet.top1(network) if same else math.nan

    @cached_property
    def space_name(self) -> str:
        """The space that most of the networks are of."""
        from hwbench.specs import Architecture

        return Counter(Architecture.parse(one.name).space for one in self.networks).most_common(1)[0][0]

    @cached_property
    def _supernet(self) -> StudySupernet:
        from hwbench.api.study_supernet import StudySupernet, block_macs
        from hwbench.spaces.feasible import FeasibleSet
        from hwbench.spaces.sums import SpaceSums
        from hwbench.specs import Architecture

        named = {one: Architecture.parse(one.name) for one in self.networks}
        own = {one: key for one, key in named.items() if key.space == self.space_name}
        space = _space(self.workspace, self.truth, self.space_name)
        macs = SpaceSums.of(space, block_macs, num_classes=next(iter(own)).num_classes)
        feasible = FeasibleSet(macs, max(macs.total(key) for key in own.values()))
        return StudySupernet(self.workspace, self.data, feasible, SUPERNET_EPOCHS, 0, self.listener)


def _of_study(workspace: Workspace, request: ScoreboardRequest, listener: Listener) -> Scoreboard:
    from hwbench.reports.race_advice import race_advice
    from hwbench.reports.result import read_result
    from hwbench.reports.trained import finished_runs, raced_networks, study_scoreboard

    if request.evaluator:
        raise InvalidValue("--evaluator is about a folder of ground truth; a study has the scores of its own evaluator")
    result = read_result(workspace, request.source)
    runs = finished_runs(workspace, result, request.data)
    known, raced = runs.top1, raced_networks(result, request.data)
    alike = f" ({runs.words}; other trainings do not count)" if known else ""
    listener.say(f"networks of the study that were trained in runs/: {len(known)}{alike}")
    if len(raced) > len(known):
        listener.say(f"judged by its {len(raced)} finalists, after the first round of their race")
        known = raced
    board = study_scoreboard(result, known)
    if board is None:
        on, instead = f" on {request.data}", "or leave out --data"
        if request.data is None:
            on, instead = "", f"or judge by a folder of ground truth; {race_advice(result)}"
        raise NotMeasured(
            f"study {request.source!r}: none of its networks has been trained{on}; train some of them: hwbench train "
            f"ARCHITECTURE --data {shlex.quote(request.data or 'DATA')}, {instead}"
        )
    return board
