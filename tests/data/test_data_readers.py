"""hwbench's own readers pass the suite that readers of other packages pass, and ``--data READER:PATH`` finds them."""

import functools
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas
import pytest
from plugin_packages import offer

from hwbench.data import listing_of, open_splits
from hwbench.data.readers import OWN, get, read, reader_of, readers
from hwbench.data.readers.folders import read_folder
from hwbench.data.readers.lists import read_list
from hwbench.errors import InvalidFile, UnknownName
from hwbench.testing import datasets
from hwbench.testing.datasets import COPIES, folders, lists
from hwbench.testing.readers import ReaderConformance
from hwbench.workspace import Workspace

INSTALL = "pip install hwbench[huggingface]"
NAMED = [
    pytest.param(name, marks=[pytest.mark.skipif(bool(copy.needs) and not find_spec(copy.needs), reason=INSTALL)])
    for name, copy in COPIES.items()
]


@pytest.fixture(scope="session")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Paths of the small copies, each made once."""

    @functools.cache
    def copy(name: str) -> Path:
        return COPIES[name].make(tmp_path_factory.mktemp(name))

    return copy


class TestOwnReaders(ReaderConformance):
    @pytest.fixture(params=NAMED)
    def reader(self, request: pytest.FixtureRequest) -> str:
        return request.param

    @pytest.fixture
    def data(self, reader: str, copies: Callable[[str], Path]) -> Path:
        return copies(reader)


def test_every_reader_of_hwbench_is_tested_here() -> None:
    assert {readers.get(name) for name in COPIES} == set(OWN)


def test_a_path_without_a_name_is_recognised_and_a_name_overrides_that(tmp_path: Path) -> None:
    both = lists(folders(tmp_path))
    assert type(reader_of(both)) is readers.get("lists")
    assert type(reader_of(both / "train")) is readers.get("folders")
    video = next((both / "val").rglob("*.mp4")).relative_to(both)
    (both / "val.txt").write_text(f"{video} {video.parent.name}\n")
    workspace = Workspace.create(tmp_path / "workspace")
    assert len(open_splits(workspace, str(both)).val) == 1
    assert len(open_splits(workspace, f"folders:{both}").val) == 2


def test_a_path_that_exists_is_a_path_though_it_has_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders(tmp_path / "lists:x")
    monkeypatch.chdir(tmp_path)
    assert len(open_splits(Workspace.create(tmp_path / "workspace"), "lists:x").train) == 4


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        ("folder:clips", UnknownName, "unknown reader of data 'folder'; did you mean 'folders'"),
        ("folders:nowhere", UnknownName, "no data at nowhere"),
        ("folders:", UnknownName, "no path behind 'folders:'; data are synthetic"),
        ("C:/clips", UnknownName, "no data at C:/clips"),
        ("lists:empty", InvalidFile, "empty: expected a list file, or a folder with train.txt and val.txt"),
        ("folders:file", InvalidFile, "file: expected a folder with one folder of videos per class, got a file"),
    ],
)
def test_wrong_names_and_paths_say_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, error: type[Exception], said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as raised:
        open_splits(Workspace.create(tmp_path / "workspace"), data)
    assert said in str(raised.value)


@pytest.mark.parametrize("name", ["My_Reader", "my.reader", "my_reader", "r", "C"])
def test_a_reader_is_found_by_every_name_that_is_listed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(
        monkeypatch,
        tmp_path,
        readers,
        "from hwbench.data.readers.folders import ClassFolders\n",
        {name: "ClassFolders"},
    )
    workspace = Workspace.create(tmp_path / "workspace")
    folders(tmp_path / "clips")
    assert name in readers.names()
    assert len(open_splits(workspace, f"{name}:{tmp_path / 'clips'}").train) == 4
    with pytest.raises(UnknownName, match="no data at D:/clips"):
        open_splits(workspace, "D:/clips")


def test_no_reader_is_called_as_the_sets_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, tmp_path, readers, "", {"synthetic": "Reader"})
    assert (readers.is_own("synthetic"), "synthetic" in readers.names()) == (True, False)


def test_lists_and_tables_of_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders(tmp_path / "clips")
    names = [str(path.relative_to(tmp_path)) for path in sorted((tmp_path / "clips").rglob("*.mp4"))]
    lines = "".join(f"{name} {name.split('/')[-2]}\r\n" for name in names)
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    padded = "".join(f"{name},{1 + place % 2:03}\n" for place, name in enumerate(names))
    (tmp_path / "padded.csv").write_text("path,label\n" + padded)
    monkeypatch.chdir(tmp_path)
    workspace = Workspace.create(tmp_path / "workspace")
    marked = open_splits(workspace, "marked.txt")
    assert {path.is_file() for path in (*marked.train.paths, *marked.val.paths)} == {True}
    assert open_splits(workspace, "table:padded.csv").train.classes == ("0", "1", "2")
    with pytest.raises(InvalidFile, match=r"got 'path,label'; a table: --data table:padded\.csv"):
        open_splits(workspace, "padded.csv")


def test_lists_know_the_other_names_of_their_sides(tmp_path: Path) -> None:
    both = lists(tmp_path)
    (both / "val.txt").rename(both / "Testing.txt")
    for path in (both, both / "train.txt"):
        assert len(readers.get("lists")().read(path).val or ()) == 2
    (both / "dev.txt").write_text("0.mp4 run\n")
    assert len(readers.get("lists")().read(both).val or ()) == 1


def test_a_label_behind_a_tab_may_have_blanks(tmp_path: Path) -> None:
    lines = {
        "a.mp4\tSwiping Left": ("a.mp4", "Swiping Left", None),
        "b c.mp4\t\tSliding Two Fingers Left": ("b c.mp4", "Sliding Two Fingers Left", None),
        "a.mp4 \t 007": ("a.mp4", "7", None),
        "a.mp4\tSwiping Left stream=1": ("a.mp4", "Swiping Left", 1),
        "a.mp4\tSwiping Left\tstream=2": ("a.mp4", "Swiping Left", 2),
        "b c.mp4 Left\tstream=3": ("b c.mp4", "Left", 3),
        "b c.mp4 Left": ("b c.mp4", "Left", None),
    }
    for name in ("a.mp4", "b c.mp4"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "all.txt").write_text("".join(f"{line}\n" for line in lines))
    videos = read_list(tmp_path / "all.txt")
    assert [(video.path.name, video.label, video.stream) for video in videos] == list(lines.values())
    (tmp_path / "all.txt").write_text("a.mp4\tSwiping Left\na.mp4\tSwiping Right stream=x\n")
    with pytest.raises(InvalidFile, match=r"all\.txt:2: expected 'path label' with a space between"):
        read_list(tmp_path / "all.txt")


def test_lists_of_which_no_video_is_there_are_refused_with_their_first_line(tmp_path: Path) -> None:
    both = lists(tmp_path)
    (both / "val.txt").write_text("# of another folder\nelsewhere/a.mp4 run\nelsewhere/b.mp4 walk\n")
    first = str(both / "elsewhere" / "a.mp4")
    missing = f"{both / 'val.txt'}:2: none of the 2 listed videos is there; the first is {first!r}"
    assert read(get("lists"), both).notes == (missing,)
    (both / "train.txt").write_text((both / "val.txt").read_text())
    with pytest.raises(InvalidFile) as raised:
        read(get("lists"), both)
    assert str(raised.value) == missing.replace("val.txt", "train.txt")


@pytest.mark.parametrize(
    ("name", "file", "reader"),
    [
        ("kinetics", "train.csv", "kinetics"),
        ("charades", "Charades_v1_train.csv", "charades"),
        ("epic_kitchens", "annotations/EPIC_100_train.csv", "epic-kitchens"),
        ("something_something", "labels/train.json", "something-something"),
        ("diving48", "Diving48_V2_train.json", "diving48"),
        ("ucf101", "ucfTrainTestlist/trainlist01.txt", "ucf101"),
        ("frame_lists", "frame_lists/train.csv", "frame-lists"),
    ],
)
def test_a_file_of_a_published_data_set_is_answered_with_its_reader(
    tmp_path: Path, name: str, file: str, reader: str
) -> None:
    root = getattr(datasets, name)(tmp_path / "a set")
    with pytest.raises(InvalidFile) as raised:
        read(reader_of(root / file), root / file)
    said = f"; {reader} reads the folder of the data set: --data '{reader}:{root}'"
    assert str(raised.value).startswith(f"{root / file}:")
    assert str(raised.value).endswith(said)


@pytest.mark.parametrize("text", ['[{"vid_name": "a b", "label": 1}]', '{\n "a": {"label": "b c"}\n}\n'])
def test_json_is_no_list(tmp_path: Path, text: str) -> None:
    file = tmp_path / "labels.json"
    file.write_text(text)
    with pytest.raises(InvalidFile) as raised:
        read(reader_of(file), file)
    assert str(raised.value) == f"{file}: expected lines 'path label', got JSON"
    (tmp_path / "[a] b.mp4").write_bytes(b"")
    file.write_text("[a] b.mp4 run\n")
    assert read(reader_of(file), file).train[0].path == tmp_path / "[a] b.mp4"


def test_lists_of_jester_are_answered_with_what_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "jester-v1-train.csv"
    file.write_text("1;Swiping Left\n2;No gesture\n")
    with pytest.raises(InvalidFile, match=r"train.csv:1: none of the 2 .*; 'ID;CLASS' is of 20BN-Jester: docs/guides"):
        read(reader_of(file), file)


def test_class_folders_follow_links_and_pass_over_names_with_a_dot(tmp_path: Path) -> None:
    folders(tmp_path / "clips")
    before = len(read_folder(tmp_path / "clips"))
    sub = next(path for path in (tmp_path / "clips").iterdir() if path.is_dir())
    (sub / "._a.mp4").write_bytes(b"")
    (sub / ".trash").mkdir()
    (sub / ".trash" / "b.mp4").write_bytes(b"")
    assert len(read_folder(tmp_path / "clips")) == before
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c.mp4").write_bytes(b"")
    (sub / "more").symlink_to(tmp_path / "elsewhere")
    (sub / "round").symlink_to(sub)
    assert len(read_folder(tmp_path / "clips")) == before + 1


@pytest.mark.parametrize("form", ["folders", "frames"])
@pytest.mark.parametrize("part", ["", "train"])
def test_a_class_of_a_prepared_folder_that_has_no_folder_any_more_is_told(tmp_path: Path, form: str, part: str) -> None:
    root = tmp_path / "prepared"
    for side, name in (("train", "run"), ("train", "walk"), ("val", "run"), ("val", "jump")):
        video = root / side / name / ("0" if form == "frames" else "0.mp4")
        video.parent.mkdir(parents=True)
        video.mkdir() if form == "frames" else video.write_bytes(b"")
        if form == "frames":
            (video / "img_00001.jpg").write_bytes(b"")
    reader = readers.get(form)()
    for names in (["walk", "run", "jump"], ["walk", "swim", "run", "jump"]):
        (root / "prepared.json").write_text(json.dumps({"class_folders": names}))
        read = reader.read(root / part)
        assert read.classes == tuple(names)
        assert len(read.notes) == ("swim" in names)
    assert read.notes == (
        f"{root}: classes without a folder keep their numbers: 'swim'; to drop them, which gives later classes other "
        "numbers, remove them from class_folders in prepared.json",
    )


# Of four classes the second and the fourth.
BITS = [0, 1, 0, 1]
TWICE = r"label .*0.* names class 0 twice; expected a list of classes, not a 0 or 1 for each"


def test_a_zero_or_one_for_each_class_is_no_list_of_classes(tmp_path: Path) -> None:
    for label in (BITS, tuple(BITS), np.array(BITS), np.array(BITS, np.float32), [0, 0, 0, 0]):
        with pytest.raises(InvalidFile, match=f"^rows:2: {TWICE}"):
            listing_of([{"path": "a.mp4", "label": [2, 3, 3]}, {"path": "b.mp4", "label": label}])
    frame = pandas.DataFrame({"path": ["a.mp4"], "label": [np.array(BITS)]})
    with pytest.raises(InvalidFile, match=f"^rows:1: {TWICE}"):
        listing_of(frame)
    (tmp_path / "all.csv").write_text("path,label\na.mp4,0|1|0|1\n")
    with pytest.raises(InvalidFile, match=f"all.csv:2: {TWICE}"):
        readers.get("table")("|").read(tmp_path / "all.csv")
    labels = ([0, 1], [2, 2, 1], ["run", "run"])
    listed = [listing_of([{"path": "a.mp4", "label": label}]).train[0].label for label in labels]
    assert listed == [("0", "1"), ("2", "1"), ("run",)]


@pytest.mark.skipif(not find_spec("pyarrow"), reason=INSTALL)
@pytest.mark.parametrize("reader", ["table", "huggingface"])
def test_a_zero_or_one_for_each_class_of_a_parquet_file_is_refused(reader: str, tmp_path: Path) -> None:
    paths = ["a.mp4", "b.mp4"]
    rows = {"path": paths, "video": paths, "label": [[1, 0, 0, 0], BITS]}
    pandas.DataFrame(rows).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(InvalidFile, match=r"train\.parquet.*: " + TWICE):
        readers.get(reader)().read(tmp_path / "train.parquet")
