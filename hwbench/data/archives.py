"""Videos inside of archives, read where they lie: nothing is unpacked."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hwbench.data.decoding import VideoFile, VideoInfo
from hwbench.data.media import relative_name
from hwbench.errors import VideoError


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A video of ``size_bytes`` bytes from ``offset_bytes`` on in an archive that is not compressed (tar)."""

    archive: Path
    member: str
    offset_bytes: int
    size_bytes: int

    @property
    def name(self) -> str:
        return f"{self.archive}!{self.member}"

    def identity(self, root: Path) -> str:
        return f"{relative_name(self.archive, root)}!{self.member}"

    def media(self) -> BinaryIO:
        try:
            content = FileRange(self.archive.open("rb"), self.offset_bytes, self.size_bytes)
        except OSError as error:
            raise VideoError(f"{self.name}: {error.strerror}") from None
        return io.BufferedReader(content)

    def open(self, info: VideoInfo | None = None) -> VideoFile:
        return VideoFile(self.name, info, content=self.media())


@dataclass(frozen=True, slots=True)
class MemorySource:
    """A video whose encoded bytes are in memory; ``title`` is its name and must differ from those of other videos."""

    title: str
    content: bytes

    @property
    def name(self) -> str:
        return self.title

    def identity(self, root: Path) -> str:
        return self.title

    def media(self) -> BinaryIO:
        return io.BytesIO(self.content)

    def open(self, info: VideoInfo | None = None) -> VideoFile:
        return VideoFile(self.title, info, content=self.media())


class FileRange(io.RawIOBase):
    """A part of an open file as a file of its own; closes the file with itself."""

    def __init__(self, file: BinaryIO, offset_bytes: int, size_bytes: int) -> None:
        super().__init__()
        self._file, self._offset, self._size, self._at = file, offset_bytes, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)[: max(0, self._size - self._at)]
        self._file.seek(self._offset + self._at)
        data = self._file.read(len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
