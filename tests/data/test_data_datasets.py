import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from plugin_packages import offer
from video_files import MakeVideo, write_streams

import hwbench.data.loading
from hwbench.data import (
    ClipSpec,
    FailurePolicy,
    Failures,
    Sample,
    ScaleJitter,
    TestClips,
    TestTransform,
    TrainingClips,
    VideoList,
    collate,
)
from hwbench.data.decoders import decoders
from hwbench.data.decoders import get as get_decoder
from hwbench.data.decoding import VideoFile
from hwbench.data.frame_cache import FrameCache
from hwbench.data.loading import Loader, in_order, shuffled
from hwbench.data.samples import PictureBatch
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, VideoError

CLIP = ClipSpec(4, stride=3)


@pytest.fixture
def videos(make_video: MakeVideo) -> VideoList:
    paths = tuple(make_video(f"v{i}.mp4", count=20 + i, size=(48, 64)) for i in range(6))
    return VideoList(paths[0].parent, paths, (0, 1, 2, 0, 1, 2), ("a", "b", "c"))


@pytest.fixture
def mixed(videos: VideoList, broken: dict[str, Path]) -> VideoList:
    """Six good videos, then one for every way to be broken."""
    paths = (*videos.paths, *broken.values())
    return VideoList(videos.root, paths, tuple(i % 3 for i in range(len(paths))), videos.classes)


def training(videos: VideoList, **how: object) -> TrainingClips:
    return TrainingClips(videos, CLIP, ScaleJitter((32, 32)), **how)  # type: ignore[arg-type]


def digest(clips: list[torch.Tensor]) -> list[float]:
    return [float(clip.double().sum()) for clip in clips]


def test_a_sample_follows_from_seed_epoch_and_index(videos: VideoList) -> None:
    first, again, other = training(videos, seed=1), training(videos, seed=1), training(videos, seed=2)
    for dataset in (first, again, other):
        dataset.set_epoch(3)
    backwards = {i: again[i].views for i in reversed(range(6))}
    for i in range(6):
        assert torch.equal(first[i].views, backwards[i])
        assert not torch.equal(first[i].views, other[i].views)
    again.set_epoch(4)
    assert any(not torch.equal(first[i].views, again[i].views) for i in range(6))
    assert len(first) == 6
    assert first[4].views.shape == (1, 3, 4, 32, 32)
    with pytest.raises(IndexError):
        first[6]


@pytest.mark.parametrize("workers", [0, 2])
def test_pictures_of_8_bits_cross_between_processes_and_are_normalised_by_the_batch(
    videos: VideoList, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, seen = training(videos, seed=1), []
    plain = PictureBatch.normalised
    monkeypatch.setattr(PictureBatch, "normalised", lambda self, device: seen.append(self) or plain(self, device))
    (batch,) = Loader(dataset, workers=workers).batches([[4, 2]])
    assert seen[0].pictures.dtype == torch.uint8
    assert seen[0].pictures.shape == (2, 4, 3, 32, 32)
    assert batch.clips.dtype == torch.float32
    assert torch.equal(batch.clips, torch.cat([dataset[4].views, dataset[2].views]))
    pixels = dataset[4].pictures.transpose(1, 2).double()
    torch.testing.assert_close(dataset[4].views.double(), (pixels / 255 - 0.45) / 0.225, atol=1e-6, rtol=0)


@pytest.mark.parametrize("cache", [0, 10**9])
def test_workers_and_caches_change_nothing(videos: VideoList, cache: int) -> None:
    def read(workers: int, cache_bytes: int) -> list[torch.Tensor]:
        dataset = training(videos, seed=5, cache_bytes=cache_bytes)
        loader = Loader(dataset, workers=workers)
        found = []
        for epoch in range(2):
            dataset.set_epoch(epoch)
            found += [b.clips for b in loader.batches(shuffled(6, 2, seed=5, epoch=epoch))]
        return found

    plain = read(0, 0)
    for workers in (0, 2):
        for one, two in zip(plain, read(workers, cache), strict=True):
            assert torch.equal(one, two)


def test_another_process_draws_the_same(videos: VideoList) -> None:
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from hwbench.data import *\n"
        "paths = tuple(map(Path, sys.argv[1:]))\n"
        "videos = VideoList(paths[0].parent, paths, (0, 1, 2, 0, 1, 2), ('a', 'b', 'c'))\n"
        "data = TrainingClips(videos, ClipSpec(4, stride=3), ScaleJitter((32, 32)), seed=9)\n"
        "data.set_epoch(2)\n"
        "print(json.dumps([float(data[i].views.double().sum()) for i in range(6)]))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, videos.paths)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    dataset = training(videos, seed=9)
    dataset.set_epoch(2)
    assert json.loads(result.stdout) == digest([dataset[i].views for i in range(6)])


def test_test_views_are_clips_times_crops(videos: VideoList) -> None:
    dataset = TestClips(videos, CLIP, TestTransform((32, 32), crops=3), clips=4)
    assert len(dataset) == 24
    sample = dataset[9]
    assert (sample.video, sample.label) == (2, 2)
    assert sample.views.shape == (3, 3, 4, 32, 32)
    batch = collate([dataset[8], dataset[9]]).normalised()
    assert batch.clips.shape == (6, 3, 4, 32, 32)
    assert batch.videos.tolist() == [2] * 6
    assert torch.equal(dataset[9].views, sample.views)


@pytest.mark.parametrize("workers", [0, 2])
def test_raise_ends_at_the_first_unreadable_video(mixed: VideoList, workers: int) -> None:
    dataset = training(mixed)
    for index in range(6, len(mixed)):
        with pytest.raises(VideoError, match=mixed.paths[index].name):
            dataset[index]
        with pytest.raises(VideoError) as caught:
            list(Loader(dataset, workers=workers).batches([[0, index]]))
        assert str(caught.value).startswith(f"{mixed.paths[index]}: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [TrainingClips, TestClips])
def test_skip_leaves_out_counts_and_names(mixed: VideoList, kind: type) -> None:
    transform = ScaleJitter((32, 32)) if kind is TrainingClips else TestTransform((32, 32))
    dataset = kind(mixed, CLIP, transform, policy=FailurePolicy.SKIP)
    failures = Failures()
    seen = []
    for batch in Loader(dataset).batches(in_order(len(dataset), 4)):
        failures.add(batch.failures)
        seen += batch.videos.tolist()
        assert len(batch.clips) == len(batch.labels)
    assert seen == list(range(6))
    assert set(failures.causes) == {str(path) for path in mixed.paths[6:]}
    assert failures.samples == len(mixed) - 6
    for path in mixed.paths[6:]:
        assert str(path) in str(failures)


def test_replace_draws_another_video_the_same_one_every_time(mixed: VideoList) -> None:
    first, again = (training(mixed, policy=FailurePolicy.REPLACE, seed=3) for _ in range(2))
    for index in range(len(mixed)):
        sample, same = first[index], again[index]
        assert sample.video < 6
        assert sample.label == mixed.labels[sample.video]
        assert sample.failures == same.failures
        assert torch.equal(sample.views, same.views)
        assert bool(sample.failures) == (index >= 6)


def test_replace_gives_up_where_nothing_can_be_read(broken: dict[str, Path]) -> None:
    paths = tuple(broken.values())
    dataset = training(VideoList(paths[0].parent, paths, (0,) * len(paths), ("a",)), policy=FailurePolicy.REPLACE)
    sample = dataset[0]
    assert sample.views is None
    assert len(sample.failures) > 1


def test_policies_are_read_from_text() -> None:
    assert FailurePolicy.parse("skip") is FailurePolicy.SKIP
    with pytest.raises(InvalidValue, match="ignore"):
        FailurePolicy.parse("ignore")


def test_a_cached_video_is_decoded_once(videos: VideoList, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    original = VideoFile.read
    monkeypatch.setattr(VideoFile, "read", lambda self, i: opened.append(self.path.name) or original(self, i))
    dataset = training(videos, cache_bytes=10**8)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        [dataset[i] for i in range(6)]
    assert sorted(opened) == [path.name for path in videos.paths]


def test_a_file_is_opened_once_for_all_clips_of_a_batch(videos: VideoList, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    original = VideoFile._open
    monkeypatch.setattr(VideoFile, "_open", lambda self: opened.append(self.path.name) or original(self))
    dataset = training(videos)
    dataset.__getitems__([0, 1])
    assert opened == [videos.paths[0].name, videos.paths[1].name]
    opened.clear()
    test = TestClips(videos, ClipSpec(4, stride=2), TestTransform((24, 24), crops=3), clips=10)
    order = [*range(5, 15), 3, 21, 20]
    together = test.__getitems__(order)
    assert opened == [path.name for path in (*videos.paths[:2], videos.paths[0], videos.paths[2])]
    for index, sample in zip(order, together, strict=True):
        alone = test[index]
        assert (sample.video, sample.label) == (alone.video, alone.label)
        assert torch.equal(sample.views, alone.views)


def test_a_clip_that_cannot_be_decoded_costs_no_other_clip(videos: VideoList, monkeypatch: pytest.MonkeyPatch) -> None:
    original = VideoFile.read

    def read(self: VideoFile, indices: Sequence[int]) -> np.ndarray:
        if self.info.num_frames - 1 in indices:
            raise VideoError(f"{self.path}: its last frame cannot be decoded")
        return original(self, indices)

    monkeypatch.setattr(VideoFile, "read", read)
    test = TestClips(videos, ClipSpec(4, stride=2), TestTransform((24, 24)), clips=3, policy=FailurePolicy.SKIP)
    batch = collate(test.__getitems__([0, 1, 2])).normalised()
    assert len(batch) == 2
    assert [failure.cause.rpartition(": ")[2] for failure in batch.failures] == ["its last frame cannot be decoded"]


def test_the_cache_keeps_to_its_limit(videos: VideoList) -> None:
    frames = np.zeros((10, 10, 10, 3), np.uint8)
    cache = FrameCache(7000)
    for key in (0, 1, 0, 2):
        if cache.frames(key) is None:
            cache.keep(key, frames)
    assert cache.frames(0) is not None
    assert cache.frames(1) is None  # the least recently used
    dataset = training(videos, cache_bytes=30 * 48 * 64 * 3 * 3)  # room for three of six: none is kept
    [dataset[i] for i in range(6)]
    assert all(dataset._cache.frames(i) is None for i in range(6))


def test_shuffled_batches_are_a_permutation_of_each_epoch() -> None:
    first, second = (shuffled(10, 3, seed=0, epoch=epoch) for epoch in (0, 1))
    assert first == shuffled(10, 3, seed=0, epoch=0) != second
    assert [len(batch) for batch in first] == [3, 3, 3]
    assert len({i for batch in first for i in batch}) == 9
    assert [len(batch) for batch in shuffled(2, 8, seed=0, epoch=0)] == [2]


BROKEN = """
from hwbench.data.decoders import PyAV


class Opens:
    identity = "opens"

    def open(self, source, info=None):
        raise RuntimeError("decoder broke")


class Reads(Opens):
    def open(self, source, info=None):
        self.video = PyAV().open(source, info)
        self.info = self.video.info
        return self

    def read(self, indices):
        raise KeyError("frames")

    def __enter__(self):
        return self

    def __exit__(self, *of_error):
        self.video.__exit__(*of_error)
"""


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("thing", "cause"), [("Opens", "RuntimeError: decoder broke"), ("Reads", "KeyError: 'frames'")]
)
def test_an_error_of_a_decoder_of_another_package_is_told_as_that(
    videos: VideoList, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thing: str, cause: str, workers: int
) -> None:
    offer(monkeypatch, tmp_path, decoders, BROKEN, {"odd": thing})
    dataset = TrainingClips(videos, CLIP, ScaleJitter((32, 32)), decoder=get_decoder("odd"))
    with pytest.raises(HwbenchError) as caught:
        list(Loader(dataset, workers=workers).batches([[0, 1]]))
    said = f"decoder 'odd' of the package plugins failed on {videos.paths[0]}: {cause}"
    assert (type(caught.value), str(caught.value)) == (HwbenchError, said)


class Lacking(TrainingClips):
    error: Exception

    def __getitem__(self, index: int) -> Sample:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("a bug"), "a process that reads videos failed: RuntimeError: a bug"),
        (KeyError("label"), "a process that reads videos failed: KeyError: 'label'"),
        (InvalidFile("FILE:3: no label"), "FILE:3: no label"),
        (OSError(28, "No space left on device"), "--workers 0"),
        (MemoryError(), "--workers 0"),
    ],
)
def test_what_a_worker_raises_is_told_in_one_line(videos: VideoList, error: Exception, said: str) -> None:
    dataset = Lacking(videos, CLIP, ScaleJitter((32, 32)))
    dataset.error = error
    with pytest.raises(HwbenchError) as caught:
        list(Loader(dataset, workers=1).batches([[0, 1]]))
    assert isinstance(caught.value, type(error) if isinstance(error, HwbenchError) else HwbenchError)
    assert str(caught.value).endswith(said)
    assert "\n" not in str(caught.value)


class Dying(TrainingClips):
    def __getitem__(self, index: int) -> Sample:
        if index == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Mute(TrainingClips):
    def __getitem__(self, index: int) -> Sample:
        time.sleep(100)
        return super().__getitem__(index)


def fails_in_one_line(name: str, paths: list[str]) -> None:
    """What the process of the next test does."""
    hwbench.data.loading._PATIENCE_S = 1
    places = tuple(map(Path, paths))
    videos = VideoList(places[0].parent, places, tuple(i % 3 for i in range(len(places))), ("a", "b", "c"))
    dataset = {"Dying": Dying, "Mute": Mute}[name](videos, CLIP, ScaleJitter((32, 32)))
    with pytest.raises(HwbenchError, match=r"--workers") as caught:
        list(Loader(dataset, workers=1).batches([[3], [1]]))
    assert "\n" not in str(caught.value)
    print("as expected")


@pytest.mark.parametrize("name", ["Dying", "Mute"])
def test_a_worker_that_dies_or_hangs_is_one_clear_error(videos: VideoList, name: str) -> None:
    # In a process of its own: torch tells of a dead worker by an exception out of a signal handler, which interrupts
    # whatever the process is at, finalizers of other tests' pipes among it.
    script = (
        f"import test_data_datasets; test_data_datasets.fails_in_one_line({name!r}, {list(map(str, videos.paths))!r})"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "as expected\n"), done.stderr


@pytest.mark.parametrize("cache_bytes", [0, 2**24])
def test_data_sets_read_the_stream_that_the_list_names(cache_bytes: int, tmp_path: Path) -> None:
    sizes = ((48, 64), (96, 128))
    path = write_streams(tmp_path / "two.mp4", sizes, default=0)
    videos = VideoList(tmp_path, (path, path), (0, 0), ("a",), {1: 1})
    seen = []

    class Seen(TestTransform):
        def pictures(self, frames):
            seen.append(frames.shape[1:3])
            return super().pictures(frames)

    dataset = TestClips(videos, ClipSpec(4, stride=1), Seen((16, 16)), cache_bytes=cache_bytes)
    for _ in range(2):
        assert len(dataset[0].views) == len(dataset[1].views) == 1
    assert seen == [*sizes, *sizes]


def test_processes_hand_over_clips_where_the_path_of_temporary_files_is_long(videos: VideoList, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    (tmp_path / "dataset").write_bytes(pickle.dumps(training(videos)))
    program = """
import pickle, sys
from hwbench.data.loading import Loader
with open(sys.argv[1], "rb") as file:
    dataset = pickle.load(file)
(batch,) = Loader(dataset, workers=1).batches([[0, 1]])
print(len(batch.clips))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "dataset")]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.stdout, done.stderr) == ("2\n", "")
