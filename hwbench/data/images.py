"""Videos that lie on the disk as folders of images."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import numpy as np
import torch

from hwbench.data.decoding import Frames, VideoInfo, check_indices
from hwbench.data.media import relative_name
from hwbench.errors import VideoError

IMAGE_ENDINGS = (".jpeg", ".jpg", ".png", ".webp")
# Stems of images of optical flow: flow_x_00001 and x_00001 of denseflow, 46GP8-000001x of Charades.
_FLOW = re.compile(r"flow_[xy]_.*|[xy]_[0-9]+|.*-[0-9]+[xy]")


@dataclass(frozen=True, slots=True)
class FrameFolder:
    """The images of a folder as the frames of a video, in natural order of their names: ``2.jpg`` before ``10.jpg``.

    Images of optical flow among them, by their names, are read with a ``prefix`` alone.

    Attributes:
        folder: The folder.
        fps: Frames a second at which the images were taken.
        prefix: What the names of the images begin with, where others lie beside them (optical flow).
        count: How many of the images are read; None: all.
    """

    folder: Path
    fps: Fraction = Fraction(30)
    prefix: str = ""
    count: int | None = None

    @property
    def name(self) -> str:
        return str(self.folder / f"{self.prefix}*") if self.prefix else str(self.folder)

    def identity(self, root: Path) -> str:
        return f"{relative_name(self.folder, root)}\tframes={self.prefix}*\tfps={self.fps}\tcount={self.count}"

    def open(self, info: VideoInfo | None = None) -> FrameImages:
        return FrameImages(self, info)


class FrameImages:
    """An open folder of images.

    Raises:
        VideoError: The folder is missing, holds fewer images than listed, or the first one cannot be decoded.
    """

    def __init__(self, source: FrameFolder, info: VideoInfo | None = None) -> None:
        self._name = source.name
        self._paths = images_of(source)
        if info is None:
            height, width = _decode(self._paths[0]).shape[:2]
            count = len(self._paths)
            pts = np.arange(count, dtype=np.int64)
            info = VideoInfo(width, height, "images", 1 / source.fps, pts, tuple(range(count)), count)
        self.info = info

    def read(self, indices: tuple[int, ...] | range) -> Frames:
        """Frames by index in the order asked for, repeats allowed: uint8 (T, H, W, 3), RGB."""
        check_indices(self._name, indices, len(self._paths))
        frames = {index: self._frame(index) for index in sorted(set(indices))}
        return np.stack([frames[index] for index in indices])

    def __enter__(self) -> FrameImages:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing stays open."""

    def _frame(self, index: int) -> Frames:
        frame = _decode(self._paths[index])
        height, width = frame.shape[:2]
        if (width, height) != (self.info.width, self.info.height):
            raise VideoError(
                f"{self._paths[index]}: {width}x{height}; the first image of its video has "
                f"{self.info.width}x{self.info.height}"
            )
        return frame


def is_flow(name: str) -> bool:
    """Whether an image of that name holds optical flow."""
    return _FLOW.fullmatch(os.path.splitext(name)[0]) is not None


def natural(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sorting key: numbers within names count as numbers."""
    words = re.split(r"([0-9]+)", name)
    return tuple(int(word) if place % 2 else word for place, word in enumerate(words)), name


def images_of(source: FrameFolder) -> list[Path]:
    """The files that are read, one a frame, in the order of the frames.

    Raises:
        VideoError: The folder is missing, or holds fewer images than listed.
    """
    try:
        names = [
            name
            for name in os.listdir(source.folder)
            if name.startswith(source.prefix) and name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")
            if source.prefix or not is_flow(name)
        ]
    except OSError as error:
        raise VideoError(f"{source.folder}: {error.strerror} (expected a folder of images)") from None
    if len(names) < (source.count or 1):
        expected = f"{source.count} images, as listed" if source.count else "images"
        raise VideoError(
            f"{source.name}: expected {expected} ({' '.join(IMAGE_ENDINGS)}), found {len(names) or 'none'}"
        )
    return [source.folder / name for name in sorted(names, key=natural)[: source.count]]


def _decode(path: Path) -> Frames:
    """An image as uint8 (H, W, 3), turned upright; images of 16 bits lose the lower ones."""
    from torchvision.io import ImageReadMode, decode_image

    try:
        content = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
        image = decode_image(content, ImageReadMode.RGB, apply_exif_orientation=True)
    except OSError as error:
        raise VideoError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise VideoError(f"{path}: {text[:200]} (damaged, or not an image)") from None
    array: Frames = (image if image.dtype == torch.uint8 else image.to(torch.int32) >> 8).to(torch.uint8).numpy()
    return np.ascontiguousarray(array.transpose(1, 2, 0))
