"""How fast clips for training are read, by decoder and number of processes, and where the time goes."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwbench.data.datasets import TrainingClips
from hwbench.data.decoding import Frames, VideoFile
from hwbench.data.flow_stream import FlowTransform
from hwbench.data.labelled import LabelledPart
from hwbench.data.loading import Loader, shuffled
from hwbench.data.media import FileSource, OpenVideo
from hwbench.data.samples import Sample, collate
from hwbench.errors import VideoError

# In the order in which a clip goes through them.
STAGES: Mapping[str, str] = {
    "open": "open the file and read its packets",
    "decode": "seek and decode",
    "convert": "convert colours to RGB",
    "transform": "crop and resize",
    "collate": "copy clips into a batch and normalise",
}
BATCH = 4


@dataclass(frozen=True)
class ReadingRate:
    """Clips a second of one decoder: ``clips`` in ``seconds``, without the start of processes; ``fault``: why none.

    The first batch is not counted.
    """

    decoder: str
    workers: int
    clips: int
    seconds: float
    fault: str = ""

    @property
    def clips_per_s(self) -> float:
        """Clips a second; 0 where none was read."""
        return self.clips / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class ReadingStages:
    """Seconds of each of ``STAGES``, by PyAV in one process, over ``clips`` clips of files that were not open.

    Of optical flow ``decode`` is the reading of its files, or computing what is not kept yet; ``convert`` is 0.
    """

    clips: int
    seconds: Mapping[str, float]

    def shares(self) -> dict[str, float]:
        """The part of the time that each stage takes; they add up to 1."""
        total = sum(self.seconds.values())
        return {stage: seconds / total if total else 0.0 for stage, seconds in self.seconds.items()}


def time_workers(dataset: TrainingClips, decoder: str, workers: int, *, seconds: float) -> ReadingRate:
    """Reads batches as training does, for at least one batch behind the first; ``decoder`` is that of the data set.

    Raises:
        VideoError: A video cannot be read and the policy of the data set is ``raise``.
    """
    loader = Loader(dataset, workers=workers)
    clips, started, end = 0, None, time.monotonic()
    for epoch in range(1_000_000):
        dataset.set_epoch(epoch)
        for batch in loader.batches(shuffled(len(dataset), BATCH, seed=dataset.seed, epoch=epoch)):
            end = time.monotonic()
            if started is None:
                started = end
                continue
            clips += len(batch)
            if end - started >= seconds:
                return ReadingRate(decoder, workers, clips, end - started)
    raise AssertionError("unreachable")


def time_stages(dataset: TrainingClips, *, seconds: float) -> ReadingStages:
    """Reads clips in this process, and times what is done with each.

    A batch of the first readable video is read before and not timed: what is imported for it is no time of a clip.

    Raises:
        VideoError: No video can be read.
    """
    _warm_up(dataset, seconds)
    spent = dict.fromkeys(STAGES, 0.0)
    end = time.monotonic() + seconds
    clips, samples, fault = 0, [], ""
    for video in _endless(len(dataset), dataset.seed):
        try:
            samples.append(_timed_sample(dataset, video, np.random.default_rng([dataset.seed, clips]), spent))
            clips += 1
        except VideoError as error:
            fault = str(error)
        if len(samples) == BATCH:
            with _timing(spent, "collate"):
                collate(samples).normalised()
            samples = []
        if time.monotonic() >= end:
            break
    if not clips:
        raise VideoError(f"{fault}; no video can be read: hwbench data check says what is wrong with each")
    return ReadingStages(clips, spent)


def _warm_up(dataset: TrainingClips, seconds: float) -> None:
    """Reads a batch of the first readable video; gives up where there is none in a pass, or after ``seconds``."""
    end, rng = time.monotonic() + seconds, np.random.default_rng(dataset.seed)
    for video in itertools.islice(_endless(len(dataset), dataset.seed), len(dataset)):
        with contextlib.suppress(VideoError):
            collate([_timed_sample(dataset, video, rng, dict.fromkeys(STAGES, 0.0)) for _ in range(BATCH)]).normalised()
            return
        if time.monotonic() >= end:
            return


def _timed_sample(dataset: TrainingClips, video: int, rng: np.random.Generator, spent: dict[str, float]) -> Sample:
    source = dataset.videos.source(video)
    with _timing(spent, "open"):
        opened: OpenVideo
        if isinstance(dataset.transform, FlowTransform):
            opened, timed = dataset.open(video), None
        elif isinstance(source, FileSource):
            opened = timed = TimedVideoFile(source.path, stream=source.stream)
        else:
            opened, timed = source.open(), None
    with opened:
        part = LabelledPart.of(opened.info, dataset.videos.parts.get(video), source.name)
        with _timing(spent, "decode"):
            frames = part.cut(opened.read(dataset.choose(part, rng)))
    if timed is not None:
        spent["decode"] -= timed.convert_s
        spent["convert"] += timed.convert_s
    with _timing(spent, "transform"):
        return dataset.sample(frames, video, rng)


class TimedVideoFile(VideoFile):
    """A video file that counts the seconds in which frames are converted: ``convert_s``."""

    convert_s = 0.0

    def _convert(self, frame: Any) -> Frames:
        started = time.perf_counter()
        try:
            return super()._convert(frame)
        finally:
            self.convert_s += time.perf_counter() - started


@contextlib.contextmanager
def _timing(spent: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    spent[stage] += time.perf_counter() - started


def _endless(count: int, seed: int) -> Iterator[int]:
    """Indices in a random order, again and again; the first pass comes to every one."""
    for epoch in range(1_000_000):
        yield from (index for batch in shuffled(count, 1, seed=seed, epoch=epoch) for index in batch)
