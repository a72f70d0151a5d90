"""Computed optical flow, kept on the disk: once for each video, as the images of ``hwbench.data.flow``.

A folder is named after all that the flow depends on: the method, its range, and the video as it is now. The flow of a
video that changed is computed again. So is that of a folder whose files are not those that its ``flow.json`` tells of,
by number and bytes: a power cut may leave some without their bytes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from hwbench.data.archives import ArchiveMember, MemorySource
from hwbench.data.arrow import RowSource
from hwbench.data.decoding import Frames
from hwbench.data.flow import NOTE, RANGE_PX, Flow, FlowFolder, codes_of
from hwbench.data.flow_methods import FlowMethod
from hwbench.data.images import FrameFolder, images_of
from hwbench.data.kept_facts import file_state
from hwbench.data.media import FileSource, OpenVideo, VideoSource
from hwbench.documents import read_json
from hwbench.errors import HwbenchError, VideoError
from hwbench.workspace import temporary_beside, writing

# Frames that are decoded at once.
_CHUNK = 64
# Rows of tables that a process keeps in mind: looking at one reads its whole group of rows.
_MOST_ROWS = 2**16
# A folder under way has an image more with every frame: one without any for so long was left behind.
_STALE_S = 24 * 3600
# Folders that this process has looked through, which takes a look at each of their files.
_whole: set[Path] = set()


@dataclass(frozen=True)
class FlowCache:
    """A folder with a folder of images for each video that was asked for.

    Attributes:
        root: Where the folders lie; several processes may share it.
        method: What computes.
        range_px: The most motion that a code can tell, in pixels.
    """

    root: Path
    method: FlowMethod
    range_px: float = RANGE_PX

    def folder(self, source: VideoSource) -> FlowFolder:
        """The flow of a video, computed where it is not there yet.

        Raises:
            VideoError: The video cannot be read, or the method fails with its frames.
            WorkspaceError: No rights or no room.
        """
        target = self.root / self._name(source)
        if not _is_whole(target):
            with writing(target):
                self._compute(source, target)
        return FlowFolder(target)

    def sweep(self) -> None:
        """Removes what processes left behind that were killed while they computed."""
        for folder in self.root.glob(".*.tmp"):
            with contextlib.suppress(OSError):  # it took its place meanwhile
                if time.time() - folder.stat().st_mtime > _STALE_S:
                    shutil.rmtree(folder, ignore_errors=True)

    def _name(self, source: VideoSource) -> str:
        values = [os.path.abspath(source.name), self.method.name, self.range_px, *_state(source)]
        digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()[:24]
        return f"{re.sub('[^0-9A-Za-z_-]', '_', Path(source.name).stem)[:60]}-{digest}"

    def _compute(self, source: VideoSource, target: Path) -> None:
        temporary = temporary_beside(target)
        temporary.mkdir(parents=True)
        try:
            with source.open() as video:
                for number, flow in enumerate(self._flows(source, video), start=1):
                    codes = codes_of(flow, self.range_px)
                    for axis, prefix in enumerate(("flow_x_", "flow_y_")):
                        (temporary / f"{prefix}{number:05d}.png").write_bytes(_grey_png(codes[..., axis]))
            files, num_bytes = _content(temporary)
            note = {
                "range_px": self.range_px,
                "method": self.method.name,
                "video": source.name,
                "files": files,
                "bytes": num_bytes,
            }
            (temporary / NOTE).write_text(json.dumps(note), encoding="utf-8")
            _take_place(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _flows(self, source: VideoSource, video: OpenVideo) -> Iterator[Flow]:
        """The flow of each frame to the next; of a video of one frame, no motion."""
        before: Frames | None = None
        for start in range(0, video.info.num_frames, _CHUNK):
            for frame in video.read(range(start, min(start + _CHUNK, video.info.num_frames))):
                if before is not None:
                    yield self._flow(source, before, frame)
                elif video.info.num_frames == 1:
                    yield np.zeros((*frame.shape[:2], 2), np.float32)
                before = frame

    def _flow(self, source: VideoSource, first: Frames, second: Frames) -> Flow:
        """The flow between two frames; what a library raises is about this video, and names it."""
        try:
            return self.method(first, second)
        except (HwbenchError, MemoryError):
            raise
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            size = f"{first.shape[1]}x{first.shape[0]}"
            about = f"optical flow of frames of {size} by {self.method.name}"
            raise VideoError(f"{source.name}: {about}: {text[:200]}") from error


def _state(source: VideoSource) -> list[object]:
    """What tells the frames of a video from those of another video, or of another time, with the same name."""
    match source:
        case FileSource():
            state = file_state(source.path)
            return [] if state is None else [source.stream, *state]  # as ever: folders of earlier versions stay valid
        case ArchiveMember():
            return [source.offset_bytes, source.size_bytes, file_state(source.archive)]
        case RowSource():
            table = file_state(source.table)
            file = _file_of_row(source, table)
            return [table, None if file is None else [str(file), file_state(file)]]
        case FrameFolder():
            return [[image.name, file_state(image)] for image in images_of(source)]
        case MemorySource():
            return [hashlib.sha256(source.content).hexdigest()]
        case _:
            return [source.identity(Path())]


@functools.lru_cache(_MOST_ROWS)
def _file_of_row(source: RowSource, table: tuple[int, int] | None) -> Path | None:
    """The file that a row names; None where it holds the bytes. ``table`` is the state of the file of the table."""
    media = source.media()
    return media if isinstance(media, Path) else None


def _grey_png(picture: Frames) -> bytes:
    """The file of a picture: uint8 (H, W)."""
    context: Any = av.CodecContext.create("png", "w")
    context.height, context.width, context.pix_fmt = *picture.shape, "gray"
    context.time_base = Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="gray")
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def _content(folder: Path) -> tuple[int, int]:
    """Number and bytes of the files of a folder, but for ``flow.json``."""
    with os.scandir(folder) as entries:
        sizes = [entry.stat().st_size for entry in entries if entry.name != NOTE]
    return len(sizes), sum(sizes)


def _is_whole(folder: Path) -> bool:
    """Whether a folder is there with all of its files; one of a version that did not count them is taken as it is."""
    note = folder / NOTE
    if not note.exists():
        return False
    if folder not in _whole:
        try:
            values = read_json(note.read_text(encoding="utf-8"))
            if (values["files"], values["bytes"]) != _content(folder):
                return False
        except KeyError:
            pass
        except (OSError, ValueError, TypeError):
            return False
        _whole.add(folder)
    return True


def _take_place(made: Path, target: Path) -> None:
    """Renames a finished folder, in the place of a damaged one; another process may have been faster with the same."""
    try:
        made.rename(target)
    except OSError:
        if _is_whole(target):
            return
        if not target.exists():
            raise
        damaged = temporary_beside(target)
        target.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
        made.rename(target)
