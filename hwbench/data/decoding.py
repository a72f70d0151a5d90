"""Reading videos with PyAV: what a file holds, and exactly the frames that are asked for.

Frames are numbered in presentation order from 0. A read decodes forward and converts to RGB only what it keeps; where
the next wanted frame lies behind a later keyframe it seeks there. Frames that no other refers to are not decoded unless
they are wanted (H.264, MPEG-4). Frames are found by their time stamps, so B-frames,
variable frame rates and streams that start late are exact. Files whose packets carry no usable time stamps (raw
streams, AVI with B-frames) are read from the start and counted instead. Frames before the first one that can be decoded
(a recording that was cut between keyframes) do not count.

Pictures are turned and mirrored as the file's display matrix says. Deep colour comes as 8 bits; HDR is not tone-mapped.

Of several video streams the one is read that FFmpeg takes for the best, and never a cover picture; its number may be
given instead, as ``ffprobe`` prints it.

The decoder runs on one thread: data sets read many files at once, each in its own process.
"""

from __future__ import annotations

import bisect
import contextlib
import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from hwbench.data.media_faults import MediaFault, check_media, naming
from hwbench.data.orientation import display_matrix, upright
from hwbench.data.packets import (
    Packet,
    claimed_packets,
    has_usable_times,
    num_chunks,
    packets_from_keyframe,
    packets_of,
)
from hwbench.errors import InvalidValue, VideoError

Frames = npt.NDArray[np.uint8]

# Codecs whose packets say whether other frames refer to them, to the letter: ``nal_ref_idc`` of H.264, B-frames of
# MPEG-4 part 2. (What H.265 calls a non-reference picture of a sub-layer may be referred to from the layers above.)
_TELL_REFERENCES = frozenset({"h264", "mpeg4"})

# ``AV_FIELD_PROGRESSIVE`` of FFmpeg; 0 is unknown, and the others are orders of two fields.
_PROGRESSIVE = 1
# Of H.265 the headers tell no order of fields: FFmpeg takes those of two fields for progressive (MP4) or unknown.
_TELL_NO_FIELDS = frozenset({"hevc"})

# A Matroska file tells its length in the header; when its packets end this much earlier, its tail is missing.
_SHORTFALL_RATIO = 0.05


@dataclass(frozen=True)
class VideoInfo:
    """What a video stream holds, taken from its packets, not from the claims of the header.

    ``pts`` are the presentation times of the frames in units of ``time_base`` seconds, rising; ``keyframes`` are
    indices of frames at which decoding can start. ``duration`` (in the same units) runs from the first frame to the end
    of the last, whatever time the stream starts at. ``width`` and ``height`` are those of the stored frames, before
    they are turned upright. ``counted``: time stamps could not be used, ``pts`` are frame numbers; those of
    the file, by which its other streams count, are ``offset_s`` seconds later. ``stream`` is the number of the stream
    in its file.

    ``container`` is what FFmpeg calls the format of the file, empty where there is none. ``interlaced``: frames are of
    two fields, as the header says or, where it does not, the first frame.
    """

    width: int
    height: int
    codec: str
    time_base: Fraction
    pts: npt.NDArray[np.int64]
    keyframes: tuple[int, ...]
    duration: int
    counted: bool = False
    stream: int = 0
    container: str = ""
    interlaced: bool = False
    offset_s: Fraction = Fraction(0)

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return len(self.pts)

    @property
    def origin_s(self) -> Fraction:
        """The time stamp of the first frame, in seconds."""
        return int(self.pts[0]) * self.time_base + self.offset_s

    @property
    def duration_s(self) -> float:
        """Seconds from the first frame to the end of the last."""
        return float(self.exact_duration_s)

    @property
    def exact_duration_s(self) -> Fraction:
        """The length in seconds as a fraction."""
        return self.duration * self.time_base

    @property
    def fps(self) -> float:
        """Frames per second on average."""
        return self.num_frames / self.duration_s

    @property
    def exact_fps(self) -> Fraction:
        """Frames per second on average, as a fraction."""
        return self.num_frames / self.exact_duration_s

    def between(self, start_s: Fraction | None, end_s: Fraction | None) -> tuple[int, VideoInfo]:
        """The frames that begin in a part of the video, as a video of its own.

        Args:
            start_s: Beginning in seconds from the first frame, within the part; None: that of the video.
            end_s: End, no more within the part; None: that of the video.

        Returns:
            Index of its first frame, and what the part holds; where no frame begins in the part, it is the one on
            screen at its beginning.
        """
        origin, end = int(self.pts[0]), int(self.pts[0]) + self.duration
        low = 0 if start_s is None else _at_or_after(self.pts, origin + start_s / self.time_base)
        high = self.num_frames if end_s is None else _at_or_after(self.pts, origin + end_s / self.time_base)
        low = min(low, self.num_frames - 1)
        if high <= low:
            begins = math.floor(origin + (start_s or Fraction(0)) / self.time_base)
            low = max(0, int(np.searchsorted(self.pts, begins, side="right")) - 1)
            high = low + 1
        after = end if high == self.num_frames else int(self.pts[high])
        keys = tuple(key - low for key in self.keyframes if low <= key < high)
        part = replace(self, pts=self.pts[low:high], keyframes=keys, duration=after - int(self.pts[low]))
        return low, part


def probe(path: Path | str, stream: int | None = None) -> VideoInfo:
    """What a video stream of a file holds. Reads all packets; where the time stamps are usable, decodes the first frame
    at most.

    Args:
        path: The file.
        stream: Number of the stream in the file; None: the best one.

    Raises:
        VideoError: The file is missing, empty, truncated, not a video, or holds no frame or no such video stream.
    """
    with VideoFile(path, stream=stream) as video:
        return video.info


def read_frames(path: Path | str, indices: Sequence[int], stream: int | None = None) -> Frames:
    """Frames of a video by index, in the order asked for, repeats allowed: uint8 (T, H, W, 3), RGB.

    ``stream`` is the number of the stream in the file; None: the best one.

    Raises:
        VideoError: As ``probe``; or a frame cannot be decoded.
        InvalidValue: No index, or one outside the video.
    """
    with VideoFile(path, stream=stream) as video:
        return video.read(indices)


def check_indices(name: str, indices: Sequence[int], num_frames: int) -> None:
    """Raises InvalidValue, which names the video, for no index and for one outside of it."""
    if not indices or min(indices) < 0 or max(indices) >= num_frames:
        raise InvalidValue(f"{name}: expected frame indices from 0 to {num_frames - 1}, got {list(indices)}")


class VideoFile:
    """An open video.

    Args:
        path: The file.
        info: Of who has probed the same file before, for the stream that was probed: opening is cheaper then.
        stream: Number of the stream in the file; None: that of ``info``, or else the best one.
        content: The bytes of a video that is no file of its own, open for reading; ``path`` is then its name in
            messages. Closed with the video.

    Raises:
        VideoError: As ``probe``; every failure of a method is one too, and names the file and the cause in one line.
    """

    def __init__(
        self,
        path: Path | str,
        info: VideoInfo | None = None,
        *,
        stream: int | None = None,
        content: BinaryIO | None = None,
    ) -> None:
        self.path = Path(path)
        self._content = content
        self._number = info.stream if stream is None and info is not None else stream
        self._close = contextlib.ExitStack()
        self._reformatter = VideoReformatter()
        try:
            with naming(self.path):
                check_media(self.path if content is None else content)
                self._open()
                self.info = info or self._probe()
        except VideoError:
            self.close()
            raise

    def read(self, indices: Sequence[int]) -> Frames:
        """Frames by index in the order asked for, repeats allowed: uint8 (T, H, W, 3), RGB, turned upright."""
        check_indices(str(self.path), indices, self.info.num_frames)
        wanted = sorted(set(indices))
        with naming(self.path):
            found = self._collect(wanted)
        lost = [index for index in wanted if index not in found]
        if lost:
            raise VideoError(f"{self.path}: frame {lost[0]} of {self.info.num_frames} cannot be decoded")
        return np.stack([found[index] for index in indices])

    def close(self) -> None:
        """Closes the file."""
        self._close.close()
        if self._content is not None:
            self._content.close()

    def __enter__(self) -> VideoFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        if self._content is not None:
            self._content.seek(0)
        self._container = self._close.enter_context(av.open(self._content or str(self.path)))
        self._stream = video_stream(self._container, self._number)
        self._number = self._stream.index
        self._stream.codec_context.thread_count = 1
        self._at_start = True

    def _probe(self) -> VideoInfo:
        stream, container = self._stream, self._container
        codec = _codec_name(stream)
        packets = [Packet.of(p, codec) for p in self._packets_from_start() if p.size]
        claimed, chunks = claimed_packets(container, stream), num_chunks(container, packets)
        if packets and (packets[-1].corrupt or chunks < claimed):
            raise MediaFault(f"truncated: {max(len(packets), claimed)} frames announced, {len(packets)} in the file")
        share = Fraction(len(packets), max(1, chunks))
        packets = [p for p in packets if p.shown and not p.discard]
        if not packets:
            raise MediaFault("no frames")
        usable = has_usable_times(container, packets)
        info = self._info_by_pts(packets) if usable else self._info_by_counting(packets, share)
        self._check_length(info)
        return info

    def _info_by_pts(self, packets: Sequence[Packet]) -> VideoInfo:
        ordered = sorted(packets, key=lambda p: p.pts)
        if not ordered[0].key:
            first = self._first_time()
            ordered = [p for p in ordered if p.pts >= first]
        pts = np.array([p.pts for p in ordered], dtype=np.int64)
        last = ordered[-1].duration or _typical_step(pts, self._stream)
        keys = tuple(i for i, p in enumerate(ordered) if p.key)
        return self._info(pts, keys, int(pts[-1] - pts[0]) + last, self._stream.time_base)

    def _first_time(self) -> int:
        """Time stamp of the first frame that the decoder gives: what lies before refers to frames that are not there.

        Where it gives none, or one without a time stamp, nothing lies before.
        """
        frame = self._first_frame()
        return -(2**63) if frame is None or frame.pts is None else int(frame.pts)

    def _first_frame(self) -> Any:
        """What the decoder gives first; None where it gives nothing."""
        return next((frame for packet in self._packets_from_start() for frame in packet.decode()), None)

    def _is_interlaced(self) -> bool:
        order = int(self._stream.codec_context.field_order)
        if order == _PROGRESSIVE and _codec_name(self._stream) not in _TELL_NO_FIELDS:
            return False
        if order > _PROGRESSIVE:
            return True
        with contextlib.suppress(av.FFmpegError):  # frames behind a damaged one may be read
            return bool(getattr(self._first_frame(), "interlaced_frame", False))
        return False

    def _info_by_counting(self, packets: Sequence[Packet], share: Fraction) -> VideoInfo:
        """Frames that come evenly: ``share`` of the file's chunks, at whose rate its header is, hold one."""
        rate = (self._stream.average_rate or self._stream.guessed_rate or Fraction(25)) * share
        frames = self._frames(self._packets_from_start())
        first = next(frames, None)
        if first is None:
            raise MediaFault("no frame can be decoded")
        # AVI has the times of decoding alone, and the first frame is shown when the first packet is decoded.
        begins = max(0, packets[0].dts) if self._container.format.name == "avi" else first.pts
        if begins is None:
            begins = self._stream.start_time or 0
        count = 1 + sum(1 for _ in frames)
        info = self._info(np.arange(count), (0,), count, 1 / Fraction(rate), counted=True)
        return replace(info, offset_s=begins * self._stream.time_base)

    def _info(
        self,
        pts: npt.NDArray[np.int64],
        keys: tuple[int, ...],
        duration: int,
        time_base: Fraction,
        *,
        counted: bool = False,
    ) -> VideoInfo:
        context = self._stream.codec_context
        if not context.width or not context.height:
            raise MediaFault("the size of its frames is unknown")
        return VideoInfo(
            context.width,
            context.height,
            _codec_name(self._stream),
            time_base,
            pts,
            keys,
            duration,
            counted,
            self._stream.index,
            self._container.format.name,
            self._is_interlaced(),
        )

    def _check_length(self, info: VideoInfo) -> None:
        container = self._container
        if "matroska" not in container.format.name or not container.duration or len(container.streams) > 1:
            return
        expected = container.duration / av.time_base
        # Some writers count from 0, others from the first frame.
        end = info.duration_s + max(0.0, float(info.origin_s))
        if expected - end > max(_SHORTFALL_RATIO * expected, 2 / info.fps):
            raise MediaFault(f"truncated: {expected:.2f} s announced, {info.duration_s:.2f} s in the file")

    def _collect(self, wanted: Sequence[int]) -> dict[int, Frames]:
        """Decodes forward through the wanted indices (rising); frames that fail to turn up are left out."""
        if self.info.counted:
            return self._collect_counting(wanted)
        index_of = {int(pts): index for index, pts in enumerate(self.info.pts)}
        found: dict[int, Frames] = {}
        at = -1  # index of the frame decoded last
        frames: Iterator[Any] = iter(())
        for index in wanted:
            key = self._key_before(index)
            if at < 0 or key > at + 1:
                frames = self._decode_from(key, {int(self.info.pts[i]) for i in wanted})
            for frame in frames:
                at = index_of.get(frame.pts, at)
                if at >= index:
                    break
            if at == index:
                found[index] = self._convert(frame)
        missing = [index for index in wanted if index not in found]
        return found | self._collect_from_start(missing, index_of) if missing else found

    def _collect_from_start(self, wanted: Sequence[int], index_of: dict[int, int]) -> dict[int, Frames]:
        """The plain way, for files where a seek lands behind its goal: decodes everything."""
        keep = set(wanted)
        found = {}
        for frame in self._decode_from(0):
            index = index_of.get(frame.pts, -1)
            if index in keep:
                found[index] = self._convert(frame)
            if len(found) == len(keep):
                break
        return found

    def _collect_counting(self, wanted: Sequence[int]) -> dict[int, Frames]:
        keep = set(wanted)
        found = {}
        for index, frame in enumerate(self._frames(self._packets_from_start())):
            if index in keep:
                found[index] = self._convert(frame)
            if index >= wanted[-1]:
                break
        return found

    def _decode_from(self, key: int, wanted: Set[int] | None = None) -> Iterator[Any]:
        """Frames from a keyframe on; those that are neither wanted, by time stamp, nor referred to may be left out."""
        if key == 0:
            packets = self._packets_from_start()
        else:
            self._at_start = False
            packets = packets_from_keyframe(self._container, self._stream, int(self.info.pts[key]))
        return self._frames(packets, wanted if self.info.codec in _TELL_REFERENCES else None)

    def _frames(self, packets: Iterator[Any], wanted: Set[int] | None = None) -> Iterator[Any]:
        """What packets hold; see ``_decode_from`` for ``wanted``."""
        context, before = self._stream.codec_context, False
        for packet in packets:
            now = wanted is None or packet.pts is None or packet.pts in wanted
            # Interlaced frames may come as two packets, the second field behind the first.
            context.skip_frame = "DEFAULT" if now or before else "NONREF"
            before = now
            yield from packet.decode()

    def _packets_from_start(self) -> Iterator[Any]:
        """All packets, however often; a file is only opened again where a seek would not do.

        Raw streams know no seek. In Matroska a seek to the start may land behind packets: those before time 0, and
        those of several clusters at one time.
        """
        if not self._at_start:
            self._rewind()
        self._at_start = False
        return packets_of(self._container, self._stream)

    def _rewind(self) -> None:
        with contextlib.suppress(av.FFmpegError):
            if "matroska" not in self._container.format.name:
                # before the first packet, whose decoding time may lie before its presentation time
                self._container.seek(-(2**62), backward=True)
                return
        self._close.close()
        self._open()

    def _key_before(self, index: int) -> int:
        place = bisect.bisect_right(self.info.keyframes, index)
        return self.info.keyframes[place - 1] if place else 0

    def _convert(self, frame: Any) -> Frames:
        # One reformatter for all frames: making its tables costs more than converting a small frame.
        # Its threads would not be there in a process that is forked later, which crashes where it frees them.
        picture = self._reformatter.reformat(
            frame, width=self.info.width, height=self.info.height, format="rgb24", threads=1
        )
        array: Frames = picture.to_ndarray()  # type: ignore[assignment]
        return np.ascontiguousarray(upright(array, display_matrix(frame)))


def _at_or_after(pts: npt.NDArray[np.int64], time: Fraction) -> int:
    """Index of the first frame at or after a time in units of the time base, which need not be a whole number."""
    return int(np.searchsorted(pts, math.ceil(time), side="left"))


def _codec_name(stream: Any) -> str:
    context = stream.codec_context
    name: str = getattr(context.codec, "canonical_name", context.name)
    return name


def video_stream(container: Any, number: int | None) -> Any:
    """The stream of moving pictures with this number, or the best one; covers attached to music do not count."""
    moving = [s for s in container.streams.video if not s.disposition & av.stream.Disposition.attached_pic]
    if not moving:
        kinds = sorted({s.type for s in container.streams})
        raise MediaFault(f"no video stream (found: {', '.join(kinds) or 'nothing'})")
    stream = _best(container, moving) if number is None else next((s for s in moving if s.index == number), None)
    if stream is None:
        known = ", ".join(f"{s.index} ({s.width}x{s.height})" for s in moving)
        raise MediaFault(f"stream {number} is no video stream; its video streams: {known}")
    if stream.codec_context is None:
        raise MediaFault("no decoder for its codec in this PyAV")
    return stream


def _best(container: Any, moving: Sequence[Any]) -> Any:
    """What FFmpeg's ``av_find_best_stream`` takes: the one marked as default, then the one with more frames and bits.

    Where FFmpeg takes a cover for the best, the first of the others counts.
    """
    best = container.streams.best("video")
    return best if best in moving else moving[0]


def _typical_step(pts: npt.NDArray[np.int64], stream: Any) -> int:
    """Length of the last frame where the file does not say: the median distance of frames."""
    if len(pts) > 1:
        return int(np.median(np.diff(pts)))
    rate = stream.average_rate or stream.guessed_rate or Fraction(25)
    return max(1, round(float(1 / (rate * stream.time_base))))
