"""A decoder of another package: what it raises is told with its name and the video, and so are frames that are none."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from hwbench.data.decoders.base import Decoder
from hwbench.data.decoding import Frames, VideoInfo
from hwbench.data.media import FileSource, OpenVideo, VideoSource
from hwbench.errors import HwbenchError
from hwbench.printable import shown
from hwbench.registry import blaming


@dataclass(frozen=True)
class NamedDecoder:
    """A decoder, and what messages call it; a value that travels to worker processes as the decoder itself does.

    Attributes:
        decoder: Reads.
        title: ``decoder 'NAME' of the package P``.
    """

    decoder: Decoder
    title: str

    @property
    def identity(self) -> str:
        with blaming(self.title):
            return self.decoder.identity

    def open(self, source: VideoSource, info: VideoInfo | None = None) -> OpenVideo:
        with blaming(self.title, on=source.name):
            video = self.decoder.open(source, info)
        return _NamedVideo(video, self.title, source.name) if isinstance(source, FileSource) else video


class _NamedVideo:
    """A video file that such a decoder has opened."""

    info: VideoInfo

    def __init__(self, video: OpenVideo, title: str, name: str) -> None:
        self._video, self._title, self._name = video, title, name
        self._close = contextlib.ExitStack()

    def read(self, indices: tuple[int, ...] | range) -> Frames:
        """Frames by index in the order asked for, repeats allowed: uint8 (T, H, W, 3), RGB.

        H and W are the height and width of ``info``, or the other way round in a video that is stored lying down.
        """
        with blaming(self._title, on=self._name):
            frames = self._video.read(indices)
            size = self._video.info.height, self._video.info.width
        if not _are_frames(frames, len(indices)):
            raise self._refused(f"{len(indices)} uint8 frames (T, H, W, 3)", frames)
        if frames.shape[1:3] not in (size, size[::-1]):
            raise self._refused(f"frames of {size[0]} x {size[1]} pixels (height x width), upright,", frames)
        return frames

    def _refused(self, expected: str, frames: object) -> HwbenchError:
        given = f"{frames.dtype} {frames.shape}" if isinstance(frames, np.ndarray) else shown(frames)
        return HwbenchError(f"{self._title}: expected {expected} of {self._name}, got {given}")

    def __enter__(self) -> _NamedVideo:
        with blaming(self._title, on=self._name):
            self._video = self._close.enter_context(self._video)
            self.info = self._video.info
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with blaming(self._title, on=self._name):
            self._close.close()


def _are_frames(frames: object, count: int) -> bool:
    """Whether it is an array of so many frames in RGB: uint8 (T, H, W, 3)."""
    return (
        isinstance(frames, np.ndarray)
        and frames.dtype == np.uint8
        and frames.ndim == 4
        and (len(frames), frames.shape[3]) == (count, 3)
    )
