"""A clip by its numbers, and the clips of a video: random ones to train on, fixed ones to test with.

A clip has ``frames`` frames, a fixed number of frames apart (``stride``) or evenly over a length of time (``span_s``);
``convention`` says in which way a code base chooses them (``hwbench.data.conventions``). With ``hwbench``:

* By stride: frame ``start + i * stride``. The video's own frame rate decides how long the clip is.
* By span: the clip covers ``span_s`` seconds from its start; frame ``i`` is the one on screen at
  ``start + i * span / T``, so videos of different or variable rates look alike.
* A video shorter than the clip is held at its last frame. Test clips start evenly from the first to the last possible
  start, ``floor(k * last / (n - 1))`` for clip ``k`` of ``n``; a single test clip starts in the middle.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np

from hwbench.data.conventions import HWBENCH, Indices, conventions, span_of
from hwbench.data.decoding import VideoInfo
from hwbench.errors import InvalidValue

__all__ = [
    "ClipSpec",
    "Indices",
    "Tail",
    "centred_clip",
    "random_clip",
    "random_clips",
    "sliding_clips",
    "uniform_clips",
]

# Fields that files and messages of before do not have; they are written where they say something.
_ADDED: dict[str, Any] = {"convention": HWBENCH, "target_fps": None}


@dataclass(frozen=True)
class ClipSpec:
    """How a clip is cut: ``frames`` frames T, and either a ``stride`` or a span, not both.

    Attributes:
        frames: Number of frames T.
        stride: Frames from one of the clip to the next.
        span_s: Seconds that the clip covers.
        convention: Which frames are chosen; a name of ``hwbench.data.conventions``.
        target_fps: Frame rate in which ``stride`` counts: the clip then covers ``frames * stride / target_fps`` seconds
            of any video. None: frames of the video itself.
    """

    frames: int
    stride: int | None = None
    span_s: float | None = None
    convention: str = HWBENCH
    target_fps: int | None = None

    def __post_init__(self) -> None:
        if self.frames < 1 or (self.stride is not None and self.span_s is not None):
            raise InvalidValue(f"clip: expected at least one frame, and a stride or a span in seconds, got {self}")
        for length in (self.stride, self.span_s):
            if length is not None and not 0 < length < float("inf"):
                raise InvalidValue(f"clip: stride and span must be greater than 0, got {self}")
        if self.target_fps is not None and (self.stride is None or self.target_fps < 1):
            raise InvalidValue(f"clip: expected a frame rate of at least 1, and with a stride, got {self}")
        conventions.get(self.convention)().check(self)

    def __str__(self) -> str:
        text = f"{self.frames}x{self.stride}" if self.stride else f"{self.frames} frames over {self.span_s} s"
        if self.stride is None and self.span_s is None:
            text = f"{self.frames} frames"
        rate = "" if self.target_fps is None else f" at {self.target_fps} fps"
        return f"{text}{rate}" + ("" if self.convention == HWBENCH else f", {self.convention}")

    @property
    def span(self) -> Fraction | None:
        """Seconds that the clip covers, exactly as written in decimals; None where frames of the video are counted."""
        if self.span_s is not None:
            return _as_written(self.span_s)
        if self.target_fps is None or self.stride is None:
            return None
        return Fraction(self.frames * self.stride, self.target_fps)

    def with_frames(self, frames: int) -> ClipSpec:
        """The same span in another number of frames; a stride is rounded to whole frames."""
        if self.stride is None or frames == self.frames:
            return replace(self, frames=frames)
        return replace(self, frames=frames, stride=max(1, round(self.frames * self.stride / frames)))

    def spanning(self, span_s: float | None) -> ClipSpec:
        """As many frames over another time in seconds; None leaves the clip as it is."""
        return self if span_s is None else ClipSpec(self.frames, span_s=span_s, convention=self.convention)

    def to_plain(self) -> dict[str, Any]:
        """The fields by name, without those added later that have their default: texts of before stay as they were."""
        return {name: value for name, value in asdict(self).items() if name not in _ADDED or value != _ADDED[name]}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> ClipSpec:
        """The clip of ``to_plain``."""
        return cls(**values)


@functools.cache
def _as_written(seconds: float) -> Fraction:
    """Not the nearest binary fraction: 0.1 s at 1/90000 s is 9000 ticks."""
    return Fraction(str(seconds))


class Tail(StrEnum):
    """What becomes of the end of a video that no whole clip of a sliding window covers."""

    DROP = "drop"
    BACKPAD = "backpad"


def random_clip(info: VideoInfo, spec: ClipSpec, rng: np.random.Generator) -> Indices:
    """Frame indices of one clip that starts anywhere in the video, all starts equally likely."""
    return random_clips(info, spec, 1, rng)[0]


def random_clips(info: VideoInfo, spec: ClipSpec, count: int, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Frame indices of ``count`` random clips, drawn as the convention does it."""
    return conventions.get(spec.convention)().random(info, spec, count, rng)


def uniform_clips(info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
    """Frame indices of ``count`` clips spread evenly over the video, as the convention does it."""
    return conventions.get(spec.convention)().uniform(info, spec, count)


def centred_clip(info: VideoInfo, spec: ClipSpec, moment: Fraction) -> Indices:
    """Frame indices of the clip around a moment, a time in the units and from the origin of ``info.pts``."""
    return conventions.get(spec.convention)().centred(info, spec, moment)


def sliding_clips(
    info: VideoInfo, spec: ClipSpec, *, every_s: Fraction | None = None, tail: Tail = Tail.DROP
) -> tuple[Indices, ...]:
    """Frame indices of the clips of a sliding window: at 0, ``every_s``, 2 ``every_s``, ... as long as a clip fits.

    Args:
        info: The video; one shorter than the clip gives one clip.
        spec: How a clip is cut.
        every_s: Seconds from one start to the next; None: the span, so that clips touch.
        tail: ``BACKPAD`` adds a clip that ends with the video, unless one does.

    Raises:
        InvalidValue: ``every_s`` is not more than 0.
    """
    span, duration = span_of(info, spec), info.duration * info.time_base
    step = span if every_s is None else every_s
    if step <= 0:
        raise InvalidValue(f"clip: expected more than 0 s from one start to the next, got {step}")
    last = max(Fraction(0), duration - span)
    starts = [k * step for k in range(int(last / step) + 1)]
    if tail is Tail.BACKPAD and starts[-1] < last:
        starts.append(last)
    convention = conventions.get(spec.convention)()
    return tuple(convention.starting(info, spec, start) for start in starts)
