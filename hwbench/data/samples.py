"""What a data set gives: samples by ``Draw``, and the batches that they become.

``collate`` makes a ``PictureBatch`` of samples, which is normalised where the network is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from hwbench.data.failures import DecodingFailure
from hwbench.data.tracks import Tracks, joined
from hwbench.data.transforms import NORMALISATION, Normalisation

# (T, h, w) of a clip.
ClipShape = tuple[int, int, int]


class Draw(NamedTuple):
    """Which sample of an epoch: the index of a video, which of its repeats from 0 on, the shape of the clip and the
    seconds that it covers.

    An index alone stands for the first repeat; None for the shape and the time that the data set has.
    """

    video: int
    repeat: int = 0
    shape: ClipShape | None = None
    span_s: float | None = None


@dataclass(frozen=True)
class Sample:
    """Views of one video.

    Attributes:
        pictures: uint8 (V, T, 3, h, w), a quarter of the bytes of ``views``; None where the video was left out.
        label: Its class, or float32 (classes) of 0 and 1 where a video may show several.
        video: Its index in the list.
        failures: What could not be read.
        normalisation: From pictures to views.
        tracks: What else was read of the same time, by modality; each of V views.
    """

    pictures: torch.Tensor | None
    label: int | torch.Tensor
    video: int
    failures: tuple[DecodingFailure, ...] = ()
    normalisation: Normalisation = NORMALISATION
    tracks: Tracks = field(default_factory=dict)

    @property
    def views(self) -> torch.Tensor | None:
        """What a network takes: float32 (V, 3, T, h, w)."""
        return None if self.pictures is None else self.normalisation(self.pictures)


@dataclass(frozen=True)
class Batch:
    """Samples together: ``clips`` (N·V, 3, T, h, w) with ``labels`` and ``videos`` (N·V); N may be 0 after skips.

    ``labels`` are classes (N·V), long, or float32 (N·V, classes) of 0 and 1 where a video may show several. ``tracks``
    are the modalities beside the pictures, all that the data set reads, each of N·V clips; none where N is 0.
    """

    clips: torch.Tensor
    labels: torch.Tensor
    videos: torch.Tensor
    failures: tuple[DecodingFailure, ...] = ()
    tracks: Tracks = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class PictureBatch:
    """A batch before it is normalised: ``pictures`` uint8 (N·V, T, 3, h, w). This is what crosses between processes."""

    pictures: torch.Tensor
    labels: torch.Tensor
    videos: torch.Tensor
    failures: tuple[DecodingFailure, ...] = ()
    normalisation: Normalisation = NORMALISATION
    tracks: Tracks = field(default_factory=dict)

    def pin_memory(self) -> PictureBatch:
        """Page-locked copies, for the way to a GPU."""
        tracks = {key: track.pin_memory() for key, track in self.tracks.items()}
        return replace(self, pictures=self.pictures.pin_memory(), labels=self.labels.pin_memory(), tracks=tracks)

    def normalised(self, device: torch.device | str = "cpu") -> Batch:
        """The batch as networks take it; the clips are normalised on ``device``, and stay there."""
        clips = self.normalisation(self.pictures.to(device, non_blocking=True)) if len(self.labels) else torch.empty(0)
        tracks = {key: track.normalised(device) for key, track in self.tracks.items()}
        return Batch(clips, self.labels, self.videos, self.failures, tracks)


def collate(samples: Sequence[Sample]) -> PictureBatch:
    """A batch of the samples that were read."""
    kept = [(s, s.pictures) for s in samples if s.pictures is not None]
    labels = [s.label for s, pictures in kept for _ in range(len(pictures))]
    videos = [s.video for s, pictures in kept for _ in range(len(pictures))]
    clips = torch.cat([pictures for _, pictures in kept]) if kept else torch.empty(0, dtype=torch.uint8)
    failures = tuple(f for s in samples for f in s.failures)
    normalisation = kept[0][0].normalisation if kept else NORMALISATION
    tracks, numbers = joined([s.tracks for s, _ in kept]), torch.tensor(videos, dtype=torch.long)
    return PictureBatch(clips, _labels(labels), numbers, failures, normalisation, tracks)


def _labels(labels: Sequence[int | torch.Tensor]) -> torch.Tensor:
    several = [label for label in labels if isinstance(label, torch.Tensor)]
    return torch.stack(several) if several else torch.tensor(labels, dtype=torch.long)
