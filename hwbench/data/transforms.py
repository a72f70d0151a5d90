"""From decoded frames to what a network takes: a box of every frame is resized to the input size and normalised.

A transform takes uint8 frames (T, H, W, 3) and gives float32 (3, T, h, w); its ``pictures`` stop before normalisation,
which is left to the device of the network. It draws from the generator it is handed and from nothing else, so a sample
depends on its seed alone. All frames of a clip get the same box. Pixels stay uint8 until the last step. ``Resize`` says
in which order a frame is cut and scaled, and with which filter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import torch

from hwbench.data.decoding import Frames
from hwbench.errors import InvalidValue

Size = tuple[int, int]


@dataclass(frozen=True)
class Normalisation:
    """``(pixel / 255 - mean) / std`` for each channel, R, G, B by default: the values of the X3D recipes."""

    mean: tuple[float, ...] = (0.45, 0.45, 0.45)
    std: tuple[float, ...] = (0.225, 0.225, 0.225)

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        """uint8 (..., T, C, H, W) -> float32 (..., C, T, H, W), contiguous, on the device of the frames."""
        scale = torch.tensor([1 / (255 * s) for s in self.std], device=frames.device).view(-1, 1, 1, 1)
        shift = torch.tensor([-m / s for m, s in zip(self.mean, self.std)], device=frames.device).view(-1, 1, 1, 1)
        # models of users may take a view of a clip; frames move while they are converted, which costs nothing more
        clip = frames.transpose(-4, -3).to(torch.float32, memory_format=torch.contiguous_format).contiguous()
        return torch.addcmul(shift, clip, scale)


class Resize(StrEnum):
    """How a frame becomes a picture of the output size.

    Attributes:
        BOX: The box is cut out of the frame and resized, bilinear with antialiasing.
        SHORT_SIDE: The whole frame is scaled so that its shorter side has a length, bilinear without antialiasing, the
            longer side rounded down; then the picture is cut out. PyTorchVideo and PySlowFast do so.
        SHORT_SIDE_ANTIALIASED: The same with antialiasing.
    """

    BOX = "box"
    SHORT_SIDE = "short-side"
    SHORT_SIDE_ANTIALIASED = "short-side-antialiased"

    @property
    def antialias(self) -> bool:
        """Whether the filter grows where pictures are made smaller."""
        return self is not Resize.SHORT_SIDE


@dataclass(frozen=True)
class PictureSpec:
    """How frames are scaled and cut, in training and in a test.

    Attributes:
        train_scale: The shorter side of a training frame over the crop, drawn from this range.
        test_scale: The shorter side of a test frame over the crop; three crops cover the shorter side whole.
        resize: The order of cutting and scaling, and the filter.
    """

    train_scale: tuple[float, float] = (1.0, 1.25)
    test_scale: float = 1.0
    resize: Resize = Resize.BOX

    def __post_init__(self) -> None:
        if not 1 <= self.train_scale[0] <= self.train_scale[1] or self.test_scale < 1:
            raise InvalidValue(f"picture: expected scales of at least 1, the smaller one first, got {self}")

    def to_plain(self) -> dict[str, Any]:
        """The fields by name, for a file."""
        return {"train_scale": list(self.train_scale), "test_scale": self.test_scale, "resize": str(self.resize)}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> PictureSpec:
        """What ``to_plain`` wrote.

        Raises:
            ValueError: A value that no picture has.
        """
        low, high = (float(value) for value in values["train_scale"])
        return cls((low, high), float(values["test_scale"]), Resize(values["resize"]))

    def test_transform(self, size: Size, crops: int, normalisation: Normalisation) -> TestTransform:
        """The test views of a network that takes any size: one centre crop of ``size``, or three of the shorter side.

        Three crops are ``test_scale`` times as large: X3D-XS is tested with one crop of 160 of frames of 182, or with
        three of 182.
        """
        if crops == 1:
            return self.fixed_transform(size, crops, normalisation)
        whole = (round(size[0] * self.test_scale), round(size[1] * self.test_scale))
        return TestTransform(whole, crops, 1.0, normalisation, self.resize)

    def fixed_transform(self, size: Size, crops: int, normalisation: Normalisation) -> TestTransform:
        """The test views of a network that takes one size, as a deployed file or one with the rounding of int8 does."""
        return TestTransform(size, crops, self.test_scale, normalisation, self.resize)


# What a function takes unless it is told otherwise.
PICTURE = PictureSpec()
NORMALISATION = Normalisation()
# What is uncovered and what is erased: the mean of X3D's normalisation, so that the network sees 0.
GREY = 115

# Fields that texts of runs of before do not have; they are written where they say something.
_ADDED: dict[str, Any] = {"resize": Resize.BOX}


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels of the frame."""

    top: int
    left: int
    height: int
    width: int

    def within(self, frame: Size, other: Size) -> Box:
        """The same part of a frame of another size, to the nearest pixel; one pixel at least.

        Args:
            frame: Height and width of the frame that the box lies in.
            other: Those of the other frame.
        """
        top, height = _rescaled(self.top, self.height, frame[0], other[0])
        left, width = _rescaled(self.left, self.width, frame[1], other[1])
        return Box(top, left, height, width)


class TrainTransform(Protocol):
    """A random transform for training; ``size`` is (h, w) of its result."""

    @property
    def size(self) -> Size: ...

    def with_size(self, size: Size) -> TrainTransform:
        """The same for another size of the result."""
        ...

    @property
    def normalisation(self) -> Normalisation:
        """From pictures to what a network takes."""
        ...

    def pictures(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """uint8 (T, H, W, 3) -> uint8 (T, 3, h, w)."""
        ...


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
    resize: Resize = Resize.BOX

    def __repr__(self) -> str:
        return _text(self)

    def __post_init__(self) -> None:
        if not 1 <= self.scale[0] <= self.scale[1] or not 0 <= self.flip <= 1:
            raise InvalidValue(f"transform: expected 1 <= scale and 0 <= flip <= 1, got {self}")

    def with_size(self, size: Size) -> ScaleJitter:
        """The same for another size of the result."""
        return replace(self, size=size)

    def __call__(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """uint8 (T, H, W, 3) -> float32 (3, T, h, w)."""
        return self.normalisation(self.pictures(frames, rng))

    def pictures(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """Before they are normalised: uint8 (T, H, W, 3) -> uint8 (T, 3, h, w)."""
        picture = self.crop(frames, rng)
        return picture.flip(3) if rng.uniform() < self.flip else picture

    def crop(self, frames: Frames, rng: np.random.Generator, frame: Size | None = None) -> torch.Tensor:
        """A random place at a random scale: uint8 (T, H, W, 3) -> uint8 (T, 3, h, w).

        Args:
            frames: What is cut.
            rng: What is drawn from.
            frame: Height and width of other frames of the same clip, whose crop by the same numbers is followed; None:
                those of ``frames``.
        """
        own = frames.shape[1:3]
        frame = frame or own
        factor = math.exp(rng.uniform(math.log(self.scale[0]), math.log(self.scale[1])))
        if self.resize is not Resize.BOX:
            scaled = _scaled(frames, _scaled_size(frame, self.size, factor), self.resize)
            return _picture(scaled, _place((scaled.shape[2], scaled.shape[3]), *self.size, rng))
        height, width = _cover(frame, self.size, factor)
        return _cut(frames, _place(frame, height, width, rng).within(frame, own), self.size)


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

    def with_size(self, size: Size) -> RandomResizedCrop:
        """The same for another size of the result."""
        return replace(self, size=size)

    def __call__(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """uint8 (T, H, W, 3) -> float32 (3, T, h, w)."""
        return self.normalisation(self.pictures(frames, rng))

    def pictures(self, frames: Frames, rng: np.random.Generator) -> torch.Tensor:
        """Before they are normalised: uint8 (T, H, W, 3) -> uint8 (T, 3, h, w)."""
        picture = self.crop(frames, rng)
        return picture.flip(3) if rng.uniform() < self.flip else picture

    def crop(self, frames: Frames, rng: np.random.Generator, frame: Size | None = None) -> torch.Tensor:
        """A random box at the output size: uint8 (T, H, W, 3) -> uint8 (T, 3, h, w); ``frame`` as in ScaleJitter."""
        own = frames.shape[1:3]
        frame = frame or own
        return _cut(frames, self._box(*frame, rng).within(frame, own), self.size)

    def _box(self, height: int, width: int, rng: np.random.Generator) -> Box:
        box = random_box((height, width), self.area, self.aspect, (height, width), rng)
        return box or _centre((height, width), _cover((height, width), self.size, 1.0))


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
    resize: Resize = Resize.BOX

    def __repr__(self) -> str:
        return _text(self)

    def __post_init__(self) -> None:
        if self.crops not in (1, 3) or self.scale < 1:
            raise InvalidValue(f"transform: expected 1 or 3 crops and a scale of at least 1, got {self}")

    def __call__(self, frames: Frames) -> torch.Tensor:
        """uint8 (T, H, W, 3) -> float32 (crops, 3, T, h, w); the crops in the order first end, centre, last end."""
        return torch.stack([self.normalisation(picture) for picture in self.pictures(frames)])

    def pictures(self, frames: Frames) -> list[torch.Tensor]:
        """The crops before they are normalised: uint8 (T, H, W, 3) -> uint8 (T, 3, h, w) each."""
        if self.resize is Resize.BOX:
            boxes = self.boxes(frames.shape[1], frames.shape[2])
            return [_cut(frames, box, self.size) for box in boxes]
        scaled = _scaled(frames, _scaled_size(frames.shape[1:3], self.size, self.scale), self.resize)
        return [_picture(scaled, box) for box in self._places((scaled.shape[2], scaled.shape[3]))]

    def _places(self, frame: Size) -> tuple[Box, ...]:
        """The crops in a scaled frame, at the places of PyTorchVideo's ``CenterCrop`` and ``UniformCropVideo``."""
        rooms = [full - crop for full, crop in zip(frame, self.size)]
        if self.crops == 1:
            top, left = (round(room / 2) for room in rooms)  # halves to even
            return (Box(top, left, *self.size),)
        top, left = (math.ceil(room / 2) for room in rooms)
        if frame[0] > frame[1]:
            return tuple(Box(place, left, *self.size) for place in (0, top, rooms[0]))
        return tuple(Box(top, place, *self.size) for place in (0, left, rooms[1]))

    def boxes(self, height: int, width: int) -> tuple[Box, ...]:
        """The crops in pixels of a frame, where the box is cut first."""
        box = _cover((height, width), self.size, self.scale)
        centre = _centre((height, width), box)
        if self.crops == 1:
            return (centre,)
        if height - box[0] > width - box[1]:
            ends = (Box(0, centre.left, *box), Box(height - box[0], centre.left, *box))
        else:
            ends = (Box(centre.top, 0, *box), Box(centre.top, width - box[1], *box))
        return (ends[0], centre, ends[1])


def random_box(
    frame: Size, area: tuple[float, float], aspect: tuple[float, float], most: Size, rng: np.random.Generator
) -> Box | None:
    """A box at a random place, of random area (share of the frame) and aspect ratio (log-uniform), in ten attempts.

    Args:
        frame: Height and width of the frame.
        area: Smallest and largest share.
        aspect: Smallest and largest width over height.
        most: Largest height and width.
        rng: What is drawn from.

    Returns:
        None where no attempt was small enough.
    """
    for _ in range(10):
        pixels = frame[0] * frame[1] * rng.uniform(*area)
        ratio = math.exp(rng.uniform(math.log(aspect[0]), math.log(aspect[1])))
        h, w = round(math.sqrt(pixels / ratio)), round(math.sqrt(pixels * ratio))
        if 1 <= h <= most[0] and 1 <= w <= most[1]:
            return _place(frame, h, w, rng)
    return None


def _cover(frame: Size, size: Size, factor: float) -> Size:
    """Height and width of the largest box of the shape of ``size`` within ``frame``, divided by ``factor``."""
    scale = min(frame[0] / size[0], frame[1] / size[1]) / factor
    return max(1, min(frame[0], round(size[0] * scale))), max(1, min(frame[1], round(size[1] * scale)))


def _place(frame: Size, height: int, width: int, rng: np.random.Generator) -> Box:
    top, left = (int(rng.integers(0, room + 1)) for room in (frame[0] - height, frame[1] - width))
    return Box(top, left, height, width)


def _centre(frame: Size, box: Size) -> Box:
    return Box((frame[0] - box[0]) // 2, (frame[1] - box[1]) // 2, *box)


def _rescaled(start: int, length: int, whole: int, other: int) -> tuple[int, int]:
    """Start and length of a range of pixels where the ``whole`` side has ``other`` pixels."""
    first, last = round(start * other / whole), round((start + length) * other / whole)
    first = min(first, other - 1)
    return first, max(1, last - first)


def _scaled_size(frame: Size, size: Size, factor: float) -> Size:
    """Height and width of a frame whose side that limits a crop of ``size`` is scaled to ``factor`` times that."""
    limit = 1 if frame[1] / size[1] < frame[0] / size[0] else 0
    side = round(size[limit] * factor)
    # The float operations in PyTorchVideo's order: a length that is a whole number may come out one shorter.
    other = max(size[1 - limit], math.floor(frame[1 - limit] / frame[limit] * side))
    return (side, other) if limit == 0 else (other, side)


def _scaled(frames: Frames, size: Size, resize: Resize) -> torch.Tensor:
    """Whole frames at a size: uint8 (T, 3, h, w)."""
    return _resized(torch.from_numpy(frames).permute(0, 3, 1, 2), list(size), antialias=resize.antialias)


def _picture(scaled: torch.Tensor, box: Box) -> torch.Tensor:
    return scaled[:, :, box.top : box.top + box.height, box.left : box.left + box.width]


def _text(transform: Any) -> str:
    """The text of a transform without the fields that were added later and have their default."""
    values = ((field.name, getattr(transform, field.name)) for field in fields(transform))
    kept = (f"{name}={value!r}" for name, value in values if name not in _ADDED or value != _ADDED[name])
    return f"{type(transform).__qualname__}({', '.join(kept)})"


def _cut(frames: Frames, box: Box, size: Size) -> torch.Tensor:
    """The box of every frame at the output size: uint8 (T, H, W, 3) -> uint8 (T, 3, h, w)."""
    cut = frames[:, box.top : box.top + box.height, box.left : box.left + box.width]
    # A contiguous box, channels last in memory: the layout for which the uint8 resize is vectorised.
    tensor = torch.from_numpy(np.ascontiguousarray(cut)).permute(0, 3, 1, 2)
    if (box.height, box.width) != size:
        tensor = _resized(tensor, list(size), antialias=True)
    return tensor


def _resized(pictures: torch.Tensor, size: list[int], *, antialias: bool) -> torch.Tensor:
    from torchvision.transforms.v2 import functional as vision  # takes a second and a half to import

    return vision.resize(pictures, size, antialias=antialias)  # type: ignore[no-any-return]
