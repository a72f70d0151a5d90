"""torchcodec, which decodes with the FFmpeg that is installed on the system; an extra.

PyAV reads the files of which torchcodec gives other frames or none: codecs that leave roundings to the decoder, as
MPEG-4 part 2, which another version of FFmpeg rounds otherwise; raw streams and recordings that were cut between
keyframes, which are numbered otherwise; containers in which a seek may land behind its goal, as MPEG-TS and MPEG-PS;
pictures that are to be turned or mirrored; interlaced ones, whose fields the FFmpeg of PyAV converts apart; odd sizes,
and colours of more than 8 bits, which another version of FFmpeg rounds otherwise
(``experiments/016-input-pipeline/equal_frames.py``).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from dataclasses import dataclass
from importlib.metadata import version
from types import TracebackType
from typing import Any

from hwbench.data.decoders.base import decoders
from hwbench.data.decoding import Frames, VideoInfo, check_indices
from hwbench.data.media import FileSource, OpenVideo, VideoSource
from hwbench.errors import MissingDependency

_MODULE = "torchcodec"
# Raised whenever other files are left to PyAV: what caches keep of before may be other frames.
_REVISION = 2
# Those whose standards leave no rounding to the decoder, and that were found to be the same.
_EXACT_CODECS = frozenset({"h264", "hevc", "vp8", "vp9", "av1", "theora", "ffv1"})
# Those of which the frames behind a seek were found to be the same, by FFmpeg's names.
_EQUAL_CONTAINERS = frozenset({"mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "avi", "flv", "ogg"})
# Those of which the conversion to RGB was found to be the same.
_EQUAL_FORMATS = frozenset({"yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p"})


@decoders.register("torchcodec")
@dataclass(frozen=True)
class TorchCodec:
    """Raises MissingDependency where torchcodec is not installed, or finds no FFmpeg."""

    def __post_init__(self) -> None:
        _video_decoder()

    @property
    def identity(self) -> str:
        return f"torchcodec {version(_MODULE)} {_REVISION}"

    def open(self, source: VideoSource, info: VideoInfo | None = None) -> OpenVideo:
        if not isinstance(source, FileSource):
            return source.open(info)
        if info is None:
            with source.open() as video:
                info = video.info
        return TorchCodecVideo(source, info) if _may_be_equal(info) else source.open(info)


class TorchCodecVideo:
    """A video file that torchcodec opens when frames are asked for; ``info`` is what PyAV says of it."""

    def __init__(self, source: FileSource, info: VideoInfo) -> None:
        self.info = info
        self._source = source

    def read(self, indices: tuple[int, ...] | range) -> Frames:
        """Frames by index in the order asked for, repeats allowed: uint8 (T, H, W, 3), RGB, turned upright."""
        check_indices(self._source.name, indices, self.info.num_frames)
        with contextlib.suppress(RuntimeError, ValueError, IndexError):
            decoder = _video_decoder()(
                str(self._source.path),
                stream_index=self.info.stream,
                dimension_order="NHWC",
                num_ffmpeg_threads=1,
            )
            if self._is_equal(decoder):
                frames: Frames = decoder.get_frames_at(list(indices)).data.numpy()
                return frames
        with self._source.open(self.info) as video:
            return video.read(indices)

    def _is_equal(self, decoder: Any) -> bool:
        """Whether torchcodec numbers and converts the frames of this file as PyAV does."""
        about = decoder.metadata
        # Also a rotation by 0: it stands for a mirrored picture.
        turned = about.rotation is not None
        return len(decoder) == self.info.num_frames and not turned and about.pixel_format in _EQUAL_FORMATS

    def __enter__(self) -> TorchCodecVideo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing stays open between reads."""


def _may_be_equal(info: VideoInfo) -> bool:
    """Whether torchcodec may give the same frames of a file, as far as PyAV tells."""
    uneven = info.width % 2 or info.height % 2
    exact = info.codec in _EXACT_CODECS and info.container in _EQUAL_CONTAINERS
    cut = info.keyframes[:1] != (0,)  # an edit list hides the keyframe before the first frame
    return exact and not (info.counted or info.interlaced or uneven or cut)


def is_installed() -> bool:
    """Whether torchcodec is installed; it may still not load."""
    return importlib.util.find_spec(_MODULE) is not None


def _video_decoder() -> Any:
    """The class ``VideoDecoder`` of torchcodec."""
    if not is_installed():
        raise MissingDependency(
            "decoder 'torchcodec' needs torchcodec, which is not installed; "
            "install it with: python -m pip install 'hwbench[torchcodec]'"
        )
    try:
        return importlib.import_module(f"{_MODULE}.decoders").VideoDecoder
    except (ImportError, OSError, RuntimeError) as error:
        cause = " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split())
        raise MissingDependency(
            f"decoder 'torchcodec' does not load ({cause}); it needs a torchcodec made for this torch, and the shared "
            "libraries of FFmpeg: apt-get install ffmpeg"
        ) from error
