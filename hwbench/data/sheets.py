"""What a network sees of some videos of each class: the frames of a clip after the transforms, as pictures again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from hwbench.data.clips import Indices
from hwbench.data.datasets import TestClips, TrainingClips
from hwbench.data.decoding import Frames, VideoInfo
from hwbench.data.flow_stream import FLOW_CHANNELS
from hwbench.data.jpeg import JpegEncoder
from hwbench.data.labelled import LabelledPart
from hwbench.data.transforms import Normalisation
from hwbench.data.videos import VideoList
from hwbench.errors import VideoError

# Stands for the class of videos that show none.
_NO_CLASS = -1


@dataclass(frozen=True)
class ShownClip:
    """One clip: ``pictures`` uint8 (T, h, w, 3), RGB, and the time of each frame in seconds from the video's first."""

    transform: str
    pictures: Frames = field(repr=False)
    times_s: tuple[float, ...]

    def files(self) -> list[bytes]:
        """Each frame as a JPEG file."""
        _, height, width, _ = self.pictures.shape
        encoder = JpegEncoder(height, width, fine_colour=True)
        return [encoder.encode(picture) for picture in self.pictures]


@dataclass(frozen=True)
class ShownVideo:
    """A video, what its file holds in words, and its clips; ``fault``: why there are none."""

    name: str
    labels: tuple[str, ...]
    described: str = ""
    clips: tuple[ShownClip, ...] = ()
    fault: str = ""


def show_videos(train: TrainingClips, test: TestClips, *, per_class: int, most_classes: int) -> list[ShownVideo]:
    """The first videos of each class, each after the transform of training and after that of a test.

    Args:
        train: Gives random clips of the videos.
        test: Gives the fixed views of the same videos; the first view of the middle clip is shown.
        per_class: Videos of a class, and of those without one.
        most_classes: Classes that are shown, in the order of their numbers.
    """
    return [_shown(train, test, index) for index in _chosen(train.videos, per_class, most_classes)]


def train_clip(dataset: TrainingClips, index: int) -> tuple[torch.Tensor, Indices, VideoInfo]:
    """The clip that ``dataset[index]`` gives in epoch 0, (3, T, h, w), its frames, and what the file holds.

    Raises:
        VideoError: The video cannot be read.
    """
    rng = np.random.default_rng([dataset.seed, 0, index])
    with dataset.open(index) as video:
        part = LabelledPart.of(video.info, dataset.videos.parts.get(index), video.source.name)
        indices = dataset.choose(part, rng)
        pictures = dataset.transform.pictures(part.cut(video.read(indices)), rng)
        return dataset.transform.normalisation(pictures), indices, video.info


def view_clip(dataset: TestClips, index: int) -> tuple[torch.Tensor, Indices]:
    """The first view of the middle test clip of a video, (3, T, h, w), and its frames."""
    with dataset.open(index) as video:
        part = LabelledPart.of(video.info, dataset.videos.parts.get(index), video.source.name)
        indices = part.uniform_clips(dataset.clip, dataset.clips)[dataset.clips // 2]
        return dataset.transform(part.cut(video.read(indices)))[0], indices


def pictures_of(clip: torch.Tensor, normalisation: Normalisation) -> Frames:
    """What was normalised as pictures: float32 (C, T, h, w) -> uint8 (T, h, w, 3).

    Flow, of two channels, has the colour of its direction and is the paler the slower it is (Baker et al. 2011); the
    fastest motion of the clip has the full colour.
    """
    if len(clip) == FLOW_CHANNELS:
        return np.ascontiguousarray(_coloured(clip.transpose(0, 1)).permute(0, 2, 3, 1).numpy())
    mean, std = (torch.tensor(values).view(-1, 1, 1, 1) for values in (normalisation.mean, normalisation.std))
    pixels = ((clip * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
    return np.ascontiguousarray(pixels.permute(1, 2, 3, 0).numpy())


def _coloured(flow: torch.Tensor) -> torch.Tensor:
    """float32 (T, 2, h, w) -> uint8 (T, 3, h, w)."""
    from torchvision.utils import flow_to_image  # takes a second and a half to import

    # A hundredth of the range beside it: no motion at all has no fastest.
    return (
        flow_to_image(flow)
        if flow.abs().max() > 0.01
        else torch.full_like(flow[:, :1], 255).expand(-1, 3, -1, -1).byte()
    )


def _chosen(videos: VideoList, per_class: int, most_classes: int) -> Iterator[int]:
    """Indices of the first videos of each class, class by class, and of those without one; each video once.

    A video counts for all of its classes, and stands under the first of them that it is chosen for.
    """
    chosen: dict[int, list[int]] = {label: [] for label in (*range(min(most_classes, len(videos.classes))), _NO_CLASS)}
    counts = dict.fromkeys(chosen, 0)
    for index, label in enumerate(videos.labels):
        shown = [one for one in ((label,) if isinstance(label, int) else label or (_NO_CLASS,)) if one in chosen]
        lacking = [one for one in shown if counts[one] < per_class]
        if lacking:
            chosen[lacking[0]].append(index)
            for one in shown:
                counts[one] += 1
    for indices in chosen.values():
        yield from indices


def _shown(train: TrainingClips, test: TestClips, index: int) -> ShownVideo:
    videos = train.videos
    label = videos.labels[index]
    labels = tuple(videos.classes[one] for one in ((label,) if isinstance(label, int) else label))
    name = videos.source(index).name
    try:
        trained, train_indices, info = train_clip(train, index)
        tested, test_indices = view_clip(test, index)
    except VideoError as error:
        return ShownVideo(name, labels, fault=str(error).removeprefix(f"{name}: "))
    described = f"{info.width}x{info.height}, {info.fps:.4g} frames/s, {info.duration_s:.2f} s, {info.codec}"
    clips = (
        ShownClip("train", pictures_of(trained, _normalisation(train.transform)), _times_s(info, train_indices)),
        ShownClip("test", pictures_of(tested, test.transform.normalisation), _times_s(info, test_indices)),
    )
    return ShownVideo(name, labels, described, clips)


def _normalisation(transform: object) -> Normalisation:
    """That of a transform; one of somebody's own may have none, and then that of the recipes is assumed."""
    normalisation = getattr(transform, "normalisation", None)
    return normalisation if isinstance(normalisation, Normalisation) else Normalisation()


def _times_s(info: VideoInfo, indices: Sequence[int]) -> tuple[float, ...]:
    return tuple(round(float(int(info.pts[i] - info.pts[0]) * info.time_base), 4) for i in indices)
