import copy
import itertools
from fractions import Fraction

import numpy as np
import pytest

from hwbench.data.clips import ClipSpec, random_clip, uniform_clips
from hwbench.data.conventions import CutAt
from hwbench.data.decoding import VideoInfo
from hwbench.errors import InvalidValue


def video(pts: list[int], duration: int, rate: int = 30) -> VideoInfo:
    return VideoInfo(64, 48, "h264", Fraction(1, rate), np.array(pts), (0,), duration)


def steady(count: int, start: int = 0) -> VideoInfo:
    return video(list(range(start, start + count)), count)


@pytest.mark.parametrize(
    ("count", "spec", "clips", "expected"),
    [
        (20, ClipSpec(4, stride=2), 1, [(6, 8, 10, 12)]),  # latest start 13, its half rounded down
        (20, ClipSpec(4, stride=2), 3, [(0, 2, 4, 6), (6, 8, 10, 12), (13, 15, 17, 19)]),
        (10, ClipSpec(10, stride=1), 2, [tuple(range(10))] * 2),
        (3, ClipSpec(4, stride=2), 2, [(0, 2, 2, 2)] * 2),  # too short: held at its last frame
        (1, ClipSpec(1, stride=1), 1, [(0,)]),
        (30, ClipSpec(5, span_s=0.5), 2, [(0, 3, 6, 9, 12), (15, 18, 21, 24, 27)]),
        (30, ClipSpec(10, span_s=1.0), 1, [tuple(range(0, 30, 3))]),
    ],
)
def test_uniform_clips_reach_both_ends(count: int, spec: ClipSpec, clips: int, expected: list[tuple[int, ...]]) -> None:
    assert uniform_clips(steady(count), spec, clips) == tuple(expected)
    assert uniform_clips(steady(count, start=1000), spec, clips) == tuple(expected)


def test_ten_clips_of_a_tenth_are_ten_clips() -> None:
    # 0.1 s is no binary fraction; a sum of floats loses the last clip
    clips = uniform_clips(steady(30), ClipSpec(3, span_s=0.1), 10)
    assert clips == tuple(tuple(range(3 * k, 3 * k + 3)) for k in range(10))


def test_a_span_follows_the_clock_where_frames_are_uneven() -> None:
    info = video([0, 1, 2, 20, 25], 30)
    assert uniform_clips(info, ClipSpec(6, span_s=1.0), 1) == ((0, 2, 2, 2, 3, 4),)


@pytest.mark.parametrize("spec", [ClipSpec(4, stride=3), ClipSpec(4, span_s=0.4)])
def test_random_clips_cover_all_starts_and_nothing_else(spec: ClipSpec) -> None:
    rng = np.random.default_rng(0)
    clips = {random_clip(steady(20), spec, rng) for _ in range(500)}
    last = 10 if spec.stride else 8
    assert {clip[0] for clip in clips} == set(range(last + 1))
    assert max(max(clip) for clip in clips) <= 19
    assert all(b - a == 3 for clip in clips for a, b in itertools.pairwise(clip))


@pytest.mark.parametrize(
    "wrong",
    [
        {"frames": 0, "stride": 1},
        {"frames": 4},
        {"frames": 4, "stride": 1, "span_s": 1.0},
        {"frames": 4, "stride": 0},
        {"frames": 4, "span_s": 0.0},
        {"frames": 4, "span_s": float("nan")},
    ],
)
def test_impossible_clips_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="clip"):
        ClipSpec(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("convention", ["hwbench", "pytorchvideo"])
def test_a_clip_begins_with_its_first_frame_unless_that_is_held(convention: str) -> None:
    rng, spec = np.random.default_rng(0), ClipSpec(8, span_s=0.8, convention=convention)
    in_ms = VideoInfo(64, 48, "vp9", Fraction(1, 1000), np.arange(90) * 1001 // 30, (0,), 3003)
    for even in (steady(90), steady(90, start=1000), in_ms):
        clips = (*uniform_clips(even, spec, 7), *(random_clip(even, spec, rng) for _ in range(200)))
        assert {type(clip) for clip in clips} == {tuple}
    held = VideoInfo(64, 48, "h264", Fraction(1, 30), np.array([7, *range(67, 97)]), (0,), 90)
    _, middle, last = uniform_clips(held, spec, 3)
    assert type(last) is tuple
    assert isinstance(middle, CutAt)
    assert middle.start == 7 + 33
    assert (copy.deepcopy(middle), copy.deepcopy(middle).start) == (middle, middle.start)
