"""Log-mel spectrograms: the energy of a sound by time and pitch, as networks for sound take it.

Frame ``m`` looks at ``window`` samples around sample ``m * hop`` under a periodic Hann window; behind both ends there
are zeros. ``S`` samples make ``S // hop + 1`` frames. The power spectrum of ``n_fft`` values is summed by triangles
that are evenly apart in mel; the result is the natural logarithm of the sums, of ``floor`` at least.

Two scales are in use. ``slaney`` (Auditory Toolbox, 1998): linear below 1 kHz and logarithmic above, each triangle of
area 1 in Hz: what librosa does. ``htk`` (Young et al., The HTK Book, eq. 5.13): ``2595 log10(1 + f / 700)``, each
triangle of height 1: what torchaudio does. A network has to be given the one that it was trained with.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import torch

from hwbench.errors import InvalidValue

_Values = npt.NDArray[np.float64]

# Slaney's scale: 200/3 Hz a mel up to 1 kHz (mel 15), above it 27 mels from there to 6.4 kHz.
_LINEAR_HZ, _KNEE_HZ = 200 / 3, 1000.0
_KNEE_MEL = _KNEE_HZ / _LINEAR_HZ
_LOG_STEP = math.log(6.4) / 27


class MelScale(StrEnum):
    """How pitch is measured, and how high the triangles are; see above."""

    SLANEY = "slaney"
    HTK = "htk"

    def mel(self, hertz: float) -> float:
        """The pitch of a frequency."""
        if self is MelScale.HTK:
            return 2595 * math.log10(1 + hertz / 700)
        return hertz / _LINEAR_HZ if hertz < _KNEE_HZ else _KNEE_MEL + math.log(hertz / _KNEE_HZ) / _LOG_STEP

    def hertz(self, mel: float) -> float:
        """The frequency of a pitch."""
        if self is MelScale.HTK:
            return 700 * (10 ** (mel / 2595) - 1)
        return mel * _LINEAR_HZ if mel < _KNEE_MEL else _KNEE_HZ * math.exp((mel - _KNEE_MEL) * _LOG_STEP)


@dataclass(frozen=True)
class MelSpec:
    """A spectrogram by its numbers. The defaults are windows of 25 ms, 10 ms apart, at 16 kHz.

    Attributes:
        rate: Samples a second.
        window: Samples that a frame looks at.
        hop: Samples from one frame to the next.
        n_fft: Values that the Fourier transform takes, an even number: ``window``, and zeros on both sides.
        mels: Number of triangles.
        low_hz: Where the first one begins.
        high_hz: Where the last one ends; None: at half the rate.
        scale: Of pitch.
        floor: The least sum whose logarithm is taken.

    Raises:
        InvalidValue: Numbers that make no spectrogram.
    """

    rate: int = 16000
    window: int = 400
    hop: int = 160
    n_fft: int = 512
    mels: int = 80
    low_hz: float = 0.0
    high_hz: float | None = None
    scale: MelScale = MelScale.SLANEY
    floor: float = 1e-10

    def __post_init__(self) -> None:
        if min(self.rate, self.hop, self.mels) < 1 or not 1 < self.window <= self.n_fft or self.n_fft % 2:
            raise InvalidValue(f"mel: expected 1 < window <= n_fft, n_fft even, and rate, hop, mels >= 1, got {self}")
        if self.floor <= 0:
            raise InvalidValue(f"mel: expected a floor above 0, got {self}")
        if not 0 <= self.low_hz < self.top_hz <= self.rate / 2:
            raise InvalidValue(f"mel: expected 0 <= low_hz < high_hz <= {self.rate / 2:g} (half the rate), got {self}")

    @property
    def top_hz(self) -> float:
        """Where the last triangle ends."""
        return self.rate / 2 if self.high_hz is None else self.high_hz

    def frames(self, samples: int) -> int:
        """Frames of so many samples."""
        return samples // self.hop + 1

    def __call__(self, samples: torch.Tensor) -> torch.Tensor:
        """float32 (..., S) -> float32 (..., mels, frames), on the device of the samples."""
        flat = samples.reshape(math.prod(samples.shape[:-1]), samples.shape[-1])
        window = torch.hann_window(self.window, device=samples.device)
        spectrum = torch.stft(
            torch.nn.functional.pad(flat, (self.n_fft // 2, self.n_fft // 2)),
            *(self.n_fft, self.hop, self.window),
            window=window,
            center=False,
            return_complex=True,
        )
        triangles = torch.from_numpy(mel_triangles(self)).to(samples.device, torch.float32)
        energies = (triangles @ spectrum.abs().square()).clamp_min(self.floor).log()
        return energies.reshape(*samples.shape[:-1], *energies.shape[1:])


@functools.lru_cache(16)
def mel_triangles(spec: MelSpec) -> _Values:
    """The weight of each frequency of the Fourier transform in each triangle: float64 (mels, n_fft // 2 + 1)."""
    scale, points = spec.scale, np.linspace(spec.scale.mel(spec.low_hz), spec.scale.mel(spec.top_hz), spec.mels + 2)
    corners = np.array([scale.hertz(float(point)) for point in points])
    frequencies = np.arange(spec.n_fft // 2 + 1) * spec.rate / spec.n_fft
    left, peak, right = (corners[place : place + spec.mels, None] for place in range(3))
    rising, falling = (frequencies - left) / (peak - left), (right - frequencies) / (right - peak)
    triangles: _Values = np.maximum(0, np.minimum(rising, falling))
    return triangles * (2 / (right - left)) if scale is MelScale.SLANEY else triangles
