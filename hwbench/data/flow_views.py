"""The same view of optical flow as of the pictures: the same box, scaled alike, and mirrored where they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from hwbench.data.augmentations import Augmentation, Flip
from hwbench.data.decoding import Frames
from hwbench.data.transforms import RandomResizedCrop, ScaleJitter, Size, TestTransform, TrainTransform
from hwbench.errors import InvalidValue

# uint8 (T, H, W, 2) -> uint8 (V, T, 2, h, w).
FlowView = Callable[[Frames], torch.Tensor]


def test_view(transform: TestTransform) -> FlowView:
    """All crops of a test."""
    return lambda codes: torch.stack(transform.pictures(_as_colours(codes)))[:, :, :2]


def training_view(transform: TrainTransform, rng: np.random.Generator, frame: Size | None = None) -> FlowView:
    """The random view that a transform of pictures takes with this generator, which is used up.

    Changes of colour are none of flow. Turns and shears of ``rand-augment`` and ``aug-mix`` are not followed.

    Args:
        transform: What pictures go through.
        rng: As it was before the pictures were cut.
        frame: Height and width of the pictures, whose box is taken in flow of any size; None: there are no pictures.
    """

    def view(codes: Frames) -> torch.Tensor:
        followed, frames = check_followed(transform), _as_colours(codes)
        if not isinstance(followed, Augmentation):
            pictures = followed.crop(frames, rng, frame)
            flips = int(rng.uniform() < followed.flip)
        else:
            pictures, flips = followed.crop.crop(frames, rng, frame), 0
            for step in followed.steps:
                if isinstance(step, Flip):
                    flips += int(rng.uniform() < step.probability)
                else:
                    step(pictures, rng)  # for what it draws: the steps behind it are to draw the same
        return (_mirrored(pictures[:, :2]) if flips % 2 else pictures[:, :2]).unsqueeze(0)

    return view


def check_followed(transform: TrainTransform) -> ScaleJitter | RandomResizedCrop | Augmentation:
    """The transform, whose box flow can be cut to.

    Raises:
        InvalidValue: It is none of hwbench's own.
    """
    if isinstance(transform, ScaleJitter | RandomResizedCrop | Augmentation):
        return transform
    raise InvalidValue(
        f"flow: expected a transform of hwbench's own, whose box flow is cut to, got {type(transform).__name__}"
    )


def _as_colours(codes: Frames) -> Frames:
    """With a third channel, as pictures have it."""
    return np.concatenate([codes, codes[..., :1]], axis=-1)


def _mirrored(flow: torch.Tensor) -> torch.Tensor:
    """Left to right, so that what went to the right goes to the left: uint8 (T, 2, h, w)."""
    across, down = flow.flip(3).unbind(dim=1)
    return torch.stack([255 - across, down], dim=1)
