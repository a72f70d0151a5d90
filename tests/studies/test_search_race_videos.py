"""A race of networks that cannot all read the same validation videos, or whose training videos change."""

import re
import shutil
from pathlib import Path

import av
import numpy as np
import pytest

from hwbench.api.finalists import StudyFinalists
from hwbench.api.study_data import Fidelity, StudyData
from hwbench.data import SyntheticSpec
from hwbench.data.synthetic import prepare
from hwbench.errors import CheckFailed, InvalidValue
from hwbench.spaces import read_space
from hwbench.studies.paired import VideoResults, paired_differences
from hwbench.studies.race import FinalistRun, Race, judged
from hwbench.studies.ranking import Interval
from hwbench.workspace import Workspace

SPACE = """
schema = 1
name = "spans"
description = "one network by clips of two lengths"
[input]
frames = 4
span_s = [0.3, 2]
resolution = 32
[stem]
width = 8
kernel = "1x3x3+5x1x1"
act = "relu"
[[stages]]
depth = 1
width = 8
expansion = 2.0
kernel = "1x3x3+3x1x1"
se = 0
act = "relu"
stride = 2
[head]
hidden = 32
act = "relu"
"""


def named(videos: dict[str, bool], loss: float = 1.0) -> FinalistRun:
    return FinalistRun(VideoResults(np.array([*videos.values()]), np.full(len(videos), loss), tuple(videos)), 1.0)


def test_networks_are_compared_on_the_videos_that_all_of_a_round_could_read():
    hits = dict(zip((f"{number}.mp4" for number in range(40)), np.random.default_rng(0).random(40) < 0.6))
    lost = [{key: hit for key, hit in hits.items() if key != left_out} for left_out in ("0.mp4", "7.mp4", "39.mp4")]
    runs = {name: named(videos) for name, videos in zip("abcd", (hits, *lost), strict=True)}
    first, *others = judged(runs, 4)
    shared = [hit for key, hit in hits.items() if key not in ("0.mp4", "7.mp4", "39.mp4")]
    assert {one.top1 for one in (first, *others)} == {np.mean(shared)}
    assert {one.behind for one in others} == {Interval(0, 0, 0)}
    with pytest.raises(ValueError, match=r"results of \[39, 39\] videos are no pairs"):
        paired_differences(runs["b"].results, [runs["c"].results])
    turned = {key: hits[key] for key in reversed(hits)}
    assert judged({"a": named(hits), "b": named(turned)}, 2)[1].behind == Interval(0, 0, 0)


def test_parts_of_one_video_are_compared_where_all_networks_read_as_many():
    def parts(first: list[bool], second: list[bool]) -> FinalistRun:
        names = ("a.mp4",) * len(first) + ("b.mp4",) * len(second)
        return FinalistRun(VideoResults(np.array(first + second), np.ones(len(names)), names), 1.0)

    leader, behind = judged({"one": parts([True, True], [True, False]), "two": parts([True], [True, True])}, 2)
    assert (leader.architecture, leader.top1, behind.top1) == ("two", 1.0, 0.5)  # the parts of b.mp4


def test_networks_that_read_no_video_in_common_cannot_be_compared():
    runs = {"a": named({"0.mp4": True, "1.mp4": True}), "b": named({"2.mp4": True})}
    with pytest.raises(CheckFailed, match=r"no validation video can be read at the clip lengths of all .*\(2, 1 by"):
        judged(runs, 2)


SIDE = 864


def hurt(path: Path, frame: int) -> None:
    """A video of 16 frames, 8 a second, of which one cannot be decoded; 16 of them do not fit a cache of 512 MiB, so
    that only the frames of a clip are decoded."""
    with av.open(path, "w") as file:
        video = file.add_stream("mjpeg", rate=8)
        video.width, video.height, video.pix_fmt = SIDE, SIDE, "yuvj420p"
        for number in range(16):
            picture = np.full((SIDE, SIDE, 3), 8 * number, np.uint8)
            file.mux(video.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(video.encode())
    with av.open(path) as file:
        packets = [(packet.pos, packet.size) for packet in file.demux(video=0) if packet.size]
    content, (at, size) = bytearray(path.read_bytes()), packets[frame]
    content[at : at + size] = bytes(size)
    path.write_bytes(content)


def test_a_race_of_two_clip_lengths_takes_the_videos_that_both_can_read(tmp_path):
    place = Workspace.create(tmp_path / "work")
    source = prepare(place, SyntheticSpec(train_per_class=4, val_per_class=2, size=32, frames=8))
    # The short clip is of the frames 7, 7, 8, 8, the long one of 0, 4, 8, 12.
    for video, frame in zip(sorted((source / "val").rglob("*.mp4")), (4, 7, 7)):
        hurt(video.with_suffix(".avi"), frame)
        video.unlink()
    (place.root / "search_spaces" / "spans.toml").write_text(SPACE)
    space = read_space(place.root / "search_spaces" / "spans.toml")
    data = StudyData(place, str(source), Fidelity(1), on_error="skip")
    train = StudyFinalists(place, place.studies / "lengths", data, space, 1, "fp32", 0, "executorch", 8)
    short, long = (one.key for one in space.architectures())
    result = Race(2, train).run([short, long])
    read = [set(train(key, 1).results.videos) for key in (short, long)]
    assert [len(videos) for videos in read] == [14, 15]
    assert result.videos == len(read[0] & read[1]) == 13
    assert all(13 * one.top1 == pytest.approx(round(13 * one.top1)) for one in result.rounds[0].standings)


def test_where_the_training_videos_have_changed_the_ways_to_race_anew_are_named(tmp_path):
    place = Workspace.create(tmp_path / "work")
    shipped = prepare(place, SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=8))
    source = shutil.copytree(shipped, tmp_path / "videos")
    (place.root / "search_spaces" / "spans.toml").write_text(SPACE)
    space = read_space(place.root / "search_spaces" / "spans.toml")

    def trainer() -> StudyFinalists:
        return StudyFinalists(
            place,
            place.studies / "grown",
            StudyData(place, str(source), Fidelity(1)),
            space,
            1,
            "fp32",
            0,
            "executorch",
            8,
        )

    key = next(iter(space.architectures())).key
    before = trainer()(key, 1).results
    video = min((source / "train").rglob("*.mp4"))
    shutil.copy(video, video.with_name("more.mp4"))
    folder = place.studies / "grown" / "finalists"
    words = rf"\(data: .* there, .* now\); .* remove {re.escape(str(folder))} or take another --study$"
    with pytest.raises(InvalidValue, match=words) as refused:
        trainer()(key, 1)
    assert "--fresh" not in str(refused.value)
    shutil.rmtree(folder)
    assert len(trainer()(key, 1).results.hits) == len(before.hits)
