"""Labels that tell directions stay so, whatever becomes of a set: a flip under them would teach the wrong class."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from video_files import MakeVideo

import hwbench
from hwbench.data import ClipSpec, VideoList, open_dataset, open_splits
from hwbench.data.augmentations import Augmentation, Flip
from hwbench.data.listings import open_listing
from hwbench.data.readers import get, listing_of
from hwbench.errors import InvalidFile, InvalidValue
from hwbench.testing import datasets
from hwbench.workspace import Workspace

TEMPLATES = ("Pushing [something] left", "Pushing [something] right")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.create(tmp_path / "bench")


@pytest.fixture
def pushing(make_video: MakeVideo, tmp_path: Path) -> Path:
    """A set in the layout of Something-Something."""
    rows = []
    for number in range(4):
        make_video(f"pushing/{number}.mp4", count=6 + number)
        rows.append({"id": str(number), "template": TEMPLATES[number % 2]})
    labels = {template.replace("[", "").replace("]", ""): str(number) for number, template in enumerate(TEMPLATES)}
    for name, values in (("labels", labels), ("train", rows[:2]), ("validation", rows[2:])):
        (tmp_path / "pushing" / f"{name}.json").write_text(json.dumps(values))
    return tmp_path / "pushing"


def flips(workspace: Workspace, data: str) -> bool:
    """Whether a training that asks for flips gets them."""
    clips = open_dataset(
        workspace,
        data,
        split="train",
        size=(32, 32),
        clip=ClipSpec(4, stride=1),
        transforms=("scale-jitter", "flip:0.5"),
    )
    assert isinstance(clips.transform, Augmentation)
    return any(isinstance(step, Flip) for step in clips.transform.steps)


def sides(workspace: Workspace, data: str) -> tuple[VideoList, VideoList]:
    splits = open_splits(workspace, data)
    return splits.train, splits.val


@pytest.mark.parametrize("form", [{}, {"frames": True}, {"shards": True}])
def test_a_prepared_set_is_not_flipped_where_its_original_is_not(
    workspace: Workspace, pushing: Path, tmp_path: Path, form: dict[str, bool]
) -> None:
    out = tmp_path / "out"
    request = hwbench.PrepareDataRequest(data=str(pushing), out=out, short_side=32, jobs=0, **form)
    hwbench.prepare_data(request, workspace=workspace)
    assert not flips(workspace, str(out))
    assert all(side.directional for side in sides(workspace, str(out)))
    one = next(out.glob("train*.tar")) if "shards" in form else out / "train"
    assert open_listing(workspace, str(one)).directional
    # A set that was prepared before says nothing of it, and is read as ever.
    values = json.loads((out / "prepared.json").read_text())
    del values["directional"]
    (out / "prepared.json").write_text(json.dumps(values))
    assert flips(workspace, str(out))


def test_a_prepared_set_of_others_is_flipped(workspace: Workspace, make_video: MakeVideo, tmp_path: Path) -> None:
    for number in range(4):
        make_video(f"clips/{'run' if number % 2 else 'jump'}/{number}.mp4", count=6 + number)
    request = hwbench.PrepareDataRequest(data=str(tmp_path / "clips"), out=tmp_path / "out", short_side=32, jobs=0)
    hwbench.prepare_data(request, workspace=workspace)
    assert flips(workspace, str(tmp_path / "out"))


def test_numbered_classes_of_a_prepared_set_are_not_flipped(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path
) -> None:
    lines = [f"{make_video(f'clips/{number}.mp4', count=6 + number).name} {number % 2}\n" for number in range(4)]
    (tmp_path / "clips" / "all.txt").write_text("".join(["\n# mine\n#directional\n", *lines]))
    request = hwbench.PrepareDataRequest(
        data=str(tmp_path / "clips" / "all.txt"), out=tmp_path / "out", short_side=32, jobs=0
    )
    hwbench.prepare_data(request, workspace=workspace)
    assert (tmp_path / "out" / "train.txt").is_file()
    assert not flips(workspace, str(tmp_path / "out"))


def test_clean_lists_keep_directions(workspace: Workspace, pushing: Path, tmp_path: Path) -> None:
    request = hwbench.CheckDataRequest(data=str(pushing), out=tmp_path / "clean", jobs=0)
    hwbench.check_data(request, workspace=workspace)
    assert [len(side) for side in sides(workspace, str(tmp_path / "clean"))] == [2, 2]
    assert not flips(workspace, str(tmp_path / "clean"))


@pytest.mark.parametrize("directional", [True, False])
def test_clean_tables_keep_directions(
    workspace: Workspace, make_video: MakeVideo, tmp_path: Path, directional: bool
) -> None:
    rows = [f"{make_video(f'{n}.mp4', count=30 + n).name},{n % 2},0,0.5,{'yes' * directional}\n" for n in range(4)]
    (tmp_path / "all.csv").write_text("path,label,start_s,end_s,directional\n" + "".join(rows))
    out = tmp_path / "clean.csv"
    request = hwbench.CheckDataRequest(data=f"table:{tmp_path / 'all.csv'}", out=out, jobs=0)
    hwbench.check_data(request, workspace=workspace)
    assert len(open_listing(workspace, f"table:{out}").videos) == 4
    assert flips(workspace, f"table:{out}") is not directional


@pytest.mark.parametrize(
    ("lines", "directional"),
    [
        ("# directional\na.mp4 0\n", True),
        ("#directional: yes\na.mp4 0\n", True),
        ("#DIRECTIONAL\na.mp4 0\n", True),
        ("# directional, yes\na.mp4 0\n", True),
        ("# directionality matters\na.mp4 0\n", False),
        ("# directions are labels\na.mp4 0\n", False),
        ("a.mp4 0\n# directional\n", False),
    ],
)
def test_a_comment_at_the_head_of_a_list_tells_directions(tmp_path: Path, lines: str, directional: bool) -> None:
    (tmp_path / "all.txt").write_text(lines)
    (tmp_path / "a.mp4").write_bytes(b"")
    assert get("lists").read(tmp_path / "all.txt").directional is directional


@pytest.mark.parametrize(
    ("answer", "directional"), [(True, True), (1.0, True), ("Yes", True), (None, False), ("0", False)]
)
def test_rows_tell_directions(answer: object, directional: bool) -> None:
    rows = [{"path": "a.mp4", "label": "left", "directional": answer}, {"path": "b.mp4", "label": "right"}]
    assert listing_of(rows).directional is directional


def test_a_row_with_another_answer_is_refused() -> None:
    with pytest.raises(InvalidFile, match="rows:1: expected yes or no as 'directional', got 'north'"):
        listing_of([{"path": "a.mp4", "label": "left", "directional": "north"}])


@pytest.mark.parametrize("name", ["folders", "frames", "frame-lists", "huggingface", "mmaction2", "webdataset"])
def test_an_option_says_it_of_layouts_that_have_no_place_for_it(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    if name == "huggingface" and not find_spec("pyarrow"):
        pytest.skip("pip install hwbench[huggingface]")
    root = datasets.COPIES[name].make(tmp_path)
    assert flips(workspace, f"{name}:{root}")
    assert flips(workspace, f"{name}:{root}?directional=no")
    assert not flips(workspace, f"{name}:{root}?directional=yes")
    assert all(side.directional for side in sides(workspace, f"{name}:{root}?directional=Yes"))
    with pytest.raises(InvalidValue, match="option directional: expected yes or no, got 'left'"):
        open_splits(workspace, f"{name}:{root}?directional=left")


def test_class_folders_without_sides_tell_it_too(workspace: Workspace, tmp_path: Path) -> None:
    root = datasets.folders(tmp_path) / "train"
    assert not flips(workspace, f"folders:{root}?directional=yes")


@pytest.mark.parametrize("side", ["train", "val"])
def test_a_comment_at_the_head_of_a_list_of_mmaction2_tells_directions(
    workspace: Workspace, tmp_path: Path, side: str
) -> None:
    root = datasets.mmaction2_frames(tmp_path)
    assert flips(workspace, f"mmaction2:{root}")
    file = root / f"tiny_{side}_list_rawframes.txt"
    file.write_text(f"\n# mine\n#\n# directional\n{file.read_text()}#directional 3\n")
    assert [len(videos) for videos in sides(workspace, f"mmaction2:{root}")] == [4, 2]
    assert not flips(workspace, f"mmaction2:{root}")
    # What begins with # and no blank behind it is the name of a video, as HMDB51 has them.
    shutil.move(root / "rawframes" / "run" / "0", root / "rawframes" / "#1_run")
    file.write_text(f"# directional\n#1_run 6 0\n{file.read_text()}")
    listing = get("mmaction2").read(root)
    assert {video.path.name for video in (*listing.train, *(listing.val or ()))} >= {"#1_run"}
    file.write_text("# directional\n# 3 videos\n")
    with pytest.raises(InvalidFile, match=r"rawframes.txt: expected lines 'VIDEO LABEL' or .*, found none"):
        get("mmaction2").read(root)
