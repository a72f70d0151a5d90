"""From decoded frames to what a network takes: a box of every frame is resized to the input size and normalised.

A transform takes uint8 frames (T, H, W, 3) and gives float32 (3, T, h, w). It draws from the generator it is handed and
from nothing else, so a sample depends on its seed alone. All frames of a clip get the same box. Pixels stay uint8 until
the last step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torchvision.transforms.v2 import functional as vision

from hwbench.data.decoding import Frames
from hwbench.errors import InvalidValue

Size = tuple[int, int]


@dataclass(frozen=True)
class Normalisation:
    """``(pixel / 255 - mean) / std`` for each of R, G, B: the values of the X3D recipes."""

    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 (T, 3, H, W) -> float32 (3, T, H, W)."""
        scale = torch.tensor([1 / (255 * s) for s in self.std]).view(3, 1, 1, 1)
        shift = torch.tensor([-m / s for m, s in zip(self.mean, self.std)]).view(3, 1, 1, 1)
        return torch.addcmul(shift, frames.transpose(0, 1).to(torch.float32), scale)


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels of the frame."""

    top: int
    left: int
    height: int
    width: int


class TrainTransform(Protocol):
    """A random transform for training; ``size`` is (h, w) of its result."""

    @property
    def size(self) -> Size: ...

    def __call__(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor: ...


@dataclass(frozen=True)
class ScaleJitter:
    """Short-side scale jitter and random crop, then a flip left to right with probability ``flip``.

    The frame is scaled so that the crop covers ``1 / s`` of its shorter side, ``s`` log-uniform in ``scale``: the X3D
    recipe, crop 160 out of short sides 182 to 228, is ``scale=(1.14, 1.43)``. Flips are off by default: left and right
    may be labels.
    """

    size: Size
    scale: tuple[float, float] = (1.0, 1.25)
    flip: float = 0.0
    normalisation: Normalisation = Normalisation()

    def __post_init__(self) -> None:
        if not 1 <= self.scale[0] <= self.scale[1] or not 0 <= self.flip <= 1:
            raise InvalidValue(f"transform: expected 1 <= scale and 0 <= flip <= 1, got {self}")

    def __call__(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """uint8 (T, H, W, 3) -> float32 (3, T, h, w)."""
        factor = math.exp(rng.uniform(math.log(self.scale[0]), math.log(self.scale[1])))
        height, width = _cover(frames.shape[1:3], self.size, factor)
        box = _place(frames.shape[1:3], height, width, rng)
        return self.normalisation(_cut(frames, box, self.size, flip=rng.uniform() < self.flip))


@dataclass(frozen=True)
class RandomResizedCrop:
    """A box of random area (share of the frame) and aspect ratio, as in image classification; flips as in ScaleJitter.

    Ten boxes are tried; if none fits into the frame, the largest centred box of the output's shape is taken.
    """

    size: Size
    area: tuple[float, float] = (0.35, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    normalisation: Normalisation = Normalisation()

    def __post_init__(self) -> None:
        if not 0 < self.area[0] <= self.area[1] <= 1 or not 0 < self.aspect[0] <= self.aspect[1]:
            raise InvalidValue(f"transform: expected 0 < area <= 1 and 0 < aspect, got {self}")

    def __call__(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """uint8 (T, H, W, 3) -> float32 (3, T, h, w)."""
        box = self._box(frames.shape[1], frames.shape[2], rng)
        return self.normalisation(_cut(frames, box, self.size, flip=rng.uniform() < self.flip))

    def _box(self, height: int, width: int, rng: np.random.Generator) -> Box:
        for _ in range(10):
            area = height * width * rng.uniform(*self.area)
            ratio = math.exp(rng.uniform(math.log(self.aspect[0]), math.log(self.aspect[1])))
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 1 <= h <= height and 1 <= w <= width:
                return _place((height, width), h, w, rng)
        return _centre((height, width), _cover((height, width), self.size, 1.0))


@dataclass(frozen=True)
class TestTransform:
    """What a test looks at: the centre (``crops=1``), or the ends and the centre of the longer side (``crops=3``).

    The frame is scaled so that the crop covers ``1 / scale`` of its shorter side.
    """

    __test__ = False  # not a test case, whatever pytest reads into the name

    size: Size
    crops: int = 1
    scale: float = 1.0
    normalisation: Normalisation = Normalisation()

    def __post_init__(self) -> None:
        if self.crops not in (1, 3) or self.scale < 1:
            raise InvalidValue(f"transform: expected 1 or 3 crops and a scale of at least 1, got {self}")

    def __call__(self, frames: Frames) -> torch.Tensor:
        """uint8 (T, H, W, 3) -> float32 (crops, 3, T, h, w); the crops in the order first end, centre, last end."""
        boxes = self.boxes(frames.shape[1], frames.shape[2])
        return torch.stack([self.normalisation(_cut(frames, box, self.size)) for box in boxes])

    def boxes(self, height: int, width: int) -> tuple[Box, ...]:
        """The crops in pixels of a frame."""
        box = _cover((height, width), self.size, self.scale)
        centre = _centre((height, width), box)
        if self.crops == 1:
            return (centre,)
        if height - box[0] > width - box[1]:
            ends = (Box(0, centre.left, *box), Box(height - box[0], centre.left, *box))
        else:
            ends = (Box(centre.top, 0, *box), Box(centre.top, width - box[1], *box))
        return (ends[0], centre, ends[1])


def _cover(frame: Size, size: Size, factor: float) -> Size:
    """Height and width of the largest box of the shape of ``size`` within ``frame``, divided by ``factor``."""
    scale = min(frame[0] / size[0], frame[1] / size[1]) / factor
    return max(1, min(frame[0], round(size[0] * scale))), max(1, min(frame[1], round(size[1] * scale)))


def _place(frame: Size, height: int, width: int, rng: np.random.Generator) -> Box:
    top, left = (int(rng.integers(0, room + 1)) for room in (frame[0] - height, frame[1] - width))
    return Box(top, left, height, width)


def _centre(frame: Size, box: Size) -> Box:
    return Box((frame[0] - box[0]) // 2, (frame[1] - box[1]) // 2, *box)


def _cut(frames: Frames, box: Box, size: Size, *, flip: bool = False) -> torch.Tensor:
    """The box of every frame at the output size: uint8 (T, H, W, 3) -> uint8 (T, 3, h, w)."""
    cut = frames[:, box.top : box.top + box.height, box.left : box.left + box.width]
    # A contiguous box, channels last in memory: the layout for which the uint8 resize is vectorised.
    tensor = torch.from_numpy(np.ascontiguousarray(cut)).permute(0, 3, 1, 2)
    if (box.height, box.width) != size:
        tensor = vision.resize(tensor, list(size), antialias=True)
    return tensor.flip(3) if flip else tensor
