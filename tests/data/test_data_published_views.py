"""What a network sees of real videos is what PyTorchVideo 0.1.5 shows it: frames, scales, crops, normalisation.

Their pipeline is the one of the published X3D recipes: ``LabeledVideoDataset`` with PyAV, ``UniformTemporalSubsample``,
``/ 255``, ``Normalize``, ``ShortSideScale`` of floats, ``CenterCrop`` or ``UniformCropVideo``. Ours stays uint8 until
the last step, so that a pixel may be half a grey level off, and one more where both halves are.
"""

import sys
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from video_files import write

from hwbench.data import ClipSpec, FailurePolicy, Normalisation, PictureSpec, Resize, TestClips, VideoList, read_frames

VIDEOS = Path(__file__).resolve().parents[3] / "shared" / "video"
# A file and the number of clips at whose starts both look. Matroska has no length of a stream: theirs then ends at the
# time stamp of the last frame, one frame too early, so that only the clip at 0 is the same.
FILES = {"arm_wrestling.mp4": 3, "part_0.mp4": 3, "h265.mp4": 3, "h264_10bit.mp4": 3, "av1.mkv": 1}
# Frames, rate, short side and crop of X3D-XS, X3D-S and X3D-M.
RECIPES = {"xs": (4, 12, 182, 160), "s": (13, 6, 182, 160), "m": (16, 5, 256, 224)}


@pytest.fixture(scope="module")
def theirs() -> Iterator[Any]:
    """The transforms of PyTorchVideo, which asks torchvision for a module that has another name today."""
    name = "torchvision.transforms.functional_tensor"
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(action="ignore"):
        patch.setitem(sys.modules, name, torchvision.transforms._functional_tensor)
        import pytorchvideo.data
        import pytorchvideo.transforms

        yield pytorchvideo


def their_views(package: Any, path: Path, sampler: Any, frames: int, side: int, crop: int) -> list[torch.Tensor]:
    """The views of one video: float32 (3, T, h, w) each."""
    transforms = package.transforms

    def view(sample: dict[str, Any]) -> dict[str, Any]:
        video = transforms.UniformTemporalSubsample(frames)(sample["video"]) / 255
        video = transforms.Normalize((0.45,) * 3, (0.225,) * 3)(video)
        video = transforms.ShortSideScale(side)(video)
        if crop == side:
            return {"video": transforms.functional.uniform_crop(video, crop, sample["aug_index"])}
        return {"video": torchvision.transforms.CenterCrop(crop)(video)}

    dataset = package.data.LabeledVideoDataset(
        [(str(path), {"label": 0})],
        sampler,
        video_sampler=torch.utils.data.SequentialSampler,
        transform=view,
        decode_audio=False,
    )
    return [sample["video"] for sample in dataset]


def our_views(path: Path, clip: ClipSpec, side: int, crop: int, clips: int, crops: int) -> list[torch.Tensor]:
    picture = PictureSpec(test_scale=side / crop, resize=Resize.SHORT_SIDE)
    transform = picture.test_transform((crop, crop), crops, Normalisation())
    dataset = TestClips(
        VideoList(path.parent, (path,), (0,), ("a",)), clip, transform, clips=clips, policy=FailurePolicy.RAISE
    )
    return [view for index in range(clips) for view in dataset[index].views]  # type: ignore[union-attr]


def grey_levels(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference of a pixel, of 255."""
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max()) * 0.225 * 255


def existing(name: str) -> Path:
    path = VIDEOS / name
    if not path.is_file():
        pytest.skip(f"needs ../shared/video/{name}, a real video beside the repository")
    return path


@pytest.mark.parametrize("name", FILES)
def test_one_centre_crop(theirs: Any, name: str) -> None:
    compare(theirs, existing(name), "xs", crops=1, count=FILES[name])


@pytest.mark.parametrize("recipe", ["s", "m"])
def test_the_other_recipes(theirs: Any, recipe: str) -> None:
    compare(theirs, existing("arm_wrestling.mp4"), recipe, crops=1)


@pytest.mark.parametrize("name", FILES)
def test_three_crops_of_the_whole_short_side(theirs: Any, name: str) -> None:
    compare(theirs, existing(name), "xs", crops=3, count=FILES[name])


def test_frames_of_an_avi_come_in_the_order_they_are_shown(theirs: Any) -> None:
    """An AVI file says in which order frames are decoded. Theirs sorts them by time stamps that FFmpeg guesses, and
    shows neighbours of B-frames out of order; ours counts what the decoder gives out. The pixels are the same."""
    path = existing("short_clip.avi")
    encoded = theirs.data.encoded_video.EncodedVideo.from_path(str(path), decode_audio=False)
    sorted_by_guess = encoded.get_clip(0, Fraction(8, 5))["video"].permute(1, 2, 3, 0).to(torch.uint8).numpy()
    ours = read_frames(path, range(42))
    order = [int(np.abs(ours.astype(int) - frame).mean((1, 2, 3)).argmin()) for frame in sorted_by_guess]
    assert all((ours[place] == frame).all() for place, frame in zip(order, sorted_by_guess))
    assert order != sorted(order)
    assert max(abs(place - index) for index, place in enumerate(order)) <= 3


@pytest.mark.parametrize("size", [(48, 64), (64, 48), (50, 83), (61, 61), (240, 180)])
def test_videos_of_any_shape(theirs: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    path = write(tmp_path / "video.mp4", count=60, size=size, pix_fmt="yuv444p")
    compare(theirs, path, "xs", crops=1)
    compare(theirs, path, "xs", crops=3)


def compare(theirs: Any, path: Path, recipe: str, crops: int, count: int = 3) -> None:
    frames, rate, side, crop = RECIPES[recipe]
    span = Fraction(frames * rate, 30)
    # 0.1.5 puts the starts of n clips where ours and their main branch put those of n + 1, without the last.
    sampler = theirs.data.clip_sampling.ConstantClipsPerVideoSampler(span, count, crops)
    expected = their_views(theirs, path, sampler, frames, side, side if crops == 3 else crop)
    clip = ClipSpec(frames, stride=rate, target_fps=30, convention="pytorchvideo")
    views = our_views(path, clip, side, crop, count + 1, crops)[: count * crops]
    assert len(views) == len(expected) == count * crops
    worst = max(grey_levels(ours, other) for ours, other in zip(views, expected))
    print(f"{path.name} {recipe}, {crops} crops: {worst:.2f} grey levels")
    assert worst <= 2
