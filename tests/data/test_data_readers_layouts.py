"""What each reader makes of the official layout of its data set: classes, sides, parts, groups, and its options."""

import contextlib
import functools
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from hwbench.data import listing_of
from hwbench.data.images import FrameFolder
from hwbench.data.readers import ListedVideo, Listing, Part, get, reader_of, readers
from hwbench.data.readers import read as read_path
from hwbench.data.readers.sides import parted
from hwbench.data.readers.tar_index import tar_members
from hwbench.errors import InvalidFile, InvalidValue, MissingDependency, UnknownName
from hwbench.testing import datasets
from hwbench.testing.datasets import COPIES, add_text
from hwbench.testing.permissions import obeying_permissions

Copy = Callable[[str], Path]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Makes a small copy by the name of its function, once."""

    @functools.cache
    def make(name: str) -> Path:
        return getattr(datasets, name)(tmp_path_factory.mktemp(name))

    return make


@pytest.fixture
def changed(copy: Copy, tmp_path: Path) -> Copy:
    """Makes a copy that a test may change."""

    def make(name: str) -> Path:
        made = copy(name)
        root = made if made.is_dir() else made.parent
        shutil.copytree(root, tmp_path / "changed")
        return tmp_path / "changed" if made.is_dir() else tmp_path / "changed" / made.name

    return make


def read(name: str, path: Path, **options: str) -> Listing:
    return get(name, options).read(path)


def labels(videos: Iterable[ListedVideo] | None) -> list[object]:
    assert videos is not None
    return [video.label for video in videos]


def stems(videos: Iterable[ListedVideo] | None) -> list[str]:
    assert videos is not None
    return [video.path.stem for video in videos]


def test_kinetics_counts_clips_that_are_gone(copy: Copy) -> None:
    listing = read("kinetics", copy("kinetics"))
    assert labels(listing.train) == ["run, far", "walk, far"] * 2
    assert stems(listing.train)[0] == "-a_0bcdefgh_000000_000010"
    assert [video.group for video in listing.val or ()] == ["-a_4bcdefgh", "-a_5bcdefgh"]
    assert listing.train[1].row.endswith("train.csv:3")
    assert len(listing.notes) == 1
    assert "2 of 8 listed videos are not there, such as 'gonetrain_000007_000017'" in listing.notes[0]


def test_kinetics_takes_the_other_names_of_its_tables(changed: Copy) -> None:
    root = changed("kinetics")
    (root / "annotations").mkdir()
    (root / "train.csv").rename(root / "annotations" / "kinetics-400_train.csv")
    (root / "val.csv").rename(root / "annotations" / "kinetics-400_validate.csv")
    assert len(read("kinetics", root).val or ()) == 2


@pytest.mark.parametrize(
    "header",
    [
        "\ufefflabel,youtube_id,time_start,time_end,split,is_cc",
        '"label","youtube_id","time_start","time_end","split","is_cc"',
    ],
)
def test_kinetics_is_recognised_by_its_columns_however_they_are_written(changed: Copy, header: str) -> None:
    root = changed("kinetics")
    table = root / "train.csv"
    table.write_text(table.read_text().replace("label,youtube_id,time_start,time_end,split,is_cc", header), "utf-8")
    assert type(reader_of(root)) is readers.get("kinetics")
    assert len(reader_of(root).read(root).train) == 4
    table.write_text("youtube_id,time_start,time_end,label\n-a_0bcdefgh,0,10,run\n")
    assert [video.label for video in reader_of(root).read(root).train] == ["run"]
    for other in (b"", b"\xff\xfelabel", b"path,label\n", b"x" * 200_000):
        table.write_bytes(other)
        assert not readers.get("kinetics")().recognises(root)


@pytest.mark.parametrize(("split", "train"), [("1", [0, 1, 2, 3]), ("2", [2, 3, 4, 5])])
def test_ucf101_reads_the_official_triple(copy: Copy, split: str, train: list[int]) -> None:
    listing = read("ucf101", copy("ucf101"), split=split)
    names = ("ApplyEyeMakeup", "YoYo")
    assert listing.classes == names
    assert labels(listing.train) == [names[n % 2] for n in train]
    assert stems(listing.train) == [f"v_{names[n % 2]}_g{n // 2 + 1:02d}_c01" for n in train]
    assert labels(listing.val) == list(names)
    assert listing.train[0].group == f"v_ApplyEyeMakeup_g{train[0] // 2 + 1:02d}"


def test_hmdb51_leaves_out_what_is_in_neither_side(copy: Copy) -> None:
    listing = read("hmdb51", copy("hmdb51"))
    assert listing.classes == ("run", "walk")
    assert labels(listing.train) == ["run", "run", "walk", "walk"]
    assert labels(listing.val) == ["run", "walk"]
    assert listing.train[0].group == "run/film0"


def test_something_something_numbers_templates_and_tells_directions(copy: Copy) -> None:
    listing = read("something-something", copy("something_something"))
    assert listing.classes == ("Holding something", "Pushing something from left to right")
    assert listing.directional
    assert labels(listing.train)[:2] == [listing.classes[1], listing.classes[0]]
    assert stems(listing.val) == ["1004", "1005"]
    assert [video.row.rpartition(":")[2] for video in listing.train] == ["2", "3", "4", "5"]


def test_diving48_names_classes_by_their_words(changed: Copy) -> None:
    root = changed("diving48")
    listing = read("diving48", root)
    assert listing.classes == ("Back 15som 05Twis FREE", "Forward Dive PIKE")
    assert labels(listing.train) == [listing.classes[n % 2] for n in range(4)]
    assert stems(listing.val) == ["-dive_00004", "-dive_00005"]
    assert {video.part for video in listing.train} == {None}
    assert listing.train[1].row.endswith("Diving48_V2_train.json:2")
    (root / "rgb" / "-dive_00005.mp4").unlink()
    (root / "Diving48_vocab.json").unlink()
    listing = read("diving48", root)
    assert listing.classes == tuple(map(str, range(48)))
    assert labels(listing.val) == ["0"]
    assert "1 of 6 listed videos are not there, such as '-dive_00005'" in listing.notes[0]


def test_charades_has_a_set_of_classes_for_each_video(copy: Copy) -> None:
    holding, putting = "Holding some clothes", "Putting clothes somewhere"
    listing = read("charades", copy("charades"))
    assert listing.classes == (holding, putting)
    assert labels(listing.train) == [(holding,), (holding, putting)] * 2
    assert [video.group for video in listing.train] == ["P0", "P1", "P2", "P3"]
    assert listing.train[0].part is None
    actions = read("charades", copy("charades"), per="action").train
    assert labels(actions) == [(holding,), (holding,), (putting,)] * 2
    assert actions[2].part == Part(Fraction("0.1"), Fraction("0.7"))


def test_activities_of_charades_with_the_same_part_are_one_entry(changed: Copy) -> None:
    root = changed("charades")
    for table in root.glob("*.csv"):
        table.write_text(table.read_text().replace("c001 0.10 0.70", "c001 0.00 0.90;c000 0.20 0.70;c000 0.0 0.9"))
    holding, putting = "Holding some clothes", "Putting clothes somewhere"
    actions = read("charades", root, per="action").train
    assert labels(actions) == [(holding,), (holding, putting), (holding,)] * 2
    assert [video.part for video in actions[1:3]] == [
        Part(Fraction(0), Fraction("0.9")),
        Part(Fraction("0.2"), Fraction("0.7")),
    ]


def test_charades_takes_folders_of_images_and_does_without_names(changed: Copy) -> None:
    root = changed("charades")
    shutil.rmtree(root / "Charades_v1_480")
    (root / "Charades_v1_classes.txt").unlink()
    for number in range(6):
        datasets.small_images(root / "Charades_v1_rgb" / f"V{number}", number, f"V{number}-{{:06d}}.jpg")
    listing = read("charades", root)
    assert labels(listing.train)[1] == ("c000", "c001")
    assert len(listing.classes) == 157
    assert listing.train[0].source == FrameFolder(root / "Charades_v1_rgb" / "V0", Fraction(24))
    assert len((listing.val or ())[0].opened_by().open().info.pts) == 8


def add_flow(folder: Path, *templates: str) -> None:
    for number, template in enumerate(templates or ("flow_x_{:05d}.jpg", "flow_y_{:05d}.jpg")):
        datasets.small_images(folder, number, template)


def test_folders_of_flow_of_charades_are_no_videos(changed: Copy) -> None:
    root = changed("charades")
    shutil.rmtree(root / "Charades_v1_480")
    for name in (f"V{number}" for number in range(6)):
        datasets.small_images(root / "Charades_v1_rgb" / name, 0, f"{name}-{{:06d}}.jpg")
        add_flow(root / "Charades_v1_flow" / name, f"{name}-{{:06d}}x.jpg", f"{name}-{{:06d}}y.jpg")
    listing = read("charades", root)
    assert {video.path.parent.name for video in (*listing.train, *(listing.val or ()))} == {"Charades_v1_rgb"}
    shutil.rmtree(root / "Charades_v1_rgb")
    with pytest.raises(InvalidFile, match="none of the 6 listed videos is there"):
        read("charades", root)


@pytest.mark.parametrize("name", ["hmdb51", "kinetics"])
@pytest.mark.parametrize("template", ["flow_{}_{{:05d}}.jpg", "{}_{{:05d}}.jpg", "img_{{:05d}}.jpg"])
def test_a_file_is_read_and_not_the_folder_of_its_name(changed: Copy, name: str, template: str) -> None:
    root = changed(name)
    before = read(name, root)
    for video in (*before.train, *(before.val or ())):
        place = (video.path.parent.name, video.path.stem) if name == "hmdb51" else (video.path.stem,)
        add_flow(root.joinpath("flow", *place), *(template.format(axis) for axis in "xy"))
    assert read(name, root) == before


@pytest.mark.parametrize(
    ("name", "rate"), [("kinetics", 30), ("ucf101", 25), ("hmdb51", 30), ("activitynet", 30), ("charades", 24)]
)
def test_folders_of_images_in_place_of_videos_have_the_rate_that_is_said(changed: Copy, name: str, rate: int) -> None:
    root = changed(name)
    for video in [*root.rglob("*.mp4"), *root.rglob("*.avi")]:
        video.unlink()
        datasets.small_images(video.with_suffix(""), 0, "img_{:05d}.jpg")
    for options, expected in (({}, rate), ({"fps": "5"}, 5)):
        with read(name, root, **options).train[0].opened_by().open() as opened:
            assert (opened.info.fps, opened.info.num_frames) == (expected, 8)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("end", [".mp4", ".MP4"])
def test_small_pictures_beside_videos_are_no_frames(
    changed: Copy, monkeypatch: pytest.MonkeyPatch, end: str, reverse: bool
) -> None:
    root = changed("kinetics")
    for video in list(root.rglob("*.mp4")):
        for number in range(10):
            shutil.copy(video, video.with_name(f"other {number}{end}"))
            datasets.small_images(video.parent, 0, f"other {number}.jpg", count=1)
    datasets.small_images(root, 0, "{:05d}.png", count=10)
    scandir = os.scandir

    @contextlib.contextmanager
    def ordered(folder: Path) -> Iterator[list["os.DirEntry[str]"]]:
        with scandir(folder) as entries:
            yield sorted(entries, key=lambda entry: entry.name.rpartition(".")[2], reverse=reverse)

    monkeypatch.setattr("hwbench.data.readers.media_index.os.scandir", ordered)
    assert len(read("kinetics", root).train) == 4


def test_images_of_flow_beside_frames_are_no_frames(changed: Copy) -> None:
    root = changed("kinetics")
    for video in list(root.rglob("*.mp4")):
        video.unlink()
        datasets.small_images(video.with_suffix(""), 0, "img_{:05d}.jpg")
        add_flow(video.with_suffix(""))
    with read("kinetics", root).train[0].opened_by().open() as opened:
        assert opened.info.num_frames == 8
        brightness = [float(frame.mean()) for frame in opened.read(range(8))]
    with FrameFolder(video.with_suffix(""), prefix="img_").open() as images:
        assert brightness == [float(frame.mean()) for frame in images.read(range(8))]


def test_activitynet_has_an_entry_for_each_segment(changed: Copy) -> None:
    root = changed("activitynet")
    listing = read("activitynet", root)
    assert listing.classes == ("run", "walk")
    assert labels(listing.train) == ["run", "run", "walk", "walk"] * 2
    assert listing.train[0].part == Part(Fraction(0), Fraction("0.5"))
    assert listing.train[1].part == Part(Fraction("1.0000000000000002"), Fraction(2))
    assert listing.train[0].row == f"{root / 'activity_net.v1-3.min.json'}:4"
    (root / "videos" / "v_name-0.mp4").rename(root / "videos" / "name-0.mkv")
    assert read("activitynet", root / "activity_net.v1-3.min.json").train[0].path.name == "name-0.mkv"
    with pytest.raises(InvalidFile, match=r"expected labelled videos of subset 'testing', found none"):
        read("activitynet", root, subset="testing")


@pytest.mark.parametrize("stem", ["v_v_e-0", "v_e-0"])
def test_a_name_of_activitynet_may_begin_as_files_do(changed: Copy, stem: str) -> None:
    root = changed("activitynet")
    file = root / "activity_net.v1-3.min.json"
    file.write_text(file.read_text().replace('"name-0"', '"v_e-0"'))
    (root / "videos" / "v_name-0.mp4").rename(root / "videos" / f"{stem}.mp4")
    listing = read("activitynet", root)
    assert (stems(listing.train)[:2], listing.notes) == ([stem] * 2, ())


def test_the_file_of_activitynet_lies_in_the_data_path_or_in_annotations(changed: Copy) -> None:
    root = changed("activitynet")
    (root / "annotations").mkdir()
    file = (root / "activity_net.v1-3.min.json").rename(root / "annotations" / "activity_net.v1-3.min.json")
    assert isinstance(reader_of(root), type(get("activitynet")))
    listing = read("activitynet", root)
    assert labels(listing.train) == ["run", "run", "walk", "walk"] * 2
    assert {one.path.parent for one in listing.train} == {root / "videos"}
    assert listing.train[0].row == f"{file}:4"
    with pytest.raises(InvalidFile, match="found none"):
        read("activitynet", file)  # videos lie below the folder of a file that is named


@pytest.mark.parametrize(
    ("label", "classes", "first"),
    [
        ("verb", ("take", "put"), ["take", "put", "take", "put"]),
        ("noun", ("tap", "plate"), ["tap", "tap", "plate", "plate"]),
        (
            "action",
            ("put plate", "put tap", "take plate", "take tap"),
            ["take tap", "put tap", "take plate", "put plate"],
        ),
    ],
)
def test_epic_kitchens_has_three_kinds_of_labels(
    copy: Copy, label: str, classes: tuple[str, ...], first: list[str]
) -> None:
    listing = read("epic-kitchens", copy("epic_kitchens"), label=label)
    assert listing.classes == classes
    assert labels(listing.train) == first
    assert len(listing.val or ()) == 2
    assert listing.train[0].part == Part(Fraction(0), Fraction("0.75"))
    assert listing.train[3].group == "P03_1"


def test_epic_kitchens_55_has_images_at_the_rate_of_its_table(copy: Copy) -> None:
    listing = read("epic-kitchens", copy("epic_kitchens_55"))
    assert listing.val is None
    assert len(listing.train) == 6
    with listing.train[1].opened_by().open() as video:
        assert (video.info.fps, video.info.num_frames) == (8, 8)


def test_domsev_finds_videos_through_its_table(copy: Copy) -> None:
    listing = read("domsev", copy("domsev"))
    assert stems(listing.train) == ["name-0", "1", "2", "3", "4", "5"]
    assert listing.train[0].part == Part(Fraction("0.25"), Fraction(1))
    assert listing.train[0].group == "0"
    assert len(read("domsev", copy("domsev"), label="activity").train) == 4


def test_a_video_of_a_frame_list_shows_what_its_frames_show(changed: Copy) -> None:
    root = changed("frame_lists")
    listing = read("frame-lists", root)
    assert isinstance(reader_of(root), type(get("frame-lists")))
    assert labels(listing.train)[:2] == [("0",), ("0", "1")]
    assert listing.train[1].row == f"{root}/frame_lists/train.csv:10"
    with listing.train[1].opened_by().open() as video:
        assert (video.info.fps, video.info.num_frames) == (24, 8)
    for side in ("train", "val"):
        shutil.copy(root / "frame_lists" / f"{side}.csv", root)
    lists = (root / "frame_lists").rename(root / "of_others")
    assert isinstance(reader_of(root), type(get("frame-lists")))
    assert labels(read("frame-lists", root).train) == labels(listing.train)
    for side in ("train", "val"):
        (root / f"{side}.csv").unlink()
    lists.rename(root / "frame_lists")
    (root / "Charades_v1_rgb").rename(root / "images")
    with pytest.raises(InvalidFile, match="none of 6 listed videos is there; the first is 'V0'"):
        read("frame-lists", root)
    shutil.rmtree(root / "images" / "V1")
    partial = read("frame-lists", root, prefix="images", fps="25")
    assert partial.notes == (f"{root}: 1 of 6 listed videos are not there, such as 'V1'",)
    for side in ("train", "val"):
        file = root / "frame_lists" / f"{side}.csv"
        file.write_text(file.read_text().replace('"0,1"', '""').replace('"0"', '""'))
    with pytest.raises(InvalidFile, match="no row has labels"):
        read("frame-lists", root, prefix="images")


def test_ava_makes_one_entry_of_the_rows_of_a_person(copy: Copy) -> None:
    bend, talk = "bend/bow (at the waist)", "talk to (e.g., self)"
    root = copy("ava")
    listing = read("ava", root)
    assert listing.classes == (bend, talk)
    # -film0 at 903 is excluded; action 2 is not on the list of actions.
    assert labels(listing.train) == [(talk,), (bend, talk), (bend,), (talk,), (bend,), (bend, talk), (bend,)]
    assert listing.train[0].part == Part(keyframe_s=Fraction(2), box=(0.1, 0.05, 0.6, 0.95), cut_s=Fraction(1200))
    assert read("ava", root, offset="900").train[0].part == Part(keyframe_s=Fraction(2), box=(0.1, 0.05, 0.6, 0.95))
    assert listing.train[1].row.endswith("ava_train_v2.2.csv:4")
    assert read("ava", root, offset="0").train[0].part == Part(keyframe_s=Fraction(902), box=(0.1, 0.05, 0.6, 0.95))


def test_mmaction2_lists_videos_and_folders_of_images(copy: Copy) -> None:
    root = copy("mmaction2")
    assert labels(read("mmaction2", root).train) == ["0", "1", "0", "1"]
    assert len(read("mmaction2", root / "tiny_train_list_videos.txt").val or ()) == 2
    images = read("mmaction2", copy("mmaction2_frames"), fps="12.5")
    with images.train[0].opened_by().open() as video:
        assert (video.info.num_frames, video.info.fps) == (6, 12.5)
    assert "img_" in images.train[0].opened_by().name


def test_mmaction2_takes_several_labels_and_a_folder(changed: Copy) -> None:
    root = changed("mmaction2")
    (root / "videos_train").rename(root / "clips")
    (root / "tiny_train_list_videos.txt").write_text("run/0.mp4 1 0\nwalk/1.mp4 2\nno such.mp4 1\n")
    listing = read("mmaction2", root / "tiny_train_list_videos.txt", labels="several", prefix="clips")
    assert labels(listing.train) == [("1", "0"), ("2",)]
    assert listing.classes == ("0", "1", "2")
    assert "3 of 5 listed videos are not there, such as 'no such.mp4'" in listing.notes[0]


def test_mmaction2_knows_the_other_names_of_the_side_to_validate_on(changed: Copy) -> None:
    root = changed("mmaction2")
    folder = root if root.is_dir() else root.parent
    (folder / "tiny_val_list_videos.txt").rename(folder / "tiny_test_list_videos.txt")
    assert len(read("mmaction2", root).val or ()) == 2
    (folder / "tiny_test_list_videos.txt").rename(folder / "tiny_validation_list_videos.txt")
    assert len(read("mmaction2", root).val or ()) == 2


def test_mmaction2_validates_on_the_list_to_validate_on_before_that_to_test_on(changed: Copy) -> None:
    root = changed("mmaction2")
    for name, other in (("training_c", "validation_c"), ("trainlist01", "vallist01")):
        for file, line in ((name, "run/0.mp4 0\n"), (other, "run/1.mp4 0\nrun/2.mp4 0\n")):
            (root / f"{file}.txt").write_text(line)
        (root / f"{other.replace('validation', 'testing').replace('val', 'test')}.txt").write_text("run/3.mp4 0\n")
        for row in ("run/1.mp4", "run/2.mp4"):
            (root / "videos" / row).parent.mkdir(parents=True, exist_ok=True)
            (root / "videos" / row).touch()
        assert len(read("mmaction2", root / f"{name}.txt").val or ()) == 2


def test_frames_are_sorted_by_their_numbers(copy: Copy) -> None:
    listing = read("frames", copy("frames"), fps="30000/1001")
    assert labels(listing.train) == ["run", "run", "walk", "walk"]
    with listing.train[0].opened_by().open() as video:
        brightness = [float(frame.mean()) for frame in video.read(range(11))]
        assert brightness == sorted(brightness)
        assert video.info.time_base == Fraction(1001, 30000)


def test_frames_know_the_other_names_of_the_side_to_validate_on(changed: Copy) -> None:
    root = changed("frames")
    (root / "val").rename(root / "validation")
    assert len(read("frames", root).val or ()) == 2
    (root / "validation").rename(root / "Testing")
    (root / "train").rename(root / "Training")
    assert labels(read("frames", root).train) == ["run", "run", "walk", "walk"]
    assert len(read("frames", root).val or ()) == 2
    (root / "Training").rename(root / "train")
    (root / "Testing").rename(root / "other")
    with pytest.raises(InvalidFile, match="train/ without val/"):
        read("frames", root)


def test_frames_without_sides_are_one_list(copy: Copy) -> None:
    listing = read("frames", copy("frames") / "train")
    assert listing.val is None
    assert len(listing.train) == 4


def test_rates_of_folders_of_images_are_written_by_hand_too(changed: Copy) -> None:
    root = changed("frames")
    before = [video.opened_by() for video in read("frames", root).train]
    first = before[0].name.removeprefix(f"{root}/")
    (root / "frame-rates.json").write_text(json.dumps({first: "30000/1001"}))
    assert type(reader_of(root)) is readers.get("frames")
    after = [video.opened_by().open().info.time_base for video in reader_of(root).read(root).train]
    assert after == [Fraction(1001, 30000), *[Fraction(1, 30)] * (len(before) - 1)]
    for rate in (0, -1, True, "fast", None, float("nan"), float("inf"), 1e-9, 1e16, 10**6, "30/0", "1e-99"):
        (root / "frame-rates.json").write_text(json.dumps({first: rate}))
        with pytest.raises(InvalidFile, match=r"frame-rates.json: expected frames a second of '.*', such as 25, got"):
            read("frames", root)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (30000 / 1001, Fraction(30000, 1001)),
        (24000 / 1001, Fraction(24000, 1001)),
        (119.88011988011988, Fraction(120000, 1001)),
        (100 / 3, Fraction(100, 3)),
        (29.97, Fraction(2997, 100)),
        (12.345678, Fraction(6172839, 500000)),
        (1 / 86400, Fraction(1, 86400)),
        (2.5e1, Fraction(25)),
        ("29.970029970029970029970029970", Fraction(30000, 1001)),
        ("59.94005994005994/2", Fraction(30000, 1001)),
    ],
)
def test_rates_with_all_the_decimals_of_a_float_are_the_fractions_they_come_from(
    changed: Copy, rate: float | str, expected: Fraction
) -> None:
    root = changed("frames")
    first = read("frames", root).train[0].opened_by().name.removeprefix(f"{root}/")
    (root / "frame-rates.json").write_text(json.dumps({first: rate}))
    for options in ({}, {"fps": str(rate)}):
        assert read("frames", root, **options).train[0].opened_by().open().info.time_base == 1 / expected


def test_the_table_of_rates_of_epic_kitchens_holds_floats_and_says_which_row_is_wrong(changed: Copy) -> None:
    root = changed("epic_kitchens_55")
    table = next(root.rglob("EPIC_video_info.csv"))
    before = table.read_text()
    (rate,) = {line.split(",")[-1] for line in before.splitlines()[1:]}
    table.write_text(before.replace(rate, "59.94005994005994"))
    assert read("epic-kitchens", root).train[0].opened_by().open().info.time_base == Fraction(1001, 60000)
    table.write_text(before.replace(rate, "00:01:02"))
    with pytest.raises(InvalidFile, match=r"info.csv:2: expected frames a second as 'fps', got '00:01:02'"):
        read("epic-kitchens", root)


def test_archives_in_folders_of_sides_are_recognised(tmp_path: Path, copy: Copy) -> None:
    for folder, side in (("Train", "train"), ("validation", "val")):
        (tmp_path / folder).mkdir()
        shutil.copy(copy("webdataset") / f"{side}-000000.tar", tmp_path / folder / "000000.tar")
    assert type(reader_of(tmp_path)) is readers.get("webdataset")
    listing = reader_of(tmp_path).read(tmp_path)
    assert (len(listing.train), len(listing.val or ())) == (4, 2)
    for folder in ("Train", "validation"):  # an archive beside what came out of it
        datasets.small_video(tmp_path / folder / "run" / "0.mp4", 0)
    assert type(reader_of(tmp_path)) is readers.get("folders")


def test_archives_of_one_side_leave_the_folders_and_lists_of_the_others(tmp_path: Path, copy: Copy) -> None:
    archive = copy("webdataset") / "train-000000.tar"
    for side in ("train", "val"):
        datasets.small_video(tmp_path / "folders" / side / "run" / "0.mp4", 0)
    (tmp_path / "folders" / "test").mkdir()
    shutil.copy(archive, tmp_path / "folders" / "test" / "000000.tar")
    assert type(reader_of(tmp_path / "folders")) is readers.get("folders")
    datasets.small_video(tmp_path / "lists" / "videos" / "0.mp4", 0)
    for side in ("train", "val"):
        (tmp_path / "lists" / f"{side}.txt").write_text("videos/0.mp4 run\n")
        (tmp_path / "lists" / side).mkdir()
        shutil.copy(archive, tmp_path / "lists" / side / "000000.tar")
    assert type(reader_of(tmp_path / "lists")) is readers.get("lists")


def test_webdataset_reads_three_kinds_of_labels_and_names_of_numbers(tmp_path: Path, copy: Copy) -> None:
    listing = read("webdataset", copy("webdataset"))
    assert labels(listing.train) == ["run", "walk", "run", "walk"]
    assert labels(listing.val) == ["run", "walk"]
    video = datasets.small_video(tmp_path / "v.mp4", 0)
    with tarfile.open(tmp_path / "shards-000.tar", "w") as tar:
        for key, end, text in (
            ("a.b/0", "cls", "1"),
            ("a.b/1", "json", '{"tags": [0, "walk"]}'),
            ("2", "json", '{"tags": []}'),
        ):
            tar.add(video, f"{key}.left.mp4")
            add_text(tar, f"{key}.{end}", text)
    (tmp_path / "classes.txt").write_text("run\nwalk\n")
    with pytest.raises(InvalidFile, match=r"shards-000.tar!a.b/1.json: expected a JSON object with the key 'label'"):
        read("webdataset", tmp_path)
    listing = read("webdataset", tmp_path / "shards-000.tar", label="tags")
    assert labels(listing.train) == ["walk", ("run", "walk"), ()]
    assert listing.val is None


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("train-000", "eval-000"),
        ("train-000", "dev-000"),
        ("train_0", "testing_0"),
        ("training-000", "validation-000"),
        ("trainset-0", "valset-0"),
        ("my-test-Train.0", "my-test-VAL.0"),
        ("train/0", "valid/0"),
    ],
)
def test_archives_of_two_sides_are_told_apart_by_any_usual_word(
    tmp_path: Path, copy: Copy, train: str, val: str
) -> None:
    for name, end in ((train, "train-000000"), (val, "val-000000")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(copy("webdataset") / f"{end}.tar", tmp_path / f"{name}.tar")
    listing = read("webdataset", tmp_path)
    assert {video.path for video in listing.train} == {tmp_path / f"{train}.tar"}
    assert {video.path for video in listing.val or ()} == {tmp_path / f"{val}.tar"}


def test_archives_of_no_side_beside_others_are_named(tmp_path: Path, copy: Copy) -> None:
    for name in ("part-0", "part-1", "part-train-val"):
        shutil.copy(copy("webdataset") / "train-000000.tar", tmp_path / f"{name}.tar")
    assert read("webdataset", tmp_path).val is None
    (tmp_path / "part-1.tar").rename(tmp_path / "train-1.tar")
    with pytest.raises(InvalidFile, match=r"; part-0.tar, part-train-val.tar tell no side, others do"):
        read("webdataset", tmp_path)
    (tmp_path / "part-0.tar").unlink()
    (tmp_path / "part-train-val.tar").rename(tmp_path / "val.tar")
    (tmp_path / "train-1.tar").rename(tmp_path / "test.tar")
    with pytest.raises(InvalidFile, match=r"no name tells what to train on; .* test.tar, val.tar"):
        read("webdataset", tmp_path)


@pytest.mark.parametrize(
    ("train", "val"), [("train-00000", "dev-00000"), ("train_0", "val_0"), ("clips-Train", "clips-testset")]
)
def test_splits_of_hugging_face_are_told_apart_by_any_usual_word(tmp_path: Path, train: str, val: str) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install hwbench[huggingface]")
    for number, name in enumerate((train, val, "more-0", "other-0")):
        table = pyarrow.table({"video": [f"{number}.mp4"], "label": ["run"]})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    listing = read("huggingface", tmp_path)
    assert (stems(listing.train), stems(listing.val)) == (["0"], ["1"])
    assert len(listing.notes) == 1
    assert listing.notes[0].endswith("train, val nor test: more-0.parquet, other-0.parquet")
    for name in (train, val):
        (tmp_path / f"{name}.parquet").unlink()
    listing = read("huggingface", tmp_path)
    assert (stems(listing.train), listing.val, listing.notes) == (["2", "3"], None, ())


@pytest.mark.parametrize(
    ("names", "train", "val", "left_out"),
    [
        (("train-00000-of-00002-0a1b2c3d4e5f", "train-00001-of-00002", "train_small-0", "val"), "01", "3", "2"),
        (("train_small", "train_large", "dev"), "01", "2", ""),
        (("Train", "validation_small", "validation.0", "test", "test-mini"), "0", "2", "14"),
    ],
)
def test_selections_of_a_split_are_not_trained_on_beside_it(
    tmp_path: Path, names: Sequence[str], train: str, val: str, left_out: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install hwbench[huggingface]")
    for number, name in enumerate(names):
        table = pyarrow.table({"video": [f"{number}.mp4"], "label": ["run"]})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    listing = read("huggingface", tmp_path)
    assert ("".join(sorted(stems(listing.train))), "".join(stems(listing.val))) == (train, val)
    told = [f"{names[int(one)]}.parquet" for one in left_out]
    assert [note.partition("whole: ")[2] for note in listing.notes] == ([", ".join(sorted(told))] if told else [])


def test_a_split_in_several_files_is_named_once() -> None:
    named = [("train", 0), ("extra", 1), ("extra", 2), ("validation", 3), ("test", 4)]
    assert parted(Path("data"), named) == ([0], [3], ["extra"])


def test_names_of_classes_that_are_numbers_are_not_numbers_of_classes(tmp_path: Path) -> None:
    video = datasets.small_video(tmp_path / "v.mp4", 0)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for key, end, text in (
            ("0", "cls", "1"),
            ("1", "cls", "3"),
            ("2", "txt", "1"),
            ("3", "json", '{"label": "3"}'),
        ):
            tar.add(video, f"{key}.mp4")
            add_text(tar, f"{key}.{end}", text)
    (tmp_path / "classes.txt").write_text("1\n2\n3\n")
    assert labels(read("webdataset", tmp_path).train) == ["2", "3", "1", "3"]


def test_labels_of_archives_may_end_in_capitals(tmp_path: Path) -> None:
    video = datasets.small_video(tmp_path / "v.mp4", 0)
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        for key, end, text in (("0", "CLS", "1"), ("1", "Txt", "run\n"), ("2", "JSON", '{"label": ["walk"]}')):
            tar.add(video, f"{key}.MP4")
            add_text(tar, f"{key}.{end}", text)
    (tmp_path / "classes.txt").write_text("run\nwalk\n")
    assert labels(read("webdataset", tmp_path).train) == ["walk", "run", ("walk",)]
    index = archive.with_name("a.tar.index.json")
    old = json.loads(index.read_text()) | {"format": 1}  # of a version that left their texts out
    old["members"] = [[*row[:3], None] for row in old["members"]]
    index.write_text(json.dumps(old))
    assert labels(read("webdataset", tmp_path).train) == ["walk", "run", ("walk",)]


def test_an_index_is_made_once_and_again_for_another_archive(tmp_path: Path, copy: Copy) -> None:
    archive = tmp_path / "a.tar"
    shutil.copy(copy("webdataset") / "train-000000.tar", archive)
    members = tar_members(archive)
    index = archive.with_name("a.tar.index.json")
    assert [member.name for member in members[:2]] == ["part/0000.mp4", "part/0000.cls"]
    written = json.loads(index.read_text())
    written["members"][1][3] = "jump"
    index.write_text(json.dumps(written))
    assert tar_members(archive)[1].text == "jump"  # the index is what is read
    for wrong in (
        "",
        "[]",
        json.dumps(written | {"members": [["x", 1, 10**9, None]]}),
        json.dumps(written | {"format": 3}),
    ):
        index.write_text(wrong)
        assert tar_members(archive) == members
    shutil.copy(copy("webdataset") / "val-000000.tar", archive)
    assert len(tar_members(archive)) == 4


def test_an_index_goes_to_the_cache_where_the_folder_cannot_be_written(
    tmp_path: Path, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "data" / "a.tar"
    archive.parent.mkdir()
    shutil.copy(copy("webdataset") / "train-000000.tar", archive)
    # A folder in the place of the file keeps everybody from writing it, root too.
    archive.with_name("a.tar.index.json").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    members = tar_members(archive)
    assert len(list((tmp_path / "cache" / "hwbench" / "archives").iterdir())) == 1
    assert tar_members(archive) == members


def test_tables_have_parts_sides_and_groups(copy: Copy) -> None:
    listing = read("table", copy("table"))
    assert listing.train[0] == ListedVideo(
        copy("table").parent / "0.mp4", "run", part=Part(Fraction("0.25")), group="person 0", row=f"{copy('table')}:2"
    )
    assert len(listing.val or ()) == 2


@pytest.mark.parametrize("val", ["val.csv", "Validation.csv", "test.csv"])
def test_the_table_beside_that_for_training_is_validated_on(tmp_path: Path, val: str) -> None:
    (tmp_path / "train.csv").write_text("path,label\na.mp4,run\nb.mp4,walk\n")
    (tmp_path / val).write_text("path,label\nc.mp4,run\n")
    assert type(reader_of(tmp_path)) is readers.get("lists")
    with pytest.raises(InvalidFile, match=r"; a table: --data table:") as raised:
        read("lists", tmp_path)
    for path in (tmp_path, Path(str(raised.value).rpartition("table:")[2])):
        listing = read("table", path)
        assert (stems(listing.train), stems(listing.val), listing.notes) == (["a", "b"], ["c"], ())
    assert read("table", tmp_path / val).val is None
    (tmp_path / val).unlink()
    assert read("table", tmp_path / "train.csv").val is None
    with pytest.raises(InvalidFile, match=r"expected a table .*, or a folder with train.csv and val.csv"):
        read("table", tmp_path)


def test_a_column_of_sides_holds_before_a_table_beside(tmp_path: Path) -> None:
    (tmp_path / "val.csv").write_text("path,label,split\nc.mp4,run,\nd.mp4,run,validate\n")
    (tmp_path / "train.csv").write_text("path,label,split\na.mp4,run,train\nb.mp4,run,train\n")
    listing = read("table", tmp_path)
    assert (stems(listing.train), stems(listing.val)) == (["a", "b"], ["c", "d"])
    (tmp_path / "train.csv").write_text("path,label,split\na.mp4,run,train\nb.mp4,run,test\n")
    listing = read("table", tmp_path / "train.csv")
    assert (stems(listing.train), stems(listing.val)) == (["a"], ["b"])
    said = "its column split tells what to validate on; val.csv beside it is not read"
    assert listing.notes == (f"{tmp_path / 'train.csv'}: {said}",)
    (tmp_path / "train.csv").write_text("path,label\na.mp4,run\n")
    (tmp_path / "val.csv").write_text("path,label,split\nc.mp4,run,train\n")
    with pytest.raises(InvalidFile, match=r"val.csv:2: expected a split of val or test in the table to validate on"):
        read("table", tmp_path)


def test_tables_may_have_several_classes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("path,label,split\na.mp4,run|far,Training\nb.mp4,far,test\nc.mp4,,testing\n")
    listing = read("table", tmp_path / "t.csv", separator="|")
    assert labels(listing.train) == [("run", "far")]
    assert labels(listing.val) == [("far",), ()]
    assert listing.classes == ("far", "run")


@pytest.mark.parametrize(("name", "columns"), [("huggingface", "label"), ("huggingface_saved", "label")])
def test_hugging_face_knows_the_names_of_classes(copy: Copy, name: str, columns: str) -> None:
    pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    listing = read("huggingface", copy(name))
    assert listing.classes == ("run", "walk")
    assert labels(listing.train) == ["run", "walk", "run", "walk"]
    assert labels(listing.val) == ["run", "walk"]
    with listing.train[3].opened_by().open() as video:
        assert video.info.num_frames == 8
        assert abs(float(video.read((0,)).mean()) - 192) < 4
    with pytest.raises(InvalidFile, match=r"expected a column 'clip', the table has video, label; see options"):
        read("huggingface", copy(name), video="clip")


def test_hugging_face_takes_paths_and_lists_of_labels(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install hwbench[huggingface]")
    datasets.small_video(tmp_path / "0.mp4", 0)
    table = pyarrow.table({"file": ["0.mp4", "0.mp4"], "tags": [["run", "far"], []]})
    parquet.write_table(table, tmp_path / "train.parquet")
    listing = read("huggingface", tmp_path, video="file", label="tags")
    assert labels(listing.train) == [("run", "far"), ()]
    assert listing.train[0].path == tmp_path / "0.mp4"
    table = pyarrow.table({"path": ["0.mp4", "0.mp4"], "label": [2, 0], "start_s": [None, 0.5]})
    parquet.write_table(table, tmp_path / "t.parquet")
    listing = read("table", tmp_path / "t.parquet")
    assert (labels(listing.train), listing.classes) == (["2", "0"], ("0", "1", "2"))
    assert [video.part for video in listing.train] == [None, Part(Fraction("0.5"))]


def test_folders_of_parquet_files_are_recognised_by_the_names_of_sides(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows-0.parquet").write_bytes(b"PAR1")
    assert not readers.get("huggingface")().recognises(tmp_path)
    (tmp_path / "data" / "rows-0.parquet").rename(tmp_path / "data" / "train-00000-of-00002.parquet")
    assert type(reader_of(tmp_path)) is readers.get("huggingface")
    (tmp_path / "data" / "train-00000-of-00002.parquet").rename(tmp_path / "Train_0.parquet")
    assert type(reader_of(tmp_path)) is readers.get("huggingface")
    assert type(reader_of(tmp_path / "Train_0.parquet")) is readers.get("table")


def test_tables_of_paths_that_are_taken_for_hugging_face_are_told_their_reader(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install hwbench[huggingface]")
    for side in ("train", "val"):
        parquet.write_table(pyarrow.table({"path": [f"{side}.mp4"], "label": ["run"]}), tmp_path / f"{side}.parquet")
    with pytest.raises(InvalidFile, match=r"options video, label, or read the table: --data table:") as raised:
        reader_of(tmp_path).read(tmp_path)
    listing = read("table", Path(str(raised.value).rpartition("table:")[2]))
    assert (stems(listing.train), stems(listing.val)) == (["train"], ["val"])


def test_without_pyarrow_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingDependency, match=r"train.parquet: reading it needs pyarrow.*pip install 'hwbench\[hugg"):
        read("huggingface", tmp_path)


def test_lists_of_python_are_those_of_tables(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{"path": "a.mp4", "label": 1, "end_s": 2.5}, {"path": "b.mp4", "label": 0, "split": "val"}]
    listing = listing_of(rows, tmp_path)
    assert listing.train == (ListedVideo(tmp_path / "a.mp4", "1", part=Part(None, Fraction("2.5")), row="rows:1"),)
    assert listing.classes == ("0", "1")
    assert listing_of(pandas.DataFrame(rows), tmp_path) == listing
    assert labels(listing_of([{"path": "a.mp4", "label": ["x", "y"]}]).train) == [("x", "y")]
    videos = [ListedVideo(Path("a.mp4"), "x")]
    assert listing_of(videos) == Listing(tuple(videos))
    with pytest.raises(InvalidFile, match=r"rows:2: expected a name or a whole number as 'label', got None"):
        listing_of([rows[0], {"path": "b.mp4", "label": None}])
    with pytest.raises(InvalidValue, match=r"rows:1: expected a mapping or a ListedVideo, got 'a.mp4'"):
        listing_of(["a.mp4"])  # type: ignore[list-item]


@pytest.mark.parametrize("name", sorted(COPIES))
def test_a_data_set_is_recognised_by_its_own_reader_or_by_none(name: str, copy: Copy) -> None:
    if name == "huggingface":
        pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    path = copy(name.replace("-", "_"))
    if readers.get(name)().recognises(path):
        assert type(reader_of(path)) is readers.get(name)


# Small copy, file to change, its text (a pair: replace), what the error says with the place.
FAULTS = [
    ("kinetics", "train.csv", ("label,", "name,"), ":1: expected a column 'label', the table has 'name, youtube_id"),
    ("kinetics", "train.csv", (",10,train", ",ten,train"), ":2: expected a whole number as 'time_end', got 'ten'"),
    ("kinetics", "train.csv", (",0,10,train,0", ""), ":2: expected 6 columns (label, youtube_id,"),
    ("kinetics", "val.csv", None, ": expected the tables train.csv and val.csv of Kinetics"),
    ("ucf101", "ucfTrainTestlist/trainlist01.txt", ("c01.avi 1", "c01.avi 2"), ":1: class ApplyEyeMakeup is number 1"),
    ("ucf101", "ucfTrainTestlist/testlist01.txt", ("YoYo/", "Yo/"), ":2: expected CLASS/VIDEO.avi with a class of"),
    ("ucf101", "ucfTrainTestlist/classInd.txt", ("2 YoYo", "3 YoYo"), ":2: expected '2 CLASS', got '3 YoYo'"),
    ("ucf101", "ucfTrainTestlist/trainlist01.txt", None, ": expected trainlist01.txt of UCF101"),
    (
        "hmdb51",
        "testTrainMulti_7030_splits/run_test_split1.txt",
        (".avi 2", ".avi 3"),
        ":3: expected 'VIDEO.avi 0|1|2'",
    ),
    (
        "something_something",
        "labels/train.json",
        ("Holding", "Eating"),
        ":3: template 'Eating something' has no number",
    ),
    ("something_something", "labels/train.json", ('"1001"', '"a/b"'), ":3: expected a whole number as 'id', got 'a/b'"),
    ("something_something", "labels/train.json", ('"id": "1001",', '"id": "1001"'), ":3: expected JSON (Expecting"),
    (
        "something_something",
        "labels/labels.json",
        ('"1"', '"5"'),
        ": expected an object of templates and their numbers",
    ),
    ("something_something", "labels/validation.json", None, ": expected labels.json, train.json and validation.json"),
    ("diving48", "Diving48_V2_train.json", ('"label": 1', '"label": 2'), ":2: label 2 is none of the 2 classes"),
    ("diving48", "Diving48_V2_train.json", ('"label": 1', '"label": -1'), ":2: expected a whole number as 'label'"),
    ("diving48", "Diving48_V2_test.json", ("vid_name", "name"), ":1: expected text as 'vid_name', got None"),
    ("diving48", "Diving48_V2_test.json", None, ": expected Diving48_V2_train.json and Diving48_V2_test.json beside"),
    ("diving48", "Diving48_vocab.json", ('"Dive"', "[]"), ": expected a JSON list with the words of each class"),
    ("diving48", "Diving48_vocab.json", ("[[", '{"a": [['), ":2: expected JSON"),
    ("charades", "Charades_v1_train.csv", ("c001", "c002"), ":4: unknown class 'c002'"),
    ("charades", "Charades_v1_train.csv", ("c001 0.10", "c001"), ":4: expected actions as 'CLASS START END;...'"),
    ("charades", "Charades_v1_train.csv", ("actions", "doings"), ":1: expected a column 'actions'"),
    ("charades", "Charades_v1_test.csv", None, ": expected Charades_v1_train.csv and Charades_v1_test.csv"),
    ("activitynet", "activity_net.v1-3.min.json", ('"training"', '"trainning"'), ":4: expected a subset of training"),
    (
        "activitynet",
        "activity_net.v1-3.min.json",
        ('"segment"', '"segments"'),
        ":4: expected annotations with a segment",
    ),
    ("activitynet", "activity_net.v1-3.min.json", ('"database"', '"data"'), ":1: expected an object with a 'database'"),
    ("epic_kitchens", "annotations/EPIC_100_train.csv", ("take,1", "take,7"), ":3: unknown verb_class 7"),
    ("epic_kitchens", "annotations/EPIC_100_train.csv", ("00:00:00.75", "soon"), ":2: expected a time such as 12.5"),
    ("epic_kitchens", "annotations/EPIC_100_validation.csv", None, ": expected EPIC_100_validation.csv"),
    ("domsev", "labels.csv", ("1.0,2,8,0,run", "1.0,2,8,0, "), ":2: expected text as 'label_name', got ' '"),
    ("domsev", "labels.csv", None, ": expected the table labels.csv of DoMSEV"),
    (
        "ava",
        "annotations/ava_train_v2.2.csv",
        ("0.1,0.05,0.6", "0.1,0.05,1.6"),
        ":1: expected a box x1,y1,x2,y2 within",
    ),
    (
        "ava",
        "annotations/ava_train_v2.2.csv",
        ("0.1,0.05,0.6", "0.7,0.05,0.6"),
        ":1: expected a box x1,y1,x2,y2 within",
    ),
    (
        "ava",
        "annotations/ava_train_v2.2.csv",
        (",0902,", ",0901,"),
        ":1: expected a timestamp from 902 to 1798, got 901",
    ),
    ("ava", "annotations/ava_val_v2.2.csv", (",79,", ",81,"), ":1: expected an action from 1 to 80, got 81"),
    ("ava", "ava_action_list_v2.2.pbtxt", ("label_id: 79", "label_id: 1"), ":7: expected a name before each number"),
    ("ava", "annotations/ava_val_v2.2.csv", None, ": expected ava_val_v*.csv of AVA"),
    (
        "frame_lists",
        "frame_lists/train.csv",
        ("vido", "video"),
        ":1: expected 'original_vido_id video_id",
    ),
    ("frame_lists", "frame_lists/train.csv", ("V0 1 V0/", "V0 2 V0/"), ":3: expected frame 1 of 'V0' in 'V0', got"),
    ("frame_lists", "frame_lists/train.csv", ("V0 1 V0/", "V0 1 V1/"), ":3: expected frame 1 of 'V0' in 'V0', got"),
    ("frame_lists", "frame_lists/train.csv", ("V0 1 V0/", "V0 one V0/"), ":3: expected a video, a number, a path and"),
    ("frame_lists", "frame_lists/train.csv", ("-000001", "-000009"), ":2: the images of 'V0' are not in the order"),
    ("frame_lists", "frame_lists/val.csv", None, ": expected train.csv and val.csv, in it or in frame_lists/"),
    ("mmaction2", "tiny_train_list_videos.txt", ("0.mp4 0", "0.mp4 run"), ":1: expected whole numbers as labels"),
    ("mmaction2", "tiny_train_list_videos.txt", ("0.mp4 0", "0.mp4 0 1"), ":1: expected 'VIDEO LABEL'"),
    ("mmaction2_frames", "tiny_train_list_rawframes.txt", (" 6 0", " 0"), ":1: expected 'FOLDER FRAMES LABEL'"),
    ("mmaction2", "tiny_train_list_videos.txt", None, ": expected a list *train*.txt of mmaction2, found none"),
    ("table", "mine.csv", ("label", "class"), ":1: expected a column 'label', the table has 'path, class, start_s"),
    ("table", "mine.csv", ("1.mp4,walk,0.25,", "1.mp4,walk,0.25,0.2"), ":3: expected start_s before end_s"),
    ("table", "mine.csv", ("train,person 1", "trial,person 1"), ":3: expected a split of train, val"),
    ("huggingface_saved", "train/state.json", ("_data_files", "files"), ": expected a list of '_data_files'"),
]


@pytest.mark.parametrize(("name", "file", "text", "says"), FAULTS)
def test_a_fault_is_told_in_one_line_with_its_place(
    changed: Copy, name: str, file: str, text: tuple[str, str] | None, says: str
) -> None:
    if name.startswith("huggingface"):
        pytest.importorskip("pyarrow", reason="pip install hwbench[huggingface]")
    root = changed(name)
    folder = root if root.is_dir() else root.parent
    if text is None:
        (folder / file).unlink()
        place = str(folder)
    else:
        before = (folder / file).read_text()
        assert text[0] in before
        (folder / file).write_text(before.replace(*text))
        place = str(folder / file)
    reader = name.removesuffix("_saved").removesuffix("_frames").replace("_", "-")
    with pytest.raises(InvalidFile) as raised:
        read(reader, root)
    assert str(raised.value).startswith(f"{place}{says}")
    assert "\n" not in str(raised.value)


def test_a_folder_of_optical_flow_is_refused(changed: Copy) -> None:
    root = changed("mmaction2_frames")
    for image in (root / "rawframes" / "run" / "0").glob("img_*"):
        image.unlink()
    with pytest.raises(
        InvalidFile, match=r"rawframes.txt:1: .*holds optical flow \(flow_x_00001.jpg\), which is not read"
    ):
        read("mmaction2", root)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"0.mp4": "x"}, "a.tar!0.mp4: expected a label 0.cls, .txt or .json beside it"),
        ({"0.mp4": "x", "0.json": " " * 65537}, "a.tar!0.json: 65537 bytes, expected a label of at most 64 KiB"),
        ({"0.mp4": "x", "0.cls": " "}, "a.tar!0.cls: expected a label, found nothing"),
        ({"0.mp4": "x", "0.avi": "x", "0.cls": "1"}, "a.tar!0.avi: a second video of the key '0'"),
        ({"0.mp4": "x", "0.json": "[1]"}, "a.tar!0.json: expected a JSON object with the key 'label'"),
        ({"0.mp4": "x", "0.json": '{"label": [1.5]}'}, "a.tar!0.json: expected a name, a number or a list of them"),
        ({"0.cls": "1"}, "a.tar: expected videos ("),
        ({"0.mp4": "x", "0.cls": "7"}, "a.tar!0.mp4: label '7' is none of the 2 classes of classes.txt"),
        ({"0\n.mp4": "x"}, r"a.tar: the name '0\n.mp4' of a member has characters that cannot be shown"),
    ],
)
def test_a_fault_of_an_archive_names_the_member(tmp_path: Path, members: dict[str, str], says: str) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, text in members.items():
            add_text(tar, name, text)
    (tmp_path / "classes.txt").write_text("run\nwalk\n")
    with pytest.raises(InvalidFile) as raised:
        read("webdataset", tmp_path)
    assert str(raised.value).startswith(f"{tmp_path}{os.sep}{says}")


def test_archives_that_are_compressed_or_cut_are_refused(tmp_path: Path, copy: Copy) -> None:
    with tarfile.open(tmp_path / "a.tar", "w:gz") as tar:
        add_text(tar, "0.cls", "1")
    with pytest.raises(InvalidFile, match=r"a.tar: expected a tar archive, whole and not compressed"):
        read("webdataset", tmp_path)
    whole = (copy("webdataset") / "train-000000.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(whole[: len(whole) // 3])
    with pytest.raises(InvalidFile, match=r"a.tar: expected a tar archive, whole and not compressed \(unexpected end"):
        read("webdataset", tmp_path)


@pytest.mark.parametrize("name", ["kinetics", "ucf101", "hmdb51", "charades", "ava", "epic_kitchens", "mmaction2"])
def test_that_no_video_is_there_is_an_error(changed: Copy, name: str) -> None:
    root = changed(name)
    for video in [*root.rglob("*.mp4"), *root.rglob("*.avi")]:
        video.unlink()
    with pytest.raises(InvalidFile, match=r"none of (the )?\d+ listed videos is there"):
        read(name.replace("_", "-"), root)


def test_labels_that_end_before_they_begin_are_counted(changed: Copy) -> None:
    root = changed("charades")
    table = root / "Charades_v1_train.csv"
    table.write_text(table.read_text().replace("c001 0.10 0.70", "c001 0.70 0.10"))
    listing = read("charades", root)
    assert labels(listing.train) == [("Holding some clothes",)] * 4
    assert listing.notes == (f"{table}:4: ends before it begins; 2 such labels are left out",)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("ucf101", {"split": "4"}, "option split: expected 1, 2, 3, got '4'"),
        ("epic-kitchens", {"label": "nouns"}, "option label: expected verb, noun, action, got 'nouns'"),
        ("frames", {"fps": "0"}, "option fps: expected frames a second such as 25 or 30000/1001, got '0'"),
        ("ava", {"offset": "-1"}, "option offset: expected seconds from 0 to 902, got '-1'"),
        ("charades", {"per": "frame"}, "option per: expected video, action"),
        ("activitynet", {"subset": "training"}, "option subset: expected validation, testing"),
    ],
)
def test_options_of_another_value_are_refused(name: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        get(name, options)
    assert says in str(raised.value)


def test_options_of_another_name_are_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"no option 'splits'; did you mean 'split'"):
        get("hmdb51", {"splits": "1"})


def test_links_that_lead_back_are_followed_once(changed: Copy) -> None:
    root = changed("kinetics")
    (root / "train" / "again").symlink_to(root)
    assert len(read("kinetics", root).train) == 4


@pytest.mark.parametrize("mark", ["prepared.json", ".prepared.jsonl"])
def test_copies_that_were_prepared_below_a_data_set_are_none_of_its_videos(changed: Copy, mark: str) -> None:
    root = changed("hmdb51")
    listing = read("hmdb51", root)
    for video in (*listing.train, *(listing.val or ())):
        small = root / "prepared" / "train" / str(video.label) / f"{video.path.stem}.mp4"
        small.parent.mkdir(parents=True, exist_ok=True)
        small.touch()
    assert read("hmdb51", root).train != listing.train
    (root / "prepared" / mark).write_text("{}")
    assert read("hmdb51", root) == listing


def test_prepared_copies_take_the_place_of_originals_that_were_deleted(changed: Copy) -> None:
    root = changed("ucf101")
    listing = read("ucf101", root)
    videos = [*listing.train, *(listing.val or ())]
    for video in videos:
        small = root / "small" / f"{video.path.stem}.mp4"
        small.parent.mkdir(exist_ok=True)
        small.touch()
    (root / "small" / "prepared.json").write_text("{}")
    assert read("ucf101", root) == listing
    listing.train[0].path.unlink()
    now = read("ucf101", root)
    copy = root / "small" / f"{listing.train[0].path.stem}.mp4"
    assert now.train == (replace(listing.train[0], path=copy), *listing.train[1:])
    assert now.val == listing.val
    (note,) = now.notes
    assert note.startswith(f"{root}: 1 listed videos are copies")
    assert str(copy) in note
    for video in videos[1:]:
        video.path.unlink()
    now = read("ucf101", root)
    assert {video.path.parent for video in (*now.train, *(now.val or ()))} == {root / "small"}


@pytest.mark.parametrize("name", ["folders", "frames"])
def test_copies_that_were_prepared_beside_class_folders_are_no_class(copy: Copy, tmp_path: Path, name: str) -> None:
    made = copy("frames") if name == "frames" else copy("hmdb51")
    for label in ("run", "walk"):
        shutil.copytree(made / "train" / label if name == "frames" else made / label, tmp_path / label)
    listing = read(name, tmp_path)
    shutil.copytree(tmp_path / "run", tmp_path / "prepared" / "train" / "run")
    (tmp_path / "prepared" / "prepared.json").write_text("{}")
    assert read(name, tmp_path) == listing


@pytest.mark.parametrize("locked", ["a", "a/deeper"])
def test_a_folder_of_videos_that_cannot_be_read_is_no_empty_one(tmp_path: Path, locked: str) -> None:
    for name in ("a/0.mp4", "a/deeper/1.mp4", "b/2.mp4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    folder = tmp_path / locked
    folder.chmod(0o311)  # to be entered, not to be listed
    with obeying_permissions(), pytest.raises(InvalidFile) as raised:
        read("folders", tmp_path)
    folder.chmod(0o755)
    assert str(raised.value) == f"{folder}: cannot be read (Permission denied)"


@contextlib.contextmanager
def locked(folder: Path, mode: int) -> Iterator[None]:
    """As if somebody else's: 0o311 is to be entered and not to be listed, 0o600 not to be entered."""
    folder.chmod(mode)
    try:
        with obeying_permissions():
            yield
    finally:
        folder.chmod(0o755)


def test_a_side_of_archives_that_cannot_be_read_is_no_missing_one(tmp_path: Path, copy: Copy) -> None:
    for side in ("train", "val"):
        (tmp_path / side).mkdir()
        shutil.copy(copy("webdataset") / f"{side}-000000.tar", tmp_path / side / "0.tar")
    with locked(tmp_path / "val", 0o311), pytest.raises(InvalidFile) as raised:
        read("webdataset", tmp_path)
    assert str(raised.value) == f"{tmp_path / 'val'}: cannot be read (Permission denied)"
    (tmp_path / "lost+found").mkdir()
    with locked(tmp_path / "lost+found", 0o000):
        listing = read("webdataset", tmp_path)
    assert (len(listing.train), len(listing.val or ())) == (4, 2)
    assert listing.notes == (f"{tmp_path / 'lost+found'}: cannot be read (Permission denied); left out",)


@pytest.mark.parametrize(
    ("name", "folder", "video"),
    [
        ("mmaction2", "videos_train/run", "videos_train/run/0.mp4"),
        ("mmaction2_frames", "rawframes/run", "rawframes/run/0"),
        ("frame_lists", "Charades_v1_rgb", "Charades_v1_rgb/V0"),
    ],
)
def test_listed_videos_in_a_folder_that_cannot_be_entered_are_not_missing(
    changed: Copy, name: str, folder: str, video: str
) -> None:
    root = changed(name)
    with locked(root / folder, 0o600), pytest.raises(InvalidFile) as raised:
        read(name.removesuffix("_frames").replace("_", "-"), root)
    assert str(raised.value) == f"{root / video}: cannot be read (Permission denied)"


@pytest.mark.parametrize("name", ["kinetics", "ucf101", "frames"])
def test_a_folder_that_cannot_be_read_is_an_error_of_its_data_set(changed: Copy, name: str) -> None:
    root = changed(name)
    folder = min(path.parent for end in ("mp4", "avi", "jpg") for path in root.rglob(f"*.{end}"))
    with locked(folder, 0o311), pytest.raises(InvalidFile) as raised:
        read(name, root)
    assert str(raised.value) == f"{folder}: cannot be read (Permission denied)"


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("ucf101", "ucfTrainTestlist"),
        ("hmdb51", "testTrainMulti_7030_splits"),
        ("something_something", "labels"),
    ],
)
def test_a_data_set_is_not_taken_for_another_where_its_own_lists_cannot_be_read(
    changed: Copy, name: str, folder: str
) -> None:
    root = changed(name)
    assert (root / folder).is_dir()
    for side in ("train", "val"):
        (root / f"{side}.txt").write_text(f"{folder} 0\n")
    for mode in (0o000, 0o311, 0o600):
        with locked(root / folder, mode), pytest.raises(InvalidFile) as raised:
            read_path(reader_of(root), root)
        assert str(raised.value) == f"{root / folder}: cannot be read (Permission denied)"


def test_a_folder_that_is_a_loop_of_links_is_no_missing_one(changed: Copy) -> None:
    root = changed("kinetics")
    for file in (root / "train.csv", root / "val.csv"):
        file.unlink()
    (root / "annotations").symlink_to("annotations")
    with pytest.raises(InvalidFile, match=r"annotations: cannot be read \(Too many levels of symbolic links\)$"):
        reader_of(root)


def test_parquet_files_in_a_folder_that_cannot_be_read_are_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "train-0.parquet").touch()
    (tmp_path / "data").mkdir()
    for asked in (lambda: reader_of(tmp_path), lambda: read("huggingface", tmp_path)):
        with locked(tmp_path / "data", 0o311), pytest.raises(InvalidFile) as raised:
            asked()
        assert str(raised.value) == f"{tmp_path / 'data'}: cannot be read (Permission denied)"


def test_sides_of_archives_are_not_taken_for_class_folders_where_one_cannot_be_read(tmp_path: Path) -> None:
    for side in ("train", "val"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "0.tar").touch()
    for side in ("train", "val"):
        with locked(tmp_path / side, 0o311), pytest.raises(InvalidFile) as raised:
            reader_of(tmp_path)
        assert str(raised.value) == f"{tmp_path / side}: cannot be read (Permission denied)"


def test_a_list_in_a_folder_whose_parent_cannot_be_listed_is_refused_for_itself(tmp_path: Path) -> None:
    file = tmp_path / "mine" / "list.txt"
    file.parent.mkdir()
    file.write_text("a\n")
    with locked(tmp_path, 0o311), pytest.raises(InvalidFile, match=r"list\.txt:1: expected 'path label'"):
        read_path(reader_of(file), file)
