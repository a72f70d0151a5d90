"""Seeded noise in the place of clips, as large as the numbers that a network is made for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch

from hwbench.data.transforms import NORMALISATION

if TYPE_CHECKING:
    from hwbench.deploy.source import ExportSource

# Clips of noise that a file with random weights and no data is compared on.
NOISE_CLIPS = 8


def as_pixels(noise: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Normal noise (N, C, ...) as the normalised pixels of ordinary videos.

    Pixels are drawn about 0.45 with a deviation of 0.225, by which the recipes of X3D normalise: there the noise stays
    what it is.

    Args:
        noise: Of mean 0 and deviation 1; left as it is.
        mean: Of the normalisation, for each channel, pixels from 0 to 1.
        std: As ``mean``.
    """
    shape = (1, -1, *(1 for _ in noise.shape[2:]))
    usual, deviation = NORMALISATION.mean[0], NORMALISATION.std[0]
    scale = torch.tensor([deviation / s for s in std]).view(shape)
    shift = torch.tensor([(usual - m) / s for m, s in zip(mean, std, strict=True)]).view(shape)
    return noise * scale + shift


def noise_clips(original: ExportSource, count: int) -> list[torch.Tensor]:
    """Clips (1, C, T, H, W) of seed 0 for a network, normalised as its clips are."""
    chance, normalisation = torch.Generator().manual_seed(0), original.normalisation
    drawn = (torch.randn(original.network.input.shape, generator=chance) for _ in range(count))
    return [as_pixels(noise, normalisation.mean, normalisation.std) for noise in drawn]


class NoiseViews:
    """Noise in the place of clips, as ``hwbench.deploy.parity.Views``."""

    def __init__(self, original: ExportSource) -> None:
        self._clips = noise_clips(original, NOISE_CLIPS)

    def __len__(self) -> int:
        return len(self._clips)

    def views(self) -> Iterator[tuple[int, torch.Tensor]]:
        """As of ``Clips``; each is a video of its own."""
        yield from enumerate(self._clips)
