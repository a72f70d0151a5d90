"""Top-1 and top-5 of anything that maps clips to logits: a module in training, a checkpoint, a deployed file."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from hwbench.data import Failures, TestClips
from hwbench.data.loading import Loader, in_order
from hwbench.data.video_scores import VideoScores, averaged
from hwbench.errors import CheckFailed, InvalidValue, VideoError
from hwbench.training.processes import ALONE, World

Predict = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Scores:
    """Shares of videos (0-1) whose class has the highest score, or one of the five highest (all, below five classes).

    A video's score is the mean over its views of the softmax of the logits, or of their sigmoid where videos may show
    several classes. ``videos`` counts the scored ones; ``by_video`` has the scores themselves.
    """

    top1: float
    top5: float
    videos: int
    failures: Failures = field(default_factory=Failures)
    by_video: VideoScores | None = field(default=None, compare=False, repr=False)


def evaluate(
    predict: Predict,
    dataset: TestClips,
    *,
    batch_size: int = 16,
    workers: int = 0,
    device: torch.device | str = "cpu",
    world: World = ALONE,
    progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """Scores of ``predict`` over all views of all videos of a test set.

    Args:
        predict: float32 (N, 3, T, H, W) -> logits (N, classes); a module must be in eval mode already.
        dataset: What to score; its failure policy holds.
        batch_size: Items per call; N is that times the crops, and less in the last call. 1 suits fixed batch sizes.
        workers: Processes that read videos.
        device: Where ``predict`` wants its input.
        world: Processes that divide the videos among them; each gets the scores of all.
        progress: Called after each batch with (batches done, batches in all).

    Raises:
        VideoError: No video could be read, or one under the policy ``raise``.
        InvalidValue: The logits do not fit the classes.
        CheckFailed: A logit is not a finite number.
    """
    total = torch.zeros(len(dataset.videos), len(dataset.classes), dtype=torch.float64)
    views = torch.zeros(len(dataset.videos), dtype=torch.float64)
    failures = Failures()
    order, loader = _order(dataset, batch_size, world), Loader(dataset, workers=workers, device=device)
    with torch.inference_mode():
        for done, batch in enumerate(loader.batches(order), start=1):
            failures.add(batch.failures)
            if len(batch):
                scores = _scores(predict, batch.clips, dataset)
                total.index_add_(0, batch.videos, scores)
                views.index_add_(0, batch.videos, torch.ones(len(batch), dtype=torch.float64))
            if progress:
                progress(done, len(order))
    total, views = world.sum(total), world.sum(views)  # each row comes from one process, so the sums are exact
    failures = functools.reduce(Failures.merged, world.gather(failures))
    scored = views > 0
    if not scored.any():
        raise VideoError(f"no video of {dataset.videos.root} could be read:\n{failures}")
    by_video = averaged(dataset.videos, total, views)
    return Scores(by_video.top(1), by_video.top(5), int(scored.sum()), failures, by_video)


def _order(dataset: TestClips, batch_size: int, world: World) -> list[list[int]]:
    """The items of this process's videos in batches; a video's views stay together."""
    if world.size == 1:
        return in_order(len(dataset), batch_size)
    clips = dataset.clips
    items = [video * clips + clip for video in world.part(range(len(dataset.videos))) for clip in range(clips)]
    return [[items[i] for i in batch] for batch in in_order(len(items), batch_size)]


def accuracy(scores: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Top-1 and top-5 of scores (N, classes): shares of rows whose label is the highest, or among the five highest."""
    best = scores.topk(min(5, scores.shape[1]), dim=1).indices == labels[:, None]
    return best[:, 0].double().mean().item(), best.any(dim=1).double().mean().item()


def _scores(predict: Predict, clips: torch.Tensor, dataset: TestClips) -> torch.Tensor:
    logits, classes = predict(clips).to("cpu", torch.float64), len(dataset.classes)
    if logits.shape != (len(clips), classes):
        raise InvalidValue(f"expected logits of shape {(len(clips), classes)}, the model gives {tuple(logits.shape)}")
    if not torch.isfinite(logits).all():
        raise CheckFailed("the model's logits are not finite numbers; its weights are damaged or training diverged")
    return logits.sigmoid() if dataset.videos.multi_label else logits.softmax(dim=1)
