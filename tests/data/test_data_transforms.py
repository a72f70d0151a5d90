import numpy as np
import pytest
import torch

from hwbench.data.transforms import Box, Normalisation, RandomResizedCrop, ScaleJitter, Size, TestTransform
from hwbench.errors import InvalidValue


def position_frames(height: int, width: int, count: int = 2) -> np.ndarray:
    """Red tells the row and green the column of a pixel, blue the frame."""
    frames = np.zeros((count, height, width, 3), np.uint8)
    frames[..., 0] = np.arange(height)[:, None]
    frames[..., 1] = np.arange(width)
    frames[..., 2] = np.arange(count)[:, None, None] * 50
    return frames


def pixels(clip: torch.Tensor) -> np.ndarray:
    """A normalised clip (3, T, H, W) back as numbers 0-255."""
    return ((clip * 0.225 + 0.45) * 255).numpy()


def test_normalisation() -> None:
    frames = torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2).expand(4, 3, 5, 2)
    out = Normalisation()(frames)
    assert out.shape == (3, 4, 5, 2)
    assert out.dtype == torch.float32
    assert torch.allclose(out[..., 0], torch.tensor(-2.0))
    assert torch.allclose(out[..., 1], torch.tensor((1 - 0.45) / 0.225))
    own = Normalisation((0.1, 0.2, 0.3), (1.0, 2.0, 3.0))(frames)
    assert torch.allclose(own[:, 0, 0, 1], torch.tensor([0.9, 0.4, 0.7 / 3]))


@pytest.mark.parametrize("transform", [ScaleJitter((32, 32)), RandomResizedCrop((32, 32))])
@pytest.mark.parametrize("shape", [(48, 64), (64, 48), (31, 97), (32, 32), (20, 20), (1, 1)])
def test_training_gives_the_same_clip_for_the_same_seed(transform: ScaleJitter, shape: tuple[int, int]) -> None:
    frames = position_frames(*shape)
    first, again, other = (transform(frames, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert first.shape == (3, 2, 32, 32)
    assert torch.equal(first, again)
    if shape == (48, 64):
        assert not torch.equal(first, other)
    # blue is the frame's number: no frame is mixed with another
    assert np.allclose(pixels(first)[2].reshape(2, -1).T, [0, 50], atol=1e-3)


def test_scale_jitter_covers_what_it_promises() -> None:
    frames = position_frames(100, 150)
    rng = np.random.default_rng(0)
    heights = []
    for _ in range(200):
        row = pixels(ScaleJitter((50, 50), scale=(1.0, 2.0))(frames, rng))[0, 0, :, 0]
        heights.append((row[-1] - row[0]) * 50 / 49)
    assert 48 < min(heights) < 55
    assert 95 < max(heights) < 102


def test_flips_are_off_unless_asked_for() -> None:
    frames = position_frames(40, 40)
    rng = np.random.default_rng(0)
    for _ in range(20):
        columns = pixels(ScaleJitter((32, 32))(frames, rng))[1, 0, 0]
        assert columns[-1] > columns[0]
    columns = pixels(ScaleJitter((32, 32), flip=0.999999)(frames, rng))[1, 0, 0]
    assert columns[-1] < columns[0]


def test_three_crops_are_the_ends_and_the_centre_of_the_longer_side() -> None:
    wide = TestTransform((30, 30), crops=3).boxes(60, 100)
    assert wide == (Box(0, 0, 60, 60), Box(0, 20, 60, 60), Box(0, 40, 60, 60))
    tall = TestTransform((30, 30), crops=3).boxes(100, 60)
    assert tall == (Box(0, 0, 60, 60), Box(20, 0, 60, 60), Box(40, 0, 60, 60))
    assert TestTransform((30, 30), scale=1.2).boxes(60, 60) == (Box(5, 5, 50, 50),)
    assert TestTransform((30, 60)).boxes(60, 60) == (Box(15, 0, 30, 60),)
    clip = TestTransform((30, 30), crops=3)(position_frames(60, 100))
    assert clip.shape == (3, 3, 2, 30, 30)
    assert pixels(clip[2])[1, 0, 0].min() >= 40


def test_a_frame_of_the_right_size_is_not_resampled() -> None:
    frames = position_frames(32, 32)
    clip = TestTransform((32, 32))(frames)[0]
    assert np.array_equal(pixels(clip).round().astype(np.uint8), frames.transpose(3, 0, 1, 2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ScaleJitter((32, 32), scale=(0.5, 1)),
        lambda: ScaleJitter((32, 32), flip=2),
        lambda: RandomResizedCrop((32, 32), area=(0, 1)),
        lambda: TestTransform((32, 32), crops=2),
        lambda: TestTransform((32, 32), scale=0.5),
    ],
)
def test_impossible_settings_are_refused(make: object) -> None:
    with pytest.raises(InvalidValue, match="transform"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("box", "other", "expected"),
    [
        (Box(3, 5, 10, 20), (48, 80), Box(3, 5, 10, 20)),
        (Box(4, 8, 20, 40), (24, 40), Box(2, 4, 10, 20)),
        (Box(0, 0, 48, 80), (11, 7), Box(0, 0, 11, 7)),
        (Box(47, 79, 1, 1), (5, 1), Box(4, 0, 1, 1)),
        (Box(4, 8, 20, 40), (480, 800), Box(40, 80, 200, 400)),
    ],
)
def test_a_box_is_the_same_part_of_a_frame_of_another_size(box: Box, other: Size, expected: Box) -> None:
    assert box.within((48, 80), other) == expected
