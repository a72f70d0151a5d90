"""Which frames make a clip. All arithmetic is on whole numbers: nothing is lost to rounding at the end of a video.

A clip has ``frames`` frames, a fixed number of frames apart (``stride``) or evenly over a length of time (``span_s``).

* By stride: frame ``start + i * stride``. The video's own frame rate decides how long the clip is.
* By span: the clip covers ``span_s`` seconds from its start; frame ``i`` is the one on screen at
  ``start + i * span / T``, so videos of different or variable rates look alike.

A video shorter than the clip is held at its last frame. Test clips start evenly from the first to the last possible
start, ``floor(k * last / (n - 1))`` for clip ``k`` of ``n``; a single test clip starts in the middle,
``floor(last / 2)``. That is the convention of mmaction2 and PyTorchVideo; in PySlowFast the last clip ends earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hwbench.data.decoding import VideoInfo
from hwbench.errors import InvalidValue

Indices = tuple[int, ...]


@dataclass(frozen=True)
class ClipSpec:
    """How a clip is cut: number of frames T, and either ``stride`` in frames or ``span_s`` in seconds, not both."""

    frames: int
    stride: int | None = None
    span_s: float | None = None

    def __post_init__(self) -> None:
        if self.frames < 1 or (self.stride is None) == (self.span_s is None):
            raise InvalidValue(f"clip: expected at least one frame, and a stride or a span in seconds, got {self}")
        length = self.stride if self.span_s is None else self.span_s
        if length is None or not 0 < length < float("inf"):
            raise InvalidValue(f"clip: stride and span must be greater than 0, got {self}")

    def __str__(self) -> str:
        return f"{self.frames}x{self.stride}" if self.stride else f"{self.frames} frames over {self.span_s} s"


def random_clip(info: VideoInfo, spec: ClipSpec, rng: np.random.Generator) -> Indices:
    """Frame indices of one clip that starts anywhere in the video, all starts equally likely."""
    return _clip_at(info, spec, int(rng.integers(0, _last_start(info, spec) + 1)))


def uniform_clips(info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
    """Frame indices of ``count`` clips spread evenly over the video; the convention is told above."""
    last = _last_start(info, spec)
    starts = [last // 2] if count == 1 else [k * last // (count - 1) for k in range(count)]
    return tuple(_clip_at(info, spec, start) for start in starts)


def _last_start(info: VideoInfo, spec: ClipSpec) -> int:
    """The latest start whose clip fits: a frame index by stride, a time in ticks of the video's time base by span."""
    if spec.stride is not None:
        return max(0, info.num_frames - 1 - (spec.frames - 1) * spec.stride)
    return max(0, info.duration - int(_ticks(info, spec)))


def _clip_at(info: VideoInfo, spec: ClipSpec, start: int) -> Indices:
    if spec.stride is not None:
        return tuple(min(start + i * spec.stride, info.num_frames - 1) for i in range(spec.frames))
    span, first = _ticks(info, spec), int(info.pts[0])
    # The first frame is on screen from its time stamp; a frame stays until the next one comes.
    times = [first + start + int(i * span / spec.frames) for i in range(spec.frames)]
    return tuple(int(i) for i in np.searchsorted(info.pts, times, side="right") - 1)


def _ticks(info: VideoInfo, spec: ClipSpec) -> Fraction:
    # The span as written in decimals, not as the nearest binary fraction: 0.1 s at 1/90000 s is 9000 ticks.
    return Fraction(str(spec.span_s)) / info.time_base
