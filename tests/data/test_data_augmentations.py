import numpy as np
import pytest
import torch
from video_files import MakeVideo

from hwbench.data import ClipSpec, ScaleJitter, TrainingClips, VideoList
from hwbench.data.augmentations import (
    Augmentation,
    RandAugment,
    TemporalJitter,
    TransformSpec,
    augmentation,
    steps,
)
from hwbench.data.loading import Loader
from hwbench.data.picture_changes import OPERATIONS
from hwbench.errors import InvalidValue, UnknownName

CROP = ScaleJitter((32, 40))
EVERY = [
    "temporal-jitter:2",
    "random-resized-crop:0.3-0.9,0.8-1.2",
    "flip:0.5",
    "rand-augment:2,9",
    "aug-mix:3,2",
    "colour-jitter:0.4,0.4,0.4,0.1",
    "random-erasing:0.5",
]


def noise(count: int = 3, height: int = 48, width: int = 64) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3)).astype(np.uint8)


def still(count: int = 4) -> np.ndarray:
    """The same picture in every frame."""
    return np.repeat(noise(1), count, axis=0)


@pytest.mark.parametrize("text", [*EVERY[1:], "scale-jitter:1.14-1.43", *steps.names()])
def test_all_frames_get_the_same_change_and_a_seed_the_same_sample(text: str) -> None:
    transform = augmentation([text], CROP)
    clips = []
    for seed in range(12):
        clip, again = (transform(still(), np.random.default_rng(seed)) for _ in range(2))
        assert torch.equal(clip, again)
        assert clip.shape == (3, 4, 32, 40)
        assert clip.dtype == torch.float32
        assert torch.equal(clip, clip[:, :1].expand_as(clip))
        clips.append(clip)
    assert any(not torch.equal(clips[0], clip) for clip in clips[1:])


@pytest.mark.parametrize("place", range(len(OPERATIONS)))
@pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(3, 32, 40), (1, 7, 5), (2, 1, 1)])
def test_every_operation_keeps_shape_and_type(place: int, strength: float, shape: tuple[int, int, int]) -> None:
    count, height, width = shape
    pictures = torch.from_numpy(noise(count, height, width)).permute(0, 3, 1, 2)
    before = pictures.clone()
    for sign in (-1, 1):
        changed = OPERATIONS[place](pictures, strength, sign)
        assert (changed.shape, changed.dtype) == (pictures.shape, torch.uint8)
        assert torch.equal(pictures, before)
        if strength == 0 and place > 2:  # the first three have no magnitude
            assert (changed.int() - pictures.int()).abs().max() <= 1


def test_a_list_without_changes_is_the_crop_alone() -> None:
    plain, listed = ScaleJitter((32, 40), (1.14, 1.43)), augmentation(["scale-jitter:1.14-1.43"], CROP)
    for seed in range(5):
        assert torch.equal(plain(noise(), np.random.default_rng(seed)), listed(noise(), np.random.default_rng(seed)))


def test_erasing_leaves_the_mean() -> None:
    pictures = torch.zeros(2, 3, 32, 40, dtype=torch.uint8)
    erased = augmentation(["random-erasing:1,0.1-0.2"], CROP).steps[0](pictures, np.random.default_rng(0))
    share = (erased == 115).float().mean()
    assert 0.08 < share < 0.22
    assert not pictures.any()


def test_frames_move_forward_and_stay_in_the_video() -> None:
    jitter = TemporalJitter(3)
    moved = {jitter((0, 5, 10), 12, np.random.default_rng(seed)) for seed in range(200)}
    assert {clip[0] for clip in moved} == {0, 1, 2, 3}
    assert {clip[2] for clip in moved} == {10, 11}


@pytest.mark.parametrize("workers", [1, 2])
def test_samples_do_not_depend_on_workers(make_video: MakeVideo, workers: int) -> None:
    paths = tuple(make_video(f"{name}.mp4", count=20) for name in "abcd")
    videos = VideoList(paths[0].parent, paths, (0, 1, 0, 1), ("x", "y"))
    made = [
        Loader(TrainingClips(videos, ClipSpec(4, stride=3), augmentation(EVERY, CROP), seed=5), workers=count)
        for count in (0, workers)
    ]
    (alone, shared) = ([batch.clips for batch in loader.batches([[2, 0], [3, 1]])] for loader in made)
    assert all(torch.equal(mine, other) for mine, other in zip(alone, shared, strict=True))


def test_frames_that_moved_are_what_is_read(make_video: MakeVideo) -> None:
    path = make_video("video.mp4", count=20)
    videos = VideoList(path.parent, (path,), (0,), ("x",))
    plain, jittered = (
        TrainingClips(videos, ClipSpec(4, stride=3), augmentation(texts, CROP), seed=5)[0].views
        for texts in ([], ["temporal-jitter:2"])
    )
    assert plain is not None
    assert jittered is not None
    assert not torch.equal(plain, jittered)


def test_entries_are_texts_and_back() -> None:
    assert TransformSpec.parse("scale-jitter:1.14-1.43") == TransformSpec("scale-jitter", (1.14, 1.43))
    assert TransformSpec.parse(" flip ") == TransformSpec("flip")
    assert TransformSpec.parse("flip:1e-3") == TransformSpec("flip", (1e-3,))
    assert TransformSpec.parse("random-resized-crop:8E-2-1e0,7.5e-1 - 1.33") == TransformSpec(
        "random-resized-crop", (0.08, 1.0, 0.75, 1.33)
    )
    for text in ("rand-augment:2,9", "flip:0.5", "flip", "flip:1e-05"):
        assert str(TransformSpec.parse(text)) == text
    made = augmentation(EVERY, CROP)
    assert isinstance(made, Augmentation)
    assert made.temporal == TemporalJitter(2)
    assert len(made.steps) == 5


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["flipp:0.5"], "unknown training transform 'flipp'; did you mean 'flip'"),
        (["flip:a"], "expected NAME or NAME:NUMBER,NUMBER or NAME:LOW-HIGH, got 'flip:a'"),
        (["flip:-0.5"], "expected NAME or NAME:NUMBER,NUMBER or NAME:LOW-HIGH, got 'flip:-0.5'"),
        (["flip:nan"], "expected NAME or NAME:NUMBER"),
        (["flip:0.5,1"], "flip takes probability; got flip:0.5,1"),
        (["flip:2"], "transforms: expected flip: a probability of 0 to 1, got flip:2"),
        (["scale-jitter", "random-resized-crop"], "one crop at most"),
        (["scale-jitter:1.2"], "scale-jitter:LOW-HIGH"),
        (["scale-jitter:0.5-1"], "scales of at least 1, the smaller one first, got scale-jitter:0.5,1"),
        (["random-resized-crop:0.5-1.5"], "areas from above 0 to 1, the smaller one first, got random-resized-crop:"),
        (["random-resized-crop:0.5-1,2-1"], "aspect ratios of more than 0, the smaller one first, got random-res"),
        (["rand-augment:2,31"], "a magnitude of 0 to 30, got rand-augment:2,31"),
        (["rand-augment:1.5"], "whole operations, got rand-augment:1.5"),
        (["aug-mix:11"], "a severity of 0 to 10, got aug-mix:11"),
        (["random-erasing:0.5,0-0.3"], "areas between 0 and 1, the smaller one first, got random-erasing:0.5,0,0.3"),
        (["colour-jitter:2"], "colour-jitter: factors of 0 to 1, got colour-jitter:2"),
        (["colour-jitter:1,1,1,0.6"], "colour-jitter: a hue of 0 to 0.5, got colour-jitter:1,1,1,0.6"),
        (["temporal-jitter:1.5"], "whole numbers"),
        (["temporal-jitter", "temporal-jitter"], "once at most"),
    ],
)
def test_what_no_transform_is(texts: list[str], said: str) -> None:
    with pytest.raises((InvalidValue, UnknownName)) as caught:
        augmentation(texts, CROP)
    assert said in str(caught.value)


def test_data_whose_labels_are_directions_is_not_flipped() -> None:
    assert [type(step) for step in augmentation(["flip:0.5", "rand-augment"], CROP, directional=True).steps] == [
        RandAugment
    ]
    assert augmentation(["flip:0.5"], CROP).steps
