"""One video made small and quick to seek in: a video file with many keyframes, or a folder of JPEG files."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from hwbench.data.decoding import Frames, VideoInfo, video_stream
from hwbench.data.file_facts import is_variable
from hwbench.data.jpeg import JpegEncoder
from hwbench.data.labelled import LabelledPart
from hwbench.data.media import FileSource, VideoSource
from hwbench.data.media_faults import naming
from hwbench.data.orientation import UPRIGHT, display_matrix, upright
from hwbench.data.readers import Part
from hwbench.data.streaming import stream_frames
from hwbench.errors import MissingDependency, UsageError
from hwbench.workspace import temporary_beside, writing

Form = Literal["videos", "frames"]
# As hwbench.data.encoding has it: first what is free of the GPL. Both give the same file for the same frames.
ENCODERS = ("mpeg4", "libx264")
AUTO_ENCODER = "auto"
FRAME_NAME = "img_{:05d}.jpg"
_COLOUR = "yuv420p"
# Numbers of av.video.reformatter.ColorRange: black is 16 and white 235 (MPEG), or black is 0 and white 255 (JPEG). What
# is written says nothing of its range, which means the former.
_LIMITED_RANGE, _FULL_RANGE = 1, 2
# Numbers of ITU-T H.273: the colour matrix of BT.709, BT.470, BT.601, SMPTE 240 and BT.2020, with the primaries and the
# transfer that belong to it. An MP4 file names the matrix only together with them.
_MATRICES = {1: (1, 1), 5: (5, 6), 6: (6, 6), 7: (7, 7), 9: (9, 14)}
# Raised whenever the same settings make other files.
_VERSION = 1
# Raised where some sources gave wrong files, which alone are made again: ``is_sound`` tells them.
REVISION = 3
# The revision before wrote whole frames a second where the exact rate had too many ticks for an encoder; the one before
# that had wrong colours and sizes.
_WHOLE_RATES = 2
# The header of MPEG-4 part 2 holds time in at most so many ticks a second; other forms in as many as FFmpeg counts.
_MOST_TICKS, _FFMPEG_TICKS = 65535, 2**31 - 1
# Ticks a second of a video whose frames are unevenly apart.
_UNEVEN_TICKS = 1000


@dataclass(frozen=True)
class PrepareSettings:
    """How videos are made small.

    Attributes:
        short_side: Pixels of the shorter side; smaller videos keep theirs.
        gop: Frames from one keyframe to the next.
        fps: Frames a second; None: those of the original, also where they are unevenly apart.
        quality: Quantiser of MPEG-4 and JPEG, 2 (close to lossless) to 31; libx264 gets the CRF 14 + 2 * quality.
        encoder: One of ``ENCODERS``.
        form: Video files or folders of JPEG files.
    """

    short_side: int = 256
    gop: int = 30
    fps: float | None = None
    quality: int = 3
    encoder: str = "mpeg4"
    form: Form = "videos"

    @property
    def digest(self) -> str:
        """Tells whether a file was made with these settings."""
        return hashlib.sha256(json.dumps([_VERSION, asdict(self)]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PrepareTask:
    """A video, or the part of it that a label is about, and the file or folder that is made of it.

    ``before_change`` is called when that is complete, before it takes the place of ``target``; processes can send it.
    ``revision`` is the one that made what is there.
    """

    source: VideoSource
    part: Part | None
    target: Path
    settings: PrepareSettings
    before_change: Callable[[], None] | None = None
    revision: int = REVISION


@dataclass(frozen=True)
class PreparedVideo:
    """What was made of a video: ``bytes`` on the disk, ``frames`` and their number a second."""

    bytes: int
    frames: int
    fps: float
    duration_s: float


@dataclass(frozen=True)
class _FramePlan:
    """Which frames become which: indices of the original in rising order, and times in ticks of ``time_base``."""

    indices: tuple[int, ...]
    ticks: tuple[int, ...]
    last_ticks: int
    rate: Fraction


def choose_encoder(name: str = AUTO_ENCODER) -> str:
    """The encoder of that name; ``auto``: the first of ``ENCODERS`` that PyAV has.

    Raises:
        UsageError: PyAV lacks it.
        MissingDependency: PyAV has none of them.
    """
    available = [one for one in ENCODERS if one in av.codecs_available]
    if not available:
        raise MissingDependency(
            f"writing videos needs one of the encoders {', '.join(ENCODERS)}, which this PyAV lacks; "
            "install the wheel from PyPI: pip install --force-reinstall --only-binary :all: av"
        )
    if name != AUTO_ENCODER and name not in available:
        raise UsageError(f"--encoder: this PyAV has no {name}; it has {', '.join(available)}")
    return available[0] if name == AUTO_ENCODER else name


def prepare_video(task: PrepareTask) -> PreparedVideo:
    """Makes the file or folder of one video; it has its name when it is complete.

    Raises:
        VideoError: The video cannot be read.
        WorkspaceError: No rights or no room.
    """
    with task.source.open() as video:
        info = video.info
    part = LabelledPart.of(info, task.part, task.source.name)
    plan = _plan(part.info, part.first, task.settings)
    frames = _planned(task.source, info, plan)
    first = next(frames)  # which comes upright out of an archive, whatever the size in ``info``
    size = small_size((first.height, first.width), task.settings.short_side)
    temporary = temporary_beside(task.target)
    with writing(task.target):
        task.target.parent.mkdir(parents=True, exist_ok=True)
        try:
            write = _write_frames if task.settings.form == "frames" else _write_video
            num_bytes = write(temporary, itertools.chain([first], frames), size, plan, task.settings)
            if task.before_change is not None:
                task.before_change()
            if task.target.is_dir():
                shutil.rmtree(task.target)
            temporary.replace(task.target)
        finally:
            _remove(temporary)
    ends = Fraction(plan.ticks[-1] + plan.last_ticks) / plan.rate
    fps, count = float(len(plan.indices) / ends), len(plan.indices)
    return PreparedVideo(num_bytes, count, round(fps, 4), round(float(ends), 6))


def is_sound(task: PrepareTask) -> bool:
    """Whether an earlier revision made of a video what this one makes.

    The first revision wrote the values of full range under the name of limited range, and squashed what was turned
    upright out of an archive. The second rounded frames a second such as 120000/1001 to whole ones.

    Raises:
        VideoError: The video cannot be read.
    """
    return _has_its_rate(task) and (task.revision >= _WHOLE_RATES or _has_its_colours(task))


def may_be_wrong(revision: int, fps: float) -> bool:
    """Whether ``is_sound`` is to be asked of what a revision made, of so many frames a second; 0: of several videos."""
    rounded = fps == int(fps) and not 0 < fps < _MOST_TICKS // 1001
    return revision < _WHOLE_RATES or (revision < REVISION and rounded)


def _has_its_rate(task: PrepareTask) -> bool:
    """Whether the second revision wrote the exact frames a second."""
    if task.settings.fps is not None:
        return True
    with task.source.open() as video:
        info = LabelledPart.of(video.info, task.part, task.source.name).info
    return is_variable(info) or _rate(info).numerator <= _MOST_TICKS


def _has_its_colours(task: PrepareTask) -> bool:
    """Whether the first revision wrote the right colours and size."""
    if not isinstance(task.source, FileSource):
        with task.source.open() as video:
            return video.read((0,)).shape[1:3] == (video.info.height, video.info.width)
    if task.settings.form == "frames":
        return True
    with naming(task.source.path), av.open(str(task.source.path)) as container:
        context = video_stream(container, task.source.stream).codec_context
        return context.color_range != _FULL_RANGE and not str(context.pix_fmt).startswith("yuvj")


def small_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Height and width with the shorter side brought down to ``short_side``; even, as 4:2:0 colour asks, never larger
    than the original but by the one pixel that makes 1 even."""
    scale = min(1.0, short_side / min(size))
    height, width = (max(2, 2 * round(side * scale / 2)) for side in size)
    return height - 2 * (height > max(2, size[0])), width - 2 * (width > max(2, size[1]))


def _plan(info: VideoInfo, first: int, settings: PrepareSettings) -> _FramePlan:
    """Times begin at 0 with the first frame of the part."""
    most_ticks = _MOST_TICKS if settings.form == "videos" and settings.encoder == "mpeg4" else _FFMPEG_TICKS
    if settings.fps is not None:
        rate = _written(Fraction(settings.fps).limit_denominator(1001), most_ticks)
        count = max(1, round(info.duration * info.time_base * rate))
        times = [int(info.pts[0]) + int(i / rate / info.time_base) for i in range(count)]
        shown = np.searchsorted(info.pts, times, side="right") - 1
        return _FramePlan(tuple(first + int(i) for i in shown), tuple(range(count)), 1, rate)
    indices = tuple(range(first, first + info.num_frames))
    if not is_variable(info):
        return _FramePlan(indices, tuple(range(info.num_frames)), 1, _written(_rate(info), most_ticks))
    ticks: list[int] = []
    for pts in info.pts:
        tick = round(int(pts - info.pts[0]) * info.time_base * _UNEVEN_TICKS)
        ticks.append(max(tick, ticks[-1] + 1) if ticks else 0)
    end = round(info.duration * info.time_base * _UNEVEN_TICKS)
    return _FramePlan(indices, tuple(ticks), max(1, end - ticks[-1]), Fraction(_UNEVEN_TICKS))


def _rate(info: VideoInfo) -> Fraction:
    """Frames a second of an even video, as a fraction such as 30000/1001."""
    steps, span = info.num_frames - 1, int(info.pts[-1] - info.pts[0]) * info.time_base
    exact = steps / span if steps else 1 / (info.duration * info.time_base)
    return exact.limit_denominator(1001) or Fraction(1)


def _written(rate: Fraction, most_ticks: int) -> Fraction:
    """The rate whose frames are nearest as far apart, with at most so many ticks a second."""
    return 1 / ((1 / rate).limit_denominator(most_ticks) or Fraction(1, most_ticks))


def _planned(source: VideoSource, info: VideoInfo, plan: _FramePlan) -> Iterator[Any]:
    """The planned frames as they are stored; one that is planned several times comes several times."""
    at = 0
    for index, frame in stream_frames(source, info, range(plan.indices[0], plan.indices[-1] + 1)):
        while at < len(plan.indices) and plan.indices[at] == index:
            yield frame
            at += 1
        if at == len(plan.indices):
            return


def _small_pictures(frames: Iterator[Any], size: tuple[int, int]) -> Iterator[Frames]:
    """Frames as pictures, uint8 (h, w, 3), RGB, upright."""
    reformatter = VideoReformatter()
    for frame in frames:
        whole = _without_fields(frame, reformatter)
        picture = reformatter.reformat(whole, width=size[1], height=size[0], format="rgb24", threads=1)
        pixels: Any = picture.to_ndarray()
        yield np.ascontiguousarray(upright(pixels, display_matrix(frame)))


def _small_yuv(frames: Iterator[Any], size: tuple[int, int]) -> Iterator[Any]:
    """Frames in 4:2:0 colour of limited range, upright. Colours keep their matrix: one conversion less, and nothing is
    rounded."""
    reformatter = VideoReformatter()
    colour: Any = {"format": _COLOUR, "dst_color_range": _LIMITED_RANGE, "threads": 1}
    for frame in frames:
        if display_matrix(frame) != UPRIGHT:
            (picture,) = _small_pictures(iter([frame]), size)
            yield av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(**colour)
        else:
            whole = _without_fields(frame, reformatter)
            yield reformatter.reformat(whole, width=size[1], height=size[0], **colour)


def _without_fields(frame: Any, reformatter: VideoReformatter) -> Any:
    """The frame; an interlaced one as a progressive one, in 4:4:4 colour of limited range and of the same matrix.

    FFmpeg scales the two fields of an interlaced frame apart, which makes combs also where nothing moves. Training on
    the original scales whole frames.
    """
    if not frame.interlaced_frame:
        return frame
    picture = reformatter.reformat(frame, format="yuv444p", dst_color_range=_LIMITED_RANGE, threads=1)
    progressive = av.VideoFrame.from_ndarray(picture.to_ndarray(), format="yuv444p")
    progressive.colorspace, progressive.color_range = picture.colorspace, _LIMITED_RANGE
    return progressive


def _write_video(
    temporary: Path, frames: Iterator[Any], size: tuple[int, int], plan: _FramePlan, settings: PrepareSettings
) -> int:
    small = _small_yuv(frames, size)
    first = next(small)
    durations = iter((*np.diff(plan.ticks).tolist(), plan.last_ticks))
    with av.open(str(temporary), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream: Any = container.add_stream(settings.encoder, rate=plan.rate, options=_encoder_options(settings))
        stream.height, stream.width = first.height, first.width
        stream.pix_fmt, stream.gop_size, stream.time_base = _COLOUR, settings.gop, 1 / plan.rate
        if first.colorspace in _MATRICES:
            context = stream.codec_context
            context.colorspace = first.colorspace
            context.color_primaries, context.color_trc = _MATRICES[first.colorspace]

        def mux(frame: Any) -> None:
            for packet in stream.encode(frame):
                packet.duration = next(durations)  # no frame overtakes another
                container.mux(packet)

        for tick, frame in zip(plan.ticks, itertools.chain([first], small), strict=True):
            frame.pts, frame.time_base = tick, 1 / plan.rate
            frame.pict_type = 0  # the encoder chooses the keyframes, not the original
            mux(frame)
        mux(None)
    return temporary.stat().st_size


def _write_frames(
    temporary: Path, frames: Iterator[Any], size: tuple[int, int], plan: _FramePlan, settings: PrepareSettings
) -> int:
    temporary.mkdir()
    encoder, num_bytes = None, 0
    for number, picture in enumerate(_small_pictures(frames, size), start=1):
        encoder = encoder or JpegEncoder(*picture.shape[:2], quantiser=settings.quality)
        data = encoder.encode(picture)
        (temporary / FRAME_NAME.format(number)).write_bytes(data)
        num_bytes += len(data)
    return num_bytes


def _encoder_options(settings: PrepareSettings) -> Mapping[str, str]:
    if settings.encoder == "libx264":
        return {"crf": str(14 + 2 * settings.quality), "preset": "medium", "threads": "1", "bf": "0"}
    # One quantiser for all frames; the integer transforms give the same bits on every processor.
    quantiser = {"qmin": str(settings.quality), "qmax": str(settings.quality)}
    return {**quantiser, "flags": "+bitexact", "dct": "int", "idct": "simple", "threads": "1"}


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
