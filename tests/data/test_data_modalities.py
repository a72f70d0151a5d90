"""Pictures, flow, sound and readings of one clip: the same time, the same place, the same from every process."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from sound_files import sine, write_film
from torch import nn
from torchvision.io import encode_png, write_png
from video_files import MakeVideo

from hwbench.data import (
    ClipSpec,
    TestClips,
    TestTransform,
    TrainingClips,
    augmentation,
    collate,
    listing_of,
    read_splits,
)
from hwbench.data.archives import ArchiveMember, MemorySource
from hwbench.data.arrow import RowSource
from hwbench.data.clip_places import beside
from hwbench.data.decoding import VideoFile, probe
from hwbench.data.failures import FailurePolicy
from hwbench.data.flow import FlowFolder
from hwbench.data.images import FrameFolder
from hwbench.data.imu import ImuSpec
from hwbench.data.info_index import InfoIndex
from hwbench.data.loading import Loader, in_order, shuffled
from hwbench.data.media import FileSource, VideoSource
from hwbench.data.mel import MelSpec
from hwbench.data.modalities import Audio, FlowFiles, Imu, Modalities, OpticalFlow
from hwbench.data.readers import get
from hwbench.data.spec_augment import SpecAugment
from hwbench.data.transforms import RandomResizedCrop, Resize, ScaleJitter, TrainTransform
from hwbench.data.videos import VideoList, splits_of
from hwbench.errors import InvalidFile, InvalidValue, VideoError

RATE, FPS = 16000, 25
CLIP = ClipSpec(8, span_s=0.8)
MEL = MelSpec(mels=16)
IMU = Imu(ImuSpec(("turn",), "ms", readings=40, normalised=False))
CLASSES = ("dark-high", "dark-low", "light-high", "light-low")


def write_readings(path: Path, values: np.ndarray) -> None:
    """100 readings a second."""
    rows = "".join(f"{10 * number},{value:.6f}\n" for number, value in enumerate(values))
    path.write_text(f"ms,turn\n{rows}")


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes by brightness and pitch, of which neither alone suffices; readings beside all but the last film."""
    root, rng = tmp_path_factory.mktemp("films"), np.random.default_rng(0)
    for label in CLASSES:
        for number in range(4):
            shade = (60 if label.startswith("dark") else 170) + rng.integers(0, 30)
            pictures = np.full((2 * FPS, 32, 32, 3), shade, np.uint8)
            tone = sine(RATE, 2, hertz=2500.0 if label.endswith("high") else 500.0)
            path = write_film(root / label / f"{number}.mp4", pictures, tone, fps=FPS)
            write_readings(path.with_suffix(".csv"), rng.normal(size=200))
    (root / CLASSES[-1] / "3.csv").unlink()
    return root


def training(root: Path, modalities: Modalities, **more: object) -> TrainingClips:
    clip = more.pop("clip", CLIP)
    return TrainingClips(read_splits(root).train, clip, ScaleJitter((16, 16)), modalities=modalities, **more)  # type: ignore[arg-type]


ALL = Modalities(audio=Audio(MEL, augment=SpecAugment(4, 1, 10, 1)), imu=IMU, flow=OpticalFlow())


def edges_s(on: np.ndarray, step_s: float) -> list[float]:
    """When something goes on and off, in seconds from the start of the clip: ``on`` bool (L,), a step apart."""
    return [float(place + 1) * step_s for place in np.flatnonzero(np.diff(on.astype(int)))]


@pytest.mark.parametrize("name", ["flash.mp4", "flash.mkv"])
@pytest.mark.parametrize("late", [0, 7])
def test_flash_tone_and_turn_fall_into_the_same_place(name: str, late: int, tmp_path: Path) -> None:
    """From frame 30 to 38 the picture is white, a tone sounds, and the sensor turns. The file may begin with sound."""
    begins, ends = 30, 38
    pictures, turns = np.zeros((75, 32, 32, 3), np.uint8), np.zeros(300)
    pictures[begins:ends], turns[4 * begins : 4 * ends] = 255, 1
    sound, sounds = np.zeros((1, 4 * RATE), np.float32), slice(*((late + k) * RATE // FPS for k in (begins, ends)))
    sound[:, sounds] = sine(RATE, 4, hertz=1000.0)[:, sounds]
    for label in ("one", "two"):
        for number in range(2):
            path = write_film(tmp_path / label / f"{number}{name}", pictures, sound, fps=FPS, late=late)
            write_readings(path.with_suffix(".csv"), turns)
    dataset = training(tmp_path, Modalities(audio=Audio(MEL), imu=IMU), clip=ClipSpec(20, span_s=0.8))
    seen = 0
    for epoch in range(60):
        dataset.set_epoch(epoch)
        sample = dataset[0]
        assert sample.pictures is not None
        flash = edges_s(sample.pictures[0].float().mean(dim=(1, 2, 3)).numpy() > 128, 1 / FPS)
        # Both edges, and not within a frame or two of the ends of the clip, where the others need not lie inside.
        if len(flash) == 2 and flash[0] > 2 / FPS and flash[1] < 0.8 - 2 / FPS:
            tone = edges_s(sample.tracks["audio"].values[0].max(dim=0).values.numpy() > 0, MEL.hop / RATE)
            turn = edges_s(sample.tracks["imu"].values[0, 0].numpy() > 0.5, 0.8 / 40)
            assert tone == pytest.approx(flash, abs=1 / FPS)
            assert turn == pytest.approx(flash, abs=1 / FPS)
            seen += 1
    assert seen >= 3


@pytest.mark.parametrize("late", [0, 13, 200])
def test_sound_belongs_to_pictures_that_are_counted(late: int, tmp_path: Path) -> None:
    """Two pictures with one time stamp, as in MPEG-PS, whose first is 0.5 s, or where a recording was cut."""
    begins, ends = 30, 38
    pictures, sound = np.zeros((75, 32, 32, 3), np.uint8), np.zeros((1, 12 * RATE), np.float32)
    sounds = slice(*((late + k) * RATE // FPS for k in (begins, ends)))
    pictures[begins:ends], sound[:, sounds] = 255, sine(RATE, 12, hertz=1000.0)[:, sounds]
    times = [*range(60), 59, *range(61, 75)]
    path = write_film(tmp_path / "a" / "film.mkv", pictures, sound, fps=FPS, late=late, times=times, codec="ffv1")
    assert probe(path).counted
    videos, index = VideoList(tmp_path, (path,), (0,), ("a",)), InfoIndex(tmp_path / "index.sqlite")
    for _ in range(2):  # as probed, and as kept
        audio = Modalities(audio=Audio(MEL))
        clips = TestClips(videos, ClipSpec(75, stride=1), TestTransform((16, 16)), modalities=audio, index=index)
        sample = clips[0]
        assert sample.pictures is not None
        flash = edges_s(sample.pictures[0].float().mean(dim=(1, 2, 3)).numpy() > 128, 1 / FPS)
        tone = edges_s(sample.tracks["audio"].values[0].max(dim=0).values.numpy() > 0, MEL.hop / RATE)
        assert flash == pytest.approx([begins / FPS, ends / FPS])
        assert tone == pytest.approx(flash, abs=1 / FPS)


@pytest.mark.parametrize("convention", ["hwbench", "pytorchvideo"])
@pytest.mark.parametrize("jitter", [(), ("temporal-jitter:1",)])
def test_a_clip_that_begins_while_a_frame_is_held_has_the_sound_and_readings_of_its_time(
    convention: str, jitter: tuple[str, ...], tmp_path: Path
) -> None:
    """The first of 51 frames is on screen for 2 s. Sensors count milliseconds, and a tone sounds from 1.7 to 1.9 s."""
    sound = np.zeros((1, 4 * RATE), np.float32)
    sounds = slice(17 * RATE // 10, 19 * RATE // 10)
    sound[:, sounds] = sine(RATE, 4, hertz=1000.0)[:, sounds]
    times = [0, *range(50, 100)]
    path = write_film(tmp_path / "a" / "film.mkv", np.zeros((51, 32, 32, 3), np.uint8), sound, fps=FPS, times=times)
    write_readings(path.with_suffix(".csv"), 10.0 * np.arange(400))
    videos, clip = VideoList(tmp_path, (path,), (0,), ("a",)), ClipSpec(25, span_s=1.0, convention=convention)
    modalities = Modalities(audio=Audio(MEL), imu=IMU)
    tracks = [
        TestClips(videos, clip, TestTransform((16, 16)), clips=clips, modalities=modalities)[at].tracks
        for clips, at in ((3, 1), (3, 2))
    ]
    for track, starts_s in zip(tracks, (1.5, 3.0)):
        readings_ms = 1000 * (starts_s + np.arange(40) / 40)
        np.testing.assert_allclose(track["imu"].values[0, 0], readings_ms, atol=1)
    tone = edges_s(tracks[0]["audio"].values[0].max(dim=0).values.numpy() > 0, MEL.hop / RATE)
    assert tone == pytest.approx([0.2, 0.4], abs=0.03)
    drawn = TrainingClips(
        videos, clip, augmentation(jitter, ScaleJitter((16, 16))), modalities=Modalities(rgb=False, imu=IMU)
    )
    starts_ms = []
    for epoch in range(20):
        drawn.set_epoch(epoch)
        starts_ms.append(float(drawn[0].tracks["imu"].values[0, 0, 0]))
    assert len({start for start in starts_ms if 40 < start < 1960}) > 5


def test_pictures_are_the_same_whatever_is_read_beside_them(films: Path) -> None:
    plain, joint = training(films, Modalities()), training(films, ALL)
    for index in range(3):
        first, second = plain[index].pictures, joint[index].pictures
        assert first is not None
        assert second is not None
        assert torch.equal(first, second)
    assert plain[0].tracks == {}
    assert set(joint[0].tracks) == {"flow", "audio", "imu"}


def test_a_sample_follows_from_seed_epoch_and_index(films: Path) -> None:
    one, same, other = (training(films, ALL, seed=seed) for seed in (1, 1, 2))
    again = same[2]
    for dataset in (one, other):
        _ = dataset[0]  # what was read before does not matter
    for key in ("audio", "imu"):
        assert torch.equal(one[2].tracks[key].values, again.tracks[key].values)
        assert not torch.equal(other[2].tracks[key].values, again.tracks[key].values)
    same.set_epoch(1)
    assert not torch.equal(same[2].tracks["audio"].values, again.tracks["audio"].values)


def test_batches_do_not_depend_on_worker_processes(films: Path) -> None:
    order = shuffled(12, 4, seed=0, epoch=0)
    here, there = (list(Loader(training(films, ALL), workers=workers).batches(order)) for workers in (0, 2))
    assert len(here) == len(there) == 3
    for one, other in zip(here, there):
        assert torch.equal(one.clips, other.clips)
        for key, track in one.tracks.items():
            assert torch.equal(track.values, other.tracks[key].values)
            assert torch.equal(track.valid, other.tracks[key].valid)
        assert one.tracks["audio"].values.shape == (4, 16, 81)
        assert one.tracks["imu"].values.shape == (4, 1, 40)
        assert one.tracks["flow"].values.shape == (4, 2, 8, 16, 16)
        assert not one.tracks["flow"].values.any()
        assert one.tracks["flow"].present.tolist() == [False] * 4
        assert one.tracks["audio"].present.all()


def test_what_a_video_has_none_of_is_zeros_under_the_same_key(films: Path, make_video: MakeVideo) -> None:
    silent = make_video("clips/a/silent.mp4", count=60)
    videos = read_splits(films).train
    videos = VideoList(films, (silent, videos.paths[0]), (0, 1), CLASSES)
    dataset = TrainingClips(videos, CLIP, ScaleJitter((16, 16)), modalities=ALL)
    batch = collate([dataset[0], dataset[1]]).normalised()
    for key in ("audio", "imu"):
        assert batch.tracks[key].present.tolist() == [False, True]
        assert not batch.tracks[key].values[0].any()
        assert batch.tracks[key].values[1].any()


def test_without_pictures_none_is_decoded(films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VideoFile, "read", lambda *_: pytest.fail("decoded"))
    sound = Modalities(rgb=False, audio=Audio(MEL))
    batch = collate([training(films, sound)[index] for index in range(3)]).normalised()
    assert batch.clips.shape == (3, 3, 0, 16, 16)
    assert batch.tracks["audio"].values.shape == (3, 16, 81)
    test = TestClips(read_splits(films).train, CLIP, TestTransform((16, 16), 3), clips=2, modalities=sound)
    assert collate([test[1]]).normalised().tracks["audio"].values.shape == (3, 16, 81)


def test_test_views_have_the_time_of_their_clip(films: Path) -> None:
    videos = read_splits(films).train
    test = TestClips(videos, CLIP, TestTransform((16, 16), 3), clips=3, modalities=ALL)
    batches = list(Loader(test).batches(in_order(len(videos) * 3, 3)))
    first = batches[0]
    assert (len(first), first.tracks["imu"].values.shape) == (9, (9, 1, 40))
    readings = np.loadtxt(videos.paths[0].with_suffix(".csv"), delimiter=",", skiprows=1)
    for clip, start_s in enumerate((0.0, 0.6, 1.2)):
        expected = np.interp(start_s + 0.02 * np.arange(40), readings[:, 0] / 1000, readings[:, 1])
        for crop in range(3):
            np.testing.assert_allclose(first.tracks["imu"].values[3 * clip + crop, 0], expected, atol=1e-5)
    # SpecAugment is for training alone.
    alone = TestClips(videos, CLIP, TestTransform((16, 16)), clips=3, modalities=Modalities(audio=Audio(MEL)))
    assert torch.equal(first.tracks["audio"].values[:1], alone[0].tracks["audio"].values)


def test_segments_cover_the_whole_video_and_strides_their_frames(films: Path) -> None:
    audio = Modalities(audio=Audio(MEL))
    segments = training(films, audio, clip=ClipSpec(4, convention="segments"))[0]
    assert segments.tracks["audio"].values.shape == (1, 16, 201)
    assert training(films, audio, clip=ClipSpec(4, stride=5))[0].tracks["audio"].values.shape == (1, 16, 81)


def test_shorter_tracks_are_filled_up_in_a_batch(films: Path) -> None:
    audio = Modalities(audio=Audio(MEL))
    long, short = (training(films, audio, clip=ClipSpec(4, stride=stride))[0] for stride in (5, 3))
    track = collate([long, short]).tracks["audio"]
    assert track.values.shape == (2, 16, 81)
    assert track.valid.sum(dim=1).tolist() == [81, 49]
    assert not track.values[1, :, 49:].any()


def test_a_damaged_file_is_a_failure_of_its_video(films: Path, tmp_path: Path) -> None:
    for number in range(5):
        for label in ("a", "b"):
            folder = tmp_path / label
            folder.mkdir(exist_ok=True)
            (folder / f"{number}.mp4").write_bytes((films / CLASSES[0] / "0.mp4").read_bytes())
            (folder / f"{number}.csv").write_text("ms,turn\n0,1\n1,wrong\n")
    with pytest.raises(VideoError, match=r"\.csv:3: expected a number as 'turn', got 'wrong'$"):
        _ = training(tmp_path, Modalities(imu=IMU))[0]
    sample = training(tmp_path, Modalities(imu=IMU), policy=FailurePolicy.SKIP)[0]
    assert sample.pictures is None
    assert len(collate([sample]).normalised()) == 0
    assert "expected a number" in sample.failures[0].cause


@pytest.mark.parametrize(
    ("source", "beside_it"),
    [
        (FileSource(Path("films/go!.mp4")), "films/go!"),
        (FileSource(Path("fi!lms/say!left.mp4")), "fi!lms/say!left"),
        (FrameFolder(Path("films/say!left.1")), "films/say!left.1"),
        (MemorySource("films/say!left.mp4", b""), "films/say!left"),
        (ArchiveMember(Path("sets/a!b.tar"), "say!left.mp4", 0, 1), "sets/say!left"),
        (ArchiveMember(Path("sets/a.tar"), "./left/0.mp4", 0, 1), "sets/left/0"),
        (RowSource(Path("sets/a!b.parquet"), "film!", 1, 2), "sets/film![1,2]"),
    ],
)
def test_what_belongs_to_a_video_has_its_whole_name(source: VideoSource, beside_it: str) -> None:
    assert beside(source, None) == Path(beside_it)
    assert beside(source, Path("other")) == Path("other", Path(beside_it).name)


def test_files_with_an_exclamation_mark_have_readings_and_flow_of_their_own(films: Path, tmp_path: Path) -> None:
    for label in ("left", "right"):
        for name in ("go!", "a!b", "b"):
            path = tmp_path / label / f"{name}.mp4"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((films / CLASSES[0] / "0.mp4").read_bytes())
            write_readings(path.with_suffix(".csv"), np.full(200, len(name)))
            path.with_suffix("").mkdir()
            (path.with_suffix("") / "flow_x_1.jpg").write_bytes(b"not looked at")
    dataset = training(tmp_path, Modalities(imu=IMU))
    for index, path in enumerate(dataset.videos.paths):
        assert dataset[index].tracks["imu"].values.unique().tolist() == [len(path.stem)]
        assert FlowFiles().folder(FileSource(path)) == FlowFolder(path.with_suffix(""))
        assert FlowFiles(tmp_path).folder(FileSource(path)) == FlowFolder(path.with_suffix(""))


def test_readings_in_a_folder_of_their_own_are_those_of_the_class(films: Path, tmp_path: Path) -> None:
    for value, label in enumerate(CLASSES[:-1], start=1):
        (tmp_path / label).mkdir()
        for number in range(4):
            write_readings(tmp_path / label / f"{number}.csv", np.full(200, value))
    for number in range(4):
        write_readings(tmp_path / f"{number}.csv", np.full(200, 9))
    dataset = training(films, Modalities(imu=Imu(IMU.spec, tmp_path)))
    for index, path in enumerate(dataset.videos.paths):
        value = 9 if path.parent.name == CLASSES[-1] else CLASSES.index(path.parent.name) + 1
        assert dataset[index].tracks["imu"].values.unique().tolist() == [value]


def test_what_belongs_to_one_video_is_not_shared_by_those_of_its_name(films: Path, tmp_path: Path) -> None:
    for number in range(4):
        write_readings(tmp_path / f"{number}.csv", np.full(200, 9))
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "flow_x_1.jpg").write_bytes(b"not looked at")
    videos = read_splits(films).train
    for modalities, ending in (
        (Modalities(imu=Imu(IMU.spec, tmp_path)), r"\.csv"),
        (Modalities(flow=OpticalFlow(FlowFiles(tmp_path))), ""),
    ):
        both = rf"/(\d){ending}: belongs to .*/dark-high/\1\.mp4 or to .*/\1\.mp4; give each its own"
        with pytest.raises(InvalidFile, match=both):
            TrainingClips(videos, CLIP, ScaleJitter((16, 16)), modalities=modalities)
        with pytest.raises(InvalidFile, match=both):
            TestClips(videos, CLIP, TestTransform((16, 16)), modalities=modalities)
        TrainingClips(videos.subset([0, 0, 1]), CLIP, ScaleJitter((16, 16)), modalities=modalities)


def test_sound_and_readings_end_with_the_part_that_is_labelled(tmp_path: Path) -> None:
    """The first part ends after 0.4 s, and its clip covers 1.2 s."""
    for name in "vw":
        pictures = np.zeros((2 * FPS, 32, 32, 3), np.uint8)
        path = write_film(tmp_path / f"{name}.mkv", pictures, sine(RATE, 3), fps=FPS, late=7)
        write_readings(path.with_suffix(".csv"), np.repeat([1.0, -1.0], (40, 160)))
    rows = [{"path": f"{name}.mkv", "label": "one", "end_s": 0.4} for name in "vw"]
    rows += [{"path": f"{name}.mkv", "label": "other", "start_s": 0.4} for name in "vw"]
    videos = splits_of(listing_of(rows, tmp_path), tmp_path).train
    modalities = Modalities(audio=Audio(MEL), imu=IMU)
    test = TestClips(videos, ClipSpec(8, span_s=1.2), TestTransform((16, 16)), modalities=modalities)
    tracks = {videos.classes[label]: test[index].tracks for index, label in enumerate(videos.labels)}
    imu, audio = tracks["one"]["imu"], tracks["one"]["audio"]
    inside = 14  # 0 to 13 of steps of 0.03 s
    assert imu.valid[0].tolist() == [True] * inside + [False] * (40 - inside)
    assert imu.values[0, 0, inside:].unique().tolist() == [0]
    assert (imu.values[0, 0, : inside - 1] > 0).all()
    frames = RATE * 4 // 10 // MEL.hop
    assert audio.valid[0].tolist() == [True] * frames + [False] * (121 - frames)
    assert not audio.values[0, :, frames:].any()
    assert audio.values[0, :, :frames].any()
    for key, track in tracks["other"].items():
        assert track.valid.all(), key


@pytest.fixture
def flow_frames(tmp_path: Path) -> VideoList:
    """Frames of noise as images, whose flow has the codes of their red: what is done to one shows in the other."""
    rng = np.random.default_rng(0)
    for label in ("a", "b"):
        for number in range(2):
            folder = tmp_path / label / str(number)
            folder.mkdir(parents=True)
            for frame in range(1, 9):
                picture = torch.from_numpy(rng.integers(0, 256, (3, 24, 36), dtype=np.uint8))
                planes = {"img_": picture, "flow_x_": picture[:1], "flow_y_": picture[:1]}
                for prefix, plane in planes.items():
                    image = encode_png(plane.contiguous()).numpy().tobytes()
                    (folder / f"{prefix}{frame:05d}.png").write_bytes(image)
    lines = [f"{label}/{number} 8 {index}" for index, label in enumerate("ab") for number in range(2)]
    (tmp_path / "train.txt").write_text("\n".join(lines))
    return read_splits(tmp_path, reader=get("mmaction2")).train


@pytest.mark.parametrize(
    "transform",
    [
        ScaleJitter((16, 16), flip=0.5),
        RandomResizedCrop((16, 16), flip=0.5),
        augmentation(["flip:0.5"], ScaleJitter((16, 16))),
        augmentation(
            ["random-erasing:1", "random-resized-crop", "flip:0.5", "temporal-jitter:1"], ScaleJitter((16, 16))
        ),
    ],
    ids=["scale-jitter", "random-resized-crop", "flip", "steps"],
)
def test_flow_is_seen_as_pictures_are(transform: ScaleJitter, flow_frames: VideoList) -> None:
    clip, modalities = ClipSpec(4, stride=1), Modalities(flow=OpticalFlow())
    dataset = TrainingClips(flow_frames, clip, transform, modalities=modalities)
    flips = []
    for epoch in range(12):
        dataset.set_epoch(epoch)
        sample = dataset[0]
        assert sample.pictures is not None
        red, flow = sample.pictures[0, :, 0].int(), sample.tracks["flow"].values[0].int()
        kept = (sample.pictures[0] != 115).any(dim=1)  # what is erased from pictures is not from flow
        assert kept.float().mean() > 0.5
        # The last of 8 frames has the flow of the one before.
        rows = slice(0, 3)
        assert torch.equal(red[rows][kept[rows]], flow[rows, 1][kept[rows]])
        across = flow[rows, 0][kept[rows]]
        flips.append(bool(torch.equal(across, 255 - red[rows][kept[rows]])))
        assert flips[-1] or torch.equal(across, red[rows][kept[rows]])
    assert len(set(flips)) == 2


def places_in_frame(height: int, width: int) -> torch.Tensor:
    """A picture whose values tell the place: from 0 to 255 to the right, and down: uint8 (2, H, W)."""
    across, down = (255 * (torch.arange(side) + 0.5) / side for side in (width, height))
    return torch.stack([across.expand(height, width), down[:, None].expand(height, width)]).round().to(torch.uint8)


@pytest.mark.parametrize("flow_size", [(24, 40), (12, 20), (11, 20), (96, 160)])
@pytest.mark.parametrize(
    "transform",
    [
        ScaleJitter((16, 16), flip=0.5),
        ScaleJitter((16, 16), resize=Resize.SHORT_SIDE),
        ScaleJitter((16, 16), scale=(1.0, 1.02)),
        RandomResizedCrop((16, 16), flip=0.5),
        augmentation(["random-erasing:1", "random-resized-crop", "flip:0.5"], ScaleJitter((16, 16))),
    ],
    ids=["scale-jitter", "short-side", "little-room", "random-resized-crop", "steps"],
)
def test_flow_of_another_size_is_seen_at_the_same_place(
    transform: TrainTransform, flow_size: tuple[int, int], tmp_path: Path
) -> None:
    folders = [f"{label}/{number}" for label in "ab" for number in range(2)]
    picture, flow = places_in_frame(48, 80), places_in_frame(*flow_size)
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        for prefix, plane in {"img_": picture[[0, 1, 1]], "flow_x_": flow[:1], "flow_y_": flow[1:]}.items():
            write_png(plane, str(tmp_path / folder / f"{prefix}1.png"))
    (tmp_path / "train.txt").write_text("\n".join(f"{folder} 1 {'ab'.index(folder[0])}" for folder in folders))
    videos = read_splits(tmp_path, reader=get("mmaction2")).train
    clips = TrainingClips(videos, ClipSpec(1, stride=1), transform, modalities=Modalities(flow=OpticalFlow()))
    for epoch in range(40):
        clips.set_epoch(epoch)
        sample = clips[0]
        assert sample.pictures is not None
        seen, followed = sample.pictures[0, 0].float(), sample.tracks["flow"].values[0, 0].float()
        if seen[0, 8, 0] > seen[0, 8, -1]:  # mirrored: what is on the right moves to the right no more
            seen[0] = 255 - seen[0]
        kept = (sample.pictures[0, 0] != 115).any(dim=0)  # not erased
        for axis, side in ((0, flow_size[1]), (1, flow_size[0])):
            difference = (seen[axis] - followed[axis])[kept].mean().abs()
            assert difference < 255 / side, f"{difference * side / 255} pixels of flow apart in epoch {epoch}"


def test_flow_of_a_test_has_its_crops_and_normalised_values(flow_frames: VideoList) -> None:
    test = TestClips(flow_frames, ClipSpec(4, stride=1), TestTransform((16, 16), 3), modalities=ALL)
    sample = test[0]
    assert sample.pictures is not None
    assert torch.equal(sample.tracks["flow"].values[:, :, 0], sample.pictures[:, :, 0])
    track = collate([sample]).normalised().tracks["flow"]
    assert track.values.shape == (3, 2, 4, 16, 16)
    assert track.present.all()
    expected = sample.pictures[:, :, 0].float() / 127.5 - 1
    torch.testing.assert_close(track.values[:, 0], expected)
    elsewhere = Modalities(flow=OpticalFlow(FlowFiles(Path("nowhere"))))
    missing = TestClips(flow_frames, ClipSpec(4, stride=1), TestTransform((16, 16), 3), modalities=elsewhere)[0]
    assert not missing.tracks["flow"].present.any()


def test_images_without_flow_have_none_and_with_a_part_of_it_are_an_error(flow_frames: VideoList) -> None:
    without, partly = (flow_frames.source(index) for index in (0, 1))
    for source, kept in ((without, ()), (partly, ("flow_x_00001.png",))):
        assert isinstance(source, FrameFolder)
        for file in source.folder.glob("flow_*"):
            if file.name not in kept:
                file.unlink()
    dataset = TestClips(
        flow_frames, ClipSpec(4, stride=1), TestTransform((16, 16)), modalities=Modalities(flow=OpticalFlow())
    )
    assert not dataset[0].tracks["flow"].present.any()
    with pytest.raises(VideoError, match="expected 7 images, as listed"):
        dataset[1]


def test_flow_follows_only_transforms_of_hwbench(flow_frames: VideoList) -> None:
    class Other:
        size = (16, 16)

    other = cast(TrainTransform, Other())
    TrainingClips(flow_frames, CLIP, other)
    with pytest.raises(InvalidValue, match=r"transform of hwbench's own, .* got Other"):
        TrainingClips(flow_frames, CLIP, other, modalities=Modalities(flow=OpticalFlow()))


class TwoBranches(nn.Module):
    """A vector of the pictures beside one of the sound."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = nn.Sequential(nn.Conv3d(3, 4, 1), nn.AdaptiveAvgPool3d(1), nn.Flatten())
        self.sound = nn.Sequential(nn.BatchNorm1d(16), nn.Conv1d(16, 8, 1), nn.AdaptiveAvgPool1d(1), nn.Flatten())
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, clips: torch.Tensor, sound: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([self.pictures(clips), self.sound(sound)], dim=1))


def test_a_network_learns_from_pictures_and_sound_together(films: Path) -> None:
    dataset = training(films, Modalities(audio=Audio(MEL)))
    loader = Loader(dataset, workers=1)
    torch.manual_seed(0)
    network = TwoBranches()
    optimiser, losses = torch.optim.Adam(network.parameters(), lr=0.02), []
    for epoch in range(25):
        dataset.set_epoch(epoch)
        for batch in loader.batches(shuffled(len(dataset), 12, seed=0, epoch=epoch)):
            loss = nn.functional.cross_entropy(network(batch.clips, batch.tracks["audio"].values), batch.labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
    assert losses[0] > 1
    assert losses[-1] < 0.3 * losses[0]
