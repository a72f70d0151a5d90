"""Prepared sets: what becomes of a video, that ``--data`` reads the folder, and that work goes on where it stopped."""

import errno
import functools
import json
import os
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import av
import numpy as np
import pytest
from video_files import MakeVideo, frame_numbers, gradient_frames, write_disordered, write_repeats

from hwbench.data import streaming
from hwbench.data.archives import MemorySource
from hwbench.data.decoding import VideoFile, VideoInfo, probe, read_frames
from hwbench.data.encoding import write_video
from hwbench.data.images import FrameFolder
from hwbench.data.inventory import prepared_sets
from hwbench.data.listings import DataListing, SplitVideo, open_listing
from hwbench.data.media import FileSource
from hwbench.data.media_faults import naming
from hwbench.data.preparing import JOURNAL, PreparedData, PreparedFolder, plan_videos, prepare_data
from hwbench.data.readers import ListedVideo, Part, get, read
from hwbench.data.readers.frame_rates import FRAME_RATES
from hwbench.data.reencoding import (
    ENCODERS,
    Form,
    PreparedVideo,
    PrepareSettings,
    PrepareTask,
    choose_encoder,
    prepare_video,
    small_size,
)
from hwbench.data.shards import prepare_shards
from hwbench.data.videos import VideoList, read_splits
from hwbench.errors import InvalidFile, InvalidValue, MissingDependency, UsageError, VideoError, WorkspaceError
from hwbench.testing.datasets import hmdb51
from hwbench.testing.decoders import turned, write_moving
from hwbench.workspace import Workspace

REAL = Path(__file__).resolve().parents[3] / "shared" / "video"
SMALL = PrepareSettings(short_side=32)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def clips(make_video: MakeVideo, tmp_path: Path) -> Path:
    for label, count in (("run", 20), ("jump", 26)):
        for index in range(3):
            make_video(f"clips/{label}/{index}.mp4", count=count + index)
    return tmp_path / "clips"


def encode(source: Path, target: Path, settings: PrepareSettings = SMALL, part: Part | None = None) -> PreparedVideo:
    return prepare_video(PrepareTask(FileSource(source), part, target, settings))


def prepare(workspace: Workspace, data: Path | str, out: Path, settings: PrepareSettings = SMALL) -> PreparedData:
    return prepare_data(workspace, open_listing(workspace, str(data)), out, settings, jobs=0, time_limit_s=60)


def packed(workspace: Workspace, data: Path, out: Path, *, shards: bool) -> PreparedData:
    """A set prepared as class folders, or as archives of one video each."""
    if not shards:
        return prepare(workspace, data, out)
    listing = open_listing(workspace, str(data))
    return prepare_shards(workspace, listing, out, SMALL, shard_videos=1, jobs=0, time_limit_s=60)


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of the videos below a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*.mp4")
    }


@pytest.mark.parametrize(
    "matrix",
    [
        *((1, 0, 0, 1), (0, 1, -1, 0), (-1, 0, 0, -1), (0, -1, 1, 0)),
        *((-1, 0, 0, 1), (1, 0, 0, -1), (0, 1, 1, 0), (0, -1, -1, 0)),
    ],
)
def test_a_prepared_video_shows_what_the_original_shows(tmp_path: Path, matrix: tuple[int, int, int, int]) -> None:
    a, b, c, d = (value * 0x10000 for value in matrix)
    original = turned(write_moving(tmp_path / "moving.mp4"), (a, b, c, d), tmp_path / "held.mp4")
    encode(original, tmp_path / "small.mp4", PrepareSettings(short_side=48))
    shown, kept = (read_frames(path, [0, 9])[..., 0].astype(int) for path in (original, tmp_path / "small.mp4"))
    assert kept.shape == shown.shape
    assert abs(kept - shown).mean() < 6 < abs(kept[:, ::-1] - shown).mean()


QUARTER = (0, 0x10000, -0x10000, 0)


@pytest.mark.parametrize("form", ["videos", "frames"])
def test_a_portrait_video_out_of_an_archive_is_not_squashed(tmp_path: Path, form: Form) -> None:
    """A file gives frames as they are stored, an archive gives them upright: their size is another."""
    original = turned(write_moving(tmp_path / "moving.mp4"), QUARTER, tmp_path / "held.mp4")
    settings, shapes = PrepareSettings(48, form=form), set()
    for source in (FileSource(original), MemorySource("held", original.read_bytes())):
        target = tmp_path / type(source).__name__
        prepare_video(PrepareTask(source, None, target, settings))
        kept = FrameFolder(target).open().read((0, 9)) if form == "frames" else read_frames(target, [0, 9])
        shapes.add(kept.shape)
        shown = read_frames(original, [0, 9])
        assert abs(kept.shape[1] / kept.shape[2] - shown.shape[1] / shown.shape[2]) < 0.05
    assert len(shapes) == 1


def test_of_shards_of_before_those_with_squashed_videos_are_made_again(workspace: Workspace, tmp_path: Path) -> None:
    moving = write_moving(tmp_path / "moving.mp4")
    held = turned(moving, QUARTER, tmp_path / "held.mp4")
    (tmp_path / "data").mkdir()
    for side in ("train", "val"):
        with tarfile.open(tmp_path / "data" / f"{side}.tar", "w") as tar:
            for key, file in (("a", moving), ("b", held)) if side == "train" else (("c", moving),):
                (tmp_path / "label").write_text(key if side == "train" else "a")
                tar.add(file, f"{key}.mp4")
                tar.add(tmp_path / "label", f"{key}.cls")

    pack = functools.partial(packed, workspace, tmp_path / "data", tmp_path / "out", shards=True)
    pack()
    journal = tmp_path / "out" / JOURNAL
    journal.write_text(journal.read_text().replace('"revision"', '"earlier"'))
    assert pack().skipped == 2
    assert pack().skipped == 3


@pytest.mark.parametrize(
    ("size", "short_side", "small"),
    [
        ((256, 340), 256, (256, 340)),
        ((720, 1280), 256, (256, 456)),
        ((1280, 720), 256, (456, 256)),
        ((47, 63), 256, (46, 62)),
        ((47, 63), 20, (20, 26)),
        ((100, 101), 256, (100, 100)),
        ((1, 9), 256, (2, 8)),
        ((2, 2000), 256, (2, 2000)),
    ],
)
def test_the_short_side_shrinks_and_never_grows(size: tuple[int, int], short_side: int, small: tuple[int, int]) -> None:
    assert small_size(size, short_side) == small


@pytest.mark.parametrize("encoder", ENCODERS)
def test_frames_and_times_stay_and_keyframes_come_often(encoder: str, make_video: MakeVideo, tmp_path: Path) -> None:
    source = make_video("a.mkv", count=31, fps=24, size=(64, 96), options={"bf": "2"})
    made = encode(source, tmp_path / "b.mp4", PrepareSettings(32, gop=10, encoder=encoder))
    info = probe(tmp_path / "b.mp4")
    assert (info.width, info.height, info.num_frames) == (48, 32, 31)
    assert (info.fps, info.duration_s) == (pytest.approx(24), pytest.approx(31 / 24))
    assert np.diff((*info.keyframes, 31)).max() <= 10
    assert frame_numbers(read_frames(tmp_path / "b.mp4", range(31))) == list(range(31))
    assert (made.frames, made.fps, made.bytes) == (31, 24.0, (tmp_path / "b.mp4").stat().st_size)


def test_quality_costs_bytes(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (8, 96, 128, 3), dtype=np.uint8)
    write_video(tmp_path / "a.mp4", noise, fps=8)
    sizes = [
        encode(tmp_path / "a.mp4", tmp_path / "b.mp4", PrepareSettings(64, quality=quality)).bytes
        for quality in (2, 8, 31)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_uneven_times_stay(make_video: MakeVideo, tmp_path: Path) -> None:
    times = [0, 1, 2, 5, 6, 7, 8, 12, 13, 14, 15, 30]
    encode(make_video("a.mp4", count=12, times=times), tmp_path / "b.mp4")
    info = probe(tmp_path / "b.mp4")
    seconds = [float(int(pts) * info.time_base) for pts in info.pts]
    assert seconds == pytest.approx([time / 30 for time in times], abs=0.001)
    assert info.duration_s == pytest.approx(probe(tmp_path / "a.mp4").duration_s, abs=0.002)


def test_one_frame_of_a_moment_is_prepared(tmp_path: Path) -> None:
    """1/90000 s; the header of MPEG-4 part 2 has at most 65535 ticks a second."""
    with av.open(str(tmp_path / "a.mp4"), "w") as file:
        stream: Any = file.add_stream("libx264", rate=90000)
        stream.height, stream.width, stream.pix_fmt, stream.time_base = 48, 64, "yuv420p", Fraction(1, 90000)
        frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 100, np.uint8), format="rgb24")
        frame.pts, frame.time_base = 0, Fraction(1, 90000)
        file.mux(stream.encode(frame))
        file.mux(stream.encode())
    assert probe(tmp_path / "a.mp4").exact_duration_s == Fraction(1, 90000)
    made = encode(tmp_path / "a.mp4", tmp_path / "b.mp4")
    assert (made.frames, made.fps) == (1, 65535)
    assert read_frames(tmp_path / "b.mp4", (0,)).mean() == pytest.approx(100, abs=4)


def write_slow_motion(path: Path, rate: Fraction = Fraction(120000, 1001), count: int = 26) -> Path:
    """A video whose frames a second are a fraction, as cameras write slow motion."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("libx264", rate=rate)
        stream.height, stream.width, stream.pix_fmt, stream.time_base = 48, 64, "yuv420p", 1 / rate
        for time, picture in enumerate(gradient_frames(count, 48, 64)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = time, 1 / rate
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path


@pytest.mark.parametrize("asked", [None, 119.88011988011988])
@pytest.mark.parametrize(("form", "encoder"), [("videos", "mpeg4"), ("videos", "libx264"), ("frames", "mpeg4")])
def test_rates_of_slow_motion_stay(form: Form, encoder: str, asked: float | None, tmp_path: Path) -> None:
    """MPEG-4 part 2 cannot say 120000 ticks a second, and says the rate that is nearest to it."""
    exact = Fraction(120000, 1001)
    source = write_slow_motion(tmp_path / "a.mp4")
    assert probe(source).exact_fps == exact
    made = encode(source, tmp_path / "b.mp4", PrepareSettings(32, fps=asked, encoder=encoder, form=form))
    assert (made.frames, made.fps) == (26, 119.8801)
    if form == "videos":
        assert probe(tmp_path / "b.mp4").exact_fps == (exact if encoder == "libx264" else Fraction(40999, 342))


def test_a_moment_shorter_than_a_tick_of_mpeg4_keeps_its_length_in_other_forms(tmp_path: Path) -> None:
    source = write_slow_motion(tmp_path / "a.mp4", Fraction(90000), 1)
    for form, encoder in (("videos", "libx264"), ("frames", "mpeg4")):
        settings: Any = {"form": form, "encoder": encoder}
        assert encode(source, tmp_path / form, PrepareSettings(32, **settings)).fps == 90000


@pytest.mark.parametrize("shards", [False, True])
def test_of_a_set_of_before_rates_that_were_rounded_are_made_again(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, shards: bool
) -> None:
    out, journal = tmp_path / "out", tmp_path / "out" / JOURNAL
    pack = functools.partial(packed, workspace, tmp_path / "clips", out, shards=shards)
    for label in ("run", "jump"):
        for index, count in enumerate((20, 22)):
            make_video(f"clips/{label}/{index}.mp4", count=count, fps=120)
    write_slow_motion(tmp_path / "clips" / "run" / "slow.mp4")
    pack()
    # What the version before noted: of archives no rate, of videos the rounded one.
    old = journal.read_text().replace('"revision": 3', '"revision": 2').replace('"fps": 119.8801', '"fps": 120.0')
    journal.write_text(old)
    assert [pack().skipped for _ in range(2)] == [4, 5]


@pytest.mark.parametrize(("fps", "numbers"), [(10, [0, 3, 6, 9]), (60, [i // 2 for i in range(24)])])
def test_another_rate_takes_the_frame_on_screen(
    fps: float, numbers: list[int], make_video: MakeVideo, tmp_path: Path
) -> None:
    encode(make_video("a.mp4", count=12), tmp_path / "b.mp4", PrepareSettings(32, fps=fps))
    assert probe(tmp_path / "b.mp4").fps == pytest.approx(fps)
    assert frame_numbers(read_frames(tmp_path / "b.mp4", range(len(numbers)))) == numbers


def test_a_part_is_cut_out(make_video: MakeVideo, tmp_path: Path) -> None:
    source = make_video("a.mp4", count=30, gop=4)
    encode(source, tmp_path / "b.mp4", part=Part(Fraction(1, 3), Fraction(2, 3)))
    assert frame_numbers(read_frames(tmp_path / "b.mp4", range(10))) == list(range(10, 20))
    assert probe(tmp_path / "b.mp4").num_frames == 10
    with pytest.raises(VideoError, match="the label begins at 9 s"):
        encode(source, tmp_path / "c.mp4", part=Part(Fraction(9)))


@pytest.mark.parametrize(("name", "codec"), [("a.ts", "libx264"), ("a.ts", "mpeg2video"), ("a.mpg", "mpeg2video")])
def test_a_part_is_cut_out_where_a_seek_lands_behind_it(
    name: str, codec: str, make_video: MakeVideo, tmp_path: Path
) -> None:
    """MPEG-TS and MPEG-PS have no index: FFmpeg guesses where a time lies."""
    source = make_video(name, count=31, fps=25, gop=6, codec=codec)
    info = probe(source)
    for first in (9, 14, 20):
        start_s = int(info.pts[first] - info.pts[0]) * info.time_base
        made = encode(source, tmp_path / "b.mp4", part=Part(start_s))
        assert frame_numbers(read_frames(tmp_path / "b.mp4", range(made.frames))) == list(range(first, 31))


@pytest.mark.parametrize("name", ["a.ts", "a.m2ts"])
def test_a_part_has_no_pictures_that_refer_to_frames_before_a_seek(
    name: str, make_video: MakeVideo, tmp_path: Path
) -> None:
    """A seek may land between keyframes; MPEG-4 part 2 decodes what it finds there against a grey picture."""
    source = FileSource(make_video(name, codec="mpeg4", count=50, fps=25, gop=12, options={"bf": "2"}))
    info = probe(source.path)
    everything = [frame.to_ndarray(format="rgb24") for _, frame in streaming.stream_frames(source, info, range(50))]
    assert frame_numbers(np.stack(everything[:30])) == list(range(30))
    for first in range(1, 50):
        ((index, frame),) = streaming.stream_frames(source, info, range(first, first + 1))
        assert index == first
        assert np.array_equal(frame.to_ndarray(format="rgb24"), everything[first])


def test_a_video_with_empty_packets_is_prepared(tmp_path: Path) -> None:
    made = encode(write_repeats(tmp_path / "a.nut"), tmp_path / "b.mp4")
    assert made.frames == 30
    assert frame_numbers(read_frames(tmp_path / "b.mp4", range(30))) == list(range(30))


def test_frames_that_come_too_early_are_prepared_in_the_order_of_their_times(tmp_path: Path) -> None:
    source = write_disordered(tmp_path / "a.mkv")
    numbers = frame_numbers(read_frames(source, range(30)))
    assert numbers != sorted(numbers) == list(range(30))
    encode(source, tmp_path / "b.mp4")
    assert frame_numbers(read_frames(tmp_path / "b.mp4", range(30))) == numbers
    info = probe(source)
    for first in (1, 8, 14, 26):
        part = range(first, min(first + 7, 30))
        shown = dict(streaming.stream_frames(FileSource(source), info, part))
        assert list(shown) == list(part)
        assert frame_numbers(np.stack([f.to_ndarray(format="rgb24") for f in shown.values()])) == [
            numbers[index] for index in part
        ]


@pytest.mark.parametrize("codec", ["libx264", "mpeg2video"])
def test_a_late_part_is_not_decoded_from_the_first_frame_on(
    codec: str, make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_video("a.ts", count=120, fps=25, gop=6, codec=codec)
    info, decode, decoded = probe(source), streaming._frames, []

    def counting(packets: Iterator[Any]) -> Iterator[Any]:
        for frame in decode(packets):
            decoded.append(frame.pts)
            yield frame

    monkeypatch.setattr(streaming, "_frames", counting)
    assert [index for index, _ in streaming.stream_frames(FileSource(source), info, range(100, 102))] == [100, 101]
    assert len(decoded) < 30


def test_colours_keep_their_matrix(tmp_path: Path) -> None:
    """BT.709 that is read as BT.601 turns green into another green."""
    picture = np.zeros((64, 64, 3), np.uint8)
    picture[:, :32], picture[:, 32:] = (200, 30, 40), (20, 180, 60)
    with av.open(str(tmp_path / "a.mp4"), "w") as file:
        stream = file.add_stream("libx264", rate=25, options={"crf": "5"})
        stream.height, stream.width, stream.pix_fmt = 64, 64, "yuv420p"
        stream.codec_context.colorspace = 1
        for time in range(5):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(
                format="yuv420p", dst_colorspace="ITU709"
            )
            frame.pts, frame.time_base = time, Fraction(1, 25)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    encode(tmp_path / "a.mp4", tmp_path / "b.mp4", PrepareSettings(quality=2))
    before, after = (read_frames(tmp_path / f"{name}.mp4", (3,))[0].astype(int) for name in "ab")
    assert np.abs(before - picture)[:, ::63].max() < 8
    assert np.abs(after - before)[:, ::63].max() < 4


@pytest.mark.parametrize("form", ["videos", "frames"])
def test_interlaced_frames_are_scaled_whole(form: Form, tmp_path: Path) -> None:
    """A grey disc at rest has no combs, and a green plane in BT.709 stays as green."""
    rows, columns = np.mgrid[:288, :360]
    picture = np.full((288, 360, 3), 40, np.uint8)
    picture[(columns - 144) ** 2 + (rows - 144) ** 2 < 100**2] = 220
    picture[:, 288:] = (20, 180, 60)
    with av.open(str(tmp_path / "a.mpg"), "w") as file:
        options = {"flags": "+ilme+ildct", "qmin": "2", "qmax": "2"}
        stream: Any = file.add_stream("mpeg2video", rate=25, options=options)
        stream.height, stream.width, stream.pix_fmt = 288, 360, "yuv420p"
        stream.codec_context.colorspace = 1
        for time in range(4):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(
                format="yuv420p", dst_colorspace="ITU709"
            )
            frame.pts, frame.time_base = time, Fraction(1, 25)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    with av.open(str(tmp_path / "a.mpg")) as file:
        assert next(file.decode(video=0)).interlaced_frame
    out = tmp_path / ("b" if form == "frames" else "b.mp4")
    encode(tmp_path / "a.mpg", out, PrepareSettings(short_side=96, quality=2, form=form))
    with FrameFolder(out).open() if form == "frames" else VideoFile(out) as video:
        (made,) = video.read((2,))
    (original,) = read_frames(tmp_path / "a.mpg", (2,))
    scaled = av.VideoFrame.from_ndarray(original, format="rgb24").reformat(width=120, height=96).to_ndarray()
    difference = np.abs(made.astype(int) - scaled)
    assert difference[:, :90].max() < 25
    assert difference[:, 102:].max() < 6


def write_full_range(target: Path, codec: str, pix_fmt: str) -> Path:
    """Six frames of plain colours whose black is 0 and whose white is 255."""
    picture = np.full((64, 96, 3), 250, np.uint8)
    picture[:, :32], picture[:, 32:64] = (200, 30, 40), (4, 4, 4)
    target.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(target), "w") as file:
        stream: Any = file.add_stream(codec, rate=25, options={"crf": "5", "qmin": "2"})
        stream.height, stream.width, stream.pix_fmt = 64, 96, pix_fmt
        stream.codec_context.color_range = 2
        for time in range(6):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=pix_fmt, dst_color_range=2)
            frame.pts, frame.time_base = time, Fraction(1, 25)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return target


FULL_RANGE = [("a.mp4", "libx264", "yuvj420p"), ("a.avi", "mjpeg", "yuvj422p"), ("a.webm", "libvpx-vp9", "yuv420p")]


@pytest.mark.parametrize(("name", "codec", "pix_fmt"), FULL_RANGE)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_colours_of_full_range_stay(name: str, codec: str, pix_fmt: str, encoder: str, tmp_path: Path) -> None:
    """Phones, webcams and Motion JPEG; their values under the name of limited range stretch every contrast."""
    source = write_full_range(tmp_path / name, codec, pix_fmt)
    encode(source, tmp_path / "b.mp4", PrepareSettings(quality=2, encoder=encoder))
    before, after = (read_frames(path, (3,))[0].astype(int) for path in (source, tmp_path / "b.mp4"))
    assert np.abs(after - before)[:, 16::32].max() < 6


@pytest.mark.parametrize("shards", [False, True])
def test_of_a_set_of_before_only_full_range_is_made_again(
    workspace: Workspace, clips: Path, tmp_path: Path, shards: bool
) -> None:
    def made() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in out.rglob("*.tar" if shards else "*.mp4")}

    out, journal = tmp_path / "out", tmp_path / "out" / JOURNAL
    pack = functools.partial(packed, workspace, clips, out, shards=shards)
    write_full_range(clips / "jump" / "full.mp4", "libx264", "yuvj420p")
    pack()
    lines = [json.loads(line) for line in journal.read_text().splitlines() if line]
    for values in lines:
        del values["revision"]
    journal.write_text("".join(f"{json.dumps(values)}\n" for values in lines))
    before = made()
    assert pack().skipped == 6
    changed = {path for path, time in made().items() if time != before[path]}
    assert len(changed) == 1
    assert shards or changed.pop().stem == "full"
    assert pack().skipped == 7


@pytest.mark.parametrize("shards", [False, True])
def test_of_a_set_of_before_nothing_is_dropped_while_an_original_cannot_be_read(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, shards: bool
) -> None:
    def pack() -> PreparedData:
        listing = DataListing("x", tmp_path, videos, ("run",), own_split=True)
        if not shards:
            return prepare_data(workspace, listing, out, SMALL, jobs=0, time_limit_s=60)
        return prepare_shards(workspace, listing, out, SMALL, shard_videos=4, jobs=0, time_limit_s=60)

    fault, out, full = tmp_path / "fault", tmp_path / "out", tmp_path / "full.mp4"
    write_full_range(full, "libx264", "yuvj420p")
    away = make_video("away.mp4", count=4)
    listed = [ListedVideo(make_video("0.mp4", count=5), "run"), ListedVideo(full, "run")]
    listed.append(ListedVideo(away, "run", source=DriveSource(away, fault)))
    validated = ListedVideo(make_video("val.mp4", count=9), "run")
    videos = (*(SplitVideo(one, "train") for one in listed), SplitVideo(validated, "val"))
    pack()
    (out / JOURNAL).write_text((out / JOURNAL).read_text().replace('"revision"', '"earlier"'))
    fault.touch()
    # A folder has its wrong video made again at once, an archive when all of its originals can be read.
    runs = [pack(), pack()]
    fault.unlink()
    runs += [pack(), pack()]
    assert [result.skipped for result in runs] == ([4, 4, 1, 4] if shards else [3, 4, 4, 4])
    assert all((result.failed, result.videos) == ([], {"train": 3, "val": 1}) for result in runs)


def test_a_frame_folder_holds_every_frame(make_video: MakeVideo, tmp_path: Path) -> None:
    made = encode(make_video("a.mp4", count=7), tmp_path / "frames", PrepareSettings(32, form="frames"))
    files = sorted((tmp_path / "frames").iterdir())
    assert [file.name for file in files] == [f"img_{number:05d}.jpg" for number in range(1, 8)]
    assert made.bytes == sum(file.stat().st_size for file in files)
    with av.open(str(files[3])) as file:
        picture = next(file.decode(video=0)).to_ndarray(format="rgb24")
    assert picture.shape == (32, 42, 3)
    assert frame_numbers(picture[None]) == [3]


def test_what_cannot_be_read_leaves_nothing(broken: dict[str, Path], tmp_path: Path) -> None:
    for name, file in broken.items():
        out = tmp_path / "out" / f"{name}.mp4"
        with pytest.raises(VideoError):
            encode(file, out)
        assert not out.exists()
    assert list((tmp_path / "out").rglob("*.tmp")) == [] if (tmp_path / "out").exists() else True


@pytest.mark.skipif(not REAL.is_dir(), reason="needs real clips in ../shared/video")
@pytest.mark.parametrize("name", ["arm_wrestling.mp4", "short_clip.avi", "h265.mp4", "av1.mkv", "h264_10bit.mp4"])
def test_real_clips_look_the_same(name: str, tmp_path: Path) -> None:
    made = encode(REAL / name, tmp_path / "b.mp4", PrepareSettings(quality=2))
    before, after = probe(REAL / name), probe(tmp_path / "b.mp4")
    assert (after.num_frames, made.frames) == (before.num_frames, before.num_frames)
    assert after.duration_s == pytest.approx(before.duration_s, abs=0.01)
    if (before.width, before.height) == (after.width, after.height):
        middle = (before.num_frames // 2,)
        one, other = (read_frames(path, middle).astype(float) for path in (REAL / name, tmp_path / "b.mp4"))
        assert abs((one - other).mean()) < 1
        assert np.abs(one - other).mean() < 6


def test_the_folder_is_read_as_data_with_the_split_that_training_draws(
    workspace: Workspace, clips: Path, tmp_path: Path
) -> None:
    prepared = prepare(workspace, clips, tmp_path / "out")
    before, after = read_splits(clips), read_splits(tmp_path / "out")
    assert prepared.videos == {"train": 4, "val": 2}
    assert after.train.classes == before.train.classes
    for old, new in ((before.train, after.train), (before.val, after.val)):
        assert [path.stem for path in old.paths] == [path.stem for path in new.paths]
        assert old.labels == new.labels
    assert [folder for folder, _ in prepared_sets(workspace)] == [tmp_path / "out"]
    assert json.loads((tmp_path / "out" / "prepared.json").read_text())["settings"]["short_side"] == 32


@pytest.mark.parametrize("earlier", [False, True])
def test_folders_of_images_keep_the_rate_of_their_video(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, earlier: bool
) -> None:
    for label, fps in (("run", 24), ("jump", 12)):
        for index in range(3):
            make_video(f"clips/{label}/{index}.mp4", count=12, fps=fps)
    out = tmp_path / "out"
    prepare(workspace, tmp_path / "clips", out, PrepareSettings(32, form="frames"))
    if earlier:  # of a version that wrote no such file
        (out / FRAME_RATES).unlink()
    splits = read_splits(out)
    assert (len(splits.train), len(splits.val), splits.train.classes) == (4, 2, ("jump", "run"))
    assert rates(splits.train) == {("jump", 12), ("run", 24)}
    assert rates(splits.val) == {("jump", 12), ("run", 24)}
    assert rates(read_splits(out / "train").train) == {("jump", 12), ("run", 24)}
    assert rates(read_splits(out, reader=get("frames", {"fps": "10"})).train) == {("jump", 10), ("run", 10)}
    # The same folder with videos again: nothing is left of the images.
    prepare(workspace, tmp_path / "clips", out)
    assert not (out / FRAME_RATES).exists()
    assert read_splits(out).train.paths[0].suffix == ".mp4"


def rates(videos: VideoList) -> set[tuple[str, float]]:
    """Names of classes with the frames a second of their videos."""
    return {(path.parent.name, videos.source(index).open().info.fps) for index, path in enumerate(videos.paths)}


def test_numbers_as_labels_keep_their_value(workspace: Workspace, clips: Path, tmp_path: Path) -> None:
    lines = [f"{label}/{index}.mp4 {number}" for label, number in (("run", 10), ("jump", 2)) for index in range(3)]
    (clips / "all.txt").write_text("\n".join(lines))
    prepare(workspace, clips / "all.txt", tmp_path / "out")
    splits = read_splits(tmp_path / "out")
    assert (len(splits.train.classes), set(splits.train.labels)) == (11, {2, 10})


def test_class_folders_with_numbers_stay_those_classes(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    for label in ("2", "30", "100"):
        for index in range(2):
            make_video(f"clips/{label}/{index}.mp4", count=5 + index)
    before = read_splits(tmp_path / "clips")
    (tmp_path / "out").mkdir()
    prepare(workspace, tmp_path / "clips", tmp_path / "out")
    assert read_splits(tmp_path / "out").train.classes == before.train.classes == ("100", "2", "30")


def own_classes(make_video: MakeVideo, root: Path) -> Path:
    """UCF101 with class numbers of its own order, and a class that only the list for testing has."""
    names = {"walk": 3, "run": 2, "jump": 1, "climb": 1}
    for label, count in names.items():
        for index in range(count):
            make_video(f"ucf/{label}/v_{label}_g0{index + 1}_c01.avi", count=8 + index)
    (root / "ucf" / "classInd.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(names, start=1)))
    train = [f"{label}/v_{label}_g01_c01.avi {number}\n" for number, label in enumerate(names, 1) if label != "jump"]
    test = [f"{label}/v_{label}_g02_c01.avi\n" for label in ("walk", "run")] + ["jump/v_jump_g01_c01.avi\n"]
    (root / "ucf" / "trainlist01.txt").write_text("".join(train))
    (root / "ucf" / "testlist01.txt").write_text("".join(test))
    return root / "ucf"


@pytest.mark.parametrize("form", ["videos", "frames"])
def test_classes_keep_their_order_and_one_without_videos_to_train_on_is_read(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, form: Form
) -> None:
    data, out = own_classes(make_video, tmp_path), tmp_path / "out"
    before = read_splits(data)
    assert before.train.classes == ("walk", "run", "jump", "climb")
    assert prepare(workspace, data, out, PrepareSettings(form=form, short_side=32)).notes == ()
    after = read_splits(out)
    assert (after.train.classes, after.val.classes) == (before.train.classes, before.val.classes)
    assert sorted(after.train.labels) == sorted(before.train.labels) == [0, 1, 3]
    assert sorted(after.val.labels) == sorted(before.val.labels) == [0, 1, 2]
    reader = get("frames" if form == "frames" else "folders")
    assert reader.read(out / "val").classes == before.train.classes
    added = make_video("added.mp4", count=9)
    target = out / "train" / "added" / "one"
    target.parent.mkdir()
    encode(added, target if form == "frames" else target.with_suffix(".mp4"), PrepareSettings(form=form, short_side=32))
    assert read_splits(out).train.classes == (*before.train.classes, "added")


@pytest.mark.parametrize("interrupted", [0, 1])
def test_a_folder_of_an_older_version_keeps_the_numbers_that_trainings_know(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, interrupted: int
) -> None:
    data, out = own_classes(make_video, tmp_path), tmp_path / "out"
    (data / "testlist01.txt").write_text("walk/v_walk_g02_c01.avi\n")
    prepare(workspace, data, out)
    values = json.loads((out / "prepared.json").read_text())
    del values["class_folders"]
    (out / "prepared.json").write_text(json.dumps(values))  # as before
    assert read_splits(out).train.classes == ("climb", "run", "walk")
    for _ in range(interrupted):
        prepare_in_part(workspace, data, out, PrepareSettings(24), 1)
        assert not (out / "prepared.json").exists()
    again = prepare(workspace, data, out, PrepareSettings(24))
    assert again.notes == ("classes are numbered in alphabetical order, others than in the original",)
    assert read_splits(out).train.classes == ("climb", "run", "walk")
    assert not (out / ".prepared.before.json").exists()


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("form", ["videos", "frames"])
def test_classes_keep_their_order_from_shards_to_folders_and_back(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, form: Form, interrupted: bool
) -> None:
    data, out, settings = own_classes(make_video, tmp_path), tmp_path / "out", PrepareSettings(form=form, short_side=32)
    (data / "testlist01.txt").write_text("walk/v_walk_g02_c01.avi\n")
    before = read_splits(data).train.classes
    for _ in range(2):
        listing = open_listing(workspace, str(data))
        prepare_shards(workspace, listing, out, SMALL, shard_videos=2, jobs=0, time_limit_s=60)
        assert read_splits(out).train.classes == before
        if interrupted:
            prepare_in_part(workspace, data, out, settings, 1)
        assert prepare(workspace, data, out, settings).notes == ()
        assert read_splits(out).train.classes == before
        assert not (out / "classes.txt").exists()


def test_numbers_that_lists_would_not_know_are_refused_before_the_work(workspace: Workspace, tmp_path: Path) -> None:
    videos = (SplitVideo(ListedVideo(Path("a.mp4"), "0"), "train"), SplitVideo(ListedVideo(Path("b.mp4"), "1"), "val"))
    listing = DataListing("x", tmp_path, videos, ("0", "1"), own_split=True)
    with pytest.raises(InvalidFile, match=r"class 1 has videos for validation and none .* with --frames or --shards"):
        prepare_data(workspace, listing, tmp_path / "out", SMALL, jobs=0, time_limit_s=60)
    assert not (tmp_path / "out").exists()
    assert plan_videos(listing, PrepareSettings(form="frames"))


def test_names_that_no_line_holds_become_others_where_lists_keep_the_numbers_of_classes(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    names = [os.fsdecode(name) for name in (b"v\xe9", b"v\xe8", b"v_", b"a\nb", b"a\tb", "a\u2028b".encode(), b"c d")]
    for label in ("0", "1"):
        for index, name in enumerate(names):
            made = make_video(f"clips/{label}/{index}.mp4", count=4 + index)
            made.rename(made.with_name(f"{name}.mp4"))
    prepared = prepare(workspace, tmp_path / "clips", tmp_path / "out")
    assert sum(prepared.videos.values()) == 14
    listing = open_listing(workspace, str(tmp_path / "out"))
    assert {video.listed.path for video in listing.videos} == set((tmp_path / "out").rglob("*.mp4"))
    read = sorted((video.listed.label, probe(video.listed.path).num_frames) for video in listing.videos)
    assert read == [(label, 4 + index) for label in ("0", "1") for index in range(7)]
    assert prepare(workspace, tmp_path / "clips", tmp_path / "out").skipped == 14


@pytest.mark.parametrize("name", [b"caf\xe9", b"a\nb", b"a\rb", b" "])
def test_class_names_that_no_line_holds_are_refused_for_shards_before_the_work(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, name: bytes
) -> None:
    for index in range(2):
        for label in ("one", "two"):
            make_video(f"clips/{label}/{index}.mp4", count=5 + index)
    (tmp_path / "clips" / "two").rename(tmp_path / "clips" / os.fsdecode(name))
    listing = open_listing(workspace, str(tmp_path / "clips"))
    with pytest.raises(InvalidValue, match=r"cannot be a line of classes\.txt: .*; rename the class, or leave out"):
        prepare_shards(workspace, listing, tmp_path / "out", SMALL, shard_videos=9, jobs=0, time_limit_s=60)
    assert not (tmp_path / "out").exists()
    if name.strip():
        prepare(workspace, tmp_path / "clips", tmp_path / "out")
        assert open_listing(workspace, str(tmp_path / "out")).classes == listing.classes


def test_same_names_do_not_meet_and_odd_class_names_are_told(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    for folder in ("one", "two"):
        for index in range(2):
            make_video(f"clips/{folder}/{index}.mp4", count=5 + index)
    lines = [f"{folder}/{index}.mp4 in/out" for folder in ("one", "two") for index in range(2)]
    (tmp_path / "clips" / "all.txt").write_text("\n".join(lines))
    prepared = prepare(workspace, tmp_path / "clips" / "all.txt", tmp_path / "out")
    assert sum(prepared.videos.values()) == len(contents(tmp_path / "out")) == 4
    assert prepared.notes == ("class 'in/out' is in folder 'in_out'",)


def test_a_name_that_ends_like_a_copy_is_no_copy() -> None:
    paths = [Path(folder, f"{name}.mp4") for folder, name in (("1", "a"), ("2", "a"), ("3", "a-2"), ("4", "a"))]
    videos = tuple(SplitVideo(ListedVideo(path, "run"), "train") for path in paths)
    planned = plan_videos(DataListing("x", Path(), videos, ("run",), own_split=True), SMALL)
    assert [one.target.name for one in planned] == ["a.mp4", "a-2.mp4", "a-2-2.mp4", "a-3.mp4"]


@pytest.mark.parametrize("form", ["videos", "frames"])
@pytest.mark.parametrize("name", ["x" * 230, "x" * 251, "é" * 120 + "x"], ids=["230", "longest", "utf-8"])
def test_a_name_of_any_length_that_a_file_has_is_kept(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, name: str, form: Form
) -> None:
    for label in ("run", "jump"):
        for stem in (name, "0"):
            make_video(f"clips/{label}/{stem}.mp4", count=5)
    prepared = prepare(workspace, tmp_path / "clips", tmp_path / "out", PrepareSettings(form=form, short_side=32))
    assert (sum(prepared.videos.values()), prepared.failed) == (4, [])
    ending = "" if form == "frames" else ".mp4"
    made = {path.name for path in (tmp_path / "out").glob("*/*/*")}
    assert made == {f"{name}{ending}", f"0{ending}"}
    assert {path.name for path in read_splits(tmp_path / "out").train.paths} <= made


def test_of_a_name_that_is_too_long_with_another_ending_the_end_is_left_out() -> None:
    paths = [Path(f"{stem}.ts") for stem in ("x" * 251 + "1", "x" * 251 + "2", "é" * 126, "x" * 251)]
    videos = tuple(SplitVideo(ListedVideo(path, "run"), "train") for path in paths)
    planned = plan_videos(DataListing("x", Path(), videos, ("run",), own_split=True), SMALL)
    expected = ["x" * 251, "x" * 249 + "-2", "é" * 125, "x" * 249 + "-3"]
    assert [one.target.stem for one in planned] == expected


def test_a_folder_inside_the_data_set_is_prepared_once_and_never_from_itself(
    workspace: Workspace, tmp_path: Path
) -> None:
    root = hmdb51(tmp_path / "hmdb51")
    out = root / "prepared"
    assert prepare(workspace, root, out).videos == {"train": 4, "val": 2}
    first = contents(out)
    for _ in range(2):
        assert prepare(workspace, root, out).skipped == 6
    assert contents(out) == first
    listing = open_listing(workspace, str(root))
    assert not any(out in video.listed.path.parents for video in listing.videos)
    assert len(open_listing(workspace, str(out)).videos) == 6


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("shards", [False, True])
def test_copies_without_their_originals_are_never_prepared_onto_themselves(
    workspace: Workspace, tmp_path: Path, left: int, shards: bool
) -> None:
    root = hmdb51(tmp_path / "hmdb51")
    out = root / "prepared"
    prepare(workspace, root, out)
    first = contents(out)
    for original in sorted(root.rglob("*.avi"))[left:]:
        original.unlink()
    listing = open_listing(workspace, str(root))
    assert len(listing.videos) == 6
    again = functools.partial(prepare_shards, shard_videos=4) if shards else prepare_data
    with pytest.raises(UsageError, match=r"prepared holds videos of the data set, such as .*; name another folder"):
        again(workspace, listing, out, SMALL, jobs=0, time_limit_s=60)
    assert contents(out) == first
    other = root / "smaller"
    assert prepare(workspace, root, other).videos == {"train": 4, "val": 2}
    assert open_listing(workspace, str(root)).videos == listing.videos


def test_shards_inside_a_set_of_archives_are_none_of_its_archives(
    workspace: Workspace, clips: Path, tmp_path: Path
) -> None:
    def shards(data: Path, out: Path) -> PreparedData:
        listing = open_listing(workspace, str(data))
        return prepare_shards(workspace, listing, out, SMALL, shard_videos=4, jobs=0, time_limit_s=60)

    shards(clips, root := tmp_path / "shards")
    for name in ("prepared.json", ".prepared.jsonl"):
        (root / name).unlink()
    listing = read(get("webdataset"), root)
    assert shards(root, root / "small").videos == {"train": len(listing.train), "val": len(listing.val or ())}
    assert read(get("webdataset"), root) == listing
    assert shards(root, root / "small").skipped == 6


def test_finished_files_are_left_alone_and_changed_ones_made_again(
    workspace: Workspace, clips: Path, tmp_path: Path, make_video: MakeVideo
) -> None:
    out = tmp_path / "out"
    prepare(workspace, clips, out)
    first = contents(out)
    again = prepare(workspace, clips, out)
    assert (again.skipped, contents(out)) == (6, first)
    (victim,) = [path for path in out.rglob("0.mp4") if path.parent.name == "run"]
    victim.write_bytes(victim.read_bytes()[:-9])
    make_video("clips/jump/1.mp4", count=9)
    assert prepare(workspace, clips, out).skipped == 4
    assert victim.stat().st_size == first[str(victim.relative_to(out))][0]
    assert prepare(workspace, clips, out, PrepareSettings(24)).skipped == 0
    (clips / "run" / "2.mp4").unlink()
    assert prepare(workspace, clips, out, PrepareSettings(24)).skipped >= 4
    assert len(contents(out)) == 5


def prepare_in_part(workspace: Workspace, data: Path, out: Path, settings: PrepareSettings, videos: int) -> None:
    """Somebody ends the process when so many videos were tried."""
    left = iter(range(videos))

    def stop(task: PrepareTask) -> PreparedVideo:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return prepare_video(task)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hwbench.data.preparing.prepare_video", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare(workspace, data, out, settings)


def test_a_folder_is_no_data_until_its_preparation_has_ended(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    for side in ("train", "val"):
        rows = [f"{make_video(f'set/{side}{n}.mp4', count=4 + n).name} {n}" for n in range(12)]
        (tmp_path / "set" / f"{side}.txt").write_text("\n".join(("# directional", *rows)))
    data, out = tmp_path / "set", tmp_path / "out"
    for settings in (SMALL, PrepareSettings(24)):
        prepare_in_part(workspace, data, out, settings, 20)
        for part in (out, out / "train"):
            with pytest.raises(InvalidFile, match=r"out: hwbench data prepare has not ended here; the same command"):
                open_listing(workspace, str(part))
        prepare(workspace, data, out, settings)
        read = open_listing(workspace, str(out))
        assert (read.classes, read.directional) == (open_listing(workspace, str(data)).classes, True)


def test_a_prepared_folder_stays_data_while_only_lost_videos_are_asked_for_again(
    workspace: Workspace, clips: Path, tmp_path: Path
) -> None:
    for name in ("bad.mp4", "worse.mp4"):
        (clips / "run" / name).write_text("no video")
    prepare(workspace, clips, tmp_path / "out")
    prepare_in_part(workspace, clips, tmp_path / "out", SMALL, 1)
    assert len(open_listing(workspace, str(tmp_path / "out")).videos) == 6


@pytest.mark.parametrize("form", ["videos", "frames"])
def test_a_prepared_folder_is_no_data_from_the_first_video_that_is_replaced(
    workspace: Workspace, clips: Path, tmp_path: Path, form: Form
) -> None:
    def end_before_the_answer(task: PrepareTask) -> PreparedVideo:
        prepare_video(task)
        raise KeyboardInterrupt

    out, before, after = tmp_path / "out", PrepareSettings(32, form=form), PrepareSettings(24, form=form)
    prepare(workspace, clips, out, before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hwbench.data.preparing.prepare_video", end_before_the_answer)
        with pytest.raises(KeyboardInterrupt):
            prepare(workspace, clips, out, after)
    with pytest.raises(InvalidFile, match=r"out: hwbench data prepare has not ended here; the same command goes on"):
        open_listing(workspace, str(out))
    assert prepare(workspace, clips, out, before).skipped == 5
    assert len(open_listing(workspace, str(out)).videos) == 6


def test_frame_folders_with_other_images_than_were_made_are_made_again(
    workspace: Workspace, clips: Path, tmp_path: Path
) -> None:
    out, settings = tmp_path / "out", PrepareSettings(32, form="frames")
    prepare(workspace, clips, out, settings)
    made = {path: path.read_bytes() for path in out.rglob("*.jpg")}
    folders = sorted({path.parent for path in made})
    for path in folders[0].iterdir():  # names and no bytes: what a power cut may leave
        path.write_bytes(b"")
    max(folders[1].iterdir()).unlink()
    assert [prepare(workspace, clips, out, settings).skipped for _ in range(2)] == [4, 6]
    assert {path: path.read_bytes() for path in out.rglob("*.jpg")} == made


def test_half_a_line_and_leftovers_of_a_killed_process_do_no_harm(
    workspace: Workspace, clips: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    prepare(workspace, clips, out)
    journal = out / JOURNAL
    journal.write_text(journal.read_text()[:-20] + '\n{"target": "../../gone.mp4", "key": "x"}\n[]\nnull\n')
    (out / "train" / "run" / ".0.mp4.abc.tmp").write_text("half")
    (out / "train" / "run" / ".1.abc.tmp").mkdir()
    assert prepare(workspace, clips, out).skipped == 5
    assert list(out.rglob("*.tmp")) == []


def test_what_cannot_be_read_is_told_and_the_rest_is_made(workspace: Workspace, clips: Path, tmp_path: Path) -> None:
    (clips / "run" / "bad.mp4").write_text("no video")
    prepared = prepare(workspace, clips, tmp_path / "out")
    assert [(Path(video).name, "damaged" in cause) for video, cause in prepared.failed] == [("bad.mp4", True)]
    assert sum(prepared.videos.values()) == 6


def test_a_folder_with_something_else_is_refused(workspace: Workspace, clips: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was not made by hwbench data prepare"):
        prepare(workspace, clips, clips)
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError):
        prepare(workspace, clips, tmp_path / "file")
    with PreparedFolder(tmp_path / "out"), pytest.raises(WorkspaceError, match="another process prepares it"):
        prepare(workspace, clips, tmp_path / "out")


def test_a_folder_in_which_a_run_has_just_begun_is_taken(workspace: Workspace, clips: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with PreparedFolder(out):
        (out / JOURNAL).unlink()  # as before it was written
        (lock,) = (path.name for path in out.iterdir())
    assert sum(prepare(workspace, clips, out).videos.values()) == 6
    (out / JOURNAL).unlink()
    with pytest.raises(UsageError, match="was not made by hwbench data prepare"):
        prepare(workspace, clips, out)
    assert (out / lock).is_file()


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"label": ("a", "b")}, "several classes"),
        ({"part": Part(keyframe_s=Fraction(1))}, "a moment or a box"),
        ({"part": Part(box=(0, 0, 1, 1))}, "a moment or a box"),
        ({"label": "../a"}, None),
        ({"label": ".."}, "cannot be folders"),
    ],
)
def test_labels_that_a_folder_cannot_say_are_refused(more: dict[str, object], error: str | None) -> None:
    video = SplitVideo(ListedVideo(Path("a.mp4"), **{"label": "a", **more}), "train")  # type: ignore[arg-type]
    listing = DataListing("x", Path(), (video,), video.listed.labels, own_split=True)
    if error is None:
        assert ".." not in plan_videos(listing, SMALL)[0].target.parts
        return
    with pytest.raises(InvalidValue, match=error):
        plan_videos(listing, SMALL)


@pytest.mark.parametrize("labels", [((), ("0",)), (("0",), ()), (("0",), ("1",))])
@pytest.mark.parametrize("form", ["videos", "frames"])
def test_several_classes_are_refused_whatever_their_numbers(
    workspace: Workspace, tmp_path: Path, labels: tuple[tuple[str, ...], tuple[str, ...]], form: Form
) -> None:
    """Also where a video shows none, and where only validation has the last number."""
    sides = zip(labels, ("train", "val"))
    videos = tuple(SplitVideo(ListedVideo(Path(f"{side}.mp4"), label), side) for label, side in sides)
    listing = DataListing("x", tmp_path, videos, ("0", "1"), own_split=True)
    with pytest.raises(InvalidValue, match=r"^train\.mp4: has several classes, which no folder can say; "):
        prepare_data(workspace, listing, tmp_path / "out", PrepareSettings(form=form), jobs=0, time_limit_s=60)
    assert not (tmp_path / "out").exists()


def test_a_set_that_training_refuses_is_refused(workspace: Workspace, make_video: MakeVideo, tmp_path: Path) -> None:
    make_video("a single/run/a.mp4")
    with pytest.raises(InvalidFile, match="see what else is wrong: hwbench data check ") as error:
        prepare(workspace, tmp_path / "a single", tmp_path / "out")
    assert shlex.split(str(error.value))[-4:] == ["hwbench", "data", "check", str(tmp_path / "a single")]


def test_without_an_encoder_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwbench.data.reencoding.av.codecs_available", {"libx264"})
    assert choose_encoder() == "libx264"
    with pytest.raises(UsageError, match="has no mpeg4"):
        choose_encoder("mpeg4")
    monkeypatch.setattr("hwbench.data.reencoding.av.codecs_available", set())
    with pytest.raises(MissingDependency, match="pip install"):
        choose_encoder()


def members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]


def test_shards_hold_every_video_with_its_label_and_are_made_once(
    workspace: Workspace, clips: Path, tmp_path: Path
) -> None:
    def pack() -> PreparedData:
        listing = open_listing(workspace, str(clips))
        return prepare_shards(workspace, listing, tmp_path / "out", SMALL, shard_videos=3, jobs=0, time_limit_s=60)

    prepared = pack()
    tars = sorted((tmp_path / "out").glob("*.tar"))
    assert [tar.name for tar in tars] == ["train-000000.tar", "train-000001.tar", "val-000000.tar"]
    assert not (tmp_path / "out" / ".videos").exists()
    assert prepared.videos == {"train": 4, "val": 2}
    everything = [members(tar) for tar in tars]
    keys = {name.partition(".")[0] for one in everything[:2] for name in one}
    assert len(keys) == 4
    classes = (tmp_path / "out" / "classes.txt").read_text().split()
    for one in everything:
        assert [name.split(".")[1] for name in one] == ["cls", "json", "mp4"] * (len(one) // 3)
        for name, data in one.items():
            if name.endswith(".json"):
                values = json.loads(data)
                assert values["labels"] == [classes[int(one[name.replace("json", "cls")])]]
                (tmp_path / "one.mp4").write_bytes(one[name.replace("json", "mp4")])
                assert probe(tmp_path / "one.mp4").num_frames == values["frames"]
    before = {tar: tar.read_bytes() for tar in tars}
    tars[1].unlink()
    assert pack().skipped == 5
    assert {tar: tar.read_bytes() for tar in tars} == before


def meet_a_fault(root: Path) -> None:
    """An I/O error of the operating system, as of a disk that fails: address 0 of a process is not mapped."""
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.write(b"a")


@pytest.mark.parametrize("jobs", [0, 2])
def test_a_fault_of_the_disk_that_is_written_ends_all_and_blames_no_video(
    workspace: Workspace, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr("hwbench.data.preparing._begin_change", meet_a_fault)
    listing = open_listing(workspace, str(clips))
    with pytest.raises(WorkspaceError, match=f"cannot write {tmp_path}/out/.*: the disk or its connection fails"):
        prepare_data(workspace, listing, tmp_path / "out", SMALL, jobs=jobs, time_limit_s=60)


@dataclass(frozen=True)
class DriveSource:
    """A video on a drive that gives nothing as long as the file ``fault`` is there."""

    path: Path
    fault: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def identity(self, root: Path) -> str:
        return self.path.name

    def open(self, info: VideoInfo | None = None) -> VideoFile:
        with naming(self.path):
            if self.fault.exists():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return VideoFile(self.path, info)


def test_shards_ask_again_for_videos_that_were_lost_and_tell_again_what_is_damaged(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    def pack() -> tuple[PreparedData, list[int]]:
        listing = DataListing("x", tmp_path, videos, ("run",), own_split=True)
        result = prepare_shards(workspace, listing, out, SMALL, shard_videos=4, jobs=0, time_limit_s=60)
        tars = sorted(out.glob("*.tar"))
        return result, [sum(name.endswith(".mp4") for name in members(tar)) for tar in tars]

    fault, out, damaged = tmp_path / "fault", tmp_path / "out", tmp_path / "damaged.mp4"
    fault.touch()
    damaged.write_text("no video")
    lost = make_video("lost.mp4", count=4)
    listed = [ListedVideo(make_video(f"{number}.mp4", count=5 + number), "run") for number in range(2)]
    listed += [ListedVideo(damaged, "run"), ListedVideo(lost, "run", source=DriveSource(lost, fault))]
    validated = ListedVideo(make_video("val.mp4", count=9), "run")
    videos = (*(SplitVideo(one, "train") for one in listed), SplitVideo(validated, "val"))

    result, counts = pack()
    assert {Path(name).stem for name, _ in result.failed} == {"damaged", "lost"}
    assert (counts, result.lost) == ([2, 1], 1)
    fault.unlink()
    for skipped in (3, 4):
        result, counts = pack()
        assert [Path(name).stem for name, _ in result.failed] == ["damaged"]
        assert (counts, result.videos, result.skipped) == ([3, 1], {"train": 3, "val": 1}, skipped)
        assert not (out / ".videos").exists()


def test_shards_ask_again_for_videos_of_a_drive_that_was_away_for_a_time(
    workspace: Workspace, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pack() -> tuple[PreparedData, dict[str, dict[str, bytes]]]:
        result = prepare_shards(workspace, listing, out, SMALL, shard_videos=4, jobs=0, time_limit_s=60)
        return result, {tar.name: members(tar) for tar in out.glob("*.tar")}

    def lose_the_drive(task: PrepareTask) -> PreparedVideo:
        asked.append(task.source.name)
        if len(asked) == 2:
            clips.rename(tmp_path / "away")
        if len(asked) == 6:
            with naming(task.source.name):
                raise MemoryError
        return prepare_video(task)

    listing, out = open_listing(workspace, str(clips)), tmp_path / "out"
    _, whole = pack()
    out.rename(tmp_path / "whole")
    asked: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("hwbench.data.preparing.prepare_video", lose_the_drive)
        result, tars = pack()
    assert (len(result.failed), result.videos) == (5, {"train": 1, "val": 0})
    (tmp_path / "away").rename(clips)
    result, tars = pack()
    assert (result.failed, result.skipped, tars) == ([], 1, whole)
    assert not (out / ".videos").exists()
    result, _ = pack()
    assert (result.failed, result.skipped) == ([], 6)


@pytest.mark.parametrize("left", [4, 1])
def test_videos_that_a_killed_process_left_beside_their_shard_go(
    workspace: Workspace, clips: Path, tmp_path: Path, left: int
) -> None:
    def pack() -> PreparedData:
        return prepare_shards(workspace, listing, out, SMALL, shard_videos=4, jobs=0, time_limit_s=60)

    def end_where_they_are_removed(folder: PreparedFolder, name: PurePosixPath) -> None:
        if sum(1 for _ in out.rglob("*.mp4")) == left:
            raise KeyboardInterrupt
        remove(folder, name)

    listing, out, remove = open_listing(workspace, str(clips)), tmp_path / "out", PreparedFolder.remove
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreparedFolder, "remove", end_where_they_are_removed)
        with pytest.raises(KeyboardInterrupt):
            pack()
    tar = out / "train-000000.tar"
    before = tar.read_bytes()
    assert len([*out.rglob("*.mp4")]) == left
    assert pack().skipped == 4
    assert not (out / ".videos").exists()
    assert tar.read_bytes() == before


def test_shards_of_before_that_lack_videos_are_made_again(workspace: Workspace, clips: Path, tmp_path: Path) -> None:
    def pack() -> PreparedData:
        listing = open_listing(workspace, str(clips))
        return prepare_shards(workspace, listing, tmp_path / "out", SMALL, shard_videos=9, jobs=0, time_limit_s=60)

    (clips / "run" / "bad.mp4").write_text("no video")
    assert len(pack().failed) == 1
    journal = tmp_path / "out" / JOURNAL
    lines = [json.loads(line) for line in journal.read_text().splitlines() if line]
    for values in lines:
        del values["revision"]
    journal.write_text("".join(f"{json.dumps(values)}\n" for values in lines))
    assert [len(pack().failed), len(pack().failed)] == [1, 1]


def test_shards_ask_again_for_videos_that_took_too_long(workspace: Workspace, clips: Path, tmp_path: Path) -> None:
    def pack(time_limit_s: float, jobs: int) -> PreparedData:
        listing, out = open_listing(workspace, str(clips)), tmp_path / "out"
        return prepare_shards(workspace, listing, out, SMALL, shard_videos=3, jobs=jobs, time_limit_s=time_limit_s)

    hurried = pack(1e-4, 2)
    assert hurried.lost == len(hurried.failed)  # all six, unless this process is held up and finds them ready
    assert pack(60, 0).videos == {"train": 4, "val": 2}


def test_shards_are_read_with_the_labels_of_the_original(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    rows = [f"{make_video(f'{n}.mp4', count=4 + n).name},{n % 3 + 1}|7" for n in range(4)]
    (tmp_path / "several.csv").write_text("\n".join(("path,label", *rows)))
    (tmp_path / "names").mkdir()
    for number in range(6):
        make_video(f"names/{number % 3 + 1}/{number}.mp4", count=4 + number)
    for data in (f"table:{tmp_path / 'several.csv'}?separator=|", str(tmp_path / "names")):
        listing, out = open_listing(workspace, data), tmp_path / f"out-{len(data)}"
        prepare_shards(workspace, listing, out, SMALL, shard_videos=9, jobs=0, time_limit_s=60)
        read = open_listing(workspace, str(out))
        assert read.classes == listing.classes
        assert sorted(video.listed.labels for video in read.videos) == sorted(
            video.listed.labels for video in listing.videos
        )
