"""Decoded videos in memory, and what is known of their files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from hwbench.data.decoders import PYAV, Decoder
from hwbench.data.decoding import Frames, VideoInfo
from hwbench.data.info_index import InfoIndex
from hwbench.data.lazy_video import LazyVideo
from hwbench.data.media import VideoSource
from hwbench.data.videos import VideoList

# An info holds a time stamp per frame: some kilobytes for a video of ten seconds.
_MOST_INFOS = 4096


class FrameCache:
    """Decoded videos in memory, the least recently used leaving first; ``limit_bytes`` is for this process alone.

    Where all videos would fit if they were as long and large as this one, a video is decoded whole the first time and
    not again while it stays. Where they would not, only what is asked for is decoded and nothing is kept: a cache that
    loses its entries before they come round again costs more than it saves. What the files hold is always remembered,
    and looked up in ``index``, which other processes and later runs share.
    """

    def __init__(self, limit_bytes: int = 0, index: InfoIndex | None = None, decoder: Decoder = PYAV) -> None:
        self.limit_bytes, self.index, self.decoder = limit_bytes, index, decoder
        self._bytes = 0
        self._frames: OrderedDict[int, Frames] = OrderedDict()
        self._infos: OrderedDict[int, VideoInfo] = OrderedDict()

    def open(self, key: int, videos: VideoList) -> CachedVideo:
        """Video ``key`` of the list; VideoError if it cannot be read."""
        return CachedVideo(self, key, videos)

    def info(self, key: int, source: VideoSource) -> VideoInfo | None:
        """What the video holds, if known."""
        info = self._infos.get(key)
        return self.index.get(source) if info is None and self.index is not None else info

    def frames(self, key: int) -> Frames | None:
        """All frames of the video, if they are kept."""
        if key in self._frames:
            self._frames.move_to_end(key)
        return self._frames.get(key)

    def remember(self, key: int, info: VideoInfo) -> None:
        """Keeps what a video holds."""
        self._infos[key] = info
        if len(self._infos) > _MOST_INFOS:
            self._infos.popitem(last=False)

    def fits(self, info: VideoInfo, count: int) -> bool:
        """Whether ``count`` videos like this one can be kept."""
        return count * info.num_frames * info.height * info.width * 3 <= self.limit_bytes

    def keep(self, key: int, frames: Frames) -> None:
        """Keeps the frames of a video, letting go of others until it fits."""
        self._frames[key] = frames
        self._bytes += frames.nbytes
        while self._bytes > self.limit_bytes:
            _, old = self._frames.popitem(last=False)
            self._bytes -= old.nbytes


class CachedVideo(LazyVideo):
    """One video of a list, seen through the cache; its file is opened once at most, and closed by ``with``."""

    def __init__(self, cache: FrameCache, key: int, videos: VideoList) -> None:
        source = videos.source(key)
        known = cache.info(key, source)
        super().__init__(cache.decoder, source, known)
        self._cache, self._key, self._count = cache, key, len(videos)
        cache.remember(key, self.info)
        if known is None and cache.index is not None:
            cache.index.put(source, self.info)

    def read(self, indices: Sequence[int]) -> Frames:
        """Frames by index: uint8 (T, H, W, 3)."""
        kept = self._cache.frames(self._key)
        if kept is not None:
            return kept[list(indices)]
        file = self.opened()
        if not self._cache.fits(self.info, self._count):
            return file.read(tuple(indices))
        frames = file.read(range(self.info.num_frames))
        self._cache.keep(self._key, frames)
        return frames[list(indices)]

    def __enter__(self) -> CachedVideo:
        return self
