"""Optical flow as images: how far every pixel moves to the next frame, across and down.

Two grey images for each frame, as mmaction2 and denseflow write them: ``flow_x_00001.jpg`` and ``flow_y_00001.jpg``
hold the flow from the first frame to the second. A code of 8 bits stands for ``code / 255 * 2 R - R`` pixels, where R
is the range: 20 pixels unless a file ``flow.json`` beside the images says otherwise. The last frame has no next one,
and gets the flow of the one before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hwbench.data.decoding import Frames, VideoInfo
from hwbench.data.flo_files import ENDING, read_flo
from hwbench.data.images import FrameFolder, natural
from hwbench.documents import read_json
from hwbench.errors import InvalidValue, VideoError

# denseflow's ``-b=20``, which mmaction2's lists are made with.
RANGE_PX = 20.0
NOTE = "flow.json"
_HIGHEST = 255

# Of images that are counted: what they hold is not asked.
_UNREAD = VideoInfo(1, 1, "images", Fraction(1), np.zeros(1, np.int64), (0,), 1)

Flow = npt.NDArray[np.float32]


def codes_of(flow: Flow, range_px: float = RANGE_PX) -> Frames:
    """Pixels as codes of 8 bits: float32 (..., 2) -> uint8 (..., 2); motion beyond the range is cut off."""
    shares = np.clip(flow, -range_px, range_px) / (2 * range_px) + 0.5
    codes: Frames = np.rint(shares * _HIGHEST).astype(np.uint8)
    return codes


def pixels_of(codes: Frames, range_px: float = RANGE_PX) -> Flow:
    """Codes as pixels: uint8 (..., 2) -> float32 (..., 2), at most half a step of ``2 R / 255`` off."""
    return ((codes / _HIGHEST - 0.5) * 2 * range_px).astype(np.float32)


@dataclass(frozen=True, slots=True)
class FlowFolder:
    """A folder with the images of one video; ``across`` and ``down`` are what their names begin with."""

    folder: Path
    across: str = "flow_x_"
    down: str = "flow_y_"

    def range_px(self) -> float:
        """R, in pixels of the images.

        Raises:
            VideoError: ``flow.json`` is there and does not say it.
        """
        note = self.folder / NOTE
        if not note.exists():
            return RANGE_PX
        try:
            value = float(read_json(note.read_text(encoding="utf-8"))["range_px"])
            if value > 0:
                return value
        except (OSError, ValueError, TypeError, KeyError):
            pass
        raise VideoError(f"{note}: expected a JSON object with a 'range_px' above 0")

    def has_any(self) -> bool:
        """Whether the folder is there and holds any flow, of the whole video or not."""
        begins = (self.across, self.down)
        try:
            return any(name.endswith(ENDING) or name.startswith(begins) for name in os.listdir(self.folder))
        except OSError:
            return self.folder.is_dir()  # reading it says why it cannot be read

    def read(self, indices: tuple[int, ...], num_frames: int) -> Frames:
        """The codes of some frames, across and down: uint8 (T, H, W, 2).

        Args:
            indices: Numbers of frames of the video.
            num_frames: Frames of the video.

        Raises:
            VideoError: An image is missing, damaged, or of another size than the others.
            InvalidValue: No index, or one outside the video.
        """
        if not indices or min(indices) < 0 or max(indices) >= num_frames:
            raise InvalidValue(f"{self.folder}: expected frames from 0 to {num_frames - 1}, got {list(indices)}")
        count = max(1, num_frames - 1)
        places = tuple(min(index, count - 1) for index in indices)
        files = self._flo_files()
        if files:
            return self._codes(files, count, places)
        x, y = (self._images(prefix, count, places) for prefix in (self.across, self.down))
        if x.shape != y.shape:
            raise VideoError(f"{self.folder}: images of {x.shape[1:]} across and of {y.shape[1:]} down")
        return np.stack([x, y], axis=-1)

    def lacks(self, num_frames: int) -> str:
        """What is missing for a video of so many frames, in words; empty: nothing. Files are counted, not read."""
        count = max(1, num_frames - 1)
        files = self._flo_files()
        if files:
            return "" if len(files) >= count else f"{self.folder}: {len(files)} .flo files, expected {count}"
        for prefix in (self.across, self.down):
            try:
                FrameFolder(self.folder, prefix=prefix, count=count).open(_UNREAD)
            except VideoError as error:
                return str(error)
        return ""

    def _flo_files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{ENDING}"), key=lambda file: natural(file.name))

    def _codes(self, files: list[Path], count: int, places: tuple[int, ...]) -> Frames:
        if len(files) < count:
            raise VideoError(
                f"{self.folder}: expected {count} .flo files, one for each frame but the last, found {len(files)}"
            )
        flows = {place: read_flo(files[place]) for place in set(places)}
        sizes = {flow.shape for flow in flows.values()}
        if len(sizes) > 1:
            raise VideoError(f"{self.folder}: .flo files of one size expected, got {sorted(sizes)}")
        range_px = self.range_px()
        return np.stack([codes_of(flows[place], range_px) for place in places])

    def _images(self, prefix: str, count: int, places: tuple[int, ...]) -> Frames:
        with FrameFolder(self.folder, prefix=prefix, count=count).open() as images:
            return images.read(places)[..., 0]
