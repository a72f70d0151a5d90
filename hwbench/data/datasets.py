"""Map-style data sets of clips. A sample follows from (seed, epoch, ``Draw``) alone: not from workers, order or what
was read before.

``TrainingClips`` gives one random clip per video and epoch, ``TestClips`` every test view. Both return a ``Sample`` and
never raise for an unreadable video unless the policy says so.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.utils.data import Dataset

from hwbench.data.augmentations import Augmentation
from hwbench.data.clip_places import ClipPlace
from hwbench.data.clips import ClipSpec
from hwbench.data.conventions import CutAt, Indices
from hwbench.data.decoders import PYAV, Decoder
from hwbench.data.decoding import Frames
from hwbench.data.failures import DecodingFailure, FailurePolicy
from hwbench.data.flow_views import check_followed, test_view, training_view
from hwbench.data.frame_cache import CachedVideo, FrameCache
from hwbench.data.info_index import InfoIndex
from hwbench.data.labelled import LabelledPart
from hwbench.data.modalities import PICTURES, Modalities
from hwbench.data.samples import ClipShape, Draw, Sample
from hwbench.data.transforms import TestTransform, TrainTransform
from hwbench.data.videos import VideoList
from hwbench.errors import VideoError

# Ten unreadable videos in a row are no accident any more: the sample is left out.
_MOST_REPLACEMENTS = 10


def _no_pictures(views: int, size: tuple[int, int]) -> torch.Tensor:
    """The pictures of clips that were not decoded: uint8 (V, 0, 3, h, w)."""
    return torch.empty((views, 0, 3, *size), dtype=torch.uint8)


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

    Raises:
        InvalidFile: Two videos would share readings, or files of flow.
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
        modalities.check(videos.source(index) for index in range(len(videos)))
        if modalities.flow is not None:
            check_followed(transform)
        self._cache = FrameCache(cache_bytes, index, decoder)
        # Shared memory: workers that outlive an epoch see the new number.
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()  # type: ignore[no-untyped-call]

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into them."""
        return self.videos.classes

    @property
    def decoder(self) -> Decoder:
        """Reads the videos."""
        return self._cache.decoder

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

    def choose(self, part: LabelledPart, rng: np.random.Generator) -> Indices:
        """The frames of a random clip of a labelled part, by their indices in the video."""
        indices = part.random_clip(self.clip, rng)
        if isinstance(self.transform, Augmentation):
            retimed = self.transform.retimed(indices, part.end, rng)
            return indices.moved(retimed) if isinstance(indices, CutAt) else retimed
        return indices

    def sample(self, frames: Frames, video: int, rng: np.random.Generator) -> Sample:
        """The sample that frames of a clip become: uint8 (T, H, W, 3)."""
        pictures = self.transform.pictures(frames, rng).unsqueeze(0)
        return Sample(pictures, self.videos.target(video), video, (), self.transform.normalisation)

    def _draw(self, video: int, rng: np.random.Generator, failures: tuple[DecodingFailure, ...]) -> Sample:
        source = self.videos.source(video)
        with self.open(video) as file:
            part = LabelledPart.of(file.info, self.videos.parts.get(video), source.name)
            indices = self.choose(part, rng)
            frames = part.cut(file.read(indices)) if self.modalities.rgb else None
        place = ClipPlace.of(source, file.info, part, indices, self.clip)
        # flow is cut by the numbers that the pictures were cut by
        before = rng if self.modalities.flow is None else copy.deepcopy(rng)
        frame = None if frames is None else frames.shape[1:3]
        if frames is None:
            sample = Sample(_no_pictures(1, self.transform.size), self.videos.target(video), video)
        else:
            sample = self.sample(frames, video, rng)
        tracks = self.modalities.tracks(place, training_view(self.transform, before, frame), 1, rng)
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

    Raises:
        InvalidFile: Two videos would share readings, or files of flow.
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
        modalities.check(videos.source(index) for index in range(len(videos)))
        self._cache = FrameCache(cache_bytes, index, decoder)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into them."""
        return self.videos.classes

    @property
    def decoder(self) -> Decoder:
        """Reads the videos."""
        return self._cache.decoder

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
