"""``hwbench.test``: what a checkpoint is worth on validation videos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.models import check_made_by, checkpoint_file
from hwbench.api.reading import (
    DECODED_CACHE_HELP,
    DECODER_HELP,
    MODALITY_HELP,
    check_decoded_cache,
    check_modality,
    reading_of,
)
from hwbench.api.requests import option, request
from hwbench.api.train import say_unreadable, shared_resources
from hwbench.api.train_request import COMPUTE, ON_ERROR, check_crops
from hwbench.errors import UsageError
from hwbench.units import MOST_THREADS

if TYPE_CHECKING:
    from hwbench.training.processes import World
    from hwbench.workspace import Workspace


@request
class TestRequest:
    """Test a checkpoint on the validation videos, averaging scores over clips and crops of each video."""

    __test__ = False  # pytest takes classes of this name for its own

    checkpoint: Path = option(argument=True, help="A file that hwbench train wrote, or the folder of its run.")
    data: str | None = option(default=None, help="As for train; default: what it was trained on.")
    clips: int = option(default=10, min=1, help="Test clips per video.")
    crops: int = option(default=3, min=1, max=3, help="Test crops per clip: 1 or 3.")
    on_error: str = option(default="raise", choices=ON_ERROR, help="Unreadable videos: raise, skip or replace.")
    modality: str | None = option(default=None, help=MODALITY_HELP + " Default: as it was trained.")
    decoder: str = option(default="pyav", help=DECODER_HELP)
    decoded_cache: str | None = option(default=None, metavar="SIZE", help=DECODED_CACHE_HELP)
    device: str = option(default="auto", choices=COMPUTE, help="Where to compute: cpu, cuda, or auto.")
    made_by: str | None = option(
        default=None, help="Of a checkpoint of your own model: package.module:function, which makes the model."
    )
    threads: int | None = option(default=None, min=1, max=MOST_THREADS, help="Threads of torch; default: all cores.")
    workers: int | None = option(default=None, min=0, help="Processes that read videos; default: by data and cores.")
    scores: Path | None = option(default=None, metavar="FILE.npz", help="Keep the scores of every video in a file.")

    def validate(self) -> None:
        """Raises InvalidValue where crops are neither 1 nor 3, or a size is none."""
        check_crops(self.crops)
        check_decoded_cache(self.decoded_cache)


@dataclass(frozen=True)
class TestResult:
    """Top-1 and top-5 of a checkpoint: means over ``videos``, of each the mean score of so many ``views``.

    ``chance`` is the top-1 of guessing: the share of the classes that a video has, on average. ``mean_ap`` is the mean
    average precision over the classes, None where a video has one class. ``unreadable`` are the videos that could not
    be read.
    """

    __test__ = False  # pytest takes classes of this name for its own

    checkpoint: Path
    architecture: str
    data: str
    top1: float
    top5: float
    chance: float
    videos: int
    views: int
    unreadable: tuple[str, ...]
    mean_ap: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench test --json`` prints."""
        values = {**vars(self), "checkpoint": str(self.checkpoint), "unreadable": list(self.unreadable)}
        if self.mean_ap is None:
            del values["mean_ap"]
        return values


def test(  # no function for pytest
    request: TestRequest,
    listener: Listener = SILENT,  # noqa: PT028
    *,
    workspace: Workspace | str | Path | None = None,  # noqa: PT028
) -> TestResult:
    """Scores a checkpoint on the validation videos of its own data, or of others with the same classes.

    Args:
        request: Which checkpoint, on what, with how many views of a video.
        listener: Hears how many batches are done, which videos could not be read, and where decoded ones cannot be
            kept.
        workspace: Holds the synthetic set; default: the one around the current folder.

    Raises:
        InvalidFile: No checkpoint there, or a damaged one.
        InvalidValue: The data has other classes than the checkpoint.
        UnknownName: No such data.
        VideoError: A video cannot be read.
        WorkspaceError: The file of ``scores`` cannot be written; asked before anything is scored.
    """
    from hwbench.training.processes import joined

    with joined(request.device, after="the same command begins anew") as world:
        return _test(request, listener, workspace, world)


def _test(
    request: TestRequest, listener: Listener, workspace: Workspace | str | Path | None, world: World
) -> TestResult:
    from hwbench.data import FailurePolicy
    from hwbench.data.video_scores import save_scores
    from hwbench.spaces import load_named
    from hwbench.specs.kinds.by_hand import is_by_hand
    from hwbench.training import load_checkpoint, score
    from hwbench.workspace import Workspace, check_writable

    workspace = Workspace.at(workspace)
    if request.scores is not None and world.leads:
        check_writable(request.scores)
    load_named(request.made_by)
    path = checkpoint_file(str(request.checkpoint))
    checkpoint = load_checkpoint(path)[0]
    if request.made_by is not None and not any(map(is_by_hand, checkpoint.network.blocks)):
        raise UsageError(f"--made-by: {path} is made of blocks of a space; leave it out")
    check_made_by(request.made_by, str(path), checkpoint.network.blocks, checkpoint.network.input)
    check_modality(request.modality, checkpoint)
    source = request.data or checkpoint.source
    listener.progress(StageProgress("test", 0, None))
    stored, scores = score(
        path,
        workspace,
        source=source,
        views=(request.clips, request.crops),
        policy=FailurePolicy.parse(request.on_error),
        reading=reading_of(request.decoder, request.decoded_cache, request.modality),
        resources=shared_resources(source, request.device, request.threads, request.workers),
        world=world,
        progress=lambda done, total: listener.progress(StageProgress("test", done, total)),
        say=listener.say,
    )
    say_unreadable(listener, scores.failures.causes)
    by_video = scores.by_video
    assert by_video is not None  # of clips that were just scored
    if request.scores is not None and world.leads:
        save_scores(request.scores, by_video)
    return TestResult(
        checkpoint=path,
        architecture=stored.network.name,
        data=source,
        top1=scores.top1,
        top5=scores.top5,
        chance=by_video.chance,
        videos=scores.videos,
        views=request.clips * request.crops,
        unreadable=tuple(sorted(scores.failures.causes)),
        mean_ap=by_video.measures().get("mean_ap"),
    )
