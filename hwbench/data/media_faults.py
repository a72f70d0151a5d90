"""What goes wrong with a media file, as a VideoError with its name and one line of cause."""

from __future__ import annotations

import contextlib
import errno
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import av

from hwbench.errors import VideoError


class MediaFault(Exception):
    """Why a file cannot be read; ``naming`` puts its name in front of it."""


@contextlib.contextmanager
def naming(name: object) -> Iterator[None]:
    """Turns whatever goes wrong inside into a VideoError with the file's name and one line of cause."""
    try:
        yield
    except VideoError:
        raise
    except MediaFault as cause:
        raise VideoError(f"{name}: {cause}") from None
    except (av.FFmpegError, OSError, ValueError, RuntimeError, EOFError, MemoryError) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise VideoError(f"{name}: {' '.join(text.split())}{_hint(error)}") from error


def _hint(error: Exception) -> str:
    """What an error says about the content of its file; nothing where the machine lacks rights, memory or a codec."""
    if isinstance(error, OSError) and error.errno == errno.EIO:  # FFmpeg's word for some damaged files, too
        return " (damaged, or its disk fails)"
    if isinstance(error, av.FFmpegError) and error.errno == errno.ENOTSUP:  # libswscale, of YCgCo for one
        return " (nothing converts its colours to RGB)"
    return "" if isinstance(error, OSError | MemoryError | LookupError) else " (damaged, or not a video)"


def check_media(media: Path | BinaryIO) -> None:
    """Looks whether there is a file, or bytes that are open for reading, with something in it.

    Raises:
        MediaFault: There is nothing.
    """
    if not isinstance(media, Path):
        if not media.seek(0, io.SEEK_END):
            raise MediaFault("the video is empty (0 bytes)")
        media.seek(0)
    elif not media.exists():
        raise MediaFault("no such file")
    elif media.is_dir():
        raise MediaFault("is a directory, expected a video file")
    elif media.is_file() and media.stat().st_size == 0:
        raise MediaFault("the file is empty (0 bytes)")
