"""Decoded videos on the disk change no sample, hold their limit, and survive what happens to files."""

import hashlib
import multiprocessing
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hwbench import room
from hwbench.data import ClipSpec, Reading, TestClips, TrainingClips, open_dataset
from hwbench.data.archives import ArchiveMember, MemorySource
from hwbench.data.decoded_cache import DecodedCache, refusal_of
from hwbench.data.decoders import PYAV
from hwbench.data.decoding import VideoFile, VideoInfo, probe, read_frames
from hwbench.data.frame_file import file_bytes, read_frame_file, write_frame_file
from hwbench.data.info_index import InfoIndex
from hwbench.data.loading import Loader, shuffled
from hwbench.data.media import FileSource, OpenVideo, VideoSource
from hwbench.data.readers.tar_index import tar_members
from hwbench.errors import InvalidValue
from hwbench.testing.decoders import write_moving
from hwbench.workspace import Workspace

VIDEO_BYTES = file_bytes((20, 48, 64, 3))


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    for number in range(10):
        write_moving(tmp_path / "clips" / "ab"[number % 2] / f"{number}.mp4", count=20)
    return tmp_path / "clips"


@pytest.fixture
def cache(tmp_path: Path) -> DecodedCache:
    return DecodedCache(PYAV, tmp_path / "decoded", 100 * VIDEO_BYTES, videos=10)


def read(cache: DecodedCache, path: Path, indices: tuple[int, ...] = (3, 9, 15)) -> np.ndarray:
    with cache.open(FileSource(path)) as video:
        return video.read(indices)


def kept(cache: DecodedCache) -> list[Path]:
    return sorted(cache.folder.glob("*.frames"))


def taken(cache: DecodedCache) -> int:
    return sum(path.stat().st_size for path in cache.folder.glob("*") if path.suffix != ".lock")  # none kept: no folder


def pictures(clips: Path, workspace: Path, reading: Reading, *, workers: int = 0) -> list[torch.Tensor]:
    """All batches of two epochs, and all test views."""

    def opened(split: str, views: tuple[int, int] | None) -> TrainingClips | TestClips:
        return open_dataset(
            Workspace(workspace), str(clips), split=split, size=(32, 32), clip=ClipSpec(4, stride=2), views=views,
            cache_bytes=0, reading=reading,
        )  # fmt: skip

    train, test = opened("train", None), opened("val", (2, 3))
    batches = []
    for epoch in range(2):
        train.set_epoch(epoch)
        batches += [b.clips for b in Loader(train, workers=workers).batches(shuffled(8, 4, seed=0, epoch=epoch))]
    return [*batches, *(test[index].views for index in range(len(test)))]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    """One that this process uses until the test ends."""
    yield tmp_path
    user = room._using.pop((os.getpid(), (tmp_path / ".hwbench" / "cache").absolute()), None)
    if user is not None:
        os.close(user.descriptor)


@pytest.mark.parametrize("limit", [4 * VIDEO_BYTES, 100 * VIDEO_BYTES])
def test_samples_are_the_same_with_and_without(clips: Path, workspace: Path, limit: int) -> None:
    plain = pictures(clips, workspace, Reading())
    for workers in (0, 2):  # the second time from what the first one kept
        cached = pictures(clips, workspace, Reading(decoded_cache_bytes=limit), workers=workers)
        assert all(torch.equal(a, b) for a, b in zip(plain, cached, strict=True))
    files = list((workspace / ".hwbench" / "cache" / "decoded").glob("*.frames"))
    assert len(files) * VIDEO_BYTES <= limit
    assert len(files) == 10 or limit == 4 * VIDEO_BYTES


def test_what_a_run_uses_is_not_cleaned(clips: Path, workspace: Path) -> None:
    pictures(clips, workspace, Reading(decoded_cache_bytes=100 * VIDEO_BYTES))
    folder = workspace / ".hwbench" / "cache"
    assert room.clean_cache(folder).kept_bytes >= 10 * VIDEO_BYTES
    assert len(list((folder / room.DECODED).glob("*.frames"))) == 10


def test_the_second_reading_opens_no_video(clips: Path, cache: DecodedCache, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clips / "a" / "0.mp4"
    with cache.open(FileSource(path)) as video:
        info = video.info
        first = video.read((3, 9, 15))
    monkeypatch.setattr(VideoFile, "__init__", lambda *_, **__: pytest.fail("opened"))
    with cache.open(FileSource(path), info) as video:
        assert np.array_equal(video.read((3, 9, 15)), first)
        assert np.array_equal(video.read((15, 3, 3)), first[[2, 0, 0]])
        assert video.read(range(20)).flags.writeable


@pytest.mark.parametrize("videos", [1, 3, 7])
def test_the_limit_is_held(clips: Path, tmp_path: Path, videos: int) -> None:
    cache = DecodedCache(PYAV, tmp_path / "decoded", videos * VIDEO_BYTES, videos=1)
    for path in sorted(clips.rglob("*.mp4")):
        read(cache, path)
        assert taken(cache) <= cache.limit_bytes
    assert kept(cache)


def test_what_was_used_least_recently_goes_first(clips: Path, tmp_path: Path) -> None:
    cache = DecodedCache(PYAV, tmp_path / "decoded", 4 * VIDEO_BYTES, videos=1)
    paths = sorted(clips.rglob("*.mp4"))[:5]
    files = [cache._file(FileSource(path)) for path in paths]
    for path in paths[:4]:
        read(cache, path)
    for number, path in enumerate(files[:4]):
        os.utime(path, (number, number))
    read(cache, paths[0])
    read(cache, paths[4])
    assert [path.exists() for path in files] == [True, False, True, True, True]


def test_of_a_set_that_does_not_fit_the_same_part_is_kept(clips: Path, tmp_path: Path) -> None:
    cache = DecodedCache(PYAV, tmp_path / "decoded", 100 * VIDEO_BYTES, videos=200)
    paths = sorted(clips.rglob("*.mp4"))
    for path in paths:
        read(cache, path)
    first = {path: path.stat().st_ino for path in kept(cache)}
    assert set(first) == {f for f in (cache._file(FileSource(p)) for p in paths) if cache.wants(f, probe(paths[0]))}
    for path in reversed(paths):
        read(cache, path)
    assert {path: path.stat().st_ino for path in kept(cache)} == first


def test_the_part_is_nine_tenths_of_what_fits(clips: Path, cache: DecodedCache) -> None:
    info = probe(clips / "a" / "0.mp4")
    files = [Path(f"{hashlib.sha256(str(number).encode()).hexdigest()}.frames") for number in range(2000)]
    for videos, share in ((90, 1.0), (200, 0.45), (2000, 0.045)):
        wanted = sum(replace(cache, videos=videos).wants(file, info) for file in files)
        assert wanted / 2000 == pytest.approx(share, abs=0.03)


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [_shorten, _empty, _flip, _zero])
def test_a_damaged_entry_is_made_again(clips: Path, cache: DecodedCache, damage: Callable[[Path], None]) -> None:
    path = clips / "a" / "0.mp4"
    expected = read(cache, path, tuple(range(20)))
    (file,) = kept(cache)
    good = file.read_bytes()
    damage(file)
    assert np.array_equal(read(cache, path, tuple(range(20))), expected)
    assert file.read_bytes() == good


def test_a_file_that_changed_is_decoded_again(clips: Path, cache: DecodedCache) -> None:
    path, other = clips / "a" / "0.mp4", clips / "b" / "1.mp4"
    read(cache, path)
    later = path.stat().st_mtime_ns + 1
    os.utime(path, ns=(later, later))
    read(cache, path)
    assert len(kept(cache)) == 2
    path.write_bytes(write_moving(other, count=18).read_bytes())
    assert np.array_equal(read(cache, path, (17,)), read_frames(other, (17,)))


def test_another_decoder_has_files_of_its_own(clips: Path, cache: DecodedCache) -> None:
    class Other:
        identity = "other 1"
        open = PYAV.open

    read(cache, clips / "a" / "0.mp4")
    read(DecodedCache(Other(), cache.folder, cache.limit_bytes, cache.videos), clips / "a" / "0.mp4")
    assert len(kept(cache)) == 2


def test_members_of_one_name_have_files_of_their_own(clips: Path, cache: DecodedCache, tmp_path: Path) -> None:
    counts = {write_moving(tmp_path / f"{count}.mp4", count=count): count for count in (8, 12)}
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for path in counts:
            tar.add(path, "film.mp4")
    index = InfoIndex(tmp_path / "index.sqlite")
    for (path, count), place in zip(counts.items(), tar_members(tmp_path / "a.tar"), strict=True):
        member = ArchiveMember(tmp_path / "a.tar", place.name, place.offset_bytes, place.size_bytes)
        assert index.get(member) is None
        with cache.open(member) as video:
            index.put(member, video.info)
            assert np.array_equal(video.read((count - 2,)), read_frames(path, (count - 2,)))
    assert len(kept(cache)) == 2


def _fill(cache: DecodedCache, paths: list[Path]) -> None:
    for path in paths:
        assert np.array_equal(read(cache, path), read_frames(path, (3, 9, 15)))
        with cache._locked():
            assert taken(cache) <= cache.limit_bytes


def test_several_processes_read_and_write_at_once(clips: Path, tmp_path: Path) -> None:
    cache = DecodedCache(PYAV, tmp_path / "decoded", 4 * VIDEO_BYTES, videos=1)
    paths = sorted(clips.rglob("*.mp4"))
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_fill, args=(cache, order)) for order in (paths, paths[::-1])]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert not list(cache.folder.glob(".*.tmp"))


def test_what_a_killed_process_left_counts_and_goes(clips: Path, tmp_path: Path) -> None:
    cache = DecodedCache(PYAV, tmp_path / "decoded", 2 * VIDEO_BYTES, videos=1)
    cache.folder.mkdir()
    left = cache.folder / ".x.frames.0.tmp"
    left.write_bytes(bytes(2 * VIDEO_BYTES))
    (cache.folder / "total.lock").write_text("12 no number")
    read(cache, clips / "a" / "0.mp4")
    assert not left.exists()
    assert len(kept(cache)) == 1


def test_a_video_with_a_damaged_frame_is_read_as_without(
    clips: Path, cache: DecodedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = clips / "a" / "0.mp4"
    expected = read_frames(path, (3, 9))
    collect = VideoFile._collect
    monkeypatch.setattr(
        VideoFile, "_collect", lambda self, wanted: {i: f for i, f in collect(self, wanted).items() if i != 12}
    )
    assert np.array_equal(read(cache, path, (3, 9)), expected)
    assert not kept(cache)


def test_what_cannot_be_kept_is_read(clips: Path, tmp_path: Path) -> None:
    path = clips / "a" / "0.mp4"
    (tmp_path / "file").write_text("")
    nowhere = DecodedCache(PYAV, tmp_path / "file" / "decoded", 100 * VIDEO_BYTES, videos=10)
    small = DecodedCache(PYAV, tmp_path / "small", VIDEO_BYTES - 1, videos=1)
    for cache in (nowhere, small):
        assert np.array_equal(read(cache, path), read_frames(path, (3, 9, 15)))
    with small.open(MemorySource("memory", path.read_bytes())) as video:
        assert np.array_equal(video.read((4,)), read_frames(path, (4,)))


class Counting:
    """A decoder that counts the frames that are asked of it."""

    identity = PYAV.identity
    frames = 0

    def open(self, source: VideoSource, info: VideoInfo | None = None) -> OpenVideo:
        counting, video = self, PYAV.open(source, info)
        read = video.read

        def counted(indices: tuple[int, ...] | range) -> np.ndarray:
            counting.frames += len(indices)
            return read(indices)

        video.read = counted  # type: ignore[method-assign]
        return video


def without_locks(folder: Path) -> None:
    (folder / "total.lock").mkdir(parents=True)


def without_folder(folder: Path) -> None:
    folder.write_text("")


@pytest.mark.parametrize("prepare", [without_locks, without_folder])
def test_where_nothing_can_be_kept_videos_are_decoded_whole_once_at_most(
    clips: Path, tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    prepare(tmp_path / "decoded")
    decoder = Counting()
    cache = DecodedCache(decoder, tmp_path / "decoded", 100 * VIDEO_BYTES, videos=10)
    for _ in range(3):
        for path in sorted(clips.rglob("*.mp4")):
            assert np.array_equal(read(cache, path, (3,)), read_frames(path, (3,)))
    assert decoder.frames == 20 + 29
    assert refusal_of(cache).startswith(f"{cache.folder}: cannot keep decoded videos (")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_refusal_is_known_where_the_batches_are_taken(clips: Path, workspace: Path, workers: int) -> None:
    folder = workspace / ".hwbench" / "cache" / "decoded"
    training = open_dataset(
        Workspace(workspace), str(clips), split="train", size=(32, 32), clip=ClipSpec(4, stride=2), cache_bytes=0,
        reading=Reading(decoded_cache_bytes=100 * VIDEO_BYTES),
    )  # fmt: skip
    assert refusal_of(training.decoder) == ""
    folder.mkdir(parents=True)
    (folder / "total.lock").mkdir()
    for _ in Loader(training, workers=workers).batches(shuffled(8, 4, seed=0, epoch=0)):
        pass
    assert refusal_of(training.decoder).startswith(f"{folder}: cannot keep decoded videos (Is a directory); ")


def test_long_videos_are_not_kept(clips: Path, cache: DecodedCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hwbench.data.decoded_cache._LARGEST_BYTES", VIDEO_BYTES - 1)
    read(cache, clips / "a" / "0.mp4")
    assert not cache.folder.exists()


def test_a_frame_that_is_not_there_is_refused(clips: Path, cache: DecodedCache) -> None:
    for _ in range(2):
        with cache.open(FileSource(clips / "a" / "0.mp4")) as video:
            for indices in ((-1,), (20,), ()):
                with pytest.raises(InvalidValue, match="expected frame indices from 0 to 19"):
                    video.read(indices)
            video.read((0,))


def test_a_frame_file_gives_what_was_written(tmp_path: Path) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 3, 7, 3), np.uint8)
    path = tmp_path / "frames"
    path.touch()
    write_frame_file(path, frames[:, ::-1])
    assert path.stat().st_size == file_bytes(frames.shape)
    assert np.array_equal(read_frame_file(path, (4, 0, 4)), frames[[4, 0, 4], ::-1])
    assert read_frame_file(path, (5,)) is None
    assert read_frame_file(tmp_path / "none", (0,)) is None
