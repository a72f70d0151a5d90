"""``hwbench data`` on the command line: what it prints, its statuses, wrong input, and ``kill -9`` in the middle."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from devices.waiting import heeding
from documented_files import undocumented

from hwbench.cli.main import main
from hwbench.data.encoding import write_video
from hwbench.data.videos import read_splits

REAL = Path(__file__).resolve().parents[3] / "shared" / "video"


def film(path: Path, count: int = 12, size: tuple[int, int] = (48, 64), seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shades = np.random.default_rng(seed).integers(0, 256, (1, 1, 1, 3))
    frames = np.linspace(0, 200, count)[:, None, None, None] * np.ones((1, *size, 3)) * 0.7 + 0.3 * shades
    write_video(path, frames.astype(np.uint8), fps=12)


@pytest.fixture
def clips(workspace):
    """Two classes of three videos, in the folder of the workspace."""
    for label in ("run", "jump"):
        for index in range(3):
            film(Path("clips", label, f"{index}.mp4"), 12 + index, seed=len(label) + index)
    return Path("clips")


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["data", *map(str, arguments)])
    out, err = capsys.readouterr()
    return end.value.code or 0, out, err


def test_list_names_readers_synthetic_sets_and_what_was_prepared(clips, capsys):
    assert run(capsys, "prepare", clips, "prepared", "--jobs", "0")[0] == 0
    for words in ((), ("list",)):
        status, out, err = run(capsys, *words)
        assert (status, err) == (0, "")
        assert "folders:PATH" in out
        assert "A folder of videos for each class" in out
    status, out, _ = run(capsys, "list", "--json")
    listed = {one["name"]: one for one in json.loads(out)["data"]}
    assert listed["lists:PATH"]["kind"] == "reader"
    assert listed["synthetic"]["kind"] == "synthetic"
    prepared = listed[str(Path("prepared").absolute())]
    assert "4 train, 2 val" in prepared["description"]
    assert undocumented(Path()) == []


def test_check_groups_what_is_wrong_and_writes_a_clean_list(clips, capsys):
    status, out, _ = run(capsys, "check", clips, "--jobs", "0")
    assert status == 0
    assert "unreadable" not in out
    (clips / "run" / "bad.mp4").write_text("no video")
    status, out, err = run(capsys, "check", clips, "--jobs", "0", "--out", "clean")
    assert status == 5
    assert "unreadable (1): a video that cannot be read" in out
    assert "clips/run/bad.mp4" in out
    assert "wrote clean/train.txt" in err
    splits = read_splits(Path("clean"))
    assert len(splits.train) + len(splits.val) == 6
    status, out, _ = run(capsys, "check", "clean", "--jobs", "0", "--json")
    values = json.loads(out)
    assert (status, values["ok"]) == (0, True)
    assert sum(values["videos"].values()) == 6
    before = Path("clean", "train.txt").read_text()
    Path("clean", "all.list.txt").write_text(before)
    for place, file in (("clean", "clean/train.txt"), ("clean/all.list.txt", "clean/all.list.txt")):
        status, _, err = run(capsys, "check", place, "--jobs", "0", "--out", place)
        assert status == 2
        assert f"--out: {file} is where the data set itself says" in err
        assert Path(file).read_text() == before


def test_check_with_processes_says_the_same(clips, capsys):
    (clips / "run" / "bad.mp4").write_text("no video")
    printed = [json.loads(run(capsys, "check", clips, "--jobs", jobs, "--json")[1]) for jobs in ("2", "0")]
    assert printed[0]["findings"] == printed[1]["findings"]
    assert printed[0]["counts"]["unreadable"] == 1


@pytest.mark.skipif(not REAL.is_dir(), reason="needs real clips in ../shared/video")
def test_check_of_real_clips(workspace, capsys):
    for index, file in enumerate(sorted(REAL.glob("*.[ma]*[4iv]"))):
        target = Path("real", "ab"[index % 2], file.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    status, out, _ = run(capsys, "check", "real", "--decode", "--jobs", "0", "--json")
    values = json.loads(out)
    assert (status, values["ok"]) == (0, True), values["findings"]
    assert {"h264", "hevc", "av1", "mpeg4"} <= set(values["codecs"])


def test_prepare_makes_no_class_of_the_data_that_it_reads(clips, capsys):
    before = sorted(clips.rglob("*"))
    for out in (clips / "small", clips / "run" / "small"):
        status, _, err = run(capsys, "prepare", clips, out, "--jobs", "0")
        assert (status, f"{out} is inside {clips}, whose folders are classes" in err) == (2, True), err
    assert sorted(clips.rglob("*")) == before


def test_prepare_makes_no_class_of_folders_of_images_and_of_deeper_ones(clips, capsys):
    assert run(capsys, "prepare", clips, "images", "--frames", "--short-side", "32", "--jobs", "0")[0] == 0
    for name in ("prepared.json", ".prepared.jsonl"):
        Path("images", name).unlink()
    deep = clips / "run" / "monday"
    deep.mkdir()
    for video in clips.rglob("*.mp4"):
        video.rename(deep / video.name) if video.parent.name == "run" else None
    for source, out, root in (
        ("images", "images/train/run/small", "images/train"),
        ("images", "images/train/small", "images/train"),
        (clips, clips / "run" / "small", clips),
    ):
        status, _, err = run(capsys, "prepare", source, out, "--frames", "--jobs", "0")
        assert (status, f"{out} is inside {root}, whose folders are classes" in err) == (2, True), err
        assert not Path(out).exists()


def test_prepare_says_what_it_used_and_what_it_left_out(clips, capsys):
    (clips / "run" / "bad.mp4").write_text("no video")
    status, out, err = run(capsys, "prepare", clips, "out", "--short-side", "32", "--jobs", "0", "--json")
    values = json.loads(out)
    assert (status, values["encoder"], values["form"]) == (5, "mpeg4", "videos")
    assert values["failed"][0]["video"] == "clips/run/bad.mp4"
    assert "left out: clips/run/bad.mp4" in err
    (clips / "run" / "bad.mp4").unlink()
    status, out, err = run(capsys, "prepare", clips, "out", "--short-side", "32", "--jobs", "0")
    assert status == 0
    assert "hwbench train ARCHITECTURE --data out" in err
    assert len(read_splits(Path("out")).train) == 4


@pytest.mark.parametrize(("flag", "files"), [("--frames", "*/*/*/img_00012.jpg"), ("--shards", "*.tar")])
def test_prepare_writes_frames_and_shards(clips, capsys, flag, files):
    status, out, err = run(capsys, "prepare", clips, "out", flag, "--short-side", "32", "--jobs", "0", "--json")
    assert (status, json.loads(out)["form"]) == (0, flag.removeprefix("--"))
    assert list(Path("out").glob(files))
    assert "next: hwbench train ARCHITECTURE --data out" in err
    if flag == "--frames":
        images = sum(image.stat().st_size for image in Path("out").glob(files.replace("00012", "*")))
        out = run(capsys, "prepare", "out", "again", flag, "--short-side", "32", "--jobs", "0", "--json")[1]
        assert json.loads(out)["original_bytes"] == images > 0
    status, out, _ = run(capsys, "check", "out", "--jobs", "0", "--json")
    values, original = json.loads(out), json.loads(run(capsys, "check", clips, "--jobs", "0", "--json")[1])
    assert (status, values["videos"]) == (0, {"train": 4, "val": 2})
    assert values["duration_s"] == pytest.approx(original["duration_s"], abs=0.01)


def test_bench_prints_rates_and_shares(clips, capsys):
    how = ("--seconds", "0.5", "--frames", "4", "--size", "32", "--workers", "0")
    status, out, _ = run(capsys, "bench", clips, *how)
    assert status == 0
    assert "pyav" in out
    assert "seek and decode" in out
    status, out, _ = run(capsys, "bench", clips, *how, "--json")
    values = json.loads(out)
    assert values["rates"][0]["clips_per_s"] > 0
    assert sum(values["stages"].values()) == pytest.approx(1, abs=0.001)


def test_bench_times_the_decoders_that_are_named(clips, capsys, monkeypatch):
    how = ("--seconds", "0.5", "--frames", "4", "--size", "32", "--workers", "0", "--json")
    monkeypatch.setattr("hwbench.data.decoders.torchcodec.is_installed", lambda: True)
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
    status, out, _ = run(capsys, "bench", clips, *how)
    rates = json.loads(out)["rates"]
    assert (status, [one["decoder"] for one in rates]) == (0, ["pyav", "torchcodec"])
    assert "does not load" in rates[1]["fault"]
    status, _, err = run(capsys, "bench", clips, *how, "--decoder", "torchcodec")
    assert (status, "apt-get install ffmpeg" in err) == (2, True)
    status, _, err = run(capsys, "bench", clips, *how, "--decoder", "torchcode")
    assert (status, "did you mean 'torchcodec'" in err) == (2, True)


def test_show_writes_a_page_that_loads_nothing(clips, capsys):
    status, out, err = run(capsys, "show", clips, "--size", "32", "--per-class", "1", "--json")
    values = json.loads(out)
    assert (status, values["classes"], values["clip"]) == (0, 2, [4, 32, 32])
    assert "sheet.html" in err
    assert "<script" not in Path("sheet.html").read_text()
    status, out, _ = run(capsys, "show", clips, "--architecture", "zoo:x3d-xs", "--per-class", "1", "--json")
    assert json.loads(out)["clip"] == [4, 160, 160]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", "nowhere"), "no data at nowhere"),
        (("check", "nosuch:clips"), "unknown reader"),
        (("check", "folders:clips?fast=1"), "no option 'fast'"),
        (("check", "clips", "--time-limit", "60"), "has no unit"),
        (("check", "clips/run/0.mp4"), "expected a text file"),
        (("check", "split", "--out", "clean.txt"), "name a folder: --out clean"),
        (("prepare", "clips", "clips"), "was not made by hwbench data prepare"),
        (("prepare", "clips", "out", "--frames", "--shards"), "leave out one of them"),
        (("prepare", "clips", "out", "--shard-videos", "2"), "--shard-videos goes with --shards"),
        (("prepare", "clips", "out", "--frames", "--shard-videos", "2"), "--shard-videos goes with --shards"),
        (("prepare", "clips", "out", "--frames", "--gop", "5"), "--gop is about videos, and --frames writes JPEG"),
        (("prepare", "clips", "out", "--frames", "--encoder", "mpeg4"), "--encoder is about videos, and --frames"),
        (("prepare", "nowhere", "out"), "no data at nowhere"),
        (("prepare", "clips", "out", "--encoder", "gif"), "expected auto, libx264 or mpeg4"),
        (("show", "clips", "--out", "clips"), "directory"),
        (("show", "clips", "--architecture", "zoo:nosuch"), "unknown zoo model"),
        (("show", "clips", "--architecture", "zoo:x3d-xs", "--size", "32"), "leave out --frames and --size"),
        (("show", "clips", "--span", "1 s", "--stride", "2"), "not both"),
        (("bench", "nowhere"), "no data at nowhere"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(clips, capsys, words, message):
    for split in ("train", "val"):
        film(Path("split", split, "run", f"{split}.mp4"))
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err


def test_an_unreadable_set_is_no_traceback(workspace, capsys):
    for index in range(3):
        path = Path("clips", "run", f"{index}.mp4")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no video")
    status, _, err = run(capsys, "bench", "clips", "--seconds", "0.2", "--workers", "0")
    assert (status, "Traceback" in err) == (2, False)
    assert run(capsys, "show", "clips")[0] == 0
    assert run(capsys, "prepare", "clips", "out", "--jobs", "0")[0] == 5


def start(*arguments):
    command = [sys.executable, "-P", "-m", "hwbench", "data", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=heeding)


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def children_of(process):
    """Processes below another one, by the file system of Linux."""
    below = {process}
    for _ in range(4):
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                number, _, rest = stat.read_text().partition(" ")
                parent = int(rest.rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent in below:
                below.add(int(number))
    return below - {process}


def lives(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc: run it on Linux")
def test_prepare_goes_on_after_kill_9(clips, capsys):
    for index in range(30):
        film(clips / "run" / f"more{index}.mp4", 40, (240, 320), seed=index)
    journal = Path("out", ".prepared.jsonl")
    process = start("prepare", "clips", "out", "--short-side", "160", "--jobs", "1")
    wait_for(lambda: journal.is_file() and journal.read_text().count("\n") > 4)
    below = children_of(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert below
    wait_for(lambda: not any(lives(one) for one in below), 30)
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*.mp4")}
    assert 3 <= len(before) < 36
    status, out, _ = run(capsys, "prepare", "clips", "out", "--short-side", "160", "--jobs", "0", "--json")
    values = json.loads(out)
    assert (status, sum(values["videos"].values())) == (0, 36)
    assert values["skipped"] >= len(before) - 1
    kept = [path for path, changed in before.items() if path.stat().st_mtime_ns == changed]
    assert len(kept) == values["skipped"]
    assert list(Path("out").rglob(".*.tmp")) == []
    for path in Path("out").rglob("*.mp4"):
        assert path.stat().st_size > 0
    assert json.loads(run(capsys, "check", "out", "--jobs", "0", "--decode", "--json")[1])["ok"]


@pytest.mark.long
def test_check_goes_on_after_kill_9(clips, workspace, capsys):
    for index in range(30):
        film(clips / "run" / f"more{index}.mp4", 40, (240, 320), seed=index)
    import sqlite3

    def rows():
        try:
            with closing(sqlite3.connect(workspace.state / "cache" / "videos" / "facts.sqlite")) as opened:
                return opened.execute("SELECT count(*) FROM facts").fetchone()[0]
        except sqlite3.Error:
            return 0

    process = start("check", "clips", "--decode", "--jobs", "1")
    (workspace.state / "cache" / "videos").mkdir(parents=True, exist_ok=True)
    wait_for(lambda: rows() > 3)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    before = rows()
    status, out, _ = run(capsys, "check", "clips", "--decode", "--jobs", "0", "--json")
    values = json.loads(out)
    assert (status, sum(values["videos"].values())) == (0, 36)
    assert rows() > before or before >= 36


def test_ctrl_c_ends_in_order_and_leaves_no_process(clips, capsys):
    film(clips / "run" / "long.mp4", 40, (240, 320))
    for index in range(200):  # most are to come where this test is held up
        shutil.copy(clips / "run" / "long.mp4", clips / "run" / f"more{index}.mp4")
    journal = Path("out", ".prepared.jsonl")
    process = start("prepare", "clips", "out", "--short-side", "160", "--jobs", "1")
    wait_for(lambda: journal.is_file() and journal.read_text().count("\n") > 2)
    below = children_of(process.pid)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in err
    assert "Traceback" not in err
    wait_for(lambda: not any(lives(one) for one in below), 30)
    assert list(Path("out").rglob(".*.tmp")) == [] or run(capsys, "prepare", "clips", "out")[0] == 0
