"""Log-mel spectrograms against their definition and known values, and masks on them."""

import math

import numpy as np
import pytest
import torch

from hwbench.data.mel import MelScale, MelSpec, mel_triangles
from hwbench.data.spec_augment import SpecAugment
from hwbench.errors import InvalidValue

SPECS = [
    MelSpec(),
    MelSpec(scale=MelScale.HTK, mels=40, low_hz=20, high_hz=7600),
    MelSpec(rate=48000, window=1024, hop=512, n_fft=1024, mels=64),
    MelSpec(rate=8000, window=199, hop=77, n_fft=256, mels=1),
]


def by_definition(samples: np.ndarray, spec: MelSpec) -> np.ndarray:
    """The logarithms that the module's text defines, sum by sum: float64 (mels, frames)."""
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(spec.window) / spec.window)
    before = (spec.n_fft - spec.window) // 2
    frame = np.zeros(spec.n_fft)
    frame[before : before + spec.window] = hann
    padded = np.concatenate([np.zeros(spec.n_fft // 2), samples, np.zeros(spec.n_fft // 2)])
    turns = np.outer(np.arange(spec.n_fft // 2 + 1), np.arange(spec.n_fft)) / spec.n_fft
    waves = np.exp(-2j * np.pi * turns)
    columns = []
    for m in range(len(samples) // spec.hop + 1):
        power = np.abs(waves @ (frame * padded[m * spec.hop : m * spec.hop + spec.n_fft])) ** 2
        columns.append(np.log(np.maximum(mel_triangles(spec) @ power, spec.floor)))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("samples", [1, 1000, 4801])
def test_a_spectrogram_is_what_the_definition_says(spec: MelSpec, samples: int) -> None:
    sound = np.random.default_rng(samples).normal(size=(2, samples)).astype(np.float32)
    made = spec(torch.from_numpy(sound))
    assert made.shape == (2, spec.mels, spec.frames(samples))
    for row, channel in zip(made.numpy(), sound.astype(np.float64)):
        np.testing.assert_allclose(row, by_definition(channel, spec), atol=2e-3)


def test_silence_is_the_floor_and_no_samples_are_one_frame() -> None:
    assert MelSpec()(torch.zeros(1600)).unique().tolist() == pytest.approx([math.log(1e-10)])
    assert MelSpec()(torch.zeros(0)).shape == (80, 1)


def test_a_tone_is_where_its_pitch_is() -> None:
    spec = MelSpec()
    tone = torch.sin(2 * math.pi * 1000 * torch.arange(16000) / 16000)
    peak = int(spec(tone).mean(dim=1).argmax())
    centres = np.linspace(0, MelScale.SLANEY.mel(8000), 82)[1:-1]
    assert abs(centres[peak] - 15) < centres[1] - centres[0]


def test_mel_scales_have_their_known_values() -> None:
    """1 kHz is 1000 mel (HTK) and 15 (Slaney); the triangles of librosa's documentation."""
    assert MelScale.HTK.mel(1000) == pytest.approx(1000, abs=0.02)
    assert [MelScale.SLANEY.mel(f) for f in (200, 1000, 6400)] == pytest.approx([3, 15, 42])
    for scale in MelScale:
        assert [scale.hertz(scale.mel(f)) for f in (0, 60, 999, 1001, 9000)] == pytest.approx([0, 60, 999, 1001, 9000])
    corners = [MelScale.SLANEY.hertz(mel) for mel in np.linspace(0, MelScale.SLANEY.mel(11025), 40)]
    assert corners[1:4] == pytest.approx([85.317, 170.635, 255.952], abs=1e-3)
    assert corners[-3:-1] == pytest.approx([9246.028, 10096.408], abs=1e-3)
    triangles = mel_triangles(MelSpec(rate=22050, window=2048, n_fft=2048, mels=128))
    assert triangles[0, :2] == pytest.approx([0, 0.016], abs=5e-4)
    assert mel_triangles(MelSpec(scale=MelScale.HTK, n_fft=4096)).max() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    "wrong", [{"hop": 0}, {"window": 600}, {"n_fft": 511}, {"high_hz": 9000.0}, {"low_hz": 8000.0}, {"floor": 0.0}]
)
def test_numbers_that_make_no_spectrogram_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValue, match="mel: expected"):
        MelSpec(**wrong)  # type: ignore[arg-type]


def test_masks_hide_bands_of_the_drawn_widths() -> None:
    shown = torch.randn(40, 200, generator=torch.Generator().manual_seed(0))
    kept, augment = shown.clone(), SpecAugment(mel_width=10, mel_masks=2, time_width=30, time_masks=2, time_share=0.1)
    hidden_mels, hidden_frames = set(), set()
    for seed in range(200):
        masked = augment(shown, np.random.default_rng(seed))
        hidden = masked == shown.mean()
        assert torch.equal(masked[~hidden], shown[~hidden])
        hidden_mels.add(int(hidden.all(dim=1).sum()))
        hidden_frames.add(int(hidden.all(dim=0).sum()))
    assert torch.equal(shown, kept)
    assert min(hidden_mels) == 0
    assert 15 <= max(hidden_mels) <= 20
    assert min(hidden_frames) <= 2
    assert 35 <= max(hidden_frames) <= 40  # two masks of a tenth of 200 frames at most


def test_masks_follow_from_the_generator_alone() -> None:
    shown = torch.randn(40, 200, generator=torch.Generator().manual_seed(0))
    one, same, other = (SpecAugment()(shown, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    nothing = SpecAugment(mel_masks=0, time_masks=0)
    assert torch.equal(nothing(shown, np.random.default_rng(0)), shown)
    assert SpecAugment()(torch.zeros(1, 1), np.random.default_rng(0)).shape == (1, 1)
    with pytest.raises(InvalidValue, match="spec-augment"):
        SpecAugment(time_share=2)
