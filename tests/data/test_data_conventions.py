"""Clips agree, frame by frame, with PyTorchVideo 0.1.5 itself and with the arithmetic of PySlowFast and mmaction2.

A thousand videos of random length, rate, start time, time base and gaps. Theirs computes in floats, ours in fractions:
where they differ the reason is in the test, and how far.
"""

import math
import random
import warnings
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch

from hwbench.data import Convention, conventions
from hwbench.data.clips import ClipSpec, Tail, centred_clip, random_clip, random_clips, sliding_clips, uniform_clips
from hwbench.data.decoding import VideoInfo
from hwbench.data.labelled import LabelledPart
from hwbench.data.readers import Part
from hwbench.errors import InvalidValue, UnknownName

with warnings.catch_warnings(action="ignore"):  # torch calls parts of it deprecated while it is imported
    from pytorchvideo.data import clip_sampling
    from pytorchvideo.data.ava import TimeStampClipSampler
    from pytorchvideo.data.encoded_video_pyav import EncodedVideoPyAV
    from pytorchvideo.data.ssv2 import SSv2

VIDEOS = 1000
CARDS = [(4, 12), (13, 6), (16, 5), (8, 8), (1, 1)]


def videos() -> Iterator[tuple[int, VideoInfo, random.Random]]:
    """Random videos: some with a start time, some of uneven frames, some shorter than any clip."""
    for seed in range(VIDEOS):
        draw = random.Random(seed)
        count = draw.choice([1, 2, 5, 24, 30, 49, 97, 250, 300])
        step, base = draw.choice([(1, 30), (512, 15360), (3600, 90000), (3003, 90000), (1001, 24000), (40, 1000)])
        start = draw.choice([0, 0, step, 7 * step + 1])
        gaps = [step if draw.random() < 0.9 else draw.randint(1, 3 * step) for _ in range(count)]
        if draw.random() < 0.7:
            gaps = [step] * count
        pts = start + np.concatenate([[0], np.cumsum(gaps[:-1])]).astype(np.int64)
        duration = int(pts[-1] - pts[0]) + gaps[-1]
        yield seed, VideoInfo(32, 32, "h264", Fraction(1, base), pts, (0,), duration), draw


def steady(count: int, fps: int = 30) -> VideoInfo:
    return VideoInfo(32, 32, "h264", Fraction(1, fps), np.arange(count), (0,), count)


class TheirVideo:
    """A video in PyTorchVideo: its own choice of frames, of pictures that hold their index."""

    def __init__(self, info: VideoInfo) -> None:
        self.encoded = EncodedVideoPyAV.__new__(EncodedVideoPyAV)
        self.encoded._selective_decoding, self.encoded._has_audio, self.encoded._audio = False, None, None
        self.encoded._video_time_base, self.encoded._video_start_pts = info.time_base, int(info.pts[0])
        self.encoded._duration = float(info.duration * info.time_base)
        pictures = (torch.full((1, 1, 3), float(index)) for index in range(info.num_frames))
        self.encoded._video = list(zip(pictures, (int(pts) for pts in info.pts)))

    def clip(self, start: Fraction, end: Fraction, frames: int) -> list[int] | None:
        """Their indices; None where no frame lies between and they leave the sample out."""
        video = self.encoded.get_clip(start, end)["video"]
        if video is None:
            return None
        return [int(value) for value in their_subsample(video, frames)[0, :, 0, 0]]


def their_subsample(video: torch.Tensor, frames: int) -> torch.Tensor:
    """``uniform_temporal_subsample``, whose package does not import beside a torchvision of today."""
    count = video.shape[1]
    return video.index_select(1, torch.linspace(0, count - 1, frames).clamp(0, count - 1).long())


class Agreement:
    """Counts clips that are the same, and holds the differences that a reason was found for."""

    def __init__(self) -> None:
        self.same, self.empty, self.rounded = 0, 0, 0

    def compare(self, ours: tuple[int, ...], theirs: list[int] | None) -> None:
        if theirs is None:
            # No time stamp in the window: PyTorchVideo goes on to another video, ours shows what is on screen.
            assert len(set(ours)) == 1
            self.empty += 1
        elif list(ours) == theirs:
            self.same += 1
        else:
            # float32 puts a place that is a whole number just below it, which truncates to the frame before.
            assert all(mine - other in (0, 1) for mine, other in zip(ours, theirs)), (ours, theirs)
            self.rounded += 1


@pytest.mark.parametrize(
    ("frames", "rate"), [pytest.param(*card, marks=pytest.mark.long if card in CARDS[1:3] else ()) for card in CARDS]
)
def test_pytorchvideo_random_and_constant_clips(monkeypatch: pytest.MonkeyPatch, frames: int, rate: int) -> None:
    spec = ClipSpec(frames, stride=rate, target_fps=30, convention="pytorchvideo")
    span = Fraction(frames * rate, 30)
    agreement = Agreement()
    for seed, info, draw in videos():
        theirs, rng = TheirVideo(info), np.random.default_rng(seed)
        duration = info.duration * info.time_base
        monkeypatch.setattr(random, "uniform", lambda low, high, rng=rng: rng.uniform(low, float(high)))
        found = clip_sampling.RandomClipSampler(span)(0, duration, {})
        ours = random_clip(info, spec, np.random.default_rng(seed))
        agreement.compare(ours, theirs.clip(found.clip_start_sec, found.clip_end_sec, frames))
        count = draw.randint(2, 10)
        # 0.1.5 divides by the number of clips, so that its last one never reaches the end; its main branch divides by
        # one less. So the starts of n clips are those of n - 1 clips of 0.1.5, and one more that ends with the video.
        sampler = clip_sampling.ConstantClipsPerVideoSampler(span, count - 1)
        windows = [sampler(0, duration, {}) for _ in range(count - 1)]
        clips = uniform_clips(info, spec, count)
        for clip, window in zip(clips, windows):
            agreement.compare(clip, theirs.clip(window.clip_start_sec, window.clip_end_sec, frames))
        last = max(Fraction(0), duration - span)
        agreement.compare(clips[-1], theirs.clip(last, last + span, frames))
        assert uniform_clips(info, spec, 1) == clips[:1]
    print(f"pytorchvideo {spec}: {vars(agreement)}")
    assert agreement.rounded == 0
    # A window of one frame at 30 per second holds none of slower videos.
    assert agreement.empty == 0 or (rate == 1 and agreement.same > 5000)


@pytest.mark.parametrize("tail", Tail)
def test_pytorchvideo_uniform_clips(tail: Tail) -> None:
    agreement = Agreement()
    for _, info, draw in videos():
        frames, rate = draw.choice(CARDS[:4])
        spec = ClipSpec(frames, stride=rate, target_fps=30, convention="pytorchvideo")
        span, duration = Fraction(frames * rate, 30), info.duration * info.time_base
        step = draw.choice([span, span / 2, span / 3, Fraction(1, 2)])
        theirs = TheirVideo(info)
        sampler = clip_sampling.UniformClipSampler(span, step, backpad_last=tail is Tail.BACKPAD)
        windows, end, is_last = [], Fraction(0), False
        while not is_last:
            start, end, _, _, is_last = sampler(end, duration, {})
            windows.append(theirs.clip(start, end, frames))
        clips = sliding_clips(info, spec, every_s=step, tail=tail)
        assert len(clips) == len(windows)
        for clip, window in zip(clips, windows):
            agreement.compare(clip, window)
    print(f"pytorchvideo sliding, {tail}: {vars(agreement)}")
    assert agreement.same > 3000
    assert agreement.empty == agreement.rounded == 0


def test_pytorchvideo_keyframes() -> None:
    """Also those of a part, as the samplers of AVA and of untrimmed videos have them."""
    agreement = Agreement()
    for _, info, draw in videos():
        frames, rate = draw.choice(CARDS[:4])
        spec = ClipSpec(frames, stride=rate, target_fps=30, convention="pytorchvideo")
        moment = Fraction(draw.randint(0, 1000), 1000) * info.duration * info.time_base
        # Theirs halves the length with a float, which makes a float of the start; with fractions it stays exact.
        sampler = TimeStampClipSampler(clip_sampling.RandomClipSampler(Exact(frames * rate, 30)))
        sampler.clip_sampler._clip_duration = Exact(frames * rate, 30)
        found = sampler(0, 0, {"clip_index": moment})
        part = LabelledPart.of(info, Part(keyframe_s=moment), "video")
        theirs = TheirVideo(info).clip(Fraction(found.clip_start_sec), Fraction(found.clip_end_sec), frames)
        clip = part.random_clip(spec, np.random.default_rng(0))
        agreement.compare(clip, theirs)
        assert part.uniform_clips(spec, 2) == (clip, clip)
    print(f"pytorchvideo keyframes: {vars(agreement)}")
    assert agreement.same == VIDEOS


class Exact(Fraction):
    """A fraction that a float divides without becoming one."""

    def __truediv__(self, other: object) -> Fraction:
        return Fraction(self.numerator, self.denominator) / Fraction(other)  # type: ignore[arg-type]


@pytest.mark.parametrize("chosen", [False, True], ids=["middle", "random"])
def test_segments_as_in_something_something(monkeypatch: pytest.MonkeyPatch, chosen: bool) -> None:
    different = 0
    for seed, info, draw in videos():
        frames = draw.choice([1, 4, 8, 16])
        spec, rng = ClipSpec(frames, convention="segments"), np.random.default_rng(seed)
        monkeypatch.setattr(random, "randint", lambda low, high, rng=rng: int(rng.integers(low, high + 1)))
        theirs = SSv2._sample_clip_frames(list(range(info.num_frames)), frames, chosen)
        ours = random_clip(info, spec, np.random.default_rng(seed)) if chosen else uniform_clips(info, spec, 2)[1]
        # a border of segments that lies between two frames is a float there, which may round to the other one
        different += list(ours) != theirs
    assert different <= 5


@pytest.mark.parametrize("convention", ["pyslowfast", "pyslowfast-offset"])
def test_pyslowfast(convention: str) -> None:
    agreement = Agreement()
    for seed, info, draw in videos():
        frames, rate = draw.choice(CARDS[:4])
        spec = ClipSpec(frames, stride=rate, target_fps=30, convention=convention)
        count, fps = draw.randint(1, 10), float(info.num_frames / (info.duration * info.time_base))
        size = frames * rate * fps / 30
        delta = max(info.num_frames - size, 0)
        starts = [delta * k / count for k in range(count)]
        if convention == "pyslowfast-offset":
            starts = [k * math.floor(delta / (count - 1)) for k in range(count)] if count > 1 else [delta // 2]
        starts.append(np.random.default_rng(seed).uniform(0, delta))
        ours = [*uniform_clips(info, spec, count), random_clip(info, spec, np.random.default_rng(seed))]
        for clip, start in zip(ours, starts, strict=True):
            places = torch.linspace(start, start + size - 1, frames, dtype=torch.float64)
            agreement.compare(clip, places.clamp(0, info.num_frames - 1).add(1e-9).long().tolist())
            # as they do it, in float32: a place that is a whole number may come out just below it
            single = torch.linspace(start, start + size - 1, frames).clamp(0, info.num_frames - 1).long().tolist()
            assert all(mine - other in (-1, 0, 1) for mine, other in zip(clip, single))
    print(f"{convention}: {vars(agreement)}")
    assert agreement.rounded == 0


def their_starts(num_frames: int, frames: int, interval: int, count: int, rng: np.random.Generator | None) -> list[int]:
    """``SampleFrames``: the starts of clips, random ones with a generator."""
    if rng is None:
        room = max(num_frames - (frames - 1) * interval - 1, 0)
        return [room // 2] if count == 1 else np.round(np.arange(count) * (room / (count - 1))).astype(int).tolist()
    length = frames * interval
    average = (num_frames - length + 1) // count
    if average > 0:
        return (np.arange(count) * average + rng.integers(average, size=count)).tolist()
    if num_frames > max(count, length):
        return np.sort(rng.integers(num_frames - length + 1, size=count)).tolist()
    if average == 0:
        return np.around(np.arange(count) * ((num_frames - length + 1.0) / count)).astype(int).tolist()
    return [0] * count


@pytest.mark.parametrize("convention", ["mmaction2", "mmaction2-repeat-last"])
@pytest.mark.parametrize("chosen", [False, True], ids=["test", "training"])
def test_mmaction2(convention: str, chosen: bool) -> None:
    for seed, info, draw in videos():
        frames, interval = draw.choice(CARDS)
        spec, count = ClipSpec(frames, stride=interval, convention=convention), draw.randint(1, 12)
        rng = np.random.default_rng(seed) if chosen else None
        starts = np.array(their_starts(info.num_frames, frames, interval, count, rng))
        places = starts[:, None] + np.arange(frames) * interval
        if convention == "mmaction2":
            theirs = places % info.num_frames
        else:
            inside = places < info.num_frames
            theirs = np.where(inside, places, (inside * places).max(1, keepdims=True))
        draws = np.random.default_rng(seed)
        ours = random_clips(info, spec, count, draws) if chosen else uniform_clips(info, spec, count)
        assert [list(clip) for clip in ours] == theirs.tolist(), (seed, spec, count)


def test_dense_clips() -> None:
    for seed, info, draw in videos():
        frames, interval = draw.choice(CARDS)
        spec, count = ClipSpec(frames, stride=interval, convention="dense"), draw.randint(1, 10)
        positions = max(1, 1 + info.num_frames - frames * interval)
        starts = np.linspace(0, positions - 1, num=count, dtype=int)
        theirs = (starts[:, None] + np.arange(frames) * interval) % info.num_frames
        assert [list(clip) for clip in uniform_clips(info, spec, count)] == theirs.tolist()
        rng = np.random.default_rng(seed)
        start = 0 if positions == 1 else int(rng.integers(0, positions - 1))
        expected = [(start + i * interval) % info.num_frames for i in range(frames)]
        assert list(random_clip(info, spec, np.random.default_rng(seed))) == expected


@pytest.mark.parametrize(
    "spec",
    [
        *(ClipSpec(4, stride=3, convention=name) for name in sorted(set(conventions.names()) - {"segments"})),
        *(ClipSpec(4, span_s=0.4, convention=name) for name in ("hwbench", "pytorchvideo", "pyslowfast")),
    ],
    ids=str,
)
def test_a_clip_around_a_moment(spec: ClipSpec) -> None:
    middle = centred_clip(steady(60), spec, Fraction(30))
    assert (middle[0] + middle[-1]) / 2 == pytest.approx(29.5, abs=1.5)
    for moment in (0, 1, 59, 60, 100):
        clip = centred_clip(steady(60), spec, Fraction(moment))
        assert len(clip) == 4
        assert list(clip) == sorted(clip)
        assert 0 <= clip[0] <= clip[-1] <= 59


def test_keyframes_within_a_part_stay_within_it() -> None:
    part = Part(start_s=Fraction(1), end_s=Fraction(2), keyframe_s=Fraction(11, 10))
    labelled = LabelledPart.of(steady(90), part, "video")
    assert labelled.random_clip(ClipSpec(4, stride=3), np.random.default_rng(0)) == (30, 30, 33, 36)
    assert labelled.uniform_clips(ClipSpec(4, stride=3), 2) == ((30, 30, 33, 36),) * 2
    assert labelled.uniform_clips(ClipSpec(4, span_s=0.4), 1) == ((30, 30, 33, 36),)


@pytest.mark.parametrize("name", conventions.names())
@pytest.mark.parametrize("count", [1, 2, 40])
def test_every_convention_stays_within_the_video(name: str, count: int) -> None:
    spec = ClipSpec(5, convention=name) if name == "segments" else ClipSpec(5, stride=3, convention=name)
    convention: Convention = conventions.get(name)()
    for length in (1, 2, 13, 14, 100):
        info = steady(length)
        rng = np.random.default_rng(0)
        clips = (*convention.uniform(info, spec, count), *convention.random(info, spec, count, rng))
        assert len(clips) == 2 * count
        assert all(len(clip) == 5 and 0 <= min(clip) <= max(clip) < length for clip in clips)


def test_texts_of_a_clip_of_before_stay_as_they_were() -> None:
    assert ClipSpec(4, stride=12).to_plain() == {"frames": 4, "stride": 12, "span_s": None}
    assert str(ClipSpec(4, stride=12)) == "4x12"
    assert str(ClipSpec(4, span_s=1.5)) == "4 frames over 1.5 s"
    published = ClipSpec(4, stride=12, target_fps=30, convention="pytorchvideo")
    assert str(published) == "4x12 at 30 fps, pytorchvideo"
    assert ClipSpec.from_plain(published.to_plain()) == published
    assert published.span == Fraction(8, 5)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"convention": "pytorchvide", "stride": 1}, "unknown clip convention 'pytorchvide'; did you mean"),
        ({"convention": "mmaction2", "span_s": 1.0}, "takes a stride in frames of the video"),
        ({"convention": "mmaction2", "stride": 2, "target_fps": 30}, "takes a stride in frames of the video"),
        ({"convention": "segments", "stride": 2}, "segments cover the whole video"),
        ({"span_s": 1.0, "target_fps": 30}, "a frame rate of at least 1, and with a stride"),
        ({"stride": 1, "target_fps": 0}, "a frame rate of at least 1"),
    ],
)
def test_clips_that_a_convention_does_not_know(wrong: dict[str, object], said: str) -> None:
    with pytest.raises((InvalidValue, UnknownName), match=said):
        ClipSpec(4, **wrong)  # type: ignore[arg-type]


def test_a_window_that_does_not_move_is_refused() -> None:
    with pytest.raises(InvalidValue, match="more than 0 s"):
        sliding_clips(steady(30), ClipSpec(4, stride=2), every_s=Fraction(0))
    assert sliding_clips(steady(30), ClipSpec(4, stride=2)) == ((0, 2, 4, 6), (8, 10, 12, 14), (16, 18, 20, 22))
