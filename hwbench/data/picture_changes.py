"""Changes of the pictures of a clip, uint8 (T, 3, h, w) -> the same, by torchvision; imported where one is drawn.

Importing torchvision takes a second and a half, which a process that changes no pictures does not spend.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torchvision.transforms.v2 import functional as vision

from hwbench.data.transforms import GREY

brightness = vision.adjust_brightness
saturation = vision.adjust_saturation
hue = vision.adjust_hue


def contrast(pictures: torch.Tensor, factor: float) -> torch.Tensor:
    """Towards or away from the mean grey of the whole clip, so that no frame flickers."""
    mean = vision.rgb_to_grayscale(pictures).float().mean()
    return torch.lerp(mean, pictures.float(), factor).round().clamp(0, 255).to(torch.uint8)


def _tall(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A change that takes statistics of a picture, over the clip as one tall picture: all frames change alike."""

    def changed(pictures: torch.Tensor) -> torch.Tensor:
        frames, colours, height, width = pictures.shape
        tall = pictures.transpose(0, 1).reshape(colours, frames * height, width)
        return change(tall).view(colours, frames, height, width).transpose(0, 1)

    return changed


def _affine(
    pictures: torch.Tensor, angle: float = 0, right: float = 0, down: float = 0, shear: tuple[float, float] = (0, 0)
) -> torch.Tensor:
    moved: torch.Tensor = vision.affine(
        pictures,
        angle=angle,
        translate=[right * pictures.shape[3], down * pictures.shape[2]],
        scale=1.0,
        shear=list(shear),
        interpolation=vision.InterpolationMode.BILINEAR,
        fill=[float(GREY)] * 3,
    )
    return moved


# Operation of (pictures, strength 0 to 1, sign); the ranges are those of the papers' code: 30 degrees, a shear of 0.3,
# a shift of 0.45 of the picture, factors of 0.1 to 1.9.
OPERATIONS: tuple[Callable[[torch.Tensor, float, int], torch.Tensor], ...] = (
    lambda x, strength, sign: _tall(vision.autocontrast)(x),
    lambda x, strength, sign: _tall(vision.equalize)(x),
    lambda x, strength, sign: vision.invert(x),
    lambda x, strength, sign: _affine(x, angle=30 * strength * sign),
    lambda x, strength, sign: vision.posterize(x, 8 - round(4 * strength)),
    lambda x, strength, sign: vision.solarize(x, 256 * (1 - strength)) if strength >= 1 / 256 else x,
    lambda x, strength, sign: saturation(x, 1 + 0.9 * strength * sign),
    lambda x, strength, sign: contrast(x, 1 + 0.9 * strength * sign),
    lambda x, strength, sign: brightness(x, 1 + 0.9 * strength * sign),
    lambda x, strength, sign: vision.adjust_sharpness(x, 1 + 0.9 * strength * sign) if min(x.shape[2:]) > 2 else x,
    lambda x, strength, sign: _affine(x, shear=(math.degrees(math.atan(0.3 * strength)) * sign, 0)),
    lambda x, strength, sign: _affine(x, shear=(0, math.degrees(math.atan(0.3 * strength)) * sign)),
    lambda x, strength, sign: _affine(x, right=0.45 * strength * sign),
    lambda x, strength, sign: _affine(x, down=0.45 * strength * sign),
)
