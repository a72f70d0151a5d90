"""Which frames make a clip, by convention: every code base that published weights counts frames in its own way.

A convention answers four questions of a video and a ``ClipSpec``: random clips, clips spread evenly, the clip that
starts at a time, and the clip around a moment. All arithmetic is on whole numbers and fractions, so nothing is lost to
rounding at the end of a video; indices are those of ``VideoInfo.pts``.

``N`` is the number of frames of the video, ``D`` its duration in seconds, ``T`` the number of frames of the clip, ``s``
its span in seconds, ``n`` the number of clips:

=====================  ===============================================  ==============================================
convention             starts of ``n`` test clips                       frames of a clip
=====================  ===============================================  ==============================================
hwbench                floor(k last / (n - 1)), one: floor(last / 2)    every stride-th, or on screen at start + i s / T
pytorchvideo           k (D - s) / (n - 1), one: 0                      all of [start, start + s), T of them linspaced
pyslowfast             k (N - size) / n                                 linspace(start, start + size - 1, T), clamped
pyslowfast-offset      k floor((N - size) / (n - 1)), one: floor(. / 2)  the same
mmaction2              round(k last / (n - 1)), one: floor(last / 2)    every stride-th; past the end from the beginning
mmaction2-repeat-last  the same                                         past the end the last one that was inside
segments               all the same                                     one of each of T segments, in testing the middle
dense                  floor(k last / (n - 1)), one: 0                  every stride-th; past the end from the beginning
=====================  ===============================================  ==============================================

Sources: PyTorchVideo ``data/clip_sampling.py`` and ``uniform_temporal_subsample`` (the last clip ends with the video as
in its main branch; release 0.1.5 divides by n); PySlowFast ``datasets/decoder.py`` (``get_start_end_idx``,
``temporal_sampling``), whose ``size`` is the span times the frame rate of the video; mmaction2 ``SampleFrames``,
``DenseSampleFrames``; TSN (arXiv 1608.00859) as in the Something-Something data set of PyTorchVideo.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from hwbench.data.decoding import VideoInfo
from hwbench.errors import InvalidValue
from hwbench.registry import Registry

if TYPE_CHECKING:
    from hwbench.data.clips import ClipSpec

Indices = tuple[int, ...]


class CutAt(tuple[int, ...]):
    """Indices of a clip that begins at another time than its first frame, which is held or comes late.

    Attributes:
        start: When the clip begins, in the units and from the origin of ``VideoInfo.pts``.
    """

    start: Fraction

    def __new__(cls, indices: Indices, start: Fraction) -> CutAt:
        clip = super().__new__(cls, indices)
        clip.start = start
        return clip

    def __getnewargs__(self) -> tuple[Indices, Fraction]:
        return tuple(self), self.start

    def moved(self, indices: Indices) -> CutAt:
        """Other frames of the same time."""
        return CutAt(indices, self.start)


HWBENCH = "hwbench"
# Frames that are further apart by this share, and one tick of coarse time stamps, are still as far apart as usual.
_USUAL_STEP = Fraction(11, 10)
# Frame rate of most videos of Kinetics, for a window in seconds that names none.
_USUAL_FPS = 30


class Convention(Protocol):
    """How a code base chooses frames; indices come in the order of the clip and may repeat.

    A clip begins with its first frame. Where it was cut at a time, and the first frame is further away from that time
    than frames are apart, it is a ``CutAt``.

    Attributes:
        includes_end: Whether the last frame of a clip is the last one of its window.
    """

    includes_end: ClassVar[bool]

    def check(self, spec: ClipSpec) -> None:
        """Raises InvalidValue for a clip that the convention does not know."""
        ...

    def random(self, info: VideoInfo, spec: ClipSpec, count: int, rng: np.random.Generator) -> tuple[Indices, ...]:
        """Clips as training sees them."""
        ...

    def uniform(self, info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
        """Clips as a test sees them, spread over the video."""
        ...

    def starting(self, info: VideoInfo, spec: ClipSpec, start_s: Fraction) -> Indices:
        """The clip that starts so many seconds after the first frame."""
        ...

    def centred(self, info: VideoInfo, spec: ClipSpec, moment: Fraction) -> Indices:
        """The clip around a moment, a time in the units and from the origin of ``info.pts``; kept within the video."""
        ...


conventions: Registry[type[Convention]] = Registry("clip convention")


def span_of(info: VideoInfo, spec: ClipSpec) -> Fraction:
    """Seconds that a clip covers; a stride without a frame rate counts frames of the video."""
    if spec.span is not None:
        return spec.span
    return spec.frames * (spec.stride or 1) * info.duration * info.time_base / info.num_frames


def frame_distance(spec: ClipSpec) -> Fraction | None:
    """Mean distance from one frame of a clip to the next, in a video that is long enough.

    Returns:
        Seconds where ``spec.span`` is known, else frames of the video; None where a clip covers the whole video. The
        last frame of a window in seconds begins one frame of ``target_fps``, or of 30 per second, before its end.
    """
    if spec.span is None and spec.stride is None:
        return None
    length, last = spec.span, Fraction(1, spec.target_fps or _USUAL_FPS)
    if length is None:
        length, last = Fraction(spec.frames * (spec.stride or 1)), Fraction(1)
    if conventions.get(spec.convention).includes_end and spec.frames > 1 and length > last:
        return (length - last) / (spec.frames - 1)
    return length / spec.frames


class _ByLength:
    """What conventions share whose clips have a length, in frames of the video or in seconds."""

    includes_end: ClassVar[bool] = False

    def check(self, spec: ClipSpec) -> None:
        if spec.span is None and spec.stride is None:
            raise InvalidValue(f"clip: expected a stride or a span in seconds, got {spec}")


class _ByStride:
    """What conventions share that count frames of the video and know no seconds."""

    includes_end: ClassVar[bool] = False

    def check(self, spec: ClipSpec) -> None:
        if spec.stride is None or spec.target_fps is not None:
            raise InvalidValue(f"clip: {spec.convention} takes a stride in frames of the video, got {spec}")


@conventions.register(HWBENCH)
class HwbenchClips(_ByLength):
    """By stride: frame ``start + i * stride``, held at the last frame. By span: the frame on screen at each time."""

    def random(self, info: VideoInfo, spec: ClipSpec, count: int, rng: np.random.Generator) -> tuple[Indices, ...]:
        last = self._last_start(info, spec)
        return tuple(self._at(info, spec, int(rng.integers(0, last + 1))) for _ in range(count))

    def uniform(self, info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
        last = self._last_start(info, spec)
        starts = [last // 2] if count == 1 else [k * last // (count - 1) for k in range(count)]
        return tuple(self._at(info, spec, start) for start in starts)

    def starting(self, info: VideoInfo, spec: ClipSpec, start_s: Fraction) -> Indices:
        ticks = start_s / info.time_base
        if spec.span is None:
            return self._at(info, spec, _on_screen(info, int(info.pts[0]) + ticks))
        return self._at(info, spec, ticks)

    def centred(self, info: VideoInfo, spec: ClipSpec, moment: Fraction) -> Indices:
        if spec.span is None:
            return _around(info, spec.frames, spec.stride or 1, moment)
        return self._at(info, spec, moment - int(info.pts[0]) - spec.span / info.time_base / 2)

    def _last_start(self, info: VideoInfo, spec: ClipSpec) -> int:
        """The latest start whose clip fits: a frame index by stride, a time in ticks of the time base by span."""
        if spec.span is None:
            return max(0, info.num_frames - 1 - (spec.frames - 1) * (spec.stride or 1))
        return max(0, info.duration - int(spec.span / info.time_base))

    def _at(self, info: VideoInfo, spec: ClipSpec, start: int | Fraction) -> Indices:
        if spec.span is None:
            return tuple(min(int(start) + i * (spec.stride or 1), info.num_frames - 1) for i in range(spec.frames))
        step, begin, first = spec.span / info.time_base / spec.frames, Fraction(start), int(info.pts[0])
        # The floor of begin + i * step in whole numbers: sums of fractions take longer than reading the frames.
        parts, forward = begin.numerator * step.denominator, step.numerator * begin.denominator
        whole = step.denominator * begin.denominator
        times = [first + (parts + i * forward) // whole for i in range(spec.frames)]
        # The first frame is on screen from its time stamp; a frame stays until the next one comes.
        shown = np.searchsorted(info.pts, times, side="right") - 1
        return _cut_at(info, tuple(np.maximum(shown, 0).tolist()), first + begin)


@conventions.register("pytorchvideo")
class PyTorchVideoClips(_ByLength):
    """Of all frames whose time stamp lies in [start, start + span), T at the places ``floor(i (n - 1) / (T - 1))``.

    A window without a time stamp, which PyTorchVideo leaves out, gives the frame that is on screen.
    """

    includes_end = True

    def random(self, info: VideoInfo, spec: ClipSpec, count: int, rng: np.random.Generator) -> tuple[Indices, ...]:
        last = float(self._last_start_s(info, spec))
        return tuple(self.starting(info, spec, Fraction(rng.uniform(0, last))) for _ in range(count))

    def uniform(self, info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
        last = self._last_start_s(info, spec)
        return tuple(self.starting(info, spec, k * last / max(1, count - 1)) for k in range(count))

    def starting(self, info: VideoInfo, spec: ClipSpec, start_s: Fraction) -> Indices:
        return self._window(info, spec, int(info.pts[0]) + start_s / info.time_base)

    def centred(self, info: VideoInfo, spec: ClipSpec, moment: Fraction) -> Indices:
        return self._window(info, spec, moment - span_of(info, spec) / info.time_base / 2)

    def _last_start_s(self, info: VideoInfo, spec: ClipSpec) -> Fraction:
        return max(Fraction(0), info.duration * info.time_base - span_of(info, spec))

    def _window(self, info: VideoInfo, spec: ClipSpec, start: Fraction) -> Indices:
        times = (math.ceil(start), math.ceil(start + span_of(info, spec) / info.time_base))
        low, high = (int(index) for index in np.searchsorted(info.pts, times, side="left"))
        if high <= low:
            return _cut_at(info, (_on_screen(info, start),) * spec.frames, start)
        return _cut_at(info, tuple(low + place for place in evenly(high - low, spec.frames)), start)


@conventions.register("pyslowfast")
class PySlowFastClips(_ByLength):
    """T places from the start to ``start + size - 1``, truncated and clamped; ``size`` is the span in frames."""

    includes_end = True

    def random(self, info: VideoInfo, spec: ClipSpec, count: int, rng: np.random.Generator) -> tuple[Indices, ...]:
        room = float(self._room(info, spec))
        return tuple(self._at(info, spec, Fraction(rng.uniform(0, room))) for _ in range(count))

    def uniform(self, info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
        return tuple(self._at(info, spec, start) for start in self._starts(self._room(info, spec), count))

    def starting(self, info: VideoInfo, spec: ClipSpec, start_s: Fraction) -> Indices:
        return self._at(info, spec, start_s * info.exact_fps)

    def centred(self, info: VideoInfo, spec: ClipSpec, moment: Fraction) -> Indices:
        size, middle = self._size(info, spec), _on_screen(info, moment)
        places = (middle - math.floor(size / 2) + i * size / spec.frames for i in range(spec.frames))
        return tuple(_clamped(info, math.floor(place)) for place in places)

    def _starts(self, room: Fraction, count: int) -> list[Fraction]:
        return [k * room / count for k in range(count)]

    def _size(self, info: VideoInfo, spec: ClipSpec) -> Fraction:
        return span_of(info, spec) * info.exact_fps

    def _room(self, info: VideoInfo, spec: ClipSpec) -> Fraction:
        return max(Fraction(0), info.num_frames - self._size(info, spec))

    def _at(self, info: VideoInfo, spec: ClipSpec, start: Fraction) -> Indices:
        step = (self._size(info, spec) - 1) / max(1, spec.frames - 1)
        return tuple(_clamped(info, math.floor(start + i * step)) for i in range(spec.frames))


@conventions.register("pyslowfast-offset")
class PySlowFastOffsetClips(PySlowFastClips):
    """As ``pyslowfast`` with its option ``USE_OFFSET_SAMPLING``: the last clip ends near the end of the video."""

    def _starts(self, room: Fraction, count: int) -> list[Fraction]:
        if count == 1:
            return [Fraction(math.floor(room / 2))]
        return [Fraction(k * math.floor(room / (count - 1))) for k in range(count)]


@conventions.register("mmaction2")
class MMAction2Clips(_ByStride):
    """``SampleFrames`` of mmaction2: a clip is ``T * stride`` frames in training, ``stride - 1`` fewer in tests."""

    def random(self, info: VideoInfo, spec: ClipSpec, count: int, rng: np.random.Generator) -> tuple[Indices, ...]:
        starts = self._random_starts(info.num_frames, spec.frames * (spec.stride or 1), count, rng)
        return tuple(self._at(info, spec, start) for start in starts)

    def uniform(self, info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
        last = max(0, info.num_frames - 1 - (spec.frames - 1) * (spec.stride or 1))
        starts = [last // 2] if count == 1 else [round(Fraction(k * last, count - 1)) for k in range(count)]
        return tuple(self._at(info, spec, start) for start in starts)

    def starting(self, info: VideoInfo, spec: ClipSpec, start_s: Fraction) -> Indices:
        return self._at(info, spec, _on_screen(info, int(info.pts[0]) + start_s / info.time_base))

    def centred(self, info: VideoInfo, spec: ClipSpec, moment: Fraction) -> Indices:
        return _around(info, spec.frames, spec.stride or 1, moment)

    def _random_starts(self, num_frames: int, length: int, count: int, rng: np.random.Generator) -> list[int]:
        """One start in each of ``count`` equal parts of the starts that fit."""
        room = num_frames - length + 1
        part = room // count
        if part > 0:
            return [k * part + int(draw) for k, draw in enumerate(rng.integers(part, size=count))]
        if num_frames > max(count, length):
            return sorted(int(draw) for draw in rng.integers(room, size=count))
        # An interval of 0 spreads what room there is, a negative one is a video shorter than the clip.
        return [round(Fraction(k * room, count)) if part == 0 else 0 for k in range(count)]

    def _at(self, info: VideoInfo, spec: ClipSpec, start: int) -> Indices:
        return tuple((start + i * (spec.stride or 1)) % info.num_frames for i in range(spec.frames))


@conventions.register("mmaction2-repeat-last")
class MMAction2RepeatLastClips(MMAction2Clips):
    """As ``mmaction2`` with ``out_of_bound_opt="repeat_last"``: past the end the clip's last frame that was inside."""

    def _at(self, info: VideoInfo, spec: ClipSpec, start: int) -> Indices:
        places = [start + i * (spec.stride or 1) for i in range(spec.frames)]
        last = max((place for place in places if place < info.num_frames), default=0)
        return tuple(min(place, last) for place in places)


@conventions.register("dense")
class DenseClips(_ByStride):
    """``DenseSampleFrames`` of mmaction2, as TSM uses it: the range of a clip is ``T * stride`` frames."""

    def random(self, info: VideoInfo, spec: ClipSpec, count: int, rng: np.random.Generator) -> tuple[Indices, ...]:
        last = self._last_start(info, spec)
        return tuple(self._at(info, spec, int(rng.integers(0, last)) if last else 0) for _ in range(count))

    def uniform(self, info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
        last = self._last_start(info, spec)
        return tuple(self._at(info, spec, k * last // max(1, count - 1)) for k in range(count))

    def starting(self, info: VideoInfo, spec: ClipSpec, start_s: Fraction) -> Indices:
        return self._at(info, spec, _on_screen(info, int(info.pts[0]) + start_s / info.time_base))

    def centred(self, info: VideoInfo, spec: ClipSpec, moment: Fraction) -> Indices:
        return _around(info, spec.frames, spec.stride or 1, moment)

    def _last_start(self, info: VideoInfo, spec: ClipSpec) -> int:
        return max(0, info.num_frames - spec.frames * (spec.stride or 1))

    def _at(self, info: VideoInfo, spec: ClipSpec, start: int) -> Indices:
        return tuple((start + i * (spec.stride or 1)) % info.num_frames for i in range(spec.frames))


@conventions.register("segments")
class SegmentClips:
    """One frame of each of T equal parts of the video: anywhere in it for training, in its middle for a test."""

    includes_end: ClassVar[bool] = False

    def check(self, spec: ClipSpec) -> None:
        if spec.stride is not None or spec.span_s is not None or spec.target_fps is not None:
            raise InvalidValue(f"clip: segments cover the whole video; leave out stride and span, got {spec}")

    def random(self, info: VideoInfo, spec: ClipSpec, count: int, rng: np.random.Generator) -> tuple[Indices, ...]:
        parts = self._parts(info, spec)
        return tuple(tuple(int(rng.integers(low, high + 1)) for low, high in parts) for _ in range(count))

    def uniform(self, info: VideoInfo, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
        return (tuple((low + high) // 2 for low, high in self._parts(info, spec)),) * count

    def starting(self, info: VideoInfo, spec: ClipSpec, start_s: Fraction) -> Indices:
        raise InvalidValue("clip: segments cover the whole video; they start nowhere else")

    def centred(self, info: VideoInfo, spec: ClipSpec, moment: Fraction) -> Indices:
        raise InvalidValue("clip: segments cover the whole video and have no keyframe; choose another convention")

    def _parts(self, info: VideoInfo, spec: ClipSpec) -> list[tuple[int, int]]:
        ends = [round(Fraction((info.num_frames - 1) * i, spec.frames)) for i in range(spec.frames + 1)]
        return list(itertools.pairwise(ends))


def evenly(count: int, frames: int) -> Indices:
    """``linspace(0, count - 1, frames)``, truncated: the ends and what lies evenly between; one frame is the first."""
    return tuple(i * (count - 1) // max(1, frames - 1) for i in range(frames))


def _around(info: VideoInfo, frames: int, stride: int, moment: Fraction) -> Indices:
    """Every stride-th frame, the one on screen at the moment in the place T // 2."""
    middle = _on_screen(info, moment)
    return tuple(_clamped(info, middle + (i - frames // 2) * stride) for i in range(frames))


def _cut_at(info: VideoInfo, indices: Indices, time: Fraction) -> Indices:
    """The clip that was cut at a time in units of the time base, which counts from the first frame on."""
    start = max(time, Fraction(int(info.pts[0])))
    apart = abs(start - int(info.pts[indices[0]]))
    if apart <= 1:
        return indices
    usual = float(np.median(np.diff(info.pts))) if info.num_frames > 1 else info.duration
    return indices if apart <= Fraction(usual) * _USUAL_STEP + 1 else CutAt(indices, start)


def _on_screen(info: VideoInfo, time: Fraction | int) -> int:
    """Index of the frame that is shown at a time in units of the time base; the first one before the video begins."""
    return max(0, int(np.searchsorted(info.pts, math.floor(time), side="right")) - 1)


def _clamped(info: VideoInfo, index: int) -> int:
    return min(max(index, 0), info.num_frames - 1)
