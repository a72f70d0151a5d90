"""Videos that are no files of their own: folders of images, members of archives, rows of tables, bytes in memory."""

import io
import pickle
import shutil
import tarfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.io import write_jpeg, write_png
from video_files import MakeVideo, gradient_frames, no_more_open_files

from hwbench.data import ClipSpec, FailurePolicy, ListedVideo, Listing, ScaleJitter, TrainingClips, read_frames
from hwbench.data.archives import ArchiveMember, FileRange, MemorySource
from hwbench.data.images import FrameFolder, natural
from hwbench.data.loading import Loader, shuffled
from hwbench.data.media import FileSource, VideoSource
from hwbench.data.readers.tar_index import tar_members
from hwbench.data.videos import splits_of
from hwbench.errors import InvalidValue, VideoError
from hwbench.testing.datasets import COPIES

Make = Callable[[Path, Path], VideoSource]


def images(folder: Path, video: Path, end: str = "png") -> FrameFolder:
    """The frames of a video as images, whose numbers have no zeros in front."""
    folder.mkdir()
    for number, frame in enumerate(read_frames(video, range(30))):
        image = torch.from_numpy(frame.transpose(2, 0, 1).copy())
        if end == "png":
            write_png(image, str(folder / f"film_{number}.png"))
        else:
            write_jpeg(image, str(folder / f"film_{number}.jpg"), quality=95)
    return FrameFolder(folder)


def member(folder: Path, video: Path) -> ArchiveMember:
    folder.mkdir()
    with tarfile.open(folder / "a.tar", "w") as tar:
        tar.add(__file__, "first.txt")
        tar.add(video, "b/video.mp4")
        tar.add(__file__, "last.txt")
    place = tar_members(folder / "a.tar")[1]
    return ArchiveMember(folder / "a.tar", place.name, place.offset_bytes, place.size_bytes)


def in_memory(folder: Path, video: Path) -> MemorySource:
    return MemorySource("row 7", video.read_bytes())


def row(folder: Path, video: Path) -> VideoSource:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install hwbench[huggingface]")
    from hwbench.data.arrow import RowSource

    folder.mkdir()
    table = pyarrow.table({"video": [b"", b"", video.read_bytes()]})
    parquet.write_table(table, folder / "t.parquet", row_group_size=2)
    return RowSource(folder / "t.parquet", "video", 1, 0)


MAKERS: dict[str, Make] = {"images": images, "member": member, "memory": in_memory, "row": row}


@pytest.fixture(params=MAKERS)
def source(request: pytest.FixtureRequest, tmp_path: Path, make_video: MakeVideo) -> VideoSource:
    return MAKERS[request.param](tmp_path / "source", make_video("video.mp4", gop=8))


def test_the_frames_are_those_of_the_file(source: VideoSource, tmp_path: Path) -> None:
    indices = (29, 3, 3, 17, 0)
    with source.open() as video:
        info = video.info
        assert np.array_equal(video.read(indices), read_frames(tmp_path / "video.mp4", indices))
        assert (info.num_frames, info.width, info.height, info.fps) == (30, 64, 48, 30)
    with source.open(info) as again:
        assert again.info is info
        assert np.array_equal(again.read(range(30)), read_frames(tmp_path / "video.mp4", range(30)))
        with pytest.raises(InvalidValue, match="expected frame indices from 0 to 29"):
            again.read((30,))


def test_a_source_is_a_small_value(source: VideoSource, tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(source)) == source
    assert hash(source) == hash(pickle.loads(pickle.dumps(source)))
    assert str(tmp_path) not in source.identity(tmp_path)
    if not isinstance(source, MemorySource):
        assert len(pickle.dumps(source)) < 1000
        assert source.name.startswith(str(tmp_path))


def test_jpeg_costs_little(tmp_path: Path, make_video: MakeVideo) -> None:
    video = make_video("video.mp4")
    source = images(tmp_path / "source", video, "jpg")
    with source.open() as opened:
        loss = np.abs(opened.read(range(30)).astype(int) - read_frames(video, range(30)))
    assert loss.max() <= 8
    assert loss.mean() < 1


def test_worker_processes_read_what_this_process_reads(tmp_path: Path, make_video: MakeVideo) -> None:
    video = make_video("video.mp4")
    sources = [make(tmp_path / name, video) for name, make in MAKERS.items() if name != "row"]
    listed = [ListedVideo(tmp_path, str(n % 2), source=s) for n, s in enumerate([*sources, FileSource(video)])]
    splits = splits_of(Listing(tuple(listed), tuple(listed)), tmp_path)
    assert len({splits.train.source(n).identity(tmp_path) for n in range(4)}) == 4
    clips = TrainingClips(splits.train, ClipSpec(4, stride=3), ScaleJitter((32, 32)), seed=3)
    batches = [[b.clips for b in Loader(clips, workers=n).batches(shuffled(4, 2, seed=3, epoch=0))] for n in (0, 2)]
    assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))


def test_rows_are_read_by_worker_processes(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    from hwbench.data import read_splits
    from hwbench.data.readers import get

    path = COPIES["huggingface"].make(tmp_path)
    videos = read_splits(path, reader=get("huggingface")).train
    clips = TrainingClips(videos, ClipSpec(4, stride=1), ScaleJitter((32, 32)), seed=3)
    batches = [[b.clips for b in Loader(clips, workers=n).batches(shuffled(4, 2, seed=3, epoch=0))] for n in (0, 2)]
    assert all(torch.equal(one, other) for one, other in zip(*batches, strict=True))


def test_images_are_sorted_by_their_numbers() -> None:
    names = ["a10b2.jpg", "a2b10.jpg", "a2b9.jpg", "10.jpg", "9.jpg", "a02b9.jpg", "x.jpg"]
    assert sorted(names, key=natural) == ["9.jpg", "10.jpg", "a02b9.jpg", "a2b9.jpg", "a2b10.jpg", "a10b2.jpg", "x.jpg"]


def test_a_part_of_the_images_may_be_read(tmp_path: Path, make_video: MakeVideo) -> None:
    source = images(tmp_path / "source", make_video("video.mp4"))
    (source.folder / "flow_x_0.png").write_bytes(b"not read")
    (source.folder / "notes.txt").write_text("not read")
    with FrameFolder(source.folder, Fraction(25), "film_1", 5).open() as opened:
        assert opened.info.num_frames == 5
        assert opened.info.duration_s == 0.2
    with pytest.raises(VideoError, match=r"source/film_1\*: expected 12 images, as listed .*, found 11"):
        FrameFolder(source.folder, prefix="film_1", count=12).open()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", r"2.png: .*\(damaged, or not an image\)"),
        (b"no image at all", r"2.png: .*\(damaged, or not an image\)"),
        (None, r"2.png: 6x4; the first image of its video has 8x4"),
    ],
)
def test_an_image_that_is_wrong_is_named(tmp_path: Path, content: bytes | None, says: str) -> None:
    for number in range(4):
        write_png(torch.zeros(3, 4, 8, dtype=torch.uint8), str(tmp_path / f"{number}.png"))
    if content is None:
        write_png(torch.zeros(3, 4, 6, dtype=torch.uint8), str(tmp_path / "2.png"))
    else:
        (tmp_path / "2.png").write_bytes(content)
    with FrameFolder(tmp_path).open() as video, pytest.raises(VideoError, match=says):
        video.read(range(4))


def test_grey_images_and_those_with_transparency_are_rgb(tmp_path: Path) -> None:
    write_png(torch.full((1, 4, 8), 7, dtype=torch.uint8), str(tmp_path / "0.png"))
    with FrameFolder(tmp_path).open() as video:
        assert video.read((0,)).shape == (1, 4, 8, 3)
        assert set(video.read((0,)).flatten().tolist()) == {7}


def test_folders_without_images_and_missing_ones_are_named(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"expected images \(.jpeg .jpg .png .webp\), found none"):
        FrameFolder(tmp_path).open()
    with pytest.raises(VideoError, match=r"gone: No such file or directory \(expected a folder of images\)"):
        FrameFolder(tmp_path / "gone").open()


def test_members_that_are_wrong_are_named(tmp_path: Path, make_video: MakeVideo) -> None:
    source = member(tmp_path / "source", make_video("video.mp4"))
    name = r"a.tar!b/video.mp4: "
    with pytest.raises(VideoError, match=name + r"the video is empty \(0 bytes\)"):
        ArchiveMember(source.archive, source.member, 0, 0).open()
    with pytest.raises(VideoError, match=name + r".*\(damaged, or not a video\)"):
        ArchiveMember(source.archive, source.member, source.offset_bytes + 100, source.size_bytes).open()
    shutil.rmtree(tmp_path / "source")
    with pytest.raises(VideoError, match=name + "No such file or directory"):
        source.open()


def test_a_video_in_memory_that_is_none_is_named() -> None:
    with pytest.raises(VideoError, match=r"row 7: .*\(damaged, or not a video\)"):
        MemorySource("row 7", b"not a video" * 100).open()


@pytest.mark.parametrize("name", ["raw.h264", "late.ts", "order.avi"])
def test_videos_that_are_opened_again_are_so_in_memory_too(name: str, make_video: MakeVideo) -> None:
    """Files without an index or time stamps are read from their start more than once."""
    path = make_video(name, codec="mpeg4" if name.endswith("avi") else "libx264")
    with MemorySource("video", path.read_bytes()).open() as video:
        assert video.info.num_frames == 30
        assert np.array_equal(video.read((20, 4)), read_frames(path, (20, 4)))


def test_a_range_of_a_file_is_a_file() -> None:
    whole = io.BytesIO(bytes(range(100)))
    part = FileRange(whole, 10, 20)
    assert part.read() == bytes(range(10, 30))
    assert part.read(1) == b""
    assert part.seek(-5, io.SEEK_END) == 15
    assert part.read(3) == bytes((25, 26, 27))
    assert part.seek(-1, io.SEEK_CUR) == 17
    assert part.tell() == 17
    assert part.read(100) == bytes((27, 28, 29))
    part.seek(50)
    assert part.read(4) == b""
    assert (part.readable(), part.seekable(), part.writable()) == (True, True, False)
    part.close()
    assert whole.closed


def test_unreadable_sources_are_left_out_where_the_policy_says_so(tmp_path: Path, make_video: MakeVideo) -> None:
    good = member(tmp_path / "source", make_video("video.mp4"))
    bad = ArchiveMember(good.archive, "bad.mp4", 0, 512)
    listed = tuple(ListedVideo(good.archive, str(n), source=s) for n, s in enumerate((good, bad)))
    videos = splits_of(Listing(listed, listed), tmp_path).train
    clips = TrainingClips(videos, ClipSpec(2, stride=1), ScaleJitter((32, 32)), policy=FailurePolicy.SKIP)
    assert clips[0].views is not None
    assert clips[1].views is None
    assert clips[1].failures[0].path == f"{good.archive}!bad.mp4"


def test_frames_are_those_that_were_drawn(tmp_path: Path) -> None:
    for number, frame in enumerate(gradient_frames(12, 4, 8)):
        write_png(torch.from_numpy(frame.transpose(2, 0, 1).copy()), str(tmp_path / f"f{number}.png"))
    with FrameFolder(tmp_path).open() as video:
        assert np.array_equal(video.read(range(12)), gradient_frames(12, 4, 8))


def test_a_machine_at_its_limits_is_not_taken_for_damage(make_video: MakeVideo, tmp_path: Path) -> None:
    video = make_video("video.mp4")
    with no_more_open_files(), pytest.raises(VideoError, match=r"video\.mp4: Too many open files$"):
        FileSource(video).open()
    opened = images(tmp_path / "source", video).open()
    with no_more_open_files(), pytest.raises(VideoError, match=r"film_1\.png: Too many open files$"):
        opened.read((1,))
