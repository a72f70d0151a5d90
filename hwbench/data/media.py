"""Where the frames of one video come from: a file, one stream of it, or what else a reader of data sets lists.

A source is a small value that travels to worker processes; it is opened there. What it opens knows its frames and their
times (``VideoInfo``) and reads any of them by index.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, runtime_checkable

from hwbench.data.decoding import Frames, VideoFile, VideoInfo


class OpenVideo(Protocol):
    """A video that is open, closed at the end of a ``with`` block. Its errors are VideoErrors that name the video."""

    info: VideoInfo

    def read(self, indices: tuple[int, ...] | range) -> Frames:
        """Frames by index in the order asked for, repeats allowed: uint8 (T, H, W, 3), RGB."""
        ...

    def __enter__(self) -> OpenVideo: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class VideoSource(Protocol):
    """One video of a data set; frozen, hashable, and of a size that suits a million of them."""

    @property
    def name(self) -> str:
        """What messages call the video: a path, with what tells the video from others in the same file."""
        ...

    def identity(self, root: Path) -> str:
        """Text that tells this video from the others of a data set below ``root``; the same wherever the set lies."""
        ...

    def open(self, info: VideoInfo | None = None) -> OpenVideo:
        """Opens the video.

        Args:
            info: Of who has opened the same video before; opening is cheaper then.

        Raises:
            VideoError: The video cannot be read.
        """
        ...


@runtime_checkable
class MediaSource(Protocol):
    """A video that is a media file, with whatever else than pictures is in it: some ``VideoSource`` are one."""

    @property
    def name(self) -> str: ...

    def media(self) -> Path | BinaryIO:
        """The file, or its bytes, open for reading; whoever asks closes them.

        Raises:
            VideoError: There are no such bytes.
        """
        ...


@dataclass(frozen=True, slots=True)
class FileSource:
    """A video file; ``stream`` is the number of its video stream as ``ffprobe`` prints it, None: the best one."""

    path: Path
    stream: int | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def identity(self, root: Path) -> str:
        return relative_name(self.path, root) + ("" if self.stream is None else f"\tstream={self.stream}")

    def media(self) -> Path:
        return self.path

    def open(self, info: VideoInfo | None = None) -> OpenVideo:
        return VideoFile(self.path, info, stream=self.stream)


def relative_name(path: Path, root: Path) -> str:
    """The path below ``root``, with slashes; as it is where it lies elsewhere."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
