"""Frames in a file, to be read one by one: a header, a checksum for each frame, then the frames.

Nothing is compressed. A file is as long as its header says, and each frame has its checksum: what a power cut left in
its place is not taken for frames.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hwbench.data.decoding import Frames

_MAGIC = b"hwbframe"
_HEADER = struct.Struct("<8s3I")  # T, H, W
_CHECKSUM = np.dtype("<u4")  # CRC-32


def file_bytes(shape: tuple[int, ...]) -> int:
    """Size of the file of frames (T, H, W, 3)."""
    count, height, width, _ = shape
    return _pixels_at(count) + count * height * width * 3


def write_frame_file(path: Path, frames: Frames) -> None:
    """Writes frames, uint8 (T, H, W, 3), into a file that exists; it may be lost or damaged when the power goes.

    Raises:
        OSError: No room, or no such file.
    """
    frames = np.ascontiguousarray(frames)
    checksums = np.array([zlib.crc32(frame) for frame in frames], _CHECKSUM)
    with path.open("r+b") as file:
        file.write(_HEADER.pack(_MAGIC, *frames.shape[:3]))
        file.write(checksums.tobytes())
        file.write(frames.data)


def read_frame_file(path: Path, indices: Sequence[int]) -> Frames | None:
    """Frames by index in the order asked for, repeats allowed: uint8 (T, H, W, 3).

    None where there is no such file or frame, or what is asked for is damaged.
    """
    try:
        with path.open("rb") as file:
            magic, *size = _HEADER.unpack(file.read(_HEADER.size))
            shape = (*size, 3)
            if magic != _MAGIC or os.fstat(file.fileno()).st_size != file_bytes(shape):
                return None
            checksums = np.frombuffer(file.read(shape[0] * _CHECKSUM.itemsize), _CHECKSUM)
            mapped = np.memmap(file, np.uint8, "r", _pixels_at(shape[0]), shape)
        frames = np.array(mapped[list(indices)])
    except (OSError, ValueError, IndexError, struct.error):
        return None
    return frames if all(zlib.crc32(frame) == checksums[i] for i, frame in zip(indices, frames)) else None


def _pixels_at(count: int) -> int:
    return _HEADER.size + count * _CHECKSUM.itemsize
