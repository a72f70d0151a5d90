"""SpecAugment (Park et al. 2019, arXiv:1904.08779): bands of pitch and stretches of time of a spectrogram are hidden.

Time warping is left out: of the three it costs most and, as the paper finds, helps least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from hwbench.errors import InvalidValue


@dataclass(frozen=True)
class SpecAugment:
    """Masks of random place and width; table 1 of the paper has the numbers of its policies. The defaults are LB's.

    Draws from the generator of its sample alone, as the training transforms of pictures do: for each mask its width,
    ``U{0..most}``, and then its place. What is hidden becomes the mean of the spectrogram, which is 0 in the paper,
    where spectrograms have the mean 0.

    Attributes:
        mel_width: The most mels of one mask, F.
        mel_masks: Number of masks, m_F.
        time_width: The most frames of one mask, T.
        time_masks: Number of masks, m_T.
        time_share: The most frames of one mask as a share of all, p.

    Raises:
        InvalidValue: A negative number, or a share of more than 1.
    """

    mel_width: int = 27
    mel_masks: int = 1
    time_width: int = 100
    time_masks: int = 1
    time_share: float = 1.0

    def __post_init__(self) -> None:
        numbers = (self.mel_width, self.mel_masks, self.time_width, self.time_masks)
        if min(numbers) < 0 or not 0 <= self.time_share <= 1:
            raise InvalidValue(f"spec-augment: expected whole numbers from 0 and a share of 0 to 1, got {self}")

    def __call__(self, spectrogram: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """float32 (mels, frames) -> the same; the input is left unmodified."""
        masked, mean = spectrogram.clone(), spectrogram.mean()
        mels, frames = spectrogram.shape
        for _ in range(self.mel_masks):
            masked[_band(mels, self.mel_width, rng)] = mean
        for _ in range(self.time_masks):
            masked[:, _band(frames, min(self.time_width, int(self.time_share * frames)), rng)] = mean
        return masked


def _band(length: int, most: int, rng: np.random.Generator) -> slice:
    width = int(rng.integers(0, min(most, length) + 1))
    start = int(rng.integers(0, length - width + 1))
    return slice(start, start + width)
