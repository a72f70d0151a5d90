"""What is known of files is kept between processes and runs, and believed only of files as they were."""

import multiprocessing
import os
import pickle
import sqlite3
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from video_files import MakeVideo

from hwbench.data import ClipSpec, ScaleJitter, TrainingClips, VideoList
from hwbench.data.archives import ArchiveMember, MemorySource
from hwbench.data.decoding import VideoFile, VideoInfo, probe
from hwbench.data.info_index import InfoIndex
from hwbench.data.kept_facts import KeptFacts
from hwbench.data.loading import Loader, shuffled
from hwbench.data.media import FileSource, VideoSource
from hwbench.data.readers.tar_index import tar_members


@pytest.fixture
def index(tmp_path: Path) -> InfoIndex:
    return InfoIndex(tmp_path / "cache" / "index.sqlite")


def test_a_file_is_closed_with_the_last_reference(tmp_path: Path) -> None:
    kept = KeptFacts(tmp_path / "facts.sqlite")
    connection = kept._connection
    del kept
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def same(one: VideoInfo | None, other: VideoInfo) -> bool:
    if one is None or one.pts.dtype != other.pts.dtype or not np.array_equal(one.pts, other.pts):
        return False
    return replace(one, pts=None) == replace(other, pts=None)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("plain.mp4", {}),
        ("variable.mp4", {"times": [0, 1, 2, 5, 9, 10, 30], "count": 7}),
        ("late.mkv", {"times": [7, 8, 9], "count": 3, "gop": 1}),
        ("counted.avi", {"codec": "mpeg4", "options": {"bf": "2"}}),
        ("one.mp4", {"count": 1}),
        ("counted.mkv", {"codec": "ffv1", "times": [9, 10, 10, 11], "count": 4}),
        ("fields.mp4", {"options": {"x264-params": "interlaced=1"}}),
    ],
)
def test_what_is_kept_is_what_was_probed(index: InfoIndex, make_video: MakeVideo, name: str, how: dict) -> None:
    source = FileSource(make_video(name, **how))
    assert index.get(source) is None
    info = probe(source.path)
    index.put(source, info)
    assert same(index.get(source), info)
    assert same(pickle.loads(pickle.dumps(index)).get(source), info)
    assert index.get(FileSource(source.path, stream=0)) is None


def test_a_file_that_changed_is_probed_again(index: InfoIndex, make_video: MakeVideo) -> None:
    source = FileSource(make_video("a.mp4", count=20))
    index.put(source, probe(source.path))
    later = source.path.stat().st_mtime_ns + 1
    os.utime(source.path, ns=(later, later))
    assert index.get(source) is None
    make_video("a.mp4", count=12)
    assert index.get(source) is None
    source.path.unlink()
    assert index.get(source) is None


def test_members_of_archives_are_kept_and_bytes_in_memory_are_not(
    index: InfoIndex, make_video: MakeVideo, tmp_path: Path
) -> None:
    videos = [make_video(f"{count}.mp4", count=count) for count in (8, 9)]
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for video in videos:
            tar.add(video, video.name)
    members: list[VideoSource] = [
        ArchiveMember(tmp_path / "a.tar", place.name, place.offset_bytes, place.size_bytes)
        for place in tar_members(tmp_path / "a.tar")
    ]
    for member, video in zip(members, videos, strict=True):
        index.put(member, probe(video))
    for member, video in zip(members, videos, strict=True):
        assert same(index.get(member), probe(video))
    content = MemorySource("8", videos[0].read_bytes())
    index.put(content, probe(videos[0]))
    assert index.get(content) is None


def test_the_next_run_reads_no_packets_and_gets_the_same_clips(
    index: InfoIndex, make_video: MakeVideo, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = tuple(make_video(f"v{i}.mp4", count=20 + i) for i in range(4))
    videos = VideoList(paths[0].parent, paths, (0, 1, 0, 1), ("a", "b"))

    def read(workers: int, index: InfoIndex | None) -> list[torch.Tensor]:
        clips = TrainingClips(videos, ClipSpec(4, stride=3), ScaleJitter((32, 32)), seed=3, index=index)
        return [batch.clips for batch in Loader(clips, workers=workers).batches(shuffled(4, 2, seed=0, epoch=0))]

    plain = read(0, None)
    first = read(2, index)
    with monkeypatch.context() as patch:
        patch.setattr(VideoFile, "_probe", lambda self: pytest.fail("probed"))
        for again in (read(0, index), read(2, index)):
            assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(plain, first, again, strict=True))


def _fill(file: Path, paths: list[Path]) -> None:
    index = InfoIndex(file)
    for path in paths:
        index.put(FileSource(path), probe(path))


def test_several_processes_write_at_once(make_video: MakeVideo, tmp_path: Path) -> None:
    paths = [make_video(f"{i}.mp4", count=4 + i) for i in range(12)]
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_fill, args=(tmp_path / "index.sqlite", paths[i::3])) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    index = InfoIndex(tmp_path / "index.sqlite")
    assert [index.get(FileSource(path)).num_frames for path in paths] == [4 + i for i in range(12)]


def test_a_fork_opens_the_index_for_itself(index: InfoIndex, make_video: MakeVideo) -> None:
    source = FileSource(make_video("a.mp4"))
    index.put(source, probe(source.path))
    child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(0 if index.get(source) else 1))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert index.get(source) is not None


def test_damage_costs_the_index_and_nothing_else(make_video: MakeVideo, tmp_path: Path) -> None:
    source = FileSource(make_video("a.mp4"))
    file = tmp_path / "index.sqlite"
    file.write_bytes(b"no database" * 500)
    index = InfoIndex(file)
    assert index.get(source) is None
    index.put(source, probe(source.path))
    assert index.get(source) is not None
    file.write_bytes(b"damaged meanwhile" * 500)
    fresh = InfoIndex(file)
    assert fresh.get(source) is None
    nowhere = InfoIndex(source.path / "index.sqlite")
    nowhere.put(source, probe(source.path))
    assert nowhere.get(source) is None
