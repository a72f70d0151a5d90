"""What a network says about each video of a set, what that is worth by several measures, and the file it is kept in.

The file is ``scores.npz``, which numpy reads without hwbench: averaging the scores of several such files is an ensemble
without another run.
"""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.data.videos import VideoList
from hwbench.errors import InvalidFile
from hwbench.workspace import write_bytes

SCORES = "scores.npz"

# Of a file that numpy cannot open: damaged, encrypted, with a header that does not parse, or larger than all memory.
_FAILURES = (
    OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, ArithmeticError, MemoryError, RuntimeError,
    SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_KEYS = ("classes", "videos", "targets", "scores")
# Guo et al. 2017 take 15 bins.
_BINS = 15


@dataclass(frozen=True)
class ConfidenceBin:
    """Videos whose highest scores are close: their number, the mean of that score, and the share that is right."""

    videos: int
    confidence: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class VideoScores:
    """Scores of videos.

    Attributes:
        classes: Names in the order of the scores.
        videos: Paths of the videos that could be read.
        targets: Class indices (N), or a value from 0 to 1 for each class (N, C).
        scores: float64 (N, C): of each video the mean over its views of the softmax of the logits, or of their sigmoid
            where a video has several classes.
    """

    classes: tuple[str, ...]
    videos: tuple[str, ...]
    targets: torch.Tensor
    scores: torch.Tensor

    def top(self, k: int) -> float:
        """Share of videos with a right class among the ``k`` highest (all, below ``k`` classes)."""
        best = self.scores.topk(min(k, self.scores.shape[1]), dim=1).indices
        return self._present().gather(1, best).any(dim=1).double().mean().item()

    @property
    def chance(self) -> float:
        """Top-1 of guessing: the mean over videos of their share of the classes."""
        if self.targets.is_floating_point():
            return self._present().double().mean().item()
        return 1 / len(self.classes)

    def class_accuracy(self) -> dict[str, float]:
        """Top-1 among the videos of each class, for classes that have any."""
        right = self._present().gather(1, self.scores.argmax(1, keepdim=True)).double()
        present = self._present().double()
        counts, hits = present.sum(0), (present * right).sum(0)
        return {name: (hits[i] / counts[i]).item() for i, name in enumerate(self.classes) if counts[i]}

    def confusion(self) -> torch.Tensor | None:
        """Number of videos by (class, class of the highest score), int64 (C, C); None for videos of several classes."""
        if self.targets.is_floating_point():
            return None
        count = len(self.classes)
        return torch.bincount(self.targets * count + self.scores.argmax(1), minlength=count**2).view(count, count)

    def calibration_error(self, bins: int = _BINS) -> float | None:
        """Expected calibration error: how far the highest score is from the share of right ones (Guo et al. 2017).

        A mean over bins of equal width, weighted by their videos; None for videos of several classes.
        """
        if self.targets.is_floating_point():
            return None
        index, confidence, right = self._by_confidence(bins)
        gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, index, confidence - right)
        return (gaps.abs().sum() / len(right)).item()

    def calibration(self, bins: int = _BINS) -> tuple[ConfidenceBin, ...]:
        """The bins of ``calibration_error`` that hold videos; none for videos of several classes."""
        if self.targets.is_floating_point():
            return ()
        index, confidence, right = self._by_confidence(bins)
        counts = index.bincount(minlength=bins).tolist()
        sums, hits = (torch.zeros(bins, dtype=torch.float64).index_add_(0, index, v) for v in (confidence, right))
        return tuple(
            ConfidenceBin(count, total / count, hit / count)
            for count, total, hit in zip(counts, sums.tolist(), hits.tolist(), strict=True)
            if count
        )

    def mean_average_precision(self) -> float | None:
        """Mean over classes that occur of the average precision, as scikit-learn defines it; None where none occurs."""
        from sklearn.metrics import average_precision_score

        present = self._present()
        occurring = present.any(0)
        if not occurring.any():
            return None
        wanted, scores = present[:, occurring].numpy(), self.scores[:, occurring].numpy()
        return float(np.mean([average_precision_score(wanted[:, i], scores[:, i]) for i in range(wanted.shape[1])]))

    def measures(self) -> dict[str, float]:
        """What one line of a log says of a validation, beside top-1 and top-5."""
        accuracies = self.class_accuracy()
        values = {"class_top1": sum(accuracies.values()) / max(1, len(accuracies))}
        if self.targets.is_floating_point():
            precision = self.mean_average_precision()
            return values if precision is None else {**values, "mean_ap": precision}
        return {**values, "calibration_error": self.calibration_error() or 0.0}

    def report(self) -> dict[str, Any]:
        """All measures as JSON holds them; ``confusion`` by (class, class of the highest score)."""
        confusion = self.confusion()
        return {
            "videos": len(self.videos),
            "top1": self.top(1),
            "top5": self.top(5),
            **self.measures(),
            "class_accuracy": self.class_accuracy(),
            "classes": list(self.classes),
            "confusion": None if confusion is None else confusion.tolist(),
        }

    def _by_confidence(self, bins: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of each video its bin, its highest score, and 1 where the class of that is right."""
        confidence, best = self.scores.max(1)
        return (confidence * bins).ceil().long().clamp(1, bins) - 1, confidence, (best == self.targets).double()

    def _present(self) -> torch.Tensor:
        """Whether a video has a class, bool (N, C)."""
        if self.targets.is_floating_point():
            return self.targets >= 0.5
        return self.targets[:, None] == torch.arange(self.scores.shape[1])


def averaged(videos: VideoList, sums: torch.Tensor, views: torch.Tensor) -> VideoScores:
    """Scores of the videos that have a view.

    Args:
        videos: All videos.
        sums: float64 (N, C): probabilities added up over the views of each.
        views: (N): how many views were added up.
    """
    seen = views > 0
    names = tuple(videos.source(row).name for row in seen.nonzero().flatten().tolist())
    return VideoScores(tuple(videos.classes), names, videos.targets()[seen], sums[seen] / views[seen, None])


def save_scores(path: Path, scores: VideoScores) -> None:
    """Writes a file of scores, all of it or nothing.

    Raises:
        WorkspaceError: No rights or no room.
    """
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        classes=np.array(scores.classes),
        videos=np.array(scores.videos),
        targets=scores.targets.numpy(),
        scores=scores.scores.numpy(),
    )
    write_bytes(path, buffer.getvalue())


def load_scores(path: Path) -> VideoScores:
    """Reads what ``save_scores`` wrote.

    Raises:
        InvalidFile: No such file, or it holds something else.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            values: Mapping[str, Any] = {key: file[key] for key in _KEYS}
        read = VideoScores(
            tuple(map(str, values["classes"].tolist())),
            tuple(map(str, values["videos"].tolist())),
            torch.from_numpy(values["targets"]),
            torch.from_numpy(values["scores"]).double(),
        )
    except _FAILURES as error:
        line = " ".join(str(error).split())[:160]
        raise InvalidFile(f"{path}: cannot be read as scores: {line}; expected what hwbench train writes") from None
    rows = len(read.videos)
    if read.scores.shape != (rows, len(read.classes)) or len(read.targets) != rows:
        raise InvalidFile(f"{path}: its scores do not fit its videos and classes")
    return read
