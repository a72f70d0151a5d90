"""PyAV, which brings FFmpeg with it: ``hwbench.data.decoding``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from hwbench.data.decoders.base import decoders
from hwbench.data.decoding import VideoInfo
from hwbench.data.media import OpenVideo, VideoSource


@decoders.register("pyav")
@dataclass(frozen=True)
class PyAV:
    """Every source opens itself."""

    @property
    def identity(self) -> str:
        return f"pyav {version('av')}"

    def open(self, source: VideoSource, info: VideoInfo | None = None) -> OpenVideo:
        return source.open(info)


PYAV = PyAV()
