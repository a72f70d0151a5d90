from pathlib import Path

import pytest
from video_files import MakeVideo

import hwbench.data.builtin
from hwbench.data import ClipSpec, SyntheticSpec, default_clip, open_dataset, open_splits
from hwbench.data.listings import open_listing
from hwbench.errors import UnknownName
from hwbench.workspace import Workspace


def test_the_synthetic_set_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hwbench.data.builtin, "SyntheticSpec", lambda: SyntheticSpec(1, 1, 32, 20))
    workspace = Workspace(tmp_path)
    training = open_dataset(workspace, "synthetic", split="train", size=(24, 24), clip=default_clip("synthetic", 8))
    assert training[0].views.shape == (1, 3, 8, 24, 24)
    test = open_dataset(workspace, "synthetic", split="val", size=(24, 24), clip=ClipSpec(4, stride=4), views=(2, 3))
    assert len(test) == 16
    assert test[5].views.shape == (3, 3, 4, 24, 24)
    assert test.classes == training.classes
    # Also where it is prepared or listed anew.
    assert open_listing(workspace, "synthetic").directional
    assert open_splits(workspace, "synthetic").train.directional


@pytest.mark.parametrize("frames", [1, 4, 8, 13, 16, 32])
def test_a_synthetic_clip_fits_into_its_video(frames: int) -> None:
    clip = default_clip("synthetic", frames)
    assert clip.stride is not None
    assert (frames - 1) * clip.stride < 24 or frames > 24


def test_a_folder_by_path(tmp_path: Path, make_video: MakeVideo) -> None:
    for name in ("a/1.mp4", "a/2.mp4", "b/1.mp4", "b/2.mp4"):
        make_video(name)
    clip = default_clip(str(tmp_path), 4)
    assert clip.span_s == 2.0
    dataset = open_dataset(Workspace(tmp_path), str(tmp_path), split="train", size=(24, 24), clip=clip)
    assert len(dataset) == 2
    assert dataset[1].views.shape == (1, 3, 4, 24, 24)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_the_current_folder(
    name: str, tmp_path: Path, make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("a/1.mp4", "a/2.mp4"):
        make_video(file)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match="the name of the data is empty; data are synthetic, synthetic:NAME, PATH"):
        open_splits(Workspace(tmp_path), name)


def test_an_unknown_name_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="data are synthetic, synthetic:NAME, PATH"):
        open_dataset(Workspace(tmp_path), "kinetics", split="train", size=(24, 24), clip=ClipSpec(4, stride=1))


@pytest.mark.parametrize("name", ["~nobody-of-that-name/clips", "folders:~nobody-of-that-name/clips"])
def test_the_home_of_nobody_is_a_path_like_any_other(
    name: str, tmp_path: Path, make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match="no data at ~nobody-of-that-name/clips; data are"):
        open_splits(workspace, name)
    for file in ("a/1.mp4", "a/2.mp4", "b/1.mp4", "b/2.mp4"):
        make_video(f"~nobody-of-that-name/{file}")
    assert open_splits(workspace, "~nobody-of-that-name").train.classes == ("a", "b")
