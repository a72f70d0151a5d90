import collections
import dataclasses
import functools
import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hwbench.cli.main import main
from hwbench.data import ClipSpec, default_clip, open_dataset, read_frames, read_splits, stays_in_memory
from hwbench.data.builtin import BuiltinSet, builtin_sets, find_builtin, spec_of
from hwbench.data.generation import generate
from hwbench.data.motion48 import CHANNELS, CLASSES, MOTIONS, SHAPES, Motion48Spec, partner, render
from hwbench.errors import HwbenchError, InvalidValue, UnknownName, WorkspaceError
from hwbench.workspace import Workspace

TINY = Motion48Spec(train_per_class=1, val_per_class=1, size=16, frames=4)
NAMES = ("motion48", "motion48:small")
REVERSED = sorted({tuple(sorted((name, m.partner))) for name, m in MOTIONS.items() if m.backwards})
PAIRS = sorted({tuple(sorted((name, m.partner))) for name, m in MOTIONS.items()})
MOMENTS = [0, 5, 11]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def files(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_the_classes_are_every_shape_with_every_motion() -> None:
    assert len(CLASSES) == len(set(CLASSES)) == 48 == len(SHAPES) * len(MOTIONS)
    assert tuple(sorted(CLASSES)) == CLASSES
    assert all(partner(partner(name)) == name != partner(name) for name in CLASSES)


def test_the_sets_are_as_large_as_promised() -> None:
    full, small = (builtin_sets.get(name).spec for name in NAMES)
    assert [len(CLASSES) * full.per_class(split) for split in ("train", "val")] == [4800, 1440]
    assert [len(CLASSES) * small.per_class(split) for split in ("train", "val")] == [1920, 1440]
    assert (full.size, small.size) == (96, 64)
    # a standard error of top-1 is 1.32 points at most
    assert np.sqrt(0.25 / 1440) < 0.0132


@pytest.mark.parametrize("pair", REVERSED)
@pytest.mark.parametrize("shape", SHAPES)
def test_motions_of_direction_and_order_are_each_other_reversed(shape: str, pair: tuple[str, str]) -> None:
    spec = Motion48Spec(size=32)
    for split, index in itertools.product(("train", "val"), range(2)):
        one, other = (render(f"{shape}-{motion}", split, index, spec) for motion in pair)
        assert np.array_equal(one, other[::-1])
        assert not np.array_equal(one, other)
    assert partner(f"{shape}-{pair[0]}") == f"{shape}-{pair[1]}"


def test_five_pairs_are_reversals_and_one_differs_in_speed() -> None:
    assert len(REVERSED) == 5
    assert set(PAIRS) - set(REVERSED) == {("sway-fast", "sway-slow")}


def test_each_channel_is_moved_by_some_motion_and_an_order_moves_two() -> None:
    assert {channel for motion in MOTIONS.values() for channel in motion.rates} == set(CHANNELS)
    for name in ("sway-nod", "nod-sway", "lead", "follow"):
        (first, last) = MOTIONS[name].rates.values()
        assert first == last[::-1]  # reversing the video exchanges the two


@functools.cache
def rendered(motion: str, start: int, count: int) -> np.ndarray:
    """The frames of ``count`` videos at ``MOMENTS``: (video, moment, height, width, colour)."""
    spec = Motion48Spec(size=32, frames=12)
    return np.stack([render(f"disc-{motion}", "train", i, spec)[MOMENTS] for i in range(start, start + count)])


def statistics(motion: str, at: int, start: int, count: int) -> np.ndarray:
    """Numbers that describe frame ``at`` of ``count`` videos: means, spread and moments, (number, video)."""
    frames = rendered(motion, start, count)[:, MOMENTS.index(at)] / 255
    weights = np.linspace(-1, 1, 32)
    grey = frames.mean(axis=3)
    edges = np.abs(np.diff(grey, axis=1)).mean(axis=(1, 2)), np.abs(np.diff(grey, axis=2)).mean(axis=(1, 2))
    contrast = np.abs(grey - np.median(grey, axis=(1, 2), keepdims=True))
    inner = contrast[:, 8:24, 8:24].mean(axis=(1, 2))
    moments = (contrast.mean(axis=1) * weights**2).sum(axis=1), (contrast.mean(axis=2) * weights**2).sum(axis=1)
    return np.stack([*frames.mean(axis=(1, 2)).T, frames.std(axis=(1, 2, 3)), *edges, inner, *moments])


@pytest.mark.parametrize("at", MOMENTS)
def test_one_frame_at_any_time_has_the_same_distribution_in_all_motions(at: int) -> None:
    count = 120
    samples = [statistics(motion, at, 1000 * i, count) for i, motion in enumerate(MOTIONS)]
    for one, other in itertools.combinations(samples, 2):
        for a, b in zip(one, other):
            # two-sample Kolmogorov-Smirnov; a few thousand comparisons, at a level of 1 in 10^6
            both = np.sort(np.concatenate([a, b]))
            gap = np.abs(np.searchsorted(np.sort(a), both, "right") - np.searchsorted(np.sort(b), both, "right")).max()
            assert gap / count < 2.69 * np.sqrt(2 / count)


def test_the_comparison_of_distributions_can_fail() -> None:
    count = 120
    spec = Motion48Spec(size=32, frames=12)
    a, b = (np.sort([render(f"{shape}-grow", "train", i, spec)[5].std() for i in range(count)]) for shape in SHAPES[:2])
    wide = a * 1.7
    both = np.sort(np.concatenate([wide, b]))
    gap = np.abs(np.searchsorted(wide, both, "right") - np.searchsorted(b, both, "right")).max()
    assert gap / count > 2.69 * np.sqrt(2 / count)


def test_what_answers_by_one_frame_scores_a_twelfth_at_most_within_reversed_pairs() -> None:
    """Over the frames of two partners any function of one frame has the same answers, so half of them are wrong."""
    spec = Motion48Spec(size=16)
    for pair in REVERSED:
        one, other = (render(f"ring-{motion}", "val", 0, spec) for motion in pair)
        assert collections.Counter(f.tobytes() for f in one) == collections.Counter(f.tobytes() for f in other)


def test_motion_needs_time_and_speed_moves_faster() -> None:
    spec = Motion48Spec(size=48)

    def change(motion: str) -> float:
        videos = np.stack([render(f"square-{motion}", "val", i, spec) for i in range(10)]).astype(float)
        return float(np.abs(np.diff(videos, axis=1)).mean())

    assert change("sway-fast") > 1.2 * change("sway-slow")


def test_a_scene_does_not_depend_on_the_size_or_the_counts() -> None:
    large, small = (builtin_sets.get(name).spec for name in NAMES)
    assert isinstance(large, Motion48Spec)
    assert isinstance(small, Motion48Spec)
    for name in CLASSES[::7]:
        one = render(name, "val", 3, large).astype(float)
        other = render(name, "val", 3, small).astype(float)
        # 96 = 3 * 32 and 64 = 2 * 32: means of 3 x 3 and of 2 x 2 pixels
        coarse = one.reshape(20, 32, 3, 32, 3, 3).mean(axis=(2, 4))
        assert np.abs(coarse - other.reshape(20, 32, 2, 32, 2, 3).mean(axis=(2, 4))).mean() < 3
    assert not np.array_equal(render(CLASSES[0], "val", 3, small), render(CLASSES[0], "train", 3, small))
    again = dataclasses.replace(small, train_per_class=7)
    assert np.array_equal(render(CLASSES[0], "train", 3, small), render(CLASSES[0], "train", 3, again))


def test_files_hold_what_was_drawn(workspace: Workspace) -> None:
    spec = dataclasses.replace(TINY, size=64, frames=8)
    splits = read_splits(generate(workspace, spec, processes=1))
    assert splits.train.classes == CLASSES
    for part in (splits.train, splits.val):
        assert set(collections.Counter(part.labels).values()) == {1}
        assert len(part) == 48
    for path in splits.val.paths[::5]:
        drawn = render(path.parent.name, "val", int(path.stem), spec).astype(float)
        grey = (read_frames(path, range(8)) - drawn).mean(axis=-1)  # colour is stored at half the size
        assert np.abs(grey).mean() < 4


def test_the_files_depend_on_the_seed_and_not_on_the_number_of_processes(tmp_path: Path) -> None:
    roots = [generate(Workspace(tmp_path / str(n)), TINY, processes=n) for n in (1, 3)]
    one, several = map(files, roots)
    assert one == several
    assert len(one) == 97
    other = generate(Workspace(tmp_path / "1"), dataclasses.replace(TINY, seed=1), processes=1)
    assert other != roots[0]
    assert all(data != one[name] for name, data in files(other).items() if name.endswith(".mp4"))


def test_frames_are_the_same_in_another_process() -> None:
    code = (
        "import hashlib, sys\n"
        "from hwbench.data.motion48 import CLASSES, Motion48Spec, render\n"
        "spec = Motion48Spec(size=32)\n"
        "print(hashlib.sha256(b''.join(render(c, 'train', 5, spec).tobytes() for c in CLASSES[::5])).hexdigest())\n"
    )
    digests = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(digests) == 1


KILLED = (
    "import sys\n"
    "from pathlib import Path\n"
    "from hwbench.data.generation import generate\n"
    "from hwbench.data.motion48 import Motion48Spec\n"
    "from hwbench.workspace import Workspace\n"
    "generate(Workspace(Path(sys.argv[1])), Motion48Spec(40, 1, 16, 4), processes=2)\n"
)


def test_killed_in_the_middle_leaves_nothing_half_done_and_no_process(workspace: Workspace) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(workspace.root)])
    deadline = time.monotonic() + 60

    def videos() -> int:
        return len(list(workspace.root.rglob("*.mp4")))

    # Videos with an odd number are those of the second process; its start takes longest.
    while not list(workspace.root.rglob("00001.mp4")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [p.name for p in workspace.data.iterdir() if not p.name.startswith(".")] == []
    assert 0 < videos() < 41 * 48
    while time.monotonic() < deadline:  # the other process ends, too
        before = videos()
        time.sleep(0.5)
        if videos() == before:
            break
    else:
        pytest.fail("the process that encodes outlived the one that started it")
    root = generate(workspace, TINY, processes=1)
    assert len(list(root.rglob("*.mp4"))) == 96


def test_a_set_that_lost_a_file_is_made_again(workspace: Workspace) -> None:
    root = generate(workspace, TINY, processes=1)
    before = files(root)
    stamp = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert generate(workspace, TINY) == root
    assert stamp == {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    (root / "val" / "ring-lead" / "00000.mp4").unlink()
    (root / "train" / "disc-grow" / "00000.mp4").write_bytes(b"")
    generate(workspace, TINY, processes=1)
    assert files(root) == before


def test_an_error_of_another_process_is_ours(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the second process is told to encode does not exist for it.
    monkeypatch.setattr(Motion48Spec, "kind", "motion-48")
    with pytest.raises(HwbenchError, match="motion-48"):
        generate(workspace, TINY, processes=2)
    assert list(workspace.data.iterdir()) == []


def test_a_full_disk_is_one_clear_error(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("hwbench.data.generation.write_video", full)
    with pytest.raises(WorkspaceError, match="no space is left"):
        generate(workspace, TINY, processes=2)
    assert list(workspace.data.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("frames", [1, 4, 8, 13, 16])
def test_a_clip_covers_the_video_and_has_room_to_start(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, name: str, frames: int
) -> None:
    made = builtin_sets.get(name)
    small = BuiltinSet(
        dataclasses.replace(made.spec, train_per_class=1, val_per_class=1, size=16), made.clip, made.summary
    )
    monkeypatch.setitem(builtin_sets._items, name, small)
    clip = default_clip(f"synthetic:{name}", frames)
    assert clip == ClipSpec(frames, span_s=1.6)
    assert clip.span_s is not None
    assert 0.75 < clip.span_s * small.spec.fps / small.spec.frames < 1
    if (frames, name) == (4, "motion48:small"):
        training = open_dataset(workspace, f"synthetic:{name}", split="train", size=(16, 16), clip=clip)
        assert len(training) == 48
        assert training[0].views.shape == (1, 3, 4, 16, 16)
        assert training.classes == CLASSES


def test_only_sets_that_fit_stay_in_memory() -> None:
    assert stays_in_memory("synthetic")
    assert stays_in_memory("synthetic:motion48:small")
    assert not stays_in_memory("synthetic:motion48")
    assert not stays_in_memory("some/folder")


def test_a_data_name_that_is_no_synthetic_set_is_left_alone() -> None:
    assert find_builtin("folders:synthetic") is None
    assert find_builtin("synthetic.txt") is None
    with pytest.raises(UnknownName, match="did you mean 'motion48'"):
        find_builtin("synthetic:motion84")
    with pytest.raises(UnknownName, match="known: motion48, motion48:small"):
        find_builtin("synthetic:")


def test_an_unknown_set_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "zoo:x3d-xs", "--data", "synthetic:motion84"])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    assert "did you mean 'motion48'" in said.err


def test_impossible_sets_and_classes_are_refused() -> None:
    for wrong in ({"size": 33}, {"size": 8}, {"frames": 0}, {"train_per_class": 0}, {"seed": -1}):
        with pytest.raises(InvalidValue, match="motion48"):
            Motion48Spec(**wrong)
    for name in ("ring-tun-left", "ringlead", "oval-lead", ""):
        with pytest.raises(InvalidValue, match="unknown class"):
            render(name, "train", 0, TINY)


def test_a_specification_goes_to_another_process_and_comes_back() -> None:
    for spec in (TINY, *(builtin_sets.get(name).spec for name in builtin_sets.names())):
        assert spec_of(spec.kind, json.loads(json.dumps(dataclasses.asdict(spec)))) == spec
