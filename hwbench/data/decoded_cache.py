"""Decoded videos on the disk, for all processes and later runs: a clip then costs its frames, and no decoding.

A file for each video, whole, at its own size: what is read is what the decoder gave, byte for byte. Files are named
after all that their frames depend on, so nothing stale is read. Damaged ones are not read, and made again.

Which videos are kept does not depend on the order of reading. Where all fit, all are. Where they do not, a part is kept
that fits, the same in every process and epoch: letting the oldest go for the newest would lose each before it comes
round. What other data and earlier runs left goes first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch

from hwbench.data.decoders import Decoder
from hwbench.data.decoding import Frames, VideoInfo, check_indices
from hwbench.data.frame_file import file_bytes, read_frame_file, write_frame_file
from hwbench.data.info_index import place_of
from hwbench.data.kept_facts import file_state
from hwbench.data.lazy_video import LazyVideo
from hwbench.data.media import OpenVideo, VideoSource
from hwbench.errors import VideoError
from hwbench.room import trim
from hwbench.workspace import temporary_beside

# Raised whenever the files are laid out otherwise.
_FORMAT = "decoded 1"
# A video is decoded into memory whole, in each worker process: 10 s of 640 x 480 at 30 frames a second take 276 MB.
_LARGEST_BYTES = 512 * 2**20
# Where the limit is reached, a tenth of it is made free at once, so that not every video looks through the folder. What
# one data set wants is as much: it does not push itself out where chance takes some more of its videos.
_FILLED = 0.9
_TOTAL = "total.lock"


def _shared_number() -> torch.Tensor:
    """A 0 in memory that the processes of a loader share."""
    number: torch.Tensor = torch.zeros((), dtype=torch.long).share_memory_()  # type: ignore[no-untyped-call]
    return number


@dataclass(frozen=True)
class DecodedCache:
    """A decoder that keeps what another one decodes.

    Where the folder cannot be written or locked, nothing is kept from then on, and videos are decoded as without.

    Attributes:
        decoder: Reads what is not kept.
        folder: Of the files.
        limit_bytes: What all files may take together, those being written included.
        videos: How many videos share that.
        refused: The number of the error with which the system did not let a video be kept, in this process or one that
            the decoder was handed to; 0: none.
    """

    decoder: Decoder
    folder: Path
    limit_bytes: int
    videos: int
    refused: torch.Tensor = field(default_factory=_shared_number, compare=False, repr=False)

    @property
    def identity(self) -> str:
        return self.decoder.identity

    def open(self, source: VideoSource, info: VideoInfo | None = None) -> OpenVideo:
        file = self._file(source)
        return self.decoder.open(source, info) if file is None else _CachedVideo(self, file, source, info)

    def wants(self, file: Path, info: VideoInfo) -> bool:
        """Whether a video is of the part that is kept; none is after the first refusal.

        A video is kept with the probability 0.9 limit / (number of videos x its own size), by the digest in its name:
        the sum of what is kept is 0.9 of the limit at most, on average.
        """
        if self.refused:
            return False
        num_bytes = file_bytes((info.num_frames, info.height, info.width, 3))
        drawn = int(file.stem[:12], 16) / 16**12
        return num_bytes <= _LARGEST_BYTES and drawn * self.videos * num_bytes < _FILLED * self.limit_bytes

    def keep(self, file: Path, frames: Frames) -> None:
        """Writes the frames of a video, uint8 (T, H, W, 3), after room was made for them; notes a refusal."""
        temporary = temporary_beside(file)
        try:
            try:
                if self._reserve(temporary, file_bytes(frames.shape)):
                    write_frame_file(temporary, frames)
                    with self._locked():  # nobody looks through the folder meanwhile, and misses both names
                        temporary.replace(file)
            finally:
                temporary.unlink(missing_ok=True)
        except FileNotFoundError:  # another process made room of it meanwhile
            pass
        except OSError as error:
            self.refused.fill_(error.errno or errno.EIO)

    def _file(self, source: VideoSource) -> Path | None:
        """Where the frames of a video are kept; None where it is no part of a file that can be told from others."""
        place = place_of(source)
        state = None if place is None else file_state(place[1])
        if place is None or state is None:
            return None
        text = "\n".join((_FORMAT, self.decoder.identity, place[0], *map(str, state)))
        digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()  # names need not be UTF-8
        return self.folder / f"{digest}.frames"

    def _reserve(self, temporary: Path, num_bytes: int) -> bool:
        """Makes a file of a size, removing others until it fits; False where it never does."""
        if num_bytes > self.limit_bytes:
            return False
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        with self._locked() as counter:
            counter.seek(0)
            text = counter.read()
            total = int(text) if text.isdecimal() else None
            if total is None or total + num_bytes > self.limit_bytes:
                total = trim(self.folder, min(self.limit_bytes - num_bytes, _FILLED * self.limit_bytes))
            counter.truncate(0)
            counter.write(str(total + num_bytes))
            counter.flush()
            with temporary.open("xb") as file:
                file.truncate(num_bytes)
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[IO[str]]:
        """One process at a time changes which files there are; gives the file that says what all of them take.

        It may say more, where a process died or a file took the place of another, and never less.
        """
        with (self.folder / _TOTAL).open("a+") as counter:
            fcntl.flock(counter, fcntl.LOCK_EX)
            yield counter


def refusal_of(decoder: Decoder) -> str:
    """That a decoder keeps nothing any more, and why, in one line; empty: it does, or was not to keep anything."""
    if not isinstance(decoder, DecodedCache) or not decoder.refused:
        return ""
    reason = os.strerror(int(decoder.refused))
    return f"{decoder.folder}: cannot keep decoded videos ({reason}); what is not there is decoded each time"


def saying_refusal(decoder: Decoder, say: Callable[[str], None]) -> Callable[[], None]:
    """A function that says ``refusal_of`` a decoder: at its first call after the refusal, and then no more."""
    said = ""

    def ask() -> None:
        nonlocal said
        if not said and (said := refusal_of(decoder)):
            say(said)

    return ask


class _CachedVideo(LazyVideo):
    """A video whose frames are kept, or to be kept; the video itself is opened when it is needed."""

    def __init__(self, cache: DecodedCache, file: Path, source: VideoSource, info: VideoInfo | None) -> None:
        super().__init__(cache.decoder, source, info)
        self._cache, self._file = cache, file

    def read(self, indices: tuple[int, ...] | range) -> Frames:
        """Frames by index in the order asked for, repeats allowed: uint8 (T, H, W, 3)."""
        check_indices(self.source.name, indices, self.info.num_frames)
        kept = read_frame_file(self._file, indices)
        if kept is None:
            return self._decode(indices)
        with contextlib.suppress(OSError):
            os.utime(self._file)  # used now
        return kept

    def _decode(self, indices: tuple[int, ...] | range) -> Frames:
        video = self.opened()
        if self._cache.wants(self._file, self.info):
            # A video with a damaged frame is not kept: its other frames are read as without a cache.
            with contextlib.suppress(VideoError):
                frames = video.read(range(self.info.num_frames))
                self._cache.keep(self._file, frames)
                return frames[list(indices)]
        return video.read(indices)

    def __enter__(self) -> _CachedVideo:
        return self
