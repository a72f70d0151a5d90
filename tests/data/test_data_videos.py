import hashlib
import io
import os
import random
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hwbench.data.readers import ListedVideo, Listing, get
from hwbench.data.readers.lists import read_list
from hwbench.data.videos import read_splits, splits_of
from hwbench.errors import InvalidFile, UnknownName


def touch(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_class_folders_with_train_and_val(tmp_path: Path) -> None:
    touch(tmp_path, "train/b/2.mp4", "train/b/1.AVI", "train/a/deep/x.mkv", "train/a/notes.txt", "val/a/y.webm")
    touch(tmp_path, "train/.hidden/z.mp4")
    splits = read_splits(tmp_path)
    assert splits.train.classes == splits.val.classes == ("a", "b")
    assert [p.name for p in splits.train.paths] == ["x.mkv", "1.AVI", "2.mp4"]
    assert splits.train.labels == (0, 1, 1)
    assert splits.val.labels == (0,)


def test_a_path_may_be_text(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/x.mp4", "train/b/y.mp4", "val/a/z.mp4")
    assert read_splits(str(tmp_path)) == read_splits(tmp_path)
    with pytest.raises(UnknownName, match=r"no data at .*missing"):
        read_splits(f"{tmp_path}/missing")


def test_class_folders_called_by_numbers_are_names(tmp_path: Path) -> None:
    touch(tmp_path, "train/10/x.mp4", "train/2/y.mp4", "test/2/z.mp4")
    splits = read_splits(tmp_path)
    assert splits.train.classes == ("10", "2")
    assert splits.val.labels == (1,)


@pytest.mark.parametrize("name", ["validation", "valid"])
def test_the_other_names_of_the_side_to_validate_on(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "train/a/x.mp4", "train/b/y.mp4", f"{name}/b/z.mp4", "test/a/v.mp4")
    splits = read_splits(tmp_path)
    assert splits.train.classes == ("a", "b")
    assert [path.name for path in splits.val.paths] == ["z.mp4"]


def test_train_without_another_side_is_no_class(tmp_path: Path) -> None:
    touch(tmp_path, "split/train/a/x.mp4", "split/train/b/y.mp4", "split/extra/a/z.mp4", "split/.cache/q.mp4")
    with pytest.raises(InvalidFile, match=r"split: train/ without val/ .*--data .*split/train"):
        read_splits(tmp_path / "split")
    touch(tmp_path, *(f"vehicles/{name}/{i}.mp4" for name in ("car", "train") for i in range(2)))
    assert read_splits(tmp_path / "vehicles").train.classes == ("car", "train")


@pytest.mark.parametrize(
    ("train", "val"),
    [("Train", "Test"), ("training", "validation"), ("TRAIN", "dev"), ("train_256", "val_256"), ("train", "val-2")],
)
def test_sides_of_class_folders_have_any_usual_word(tmp_path: Path, train: str, val: str) -> None:
    touch(tmp_path, f"{train}/a/x.mp4", f"{train}/b/y.mp4", f"{val}/b/z.mp4")
    splits = read_splits(tmp_path)
    assert splits.train.classes == ("a", "b")
    assert [path.name for path in splits.val.paths] == ["z.mp4"]
    assert splits.notes == ()


def test_classes_may_be_called_like_sides(tmp_path: Path) -> None:
    touch(tmp_path, *(f"gym/{name}/{i}.mp4" for name in ("training", "testing", "rest") for i in range(2)))
    assert read_splits(tmp_path / "gym").train.classes == ("rest", "testing", "training")
    touch(tmp_path, *(f"pets/{name}/{i}.mp4" for name in ("training dog", "test of cat") for i in range(2)))
    assert read_splits(tmp_path / "pets").train.classes == ("test of cat", "training dog")
    touch(tmp_path, *(f"flat/{name}/{i}.mp4" for name in ("Train", "Test") for i in range(2)))
    with pytest.raises(InvalidFile, match=r"flat/Train: expected one folder of videos per class"):
        read_splits(tmp_path / "flat")


def test_what_lies_beside_the_sides_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/x.mp4", "val/a/y.mp4", "test/a/z.mp4", "train_more/a/v.mp4", "extra/a/w.mp4", "docs/a.txt")
    touch(tmp_path, "train/b/x.mp4")
    assert read_splits(tmp_path).notes == (f"{tmp_path}: extra/, train_more/ left out beside train/ and val/",)


def test_sides_that_are_no_pair_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "none/Validation/a/x.mp4", "none/test/a/y.mp4")
    with pytest.raises(InvalidFile, match=r"none: Validation/, test/ without train/; .*--data .*none/Validation"):
        read_splits(tmp_path / "none")
    touch(tmp_path, "two/train/a/x.mp4", "two/Training/a/x.mp4", "two/val/a/y.mp4")
    with pytest.raises(InvalidFile, match=r"two: expected one folder for each side, got Training/, train/ for one"):
        read_splits(tmp_path / "two")
    touch(tmp_path, "one/Train/a/x.mp4", "one/more/a/y.mp4")
    with pytest.raises(InvalidFile, match=r"one: Train/ without val/ .*--data .*one/Train"):
        read_splits(tmp_path / "one")


def test_plain_class_folders_are_split_by_the_seed(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{name}/{i}.mp4" for name in "ab" for i in range(10)), "c/0.mp4")
    first, again, other = read_splits(tmp_path), read_splits(tmp_path), read_splits(tmp_path, seed=1)
    assert first == again
    assert set(first.val.paths) != set(other.val.paths)
    assert len(first.val) == 4  # a fifth of each class that has two videos
    assert not set(first.train.paths) & set(first.val.paths)
    assert len(first.train) + len(first.val) == 21
    touch(tmp_path, "a/10.mp4")
    kept = {p for p in first.val.paths if p.parent.name == "b"}
    assert kept == {p for p in read_splits(tmp_path).val.paths if p.parent.name == "b"}


UCF = [f"v_{name}_g{group:02d}_c{clip:02d}.avi" for name in ("YoYo", "Kiss") for group in range(5) for clip in range(4)]


@pytest.mark.parametrize(
    ("names", "group_of"),
    [
        ([f"{name.split('_')[1]}/{name}" for name in UCF], lambda path: path.stem[:-4]),
        (
            [f"{kind}/v_{kind}_{group:02d}/v_{kind}_{group:02d}_{clip:02d}.mpg" for kind in ("biking", "golf")
             for group in range(5) for clip in range(4)],
            lambda path: path.parent.name,
        ),
    ],
    ids=["ucf101", "ucf11"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["folders", "list"])
def test_clips_of_a_group_of_ucf_are_on_one_side(
    tmp_path: Path, names: list[str], group_of: Callable[[Path], str], form: str
) -> None:
    touch(tmp_path, *names)
    data = tmp_path
    if form == "list":
        data = tmp_path / "all.txt"
        data.write_text("".join(f"{name} {name.partition('/')[0]}\n" for name in names))
    for seed in range(5):
        splits = read_splits(data, seed=seed)
        assert (len(splits.train), len(splits.val)) == (32, 8)
        assert not {group_of(path) for path in splits.train.paths} & {group_of(path) for path in splits.val.paths}
        assert "tell groups of UCF" in splits.notes[0]


@pytest.mark.parametrize("folders", [True, False])
def test_clips_of_a_group_of_ucf_in_an_archive_are_on_one_side(tmp_path: Path, folders: bool) -> None:
    archive = tmp_path / "ucf.tar"
    with tarfile.open(archive, "w") as tar:
        for name in UCF:
            kind = name.split("_")[1]
            for member, content in ((name, b"x"), (f"{name[:-4]}.txt", kind.encode())):
                info = tarfile.TarInfo(f"{kind}/{member}" if folders else member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    splits = read_splits(archive)
    groups = [
        {source.member.rpartition("_c")[0] for source in side.sources.values()} for side in (splits.train, splits.val)
    ]
    assert [len(side) for side in (splits.train, splits.val)] == [32, 8]
    assert not groups[0] & groups[1]
    assert "names such as v_YoYo_g00_c00.avi tell groups of UCF" in splits.notes[0]


def test_one_other_name_is_no_set_of_ucf(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{name.split('_')[1]}/{name}" for name in UCF), "Kiss/mine.avi")
    assert read_splits(tmp_path).notes == ()


def test_groups_of_ucf_may_leave_nothing_to_validate_on(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{label}/v_{label}_g01_c0{clip}.avi" for label in "ab" for clip in range(4)))
    with pytest.raises(InvalidFile, match="no class has videos of two groups"):
        read_splits(tmp_path)


def test_a_split_of_before_there_were_groups_is_drawn_again(tmp_path: Path) -> None:
    listed = [ListedVideo(tmp_path / name, name.split("_")[1]) for name in UCF]
    # As before: each file a group of its own.
    alone = tuple(replace(video, group=video.path.name) for video in listed)
    before, now = splits_of(Listing(alone), tmp_path), splits_of(Listing(tuple(listed)), tmp_path)
    assert before.val.paths != now.val.paths
    assert splits_of(Listing(tuple(listed)), tmp_path, trained_on=before.train.identity) == before
    for other in (now.train.identity, "of other videos"):
        assert splits_of(Listing(tuple(listed)), tmp_path, trained_on=other) == now


def validation_names(listed: list[ListedVideo], seed: int) -> set[str]:
    """The groups to validate on by the definition, a label at a time; each video has a group.

    A group without which a class has nothing to train on is passed over.
    """
    classes = sorted({label for video in listed for label in video.labels})
    val: set[str] = set()
    train: set[str] = set()
    for label in classes:
        members = sorted({video.group for video in listed if label in video.labels})
        count = max(1, round(0.2 * len(members))) if len(members) > 1 else 0
        chosen = sorted(members, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).hexdigest())
        decided = sum(name in val for name in members)
        for name in chosen:
            trained = {one for video in listed if video.group not in val | {name} for one in video.labels}
            if decided < count and name not in val | train and len(trained) == len(classes):
                val.add(name)
                decided += 1
        train |= set(members) - val
    return val


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("videos", "classes"), [(2, 1), (9, 4), (60, 7), (150, 40), (400, 3)])
def test_the_split_is_the_one_of_before(tmp_path: Path, videos: int, classes: int, several: bool) -> None:
    rng = random.Random(videos)
    for seed in range(3):
        labels = [
            f"c{rng.randrange(classes)}"
            if not several
            else tuple(f"c{rng.randrange(classes)}" for _ in range(rng.randint(1, 3)))
            for _ in range(videos - 2)
        ]
        labels += ["c0" if not several else ("c0",)] * 2
        groups = [f"g{rng.randrange(2 * videos)}" for _ in range(videos - 2)] + ["one", "two"]
        listed = [
            ListedVideo(tmp_path / f"{i}.mp4", label, group=group)
            for i, (label, group) in enumerate(zip(labels, groups))
        ]
        val = validation_names(listed, seed)
        splits = splits_of(Listing(tuple(listed)), tmp_path, seed=seed)
        assert splits.val.paths == tuple(video.path for video in listed if video.group in val)
        assert splits.train.paths == tuple(video.path for video in listed if video.group not in val)


def test_a_fifth_of_the_videos_without_a_class_is_validated_on(tmp_path: Path) -> None:
    labels = [("a",)] * 10 + [("b",)] * 10 + [()] * 80
    listed = [ListedVideo(tmp_path / f"{i}.mp4", label) for i, label in enumerate(labels)]
    splits = splits_of(Listing(tuple(listed)), tmp_path)
    assert (splits.train.labels.count(()), splits.val.labels.count(())) == (64, 16)
    shown = splits_of(Listing(tuple(listed[:20])), tmp_path)
    assert shown.val.paths == splits.val.paths[:4]
    assert splits.val.labels[4:] == ((),) * 16


@pytest.mark.parametrize("seed", range(20))
def test_a_class_of_one_group_or_of_few_videos_is_trained_on(tmp_path: Path, seed: int) -> None:
    rows = [(f"p{person}", label) for person in range(10) for label in ("run", "sit", "walk")]
    rows += [("p3", "wave")] * 2
    groups = [ListedVideo(tmp_path / f"{i}.mp4", label, group=group) for i, (group, label) in enumerate(rows)]
    rare = [ListedVideo(tmp_path / f"{i}.mp4", ("a", "rare")[: 1 + (i in (4, 17))]) for i in range(40)]
    for listed, count in ((groups, 6), (rare, 8)):
        splits = splits_of(Listing(tuple(listed)), tmp_path, seed=seed)
        trained = [video for video in listed if video.path in splits.train.paths]
        assert {label for video in trained for label in video.labels} == set(splits.train.classes)
        assert (len(splits.val), splits.notes) == (count, ())


def test_a_split_that_takes_a_class_away_is_told(tmp_path: Path) -> None:
    rows = [("one", "run"), ("one", "sit"), ("two", "run"), ("two", "walk")]
    listed = [ListedVideo(tmp_path / f"{i}.mp4", label, group=group) for i, (group, label) in enumerate(rows)]
    splits = splits_of(Listing(tuple(listed)), tmp_path)
    lost = {"sit", "walk"} - {splits.train.classes[label] for label in splits.train.labels}
    (note,) = splits.notes
    assert note == (
        f"no video is left to train on of {lost.pop()!r}: whatever is validated on takes a class away; say in the data "
        "set what to validate on"
    )


class CountedName(str):
    """A group whose comparisons are counted; two have the same hash, so that a set that it joins compares it."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return int(self) // 2


def test_the_work_of_a_split_grows_with_the_videos(tmp_path: Path) -> None:
    class CountedVideo(ListedVideo):
        looked_at = 0

        @property
        def labels(self) -> tuple[str, ...]:
            CountedVideo.looked_at += 1
            return super().labels

    count, classes = 1000, 50
    listed = tuple(CountedVideo(tmp_path / f"{i}.mp4", f"c{i % classes}", group=CountedName(i)) for i in range(count))
    CountedName.compared = 0
    splits = splits_of(Listing(listed), tmp_path)
    assert len(splits.val) == count / 5
    assert CountedVideo.looked_at < 10 * count
    assert CountedName.compared < 5 * count


@pytest.mark.parametrize(("end", "separator"), [("txt", " "), ("csv", "\t"), ("txt", "   ")])
def test_lists_of_names_and_numbers(tmp_path: Path, end: str, separator: str) -> None:
    (tmp_path / f"train.{end}").write_text(
        f"# comment\n\nsome dir/a b.mp4{separator}jump\n/abs/c.mp4{separator}run  \n", encoding="utf-8"
    )
    (tmp_path / f"val.{end}").write_text(f"d.mp4{separator}run\n")
    touch(tmp_path, "some dir/a b.mp4", "d.mp4")
    for path in (tmp_path, tmp_path / f"train.{end}"):
        splits = read_splits(path)
        assert splits.train.paths == (tmp_path / "some dir/a b.mp4", Path("/abs/c.mp4"))
        assert splits.train.classes == ("jump", "run")
        assert splits.val.labels == (1,)


def test_numbers_keep_their_value(tmp_path: Path) -> None:
    touch(tmp_path, "a.mp4")
    (tmp_path / "all.txt").write_text("a.mp4 0\nb.mp4 0\nc.mp4 02\nd.mp4 2\n")
    splits = read_splits(tmp_path / "all.txt")
    assert splits.train.classes == ("0", "1", "2")
    assert sorted({*splits.train.labels, *splits.val.labels}) == [0, 2]
    assert len(splits.val) == 2


@pytest.mark.parametrize("other", ["val", "test"])
def test_the_list_of_the_other_side_is_found_by_the_rest_of_its_name(tmp_path: Path, other: str) -> None:
    train, val = tmp_path / "ucf101_train_split_1_videos.txt", tmp_path / f"ucf101_{other}_split_1_videos.txt"
    touch(tmp_path, *(f"{i}.mp4" for i in range(11)))
    train.write_text("".join(f"{i}.mp4 {i % 2}\n" for i in range(8)))
    alone = read_splits(train)
    assert (len(alone.train), len(alone.val), alone.notes) == (6, 2, ())
    val.write_text("8.mp4 0\n9.mp4 1\n10.mp4 1\n")
    splits = read_splits(train)
    assert (len(splits.train), [path.stem for path in splits.val.paths]) == (8, ["8", "9", "10"])
    assert splits.notes == (f"{train}: {val.name} beside it is the list to validate on",)
    train.rename(tmp_path / "constrained.txt")
    val.rename(tmp_path / f"cons{other}ed.txt")
    assert len(read_splits(tmp_path / "constrained.txt").val) == 2  # train is no word of this name


@pytest.mark.parametrize(
    ("train", "others"),
    [
        ("training_c", ["validation_c", "val_c", "testing_c"][::-1]),
        ("my_train_of_train", ["my_val_of_train"]),
        ("train_of_train", ["val_of_val"]),
        ("Train_b", ["Val_b", "Test_b"][::-1]),
        ("constrained_train", ["constrained_test"]),
    ],
)
def test_one_word_of_the_name_of_a_list_tells_its_side(tmp_path: Path, train: str, others: list[str]) -> None:
    touch(tmp_path, *(f"{i}.mp4" for i in range(9)))
    (tmp_path / f"{train}.txt").write_text("0.mp4 0\n1.mp4 0\n")
    for number, name in enumerate(others, start=2):
        (tmp_path / f"{name}.txt").write_text(f"{number}.mp4 0\n")
        if name != "validation_c":  # val goes before validation
            assert [path.stem for path in read_splits(tmp_path / f"{train}.txt").val.paths] == [str(number)]
    assert (tmp_path / f"{train}.txt").is_file()


def test_a_machine_with_the_videos_to_validate_on_alone_reads_both_lists(tmp_path: Path) -> None:
    touch(tmp_path, "v/2.mp4")
    (tmp_path / "train.txt").write_text("v/0.mp4 0\nv/1.mp4 1\n")
    (tmp_path / "val.txt").write_text("v/2.mp4 0\n")
    splits = read_splits(tmp_path)
    assert (len(splits.train), splits.val.paths) == (2, (tmp_path / "v/2.mp4",))
    assert splits.notes[0].startswith(f"{tmp_path}/train.txt:1: none of the 2 listed videos is there")
    (tmp_path / "v/2.mp4").unlink()
    with pytest.raises(InvalidFile, match=r"train.txt:1: none of the 2 listed videos is there"):
        read_splits(tmp_path)


def test_a_list_beside_without_labels_is_left_out(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{i}.mp4" for i in range(8)))
    train = tmp_path / "train_list.txt"
    train.write_text("".join(f"{i}.mp4 {i % 2}\n" for i in range(6)))
    alone = read_splits(train)
    (tmp_path / "test_list.txt").write_text("6.mp4\n7.mp4\n")
    splits = read_splits(train)
    assert (splits.train, splits.val) == (alone.train, alone.val)
    (note,) = splits.notes
    assert note.startswith(f"{tmp_path}/test_list.txt:1: expected 'path label'")
    assert note.endswith("; test_list.txt is left out, and videos to validate on are drawn")
    train.rename(tmp_path / "train.txt")
    (tmp_path / "test_list.txt").rename(tmp_path / "test.txt")
    with pytest.raises(InvalidFile, match=r"test.txt:1: expected 'path label'"):
        read_splits(tmp_path / "train.txt")


@pytest.mark.parametrize("root", ["", "rawframes_train"])
def test_lists_of_folders_with_their_frames_name_their_reader(tmp_path: Path, root: str) -> None:
    touch(tmp_path / root, *(f"a b/clip{i}/img_{frame:05d}.jpg" for i in range(4) for frame in range(1, 4)))
    file = tmp_path / "list.txt"
    file.write_text("".join(f"a b/clip{i} 3 {i % 2}\n" for i in range(4)))
    with pytest.raises(InvalidFile) as caught:
        read_splits(file)
    expected = f"{file}:1: a b/clip0 is a folder; for lines 'FOLDER FRAMES LABEL': --data mmaction2:{file}"
    assert str(caught.value) == expected
    splits = read_splits(file, reader=get("mmaction2"))
    assert (len(splits.train), len(splits.val)) == (2, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.mp4 1\nonlyapath.mp4\n", "list.txt:2"),
        ("a.mp4,1\n", "list.txt:1"),
        ("a.mp4 1\nb.mp4 jump\n", "all whole numbers or all names, got 1 and 'jump'; write .* such as c1 for 1$"),
        ("a.mp4 -1\nb.mp4 0\n", "whole numbers from 0"),
        ("a.mp4 99999999999\nb.mp4 0\n", "whole numbers from 0"),
        ("", "found none"),
        ("# nothing\n", "found none"),
        ("a.mp4 1\n", "validate"),
    ],
)
def test_wrong_lists_say_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "list.txt"
    file.write_text(text)
    touch(tmp_path, "a.mp4")
    with pytest.raises(InvalidFile, match=words) as caught:
        read_splits(file)
    assert "list.txt" in str(caught.value)


def test_a_list_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InvalidFile, match=r"list\.txt"):
        read_list(file)


def test_wrong_folders_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="synthetic"):
        read_splits(tmp_path / "nowhere")
    with pytest.raises(InvalidFile, match="one folder of videos per class"):
        read_splits(tmp_path)
    (tmp_path / "empty-class").mkdir()
    with pytest.raises(InvalidFile, match="empty-class"):
        read_splits(tmp_path)
    touch(tmp_path / "other", "train/a/x.mp4", "val/b/y.mp4")
    with pytest.raises(InvalidFile, match="'b'"):
        read_splits(tmp_path / "other")


def test_the_identity_changes_with_the_videos_and_not_with_the_place(tmp_path: Path) -> None:
    for root in (tmp_path / "one", tmp_path / "two"):
        touch(root, *(f"{name}/{i}.mp4" for name in "ab" for i in range(5)))
    one, two = read_splits(tmp_path / "one"), read_splits(tmp_path / "two")
    assert one.train.identity == two.train.identity != one.val.identity
    touch(tmp_path / "two", "a/more.mp4", "a/most.mp4")
    assert read_splits(tmp_path / "two").train.identity != one.train.identity


def test_names_need_not_be_utf8(tmp_path: Path) -> None:
    name, other = (os.fsdecode(b"c\xe9/v\xe9%d.mp4" % number) for number in (1, 2))
    touch(tmp_path, *(f"{label}/{number}.mp4" for label in "ab" for number in range(4)), name, other)
    splits = read_splits(tmp_path)
    assert {path.name for path in (*splits.train.paths, *splits.val.paths)} >= {Path(name).name, Path(other).name}
    before = (splits.train.identity, splits.val.identity)
    assert before == tuple(side.identity for side in (read_splits(tmp_path).train, read_splits(tmp_path).val))
    (tmp_path / name).rename(tmp_path / os.fsdecode(b"c\xe9/w\xe9.mp4"))
    splits = read_splits(tmp_path)
    assert before != (splits.train.identity, splits.val.identity)


def test_a_list_names_streams(tmp_path: Path) -> None:
    touch(tmp_path, "a.mkv", "c.mkv")
    (tmp_path / "train.txt").write_text("a.mkv 0\na b.mkv 1 stream=2\na.mkv\t0\tstream=1\n")
    (tmp_path / "val.txt").write_text("c.mkv 1\n")
    splits = read_splits(tmp_path)
    assert [path.name for path in splits.train.paths] == ["a.mkv", "a b.mkv", "a.mkv"]
    assert (splits.train.labels, splits.train.streams) == ((0, 1, 0), {1: 2, 2: 1})
    assert splits.train.subset([2, 0]).streams == {0: 1}
    assert splits.val.streams == {}


def test_a_named_stream_is_part_of_what_a_run_goes_on_with(tmp_path: Path) -> None:
    def identity(text: str) -> str:
        (tmp_path / "all.txt").write_text(text)
        return read_splits(tmp_path / "all.txt").train.identity

    touch(tmp_path, "a.mp4")
    plain = identity("a.mp4 0\na.mp4 0\nb.mp4 0\n")
    assert plain == identity("# the same\na.mp4 0\na.mp4 0\nb.mp4 0\n")
    assert len({plain, identity("a.mp4 0 stream=1\na.mp4 0 stream=0\nb.mp4 0 stream=0\n")}) == 2


def test_lists_of_before_keep_their_meaning(tmp_path: Path) -> None:
    touch(tmp_path, "clip one.mp4", "clip.mp4")
    (tmp_path / "all.txt").write_text("clip one.mp4 stream=1\nclip.mp4 stream=1\n")
    assert {(video.path.name, video.label, video.stream) for video in read_list(tmp_path / "all.txt")} == {
        ("clip one.mp4", "stream=1", None),
        ("clip.mp4", "stream=1", None),
    }


@pytest.mark.parametrize("behind", ["stream=x", "stream=12345", "stream=", "fps=25", "start_s=1.5"])
def test_what_a_line_says_behind_its_label_is_a_stream(behind: str, tmp_path: Path) -> None:
    touch(tmp_path, "clip.mp4", "clip one.mp4")
    (tmp_path / "all.txt").write_text(f"clip.mp4 right\nclip.mp4 left {behind}\n")
    with pytest.raises(InvalidFile) as raised:
        read_list(tmp_path / "all.txt")
    expected = "expected 'path label' with a space between, or 'path label stream=NUMBER'"
    assert str(raised.value) == f"{tmp_path / 'all.txt'}:2: {expected}, got 'clip.mp4 left {behind}'"
    (tmp_path / "all.txt").write_text(f"clip one.mp4 {behind}\nclip.mp4 {behind}\nmissing clip.mp4 n=3\n")
    assert [video.label for video in read_list(tmp_path / "all.txt")] == [behind, behind, "n=3"]
