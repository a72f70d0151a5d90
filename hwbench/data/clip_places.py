"""Where in its video a clip lies: what is needed to read something else of the same time and place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from hwbench.data.archives import ArchiveMember
from hwbench.data.arrow import RowSource
from hwbench.data.clips import ClipSpec, Indices
from hwbench.data.conventions import CutAt, span_of
from hwbench.data.decoding import VideoInfo
from hwbench.data.images import FrameFolder
from hwbench.data.labelled import LabelledPart
from hwbench.data.media import VideoSource


@dataclass(frozen=True)
class ClipPlace:
    """A clip by its frames and by its time.

    Attributes:
        source: The video.
        part: What of it the label is about.
        num_frames: Frames of the video.
        indices: Frames of the clip.
        start_s: When it begins, in seconds from the first frame of the video: with its first frame, unless that is held
            long or comes late (``CutAt``).
        span_s: Seconds that it covers, also where the video ends before.
        origin_s: The time stamp of the first frame of the video, which other streams of its file count by.
        end_s: When what the label is about ends, in seconds from the first frame of the video; None: with the video, or
            behind it.
    """

    source: VideoSource
    part: LabelledPart
    num_frames: int
    indices: Indices
    start_s: Fraction
    span_s: Fraction
    origin_s: Fraction
    end_s: Fraction | None = None

    @classmethod
    def of(
        cls, source: VideoSource, info: VideoInfo, part: LabelledPart, indices: Indices, spec: ClipSpec
    ) -> ClipPlace:
        """The place of a clip that was cut as ``spec`` says; segments cover the whole part."""
        segments = spec.stride is None and spec.span is None
        within = part.info
        begins = Fraction(int(within.pts[0] if segments else info.pts[indices[0]]))
        if isinstance(indices, CutAt):
            begins = indices.start
        span_s = within.duration * within.time_base if segments else span_of(within, spec)
        first = int(info.pts[0])
        start_s, end_s = (begins - first) * info.time_base, None
        if part.end < info.num_frames:
            end_s = (int(info.pts[part.end]) - first) * info.time_base
        return cls(source, part, info.num_frames, indices, start_s, span_s, info.origin_s, end_s)

    def before_end(self, count: int, first_s: Fraction, step_s: Fraction) -> int:
        """How many of ``count`` moments, from ``first_s`` on and ``step_s`` apart, lie before ``end_s``."""
        if self.end_s is None:
            return count
        return min(max(0, math.ceil((self.end_s - first_s) / step_s)), count)


def beside(source: VideoSource, root: Path | None) -> Path:
    """Where lies what belongs to a video, without an ending: ``root/NAME``, or beside the video where that is None."""
    place = _without_ending(source)
    return place if root is None else root / place.name


def places_beside(source: VideoSource, root: Path | None) -> tuple[Path, ...]:
    """Where what belongs to a video is looked for, without an ending, the place to go by first.

    ``root/SIDE/CLASS/NAME``, ``root/CLASS/NAME`` and ``root/NAME``: CLASS is the folder that the video lies in, and
    SIDE that of CLASS. Beside the video is the one place where ``root`` is None.
    """
    place = beside(source, None)
    if root is None:
        return (place,)
    folder = place.parent
    return (root / folder.parent.name / folder.name / place.name, root / folder.name / place.name, root / place.name)


def shared_places(sources: Iterable[VideoSource], place_of: Callable[[VideoSource], Path | None]) -> dict[Path, str]:
    """What two videos of one name would share, as ``root/0.csv`` of the clips ``0`` of two classes, with the fault.

    Args:
        sources: The videos; those in one place, as the streams of a file, are one.
        place_of: Where lies what belongs to a video; None: there is nothing.
    """
    named: dict[str, dict[Path, VideoSource]] = {}
    for source in sources:
        place = beside(source, None)
        named.setdefault(place.name, {}).setdefault(place, source)
    users: dict[Path, list[str]] = {}
    for videos in named.values():
        for source in videos.values() if len(videos) > 1 else ():
            if (shared := place_of(source)) is not None:
                users.setdefault(shared, []).append(source.name)
    return {
        shared: f"{shared}: belongs to {names[0]} or to {names[1]}; give each its own, in folders called as those of "
        "the videos (train/CLASS)"
        for shared, names in users.items()
        if len(names) > 1
    }


def _without_ending(source: VideoSource) -> Path:
    """The path of a video without its ending. Members of archives lie as if unpacked there, rows beside their table."""
    match source:
        case FrameFolder():
            return source.folder
        case RowSource():
            return source.table.parent / f"{source.column}[{source.group},{source.row}]"
        case ArchiveMember():
            path = source.archive.parent / source.member.lstrip("/")
        case _:
            path = Path(source.name)
    return path.parent / path.stem
