"""Parts of videos, labels of several classes, groups, and readers with options."""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from video_files import MakeVideo

from hwbench.data import (
    ClipSpec,
    ScaleJitter,
    TestClips,
    TestTransform,
    TrainingClips,
    VideoList,
    open_splits,
    probe,
)
from hwbench.data.augmentations import augmentation
from hwbench.data.encoding import write_video
from hwbench.data.labelled import LabelledPart
from hwbench.data.readers import ListedVideo, Listing, Part, get, readers
from hwbench.data.samples import collate
from hwbench.data.videos import splits_of
from hwbench.errors import InvalidFile, InvalidValue, UnknownName, VideoError
from hwbench.workspace import Workspace


@pytest.fixture
def video(make_video: MakeVideo) -> Path:
    """20 frames at 10 frames per second."""
    return make_video("a.mp4", count=20, fps=10)


def part_of(video: Path, start: str | None = None, end: str | None = None) -> LabelledPart:
    times = (None if text is None else Fraction(text) for text in (start, end))
    return LabelledPart.of(probe(video), Part(*times), "a.mp4")


@pytest.mark.parametrize(
    ("start", "end", "first", "count"),
    [
        (None, None, 0, 20),
        ("0.5", "1", 5, 5),
        ("0.5", None, 5, 15),
        (None, "0.25", 0, 3),  # the third frame begins at 0.2
        ("0.51", "0.55", 5, 1),  # no frame begins there: the one on screen
        ("1.95", None, 19, 1),
        ("0.5", "0.5", 5, 1),
        ("1", "99", 10, 10),
    ],
)
def test_a_part_is_the_frames_that_begin_in_it(
    video: Path, start: str | None, end: str | None, first: int, count: int
) -> None:
    part = part_of(video, start, end)
    assert (part.first, part.info.num_frames) == (first, count)
    whole = probe(video)
    assert part.info.pts.tolist() == whole.pts[first : first + count].tolist()
    assert part.info.duration_s == pytest.approx(count / 10)
    drawn = {part.random_clip(ClipSpec(2, stride=1), np.random.default_rng(seed)) for seed in range(50)}
    assert {index for clip in drawn for index in clip} <= set(range(first, first + count))


def test_a_label_behind_the_end_of_its_video_is_refused(video: Path) -> None:
    with pytest.raises(VideoError, match=r"a\.mp4: the label begins at 3 s, the video has 2\.00 s"):
        part_of(video, "3", "4")


@pytest.mark.parametrize(("options", "said"), [({}, True), ({"offset": "900"}, False), ({"offset": "0"}, False)])
def test_labels_of_cuts_do_not_go_with_whole_films(tmp_path: Path, options: dict[str, str], said: bool) -> None:
    (tmp_path / "ava_action_list_v2.2.pbtxt").write_text('name: "stand"\nid: 12\n')
    for side in ("train", "val"):
        (tmp_path / f"ava_{side}_v2.2.csv").write_text(f"{side},0902,0.1,0.1,0.9,0.9,12,1\n")
        write_video(tmp_path / f"{side}.mp4", np.zeros((21, 16, 16, 3), np.uint8), fps=Fraction(1, 90))
    (film,) = get("ava", options).read(tmp_path).train
    if not said:
        LabelledPart.of(probe(film.path), film.part, "a.mp4")
        return
    assert film.part is not None
    with pytest.raises(
        VideoError, match=r"a cut of at most 1200 s, the video has 1890.00 s \(whole films: option offset=0"
    ):
        LabelledPart.of(probe(film.path), film.part, "a.mp4")
    assert repr(film.part) == repr(Part(keyframe_s=Fraction(2), box=(0.1, 0.1, 0.9, 0.9)))
    write_video(film.path, np.zeros((10, 16, 16, 3), np.uint8), fps=Fraction(1, 90))
    assert LabelledPart.of(probe(film.path), film.part, "a.mp4").keyframe is not None


def test_a_box_is_cut_with_what_is_around(video: Path) -> None:
    part = LabelledPart.of(probe(video), Part(box=(0.25, 0.5, 0.75, 1.0)), "a.mp4")
    frames = np.arange(2 * 40 * 80 * 3, dtype=np.int64).reshape(2, 40, 80, 3) % 251
    cut = part.cut(frames.astype(np.uint8))
    assert cut.shape == (2, 25, 60, 3)  # 20 + a quarter above, 40 + a quarter on both sides
    assert np.array_equal(cut, frames.astype(np.uint8)[:, 15:40, 10:70])
    tiny = LabelledPart.of(probe(video), Part(box=(1.0, 1.0, 1.0, 1.0)), "a.mp4")
    assert tiny.cut(frames.astype(np.uint8)).shape == (2, 1, 1, 3)


def listed(video: Path, *labels: tuple[str, ...]) -> Listing:
    return Listing(tuple(ListedVideo(video, label, part=Part(Fraction(i))) for i, label in enumerate(labels)), ())


def test_several_classes_become_targets_of_zeros_and_ones(video: Path) -> None:
    splits = splits_of(listed(video, ("run", "jump"), ("run",)), video)
    videos = splits.train
    assert videos.classes == ("jump", "run")
    assert videos.multi_label
    assert videos.labels == ((0, 1), (1,))
    assert videos.targets().tolist() == [[1, 1], [0, 1]]
    training = TrainingClips(videos, ClipSpec(2, stride=1), ScaleJitter((8, 8)))
    batch = collate([training[0], training[1]]).normalised()
    assert batch.labels.dtype == torch.float32
    assert batch.labels.tolist() == [[1, 1], [0, 1]]
    test = TestClips(videos, ClipSpec(2, stride=1), TestTransform((8, 8)), clips=2)
    assert collate([test[0], test[3]]).normalised().labels.tolist() == [[1, 1], [0, 1]]
    with pytest.raises(InvalidValue, match="one class each"):
        videos.single_labels()
    swapped = videos.subset([1, 0])
    assert swapped.parts[0].start_s == 1
    assert swapped.identity != videos.identity


def test_one_form_of_label_in_a_data_set(video: Path) -> None:
    mixed = Listing((ListedVideo(video, "run"), ListedVideo(video, ("run",))), ())
    with pytest.raises(InvalidFile, match="some videos have one class and others a list"):
        splits_of(mixed, video)


def test_a_group_is_on_one_side_of_a_split(tmp_path: Path) -> None:
    videos = [
        ListedVideo(tmp_path / f"{label}-{group}-{i}.mp4", label, group=f"{label}-{group}")
        for label in ("a", "b")
        for group in range(5)
        for i in range(4)
    ]
    for seed in range(10):
        splits = splits_of(Listing(tuple(videos)), tmp_path, seed=seed)
        sides = [{path.name.rpartition("-")[0] for path in part.paths} for part in (splits.train, splits.val)]
        assert not sides[0] & sides[1]
        assert len(splits.val) == 8  # a fifth of the groups of each class


@dataclass(frozen=True)
class OneFile:
    """A reader with an option."""

    split: str = "1"

    def recognises(self, path: Path) -> bool:
        return False

    def read(self, path: Path) -> Listing:
        videos = tuple(ListedVideo(path, f"split {self.split}", part=Part(Fraction(i))) for i in range(4))
        return Listing(videos[:2], videos[2:])


def test_readers_take_options(video: Path, tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "w")
    readers.register("one-file")(OneFile)
    try:
        assert open_splits(workspace, f"one-file:{video}").train.classes == ("split 1",)
        assert open_splits(workspace, f"one-file:{video}?split=3").train.classes == ("split 3",)
        with pytest.raises(UnknownName, match=r"reader 'one-file' has no option 'splt'; did you mean 'split'"):
            open_splits(workspace, f"one-file:{video}?splt=3")
        with pytest.raises(InvalidValue, match=r"expected options as READER:PATH\?OPTION=VALUE.*got 'split'"):
            open_splits(workspace, f"one-file:{video}?split")
        with pytest.raises(UnknownName, match="reader 'lists' has no option 'split'; it takes none"):
            get("lists", {"split": "2"})
        marked = video.rename(video.with_name("a?split=4.mp4"))  # what exists is a path, whatever it looks like
        assert open_splits(workspace, f"one-file:{marked}").train.classes == ("split 1",)
    finally:
        del readers._items["one-file"]


@pytest.mark.parametrize("stride", [1, 3, 6])  # the last clips are longer than the part
def test_frames_that_move_stay_in_the_labelled_part(tmp_path: Path, stride: int) -> None:
    frames = np.zeros((40, 32, 32, 3), np.uint8)
    frames[10:25] = 120  # the labelled part
    frames[25:] = 250
    write_video(tmp_path / "a.mp4", frames, fps=10)
    parts = {0: Part(Fraction(1), Fraction(5, 2))}
    videos = VideoList(tmp_path, (tmp_path / "a.mp4",), (0,), ("x",), parts=parts)
    jitter = augmentation(["temporal-jitter:5"], ScaleJitter((16, 16)))
    dataset = TrainingClips(videos, ClipSpec(4, stride=stride), jitter, seed=0)
    for epoch in range(20):
        dataset.set_epoch(epoch)
        pictures = dataset[0].pictures
        assert pictures is not None
        assert (pictures.float() - 120).abs().max() < 20
    part = LabelledPart.of(probe(tmp_path / "a.mp4"), parts[0], "a.mp4")
    drawn = {index for seed in range(200) for index in dataset.choose(part, np.random.default_rng(seed))}
    assert drawn <= set(range(10, part.end))
    assert part.end - 1 in drawn
