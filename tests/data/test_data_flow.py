"""Optical flow: from files, computed, and kept."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision.io import encode_png, write_jpeg, write_png
from video_files import MakeVideo, gradient_frames

from hwbench.data import ClipSpec, ScaleJitter, TrainingClips
from hwbench.data.archives import ArchiveMember, MemorySource
from hwbench.data.arrow import RowSource
from hwbench.data.decoders import PYAV
from hwbench.data.failures import FailurePolicy
from hwbench.data.flow import NOTE, FlowFolder, codes_of, pixels_of
from hwbench.data.flow_cache import FlowCache
from hwbench.data.flow_methods import DisFlow, RaftFlow, TvL1Flow, flow_method
from hwbench.data.flow_stream import FlowDecoder, FlowTransform
from hwbench.data.images import FrameFolder
from hwbench.data.loading import Loader
from hwbench.data.media import FileSource, VideoSource
from hwbench.data.readers import Listing
from hwbench.data.readers.folders import read_folder
from hwbench.data.readers.tar_index import tar_members
from hwbench.data.videos import splits_of
from hwbench.errors import InvalidFile, InvalidValue, MissingDependency, VideoError


@dataclass
class Brighter:
    """A method that counts: the flow to the right is how much brighter the next frame is, in tens."""

    name: str = "brighter"
    calls: int = 0

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        self.calls += 1
        change = second.astype(np.float32).mean(axis=2) - first.astype(np.float32).mean(axis=2)
        return np.stack([change / 10, -change / 10], axis=-1)


def textured(shift: int = 0) -> np.ndarray:
    """A smooth random picture, moved to the right: uint8 (96, 128, 3)."""
    picture = torch.rand(3, 12, 16, generator=torch.Generator().manual_seed(0))
    large = torch.nn.functional.interpolate(picture[None], size=(96, 128), mode="bicubic", align_corners=False)[0]
    return np.roll((large.clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy(), shift, axis=1)


def test_codes_keep_half_a_step() -> None:
    flow = np.random.default_rng(0).uniform(-5, 5, (7, 9, 2)).astype(np.float32)
    for range_px in (5.0, 20.0):
        assert np.abs(pixels_of(codes_of(flow, range_px), range_px) - flow).max() <= range_px / 255 * 1.001
    assert codes_of(np.array([-99, 99], np.float32)).tolist() == [0, 255]
    # What is mirrored is what goes the other way.
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_allclose(pixels_of(255 - codes), -pixels_of(codes), atol=1e-5)


@pytest.fixture
def mmaction2_folder(tmp_path: Path) -> Path:
    """Flow of four frames, as mmaction2's tools leave it beside the images: codes 40 i + 10 across, 200 - 40 i down."""
    for number in range(1, 4):
        for prefix, code in (("flow_x_", 40 * number + 10), ("flow_y_", 200 - 40 * number)):
            image = torch.full((1, 16, 24), code, dtype=torch.uint8)
            write_jpeg(image, str(tmp_path / f"{prefix}{number:05d}.jpg"), quality=95)
    (tmp_path / "img_00001.jpg").write_bytes(b"no image, and not looked at")
    return tmp_path


def test_images_of_flow_are_read_as_pairs(mmaction2_folder: Path) -> None:
    folder = FlowFolder(mmaction2_folder)
    codes = folder.read((2, 0, 3), 4)
    assert codes.shape == (3, 16, 24, 2)
    assert codes[:, 8, 8].tolist() == [[130, 80], [50, 160], [130, 80]]  # the last frame has the flow of the one before
    assert folder.range_px() == 20
    (mmaction2_folder / NOTE).write_text('{"range_px": 5}')
    assert folder.range_px() == 5


def test_faults_of_images_of_flow_name_the_folder(mmaction2_folder: Path) -> None:
    folder = FlowFolder(mmaction2_folder)
    with pytest.raises(VideoError, match="expected 8 images, as listed"):
        folder.read((0,), 9)
    with pytest.raises(InvalidValue, match="frames from 0 to 3, got \\[4\\]"):
        folder.read((4,), 4)
    write_jpeg(torch.zeros(1, 8, 8, dtype=torch.uint8), str(mmaction2_folder / "flow_y_00001.jpg"))
    with pytest.raises(VideoError, match=str(mmaction2_folder)):
        folder.read((0,), 4)
    for text in ("{}", "[]", "no", '{"range_px": -1}'):
        (mmaction2_folder / NOTE).write_text(text)
        with pytest.raises(VideoError, match="range_px"):
            folder.range_px()


def test_flow_is_computed_once_for_each_video(make_video: MakeVideo, tmp_path: Path) -> None:
    source, method = FileSource(make_video("film.mp4", count=10)), Brighter()
    cache = FlowCache(tmp_path / "flow", method, range_px=2.0)
    folder = cache.folder(source)
    codes = folder.read(tuple(range(10)), 10)
    # gradient_frames become 8 brighter from one to the next.
    np.testing.assert_allclose(pixels_of(codes, folder.range_px())[..., 0].mean(axis=(1, 2)), 0.8, atol=0.1)
    np.testing.assert_allclose(pixels_of(codes, folder.range_px())[..., 1].mean(axis=(1, 2)), -0.8, atol=0.1)
    assert json.loads((folder.folder / NOTE).read_text())["method"] == "brighter"
    assert (cache.folder(source), method.calls) == (folder, 9)
    assert [path for path in cache.root.iterdir() if path.name.startswith(".")] == []
    # Another method, range or film is another folder.
    folders = {
        FlowCache(cache.root, Brighter("other")).folder(source).folder,
        FlowCache(cache.root, method, range_px=3.0).folder(source).folder,
        cache.folder(MemorySource("film", source.path.read_bytes())).folder,
        folder.folder,
    }
    assert len(folders) == 4
    make_video("film.mp4", count=1)
    assert (cache.folder(source).read((0,), 1) == 128).all()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [emptied, Path.unlink])
@pytest.mark.parametrize("name", ["flow_y_00002.png", NOTE])
def test_flow_that_a_power_cut_damaged_is_computed_again(
    name: str, damage: Callable[[Path], None], make_video: MakeVideo, tmp_path: Path
) -> None:
    source, cache = FileSource(make_video("film.mp4", count=4)), FlowCache(tmp_path / "flow", Brighter())
    folder = cache.folder(source)
    codes = folder.read((0, 1, 2), 4)
    damage(folder.folder / name)
    for _ in range(2):
        np.testing.assert_array_equal(cache.folder(source).read((0, 1, 2), 4), codes)
    assert len(list(cache.root.iterdir())) == 1


def test_flow_of_before_is_taken_as_it_is(make_video: MakeVideo, tmp_path: Path) -> None:
    source, method = FileSource(make_video("film.mp4", count=4)), Brighter()
    cache = FlowCache(tmp_path / "flow", method)
    note = cache.folder(source).folder / NOTE
    values = json.loads(note.read_text())
    values = {key: value for key, value in values.items() if key not in ("files", "bytes")}
    note.write_text(json.dumps(values))
    assert cache.folder(source).read((0, 1, 2), 4).shape[0] == 3
    assert method.calls == 3


def test_folders_of_plain_files_are_named_as_ever(make_video: MakeVideo, tmp_path: Path) -> None:
    """Flow that was computed before is not computed again."""
    source = FileSource(make_video("my film.mp4", count=2), stream=0)
    status = source.path.stat()
    values = [str(source.path), "brighter", 20.0, 0, status.st_size, status.st_mtime_ns]
    digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()[:24]
    folder = tmp_path / "flow" / f"my_film-{digest}"
    folder.mkdir(parents=True)
    (folder / NOTE).write_text('{"range_px": 20}')
    assert FlowCache(tmp_path / "flow", Brighter()).folder(source) == FlowFolder(folder)


def write_images(folder: Path, count: int) -> FrameFolder:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, frame in enumerate(gradient_frames(count, 16, 24)):
        write_png(torch.from_numpy(frame).permute(2, 0, 1), str(folder / f"img_{number}.png"))
    return FrameFolder(folder)


def image_folder(video: Path, folder: Path, count: int) -> VideoSource:
    return write_images(folder / "images", count)


def tar_member(video: Path, folder: Path, count: int) -> VideoSource:
    with tarfile.open(folder / "a.tar", "w") as tar:
        tar.add(video, "film.mp4")
    (place,) = tar_members(folder / "a.tar")
    return ArchiveMember(folder / "a.tar", place.name, place.offset_bytes, place.size_bytes)


def table_row(video: Path, folder: Path, count: int, cell: object = None) -> VideoSource:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install hwbench[huggingface]")
    parquet.write_table(pyarrow.table({"video": [cell or video.read_bytes()]}), folder / "t.parquet")
    return RowSource(folder / "t.parquet", "video", 0, 0)


def table_row_of_path(video: Path, folder: Path, count: int) -> VideoSource:
    if (folder / "t.parquet").exists():
        return RowSource(folder / "t.parquet", "video", 0, 0)
    return table_row(video, folder, count, {"bytes": None, "path": str(video)})


def in_memory(video: Path, folder: Path, count: int) -> VideoSource:
    return MemorySource("film", video.read_bytes())


@pytest.mark.parametrize("make", [image_folder, tar_member, table_row, table_row_of_path, in_memory])
def test_flow_of_what_changed_is_computed_again(
    make: Callable[[Path, Path, int], VideoSource], make_video: MakeVideo, tmp_path: Path
) -> None:
    cache = FlowCache(tmp_path / "flow", Brighter())
    for count in (5, 8):
        source = make(make_video("film.mp4", count=count), tmp_path, count)
        folder = cache.folder(source)
        assert len(list(folder.folder.glob("flow_x_*"))) == count - 1
        assert (cache.folder(source), folder.read((0, count - 1), count).shape[0]) == (folder, 2)
    assert cache.method.calls == 4 + 7


def test_images_of_the_same_size_are_told_apart_by_time_and_by_name(tmp_path: Path) -> None:
    source, cache = write_images(tmp_path / "images", 4), FlowCache(tmp_path / "flow", Brighter())
    names = {cache.folder(source)}
    later = (source.folder / "img_1.png").stat().st_mtime_ns + 1
    os.utime(source.folder / "img_1.png", ns=(later, later))
    names.add(cache.folder(source))
    (source.folder / "img_3.png").rename(source.folder / "img_4.png")
    names.add(cache.folder(source))
    assert len(names) == 3


def test_each_number_of_images_has_a_folder(tmp_path: Path) -> None:
    images, cache = write_images(tmp_path / "images", 8).folder, FlowCache(tmp_path / "flow", Brighter())
    first = cache.folder(FrameFolder(images, count=4))
    assert first.read((0, 3), 4).shape == (2, 16, 24, 2)
    whole = cache.folder(FrameFolder(images, count=8))
    assert whole.read((0, 7), 8).shape == (2, 16, 24, 2)
    assert cache.folder(FrameFolder(images)) == whole
    assert cache.folder(FrameFolder(images, count=4)) == first


def test_members_of_one_name_are_told_apart(make_video: MakeVideo, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for count in (5, 8):
            tar.add(make_video(f"{count}.mp4", count=count), "film.mp4")
    cache = FlowCache(tmp_path / "flow", Brighter())
    for place, count in zip(tar_members(tmp_path / "a.tar"), (5, 8), strict=True):
        member = ArchiveMember(tmp_path / "a.tar", place.name, place.offset_bytes, place.size_bytes)
        assert len(list(cache.folder(member).folder.glob("flow_x_*"))) == count - 1


def test_an_unreadable_video_leaves_nothing(broken: dict[str, Path], tmp_path: Path) -> None:
    cache = FlowCache(tmp_path / "flow", Brighter())
    with pytest.raises(VideoError, match="truncated"):
        cache.folder(FileSource(broken["truncated"]))
    assert list(cache.root.iterdir()) == []


def test_without_opencv_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependency, match=r"python -m pip install 'hwbench\[flow\]'"):
        DisFlow()
    with pytest.raises(InvalidValue, match="preset"):
        DisFlow("slow")


def test_what_dis_gets_and_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCV itself is driven by test_dis_finds_motion."""

    class Search:
        def calc(self, first: np.ndarray, second: np.ndarray, flow: None) -> np.ndarray:
            assert first.flags.c_contiguous
            assert first.shape == second.shape == (96, 128)
            return np.ones((96, 128, 2), np.float32)

    class OpenCv:
        COLOR_RGB2GRAY = 7

        @staticmethod
        def DISOpticalFlow_create(preset: int) -> Search:
            assert preset == 1
            return Search()

        @staticmethod
        def cvtColor(frame: np.ndarray, how: int) -> np.ndarray:
            assert how == 7
            return np.ascontiguousarray(frame[..., 0])

    monkeypatch.setitem(sys.modules, "cv2", OpenCv)
    method = DisFlow("fast")
    assert method.name == "dis-fast"
    assert method(textured(), textured()[:, ::-1]).shape == (96, 128, 2)


@pytest.mark.parametrize(("preset", "least"), [("ultrafast", 32), ("fast", 32), ("medium", 16)])
@pytest.mark.parametrize("size", [(8, 64), (64, 8), (1, 1), (31, 15), (40, 50)])
def test_what_is_too_small_for_dis_is_enlarged(
    monkeypatch: pytest.MonkeyPatch, preset: str, least: int, size: tuple[int, int]
) -> None:
    class Search:
        def calc(self, first: np.ndarray, second: np.ndarray, flow: None) -> np.ndarray:
            assert first.shape == second.shape == tuple(max(least, side) for side in size)
            assert (first[size[0] :] == first[size[0] - 1]).all()
            assert (first[:, size[1] :] == first[:, size[1] - 1 : size[1]]).all()
            return np.stack([first, second], axis=-1).astype(np.float32)

    class OpenCv:
        COLOR_RGB2GRAY = 7
        DISOpticalFlow_create = staticmethod(lambda preset: Search())
        cvtColor = staticmethod(lambda frame, how: np.ascontiguousarray(frame[..., 0]))

    monkeypatch.setitem(sys.modules, "cv2", OpenCv)
    frame = textured()[: size[0], : size[1]]
    np.testing.assert_array_equal(DisFlow(preset)(frame, frame), frame[..., [0, 0]])


@pytest.mark.parametrize("preset", ["ultrafast", "fast", "medium"])
def test_dis_takes_frames_of_any_size(preset: str) -> None:
    """In a process of its own: OpenCV crashes with frames that are too small."""
    pytest.importorskip("cv2", reason="python -m pip install 'hwbench[flow]'")
    program = (
        "import numpy as np; from hwbench.data.flow_methods import DisFlow\n"
        "for size in ((8, 64), (64, 8), (1, 1), (16, 1000), (31, 200), (32, 90)):\n"
        "    frames = np.random.default_rng(0).integers(0, 256, (2, *size, 3), dtype=np.uint8)\n"
        f"    assert DisFlow({preset!r})(*frames).shape == (*size, 2)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_tv_l1_takes_frames_of_any_size() -> None:
    pytest.importorskip("skimage", reason="python -m pip install 'hwbench[flow]'")
    for size in ((8, 64), (1, 64), (64, 1), (1, 1)):
        frames = np.random.default_rng(0).integers(0, 256, (2, *size, 3), dtype=np.uint8)
        assert TvL1Flow()(*frames).shape == (*size, 2)


@dataclass
class Failing:
    """A method that fails as a library does, with frames that are not 16 high."""

    name: str = "failing"

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        if len(first) != 16:
            raise RuntimeError("Assertion failed:\n  rows == 16")
        return np.zeros((*first.shape[:2], 2), np.float32)


def test_what_a_method_raises_is_a_failure_of_the_video(make_video: MakeVideo, tmp_path: Path) -> None:
    for label in "ab":
        make_video(f"clips/{label}/good.mp4", count=6, size=(16, 16))
    bad = make_video("clips/b/bad.mp4", count=6, size=(32, 16))
    cache = FlowCache(tmp_path / "flow", Failing())
    with pytest.raises(VideoError) as raised:
        cache.folder(FileSource(bad))
    size = "16x32 by failing"
    assert str(raised.value) == f"{bad}: optical flow of frames of {size}: Assertion failed: rows == 16"
    assert list(cache.root.iterdir()) == []
    videos = read_folder(tmp_path / "clips")
    listed = splits_of(Listing(videos, videos), tmp_path / "clips").train
    decoder = FlowDecoder(PYAV, cache)
    transform = FlowTransform(ScaleJitter((8, 8)))
    clips = TrainingClips(listed, ClipSpec(2, stride=1), transform, policy=FailurePolicy.SKIP, decoder=decoder)
    (batch,) = Loader(clips, workers=0).batches([[0, 1, 2]])
    assert len(batch) == 2
    assert [one.path for one in batch.failures] == [str(bad)]


def test_what_is_wrong_with_a_method_itself_is_no_failure_of_a_video(make_video: MakeVideo, tmp_path: Path) -> None:
    class Missing(Brighter):
        def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
            raise InvalidFile("no weights")

    with pytest.raises(InvalidFile, match="no weights"):
        FlowCache(tmp_path / "flow", Missing()).folder(FileSource(make_video("film.mp4", count=3)))


@pytest.mark.long
def test_dis_finds_motion() -> None:
    pytest.importorskip("cv2", reason="python -m pip install 'hwbench[flow]'")
    flow = DisFlow()(textured(), textured(3))
    assert np.median(flow[..., 0]) == pytest.approx(3, abs=0.3)
    assert np.median(flow[..., 1]) == pytest.approx(0, abs=0.3)


def test_without_scikit_image_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.registration", None)
    with pytest.raises(MissingDependency, match=r"python -m pip install 'hwbench\[flow\]'"):
        TvL1Flow()
    with pytest.raises(InvalidValue, match="attachment"):
        TvL1Flow(attachment=0)


def test_tv_l1_finds_motion_and_is_kept(make_video: MakeVideo, tmp_path: Path) -> None:
    pytest.importorskip("skimage", reason="python -m pip install 'hwbench[flow]'")
    method = flow_method("tvl1")
    right = method(textured(), textured(2))
    down = method(textured().transpose(1, 0, 2), textured(2).transpose(1, 0, 2))
    assert np.median(right[..., 0]) == pytest.approx(2, abs=0.2)
    assert np.median(right[..., 1]) == pytest.approx(0, abs=0.2)
    assert np.median(down[..., 1]) == pytest.approx(2, abs=0.2)
    assert (right.dtype, right.shape) == (np.float32, (96, 128, 2))
    cache = FlowCache(tmp_path / "flow", method)
    folder = cache.folder(FileSource(make_video("film.mp4", count=3)))
    assert json.loads((folder.folder / NOTE).read_text())["method"] == "tvl1-15-5"
    assert folder.read((0, 2), 3).shape[0] == 2


@pytest.mark.parametrize("text", ["tvl1=fast", "raft", "farneback"])
def test_a_method_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"^flow: "):
        flow_method(text)


def test_raft_takes_weights_of_a_file_and_frames_of_any_size(tmp_path: Path) -> None:
    from torchvision.models.optical_flow import raft_small

    torch.manual_seed(0)
    torch.save(raft_small(weights=None).state_dict(), tmp_path / "raft.pth")
    method = RaftFlow(tmp_path / "raft.pth", "raft_small", updates=1)
    flow = method(textured()[:50, :61], textured(3)[:50, :61])
    assert (flow.shape, flow.dtype) == ((50, 61, 2), np.float32)
    assert method.name.startswith("raft_small-1-")
    np.testing.assert_array_equal(flow, method(textured()[:50, :61], textured(3)[:50, :61]))


def test_what_is_no_raft_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1)}, tmp_path / "other.pth")
    (tmp_path / "page.pth").write_text("<html>not found</html>")
    for name, said in (
        ("other.pth", r"expected weights of raft_small \(Error"),
        ("page.pth", r"damaged, or another kind of file \(not plain .*\); expected weights of raft_small$"),
        ("none.pth", "No such file or directory; expected weights of raft_small$"),
    ):
        with pytest.raises(InvalidFile, match=f"^{tmp_path / name}: {said}"):
            RaftFlow(tmp_path / name, "raft_small")(textured(), textured())
    with pytest.raises(InvalidFile, match=r"none\.pth"):
        _ = RaftFlow(tmp_path / "none.pth").name
    with pytest.raises(InvalidValue, match="raft_large or raft_small"):
        RaftFlow(tmp_path / "other.pth", "raft")


def test_png_and_jpeg_may_be_mixed(mmaction2_folder: Path) -> None:
    (mmaction2_folder / "flow_x_00002.jpg").unlink()
    image = encode_png(torch.full((1, 16, 24), 99, dtype=torch.uint8)).numpy().tobytes()
    (mmaction2_folder / "flow_x_00002.png").write_bytes(image)
    assert (FlowFolder(mmaction2_folder).read((1,), 4)[..., 0] == 99).all()
