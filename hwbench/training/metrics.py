"""Top-1 and top-5 of anything that maps clips to logits: a module in training, a checkpoint, a deployed file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from hwbench.data import Failures, TestClips
from hwbench.data.loading import Loader, in_order
from hwbench.errors import CheckFailed, InvalidValue, VideoError

Predict = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Scores:
    """Shares of videos (0-1) whose class has the highest score, or one of the five highest (all, below five classes).

    A video's score is the mean over its views of the softmax of the logits. ``videos`` counts the scored ones.
    """

    top1: float
    top5: float
    videos: int
    failures: Failures = field(default_factory=Failures)


def evaluate(
    predict: Predict,
    dataset: TestClips,
    *,
    batch_size: int = 16,
    workers: int = 0,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """Scores of ``predict`` over all views of all videos of a test set.

    Args:
        predict: float32 (N, 3, T, H, W) -> logits (N, classes); a module must be in eval mode already.
        dataset: What to score; its failure policy holds.
        batch_size: Items per call; N is that times the crops, and less in the last call. 1 suits fixed batch sizes.
        workers: Processes that read videos.
        device: Where ``predict`` wants its input.
        progress: Called after each batch with (batches done, batches in all).

    Raises:
        VideoError: No video could be read, or one under the policy ``raise``.
        InvalidValue: The logits do not fit the classes.
        CheckFailed: A logit is not a finite number.
    """
    total = torch.zeros(len(dataset.videos), len(dataset.classes), dtype=torch.float64)
    failures = Failures()
    order = in_order(len(dataset), batch_size)
    with torch.inference_mode():
        for done, batch in enumerate(Loader(dataset, workers=workers).batches(order), start=1):
            failures.add(batch.failures)
            if len(batch):
                total.index_add_(0, batch.videos, _scores(predict, batch.clips.to(device), len(dataset.classes)))
            if progress:
                progress(done, len(order))
    scored = total.sum(dim=1) > 0
    if not scored.any():
        raise VideoError(f"no video of {dataset.videos.root} could be read:\n{failures}")
    labels = torch.tensor(dataset.videos.single_labels())
    top1, top5 = accuracy(total[scored], labels[scored])
    return Scores(top1, top5, int(scored.sum()), failures)


def accuracy(scores: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Top-1 and top-5 of scores (N, classes): shares of rows whose label is the highest, or among the five highest."""
    best = scores.topk(min(5, scores.shape[1]), dim=1).indices == labels[:, None]
    return best[:, 0].double().mean().item(), best.any(dim=1).double().mean().item()


def _scores(predict: Predict, clips: torch.Tensor, classes: int) -> torch.Tensor:
    logits = predict(clips).to("cpu", torch.float64)
    if logits.shape != (len(clips), classes):
        raise InvalidValue(f"expected logits of shape {(len(clips), classes)}, the model gives {tuple(logits.shape)}")
    if not torch.isfinite(logits).all():
        raise CheckFailed("the model's logits are not finite numbers; its weights are damaged or training diverged")
    return logits.softmax(dim=1)
