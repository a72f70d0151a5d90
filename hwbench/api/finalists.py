"""Trains the finalists of a search on the study's data, round by round, and says what each validation video came to."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.reading import RGB
from hwbench.api.train_request import RAISE
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, OtherRun
from hwbench.printable import counted
from hwbench.units import MOST_WHOLE, format_rate

if TYPE_CHECKING:
    from hwbench.api.study_data import StudyData
    from hwbench.data.video_scores import VideoScores
    from hwbench.deploy import Clips
    from hwbench.spaces.protocols import SearchedSpace
    from hwbench.specs import Network
    from hwbench.studies.paired import VideoResults
    from hwbench.studies.race import FinalistRun, RaceRound, RaceStanding, RaceWatch
    from hwbench.training import Recipe, StartingWeights, Trained, TrainingProgress
    from hwbench.training.run import Data
    from hwbench.workspace import Workspace

# Below the folder of a study.
FOLDER = "finalists"
FP32, INT8 = "fp32", "int8"
# Of an int8 file the whole validation set is scored; the export itself compares it with the original on so many videos.
_COMPARED_VIDEOS = 16
# A likelihood is at least this.
_LEAST = 1e-12


def begun_race(folder: Path) -> dict[str, str]:
    """Options of the race whose trainings lie in the folder of a study, by the one that began last, as they are typed.

    Empty where none began, or its ``run.json`` is damaged. A score is known where an int8 file is there.
    """
    from hwbench.training.description import RUN, read_description

    runs = sorted((path.stat().st_mtime_ns, path.parent) for path in (folder / FOLDER).glob(f"*-round1/{RUN}"))
    if not runs:
        return {}
    _, run_dir = runs[-1]
    try:
        run = read_description(run_dir)
    except InvalidFile:
        return {}
    score = {"finalist-score": INT8} if any(run_dir.glob(f"{INT8}-*")) else {}
    return {"finalist-epochs": str(run.recipe.get("epochs")), "data": run.data, **score}


def last_race(workspace: Workspace, study: str) -> dict[str, str]:
    """Options of the last race of a study, as they are typed; of a front those within its first budget.

    What its last command asked for comes before what it raced by, which studies of before have alone. Of a race of
    these that has no result its trainings tell.
    """
    from hwbench.reports.result import read_result
    from hwbench.spaces.begun import asked_options

    folder = workspace.studies / study
    try:
        races = list(read_result(workspace, study).races.values())
    except HwbenchError:  # it was interrupted before it had a result, or that is damaged
        races = []
    began = max((len(one.rounds[0].standings) for one in races if one.rounds), default=0)
    finalists = {"finalists": str(began)} if began else {}
    return {**finalists, **(races[0].asked if races else begun_race(folder)), **asked_options(folder)}


@dataclass(frozen=True)
class StudyFinalists:
    """Trains networks as ``hwbench.studies.race`` asks for it; a training that ended goes on, a finished one is read.

    Args:
        workspace: Holds the data.
        folder: Of the study.
        data: What is trained on.
        space: What the networks are members of.
        epochs: Of the first round; each further one has twice as many.
        score: Whose accuracy is told: ``fp32``, the trained network, or ``int8``, the file that is made of it.
        seed: Of the study, whose split of the data it is. Weights, clips and order are those of ``own_seed``, the same
            for all networks.
        runtime: Engine of the int8 file.
        num_classes: That networks of the space are made with; of those that are trained the data tells it.
        listener: Hears each step.
    """

    workspace: Workspace
    folder: Path
    data: StudyData
    space: SearchedSpace
    epochs: int
    score: str
    seed: int
    runtime: str
    num_classes: int
    listener: Listener = field(default=SILENT, compare=False, repr=False)

    @property
    def description(self) -> Mapping[str, str | int]:
        """What the result of a race says of its trainings."""
        return {"data": self.data.source, "score": self.score, "epochs": self.epochs}

    def __call__(self, architecture: str, number: int, /) -> FinalistRun:
        """Trains a network in a round, from 1, from the weights of the round before.

        Raises:
            CheckFailed: It diverges, or its int8 file does not compute what it does.
            InvalidValue: It was trained on other videos, those that the data had by then.
        """
        from hwbench.data.video_scores import SCORES
        from hwbench.studies.race import FinalistRun
        from hwbench.training import load_scores

        network = self.data.trained(self.member(architecture))
        data = self.data.for_network(network, self.seed, network.input)
        data.training.seed = self.own_seed
        network = network.with_classes(len(data.training.classes))
        trained = self._train(network, data, architecture, number)
        run_dir = trained.checkpoint.path.parent
        scores = load_scores(run_dir / SCORES) if self.score == FP32 else self._int8(run_dir)
        shown = run_dir.relative_to(self.workspace.root) / trained.checkpoint.path.name
        # As kept: a race that is repeated, or whose files workers made ahead, takes as long as one that trains them.
        return FinalistRun(video_results(scores), trained.checkpoint.metrics["seconds"], str(shown))

    def member(self, architecture: str) -> Network:
        """The network of a key."""
        from hwbench.specs import Architecture

        return self.space.network(Architecture.parse(architecture), self.num_classes)

    def is_trained(self, architecture: str, number: int, /) -> bool:
        """Whether the training of a round is finished, with its int8 file where that is scored."""
        from hwbench.training import CHECKPOINT

        run_dir = self.run_dir(architecture, number)
        return (run_dir / CHECKPOINT).is_file() and (self.score == FP32 or self._is_scored(run_dir))

    def __reduce__(self) -> tuple[type[StudyFinalists], tuple[object, ...]]:
        """Other processes tell nobody."""
        return StudyFinalists, tuple(getattr(self, one.name) for one in fields(self) if one.name != "listener")

    def run_dir(self, architecture: str, number: int) -> Path:
        """The folder of a training: other data, seeds, lengths, optimizers or ways with what cannot be read have
        another one.
        """
        facts = json.dumps(
            [
                *(architecture, self.data.source, self.seed, self.epochs, *self._modality, *self._span(architecture)),
                *(self.data.recipe(self.seed).optimizer, self.own_seed),
                *([] if self.data.on_error == RAISE else [self.data.on_error]),
            ]
        )
        return self.folder / FOLDER / f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}-round{number}"

    @property
    def own_seed(self) -> int:
        """The seed behind that of the study, 0 behind the largest of 63 bits.

        With the seed of the trials a training of their length would be theirs again, and say nothing new.
        """
        return (self.seed + 1) % (MOST_WHOLE + 1)

    @property
    def _modality(self) -> list[str]:
        return [] if self.data.modality == RGB else [self.data.modality]

    def _span(self, architecture: str) -> list[float]:
        """Seconds that clips of the network cover, where the space says so."""
        span_s = self.member(architecture).span_s
        return [] if span_s is None else [span_s]

    def _train(self, network: Network, data: Data, architecture: str, number: int) -> Trained:
        from hwbench.training import train

        run_dir = self.run_dir(architecture, number)
        try:
            return train(
                self._recipe(number),
                network,
                data,
                run_dir,
                start=self._start(architecture, number),
                resources=self.data.resources(self.seed),
                progress=self._told(number),
            )
        except OtherRun as error:
            raise InvalidValue(
                f"{run_dir}: a finalist was trained on other videos, or otherwise ({error.changes}); to let the "
                f"finalists race anew, remove {run_dir.parent} or take another --study"
            ) from None

    def _recipe(self, number: int) -> Recipe:
        from hwbench.studies.race import round_epochs

        epochs = round_epochs(self.epochs, number)
        return replace(self.data.recipe(self.own_seed), epochs=epochs, eval_every=epochs)

    def _start(self, architecture: str, number: int) -> StartingWeights | None:
        """The weights of the round before."""
        from hwbench.training import CHECKPOINT, StartingWeights, load_checkpoint

        if number == 1:
            return None
        checkpoint, weights = load_checkpoint(self.run_dir(architecture, number - 1) / CHECKPOINT)
        return StartingWeights(weights, f"sha256 {checkpoint.sha256}")

    def _int8(self, run_dir: Path) -> VideoScores:
        """Scores of the validation videos by the int8 file, which is made once."""
        from hwbench.api.export import export_source
        from hwbench.api.export_sources import source_of
        from hwbench.data.video_scores import SCORES
        from hwbench.deploy import open_validation
        from hwbench.runtimes import get
        from hwbench.specs import Precision
        from hwbench.training import CHECKPOINT, load_scores, save_scores

        out = self._file_dir(run_dir)
        if not self._is_scored(run_dir):
            # Checkpoints of before do not say by which seed their data was split.
            source, engine = replace(source_of(run_dir / CHECKPOINT), data_seed=self.seed), get(self.runtime)
            deployed = export_source(
                self.workspace,
                source,
                out,
                Precision.INT8,
                videos=_COMPARED_VIDEOS,
                seed=self.seed,
                policy=self.data.policy,
                runtime=engine,
                listener=self.listener,
            )
            validation = open_validation(self.workspace, self.data.source, source, policy=self.data.policy)
            save_scores(out / SCORES, file_scores(deployed.path, validation))
        return load_scores(out / SCORES)

    def _is_scored(self, run_dir: Path) -> bool:
        """Whether the int8 file has scores of the videos that the network was validated on.

        Scores that an earlier version wrote may be of other videos.
        """
        from hwbench.data.video_scores import SCORES
        from hwbench.training import load_scores

        path = self._file_dir(run_dir) / SCORES
        return path.is_file() and {*load_scores(path).videos} <= {*load_scores(run_dir / SCORES).videos}

    def _file_dir(self, run_dir: Path) -> Path:
        return run_dir / f"{INT8}-{self.runtime}"

    def _told(self, number: int) -> TrainingProgressListener:
        return TrainingProgressListener(self.listener, number)


class TrainingProgressListener:
    """Passes the steps of a finalist's training on, with their rate."""

    def __init__(self, listener: Listener, number: int) -> None:
        self._listener, self._stage = listener, f"finalist, round {number}"
        self._began, self._first = 0.0, 0

    def __call__(self, at: TrainingProgress) -> None:
        if not self._began:
            self._began, self._first = time.monotonic(), at.step
        rate = format_rate(at.step - self._first, time.monotonic() - self._began)
        self._listener.progress(StageProgress(self._stage, at.step, at.steps, rate, f"loss {at.loss:.3f}"))


def file_scores(path: Path, validation: Clips) -> VideoScores:
    """What a deployed file says of each video.

    Raises:
        CheckFailed: It does not load or run.
    """
    import torch

    from hwbench.deploy.model_process import served
    from hwbench.deploy.parity import judged
    from hwbench.models import frames_to_batch

    logits, videos = [], []
    with served(path) as model:
        for video, view in validation.views():
            logits.append(torch.from_numpy(model(frames_to_batch(view).contiguous().numpy()).copy()))
            videos.append(video)
    return judged(logits, videos, validation.dataset.videos)


def video_results(scores: VideoScores) -> VideoResults:
    """Hits and losses of videos; of a video of several classes the loss is its mean binary cross-entropy."""
    from hwbench.studies.paired import VideoResults

    likely, targets = scores.scores.clamp(_LEAST, 1 - _LEAST), scores.targets
    best = scores.scores.argmax(1, keepdim=True)
    if targets.is_floating_point():
        hits = targets.gather(1, best)[:, 0] >= 0.5
        losses = -(targets * likely.log() + (1 - targets) * (1 - likely).log()).mean(1)
    else:
        hits, losses = best[:, 0] == targets, -likely.gather(1, targets[:, None])[:, 0].log()
    return VideoResults(hits.numpy(), losses.double().numpy(), scores.videos)


def race_watch(listener: Listener, data: str) -> RaceWatch:
    """Tells a listener of the rounds of a race, and what is trained on."""
    from hwbench.studies.race import RaceWatch

    class RaceProgress(RaceWatch):
        def began(self, number: int, finalists: int, of: int) -> None:
            self.done, self.total, self.stage = 0, finalists, f"race, round {number} of {of}"
            if number == 1:
                listener.say(f"{counted(finalists, 'network')} race, trained on {data}")
            listener.progress(StageProgress(self.stage, 0, finalists))

        def trained(self, number: int, finalist: RaceStanding) -> None:
            self.done += 1
            note = finalist.note if finalist.note else f"top-1 {finalist.top1:.3f}"
            listener.progress(StageProgress(self.stage, self.done, self.total, note=note))
            if finalist.note:
                listener.say(f"{finalist.architecture} is out of the race: {finalist.note}")

        def ended(self, one: RaceRound) -> None:
            counts = {name: sum(s.outcome == name for s in one.standings) for name in ("beaten", "halved", "failed")}
            out = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
            best = one.standings[0]
            after = counted(one.epochs, "epoch")
            listener.say(f"{self.stage}: top-1 {best.top1:.3f} at best after {after}; {out or 'none out'}")

        def alone(self) -> None:
            listener.say("there is no race: of the networks that were tried, one is within the budget")

    return RaceProgress()
