"""The part of a video that a label is about: which clips lie in it, and what of the picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hwbench.data.clips import ClipSpec, Indices, centred_clip, random_clip, uniform_clips
from hwbench.data.conventions import CutAt
from hwbench.data.decoding import Frames, VideoInfo
from hwbench.data.readers import Box, Part
from hwbench.errors import VideoError

# A person is seen with what is around: a quarter of the box more on each side.
_AROUND = 0.25


@dataclass(frozen=True)
class LabelledPart:
    """A part as frames: ``info`` of the part alone, ``first`` the index of its first frame in the video.

    ``box`` is the place that is labelled, as shares of the frame; None: all of it. ``keyframe`` is the moment that is
    labelled, in the units and from the origin of ``info.pts``; None: no moment of its own.
    """

    info: VideoInfo
    first: int = 0
    box: Box | None = None
    keyframe: Fraction | None = None

    @classmethod
    def of(cls, info: VideoInfo, part: Part | None, name: str) -> LabelledPart:
        """The part of a video.

        Raises:
            VideoError: The video ends before the part begins, or is longer than the cut that the part is of; ``name``
                is what the message calls it.
        """
        if part is None:
            return cls(info)
        cause = label_outside(part, info.exact_duration_s)
        if cause:
            raise VideoError(f"{name}: {cause}; is the list that of other files?")
        first, within = info.between(part.start_s, part.end_s)
        moment = None if part.keyframe_s is None else int(info.pts[0]) + part.keyframe_s / info.time_base
        return cls(within, first, part.box, moment)

    @property
    def end(self) -> int:
        """Index, in the video, behind the last frame of the part."""
        return self.first + self.info.num_frames

    def random_clip(self, spec: ClipSpec, rng: np.random.Generator) -> Indices:
        """Frame indices, in the video, of a clip that starts anywhere in the part, or of the one at its keyframe."""
        if self.keyframe is not None:
            return self._in_video(centred_clip(self.info, spec, self.keyframe))
        return self._in_video(random_clip(self.info, spec, rng))

    def uniform_clips(self, spec: ClipSpec, count: int) -> tuple[Indices, ...]:
        """Frame indices, in the video, of clips spread evenly over the part; with a keyframe all are those at it."""
        if self.keyframe is not None:
            return (self._in_video(centred_clip(self.info, spec, self.keyframe)),) * count
        return tuple(self._in_video(clip) for clip in uniform_clips(self.info, spec, count))

    def cut(self, frames: Frames) -> Frames:
        """The labelled place with what is around it: uint8 (T, h, w, 3) of (T, H, W, 3)."""
        if self.box is None:
            return frames
        height, width = frames.shape[1:3]
        (left, right), (top, bottom) = (
            _around(self.box[0] * width, self.box[2] * width, width),
            _around(self.box[1] * height, self.box[3] * height, height),
        )
        return frames[:, top:bottom, left:right]

    def _in_video(self, clip: Indices) -> Indices:
        indices = tuple(self.first + index for index in clip)
        return clip.moved(indices) if isinstance(clip, CutAt) else indices


def label_outside(part: Part, duration_s: Fraction) -> str:
    """Says, in one line, that a label begins behind the end of its video, or is of a cut of it; empty: neither."""
    if part.cut_s is not None and duration_s > part.cut_s:
        return (
            f"the label is of a cut of at most {float(part.cut_s):g} s, the video has {float(duration_s):.2f} s "
            "(whole films: option offset=0; longer cuts: offset=900)"
        )
    begins = part.start_s if part.start_s is not None else part.keyframe_s
    if begins is None or begins <= duration_s:
        return ""
    return f"the label begins at {float(begins):g} s, the video has {float(duration_s):.2f} s"


def _around(low: float, high: float, size: int) -> tuple[int, int]:
    """A range of pixels with a margin on both sides, within the frame and of one pixel at least."""
    margin = _AROUND * (high - low)
    start = min(max(0, math.floor(low - margin)), size - 1)
    return start, max(start + 1, min(size, math.ceil(high + margin)))
