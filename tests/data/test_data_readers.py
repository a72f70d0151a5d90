"""hwbench's own readers pass the suite that readers of other packages pass, and ``--data READER:PATH`` finds them."""

from pathlib import Path

import pytest

from hwbench.data import open_splits
from hwbench.data.readers import OWN, reader_of, readers
from hwbench.errors import InvalidFile, UnknownName
from hwbench.testing.readers import ReaderConformance
from hwbench.workspace import Workspace


def folders(root: Path) -> Path:
    for part in ("train", "val"):
        for name in ("jump", "run"):
            for number in range(2):
                path = root / part / name / f"{number}.mp4"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x")
    return root


def lists(root: Path) -> Path:
    folders(root)
    for part in ("train", "val"):
        videos = sorted((root / part).rglob("*.mp4"))
        lines = [f"{video.relative_to(root)} {video.parent.name}\n" for video in videos]
        (root / f"{part}.txt").write_text("".join(lines))
    return root


LAYOUTS = {"folders": folders, "lists": lists}


class TestOwnReaders(ReaderConformance):
    @pytest.fixture(params=sorted(LAYOUTS))
    def reader(self, request: pytest.FixtureRequest) -> str:
        return request.param

    @pytest.fixture
    def data(self, reader: str, tmp_path: Path) -> Path:
        return LAYOUTS[reader](tmp_path / "data")


def test_every_reader_of_hwbench_is_tested_here() -> None:
    assert {readers.get(name) for name in LAYOUTS} == set(OWN)


def test_a_path_without_a_name_is_recognised_and_a_name_overrides_that(tmp_path: Path) -> None:
    both = lists(tmp_path)
    assert type(reader_of(both)) is readers.get("lists")
    assert type(reader_of(both / "train")) is readers.get("folders")
    (both / "val.txt").write_text("val/run/0.mp4 run\n")
    workspace = Workspace.create(tmp_path / "workspace")
    assert len(open_splits(workspace, str(both)).val) == 1
    assert len(open_splits(workspace, f"folders:{both}").val) == 4


def test_a_path_that_exists_is_a_path_though_it_has_a_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders(tmp_path / "lists:x")
    monkeypatch.chdir(tmp_path)
    assert len(open_splits(Workspace.create(tmp_path / "workspace"), "lists:x").train) == 4


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        ("folder:clips", UnknownName, "unknown reader of data 'folder'; did you mean 'folders'"),
        ("folders:nowhere", UnknownName, "no data at nowhere"),
        ("folders:", UnknownName, "no path behind 'folders:'; write --data synthetic"),
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
