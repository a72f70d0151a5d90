"""What a check finds in a data set, that it is kept, and that a decoder that hangs or crashes costs one file."""

import contextlib
import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from video_files import MakeVideo, no_more_open_files, write_disordered

import hwbench
from hwbench.data import file_pool
from hwbench.data.checking import FACTS, CheckedData, check_listing
from hwbench.data.clean_lists import check_target, write_lists
from hwbench.data.decoding import VideoInfo, probe
from hwbench.data.encoding import write_video
from hwbench.data.file_facts import Facts, FactsCache, FactTask, find_facts
from hwbench.data.file_pool import FileFailure, FilePool
from hwbench.data.findings import KINDS, Content, findings_of
from hwbench.data.listings import DataListing, SplitVideo, open_listing
from hwbench.data.media import FileSource
from hwbench.data.readers import ListedVideo, Part
from hwbench.data.sources import open_splits
from hwbench.data.videos import read_splits
from hwbench.errors import HwbenchError, InvalidFile, UsageError, VideoError, WorkspaceError
from hwbench.printable import printable
from hwbench.testing import datasets
from hwbench.workspace import Workspace

PROBED = {
    "width": 64, "height": 48, "codec": "h264", "frames": 300, "duration_s": 10.0, "exact_duration_s": "10",
    "fps": 30.0, "keyframes": 1, "shortest_step_s": 1 / 30, "longest_step_s": 1 / 30, "variable": False,
}  # fmt: skip


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def clips(make_video: MakeVideo, tmp_path: Path) -> Path:
    """Class folders with train/ and val/, all of it fit for training."""
    for split in ("train", "val"):
        for label, count in (("run", 20), ("jump", 26)):
            make_video(f"clips/{split}/{label}/{split}.mp4", count=count + (split == "val"))
    return tmp_path / "clips"


def check(workspace: Workspace, data: Path | str, **how: object) -> CheckedData:
    return check_listing(workspace, open_listing(workspace, str(data)), **{"jobs": 0, "time_limit_s": 30, **how})


def kinds(checked: CheckedData) -> list[tuple[str, str]]:
    return [(one.kind, Path(one.video).name) for one in checked.findings]


def remux(source: Path, target: Path) -> None:
    """The same packets in another container."""
    with av.open(str(source)) as old, av.open(str(target), "w") as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(old.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)


def test_a_set_that_is_fit_has_no_findings(workspace: Workspace, clips: Path) -> None:
    checked = check(workspace, clips)
    assert (checked.findings, checked.ok, len(checked.clean)) == ((), True, 4)
    assert checked.sizes() == {"64x48": 4}
    assert checked.duration_s == pytest.approx((20 + 26 + 21 + 27) / 30)


def test_every_broken_file_is_named_and_left_out(workspace: Workspace, clips: Path, broken: dict[str, Path]) -> None:
    for name, file in broken.items():
        if file.is_file():
            shutil.copy(file, clips / "train" / "run" / f"{name.replace(' ', '-')}{file.suffix}")
    checked = check(workspace, clips)
    lost = {one.video: one for one in checked.findings if one.failing}
    assert len(lost) == len([file for file in broken.values() if file.is_file()])
    assert {one.kind for one in lost.values()} == {"unreadable", "no-frames"}
    assert not checked.ok
    assert [video.name for video in checked.clean] == [
        video.name for video in open_listing(workspace, str(clips)).videos if video.name not in lost
    ]
    for one in lost.values():
        assert one.cause
        assert "\n" not in one.cause
        assert one.video not in one.cause


def test_a_label_without_its_video_is_missing_and_its_class_empty(workspace: Workspace, clips: Path) -> None:
    (clips / "list.txt").write_text("train/run/train.mp4 run\nval/run/val.mp4 run\ngone.mp4 jump\nnone.mp4 jump\n")
    checked = check(workspace, clips / "list.txt")
    assert ("missing", "gone.mp4") in kinds(checked)
    assert ("empty-class", "jump") in kinds(checked)
    assert not checked.ok


def test_a_single_class_is_told_and_does_not_fail(workspace: Workspace, clips: Path) -> None:
    for split in ("train", "val"):
        shutil.rmtree(clips / split / "jump")
    checked = check(workspace, clips)
    assert (kinds(checked), checked.ok) == ([("one-class", clips.name)], True)
    assert checked.findings[0].cause.startswith("one class only, 'run': any network is right about it")


def test_a_copy_on_the_other_side_is_a_leak_and_the_validation_video_stays(workspace: Workspace, clips: Path) -> None:
    shutil.copy(clips / "val" / "run" / "val.mp4", clips / "train" / "run" / "again.mp4")
    checked = check(workspace, clips)
    assert kinds(checked) == [("leak", "again.mp4")]
    assert "the same bytes as" in checked.findings[0].cause
    assert not checked.ok
    assert {Path(video.name).name for video in checked.clean} == {"train.mp4", "val.mp4"}


def test_the_same_frames_in_another_container_are_a_leak(workspace: Workspace, clips: Path) -> None:
    remux(clips / "val" / "jump" / "val.mp4", clips / "train" / "jump" / "again.mkv")
    assert kinds(check(workspace, clips)) == [("leak", "again.mkv")]


def test_videos_that_begin_alike_are_not_the_same(workspace: Workspace, clips: Path) -> None:
    for split, label, last in (("train", "run", 9), ("val", "jump", 200)):
        frames = np.zeros((8, 48, 64, 3), np.uint8)
        frames[3:] = last * np.linspace(0.5, 1, 5)[:, None, None, None]
        write_video(clips / split / label / "fade.mp4", frames, fps=12)
    sources = [FileSource(file) for file in clips.rglob("fade.mp4")]
    assert [probe(source.path).keyframes for source in sources] == [(0,)] * 2
    assert kinds(check(workspace, clips)) == []


def test_duplicates_on_one_side_keep_the_first_and_conflicts_keep_none(workspace: Workspace, clips: Path) -> None:
    shutil.copy(clips / "train" / "run" / "train.mp4", clips / "train" / "run" / "twice.mp4")
    checked = check(workspace, clips)
    assert (kinds(checked), checked.ok) == ([("duplicate", "twice.mp4")], True)
    assert len(checked.clean) == 4
    shutil.copy(clips / "train" / "run" / "train.mp4", clips / "train" / "jump" / "other.mp4")
    checked = check(workspace, clips)
    assert [kind for kind, _ in kinds(checked)] == ["conflict"] * 3 + ["empty-class"]
    assert "under another label: jump and run" in checked.findings[0].cause
    assert checked.ok


def test_copies_under_several_labels_are_a_conflict_on_whatever_sides_they_are(
    workspace: Workspace, clips: Path
) -> None:
    shutil.copy(clips / "val" / "run" / "val.mp4", clips / "train" / "jump" / "other.mp4")
    checked = check(workspace, clips)
    found = [pair for pair in kinds(checked) if pair[0] != "empty-class"]
    assert (found, checked.ok) == ([("leak", "other.mp4"), ("conflict", "other.mp4"), ("conflict", "val.mp4")], False)
    causes = [one.cause for one in checked.findings if one.kind == "conflict"]
    assert [cause.partition(" under another label: ")[2] for cause in causes] == ["jump and run", "run and jump"]
    run_val, other = clips / "val" / "run" / "val.mp4", clips / "train" / "jump" / "other.mp4"
    assert not {run_val, other} & {video.listed.path for video in checked.clean}
    assert len(checked.clean) == 3


def test_variable_rate_and_odd_sizes_are_told_and_kept(
    workspace: Workspace, make_video: MakeVideo, clips: Path
) -> None:
    make_video("clips/train/run/uneven.mp4", count=12, times=[0, 1, 2, 5, 6, 7, 8, 12, 13, 14, 15, 16])
    make_video("clips/train/run/odd.mp4", size=(47, 63), pix_fmt="yuv444p")
    checked = check(workspace, clips)
    assert kinds(checked) == [("variable-rate", "uneven.mp4"), ("odd-size", "odd.mp4")]
    assert (checked.ok, len(checked.clean)) == (True, 6)
    assert "33.33 to 133.3 ms" in checked.findings[0].cause


@pytest.mark.parametrize("name", ["ms.mkv", "tick.avi", "usual.mp4"])
def test_one_rate_in_coarse_ticks_is_not_variable(
    name: str, workspace: Workspace, make_video: MakeVideo, clips: Path
) -> None:
    codec = "mpeg4" if name.endswith("avi") else "libx264"
    make_video(f"clips/train/run/{name}", count=31, fps=24, codec=codec)
    assert check(workspace, clips).findings == ()


@pytest.mark.parametrize("fps", [120, 240, 400])
@pytest.mark.parametrize("lost", [(), (1,), (2,), (30,), (58,)])
def test_slow_motion_in_milliseconds_is_of_one_rate_but_for_a_frame_that_is_missing(
    fps: int, lost: tuple[int, ...], workspace: Workspace, make_video: MakeVideo, clips: Path
) -> None:
    times = [time for time in range(60) if time not in lost]
    make_video("clips/train/run/slow.mkv", count=len(times), fps=fps, times=times)
    assert kinds(check(workspace, clips)) == [("variable-rate", "slow.mkv")] * len(lost)


@pytest.mark.parametrize("times", [[0, 1, 3, 4], [0, 1, 2, 4, 5, 6], [0, 1, 1.5, 2, 3], [*range(9), *range(9, 40, 2)]])
def test_frames_that_are_missing_or_doubled_are_unevenly_apart_in_coarse_ticks(
    times: list[float], workspace: Workspace, make_video: MakeVideo, clips: Path
) -> None:
    make_video("clips/train/run/slow.mkv", count=len(times), fps=240, times=[round(2 * time) for time in times])
    assert kinds(check(workspace, clips)) == [("variable-rate", "slow.mkv")]


def test_a_rate_that_changes_by_one_tick_is_variable(workspace: Workspace, make_video: MakeVideo, clips: Path) -> None:
    times = [*range(0, 320, 8), *range(320, 680, 9)]
    make_video("clips/train/run/slow.mkv", count=len(times), fps=1000, times=times)
    checked = check(workspace, clips)
    assert kinds(checked) == [("variable-rate", "slow.mkv")]
    assert "8 to 9 ms" in checked.findings[0].cause


def test_decoding_sees_what_packets_hide(workspace: Workspace, make_video: MakeVideo, clips: Path) -> None:
    file = make_video("clips/train/run/hurt.mp4", count=60, size=(96, 128), options={"bf": "0"}, gop=10)
    data = bytearray(file.read_bytes())
    begin = data.index(b"mdat")
    size = int.from_bytes(data[begin - 4 : begin], "big")
    data[begin + size // 2 : begin + size * 3 // 4] = b"\x55" * (size * 3 // 4 - size // 2)
    file.write_bytes(bytes(data))
    assert check(workspace, clips).ok
    decoded = check(workspace, clips, decode=True)
    assert {kind for kind, name in kinds(decoded) if name == "hurt.mp4"} & {"unreadable", "damaged"}


def test_frames_that_come_too_early_are_no_damage(workspace: Workspace, clips: Path) -> None:
    write_disordered(clips / "train" / "run" / "early.mkv")
    checked = check(workspace, clips, decode=True)
    assert checked.ok
    assert kinds(checked) == []


def test_what_training_refuses_is_a_finding(workspace: Workspace, make_video: MakeVideo, tmp_path: Path) -> None:
    make_video("single/run/a.mp4")
    checked = check(workspace, tmp_path / "single")
    assert checked.findings[0].kind == "layout"
    assert "no class has two videos" in checked.findings[0].cause
    assert not checked.ok


def test_a_class_folder_without_a_video_is_a_finding_beside_the_others(workspace: Workspace, clips: Path) -> None:
    folder = clips if not (clips / "train").is_dir() else clips / "train"
    (folder / "empty").mkdir()
    first = min(folder.rglob("*.mp4"))
    first.write_bytes(b"x")
    checked = check(workspace, clips)
    kinds = {finding.kind: finding for finding in checked.findings}
    assert not checked.ok
    assert kinds["layout"].cause.endswith("found none; put some there, or remove the folder")
    assert kinds.keys() >= {"layout", "unreadable"}
    with pytest.raises(InvalidFile, match=r"empty: expected videos of class 'empty'"):
        open_splits(workspace, str(clips))


# Findings about the classes of a listing, which here has one.
OF_CLASSES = ("empty-class", "one-class")


def listing(*videos: SplitVideo) -> DataListing:
    return DataListing("x", Path(), videos, ("a",), own_split=True)


def listed(name: str, split: str, **more: object) -> SplitVideo:
    return SplitVideo(ListedVideo(Path(name), "a", **more), split)  # type: ignore[arg-type]


def test_activities_of_the_same_seconds_are_no_conflict(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "charades").mkdir()
    root = datasets.charades(tmp_path / "charades")
    for table in root.glob("*.csv"):
        table.write_text(table.read_text().replace("c001 0.10 0.70", "c001 0.00 0.90"))
    checked = check(workspace, f"charades:{root}?per=action")
    assert (checked.findings, len(checked.clean)) == ((), 6)


def test_the_order_of_several_classes_makes_no_conflict() -> None:
    labels = (("run", "wave"), ("wave", "run"), ("wave",))
    videos = [SplitVideo(ListedVideo(Path(f"{i}"), label), "train") for i, label in enumerate(labels)]
    same = {video.source: Content("k", "the same bytes as") for video in videos}
    facts = {video.source: PROBED for video in videos}
    found = findings_of(listing(*videos[:2]), facts, same).findings
    assert [(one.kind, one.video) for one in found if one.kind not in OF_CLASSES] == [("duplicate", "1")]
    found = findings_of(listing(*videos), facts, same).findings
    causes = [one.cause.partition("another label: ")[2] for one in found if one.kind == "conflict"]
    assert causes == ["run, wave and wave", "wave, run and wave", "wave and run, wave"]


def test_a_group_on_both_sides_is_a_leak_of_all_its_training_videos() -> None:
    videos = listing(listed("a", "train", group="p1"), listed("b", "train"), listed("c", "val", group="p1", row="l:3"))
    found = findings_of(videos, {video.source: PROBED for video in videos.videos}, {})
    assert [(one.kind, one.video) for one in found.findings if one.kind not in OF_CLASSES] == [("group-leak", "a")]
    assert [video.name for video in found.clean] == ["b", "c"]


@pytest.mark.parametrize(
    ("one", "other", "leaks"),
    [
        (None, None, True),
        (None, Part(Fraction(1), Fraction(2)), True),
        (Part(Fraction(0), Fraction(1)), Part(Fraction(1), Fraction(2)), False),
        (Part(Fraction(0), Fraction(3, 2)), Part(Fraction(1), None), True),
        (Part(keyframe_s=Fraction(2)), Part(keyframe_s=Fraction(2)), True),
        (Part(keyframe_s=Fraction(2)), Part(keyframe_s=Fraction(3)), False),
    ],
)
def test_parts_of_one_file_leak_where_they_overlap(one: Part | None, other: Part | None, leaks: bool) -> None:
    videos = listing(listed("a", "train", part=one), listed("a", "val", part=other))
    found = findings_of(videos, {FileSource(Path("a")): PROBED}, {})
    assert [finding.kind for finding in found.findings if finding.kind not in OF_CLASSES] == ["leak"] * leaks


@pytest.mark.parametrize(
    ("part", "cause"),
    [
        (Part(Fraction(20), Fraction(21)), "the label begins at 20 s, the video has 10.00 s"),
        (Part(keyframe_s=Fraction(30)), "the label begins at 30 s, the video has 10.00 s"),
        (
            Part(keyframe_s=Fraction(2), cut_s=Fraction(9)),
            "the label is of a cut of at most 9 s, the video has 10.00 s "
            "(whole films: option offset=0; longer cuts: offset=900)",
        ),
        (Part(keyframe_s=Fraction(2), cut_s=Fraction(10)), ""),
        (Part(Fraction(10), Fraction(11)), ""),  # at the end: its last frame
        (Part(Fraction(0), Fraction(90)), ""),
        (None, ""),
    ],
)
def test_a_label_behind_the_end_of_its_video_fails(part: Part | None, cause: str) -> None:
    videos = listing(listed("a", "train", part=part), listed("b", "train"))
    found = findings_of(videos, {video.source: PROBED for video in videos.videos}, {})
    assert [one.cause for one in found.findings if (one.kind, one.failing, one.row) == ("outside", True, "")] == (
        [cause] if cause else []
    )
    assert [video.listed.path.name for video in found.clean] == (["b"] if cause else ["a", "b"])


def test_what_lies_behind_the_end_of_a_video_is_neither_leak_nor_duplicate() -> None:
    part = Part(Fraction(20), Fraction(21))
    videos = listing(*(listed("a", split, part=part) for split in ("train", "train", "val")), listed("a", "train"))
    found = findings_of(videos, {FileSource(Path("a")): PROBED}, {})
    assert [one.kind for one in found.findings if one.kind not in OF_CLASSES] == ["outside"] * 3
    assert [(video.split, video.listed.part) for video in found.clean] == [("train", None)]


def test_a_check_fails_where_a_label_lies_behind_the_end(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    rows = []
    for index, (label, start) in enumerate((("right", 10), ("left", 0), ("right", 0), ("left", 0))):
        make_video(f"{index}.mp4", count=20 + index, fps=10)
        rows.append(f"{index}.mp4,{label},{start},{start + 1},{'val' if index > 1 else 'train'}")
    (tmp_path / "table.csv").write_text("\n".join(("path,label,start_s,end_s,split", *rows)), encoding="utf-8")
    for _ in range(2):  # the second time from what was kept
        checked = check(workspace, f"table:{tmp_path / 'table.csv'}")
        assert not checked.ok
        (finding,) = [one for one in checked.findings if one.failing]
        assert (finding.kind, finding.cause) == ("outside", "the label begins at 10 s, the video has 2.00 s")
        assert finding.row.endswith(":2")
        assert len(checked.clean) == 3


def test_parts_of_one_file_on_one_side_are_no_duplicates() -> None:
    parts = [Part(Fraction(i), Fraction(i + 2)) for i in range(3)]
    videos = listing(*(listed("a", "train", part=part) for part in parts))
    same = {FileSource(Path("a")): Content("k", "the same bytes as")}
    found = findings_of(videos, {FileSource(Path("a")): PROBED}, same)
    assert [one.kind for one in found.findings if one.kind not in OF_CLASSES] == []


def test_the_kinds_of_findings_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "own-videos.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind}` |" not in page] == []


def test_facts_are_kept_until_the_file_changes(
    workspace: Workspace, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(workspace, clips)
    looked_at: list[Path] = []

    def find(task: FactTask) -> object:
        looked_at.append(task.path)
        return find_facts(task)

    monkeypatch.setattr("hwbench.data.checking.find_facts", find)
    check(workspace, clips)
    assert looked_at == []
    changed = clips / "train" / "run" / "train.mp4"
    os.utime(changed, ns=(1, 1))
    check(workspace, clips)
    assert set(looked_at) == {changed}


def test_a_name_that_is_not_utf8_is_checked_and_kept_and_stands_in_no_list(workspace: Workspace, clips: Path) -> None:
    name = os.fsdecode(b"v\xe9.mp4")
    (clips / "train/run/train.mp4").rename(clips / "train/run" / name)
    broken = clips / "val/run" / name
    broken.write_bytes(b"")
    first = check(workspace, clips)
    assert kinds(first) == [("unreadable", name)]
    assert printable(first.findings[0].video).endswith(r"val/run/v\xe9.mp4")
    source = FileSource(clips / "train/run" / name)
    with FactsCache(workspace.state / "cache" / FACTS) as cache:
        assert cache.get(FactTask("probe", source, source.path)) == first.facts[source]
    with pytest.raises(UsageError, match=r"a line of a list does not hold the name of '.*v.udce9.mp4'"):
        check_target(open_listing(workspace, str(clips)), clips / "lists")
    with pytest.raises(UsageError, match="a name that stands in none"):
        check_target(listing(listed(str(source.path), "train", part=Part(Fraction(1)))), clips / "tables")


def test_a_damaged_cache_is_made_again(workspace: Workspace, clips: Path) -> None:
    check(workspace, clips)
    file = workspace.state / "cache" / "videos" / "facts.sqlite"
    file.write_bytes(b"not a database" * 500)
    assert check(workspace, clips).ok
    with FactsCache(file) as cache:
        source = FileSource(clips / "train" / "run" / "train.mp4")
        assert cache.get(FactTask("probe", source, source.path))


def test_a_cache_that_another_process_holds_is_kept(
    workspace: Workspace, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(workspace, clips)
    file = workspace.state / "cache" / "videos" / "facts.sqlite"
    kept = file.read_bytes()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, timeout, **more: connect(path, timeout=0.01, **more))
    with contextlib.closing(connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(WorkspaceError, match=r"facts\.sqlite: database is locked"):
            check(workspace, clips)
    assert file.read_bytes() == kept
    with FactsCache(file) as cache, contextlib.closing(connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        source = FileSource(clips / "train" / "run" / "train.mp4")
        task = FactTask("probe", source, source.path)
        cache.put(task, {"lost": 1})
        assert cache.get(task) is None
        other.execute("ROLLBACK")
        found = cache.get(task)
        assert found is not None
        assert "lost" not in found


def test_the_clean_lists_are_read_as_data(workspace: Workspace, clips: Path, tmp_path: Path) -> None:
    (clips / "train" / "run" / "bad.mp4").write_text("no video")
    checked = check(workspace, clips)
    files = write_lists(checked.clean, tmp_path / "clean")
    assert [file.name for file in files] == ["train.txt", "val.txt"]
    splits = read_splits(tmp_path / "clean")
    assert (len(splits.train), len(splits.val), splits.train.classes) == (2, 2, ("jump", "run"))
    assert all(path.is_file() for path in splits.train.paths)


@pytest.mark.parametrize(
    ("typed", "other"),
    [
        ("clean.txt", "clean"),
        ("my lists/my clean.txt", "'my lists/my clean'"),
        ("clips.txt", "clips-clean"),
        ("notes.txt", "notes-clean"),
    ],
)
def test_the_folder_that_is_advised_is_beside_the_list_and_outside_the_data_set(
    workspace: Workspace, clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, other: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").write_text("a file")
    request = hwbench.CheckDataRequest(data="clips", out=Path(typed), jobs=0)
    with pytest.raises(UsageError) as error:
        hwbench.check_data(request, workspace=workspace)
    assert str(error.value).endswith(f"; name a folder: --out {other}")
    out = Path(shlex.split(other)[0])
    assert hwbench.check_data(replace(request, out=out), workspace=workspace).lists


def test_lists_do_not_come_into_the_folder_of_the_data_set(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    """Which would be read from them then, without what is not fit."""
    for index in range(4):
        make_video(f"my clips/run/{index}.mp4", count=10 + index)
    clips = tmp_path / "my clips"
    before = open_listing(workspace, str(clips))
    request = hwbench.CheckDataRequest(data=str(clips), out=clips, jobs=0)
    for out in (clips, clips / "run" / ".."):
        with pytest.raises(
            UsageError, match=r"is the folder of the data set, .* name another one: --out '/.*clips-clean'$"
        ):
            hwbench.check_data(replace(request, out=out), workspace=workspace)
    assert open_listing(workspace, str(clips)) == before
    result = hwbench.check_data(replace(request, out=clips.with_name("my clips-clean")), workspace=workspace)
    assert len(result.lists) == 2


@pytest.mark.parametrize(
    ("folders", "typed", "said"),
    [
        ("{}", "clips/clean", "is inside .*clips, whose folders are classes; .*: --out '?.*clips-clean'?$"),
        ("{}", "clips/new/deep/all.csv", "is inside .*clips, whose folders are classes; .*clips-clean/all.csv'?$"),
        ("{}", "clips/.lists", ""),
        ("{}", "clips/run/lists", ""),
        ("{}", "clips/all.txt", ""),
        ("train/{} val/{}", "clips/train/clean", "is inside .*train, whose folders are classes; .*clips-clean'?$"),
        ("train/{} val/{}", "clips/val/clean", "is inside .*val, whose folders are classes; name a folder outside"),
        ("train/{} val/{}", "clips/validation", "is inside .*clips, whose folders are sides; name a folder outside"),
        ("train/{} val/{}", "clips/clean", ""),
        ("train_2/{} val_2/{}", "clips/clean", "is inside .*clips, whose folders are sides; name a folder outside"),
    ],
)
def test_lists_make_no_class_and_no_side_of_the_data_set(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, folders: str, typed: str, said: str
) -> None:
    for number, side in enumerate(folders.split()):
        for index, label in enumerate(("run", "jump") * 2):
            make_video(f"clips/{side.format(label)}/{number}{index}.mp4", count=10 + 4 * number + index)
    clips, before = tmp_path / "clips", sorted(tmp_path.rglob("*"))
    was = open_listing(workspace, str(clips))
    request = hwbench.CheckDataRequest(data=str(clips), out=tmp_path / typed, jobs=0)
    if not said:
        hwbench.check_data(request, workspace=workspace)
        assert open_listing(workspace, str(clips)) == was
        return
    with pytest.raises(UsageError, match=said) as error:
        hwbench.check_data(request, workspace=workspace)
    assert len(str(error.value).splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


class Hearing(hwbench.Listener):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


@pytest.mark.parametrize(("order", "told"), [(("jump", "run"), False), (("run", "jump"), True)])
def test_lists_that_number_classes_in_another_way_are_told(
    workspace: Workspace, clips: Path, tmp_path: Path, order: tuple[str, ...], told: bool
) -> None:
    (clips / "prepared.json").write_text(json.dumps({"class_folders": order}))
    heard, out = Hearing(), tmp_path / "clean"
    hwbench.check_data(hwbench.CheckDataRequest(data=str(clips), out=out, jobs=0), heard, workspace=workspace)
    assert (read_splits(out).train.classes == read_splits(clips).train.classes) == (not told)
    note = (
        f"{out}: lists number the classes that have videos, names alphabetically, and {clips} numbers them in "
        f"another way: checkpoints trained on one do not fit the other. To keep the numbers, train on {clips} "
        "with --on-error skip"
    )
    assert heard.lines == [note] * told


@pytest.mark.parametrize("side", ["train", "val"])
def test_what_the_check_takes_from_lists_is_told(
    workspace: Workspace, make_video: MakeVideo, clips: Path, tmp_path: Path, side: str
) -> None:
    """No video of the first class is fit, to train on or anywhere."""
    for split in ("train", "val"):
        make_video(f"clips/{split}/walk/{split}.mp4", count=32 + (split == "val"))
    (clips / "train" / "jump" / "train.mp4").write_text("no video")
    if side == "val":
        (clips / "val" / "jump" / "val.mp4").write_text("no video")
    heard, out = Hearing(), tmp_path / "clean"
    request = hwbench.CheckDataRequest(data=str(clips), out=out, jobs=0)
    result = hwbench.check_data(request, heard, workspace=workspace)
    splits = read_splits(out)
    assert (splits.train.classes, splits.val.labels) == (("run", "walk"), (0, 1))
    assert result.clean == {"train": 2, "val": 2}
    left_out = (
        f"{out}: val.txt leaves out 1 of its videos: no video to train on is fit of 'jump', and two lists have no "
        "classes but those to train on"
    )
    assert heard.lines[:-1] == [left_out] * (side == "train")
    assert heard.lines[-1].startswith(f"{out}: lists number the classes that have videos, names alphabetically")


def test_one_list_is_written_where_the_split_is_drawn(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    for index in range(4):
        make_video(f"clips/two words/#{index} a.mp4", count=10 + index)
    checked = check(workspace, tmp_path / "clips")
    check_target(checked.listing, tmp_path / "clips" / "two words" / "clean.txt")
    write_lists(checked.clean, tmp_path / "clips" / "two words" / "clean.txt")
    splits = read_splits(tmp_path / "clips" / "two words" / "clean.txt")
    assert (len(splits.train) + len(splits.val), splits.train.classes) == (4, ("two_words",))
    assert all(path.is_file() for path in splits.train.paths)


@pytest.mark.parametrize("ending", [".txt", ".csv"])
def test_groups_are_kept_together_by_a_split_and_by_no_list(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, ending: str
) -> None:
    rows = ["path,label,group\n"]
    for index in range(12):
        make_video(f"clips/{index}.mp4", count=10 + index)
        rows.append(f"{index}.mp4,{('run', 'jump')[index % 2]},person-{index // 4}\n")
    (tmp_path / "clips" / "all.csv").write_text("".join(rows))
    data = f"table:{tmp_path / 'clips' / 'all.csv'}"
    request = hwbench.CheckDataRequest(data=data, out=tmp_path / f"clean{ending}", jobs=0)
    with pytest.raises(UsageError, match=r"a split, which a list cannot; name a folder .*: --out .*/clean$"):
        hwbench.check_data(request, workspace=workspace)
    hwbench.check_data(replace(request, out=tmp_path / "clean"), workspace=workspace)
    splits = read_splits(tmp_path / "clean")
    persons = [{int(path.stem) // 4 for path in side.paths} for side in (splits.train, splits.val)]
    assert persons[0] | persons[1] == {0, 1, 2}
    assert not persons[0] & persons[1]


def test_a_list_cannot_hold_boxes_or_several_labels() -> None:
    for more in (
        {"part": Part(Fraction(1), keyframe_s=Fraction(2))},
        {"part": Part(Fraction(1, 3))},
        {"part": Part(Fraction(1)), "stream": 1},
        {"label": ("a", "b")},
    ):
        video = SplitVideo(ListedVideo(Path("a"), **{"label": "a", **more}), "train")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="leave out --out"):
            check_target(listing(video), Path("clean"))


@pytest.mark.parametrize("own_split", [True, False])
def test_clean_tables_of_parts_are_read_as_data(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, own_split: bool
) -> None:
    for name, count in (("a, b", 50), ("c", 60)):
        make_video(f"clips/{name}.mp4", count=count)
    (tmp_path / "clips" / "bad.mp4").write_text("no video")
    good = [f'"a, b.mp4",{label},{start},{end},' for label, start, end in (("run fast", 0, 0.5), ("jump", "0.5", ""))]
    good += ["c.mp4,run fast,,1.25,p1", "c.mp4,jump,1.25,1.50,p1"]
    sides = ["train", "train", "val", "val"] if own_split else [""] * 4
    rows = [f"{row},{side}\n" for row, side in zip((*good, "bad.mp4,jump,0,1,"), (*sides, sides[0]))]
    (tmp_path / "clips" / "all.csv").write_text("path,label,start_s,end_s,group,split\n" + "".join(rows))
    data, out = f"table:{tmp_path / 'clips' / 'all.csv'}", tmp_path / ("clean" if own_split else "clean.csv")
    request = hwbench.CheckDataRequest(data=data, out=out, jobs=0)
    result = hwbench.check_data(request, workspace=workspace)
    assert [file.name for file in result.lists] == (["train.csv", "val.csv"] if own_split else ["clean.csv"])

    def kept(data: str) -> set[tuple[object, ...]]:
        found = open_listing(workspace, data)
        listed = [(video.listed, video.split if own_split else "") for video in found.videos]
        return {(one.path.resolve(), one.label, one.part, one.group, side) for one, side in listed}

    assert kept(f"table:{out}") == {one for one in kept(data) if one[0] != tmp_path.resolve() / "clips" / "bad.mp4"}
    if not own_split:
        with pytest.raises(UsageError, match=r"parts of videos, which stand in a table: --out .*/more\.csv$"):
            check_target(open_listing(workspace, data), tmp_path / "more.txt")
        with pytest.raises(UsageError, match=r"which stand in a table: --out .*/clips/all-clean\.csv$"):
            check_target(open_listing(workspace, data), tmp_path / "clips" / "all.txt")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (("1/a.mp4", "2/a.mp4"), "classes that are numbers begin with 0; those of x are 1, 2: leave out --out"),
        (("200000/a.mp4", "3/a.mp4"), "expected whole numbers from 0 as labels, got 200000: leave out --out"),
        (
            ("10/a.mp4", "2/a.mp4", "B class/a.mp4"),
            "labels are either all whole numbers or all names; x has '10' and 'B_class': leave out --out, and train on "
            "x with --on-error skip, or rename the classes that are numbers, such as c10 for 10",
        ),
        (("open door/a.mp4", "open_door/b.mp4"), "'open door' and 'open_door' are the same in a list"),
        (("run/a\n.mp4", "run/b.mp4"), "a line of a list does not hold the name of"),
        (("run/a\u2028b.mp4",), "a line of a list does not hold the name of"),
        (("run/a\tb.mp4",), "a line of a list does not hold the name of"),
        (("0/a.mp4", "1/a b.mp4", "2/#c.mp4"), ""),
        (("walk/a.mp4", "run fast/b.mp4"), ""),
    ],
)
def test_a_list_that_would_be_another_data_set_is_refused(files: tuple[str, ...], said: str) -> None:
    videos = tuple(SplitVideo(ListedVideo(Path(file), file.partition("/")[0]), "train") for file in files)
    classes = tuple(sorted({video.listed.labels[0] for video in videos}))
    found = DataListing("x", Path(), videos, classes, own_split=True)
    if not said:
        check_target(found, Path("clean"))
        return
    with pytest.raises(UsageError, match="leave out --out") as error:
        check_target(found, Path("clean"))
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("labels", "refused"), [(("run", "jump"), True), (("0", "1"), True), (("1", "0"), False)])
def test_lists_that_training_would_refuse_are_not_written(labels: tuple[str, str], refused: bool) -> None:
    videos = tuple(
        SplitVideo(ListedVideo(Path(f"{one}.mp4"), one), side) for one, side in zip(labels, ("train", "val"))
    )
    found = DataListing("x", Path(), videos, tuple(sorted(labels)), own_split=True)
    if not refused:
        check_target(found, Path("clean"))
        return
    with pytest.raises(UsageError, match=f"class '{labels[1]}' has videos for validation and none for training"):
        check_target(found, Path("clean"))


# Work for the pool: of a module, as it must be.
def work_on(task: str) -> str:
    if task == "hang":
        time.sleep(600)
    if task == "crash":
        os.kill(os.getpid(), 11)
    if task == "unreadable":
        raise VideoError("unreadable: empty")
    if task == "full":
        raise HwbenchError("no room")
    if task == "strange":
        raise KeyError("x")
    return task.upper()


def test_a_hang_and_a_crash_cost_their_files_alone() -> None:
    tasks = ["a", "hang", "b", "crash", "unreadable", "strange", "c"]
    answers = dict(FilePool(work_on, 2, time_limit_s=4).map(tasks))
    assert {task: answers[task] for task in "abc"} == {"a": "A", "b": "B", "c": "C"}
    assert answers["hang"] == FileFailure("no result after 4 s", lost=True)
    assert answers["crash"] == FileFailure("its decoder crashed (SIGSEGV)", lost=True)
    assert answers["unreadable"] == FileFailure("unreadable: empty")
    assert answers["strange"] == FileFailure("KeyError: 'x'")


def test_an_error_that_is_about_no_file_ends_everything() -> None:
    with pytest.raises(HwbenchError, match="no room"):
        list(FilePool(work_on, 2, time_limit_s=60).map(["full", "a"]))
    with pytest.raises(HwbenchError, match="no room"):
        list(FilePool(work_on, 0, time_limit_s=60).map(["full", "a"]))


def test_an_error_that_nobody_foresaw_costs_its_file_alone_without_processes_too() -> None:
    answers = dict(FilePool(work_on, 0, time_limit_s=60).map(["unreadable", "strange", "a"]))
    assert answers == {
        "unreadable": FileFailure("unreadable: empty"), "strange": FileFailure("KeyError: 'x'"), "a": "A"
    }  # fmt: skip


def test_a_process_that_does_not_start_may_have_a_slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pool, "_START_S", 0)
    said = r"the machine may be busy: run the command again\. A script of your own .*, or with jobs=0$"
    with pytest.raises(HwbenchError, match=said):
        list(FilePool(work_on, 1, time_limit_s=60).map(["a"]))


@dataclass(frozen=True)
class HangingSource:
    """A source whose decoder hangs."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def identity(self, root: Path) -> str:
        return "hangs"

    def open(self, info: VideoInfo | None = None) -> object:
        time.sleep(600)
        raise AssertionError


def test_a_video_that_hangs_is_unreadable_and_is_tried_again(workspace: Workspace, clips: Path) -> None:
    whole = open_listing(workspace, str(clips))
    file = clips / "train" / "run" / "train.mp4"
    hanging = SplitVideo(ListedVideo(file, "run", source=HangingSource(file)), "train")  # type: ignore[arg-type]
    videos = DataListing(whole.data, whole.root, (hanging, *whole.videos[1:]), whole.classes, own_split=True)
    checked = check_listing(workspace, videos, jobs=2, time_limit_s=5)
    (finding,) = [one for one in checked.findings if one.failing]
    assert (finding.kind, finding.cause) == ("unreadable", "no result after 5 s")
    with FactsCache(workspace.state / "cache" / "videos" / "facts.sqlite") as cache:
        assert cache.get(FactTask("probe", hanging.source, file)) is None


@pytest.mark.parametrize("kind", ["probe", "decode", "bytes"])
def test_what_the_machine_could_not_read_is_read_again(
    kind: str, workspace: Workspace, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = clips / "train" / "run" / "train.mp4"
    shutil.copy(train, train.with_name("copy.mp4"))

    def find(task: FactTask) -> Facts:
        with no_more_open_files() if (task.kind, task.path) == (kind, train) else contextlib.nullcontext():
            return find_facts(task)

    with monkeypatch.context() as patch:
        patch.setattr("hwbench.data.checking.find_facts", find)
        checked = check(workspace, clips, decode=kind == "decode")
    unreadable = [one.cause for one in checked.findings if one.kind == "unreadable"]
    assert unreadable == ([] if kind == "bytes" else ["Too many open files"])
    checked = check(workspace, clips, decode=kind == "decode")
    assert (kinds(checked), len(checked.clean)) == ([("duplicate", "train.mp4")], 4)
    assert "the same bytes as" in checked.findings[0].cause


def test_errors_that_an_earlier_version_kept_are_not_believed(workspace: Workspace, clips: Path) -> None:
    check(workspace, clips)
    with contextlib.closing(sqlite3.connect(workspace.state / "cache" / "videos" / "facts.sqlite")) as kept, kept:
        kept.execute("""UPDATE facts SET facts = '{"error": "Permission denied (damaged, or not a video)"}'""")
    assert check(workspace, clips).ok


def test_a_long_path_of_temporary_files_is_none_of_sockets(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    program = """
import os, tempfile
from hwbench.data.file_pool import FilePool
print(list(FilePool(os.path.basename, 1, time_limit_s=60).map(["a/b"])))
print(tempfile.gettempdir())
"""
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert (done.stdout, done.stderr) == (f"[('a/b', 'b')]\n{folder}\n", "")
    assert list(folder.iterdir()) == []
