"""What is shown is what training and tests get, and timings add up."""

import base64
import io
import itertools
import re
import types
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from video_files import MakeVideo

from hwbench.data import load_timing, transforms
from hwbench.data.clips import ClipSpec
from hwbench.data.datasets import TestClips, TrainingClips
from hwbench.data.decoding import read_frames
from hwbench.data.failures import FailurePolicy
from hwbench.data.load_timing import STAGES, TimedVideoFile, time_stages, time_workers
from hwbench.data.sheets import ShownClip, ShownVideo, pictures_of, show_videos, train_clip, view_clip
from hwbench.data.transforms import Normalisation, ScaleJitter, TestTransform
from hwbench.data.videos import VideoList, read_splits
from hwbench.errors import VideoError
from hwbench.reports.contact_sheet import sheet

CLIP = ClipSpec(4, span_s=0.5)


@pytest.fixture
def train(make_video: MakeVideo, tmp_path: Path) -> TrainingClips:
    for label in ("run", "<jump>"):
        for index in range(3):
            make_video(f"clips/{label}/{index}.mp4", count=24 + index)
    videos = read_splits(tmp_path / "clips").train
    return TrainingClips(videos, CLIP, ScaleJitter((32, 32)), seed=3, policy=FailurePolicy.REPLACE)


@pytest.fixture
def test(train: TrainingClips) -> TestClips:
    return TestClips(train.videos, CLIP, TestTransform((32, 32)), clips=1)


def test_what_is_shown_is_what_training_gets(train: TrainingClips, test: TestClips) -> None:
    for index in range(len(train)):
        sample, view = train[index].views, test[index].views
        assert sample is not None
        assert view is not None
        assert torch.equal(train_clip(train, index)[0], sample[0])
        assert torch.equal(view_clip(test, index)[0], view[0])


def test_pictures_undo_the_normalisation() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 8, 10, 3), dtype=np.uint8)
    normalisation = Normalisation()
    clip = normalisation(torch.from_numpy(frames).permute(0, 3, 1, 2))
    assert (pictures_of(clip, normalisation) == frames).all()


def test_every_class_is_shown_with_labels_and_times(train: TrainingClips, test: TestClips) -> None:
    Path(train.videos.paths[0]).write_text("no video any more")
    shown = show_videos(train, test, per_class=1, most_classes=9)
    assert [video.labels for video in shown] == [("<jump>",), ("run",)]
    assert "damaged" in shown[0].fault
    clip = shown[1].clips[1]
    assert clip.pictures.shape == (4, 32, 32, 3)
    assert clip.times_s == pytest.approx([t / 30 for t in (4, 8, 12, 15)], abs=0.07)
    page = sheet("clips", [("seed", "3")], shown)
    assert "&lt;jump&gt;" in page
    assert "<jump>" not in page
    assert "damaged" in page
    assert f"{clip.times_s[0]:.2f} s" in page
    assert page.count("data:image/jpeg;base64,") == page.count(" s</span>") == 2 * 4
    assert not re.search(r"(src|href)=\"(?!data:)", page)
    assert len(page) < 100_000
    assert len(show_videos(train, test, per_class=9, most_classes=1)) == 2


def test_clips_of_any_length_are_shown_a_picture_a_frame() -> None:
    """One JPEG file has at most 65500 pixels on a side."""
    pictures = np.zeros((256, 16, 260, 3), np.uint8)
    pictures += np.arange(256, dtype=np.uint8)[:, None, None, None]
    clip = ShownClip("train", pictures, tuple(number / 25 for number in range(256)))
    page = sheet("clips", [], [ShownVideo("a.mp4", ("run",), clips=(clip,))])
    shown = re.findall(r'src="data:image/jpeg;base64,([^"]+)"[^>]*><span>([0-9.]+) s</span>', page)
    assert [float(time) for _, time in shown] == [round(time, 2) for time in clip.times_s]
    for number in (0, 100, 255):
        with av.open(io.BytesIO(base64.b64decode(shown[number][0]))) as file:
            picture = next(file.decode(video=0)).to_ndarray(format="rgb24")
        assert picture.shape == (16, 260, 3)
        assert picture.mean() == pytest.approx(number, abs=2)


def test_of_several_classes_each_is_shown_and_each_video_once(make_video: MakeVideo, tmp_path: Path) -> None:
    """All show an adult, the second half running, and each third waving; the last two show nothing."""
    path, clip = make_video("clip.mp4", count=8), ClipSpec(4, span_s=0.2)
    labels = [(0, *(1,) * (i >= 6), *(2,) * (i % 3 == 2)) for i in range(12)] + [(), ()]
    videos = VideoList(tmp_path, (path,) * len(labels), tuple(labels), ("adult", "run", "wave"))
    train = TrainingClips(videos, clip, ScaleJitter((32, 32)))
    test = TestClips(videos, clip, TestTransform((32, 32)), clips=1)
    shown = [video.labels for video in show_videos(train, test, per_class=2, most_classes=9)]
    assert shown == [("adult",)] * 2 + [("adult", "run")] * 2 + [("adult", "wave")] * 2 + [()] * 2
    shown = [video.labels for video in show_videos(train, test, per_class=1, most_classes=1)]
    assert shown == [("adult",), ()]


def test_reading_is_timed_by_stage(train: TrainingClips) -> None:
    stages = time_stages(train, seconds=0.5)
    assert set(stages.seconds) == set(STAGES)
    assert stages.clips >= 4
    assert all(seconds > 0 for seconds in stages.seconds.values())
    assert sum(stages.shares().values()) == pytest.approx(1)


def test_what_the_first_clip_alone_takes_is_in_no_stage(train: TrainingClips, monkeypatch: pytest.MonkeyPatch) -> None:
    now, resized, waits = itertools.count(), transforms._resized, [10_000]

    def resize(*given: object, **how: object) -> torch.Tensor:
        """Takes long at first, as the import of torchvision does."""
        nonlocal now
        if waits:
            now = itertools.count(next(now) + waits.pop())
        return resized(*given, **how)

    clock = types.SimpleNamespace(monotonic=lambda: next(now), perf_counter=lambda: next(now))
    monkeypatch.setattr(load_timing, "time", clock)
    monkeypatch.setattr(transforms, "_resized", resize)
    stages = time_stages(train, seconds=200)
    assert not waits
    assert stages.clips >= 4
    assert 0 < stages.seconds["transform"] < 1_000
    assert stages.seconds["collate"] > 0


def test_without_a_readable_video_nothing_is_timed(train: TrainingClips) -> None:
    for path in train.videos.paths:
        Path(path).write_text("no video any more")
    with pytest.raises(VideoError, match="no video can be read: hwbench data check"):
        time_stages(train, seconds=0.2)


def test_conversion_is_counted(make_video: MakeVideo) -> None:
    path = make_video("a.mp4")
    with TimedVideoFile(path) as video:
        frames = video.read((0, 5))
        assert video.convert_s > 0
    assert (frames == read_frames(path, (0, 5))).all()


def test_rates_are_of_the_clips_that_were_read(train: TrainingClips) -> None:
    rate = time_workers(train, "pyav", 0, seconds=0.3)
    assert rate.clips >= 4
    assert rate.clips_per_s == pytest.approx(rate.clips / rate.seconds)
