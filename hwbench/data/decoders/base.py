"""The contract of a decoder: the frames of a video file, exactly those that are asked for.

To add one: a file here whose class is decorated with ``@decoders.register(NAME)``, and its line in ``__init__.py``.
"""

from __future__ import annotations

from typing import Protocol

from hwbench.data.decoding import VideoInfo
from hwbench.data.media import OpenVideo, VideoSource
from hwbench.registry import Registry, class_with


class Decoder(Protocol):
    """A way to read videos: a small value that travels to worker processes. Its class takes no arguments.

    Which frames a video has, and how they are numbered, ``hwbench.data.decoding`` decides for all decoders: a clip is
    chosen by it, and a run that goes on with another decoder sees the same frames.

    Raises:
        MissingDependency: From the constructor: what it needs is not installed, or does not load.
    """

    @property
    def identity(self) -> str:
        """Name and version: text that is another one where frames may come out otherwise."""
        ...

    def open(self, source: VideoSource, info: VideoInfo | None = None) -> OpenVideo:
        """Opens a video; a source that is no file (``FileSource``) opens itself.

        Args:
            source: The video.
            info: Of who has opened the same video before; opening is cheaper then.

        Raises:
            VideoError: The video cannot be read.
        """
        ...


decoders: Registry[type[Decoder]] = Registry("decoder", entry_points="hwbench.decoders", expects=class_with("open"))
