"""Map-style data sets of clips. A sample follows from (seed, epoch, ``Draw``) alone: not from workers, order or what
was read before.

``TrainingClips`` gives one random clip per video and epoch, ``TestClips`` every test view. Both return a ``Sample`` and
never raise for an unreadable video unless the policy says so; ``collate`` makes a ``PictureBatch`` of samples, which
is normalised where the network is.
"""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from hwbench.data.augmentations import Augmentation
from hwbench.data.clip_places import ClipPlace
from hwbench.data.clips import ClipSpec
from hwbench.data.conventions import Indices
from hwbench.data.decoders import PYAV, Decoder
from hwbench.data.decoding import Frames, VideoInfo
from hwbench.data.failures import DecodingFailure, FailurePolicy
from hwbench.data.flow_views import check_followed, test_view, training_view
from hwbench.data.info_index import InfoIndex
from hwbench.data.labelled import LabelledPart
from hwbench.data.lazy_video import LazyVideo
from hwbench.data.media import VideoSource
from hwbench.data.modalities import PICTURES, Modalities
from hwbench.data.tracks import Tracks, joined
from hwbench.data.transforms import NORMALISATION, Normalisation, TestTransform, TrainTransform
from hwbench.data.videos import VideoList
from hwbench.errors import VideoError

# Ten unreadable videos in a row are no accident any more: the sample is left out.
_MOST_REPLACEMENTS = 10
# An info holds a time stamp per frame: some kilobytes for a video of ten seconds.
_MOST_INFOS = 4096


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


def _no_pictures(views: int, size: tuple[int, int]) -> torch.Tensor:
    """The pictures of clips that were not decoded: uint8 (V, 0, 3, h, w)."""
    return torch.empty((views, 0, 3, *size), dtype=torch.uint8)


def _labels(labels: Sequence[int | torch.Tensor]) -> torch.Tensor:
    several = [label for label in labels if isinstance(label, torch.Tensor)]
    return torch.stack(several) if several else torch.tensor(labels, dtype=torch.long)


class FrameCache:
    """Decoded videos in memory, the least recently used leaving first; ``limit_bytes`` is for this process alone.

    Where all videos would fit if they were as long and large as this one, a video is decoded whole the first time and
    not again while it stays. Where they would not, only what is asked for is decoded and nothing is kept: a cache that
    loses its entries before they come round again costs more than it saves. What the files hold is always remembered,
    and looked up in ``index``, which other processes and later runs share.
    """

    def __init__(self, limit_bytes: int = 0, index: InfoIndex | None = None, decoder: Decoder = PYAV) -> None:
        self.limit_bytes, self.index, self.decoder = limit_bytes, index, decoder
        self._bytes = 0
        self._frames: OrderedDict[int, Frames] = OrderedDict()
        self._infos: OrderedDict[int, VideoInfo] = OrderedDict()

    def open(self, key: int, videos: VideoList) -> CachedVideo:
        """Video ``key`` of the list; VideoError if it cannot be read."""
        return CachedVideo(self, key, videos)

    def info(self, key: int, source: VideoSource) -> VideoInfo | None:
        """What the video holds, if known."""
        info = self._infos.get(key)
        return self.index.get(source) if info is None and self.index is not None else info

    def frames(self, key: int) -> Frames | None:
        """All frames of the video, if they are kept."""
        if key in self._frames:
            self._frames.move_to_end(key)
        return self._frames.get(key)

    def remember(self, key: int, info: VideoInfo) -> None:
        """Keeps what a video holds."""
        self._infos[key] = info
        if len(self._infos) > _MOST_INFOS:
            self._infos.popitem(last=False)

    def fits(self, info: VideoInfo, count: int) -> bool:
        """Whether ``count`` videos like this one can be kept."""
        return count * info.num_frames * info.height * info.width * 3 <= self.limit_bytes

    def keep(self, key: int, frames: Frames) -> None:
        """Keeps the frames of a video, letting go of others until it fits."""
        self._frames[key] = frames
        self._bytes += frames.nbytes
        while self._bytes > self.limit_bytes:
            _, old = self._frames.popitem(last=False)
            self._bytes -= old.nbytes


class CachedVideo(LazyVideo):
    """One video of a list, seen through the cache; its file is opened once at most, and closed by ``with``."""

    def __init__(self, cache: FrameCache, key: int, videos: VideoList) -> None:
        source = videos.source(key)
        known = cache.info(key, source)
        super().__init__(cache.decoder, source, known)
        self._cache, self._key, self._count = cache, key, len(videos)
        cache.remember(key, self.info)
        if known is None and cache.index is not None:
            cache.index.put(source, self.info)

    def read(self, indices: Sequence[int]) -> Frames:
        """Frames by index: uint8 (T, H, W, 3)."""
        kept = self._cache.frames(self._key)
        if kept is not None:
            return kept[list(indices)]
        file = self.opened()
        if not self._cache.fits(self.info, self._count):
            return file.read(tuple(indices))
        frames = file.read(range(self.info.num_frames))
        self._cache.keep(self._key, frames)
        return frames[list(indices)]

    def __enter__(self) -> CachedVideo:
        return self


class TrainingClips(Dataset[Sample]):
    """One random clip of every video; another one in every epoch, and for each repeat of a ``Draw``.

    Args:
        videos: What to read.
        clip: How a clip is cut.
        transform: From frames to the network's input.
        seed: Of everything drawn here.
        policy: What happens to unreadable videos.
        cache_bytes: Memory for decoded videos, of all workers together.
        index: What is known of the files.
        decoder: Reads the videos.
        modalities: What is read of a clip.
    """

    def __init__(
        self,
        videos: VideoList,
        clip: ClipSpec,
        transform: TrainTransform,
        *,
        seed: int = 0,
        policy: FailurePolicy = FailurePolicy.RAISE,
        cache_bytes: int = 0,
        index: InfoIndex | None = None,
        decoder: Decoder = PYAV,
        modalities: Modalities = PICTURES,
    ) -> None:
        self.videos, self.clip, self.transform, self.seed, self.policy = videos, clip, transform, seed, policy
        self.modalities = modalities
        if modalities.flow is not None:
            check_followed(transform)
        self._cache = FrameCache(cache_bytes, index, decoder)
        # Shared memory: workers that outlive an epoch see the new number.
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into them."""
        return self.videos.classes

    def open(self, video: int) -> CachedVideo:
        """A video of the list, as clips are read of it; VideoError if it cannot be read."""
        return self._cache.open(video, self.videos)

    def divide_cache(self, workers: int) -> None:
        """Gives this process its share of the memory for decoded videos."""
        self._cache.limit_bytes //= workers

    def set_epoch(self, epoch: int) -> None:
        """Chooses the clips of an epoch; call it between two passes over the data."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, draw: int | Draw) -> Sample:
        index, repeat, shape, span_s = draw if isinstance(draw, Draw) else Draw(draw)
        if not 0 <= index < len(self):
            raise IndexError(index)
        rng = np.random.default_rng([self.seed, int(self._epoch), index, *([repeat] if repeat else [])])
        failures: list[DecodingFailure] = []
        video, clips = index, self if shape is None else self._reshaped(shape, span_s)
        for _ in range(1 + _MOST_REPLACEMENTS):
            try:
                return clips._draw(video, rng, tuple(failures))
            except VideoError as error:
                if self.policy is FailurePolicy.RAISE:
                    raise
                failures.append(DecodingFailure(self.videos.source(video).name, str(error)))
            if self.policy is FailurePolicy.SKIP:
                break
            video = int(rng.integers(len(self)))
        return Sample(None, self.videos.target(index), index, tuple(failures))

    @property
    def shape(self) -> ClipShape:
        """(T, h, w) of the clips."""
        return (self.clip.frames, *self.transform.size)

    def _reshaped(self, shape: ClipShape, span_s: float | None = None) -> TrainingClips:
        """The same videos, epoch and cache, in clips of another shape that cover the same time, or another one."""
        other = copy.copy(self)
        other.clip = self.clip.with_frames(shape[0]).spanning(span_s)
        other.transform = self.transform.with_size(shape[1:])
        return other

    def __getitems__(self, draws: Sequence[int | Draw]) -> list[Sample]:
        """Several samples; what DataLoader calls. Unreadable videos come back as failures under every policy, because
        an exception out of a worker process would carry a traceback in its text; ``Loader`` raises them."""
        return [self._sample_or_failure(draw) for draw in draws]

    def _sample_or_failure(self, draw: int | Draw) -> Sample:
        try:
            return self[draw]
        except VideoError as error:
            return _failed(self.videos, draw.video if isinstance(draw, Draw) else draw, error)

    def choose(self, part: LabelledPart, info: VideoInfo, rng: np.random.Generator) -> Indices:
        """The frames of a random clip of a video."""
        indices = part.random_clip(self.clip, rng)
        if isinstance(self.transform, Augmentation):
            return self.transform.retimed(indices, info.num_frames, rng)
        return indices

    def sample(self, frames: Frames, video: int, rng: np.random.Generator) -> Sample:
        """The sample that frames of a clip become: uint8 (T, H, W, 3)."""
        pictures = self.transform.pictures(frames, rng).unsqueeze(0)
        return Sample(pictures, self.videos.target(video), video, (), self.transform.normalisation)

    def _draw(self, video: int, rng: np.random.Generator, failures: tuple[DecodingFailure, ...]) -> Sample:
        source = self.videos.source(video)
        with self.open(video) as file:
            part = LabelledPart.of(file.info, self.videos.parts.get(video), source.name)
            indices = self.choose(part, file.info, rng)
            frames = part.cut(file.read(indices)) if self.modalities.rgb else None
        place = ClipPlace.of(source, file.info, part, indices, self.clip)
        before = copy.deepcopy(rng)
        if frames is None:
            sample = Sample(_no_pictures(1, self.transform.size), self.videos.target(video), video)
        else:
            sample = self.sample(frames, video, rng)
        tracks = self.modalities.tracks(place, training_view(self.transform, before), 1, rng)
        return replace(sample, failures=failures, tracks=tracks)


class TestClips(Dataset[Sample]):
    """Every test view: item ``i`` is clip ``i % clips`` of video ``i // clips`` with all its crops.

    Args:
        videos: What to read.
        clip: How a clip is cut.
        transform: From frames to the network's input; says how many crops there are.
        clips: Clips per video, spread over its length.
        policy: What happens to unreadable videos; ``replace`` leaves them out.
        cache_bytes: Memory for decoded videos, of all workers together.
        index: What is known of the files.
        decoder: Reads the videos.
        modalities: What is read of a clip.
    """

    __test__ = False  # not a test case, whatever pytest reads into the name

    def __init__(
        self,
        videos: VideoList,
        clip: ClipSpec,
        transform: TestTransform,
        *,
        clips: int = 1,
        policy: FailurePolicy = FailurePolicy.RAISE,
        cache_bytes: int = 0,
        index: InfoIndex | None = None,
        decoder: Decoder = PYAV,
        modalities: Modalities = PICTURES,
    ) -> None:
        self.videos, self.clip, self.transform, self.clips, self.policy = videos, clip, transform, clips, policy
        self.modalities = modalities
        self._cache = FrameCache(cache_bytes, index, decoder)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into them."""
        return self.videos.classes

    def open(self, video: int) -> CachedVideo:
        """A video of the list, as clips are read of it; VideoError if it cannot be read."""
        return self._cache.open(video, self.videos)

    def divide_cache(self, workers: int) -> None:
        """Gives this process its share of the memory for decoded videos."""
        self._cache.limit_bytes //= workers

    def __len__(self) -> int:
        return len(self.videos) * self.clips

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise IndexError(index)
        video, clip = divmod(index, self.clips)
        try:
            return self._samples(video, [clip])[0]
        except VideoError as error:
            if self.policy is FailurePolicy.RAISE:
                raise
            return _failed(self.videos, video, error)

    def __getitems__(self, indices: Sequence[int]) -> list[Sample]:
        """Several samples, as in ``TrainingClips``; the clips of one video are read together."""
        samples: list[Sample] = []
        for video, group in itertools.groupby(indices, key=lambda index: index // self.clips):
            clips = [index % self.clips for index in group]
            try:
                samples += self._samples(video, clips)
            except VideoError:  # where one clip cannot be read, the others may
                samples += [self._sample_or_failure(video, clip) for clip in clips]
        return samples

    def _sample_or_failure(self, video: int, clip: int) -> Sample:
        try:
            return self[video * self.clips + clip]
        except VideoError as error:
            return _failed(self.videos, video, error)

    def _samples(self, video: int, clips: Sequence[int]) -> list[Sample]:
        """Samples of some clips of one video, which is opened once and decoded forward once."""
        source = self.videos.source(video)
        with self.open(video) as file:
            part = LabelledPart.of(file.info, self.videos.parts.get(video), source.name)
            chosen = part.uniform_clips(self.clip, self.clips)
            wanted = sorted({index for clip in clips for index in chosen[clip]})
            frames = part.cut(file.read(wanted)) if self.modalities.rgb else None
        samples, places = [], {index: place for place, index in enumerate(wanted)}
        for clip in clips:
            pictures = _no_pictures(self.transform.crops, self.transform.size)
            if frames is not None:
                pictures = torch.stack(self.transform.pictures(frames[[places[index] for index in chosen[clip]]]))
            place = ClipPlace.of(source, file.info, part, chosen[clip], self.clip)
            tracks = self.modalities.tracks(place, test_view(self.transform), self.transform.crops)
            target = self.videos.target(video)
            samples.append(Sample(pictures, target, video, (), self.transform.normalisation, tracks))
        return samples


def _failed(videos: VideoList, video: int, error: VideoError) -> Sample:
    """A sample of a video that cannot be read."""
    return Sample(None, videos.target(video), video, (DecodingFailure(videos.source(video).name, str(error)),))
