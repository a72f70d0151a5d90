import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from hwbench.data import SyntheticSpec, read_frames, read_splits
from hwbench.data.synthetic import CLASSES, PAIRS, partner, prepare, render
from hwbench.errors import InvalidValue, WorkspaceError
from hwbench.workspace import Workspace

SMALL = SyntheticSpec(train_per_class=2, val_per_class=1, size=32, frames=8)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_there_are_eight_classes_in_four_pairs() -> None:
    assert len(CLASSES) == 8
    assert all(partner(partner(name)) == name != partner(name) for name in CLASSES)


@pytest.mark.parametrize("pair", PAIRS)
def test_partners_are_each_other_reversed(pair: tuple[str, str]) -> None:
    spec = SyntheticSpec()
    for split, index in itertools.product(("train", "val"), range(3)):
        one, other = (render(name, split, index, spec) for name in pair)
        assert np.array_equal(one, other[::-1])
        assert not np.array_equal(one, other)
    assert not np.array_equal(render(pair[0], "train", 0, spec), render(pair[0], "val", 0, spec))


@pytest.mark.parametrize("pair", PAIRS)
def test_one_frame_at_any_time_has_the_same_distribution_in_both_classes(pair: tuple[str, str]) -> None:
    # 150 independent videos of each; mean colour, its spread and its moments across the frame at a fixed time
    spec = SyntheticSpec(size=32, frames=12)

    def statistics(name: str, start: int) -> np.ndarray:
        frames = np.stack([render(name, "train", i, spec)[2] for i in range(start, start + 150)]) / 255
        columns = (frames.mean(axis=(1, 3)) * np.linspace(-1, 1, 32)).sum(axis=1)
        rows = (frames.mean(axis=(2, 3)) * np.linspace(-1, 1, 32)).sum(axis=1)
        return np.stack([*frames.mean(axis=(1, 2)).T, frames.std(axis=(1, 2, 3)), columns, rows])

    one, other = statistics(pair[0], 0), statistics(pair[1], 1000)
    for a, b in zip(one, other):
        error = np.sqrt(a.var() / len(a) + b.var() / len(b))
        assert abs(a.mean() - b.mean()) < 4 * error
        # two-sample Kolmogorov-Smirnov at a level of 1 in 10^4
        both = np.sort(np.concatenate([a, b]))
        gap = np.abs(np.searchsorted(np.sort(a), both, "right") - np.searchsorted(np.sort(b), both, "right")).max()
        assert gap / len(a) < 2.23 * np.sqrt(2 / len(a))


def test_what_sees_copies_of_one_frame_scores_half_within_a_pair(workspace: Workspace) -> None:
    # Any network at all: over the frames of twins its answers are the same set, so half of them are wrong.
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv3d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool3d(1), torch.nn.Flatten(),
        torch.nn.Linear(8, 2),
    ).eval()  # fmt: skip

    def answers(name: str) -> list[int]:
        frames = torch.from_numpy(render(name, "val", 0, SMALL).copy()).float() / 255
        copies = frames.permute(0, 3, 1, 2)[:, :, None].expand(-1, -1, 4, -1, -1)  # (frame, C, T copies, H, W)
        return sorted(round(1e4 * float(x)) for x in network(copies)[:, 0].detach())

    for pair in PAIRS:
        assert answers(pair[0]) == answers(pair[1])


def test_files_hold_what_was_drawn(workspace: Workspace) -> None:
    root = prepare(workspace, SMALL)
    splits = read_splits(root)
    assert splits.train.classes == CLASSES
    assert (len(splits.train), len(splits.val)) == (16, 8)
    for path in splits.val.paths:
        drawn = render(path.parent.name, "val", int(path.stem), SMALL).astype(float)
        read = read_frames(path, range(SMALL.frames)).astype(float)
        assert np.abs(read - drawn).mean() < 4
    assert (root / "train" / "grow" / "00000.mp4").read_bytes()[4:8] == b"ftyp"


def test_the_same_seed_gives_the_same_files_and_nothing_is_made_twice(tmp_path: Path) -> None:
    roots = [prepare(Workspace(tmp_path), SMALL)]
    stamp = {path: path.stat().st_mtime_ns for path in roots[0].rglob("*")}
    assert prepare(Workspace(tmp_path), SMALL) == roots[0]
    assert stamp == {path: path.stat().st_mtime_ns for path in roots[0].rglob("*")}
    (tmp_path / "other").mkdir()
    roots.append(prepare(Workspace(tmp_path / "other"), SMALL))
    one, two = ({p.relative_to(root): p.read_bytes() for p in root.rglob("*.mp4")} for root in roots)
    assert one == two
    assert prepare(Workspace(tmp_path), SyntheticSpec(2, 1, 32, 8, seed=1)) != roots[0]


def test_a_set_that_lost_a_file_is_made_again(workspace: Workspace) -> None:
    root = prepare(workspace, SMALL)
    lost = root / "val" / "darken" / "00000.mp4"
    before = lost.read_bytes()
    lost.write_bytes(b"")
    (root / "train" / "grow" / "00001.mp4").unlink()
    prepare(workspace, SMALL)
    assert lost.read_bytes() == before
    assert (root / "train" / "grow" / "00001.mp4").is_file()


def test_killed_in_the_middle_leaves_nothing_half_done(workspace: Workspace) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from hwbench.data.synthetic import SyntheticSpec, prepare\n"
        "from hwbench.workspace import Workspace\n"
        "prepare(Workspace(Path(sys.argv[1])), SyntheticSpec(200, 1, 32, 8))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(workspace.root)])
    deadline = time.monotonic() + 60
    while len(list(workspace.root.rglob("*.mp4"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [p.name for p in workspace.data.iterdir() if not p.name.startswith(".")] == []
    for folder in workspace.data.iterdir():
        os.utime(folder, (0, 0))  # long ago
    prepare(workspace, SMALL)
    prepare(workspace, SyntheticSpec(2, 1, 32, 8, seed=1))
    leftovers = [p for p in workspace.data.iterdir() if p.name.startswith(f".{SMALL.name}")]
    assert leftovers == []


def test_two_processes_at_once(workspace: Workspace) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from hwbench.data.synthetic import SyntheticSpec, prepare\n"
        "from hwbench.workspace import Workspace\n"
        "prepare(Workspace(Path(sys.argv[1])), SyntheticSpec(2, 1, 32, 8))\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, str(workspace.root)]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert [p.name for p in workspace.data.iterdir()] == [SMALL.name]


def test_a_full_or_forbidden_disk_is_one_clear_error(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("hwbench.data.generation.write_video", full)
    with pytest.raises(WorkspaceError, match="no space is left"):
        prepare(workspace, SMALL)
    assert list(workspace.data.iterdir()) == []


def test_impossible_sets_are_refused() -> None:
    for wrong in ({"size": 33}, {"size": 8}, {"frames": 0}, {"train_per_class": 0}, {"seed": -1}):
        with pytest.raises(InvalidValue, match="synthetic"):
            SyntheticSpec(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="shrink"):
        render("shrnk", "train", 0, SMALL)
