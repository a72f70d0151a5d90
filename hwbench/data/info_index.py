"""What videos hold, found out once: time stamps and keyframes of every file that was ever opened in this workspace.

Opening a video means reading all its packets; with what this index keeps it does not. All processes that read share it,
and so do the runs of later days. A file is known by its path, size and time of change.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np

from hwbench.data.archives import ArchiveMember
from hwbench.data.decoding import VideoInfo
from hwbench.data.kept_facts import KeptFacts, Value
from hwbench.data.media import FileSource, VideoSource
from hwbench.errors import WorkspaceError

# Raised whenever ``VideoInfo`` says something else of the same file.
_KIND = "info 3"


class InfoIndex:
    """An index in a SQLite file, which is opened on first use, in each process for itself.

    It makes reading faster and nothing else: where it cannot be read or written, videos are probed again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept: tuple[int, KeptFacts | None] | None = None

    def get(self, source: VideoSource) -> VideoInfo | None:
        """What the video holds, if its file is as it was when that was found out."""
        place, kept = place_of(source), self._opened()
        if place is None or kept is None:
            return None
        value = kept.get(_KIND, *place)
        return None if value is None else _unpacked(value)

    def put(self, source: VideoSource, info: VideoInfo) -> None:
        """Keeps what the video holds."""
        place, kept = place_of(source), self._opened()
        if place is not None and kept is not None:
            kept.put(_KIND, *place, _packed(info))

    def _opened(self) -> KeptFacts | None:
        # A connection must not be used behind a fork.
        if self._kept is None or self._kept[0] != os.getpid():
            kept = None
            with contextlib.suppress(WorkspaceError):
                kept = KeptFacts(self._file)
            self._kept = (os.getpid(), kept)
        return self._kept[1]

    def __getstate__(self) -> Path:
        return self._file

    def __setstate__(self, file: Path) -> None:
        self._file, self._kept = file, None


def place_of(source: VideoSource) -> tuple[str, Path] | None:
    """Name of a video, and the file that it lies in; None where it is no part of a file."""
    match source:
        case FileSource():
            path, within = source.path, ""
        case ArchiveMember():  # an archive may have several members of one name
            path, within = source.archive, f"\t{source.offset_bytes}+{source.size_bytes}"
        case _:
            return None
    return f"{path.absolute()}\t{source.identity(path.parent)}{within}", path


def _packed(info: VideoInfo) -> bytes:
    values = [
        *(info.width, info.height, info.codec, str(info.time_base), int(info.pts[0]), np.diff(info.pts).tolist()),
        *(info.keyframes, info.duration, info.counted, info.stream, info.container, info.interlaced),
        str(info.offset_s),
    ]
    return zlib.compress(json.dumps(values, separators=(",", ":")).encode(), 1)


def _unpacked(value: Value) -> VideoInfo | None:
    try:
        values = json.loads(zlib.decompress(value if isinstance(value, bytes) else b""))
        width, height, codec, base, first, steps, keys, duration, *flags, offset = values
        counted, stream, container, interlaced = flags
        pts = np.cumsum(np.array([first, *steps], dtype=np.int64))
        about = (Fraction(base), pts, tuple(keys), duration, counted, stream, container, interlaced, Fraction(offset))
        return VideoInfo(width, height, codec, *about)
    except (ValueError, TypeError, zlib.error):
        return None
