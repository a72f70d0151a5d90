"""Computed optical flow, kept on the disk: once for each video, as the images of ``hwbench.data.flow``."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from hwbench.data.decoding import Frames
from hwbench.data.flow import NOTE, RANGE_PX, Flow, FlowFolder, codes_of
from hwbench.data.flow_methods import FlowMethod
from hwbench.data.media import FileSource, OpenVideo, VideoSource
from hwbench.workspace import temporary_beside, writing

# Frames that are decoded at once.
_CHUNK = 64


@dataclass(frozen=True)
class FlowCache:
    """A folder with a folder of images for each video that was asked for; a file that changed is computed again.

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
            VideoError: The video cannot be read.
            WorkspaceError: No rights or no room.
        """
        target = self.root / self._name(source)
        if not (target / NOTE).exists():
            with writing(target):
                self._compute(source, target)
        return FlowFolder(target)

    def _name(self, source: VideoSource) -> str:
        values = [os.path.abspath(source.name), self.method.name, self.range_px]
        if isinstance(source, FileSource) and source.path.exists():
            status = source.path.stat()
            values += [source.stream, status.st_size, status.st_mtime_ns]
        digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()[:24]
        return f"{re.sub('[^0-9A-Za-z_-]', '_', Path(source.name).stem)[:60]}-{digest}"

    def _compute(self, source: VideoSource, target: Path) -> None:
        temporary = temporary_beside(target)
        temporary.mkdir(parents=True)
        try:
            with source.open() as video:
                for number, flow in enumerate(_flows(video, self.method), start=1):
                    codes = codes_of(flow, self.range_px)
                    for axis, prefix in enumerate(("flow_x_", "flow_y_")):
                        (temporary / f"{prefix}{number:05d}.png").write_bytes(_grey_png(codes[..., axis]))
            note = {"range_px": self.range_px, "method": self.method.name, "video": source.name}
            (temporary / NOTE).write_text(json.dumps(note), encoding="utf-8")
            _take_place(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _grey_png(picture: Frames) -> bytes:
    """The file of a picture: uint8 (H, W)."""
    context: Any = av.CodecContext.create("png", "w")
    context.height, context.width, context.pix_fmt = *picture.shape, "gray"
    context.time_base = Fraction(1, 25)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="gray")
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def _take_place(made: Path, target: Path) -> None:
    """Renames a finished folder; another process may have been faster with the same."""
    try:
        made.rename(target)
    except OSError:
        if not (target / NOTE).exists():
            raise


def _flows(video: OpenVideo, method: FlowMethod) -> Iterator[Flow]:
    """The flow of each frame to the next; of a video of one frame, no motion."""
    before: Frames | None = None
    for start in range(0, video.info.num_frames, _CHUNK):
        for frame in video.read(range(start, min(start + _CHUNK, video.info.num_frames))):
            if before is not None:
                yield method(before, frame)
            elif video.info.num_frames == 1:
                yield np.zeros((*frame.shape[:2], 2), np.float32)
            before = frame
