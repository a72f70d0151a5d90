"""A video that is opened when it is needed, once at most."""

from __future__ import annotations

import contextlib
from types import TracebackType

from hwbench.data.decoders import Decoder
from hwbench.data.decoding import VideoInfo
from hwbench.data.media import OpenVideo, VideoSource


class LazyVideo:
    """What somebody else's knowledge of a video, or what is kept of it, may make superfluous to open.

    Args:
        decoder: Opens the video.
        source: The video.
        info: What it holds, of who has opened it before; None: it is opened now.
    """

    def __init__(self, decoder: Decoder, source: VideoSource, info: VideoInfo | None = None) -> None:
        self._decoder, self.source = decoder, source
        self._close = contextlib.ExitStack()
        self._video: OpenVideo | None = None
        self.info = info or self._opened(None).info

    def opened(self) -> OpenVideo:
        """The video, open until the end of the ``with`` block.

        Raises:
            VideoError: It cannot be read.
        """
        return self._opened(self.info)

    def _opened(self, info: VideoInfo | None) -> OpenVideo:
        if self._video is None:
            self._video = self._close.enter_context(self._decoder.open(self.source, info))
        return self._video

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close.close()
