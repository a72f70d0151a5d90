"""All frames of a part of a video in order, each decoded once and not converted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import av

from hwbench.data.decoding import VideoInfo
from hwbench.data.media import FileSource, VideoSource
from hwbench.data.packets import packets_from_keyframe, packets_of
from hwbench.errors import VideoError

# Frames of a source that is no file are asked for in so many bytes at a time.
_CHUNK_BYTES = 64 * 2**20
# Where time stamps disagree with the order of decoding, they do by no more frames than a decoder keeps: 16 of H.264.
_MOST_WAITING = 16


def stream_frames(source: VideoSource, info: VideoInfo, indices: range) -> Iterator[tuple[int, Any]]:
    """Frames by index with their ``av.VideoFrame``: of a file as they are stored, of any other source upright, in RGB.

    Args:
        source: The video.
        info: What opening it gave.
        indices: Frames that follow each other.

    Raises:
        VideoError: A frame cannot be decoded; frames before it were given.
    """
    if isinstance(source, FileSource):
        yield from _of_file(source, info, indices)
        return
    step = max(1, _CHUNK_BYTES // (info.width * info.height * 3))
    with source.open(info) as video:
        for start in range(indices.start, indices.stop, step):
            chunk = range(start, min(start + step, indices.stop))
            for index, array in zip(chunk, video.read(chunk), strict=True):
                yield index, av.VideoFrame.from_ndarray(array, format="rgb24")


def _of_file(source: FileSource, info: VideoInfo, indices: range) -> Iterator[tuple[int, Any]]:
    wanted = indices.start
    keys = [key for key in info.keyframes if key <= wanted]
    try:
        # A seek may land behind its goal: one keyframe back was enough in MPEG-TS, three in MPEG-PS.
        for start in dict.fromkeys((*(keys[-back] for back in (1, 2, 4) if back <= len(keys)), 0)):
            for index, frame in _following(source, info, start, range(wanted, indices.stop)):
                yield index, frame
                wanted = index + 1
            if wanted == indices.stop:
                return
    except (av.FFmpegError, OSError, ValueError, RuntimeError, EOFError, MemoryError) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise VideoError(f"{source.path}: frame {wanted} of {info.num_frames}: {' '.join(text.split())}") from error
    raise VideoError(f"{source.path}: frame {wanted} of {info.num_frames} cannot be decoded")


def _following(source: FileSource, info: VideoInfo, key: int, indices: range) -> Iterator[tuple[int, Any]]:
    """Frames of ``indices`` up to the first that does not turn up; decoding begins at the keyframe ``key``.

    Frames that the decoder gives too early, by a few, wait for those before them.
    """
    wanted = indices.start
    waiting: dict[int, Any] = {}
    with av.open(str(source.path)) as container:
        stream: Any = container.streams[info.stream]
        stream.codec_context.thread_count = 1
        for index, frame in _numbered(container, stream, info, key):
            if wanted <= index < indices.stop:
                waiting[index] = frame
            while wanted in waiting:
                yield wanted, waiting.pop(wanted)
                wanted += 1
            if wanted >= indices.stop or len(waiting) > _MOST_WAITING:
                return


def _numbered(container: Any, stream: Any, info: VideoInfo, key: int) -> Iterator[tuple[int, Any]]:
    """Decoded frames from the keyframe ``key`` on; those that the packets do not announce are left out."""
    if info.counted:
        yield from enumerate(_frames(packets_of(container, stream)))
        return
    index_of = {int(pts): index for index, pts in enumerate(info.pts)}
    packets = packets_from_keyframe(container, stream, int(info.pts[key])) if key else packets_of(container, stream)
    for frame in _frames(packets):
        if frame.pts in index_of:
            yield index_of[frame.pts], frame


def _frames(packets: Iterator[Any]) -> Iterator[Any]:
    for packet in packets:
        yield from packet.decode()
