"""Optical flow in the place of pictures: what ``--modality`` says, and the clips that come of it."""

import os
import re
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.io import write_png
from video_files import write

import hwbench
from hwbench.data import ClipSpec, Reading, open_dataset
from hwbench.data.augmentations import augmentation
from hwbench.data.flo_files import read_flo
from hwbench.data.flow import NOTE, FlowFolder, codes_of
from hwbench.data.flow_stream import FLOW_NORMALISATION, FlowStream, FlowTransform
from hwbench.data.images import FrameFolder
from hwbench.data.sheets import show_videos
from hwbench.data.sources import open_decoder
from hwbench.data.transforms import ScaleJitter
from hwbench.errors import InvalidFile, InvalidValue, MissingDependency, VideoError
from hwbench.room import clean_cache
from hwbench.spaces import resolve
from hwbench.workspace import Workspace

SIZE, FRAMES, BESIDE = (48, 64), 8, FlowStream()


def write_flo(path: Path, flow: np.ndarray) -> None:
    """A ``.flo`` file of float32 (H, W, 2)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    height, width = flow.shape[:2]
    sides = np.array([width, height], "<i4").tobytes()
    path.write_bytes(np.float32(202021.25).tobytes() + sides + flow.astype("<f4").tobytes())


def flow_of(frame: int, sign: int) -> np.ndarray:
    """Motion that grows with the frame and from left to right: float32 (48, 64, 2)."""
    across = np.linspace(1, 9, SIZE[1], dtype=np.float32)[None] * np.ones((SIZE[0], 1), np.float32)
    return np.stack([sign * across + frame / 4, np.full(SIZE, -2.0, np.float32)], axis=-1)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A workspace with ``clips``, four videos of two classes with ``.flo`` files beside them."""
    made = Workspace.create(tmp_path_factory.mktemp("flow"))
    for label, sign in (("left", -1), ("right", 1)):
        for number in range(2):
            video = made.root / "clips" / label / f"{number}.mp4"
            video.parent.mkdir(parents=True, exist_ok=True)
            write(video, count=FRAMES, size=SIZE)
            for frame in range(FRAMES - 1):
                write_flo(video.with_suffix("") / f"{frame + 1}.flo", flow_of(frame, sign))
    return made


def opened(workspace: Workspace, transforms: tuple[str, ...] = (), flow: FlowStream = BESIDE) -> list:
    """Training clips and test views of both sides' videos."""
    clip, reading = ClipSpec(4, stride=2), Reading(flow=flow)
    how = {"size": (32, 32), "clip": clip, "reading": reading, "cache_bytes": 10**6}
    data = str(workspace.root / "clips")
    return [
        open_dataset(workspace, data, split="train", transforms=transforms, **how),
        open_dataset(workspace, data, split="train", views=(1, 3), **how),
    ]


@pytest.mark.parametrize("text", ["flow", "flow:tvl1", "flow:dis=fast", "flow:raft=weights.pth"])
def test_a_text_is_read_back(text: str) -> None:
    stream = FlowStream.parse(text)
    assert str(stream) == text
    assert stream is not None
    assert stream.computes == (text != "flow")


@pytest.mark.parametrize("text", ["", "flow:", "FLOW", "video", "flow:no-such-folder", "flow:tvl2"])
def test_another_text_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(InvalidValue, match="expected rgb, flow"):
        FlowStream.parse(text)


def test_a_folder_may_lie_in_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "flow").mkdir()
    assert (
        FlowStream.parse("flow:~/flow") == FlowStream.parse(f"flow:{tmp_path}/flow") == FlowStream(f"{tmp_path}/flow")
    )
    with pytest.raises(InvalidValue, match="'~/other' is neither a folder nor a method"):
        FlowStream.parse("flow:~/other")


def test_pictures_are_no_stream_of_flow_and_sound_is_refused() -> None:
    assert FlowStream.parse("rgb") is None
    with pytest.raises(InvalidValue, match=r"modalities\.md"):
        FlowStream.parse("audio")


def test_clips_have_the_motion_of_their_frames(workspace: Workspace) -> None:
    train, test = opened(workspace)
    for index in range(len(train)):
        sign = (-1, 1)[train.videos.labels[index]]
        views = test[index].views
        assert views is not None
        assert views.shape == (3, 2, 4, 32, 32)
        # The clip has the frames 0, 2, 4, 6 or those one later: a single test clip starts in the middle.
        first, whole = (torch.from_numpy(codes_of(flow_of(frame, sign)).astype(np.float32)) for frame in (0, 7))
        middle = (views[1, 0].mean(dim=(1, 2)) + 1) * 127.5
        assert first[..., 0].mean() - 1 < middle.min() <= middle.max() < whole[..., 0].mean() + 1
        assert middle.diff().min() > 1  # each frame moves faster to the right than the one before
        assert (views[:, 1] * 20 + 2).abs().max() < 0.1  # 2 pixels up
        # Crops lie from left to right, and motion grows that way.
        assert (views[2, 0].mean() - views[0, 0].mean()) * sign > 0.01
        sample = train[index].views
        assert sample is not None
        assert sample.shape == (1, 2, 4, 32, 32)
        assert (sample[:, 1] * 20 + 2).abs().max() < 0.1


def test_what_is_mirrored_moves_the_other_way(workspace: Workspace) -> None:
    plain, mirrored = (opened(workspace, (f"flip:{share}",))[0] for share in (0, 1))
    for index in range(len(plain)):
        one, other = plain[index].pictures, mirrored[index].pictures
        assert one is not None
        assert other is not None
        assert torch.equal(other[:, :, 0], 255 - one[:, :, 0].flip(3))
        assert torch.equal(other[:, :, 1], one[:, :, 1].flip(3))


@pytest.fixture(scope="module")
def raft(tmp_path_factory: pytest.TempPathFactory) -> FlowStream:
    """Flow that is computed, by random weights."""
    from torchvision.models.optical_flow import raft_small

    weights = tmp_path_factory.mktemp("raft") / "raft.pth"
    torch.save(raft_small(weights=None).state_dict(), weights)
    return FlowStream(f"raft={weights}")


def test_what_killed_processes_left_of_flow_goes_after_a_day(raft: FlowStream, tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "bench")
    left, under_way = (workspace.cache / "flow" / f".video.{number}.tmp" for number in range(2))
    for folder in (left, under_way):
        folder.mkdir(parents=True)
        (folder / "flow_x_00001.png").write_bytes(b"half")
    yesterday = time.time() - 25 * 3600
    os.utime(left, (yesterday, yesterday))
    open_decoder(workspace, Reading(flow=raft), 4)
    assert not left.exists()
    assert under_way.exists()


def test_computed_flow_is_not_cleaned_under_who_reads_it(raft: FlowStream, tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path / "bench")
    kept = workspace.cache / "flow" / "video" / NOTE
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    open_decoder(workspace, Reading(flow=raft), 4)
    assert clean_cache(workspace.cache).kept_bytes == 2
    assert kept.exists()


@pytest.mark.parametrize("text", ["colour-jitter", "rand-augment", "temporal-jitter:1"])
def test_what_is_for_pictures_alone_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="--modality flow"):
        FlowTransform(augmentation(["flip", text], ScaleJitter((8, 8))))


def test_a_clip_without_motion_is_zero() -> None:
    still = torch.full((1, 2, 4, 4), 127, dtype=torch.uint8)
    assert FLOW_NORMALISATION(still).abs().max() < 0.01


def test_a_video_without_flow_says_what_to_type(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    _, test = opened(workspace, flow=FlowStream(str(tmp_path / "elsewhere")))
    with pytest.raises(VideoError, match=r"\.mp4: no flow of it; .* --modality flow:tvl1"):
        test[0]


def test_a_folder_of_images_without_flow_says_what_to_type(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "clip").mkdir()
    for frame in range(4):
        write_png(torch.zeros(3, *SIZE, dtype=torch.uint8), str(tmp_path / "clip" / f"img_{frame}.png"))
    decoder = open_decoder(workspace, Reading(flow=BESIDE), 1)
    said = r"clip: no flow of it; .* --modality flow:tvl1"
    with decoder.open(FrameFolder(tmp_path / "clip")) as video, pytest.raises(VideoError, match=said):
        video.read((0, 1))


def test_decoded_videos_are_not_kept_of_flow(workspace: Workspace) -> None:
    reading = Reading(decoded_cache_bytes=10**9, flow=FlowStream())
    with pytest.raises(InvalidValue, match="--decoded-cache"):
        open_dataset(
            workspace,
            str(workspace.root / "clips"),
            split="train",
            size=(8, 8),
            clip=ClipSpec(2, stride=1),
            reading=reading,
        )


def test_a_page_shows_flow_in_colours(workspace: Workspace) -> None:
    train, test = opened(workspace)
    shown = show_videos(train, test, per_class=1, most_classes=2)
    left, right = (video.clips[1].pictures.astype(int) for video in shown)
    assert left.shape == right.shape == (4, 32, 32, 3)
    assert np.abs(left.mean(axis=(0, 1, 2)) - right.mean(axis=(0, 1, 2))).max() > 20  # two directions, two colours


def test_a_check_counts_the_files_of_flow(workspace: Workspace, tmp_path: Path) -> None:
    data = str(workspace.root / "clips")

    def check(modality: str) -> hwbench.CheckDataResult:
        request = hwbench.CheckDataRequest(data=data, modality=modality, jobs=0)
        return hwbench.check_data(request, workspace=workspace)

    plain, beside = check("rgb"), check("flow")
    # The two classes have the same pictures, which is a conflict and no matter of flow.
    assert beside.findings == plain.findings
    for label, count in (("left", FRAMES - 1), ("right", FRAMES - 2)):
        for number in range(2):
            for frame in range(count):
                write_flo(tmp_path / "flow" / label / str(number) / f"{frame}.flo", flow_of(frame, 1))
    lacking = [one for one in check(f"flow:{tmp_path / 'flow'}").findings if one.kind == "no-flow"]
    assert [Path(one.video).parent.name for one in lacking] == ["right", "right"]
    assert all(one.failing and one.dropped for one in lacking)
    assert lacking[0].cause.endswith("6 .flo files, expected 7")


def test_flow_of_one_video_is_not_shared_by_those_of_its_name(workspace: Workspace, tmp_path: Path) -> None:
    for number in range(2):
        for frame in range(FRAMES - 1):
            write_flo(tmp_path / "flow" / str(number) / f"{frame}.flo", flow_of(frame, 1))
    both = r"/flow/(\d): belongs to .*/\1\.mp4 or to .*/\1\.mp4; give each its own"
    with pytest.raises(InvalidFile, match=both):
        opened(workspace, flow=FlowStream(str(tmp_path / "flow")))
    request = hwbench.CheckDataRequest(data=str(workspace.root / "clips"), modality=f"flow:{tmp_path / 'flow'}", jobs=0)
    lacking = [one for one in hwbench.check_data(request, workspace=workspace).findings if one.kind == "no-flow"]
    assert len(lacking) == 4
    assert all(re.search(both, one.cause) for one in lacking)


def test_a_check_asks_for_what_computes_flow(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    clips = str(workspace.root / "clips")
    request = hwbench.CheckDataRequest(data=clips, modality="flow:dis", jobs=0)
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependency, match="computing optical flow needs OpenCV"):
        hwbench.check_data(request, workspace=workspace)
    monkeypatch.setitem(sys.modules, "cv2", types.ModuleType("cv2"))
    plain = hwbench.check_data(hwbench.CheckDataRequest(data=clips, jobs=0), workspace=workspace)
    assert hwbench.check_data(request, workspace=workspace).findings == plain.findings


def test_missing_images_are_counted(tmp_path: Path) -> None:
    for number in range(1, 4):
        for prefix in ("flow_x_", "flow_y_"):
            (tmp_path / f"{prefix}{number:05d}.jpg").write_bytes(b"not looked at")
    assert FlowFolder(tmp_path).lacks(4) == ""
    (tmp_path / "flow_y_00002.jpg").unlink()
    assert "expected 3 images" in FlowFolder(tmp_path).lacks(4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: b"PIEH"[::-1] + content[4:], "not a .flo file"),
        (lambda content: content[:-1], "expected 268 bytes for 8x4, got 267"),
        (lambda content: content[:7], "not a .flo file"),
        (lambda content: content[:4] + np.array([-1, 4], "<i4").tobytes() + content[12:], "not a .flo file"),
    ],
)
def test_a_damaged_file_is_told(change: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "1.flo"
    write_flo(path, np.ones((4, 8, 2)))
    assert (read_flo(path) == 1).all()
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(VideoError, match=f"1.flo: .*{message}"):
        read_flo(path)


def test_unknown_motion_is_none_and_missing_files_are_told(tmp_path: Path) -> None:
    flow = np.ones((4, 8, 2), np.float32)
    flow[0, 0] = 1e10, np.nan
    write_flo(tmp_path / "frame_0001.flo", flow)
    assert read_flo(tmp_path / "frame_0001.flo")[0, 0].tolist() == [0, 0]
    assert FlowFolder(tmp_path).read((0, 1), 2).shape == (2, 4, 8, 2)
    with pytest.raises(VideoError, match=r"expected 2 \.flo files"):
        FlowFolder(tmp_path).read((0,), 3)
    write_flo(tmp_path / "frame_0002.flo", flow[:2])
    with pytest.raises(VideoError, match="of one size"):
        FlowFolder(tmp_path).read((0, 1), 3)


@pytest.mark.parametrize("name", ["x3d-xs", "efficient-x3d-xs", "slow-r50", "i3d-r50", "r2plus1d-r50", "mvit-b-16x4"])
def test_the_first_block_takes_the_channels(name: str, workspace: Workspace) -> None:
    network = resolve(workspace, f"zoo:{name}", None)
    flow = network.with_channels(2)
    assert flow.input.c == flow.blocks[0].in_channels == 2
    assert flow.blocks[1:] == network.blocks[1:]
    assert flow.with_channels(3) == network


def test_pathways_take_pictures_alone(workspace: Workspace) -> None:
    with pytest.raises(InvalidValue, match="takes clips of 3 channels alone, got 2"):
        resolve(workspace, "zoo:slowfast-r50", None).with_channels(2)
